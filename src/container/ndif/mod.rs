//! NDIF (Disk Copy 6): runs of sectors in the data fork, and a block table in the resource fork.
//! Source: docs/formats/disk-copy.md.

#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod layout;

use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;

use self::layout::{ADC, BlockTableRaw, END, RAW, RunRaw, UNSUPPORTED, ZERO};
use super::checksum::StoredChecksum;
use super::mapped::{ChunkPlace, DiskMap, MAX_CHUNK, MappedChunk};
use super::{Format, SectorNumber};
use crate::codec::Codec;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Kind, Result};

const LAYER: &str = "ndif";
/// The type and the number of the resource with the block table.
pub const RESOURCE: (&str, &str) = ("bcem", "128");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunKind {
    Zero,
    Raw,
    Adc,
}

/// A run of sectors, in bytes.
#[derive(Debug, Clone, Copy)]
struct NdifRun {
    kind: RunKind,
    /// On the disk.
    start: u64,
    end: u64,
    /// In the file.
    at: u64,
    stored: u64,
}

/// The disk of an NDIF image.
#[derive(Debug)]
pub struct Ndif {
    file: Arc<dyn BlockDevice>,
    /// They follow each other, from the first sector to the last.
    runs: Vec<NdifRun>,
    len: u64,
    checksum: u32,
}

impl Ndif {
    /// Opens the image with this data fork and block table.
    ///
    /// [`Kind::Unsupported`] if a run is compressed in another way than by ADC, or the image is encrypted
    /// or in several files.
    pub fn open(file: Arc<dyn BlockDevice>, table: &[u8]) -> Result<Self> {
        let damaged = |at: usize, message: String| Error::corrupt(LAYER, at as u64, message);
        let (header, rest) = BlockTableRaw::ref_from_prefix(table).map_err(|_| {
            let len = table.len();
            damaged(
                0,
                format!("the block table has {len} bytes, fewer than its header"),
            )
        })?;
        if header.is_segmented.get() != 0 {
            let message = "NDIF image in several files: join them with Disk Copy on an old Mac";
            return Err(Error::unsupported(LAYER, message));
        }
        if header.is_encrypted.get() != 0 {
            return Err(Error::unsupported(
                LAYER,
                "NDIF image encrypted by ShrinkWrap: decrypt it there",
            ));
        }
        let len = SectorNumber::from(header.sectors.get()).offset();
        let count = header.runs.get() as usize;
        let runs = count
            .checked_mul(size_of::<RunRaw>())
            .and_then(|bytes| rest.get(..bytes));
        let runs = runs.and_then(|runs| <[RunRaw]>::ref_from_bytes(runs).ok());
        let Some(runs) = runs else {
            let message = format!("the block table ends before its {count} runs");
            return Err(damaged(offset_of!(BlockTableRaw, runs), message));
        };
        let offset = u64::from(header.data_offset.get());
        let mut all: Vec<NdifRun> = Vec::with_capacity(runs.len());
        let mut end = len;
        for (number, run) in runs.iter().enumerate() {
            let at = size_of::<BlockTableRaw>() + number * size_of::<RunRaw>();
            let [high, middle, low] = run.sector;
            let start = u32::from_be_bytes([0, high, middle, low]);
            let start = SectorNumber::from(start).offset();
            if let Some(before) = all.last_mut() {
                before.end = start;
            }
            let from = all.last().map_or(0, |before| before.start);
            let is_first = all.is_empty();
            if start > len || start < from || (is_first && start != 0) {
                let message = format!("run {number} begins at byte {start}, out of order");
                return Err(damaged(at, message));
            }
            let kind = match run.kind {
                ZERO => RunKind::Zero,
                RAW => RunKind::Raw,
                ADC => RunKind::Adc,
                END => {
                    end = start;
                    break;
                }
                other => {
                    let known = UNSUPPORTED.iter().find(|(kind, _)| *kind == other);
                    let message = match known {
                        Some((_, name)) => format!("NDIF image compressed by {name}"),
                        None => format!("NDIF image with runs of the unknown kind {other:#04x}"),
                    };
                    return Err(Error::unsupported(
                        LAYER,
                        message + ": convert it on a Mac with macOS 10.15 or older",
                    ));
                }
            };
            all.push(NdifRun {
                kind,
                start,
                end: len,
                at: offset + u64::from(run.offset.get()),
                stored: run.length.get().into(),
            });
        }
        if end != len || (all.is_empty() && len > 0) {
            let message = format!("the runs end at byte {end} of a disk of {len}");
            return Err(damaged(offset_of!(BlockTableRaw, sectors), message));
        }
        all.retain(|run| run.start < run.end);
        for run in &all {
            check_run(run)?;
        }
        Ok(Self {
            file,
            runs: all,
            len,
            checksum: header.checksum.get(),
        })
    }

    fn run_at(&self, offset: u64) -> Result<&NdifRun> {
        let after = self.runs.partition_point(|run| run.start <= offset);
        let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
        run.filter(|run| offset < run.end)
            .ok_or_else(|| Error::out_of_range(LAYER, offset, 1, self.len))
    }
}

/// Refuses runs that cannot hold their sectors.
fn check_run(run: &NdifRun) -> Result<()> {
    let len = run.end - run.start;
    match run.kind {
        RunKind::Raw if run.stored < len => {
            let message = format!("a raw run of {len} bytes is stored in {} bytes", run.stored);
            Err(Error::corrupt(LAYER, run.start, message))
        }
        RunKind::Adc if len > MAX_CHUNK => {
            let message = format!(
                "compressed run of {len} bytes is too large: at most {MAX_CHUNK} are supported"
            );
            Err(Error::limit(LAYER, message).at(run.start))
        }
        _ => Ok(()),
    }
}

impl DiskMap for Ndif {
    fn format(&self) -> Format {
        Format::Ndif
    }

    fn layer(&self) -> &'static str {
        LAYER
    }

    fn disk_len(&self) -> u64 {
        self.len
    }

    fn chunk_at(&self, offset: u64) -> Result<MappedChunk> {
        let run = self.run_at(offset)?;
        Ok(MappedChunk {
            range: run.start..run.end,
            place: match run.kind {
                RunKind::Zero => ChunkPlace::Zero,
                RunKind::Raw => ChunkPlace::Stored(self.file.clone(), run.at),
                RunKind::Adc => ChunkPlace::Coded,
            },
        })
    }

    fn decode(&self, chunk: &Range<u64>, out: &mut [u8]) -> Result<()> {
        let run = self.run_at(chunk.start)?;
        // ADC adds at most a byte to 128; what follows is not read.
        let stored = run.stored.min(2 * MAX_CHUNK);
        let len = self.file.info().len;
        if run.at + stored > len {
            let message = format!(
                "truncated: the data at byte {} of the disk is stored up to byte {}, past the end of \
                 the file at {len}",
                run.start,
                run.at + stored
            );
            return Err(Error::corrupt(LAYER, run.at, message));
        }
        let packed = self.file.read_vec(run.at, to_usize(stored))?;
        Codec::Adc.decode(&packed, out).map_err(|error| {
            let message = format!(
                "cannot decompress the data at byte {} of the disk: {}",
                run.start,
                error.message()
            );
            Error::corrupt(LAYER, run.at, message)
        })
    }

    fn check(&self, problems: &mut Problems, progress: &dyn Progress) -> Result<()> {
        let len = self.file.info().len;
        let mut room = Vec::new();
        for run in &self.runs {
            progress.check()?;
            let found = match run.kind {
                RunKind::Zero => Ok(()),
                RunKind::Raw if run.at + (run.end - run.start) > len => Err(Error::corrupt(
                    LAYER,
                    run.at,
                    format!("truncated: a run is stored past the end of the file at {len}"),
                )),
                RunKind::Raw => Ok(()),
                RunKind::Adc => {
                    room.resize(to_usize(run.end - run.start), 0);
                    self.decode(&(run.start..run.end), &mut room)
                }
            };
            match found {
                Err(error) if error.kind() == Kind::Corrupt => {
                    problems.add(Severity::Damage, error);
                }
                found => found?,
            }
        }
        Ok(())
    }

    fn verify(&self, _progress: &dyn Progress) -> Result<Vec<StoredChecksum>> {
        if self.checksum == 0 {
            return Ok(Vec::new());
        }
        Ok(vec![StoredChecksum {
            of: "disk".to_owned(),
            algorithm: "crc28",
            stored: Some(format!("{:07x}", self.checksum)),
            computed: None,
            is_of_area: false,
        }])
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let packed = self.runs.iter().filter(|run| run.kind == RunKind::Adc);
        let count = self.runs.len();
        vec![(
            "compressed",
            match packed.count() {
                0 => "no".to_owned(),
                packed => format!("{packed} of {count} runs, ADC"),
            },
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::NdifFixture;
    use super::*;
    use crate::container::mapped::MappedDisk;
    use crate::device::{ExtentKind, Memory};

    fn disk() -> Vec<u8> {
        let mut disk = b"Happy Mac. ".repeat(40_000);
        disk.resize(600 << 10, 0);
        disk.extend(crate::testing::Random::new(5).bytes(200 << 10));
        disk
    }

    fn open(fixture: &NdifFixture) -> Result<MappedDisk> {
        let file = Arc::new(Memory::read_only(fixture.data.clone()));
        Ndif::open(file, &fixture.table).map(MappedDisk::new)
    }

    #[test]
    fn runs_of_each_kind_are_read() {
        let (disk, fixture) = (disk(), NdifFixture::of(&disk()));
        assert!(fixture.data.len() < disk.len() / 2);
        let image = open(&fixture).unwrap();
        assert!(image.read_vec(0, disk.len()).unwrap() == disk);
        assert!(image.read_vec(100_001, 300_000).unwrap() == disk[100_001..400_001]);
        let kinds: Vec<_> = image.extents(0..disk.len() as u64).collect();
        let zero = kinds
            .iter()
            .any(|extent| extent.as_ref().unwrap().1 == ExtentKind::Zero);
        assert!(zero);
    }

    #[test]
    fn other_codings_are_named() {
        let fixture = NdifFixture::of(&disk());
        for (kind, name) in UNSUPPORTED.into_iter().chain([(0x33, "0x33")]) {
            let mut other = fixture.clone();
            other.table[128 + 3] = kind;
            let error = open(&other).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            assert!(error.to_string().contains(name), "{error}");
        }
        for (at, name) in [(0x57, "several files"), (0x77, "encrypted")] {
            let mut other = fixture.clone();
            other.table[at] = 1;
            assert!(open(&other).unwrap_err().to_string().contains(name));
        }
    }

    #[test]
    fn wrong_tables_are_refused() {
        let fixture = NdifFixture::of(&disk());
        let changed = |at: usize, to: u8| {
            let mut other = fixture.clone();
            other.table[at] = to;
            open(&other).unwrap_err().kind()
        };
        assert_eq!(changed(0x7C, 9), Kind::Corrupt, "more runs than there are");
        assert_eq!(changed(0x46, 200), Kind::Corrupt, "a longer disk");
        assert_eq!(changed(128, 9), Kind::Corrupt, "the first run is not first");
        assert_eq!(changed(140, 9), Kind::Corrupt, "a run past the end");
        let mut cut = fixture.clone();
        cut.table.truncate(100);
        assert_eq!(open(&cut).unwrap_err().kind(), Kind::Corrupt);
        let mut cut = fixture;
        cut.data.truncate(10);
        let error = open(&cut).unwrap().read_vec(0, 512).unwrap_err();
        assert!(error.to_string().contains("truncated"), "{error}");
    }
}
