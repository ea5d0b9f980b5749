//! DART, the Disk Archive/Retrieval Tool of Apple: a diskette in blocks of 40 sectors with their tags,
//! each compressed on its own. Source: docs/formats/disk-copy.md.

#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod layout;
mod lzhuf;

use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;

use self::layout::{BEST, DISKS, DartRaw, FAST, PLAIN, STORED};
use super::checksum::StoredChecksum;
use super::mapped::{ChunkPlace, DiskMap, MappedChunk};
use super::{Format, SECTOR, disk_copy_sum};
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::problem::Problems;
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Result};

const LAYER: &str = "dart";
/// The resource with the checksum of the tags.
pub const TAG_SUM: (&str, &str) = ("CKSM", "1");
/// The resource with the checksum of the sectors.
pub const DATA_SUM: (&str, &str) = ("CKSM", "2");
const HEADER: usize = size_of::<DartRaw>();
/// Bytes of sectors in a block, of tags behind them, and of both.
const DATA: usize = 40 * 512;
const TAGS: usize = 40 * 12;
const BLOCK: usize = DATA + TAGS;
/// Bytes of padding at the end of a file that was stored in blocks of 128 bytes.
const PADDING: u64 = 127;
/// Numbers of blocks for which a header has lengths: of a disk of 1440 KB, and of others.
const LONG_TABLE: usize = 72;
const SHORT_TABLE: usize = 40;

/// The compression of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    /// Runs of words of 16 bits.
    Fast,
    /// LZHUF.
    Best,
    Plain,
}

/// The checksums of an image, which are in its resource fork: resources `CKSM` 1 and 2.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DartSums {
    /// The sum of the tags.
    pub tags: Option<u32>,
    /// The sum of the sectors.
    pub data: Option<u32>,
}

/// A block in the file.
#[derive(Debug, Clone, Copy)]
struct DartBlock {
    /// In bytes.
    at: u64,
    /// In bytes.
    len: usize,
    is_packed: bool,
}

/// The disk of a DART image.
#[derive(Debug)]
pub struct Dart {
    file: Arc<dyn BlockDevice>,
    compression: Compression,
    kind: &'static str,
    blocks: Vec<DartBlock>,
    sums: DartSums,
}

/// Returns true if `file` is a DART image: its header is that of a diskette, and the lengths of the
/// blocks add up to that of the file.
pub fn probe(file: &dyn BlockDevice) -> Result<bool> {
    match parse(file) {
        Ok(header) => {
            let len = file.info().len;
            Ok(header.end <= len && len - header.end <= PADDING)
        }
        Err(error) if error.kind() == crate::Kind::Corrupt => Ok(false),
        Err(error) => Err(error),
    }
}

struct DartHeader {
    compression: Compression,
    kind: &'static str,
    blocks: Vec<DartBlock>,
    /// The end of the last block, in bytes.
    end: u64,
}

fn parse(file: &dyn BlockDevice) -> Result<DartHeader> {
    let len = file.info().len.min((HEADER + 2 * LONG_TABLE) as u64);
    let head = file.read_vec(0, to_usize(len))?;
    let (header, lengths) = DartRaw::read_from_prefix(&head)
        .map_err(|_| Error::corrupt(LAYER, 0, "the file is shorter than its header"))?;
    let compression = match header.compression {
        FAST => Compression::Fast,
        BEST => Compression::Best,
        PLAIN => Compression::Plain,
        other => {
            let message = format!("unknown compression {other}: expected {FAST} to {PLAIN}");
            return Err(Error::corrupt(LAYER, 0, message));
        }
    };
    let (disk, size) = (header.disk_type, header.disk_size.get());
    let known = DISKS
        .iter()
        .find(|(code, of, _)| (*code, *of) == (disk, size));
    let Some((_, _, kind)) = known else {
        let message = format!("unknown disk of type {disk} and {size} KiB");
        return Err(Error::corrupt(
            LAYER,
            offset_of!(DartRaw, disk_type) as u64,
            message,
        ));
    };
    let (table, used) = match size {
        1440 => (LONG_TABLE, LONG_TABLE),
        _ => (SHORT_TABLE, usize::from(size) / 20),
    };
    let lengths = lengths.as_chunks::<2>().0;
    let lengths = lengths.get(..table).ok_or_else(|| {
        Error::corrupt(LAYER, HEADER as u64, "the file is shorter than its header")
    })?;
    let (mut blocks, mut end) = (Vec::with_capacity(used), (HEADER + 2 * table) as u64);
    for (number, length) in lengths.iter().enumerate() {
        let stored = u16::from_be_bytes(*length);
        if (stored == 0) != (number >= used) {
            let message = format!("block {number} of {used} has a length of {stored}");
            return Err(Error::corrupt(LAYER, (HEADER + 2 * number) as u64, message));
        }
        if stored == 0 {
            continue;
        }
        let is_packed = stored != STORED && compression != Compression::Plain;
        let len = match compression {
            _ if !is_packed => BLOCK,
            Compression::Fast => 2 * usize::from(stored),
            _ => usize::from(stored),
        };
        blocks.push(DartBlock {
            at: end,
            len,
            is_packed,
        });
        end += len as u64;
    }
    Ok(DartHeader {
        compression,
        kind,
        blocks,
        end,
    })
}

impl Dart {
    /// Opens the image in `file`, with the checksums of its resource fork.
    pub fn open(file: Arc<dyn BlockDevice>, sums: DartSums) -> Result<Self> {
        let DartHeader {
            compression,
            kind,
            blocks,
            ..
        } = parse(&*file)?;
        Ok(Self {
            file,
            compression,
            kind,
            blocks,
            sums,
        })
    }

    /// Reads a block: 40 sectors, and their tags.
    fn block(&self, number: usize) -> Result<Vec<u8>> {
        let block = self.blocks.get(number).ok_or_else(|| {
            let message = format!("there is no block {number}");
            Error::corrupt(LAYER, 0, message)
        })?;
        let len = self.file.info().len;
        if block.at + block.len as u64 > len {
            let message = format!("truncated: block {number} ends after the file of {len} bytes");
            return Err(Error::corrupt(LAYER, block.at, message));
        }
        let packed = self.file.read_vec(block.at, block.len)?;
        if !block.is_packed {
            return Ok(packed);
        }
        let mut plain = vec![0; BLOCK];
        let decoded = match self.compression {
            Compression::Best => lzhuf::decode(&packed, &mut plain),
            _ => decode_runs(&packed, &mut plain),
        };
        decoded.map_err(|error| {
            let message = format!("cannot decode block {number}: {}", error.message());
            Error::corrupt(LAYER, block.at, message)
        })?;
        Ok(plain)
    }
}

/// Decodes runs of words: a positive count and that many words, or a negative one and a word that is
/// repeated.
fn decode_runs(packed: &[u8], plain: &mut [u8]) -> Result<()> {
    let damaged = |message| Error::corrupt(LAYER, 0, message);
    let words = packed.as_chunks::<2>().0;
    let out = plain.as_chunks_mut::<2>().0;
    let (mut from, mut to) = (0, 0);
    while to < out.len() {
        let count = words
            .get(from)
            .ok_or_else(|| damaged("the data ends too early"))?;
        let count = i16::from_be_bytes(*count);
        let len = usize::from(count.unsigned_abs());
        let room = out
            .get_mut(to..to + len)
            .filter(|_| count != 0)
            .ok_or_else(|| damaged("a run has no length, or is too long"))?;
        let read = if count > 0 { len } else { 1 };
        let source = words
            .get(from + 1..from + 1 + read)
            .ok_or_else(|| damaged("the data ends too early"))?;
        if count > 0 {
            room.copy_from_slice(source);
        } else {
            room.fill(source[0]);
        }
        (from, to) = (from + 1 + read, to + len);
    }
    Ok(())
}

impl DiskMap for Dart {
    fn format(&self) -> Format {
        Format::Dart
    }

    fn layer(&self) -> &'static str {
        LAYER
    }

    fn disk_len(&self) -> u64 {
        (self.blocks.len() * DATA) as u64
    }

    fn chunk_at(&self, offset: u64) -> Result<MappedChunk> {
        let number = to_usize(offset / DATA as u64);
        let block = self
            .blocks
            .get(number)
            .ok_or_else(|| Error::out_of_range(LAYER, offset, 1, self.disk_len()))?;
        let start = (number * DATA) as u64;
        Ok(MappedChunk {
            range: start..start + DATA as u64,
            place: if block.is_packed {
                ChunkPlace::Coded
            } else {
                ChunkPlace::Stored(self.file.clone(), block.at)
            },
        })
    }

    fn decode(&self, chunk: &Range<u64>, out: &mut [u8]) -> Result<()> {
        let block = self.block(to_usize(chunk.start / DATA as u64))?;
        out.copy_from_slice(&block[..DATA]);
        Ok(())
    }

    fn check(&self, problems: &mut Problems, progress: &dyn Progress) -> Result<()> {
        for number in 0..self.blocks.len() {
            progress.check()?;
            match self.block(number) {
                Err(error) if error.kind() == crate::Kind::Corrupt => {
                    problems.add(crate::problem::Severity::Damage, error);
                }
                read => drop(read?),
            }
        }
        Ok(())
    }

    fn verify(&self, progress: &dyn Progress) -> Result<Vec<StoredChecksum>> {
        progress.stage("verify", self.disk_len());
        if self.sums == DartSums::default() {
            return Ok(Vec::new());
        }
        let (mut data, mut tags) = (0, 0);
        for number in 0..self.blocks.len() {
            progress.check()?;
            let block = self.block(number)?;
            data = disk_copy_sum(data, &block[..DATA]);
            // As in Disk Copy 4.2, the tags of the first sector are not summed.
            let skipped = if number == 0 { 12 } else { 0 };
            tags = disk_copy_sum(tags, &block[DATA + skipped..]);
            progress.advance(DATA as u64);
        }
        let sum = |of: &str, stored: Option<u32>, computed| {
            stored.map(|stored| StoredChecksum::of_words(of, "disk_copy", stored, computed))
        };
        let sums = [
            sum("data", self.sums.data, data),
            sum("tags", self.sums.tags, tags),
        ];
        Ok(sums.into_iter().flatten().collect())
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let compression = match self.compression {
            Compression::Fast => "runs (\"fast\")",
            Compression::Best => "LZHUF (\"best\")",
            Compression::Plain => "none",
        };
        let packed = self.blocks.iter().filter(|block| block.is_packed).count();
        vec![
            ("disk", self.kind.to_owned()),
            (
                "compressed",
                format!("{packed} of {} blocks, {compression}", self.blocks.len()),
            ),
        ]
    }
}

const _: () = assert!((DATA as u64).is_multiple_of(SECTOR));

#[cfg(test)]
mod tests {
    use super::fixture::{Packing, image};
    use super::*;
    use crate::container::mapped::MappedDisk;
    use crate::device::Memory;
    use crate::progress::Silent;
    use crate::testing::Random;

    /// Returns a disk with text, zeros, and data that does not shrink.
    fn disk(kib: usize) -> Vec<u8> {
        let mut disk = b"All work and no play. ".repeat(kib * 20);
        disk.extend(Random::new(3).bytes(60 << 10));
        disk.resize(kib << 10, 0);
        disk
    }

    #[test]
    fn disks_of_each_size_and_compression_are_read() {
        for kib in [400, 720, 800, 1440] {
            let (disk, tags) = (disk(kib), Random::new(4).bytes(kib * 2 * 12));
            for packing in [Packing::Fast, Packing::Best, Packing::Plain] {
                let bytes = image(&disk, &tags, packing);
                assert!(probe(&Memory::from(bytes.clone())).unwrap());
                let sums = DartSums {
                    data: Some(disk_copy_sum(0, &disk)),
                    tags: Some(disk_copy_sum(0, &tags[12..])),
                };
                let dart = Dart::open(Arc::new(Memory::from(bytes)), sums).unwrap();
                let sums = dart.verify(&Silent).unwrap();
                assert!(
                    sums.len() == 2 && sums.iter().all(|sum| sum.agrees() == Some(true)),
                    "{sums:?}"
                );
                let dart = MappedDisk::new(dart);
                assert!(dart.read_vec(0, disk.len()).unwrap() == disk, "{kib} KB");
                assert!(dart.read_vec(20_000, 1000).unwrap() == disk[20_000..21_000]);
            }
        }
    }

    #[test]
    fn runs_are_decoded_as_described() {
        let packed = [0, 2, 1, 2, 3, 4, 0xFF, 0xFD, 5, 6];
        let mut plain = [0; 10];
        decode_runs(&packed, &mut plain).unwrap();
        assert_eq!(plain, [1, 2, 3, 4, 5, 6, 5, 6, 5, 6]);
        for broken in [
            &packed[..9],
            &packed[..3],
            &[0, 0, 1, 1],
            &[0x7F, 0xFF, 0, 0],
        ] {
            assert!(decode_runs(broken, &mut plain).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn truncated_and_other_files_are_refused() {
        let bytes = image(&disk(800), &[], Packing::Best);
        for len in [0, 3, 50, 1000, bytes.len() - 1] {
            assert!(!probe(&Memory::from(bytes[..len].to_vec())).unwrap());
        }
        let cut = Arc::new(Memory::from(bytes[..1000].to_vec()));
        let dart = MappedDisk::new(Dart::open(cut, DartSums::default()).unwrap());
        let error = dart.read_vec(100_000, 1).unwrap_err();
        assert!(error.to_string().contains("truncated"), "{error}");
    }
}
