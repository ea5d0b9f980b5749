//! The data fork of an image: in one file, or split into the files of a set (`NAME.dmg`,
//! `NAME.002.dmgpart`, ...).
//!
//! Source: docs/formats/udif.md §8.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LAYER;
use super::index::read_trailer;
use super::layout::{Checksum, KOLY_MAGIC, KOLY_SIZE, Koly, koly_field};
use crate::device::{BlockDevice, BlockDeviceExt, FileRange, Info, Slice};
use crate::{Error, Kind, Result};

/// Maximum number of parts of a set; all of them are open at the same time.
pub const MAX_PARTS: u32 = 9999;

/// A file of a set.
#[derive(Debug, Clone)]
pub struct SegmentPart {
    /// Its name in errors.
    pub name: PathBuf,
    /// Its contents, decrypted: each file of an encrypted set is encrypted separately.
    pub file: Arc<dyn BlockDevice>,
}

/// Returns the path of part `number` (from 2) of the set that starts with `first`:
/// `NAME.002.dmgpart` next to `NAME.dmg`.
pub fn part_path(first: &Path, number: u32) -> PathBuf {
    let is_dmg = first
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("dmg"));
    let mut name = if is_dmg {
        first.file_stem()
    } else {
        first.file_name()
    }
    .unwrap_or_default()
    .to_owned();
    name.push(format!(".{number:03}.dmgpart"));
    first.with_file_name(name)
}

/// Returns the path of the first file of the set that contains `part`, derived from its name.
pub(crate) fn first_path(part: &Path) -> Option<PathBuf> {
    let stem = part.file_name()?.to_str()?.strip_suffix(".dmgpart")?;
    let (name, number) = stem.rsplit_once('.')?;
    let is_number = number.len() >= 3 && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| part.with_file_name(format!("{name}.dmg")))
}

/// The joined data fork.
#[derive(Debug)]
pub(super) struct Fork {
    pieces: Vec<FilePart>,
    len: u64,
}

/// The part of the fork in one file.
#[derive(Debug)]
pub(super) struct FilePart {
    /// Offset in the joined fork.
    pub(super) start: u64,
    pub(super) data: Slice,
    pub(super) checksum: Checksum,
    /// Path of the file, if there are several.
    pub(super) name: Option<PathBuf>,
}

impl FilePart {
    fn end(&self) -> u64 {
        self.start + self.data.info().len
    }
}

impl Fork {
    pub(super) fn of_one_file(file: Arc<dyn BlockDevice>, koly: &Koly) -> Result<Self> {
        let data = Slice::new(file, koly.data_fork.clone())?;
        let len = data.info().len;
        Ok(Self {
            pieces: vec![FilePart {
                start: 0,
                data,
                checksum: koly.data_checksum,
                name: None,
            }],
            len,
        })
    }

    /// Joins `parts`, all files of a set in order. Fails if a file does not belong at its position.
    pub(super) fn joined(parts: Vec<SegmentPart>) -> Result<Self> {
        let (mut pieces, mut len, mut first) = (Vec::with_capacity(parts.len()), 0, None);
        for (number, part) in (1..).zip(parts) {
            let koly = part_trailer(&part, number).map_err(|error| error.in_file(&part.name))?;
            let first = first.get_or_insert_with(|| koly.clone());
            check_part(&koly, first, number, len).map_err(|error| error.in_file(&part.name))?;
            let data = Slice::new(part.file, koly.data_fork)?;
            let piece = FilePart {
                start: len,
                data,
                checksum: koly.data_checksum,
                name: Some(part.name),
            };
            len = piece.end();
            pieces.push(piece);
        }
        Ok(Self { pieces, len })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn pieces(&self) -> &[FilePart] {
        &self.pieces
    }

    /// Returns the file that contains byte `offset` of the fork, if there are several, and the
    /// offset in that file.
    pub(super) fn part_and_offset(&self, offset: u64) -> (Option<&Path>, u64) {
        match self.piece(offset) {
            Some(piece) => (
                piece.name.as_deref(),
                piece.data.start() + (offset - piece.start),
            ),
            None => (None, offset),
        }
    }

    pub(super) fn read_at(&self, mut offset: u64, mut buf: &mut [u8]) -> Result<()> {
        while !buf.is_empty() {
            let Some(piece) = self.piece(offset) else {
                return Err(Error::out_of_range(
                    LAYER,
                    offset,
                    buf.len() as u64,
                    self.len,
                ));
            };
            let here = usize::try_from(piece.end() - offset)
                .unwrap_or(usize::MAX)
                .min(buf.len());
            let (now, rest) = buf.split_at_mut(here);
            piece.data.read_at(offset - piece.start, now)?;
            offset += here as u64;
            buf = rest;
        }
        Ok(())
    }

    pub(super) fn read_vec(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        match self.piece(range.start) {
            Some(piece) => piece
                .data
                .file_range(range.start - piece.start..range.end.min(piece.end()) - piece.start),
            None => Ok(None),
        }
    }

    /// Returns the piece that contains byte `offset`, skipping empty pieces.
    fn piece(&self, offset: u64) -> Option<&FilePart> {
        let after = self.pieces.partition_point(|piece| piece.start <= offset);
        self.pieces
            .get(after.checked_sub(1)?)
            .filter(|piece| offset < piece.end())
    }
}

/// Returns the trailer of a part. A missing one usually means that the file is truncated, because
/// it is copied last.
fn part_trailer(part: &SegmentPart, number: u32) -> Result<Koly> {
    let Info { len, .. } = part.file.info();
    let at = len.saturating_sub(KOLY_SIZE);
    if number > 1 && (len < KOLY_SIZE || part.file.read_array::<4>(at)? != KOLY_MAGIC) {
        let message = format!("part {number} has no trailer: it is truncated, or not a part");
        return Err(Error::corrupt(LAYER, at, message));
    }
    Ok(read_trailer(&*part.file)?.1)
}

/// Checks that a trailer is that of part `number` of the set that `first` starts, whose data starts
/// at `start` of the fork.
fn check_part(koly: &Koly, first: &Koly, number: u32, start: u64) -> Result<()> {
    let (segment, set) = (koly.segment, first.segment);
    let wrong =
        |field: u64, message: String| Err(Error::new(Kind::Corrupt, "udif set", message).at(field));
    if segment.id != set.id {
        return wrong(
            koly_field::SEGMENT_ID,
            format!(
                "part of another set: its UUID is {}, that of the first part {}",
                segment.id, set.id
            ),
        );
    }
    if segment.count != set.count {
        return wrong(
            koly_field::SEGMENT_COUNT,
            format!(
                "this part records a set of {} parts, but the first part {}",
                segment.count, set.count
            ),
        );
    }
    if segment.number != number {
        return wrong(
            koly_field::SEGMENT_NUMBER,
            format!(
                "part {} of the set, expected part {number}: files were renamed",
                segment.number
            ),
        );
    }
    if segment.start != start {
        return wrong(
            koly_field::RUNNING_OFFSET,
            format!(
                "the part begins at byte {} of the data, the previous one ends at {start}",
                segment.start
            ),
        );
    }
    if koly.data_fork.end.checked_add(start).is_none() {
        return wrong(
            koly_field::DATA_FORK_LENGTH,
            "the part has more data than the disk".into(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_names() {
        let part = |first: &str, number| {
            part_path(Path::new(first), number)
                .to_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(part("a/b.dmg", 2), "a/b.002.dmgpart");
        assert_eq!(part("b.x.DMG", 123), "b.x.123.dmgpart");
        assert_eq!(part("b.dmg", 1234), "b.1234.dmgpart");
        assert_eq!(part("image", 2), "image.002.dmgpart");
        let first =
            |part: &str| first_path(Path::new(part)).map(|path| path.to_str().unwrap().to_owned());
        assert_eq!(first("a/b.002.dmgpart").as_deref(), Some("a/b.dmg"));
        assert_eq!(first("a/b.1234.dmgpart").as_deref(), Some("a/b.dmg"));
        assert_eq!(first("a/b.02.dmgpart"), None);
        assert_eq!(first("a/b.dmg"), None);
    }
}
