//! EWF, the format of EnCase (`.E01`): compressed chunks in a set of files, with checksums. Version 1.
//! Source: docs/formats/virtual-disks.md.

#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod layout;
mod sections;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use md5::{Digest, Md5};
use rayon::prelude::*;
use sha1::Sha1;
use zerocopy::FromBytes;

use self::layout::{PACKED, SIGNATURE, SegmentRaw};
use self::sections::{Sections, StoredTable};
use super::checksum::StoredChecksum;
use super::mapped::{ChunkPlace, DiskMap, MAX_CHUNK, MappedChunk};
use super::{Format, SECTOR};
use crate::codec::Codec;
use crate::device::{BlockDevice, BlockDeviceExt, ChunkCache};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::size::{self, to_usize};
use crate::{Error, Kind, Result};

const LAYER: &str = "ewf";
/// Bytes of tables that are kept.
const CACHE: usize = 8 << 20;
/// Bytes that are hashed at a time.
const PIECE: u64 = 4 << 20;

/// A file of a set.
#[derive(Debug, Clone)]
pub struct EwfPart {
    /// The file.
    pub file: Arc<dyn BlockDevice>,
    /// Its name, for errors.
    pub name: PathBuf,
}

/// The disk of a set of EWF files.
#[derive(Debug)]
pub struct Ewf {
    parts: Vec<EwfPart>,
    len: u64,
    /// In bytes.
    chunk: u64,
    /// In the order of the chunks.
    tables: Vec<StoredTable>,
    entries: ChunkCache<usize>,
    sections: Sections,
}

/// A chunk in a file.
#[derive(Debug, Clone, Copy)]
struct StoredChunk {
    /// The number of the file, from 0.
    part: usize,
    at: u64,
    len: u64,
    is_packed: bool,
}

/// Returns the number of `file` in its set, from 1. `None`: it is no EWF file.
pub fn probe(file: &dyn BlockDevice) -> Result<Option<u16>> {
    let size = size_of::<SegmentRaw>();
    if file.info().len < size as u64 {
        return Ok(None);
    }
    let head = file.read_vec(0, size)?;
    let header = SegmentRaw::ref_from_bytes(&head).ok();
    Ok(header
        .filter(|header| header.signature == SIGNATURE)
        .map(|header| header.number.get()))
}

/// Returns true if the last section of `file` says that the set continues in another.
pub fn continues(file: &dyn BlockDevice) -> Result<bool> {
    sections::continues(file)
}

/// Returns the path of file `number` of the set that begins at `first`: `.E01` to `.E99`, `.EAA` to
/// `.EZZ`, `.FAA` and so on. `None`: there is none of that number.
pub fn part_path(first: &Path, number: u32) -> Option<PathBuf> {
    let extension = first.extension()?.to_str()?;
    let letter = extension.chars().next()?;
    if number < 100 {
        return Some(first.with_extension(format!("{letter}{number:02}")));
    }
    let base = if letter.is_ascii_lowercase() {
        b'a'
    } else {
        b'A'
    };
    let number = number - 100;
    let letters = [number / 676, number / 26 % 26, number % 26];
    let [one, two, three] = [
        u32::from(letter).checked_sub(base.into())? + letters[0],
        letters[1],
        letters[2],
    ];
    let of = |number: u32| {
        Some(char::from(
            base + u8::try_from(number).ok().filter(|n| *n < 26)?,
        ))
    };
    let extension: String = [of(one)?, of(two)?, of(three)?].iter().collect();
    Some(first.with_extension(extension))
}

fn damaged(at: u64, message: impl Into<String>) -> Error {
    Error::corrupt(LAYER, at, message.into())
}

/// Returns the Adler-32 of RFC 1950.
fn adler32(bytes: &[u8]) -> u32 {
    let (mut one, mut two) = (1_u32, 0_u32);
    // So many sums of bytes fit 32 bits.
    for piece in bytes.chunks(5552) {
        for byte in piece {
            one += u32::from(*byte);
            two += one;
        }
        (one, two) = (one % 65_521, two % 65_521);
    }
    two << 16 | one
}

impl Ewf {
    /// Opens the disk of these files, all of one set in order. An error about one of them names it.
    pub fn open(parts: Vec<EwfPart>) -> Result<Self> {
        let (mut sections, mut tables) = (Sections::default(), Vec::new());
        for (number, part) in parts.iter().enumerate() {
            let read = sections.read(number, parts.len(), &*part.file, &mut tables);
            read.map_err(|error| match parts.len() {
                1 => error,
                _ => error.in_file(&part.name),
            })?;
        }
        let Some(volume) = sections.volume else {
            return Err(damaged(0, "the section that describes the disk is missing"));
        };
        let chunk = u64::from(volume.chunk_sectors) * u64::from(volume.sector_size);
        if !chunk.is_multiple_of(SECTOR) || !(SECTOR..=MAX_CHUNK).contains(&chunk) {
            return Err(damaged(
                0,
                format!(
                    "invalid chunk size of {chunk} bytes: expected a multiple of {SECTOR}, at most {MAX_CHUNK}"
                ),
            ));
        }
        let len = volume.sectors.checked_mul(volume.sector_size.into());
        let len = len.filter(|len| *len <= i64::MAX.cast_unsigned() && len.is_multiple_of(SECTOR));
        let len = len.ok_or_else(|| {
            let (count, size) = (volume.sectors, volume.sector_size);
            let message = format!(
                "invalid disk size of {count} sectors of {size} bytes: expected a multiple of {SECTOR} bytes"
            );
            damaged(0, message)
        })?;
        let stored: u64 = tables.iter().map(|table| u64::from(table.count)).sum();
        if stored < len.div_ceil(chunk) {
            let message = format!(
                "truncated: {stored} chunks are stored of a disk of {}",
                len.div_ceil(chunk)
            );
            return Err(damaged(0, message));
        }
        Ok(Self {
            parts,
            len,
            chunk,
            tables,
            entries: ChunkCache::new(CACHE),
            sections,
        })
    }

    /// Returns the place of a chunk.
    fn stored(&self, number: u64) -> Result<StoredChunk> {
        let after = self.tables.partition_point(|table| table.first <= number);
        let index = after.checked_sub(1);
        let Some((index, table)) = index.and_then(|at| Some((at, self.tables.get(at)?))) else {
            return Err(damaged(0, format!("chunk {number} is in no table")));
        };
        let part = &self.parts[table.part];
        let bytes = self.entries.get(index, || {
            let len = u64::from(table.count) * 4;
            part.file
                .read_vec(table.entries_at, to_usize(len))
                .map(Arc::new)
        })?;
        let entry = |number: u64| {
            let bytes = bytes.get(to_usize(number) * 4..)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let within = number - table.first;
        let found = entry(within)
            .ok_or_else(|| damaged(table.entries_at, format!("chunk {number} is in no table")))?;
        let at = |entry: u32| table.base.saturating_add((entry & !PACKED).into());
        let start = at(found);
        let end = entry(within + 1).map_or(table.end, at);
        if end <= start || end > part.file.info().len {
            let message = format!("chunk {number} is stored in bytes {start} to {end} of its file");
            return Err(self.in_part(table.part, damaged(start, message)));
        }
        Ok(StoredChunk {
            part: table.part,
            at: start,
            len: end - start,
            is_packed: found & PACKED != 0,
        })
    }

    fn in_part(&self, part: usize, error: Error) -> Error {
        match self.parts.len() {
            1 => error,
            _ => error.in_file(&self.parts[part].name),
        }
    }

    /// Reads and checks a chunk of the disk.
    fn read_chunk(&self, number: u64, out: &mut [u8]) -> Result<()> {
        let chunk = self.stored(number)?;
        let fail = |message: String| self.in_part(chunk.part, damaged(chunk.at, message));
        // A stream of data that does not shrink is not much longer.
        let len = chunk.len.min(self.chunk + self.chunk / 8 + 4096);
        let stored = self.parts[chunk.part]
            .file
            .read_vec(chunk.at, to_usize(len))?;
        if chunk.is_packed {
            let mut decoded = Codec::Zlib.decode(&stored, out);
            // The last chunk may be stored as a whole one.
            if decoded.is_err() && (out.len() as u64) < self.chunk {
                let mut whole = vec![0; to_usize(self.chunk)];
                decoded = Codec::Zlib.decode(&stored, &mut whole);
                let len = out.len();
                out.copy_from_slice(&whole[..len]);
            }
            return decoded.map_err(|error| {
                fail(format!(
                    "cannot decompress chunk {number}: {}",
                    error.message()
                ))
            });
        }
        // The checksum follows the data of the whole chunk, of which the last may be shorter.
        let data = [to_usize(self.chunk), out.len()]
            .into_iter()
            .find_map(|len| {
                let (data, sum) = stored.split_at_checked(len)?;
                let sum = u32::from_le_bytes(*sum.first_chunk()?);
                (adler32(data) == sum).then_some(data)
            });
        let Some(data) = data else {
            return Err(fail(format!("checksum mismatch of chunk {number}")));
        };
        let len = out.len();
        out.copy_from_slice(&data[..len]);
        Ok(())
    }
}

impl DiskMap for Ewf {
    fn format(&self) -> Format {
        Format::Ewf
    }

    fn layer(&self) -> &'static str {
        LAYER
    }

    fn disk_len(&self) -> u64 {
        self.len
    }

    fn chunk_at(&self, offset: u64) -> Result<MappedChunk> {
        let start = offset - offset % self.chunk;
        Ok(MappedChunk {
            range: start..start + self.chunk,
            // Chunks that are not compressed have a checksum, too.
            place: ChunkPlace::Coded,
        })
    }

    fn decode(&self, chunk: &Range<u64>, out: &mut [u8]) -> Result<()> {
        self.read_chunk(chunk.start / self.chunk, out)
    }

    fn check(&self, problems: &mut Problems, progress: &dyn Progress) -> Result<()> {
        for (part, error) in &self.sections.problems {
            problems.add(Severity::Damage, self.in_part(*part, error.duplicate()));
        }
        for number in 0..self.len.div_ceil(self.chunk) {
            progress.check()?;
            match self.stored(number) {
                Err(error) if error.kind() == Kind::Corrupt => {
                    problems.add(Severity::Damage, error);
                }
                stored => drop(stored?),
            }
        }
        Ok(())
    }

    fn verify(&self, progress: &dyn Progress) -> Result<Vec<StoredChecksum>> {
        progress.stage("verify", self.len);
        let (mut md5, mut sha1) = (Md5::new(), Sha1::new());
        let mut buf = vec![0; to_usize(PIECE.min(self.len).next_multiple_of(self.chunk))];
        let count = buf.len() as u64 / self.chunk;
        for first in (0..self.len.div_ceil(self.chunk)).step_by(to_usize(count.max(1))) {
            progress.check()?;
            let start = first * self.chunk;
            let piece = &mut buf[..to_usize((count * self.chunk).min(self.len - start))];
            piece
                .par_chunks_mut(to_usize(self.chunk))
                .enumerate()
                .try_for_each(|(at, out)| self.read_chunk(first + at as u64, out))?;
            rayon::join(|| md5.update(&*piece), || sha1.update(&*piece));
            progress.advance(piece.len() as u64);
        }
        let sum = |algorithm, stored: &Option<Vec<u8>>, computed: &[u8]| {
            stored.as_ref().map(|stored| StoredChecksum {
                of: "disk".to_owned(),
                algorithm,
                stored: Some(hex(stored)),
                computed: Some(hex(computed)),
                is_of_area: false,
            })
        };
        let sums = [
            sum("md5", &self.sections.md5, &md5.finalize()),
            sum("sha1", &self.sections.sha1, &sha1.finalize()),
        ];
        Ok(sums.into_iter().flatten().collect())
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            (
                "files",
                size::counted(self.parts.len() as u64, "file", "files"),
            ),
            ("chunks", format!("{:#}", size::display(self.chunk))),
        ];
        for (name, sum) in [("MD5", &self.sections.md5), ("SHA-1", &self.sections.sha1)] {
            facts.extend(sum.as_ref().map(|sum| (name, hex(sum))));
        }
        facts
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_set_are_named_in_order() {
        let name = |first: &str, number| {
            part_path(Path::new(first), number).map(|path| path.display().to_string())
        };
        for (number, expected) in [
            (1, Some("a.E01")),
            (99, Some("a.E99")),
            (100, Some("a.EAA")),
            (126, Some("a.EBA")),
            (775, Some("a.EZZ")),
            (776, Some("a.FAA")),
            (14_971, Some("a.ZZZ")),
            (14_972, None),
        ] {
            assert_eq!(name("a.E01", number).as_deref(), expected, "{number}");
        }
        assert_eq!(name("a.e01", 100).as_deref(), Some("a.eaa"));
        assert_eq!(name("a", 2), None);
        assert_eq!(name("a.001", 100), None);
    }

    /// The example of RFC 1950 and catalogs.
    #[test]
    fn the_checksum_is_adler_32() {
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
        assert_eq!(adler32(b""), 1);
        let long = vec![0xFF; 1 << 20];
        let by_hand = long.iter().fold((1_u64, 0_u64), |(one, two), byte| {
            let one = (one + u64::from(*byte)) % 65_521;
            (one, (two + one) % 65_521)
        });
        assert_eq!(u64::from(adler32(&long)), by_hand.1 << 16 | by_hand.0);
    }
}
