//! Disk Copy 4.2 (`DC42`): a header, the sectors of a diskette, and 12 bytes of tags for each sector.
//! Source: docs/formats/disk-copy.md.

#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod layout;

use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;

use self::layout::{DISKS, DiskCopyRaw, MAGIC};
use super::checksum::StoredChecksum;
use super::mapped::{ChunkPlace, DiskMap, MappedChunk};
use super::{Format, SECTOR, disk_copy_sum};
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::problem::Problems;
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Result};

const LAYER: &str = "disk copy 4.2";
/// Length of the header in bytes.
const HEADER: u64 = size_of::<DiskCopyRaw>() as u64;
/// Bytes of padding at the end of a file that was stored in blocks of 128 bytes.
const PADDING: u64 = 127;
/// Bytes of tags that their checksum leaves out: those of the first sector.
const UNSUMMED_TAGS: u64 = 12;
/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;

/// The disk of an image of Disk Copy 4.2.
#[derive(Debug)]
pub struct DiskCopy {
    file: Arc<dyn BlockDevice>,
    name: Vec<u8>,
    data_size: u64,
    tag_size: u64,
    data_checksum: u32,
    tag_checksum: u32,
    disk_format: u8,
}

/// Returns true if `file` has the header of Disk Copy 4.2: the sizes of data and tags add up to the
/// length of the file, or they are those of a diskette.
pub fn probe(file: &dyn BlockDevice) -> Result<bool> {
    let len = file.info().len;
    if len < HEADER {
        return Ok(false);
    }
    let header = file.read_array::<{ size_of::<DiskCopyRaw>() }>(0)?;
    let Ok(header) = DiskCopyRaw::read_from_bytes(&header) else {
        return Ok(false);
    };
    let (data, tags) = (header.data_size.get(), header.tag_size.get());
    let end = HEADER + u64::from(data) + u64::from(tags);
    let is_diskette = DISKS
        .iter()
        .any(|(code, size, _)| *code == header.disk_format && *size == data);
    Ok(usize::from(header.name_length) <= header.name.len()
        && header.magic == MAGIC
        && data > 0
        && (end == len || is_diskette && (tags == 0 || tags == data / 512 * 12)))
}

fn damaged(at: usize, message: impl Into<String>) -> Error {
    Error::corrupt(LAYER, at as u64, message.into())
}

impl DiskCopy {
    /// Opens the image in `file`.
    pub fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let len = file.info().len;
        if len < HEADER {
            let message = format!("the file has {len} bytes, fewer than the header of {HEADER}");
            return Err(damaged(0, message));
        }
        let header = file.read_array::<{ size_of::<DiskCopyRaw>() }>(0)?;
        let header: DiskCopyRaw = zerocopy::transmute!(header);
        if header.magic != MAGIC {
            return Err(damaged(
                offset_of!(DiskCopyRaw, magic),
                "the header has no signature",
            ));
        }
        let (data_size, tag_size) = (header.data_size.get().into(), header.tag_size.get().into());
        if data_size == 0 || data_size % SECTOR != 0 {
            let message = format!("the disk has {data_size} bytes, not a number of whole sectors");
            return Err(damaged(offset_of!(DiskCopyRaw, data_size), message));
        }
        if HEADER + data_size > len {
            let message = format!(
                "truncated: the disk has {data_size} bytes, the file only {} after its header",
                len - HEADER
            );
            return Err(damaged(offset_of!(DiskCopyRaw, data_size), message));
        }
        let name = usize::from(header.name_length).min(header.name.len());
        Ok(Self {
            file,
            name: header.name[..name].to_vec(),
            data_size,
            tag_size,
            data_checksum: header.data_checksum.get(),
            tag_checksum: header.tag_checksum.get(),
            disk_format: header.disk_format,
        })
    }

    /// Returns the name of the disk, in Mac Roman.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    fn sum(&self, range: Range<u64>, progress: &dyn Progress) -> Result<u32> {
        let mut sum = 0;
        for at in range.clone().step_by(to_usize(PIECE)) {
            progress.check()?;
            let piece = self
                .file
                .read_vec(at, to_usize(PIECE.min(range.end - at)))?;
            sum = disk_copy_sum(sum, &piece);
        }
        Ok(sum)
    }

    /// Returns the range of the tags in the file, as far as it has them.
    fn tags(&self) -> Range<u64> {
        let start = HEADER + self.data_size;
        start..(start + self.tag_size).min(self.file.info().len)
    }
}

impl DiskMap for DiskCopy {
    fn format(&self) -> Format {
        Format::Dc42
    }

    fn layer(&self) -> &'static str {
        LAYER
    }

    fn disk_len(&self) -> u64 {
        self.data_size
    }

    fn chunk_at(&self, _offset: u64) -> Result<MappedChunk> {
        Ok(MappedChunk {
            range: 0..self.data_size,
            place: ChunkPlace::Stored(self.file.clone(), HEADER),
        })
    }

    fn decode(&self, chunk: &Range<u64>, _out: &mut [u8]) -> Result<()> {
        Err(Error::invalid(LAYER, "no data is coded").at(chunk.start))
    }

    fn check(&self, problems: &mut Problems, _progress: &dyn Progress) -> Result<()> {
        use crate::problem::Severity::{Damage, Warning};
        let (len, end) = (
            self.file.info().len,
            HEADER + self.data_size + self.tag_size,
        );
        if end > len {
            let message = format!("truncated: {} bytes of tags are missing", end - len);
            problems.add(Damage, Error::corrupt(LAYER, len, message));
        } else if len - end > PADDING {
            let message = format!("{} bytes after the tags: ignored", len - end);
            problems.add(Warning, Error::corrupt(LAYER, end, message));
        }
        Ok(())
    }

    fn verify(&self, progress: &dyn Progress) -> Result<Vec<StoredChecksum>> {
        progress.stage("verify", self.data_size);
        let data = self.sum(HEADER..HEADER + self.data_size, progress)?;
        progress.advance(self.data_size);
        let mut sums = vec![StoredChecksum::of_words(
            "data",
            "disk_copy",
            self.data_checksum,
            data,
        )];
        if self.tag_size > 0 {
            let tags = self.tags();
            let start = (tags.start + UNSUMMED_TAGS).min(tags.end);
            let computed = self.sum(start..tags.end, progress)?;
            sums.push(StoredChecksum::of_words(
                "tags",
                "disk_copy",
                self.tag_checksum,
                computed,
            ));
        }
        Ok(sums)
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let known = DISKS.iter().find(|(code, size, _)| {
            *code == self.disk_format && u64::from(*size) == self.data_size
        });
        let kind = known.map_or("disk of another size", |(_, _, name)| name);
        let mut facts = vec![("disk", kind.to_owned())];
        if self.tag_size > 0 {
            facts.push(("tags", format!("{} bytes", self.tag_size)));
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::container::mapped::MappedDisk;
    use crate::device::Memory;
    use crate::progress::Silent;

    fn open(bytes: &[u8]) -> Result<MappedDisk> {
        DiskCopy::open(Arc::new(Memory::read_only(bytes.to_vec()))).map(MappedDisk::new)
    }

    #[test]
    fn a_disk_is_read_and_its_sums_are_compared() {
        let disk: Vec<u8> = (0..800_u32 << 10).map(|at| (at / 7) as u8).collect();
        let tags: Vec<u8> = (0..1600_u32 * 12).map(|at| (at / 5) as u8).collect();
        let bytes = fixture::image(&disk, &tags);
        assert!(probe(&Memory::from(bytes.clone())).unwrap());
        let image = open(&bytes).unwrap();
        assert_eq!(image.read_vec(0, disk.len()).unwrap(), disk);
        let agree = |bytes: &[u8]| -> Vec<_> {
            let sums = open(bytes).unwrap().verify(&Silent).unwrap();
            sums.iter().map(StoredChecksum::agrees).collect()
        };
        assert_eq!(agree(&bytes), [Some(true), Some(true)]);
        // The tags of the first sector are not summed.
        for (at, agrees) in [
            (84, [Some(false), Some(true)]),
            (84 + disk.len(), [Some(true), Some(true)]),
            (84 + disk.len() + 12, [Some(true), Some(false)]),
        ] {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            assert_eq!(agree(&changed), agrees, "byte {at}");
        }
    }

    #[test]
    fn truncated_and_other_files_are_refused() {
        let bytes = fixture::image(&[7; 400 << 10], &[]);
        for len in [0, 83, 84, 5000, bytes.len() - 1] {
            let error = open(&bytes[..len]).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{len}: {error}");
        }
        assert!(probe(&Memory::from(bytes[..5000].to_vec())).unwrap());
        assert!(!probe(&Memory::zeros(1 << 20)).unwrap());
    }
}
