//! QCOW2, the format of QEMU: clusters, found by tables of two levels. Versions 2 and 3, with clusters
//! compressed by zlib. Source: docs/formats/virtual-disks.md.

#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod layout;

use std::collections::HashSet;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;
use zerocopy::big_endian::U64;

use self::layout::{
    COMPRESSED, CORRUPT, CRYPT_AES, CRYPT_LUKS, CRYPT_NONE, DIRTY, EXTENDED_L2, EXTERNAL_DATA,
    MAGIC, OFFSET, OTHER_COMPRESSION, Qcow2Raw, Qcow2Version3Raw, SHORT_HEADER, ZERO, ZLIB, ZSTD,
};
use super::checksum::StoredChecksum;
use super::mapped::{ChunkPlace, DiskMap, MappedChunk};
use super::{Format, SECTOR};
use crate::codec;
use crate::device::{BlockDevice, BlockDeviceExt, ChunkCache};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::size::{self, to_usize};
use crate::{Error, Kind, Result};

const LAYER: &str = "qcow2";
/// Sizes of clusters as powers of two: 512 bytes to 2 MiB.
const CLUSTER_BITS: Range<u32> = 9..22;
/// Longest table of the first level, in bytes, as in QEMU.
const MAX_L1: u64 = 32 << 20;
/// Longest name of a backing file, in bytes.
const MAX_NAME: u64 = 1023;
/// File offset of the flags of incompatible features.
const FEATURES_AT: u64 =
    (size_of::<Qcow2Raw>() + offset_of!(Qcow2Version3Raw, incompatible)) as u64;
/// Bytes of tables of the second level that are kept.
const CACHE: usize = 8 << 20;

/// The disk of a QCOW2 image.
#[derive(Debug)]
pub struct Qcow2 {
    file: Arc<dyn BlockDevice>,
    version: u32,
    cluster_bits: u32,
    len: u64,
    /// The file offsets of the tables of the second level; 0: there is none.
    l1: Vec<u64>,
    l2: ChunkCache<u64>,
    snapshots: u32,
    is_dirty: bool,
    is_corrupt: bool,
}

/// Place of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cluster {
    Hole,
    Zero,
    /// File offset.
    Plain(u64),
    /// File offset, and length in bytes at most.
    Compressed(u64, u64),
}

/// Returns true if `file` begins as a QCOW2 image.
pub fn probe(file: &dyn BlockDevice) -> Result<bool> {
    Ok(file.info().len >= size_of::<Qcow2Raw>() as u64 && file.read_array::<4>(0)? == MAGIC)
}

fn damaged(at: u64, message: impl Into<String>) -> Error {
    Error::corrupt(LAYER, at, message.into())
}

impl Qcow2 {
    /// Opens the image in `file`.
    ///
    /// [`Kind::Unsupported`] if it is encrypted, has a backing file or its data in another file, or uses
    /// features that are not known.
    pub fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let len = file.info().len;
        let whole = size_of::<Qcow2Raw>() + size_of::<Qcow2Version3Raw>();
        let head = file.read_vec(0, whole.min(to_usize(len)))?;
        let Ok((header, more)) = Qcow2Raw::ref_from_prefix(&head) else {
            return Err(damaged(0, "the file is shorter than its header"));
        };
        if header.magic != MAGIC {
            return Err(damaged(0, "the header has no signature"));
        }
        let version = header.version.get();
        let flags = match version {
            2 => 0,
            3 => features(more)?,
            other => {
                let message = format!(
                    "QCOW image of version {other}: convert it first by `qemu-img convert -O raw`"
                );
                return Err(Error::unsupported(LAYER, message));
            }
        };
        match header.crypt_method.get() {
            CRYPT_NONE => {}
            method => {
                let name = match method {
                    CRYPT_AES => "AES",
                    CRYPT_LUKS => "LUKS",
                    _ => "an unknown method",
                };
                let message = format!(
                    "QCOW2 image encrypted by {name}: decrypt it first by `qemu-img convert`"
                );
                return Err(Error::unsupported(LAYER, message));
            }
        }
        if header.backing_file_offset.get() != 0 {
            return Err(has_backing_file(&*file, header)?);
        }
        let cluster_bits = header.cluster_bits.get();
        if !CLUSTER_BITS.contains(&cluster_bits) {
            return Err(damaged(
                offset_of!(Qcow2Raw, cluster_bits) as u64,
                format!(
                    "invalid cluster size of 2^{cluster_bits} bytes: expected 2^{} to 2^{}",
                    CLUSTER_BITS.start,
                    CLUSTER_BITS.end - 1
                ),
            ));
        }
        let disk_len = header.size.get();
        if disk_len % SECTOR != 0 || disk_len > i64::MAX.cast_unsigned() {
            let message = format!("the disk has {disk_len} bytes, not a number of whole sectors");
            return Err(damaged(offset_of!(Qcow2Raw, size) as u64, message));
        }
        // A table of the second level fills a cluster with entries of 8 bytes.
        let covered = 1_u64 << (2 * cluster_bits - 3);
        let needed = disk_len.div_ceil(covered);
        let (entries, at) = (u64::from(header.l1_size.get()), header.l1_offset.get());
        if needed > entries {
            let message =
                format!("{entries} tables are too few for the disk, which needs {needed}");
            return Err(damaged(offset_of!(Qcow2Raw, l1_size) as u64, message));
        }
        if needed * 8 > MAX_L1 {
            let message =
                format!("a disk of {disk_len} bytes in clusters of 2^{cluster_bits} bytes");
            return Err(Error::limit(LAYER, message));
        }
        if at.checked_add(needed * 8).is_none_or(|end| end > len) {
            return Err(damaged(
                offset_of!(Qcow2Raw, l1_offset) as u64,
                "the first table is past the end of the file",
            ));
        }
        let table = file.read_vec(at, to_usize(needed * 8))?;
        let l1 = table.as_chunks::<8>().0.iter();
        Ok(Self {
            version,
            cluster_bits,
            len: disk_len,
            l1: l1
                .map(|entry| u64::from_be_bytes(*entry) & OFFSET)
                .collect(),
            l2: ChunkCache::new(CACHE),
            snapshots: header.snapshots.get(),
            is_dirty: flags & DIRTY != 0,
            is_corrupt: flags & CORRUPT != 0,
            file,
        })
    }

    fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Returns the number of bytes of the disk that a table of the second level covers.
    fn covered(&self) -> u64 {
        1 << (2 * self.cluster_bits - 3)
    }

    /// Reads a table of the second level.
    fn table(&self, at: u64) -> Result<Arc<Vec<u8>>> {
        self.l2.get(at, || {
            let size = self.cluster_size();
            let end = at.checked_add(size);
            if !at.is_multiple_of(size) || end.is_none_or(|end| end > self.file.info().len) {
                let message = "a table is misaligned, or past the end of the file";
                return Err(damaged(at, message));
            }
            self.file.read_vec(at, to_usize(size)).map(Arc::new)
        })
    }

    /// Returns the place of the cluster by its entry.
    fn cluster(&self, table: &[u8], index: usize) -> Result<Cluster> {
        let entry = <[U64]>::ref_from_bytes(table)
            .ok()
            .and_then(|entries| entries.get(index))
            .map_or(0, |entry| entry.get());
        if entry & COMPRESSED != 0 {
            let bits = 62 - (self.cluster_bits - 8);
            let at = entry & ((1 << bits) - 1);
            let sectors = (entry & (COMPRESSED - 1)) >> bits;
            let len = (sectors + 1) * SECTOR - at % SECTOR;
            return Ok(Cluster::Compressed(at, len));
        }
        let at = entry & OFFSET;
        if entry & ZERO != 0 && self.version >= 3 {
            return Ok(Cluster::Zero);
        }
        if at == 0 {
            return Ok(Cluster::Hole);
        }
        if !at.is_multiple_of(self.cluster_size()) {
            return Err(damaged(
                at,
                "misaligned data: expected the start of a cluster",
            ));
        }
        Ok(Cluster::Plain(at))
    }

    /// Returns the place of byte `offset` of the disk, with the bytes that share it.
    fn locate(&self, offset: u64) -> Result<(Range<u64>, Cluster)> {
        let covered = self.covered();
        let first = offset - offset % covered;
        let Some(table) = self.l1.get(to_usize(offset / covered)) else {
            return Err(Error::out_of_range(LAYER, offset, 1, self.len));
        };
        if *table == 0 {
            return Ok((first..first + covered, Cluster::Hole));
        }
        let table = self.table(*table)?;
        let index = (offset - first) >> self.cluster_bits;
        let start = first + (index << self.cluster_bits);
        let cluster = self.cluster(&table, to_usize(index))?;
        Ok((start..start + self.cluster_size(), cluster))
    }
}

/// Returns the flags of incompatible features, all of which are known.
fn features(more: &[u8]) -> Result<u64> {
    let Ok((more, _)) = Qcow2Version3Raw::ref_from_prefix(more) else {
        return Err(damaged(
            size_of::<Qcow2Raw>() as u64,
            "the file is shorter than its header",
        ));
    };
    let flags = more.incompatible.get();
    let unsupported = |what: String| {
        let hint = "convert it first by `qemu-img convert -O raw`";
        Error::unsupported(LAYER, format!("QCOW2 image with {what}: {hint}"))
    };
    if flags & EXTERNAL_DATA != 0 {
        return Err(unsupported("its data in another file".into()));
    }
    if flags & EXTENDED_L2 != 0 {
        return Err(unsupported("extended tables (subclusters)".into()));
    }
    let is_long = more.header_length.get() > SHORT_HEADER;
    match more.compression {
        kind if flags & OTHER_COMPRESSION != 0 && is_long && kind != ZLIB => {
            let name = if kind == ZSTD {
                "zstd"
            } else {
                "an unknown way"
            };
            return Err(unsupported(format!("clusters compressed by {name}")));
        }
        _ => {}
    }
    let known = DIRTY | CORRUPT | OTHER_COMPRESSION;
    if flags & !known != 0 {
        return Err(unsupported(format!(
            "unknown features {:#x}",
            flags & !known
        )));
    }
    Ok(flags)
}

/// Returns the refusal of an image that is a layer over another. That one is not opened by a name in the
/// file.
fn has_backing_file(file: &dyn BlockDevice, header: &Qcow2Raw) -> Result<Error> {
    let (at, size) = (
        header.backing_file_offset.get(),
        u64::from(header.backing_file_size.get()),
    );
    let is_inside = at
        .checked_add(size)
        .is_some_and(|end| end <= file.info().len);
    let name = if is_inside && size <= MAX_NAME {
        String::from_utf8_lossy(&file.read_vec(at, to_usize(size))?).into_owned()
    } else {
        return Ok(damaged(
            offset_of!(Qcow2Raw, backing_file_offset) as u64,
            "the name of the backing file is not in the file",
        ));
    };
    let message = format!(
        "QCOW2 image that is a layer over {name:?}: join both first: `qemu-img convert -O raw DISK.qcow2 \
         disk.img`"
    );
    Ok(Error::unsupported(LAYER, message))
}

impl DiskMap for Qcow2 {
    fn format(&self) -> Format {
        Format::Qcow2
    }

    fn layer(&self) -> &'static str {
        LAYER
    }

    fn disk_len(&self) -> u64 {
        self.len
    }

    fn chunk_at(&self, offset: u64) -> Result<MappedChunk> {
        let (range, cluster) = self.locate(offset)?;
        let place = match cluster {
            Cluster::Hole => ChunkPlace::Hole,
            Cluster::Zero => ChunkPlace::Zero,
            Cluster::Plain(at) => ChunkPlace::Stored(self.file.clone(), at),
            Cluster::Compressed(..) => ChunkPlace::Coded,
        };
        Ok(MappedChunk { range, place })
    }

    fn decode(&self, chunk: &Range<u64>, out: &mut [u8]) -> Result<()> {
        let (_, Cluster::Compressed(at, len)) = self.locate(chunk.start)? else {
            return Err(Error::invalid(LAYER, "the cluster is not compressed").at(chunk.start));
        };
        let file_len = self.file.info().len;
        if at >= file_len {
            return Err(damaged(
                at,
                format!("truncated: compressed data is past the end of the file at {file_len}"),
            ));
        }
        // The length counts whole sectors, of which the last may be missing in the file.
        let packed = self.file.read_vec(at, to_usize(len.min(file_len - at)))?;
        // The last cluster may reach past the end of the disk.
        let decoded = if out.len() as u64 == self.cluster_size() {
            codec::decode_deflate(&packed, out)
        } else {
            let (mut whole, len) = (vec![0; to_usize(self.cluster_size())], out.len());
            codec::decode_deflate(&packed, &mut whole).map(|()| out.copy_from_slice(&whole[..len]))
        };
        decoded.map_err(|error| {
            let message = format!(
                "cannot decompress the cluster at byte {} of the disk: {}",
                chunk.start,
                error.message()
            );
            Error::new(error.kind(), LAYER, message).at(at)
        })
    }

    fn check(&self, problems: &mut Problems, progress: &dyn Progress) -> Result<()> {
        if self.is_dirty {
            let message = "it was not closed by its last writer: counts of references may be wrong";
            problems.add(Severity::Warning, damaged(FEATURES_AT, message));
        }
        if self.is_corrupt {
            let message = "its last writer marked it as damaged";
            problems.add(Severity::Damage, damaged(FEATURES_AT, message));
        }
        let len = self.file.info().len;
        let mut seen = HashSet::new();
        for table in self.l1.iter().filter(|table| **table != 0) {
            progress.check()?;
            if !seen.insert(*table) {
                let message = "two parts of the disk have the same table";
                problems.add(Severity::Damage, damaged(*table, message));
                continue;
            }
            let entries = match self.table(*table) {
                Err(error) if error.kind() == Kind::Corrupt => {
                    problems.add(Severity::Damage, error);
                    continue;
                }
                entries => entries?,
            };
            for index in 0..entries.len() / 8 {
                let (at, end) = match self.cluster(&entries, index) {
                    Ok(Cluster::Plain(at)) => (at, at.saturating_add(self.cluster_size())),
                    Ok(Cluster::Compressed(at, _)) => (at, at.saturating_add(1)),
                    Ok(Cluster::Hole | Cluster::Zero) => continue,
                    Err(error) => {
                        problems.add(Severity::Damage, error);
                        continue;
                    }
                };
                // The last cluster of a file need not be whole if the disk ends within it.
                if end > len && (at >= len || self.len.is_multiple_of(self.cluster_size())) {
                    let message = "truncated: a cluster is past the end of the file";
                    problems.add(Severity::Damage, damaged(at, message));
                }
            }
        }
        Ok(())
    }

    fn verify(&self, _progress: &dyn Progress) -> Result<Vec<StoredChecksum>> {
        Ok(Vec::new())
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("version", self.version.to_string()),
            (
                "clusters",
                format!("{:#}", size::display(self.cluster_size())),
            ),
        ];
        if self.snapshots > 0 {
            let count = size::counted(self.snapshots.into(), "snapshot", "snapshots");
            facts.push(("snapshots", format!("{count}, not read")));
        }
        facts
    }
}
