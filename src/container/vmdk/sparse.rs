//! A sparse file of VMware, the whole disk or an extent of it; stream-optimized ones included.

use std::collections::HashSet;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use super::layout::{AT_END, COMPRESSED, DEFLATE, ExtentRaw, GrainRaw, MAGIC, ZERO_GRAINS};
use super::{LAYER, damaged};
use crate::codec::Codec;
use crate::container::mapped::{ChunkPlace, MAX_CHUNK, MappedChunk};
use crate::container::{SECTOR, SectorNumber};
use crate::device::{BlockDevice, BlockDeviceExt, ChunkCache};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::size::{self, to_usize};
use crate::{Error, Kind, Result};

/// Size of the header in bytes.
pub(super) const HEADER: u64 = size_of::<ExtentRaw>() as u64;
/// Longest directory, in bytes.
const MAX_DIRECTORY: u64 = 16 << 20;
/// Longest description in a sparse file, in bytes.
const MAX_DESCRIPTION: u64 = 64 << 10;
/// Entries of a table, in a file made by VMware 512.
const TABLE_ENTRIES: Range<u32> = 1..(64 << 10) + 1;
/// Bytes of tables that are kept.
const CACHE: usize = 4 << 20;

/// The contents of a sparse file.
#[derive(Debug)]
pub(super) struct SparseExtent {
    file: Arc<dyn BlockDevice>,
    len: u64,
    /// In bytes.
    grain: u64,
    table_entries: u64,
    /// In sectors, of each table; 0: there is none.
    directory: Vec<u32>,
    has_zero_grains: bool,
    is_compressed: bool,
    tables: ChunkCache<u64>,
    /// The description in the file; `None`: the file has none, or room for one.
    description: Option<String>,
}

/// The place of a grain.
#[derive(Debug, Clone, Copy)]
enum Grain {
    Hole,
    Zero,
    /// File offset.
    Stored(u64),
}

fn read_header(file: &dyn BlockDevice, at: u64) -> Result<ExtentRaw> {
    let bytes = file.read_array::<{ size_of::<ExtentRaw>() }>(at)?;
    let header: ExtentRaw = zerocopy::transmute!(bytes);
    if header.magic != MAGIC {
        return Err(damaged(at, "the header has no signature"));
    }
    Ok(header)
}

/// Reads `len` bytes from a sector of the file.
fn read_sectors(
    file: &dyn BlockDevice,
    sector: SectorNumber,
    len: u64,
    what: &str,
) -> Result<Vec<u8>> {
    let at = sector.offset();
    match at.checked_add(len) {
        Some(end) if end <= file.info().len => file.read_vec(at, to_usize(len)),
        _ => Err(damaged(
            at,
            format!("truncated: {what} is past the end of the file"),
        )),
    }
}

impl SparseExtent {
    /// Opens a sparse file.
    pub(super) fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        if file.info().len < HEADER {
            return Err(damaged(0, "the file is shorter than its header"));
        }
        let mut header = read_header(&*file, 0)?;
        let version = header.version.get();
        if !(1..=3).contains(&version) {
            let message = format!("VMDK file of version {version}: 1 to 3 are supported");
            return Err(Error::unsupported(LAYER, message));
        }
        let description = description(&*file, &header)?;
        if header.directory_at.get() == AT_END {
            // The header again, and a marker of the end.
            let at = file.info().len.checked_sub(2 * HEADER);
            let at = at.ok_or_else(|| damaged(0, "truncated: the header at the end is missing"))?;
            header = read_header(&*file, at).map_err(|error| {
                damaged(at, "truncated: the header at the end is missing").caused_by(error)
            })?;
            if header.directory_at.get() == AT_END {
                return Err(damaged(
                    at,
                    "the header at the end has no offset of the directory",
                ));
            }
        }
        let (flags, compression) = (header.flags.get(), header.compression.get());
        let is_compressed = flags & COMPRESSED != 0;
        if is_compressed && compression != DEFLATE {
            let message = format!("VMDK file with the unknown compression {compression}");
            return Err(Error::unsupported(LAYER, message));
        }
        let capacity = header.capacity.get();
        let grain = header.grain_size.get().saturating_mul(SECTOR);
        if !grain.is_power_of_two() || !(SECTOR..=MAX_CHUNK).contains(&grain) {
            return Err(damaged(
                offset_of!(ExtentRaw, grain_size) as u64,
                format!(
                    "invalid grain size of {grain} bytes: expected a power of two from {SECTOR} to {MAX_CHUNK}"
                ),
            ));
        }
        let most = i64::MAX.cast_unsigned() / SECTOR;
        if capacity > most {
            return Err(damaged(
                offset_of!(ExtentRaw, capacity) as u64,
                format!("invalid disk size of {capacity} sectors: expected at most {most}"),
            ));
        }
        let entries = header.table_entries.get();
        if !TABLE_ENTRIES.contains(&entries) {
            return Err(damaged(
                offset_of!(ExtentRaw, table_entries) as u64,
                format!(
                    "invalid table size of {entries} entries: expected {} to {}",
                    TABLE_ENTRIES.start,
                    TABLE_ENTRIES.end - 1
                ),
            ));
        }
        let len = capacity * SECTOR;
        let tables = len.div_ceil(grain * u64::from(entries));
        if tables * 4 > MAX_DIRECTORY {
            return Err(Error::limit(LAYER, format!("a disk of {tables} tables")));
        }
        let at = SectorNumber(header.directory_at.get());
        let directory = read_sectors(&*file, at, tables * 4, "the directory")?;
        let directory = directory.as_chunks::<4>().0.iter();
        Ok(Self {
            len,
            grain,
            table_entries: entries.into(),
            directory: directory.map(|entry| u32::from_le_bytes(*entry)).collect(),
            has_zero_grains: flags & ZERO_GRAINS != 0,
            is_compressed,
            tables: ChunkCache::new(CACHE),
            description,
            file,
        })
    }

    /// Reads a table by its sector.
    fn table(&self, sector: u32) -> Result<Arc<Vec<u8>>> {
        self.tables.get(sector.into(), || {
            let len = self.table_entries * 4;
            read_sectors(&*self.file, SectorNumber::from(sector), len, "a table").map(Arc::new)
        })
    }

    fn grain(&self, table: &[u8], index: usize) -> Grain {
        let entries = <[U32]>::ref_from_bytes(table).unwrap_or_default();
        match entries.get(index).map_or(0, |entry| entry.get()) {
            0 => Grain::Hole,
            1 if self.has_zero_grains => Grain::Zero,
            sector => Grain::Stored(SectorNumber::from(sector).offset()),
        }
    }

    /// Returns the place of byte `offset` of the disk, with the bytes that share it.
    fn locate(&self, offset: u64) -> Result<(Range<u64>, Grain)> {
        let covered = self.grain * self.table_entries;
        let first = offset - offset % covered;
        let Some(table) = self.directory.get(to_usize(offset / covered)) else {
            return Err(Error::out_of_range(LAYER, offset, 1, self.len));
        };
        if *table == 0 {
            return Ok((first..first + covered, Grain::Hole));
        }
        let table = self.table(*table)?;
        let index = (offset - first) / self.grain;
        let start = first + index * self.grain;
        Ok((
            start..start + self.grain,
            self.grain(&table, to_usize(index)),
        ))
    }
}

/// Returns the description in the file, if it has room for one. QEMU leaves that in each file of a disk.
fn description(file: &dyn BlockDevice, header: &ExtentRaw) -> Result<Option<String>> {
    let (at, len) = (
        header.descriptor_at.get(),
        header.descriptor_size.get().saturating_mul(SECTOR),
    );
    if at == 0 || len == 0 {
        return Ok(None);
    }
    let len = len.min(MAX_DESCRIPTION);
    let text = read_sectors(file, SectorNumber(at), len, "the description")?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

impl SparseExtent {
    /// Returns the length of the contents in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the description in the file. `None`: there is no room for one.
    pub(super) fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Returns a description of the grains.
    pub(super) fn grains(&self) -> String {
        let compressed = match self.is_compressed {
            true => ", compressed",
            false => "",
        };
        format!("{:#}{compressed}", size::display(self.grain))
    }

    /// Returns the chunk that contains byte `offset`, which is below the length.
    pub(super) fn chunk_at(&self, offset: u64) -> Result<MappedChunk> {
        let (range, grain) = self.locate(offset)?;
        let place = match grain {
            Grain::Hole => ChunkPlace::Hole,
            Grain::Zero => ChunkPlace::Zero,
            Grain::Stored(_) if self.is_compressed => ChunkPlace::Coded,
            Grain::Stored(at) => ChunkPlace::Stored(self.file.clone(), at),
        };
        Ok(MappedChunk { range, place })
    }

    /// Fills `out` with the contents of a coded chunk, which has the same length.
    pub(super) fn decode(&self, chunk: &Range<u64>, out: &mut [u8]) -> Result<()> {
        let (_, Grain::Stored(at)) = self.locate(chunk.start)? else {
            return Err(Error::invalid(LAYER, "the grain is not stored").at(chunk.start));
        };
        let marker = read_sectors(
            &*self.file,
            SectorNumber::of(at),
            size_of::<GrainRaw>() as u64,
            "a grain",
        )?;
        let Ok((marker, _)) = GrainRaw::ref_from_prefix(&marker) else {
            return Err(damaged(at, "the grain has no marker"));
        };
        let (sector, len) = (
            SectorNumber(marker.sector.get()),
            u64::from(marker.length.get()),
        );
        let expected = SectorNumber::of(chunk.start);
        if sector != expected {
            let message = format!("the grain is that of sector {sector}, expected {expected}");
            return Err(damaged(at, message));
        }
        let start = at + size_of::<GrainRaw>() as u64;
        let file_len = self.file.info().len;
        if len > 2 * MAX_CHUNK || start + len > file_len {
            let message = format!("truncated: a grain ends after the file of {file_len} bytes");
            return Err(damaged(at, message));
        }
        let packed = self.file.read_vec(start, to_usize(len))?;
        let decode = |packed: &[u8], out: &mut [u8]| Codec::Zlib.decode(packed, out);
        let mut decoded = decode(&packed, out);
        // The last grain may reach past the end of the disk.
        if decoded.is_err() && (out.len() as u64) < self.grain {
            let mut whole = vec![0; to_usize(self.grain)];
            decoded = decode(&packed, &mut whole);
            let len = out.len();
            out.copy_from_slice(&whole[..len]);
        }
        decoded.map_err(|error| {
            let message = format!(
                "cannot decompress the grain at byte {} of the disk: {}",
                chunk.start,
                error.message()
            );
            Error::new(error.kind(), LAYER, message).at(at)
        })
    }

    /// Reports problems of the tables.
    pub(super) fn check(&self, problems: &mut Problems, progress: &dyn Progress) -> Result<()> {
        let file_len = self.file.info().len;
        let mut seen = HashSet::new();
        for (number, sector) in self.directory.iter().enumerate() {
            progress.check()?;
            if *sector == 0 {
                continue;
            }
            if !seen.insert(*sector) {
                let message = "two parts of the disk have the same table";
                problems.add(
                    Severity::Damage,
                    damaged(u64::from(*sector) * SECTOR, message),
                );
                continue;
            }
            let table = match self.table(*sector) {
                Err(error) if error.kind() == Kind::Corrupt => {
                    problems.add(Severity::Damage, error);
                    continue;
                }
                table => table?,
            };
            for index in 0..table.len() / 4 {
                let Grain::Stored(at) = self.grain(&table, index) else {
                    continue;
                };
                let start = (number as u64 * self.table_entries + index as u64) * self.grain;
                if start >= self.len {
                    break;
                }
                let stored = match self.is_compressed {
                    true => size_of::<GrainRaw>() as u64,
                    false => self.grain.min(self.len - start),
                };
                if at + stored > file_len {
                    let message =
                        format!("truncated: a grain ends after the file of {file_len} bytes");
                    problems.add(Severity::Damage, damaged(at, message));
                }
            }
        }
        Ok(())
    }
}
