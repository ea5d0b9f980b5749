//! Rewriting an image into one file or several, with its chunks unchanged. Source:
//! docs/formats/udif.md §8.

use std::ops::Range;

use crc32fast::Hasher;
use uuid::Uuid;
use zerocopy::IntoBytes;

use super::index::read_trailer;
use super::layout::{Checksum, KOLY_SIZE, Segment};
use super::{BlockDevice, BlockDeviceExt, LAYER, Udif, image_list};
use crate::device::AfterDiscard;
use crate::progress::Progress;
use crate::size::{narrow, to_usize};
use crate::{Error, Result};

/// Maximum number of parts: part numbers have three digits.
pub const MAX_WRITTEN_PARTS: u32 = 999;
/// Bytes copied at a time.
const PIECE: u64 = 1 << 20;
/// Limits on the data of a part are rounded down to a multiple of this many bytes.
const GRAIN: u64 = 512;

/// Way to split an image into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitMethod {
    /// One file.
    Whole,
    /// Files of limited length; the first may have a limit of its own.
    Size {
        /// Maximum length of the first file in bytes.
        first: u64,
        /// Maximum length of the other files in bytes.
        each: u64,
    },
    /// A fixed number of files of about the same length; the first may have a maximum length.
    Count {
        /// Maximum length of the first file in bytes.
        first: Option<u64>,
        /// Number of files.
        parts: u32,
    },
}

/// A plan of the output files of an image.
#[derive(Debug)]
pub struct SplitPlan<'a> {
    image: &'a Udif,
    ranges: Vec<Range<u64>>,
    /// The list of resources, which only the first file contains.
    list: Vec<u8>,
    id: Uuid,
}

impl Udif {
    /// Plans the files. The result depends only on the image and `cut`.
    ///
    /// [`Kind::Invalid`](crate::Kind) if a file would have no room for data, or there would be more than
    /// [`MAX_WRITTEN_PARTS`] files.
    pub fn cut(&self, cut: SplitMethod) -> Result<SplitPlan<'_>> {
        let list = match self.koly.xml.clone() {
            list if list.is_empty() => image_list(&self.resources)?,
            list => self
                .first
                .read_vec(list.start, to_usize(list.end - list.start))?,
        };
        let ranges = ranges(self.contents.fork.len(), cut, list.len() as u64)?;
        Ok(SplitPlan {
            id: self.id(&ranges, &list),
            image: self,
            ranges,
            list,
        })
    }

    /// Derives the identifier of the set from the image and the split.
    fn id(&self, ranges: &[Range<u64>], list: &[u8]) -> Uuid {
        let mut name = self.koly.segment.id.as_bytes().to_vec();
        if let Checksum::Crc32(sum) = self.koly.master_checksum {
            name.extend(sum.to_be_bytes());
        }
        name.extend(crc32fast::hash(list).to_be_bytes());
        ranges
            .iter()
            .for_each(|range| name.extend(range.end.to_be_bytes()));
        Uuid::new_v5(&Uuid::NAMESPACE_OID, &name)
    }
}

impl SplitPlan<'_> {
    /// Returns the number of files.
    pub fn count(&self) -> u32 {
        narrow::<u32>(self.ranges.len())
    }

    /// Returns the number of data bytes in all files together.
    pub fn data_len(&self) -> u64 {
        self.image.contents.fork.len()
    }

    /// Writes part `number` (from 1) to `file`, which must be empty, and flushes it.
    pub fn write(
        &self,
        number: u32,
        file: &dyn BlockDevice,
        progress: &dyn Progress,
    ) -> Result<()> {
        let range = number
            .checked_sub(1)
            .and_then(|at| self.ranges.get(at as usize));
        let range =
            range.ok_or_else(|| Error::invalid(LAYER, format!("part {number} does not exist")))?;
        let empty = image_list(&[])?;
        let list = if number == 1 { &self.list } else { &empty };
        let (len, list_len) = (range.end - range.start, list.len() as u64);
        file.set_len(len + list_len + KOLY_SIZE, AfterDiscard::Any)?;
        let mut sum = Hasher::new();
        let mut at = range.start;
        while at < range.end {
            progress.check()?;
            let piece = self
                .image
                .contents
                .fork
                .read_vec(at, to_usize(PIECE.min(range.end - at)))?;
            sum.update(&piece);
            file.write_at(at - range.start, &piece)?;
            progress.advance(piece.len() as u64);
            at += piece.len() as u64;
        }
        file.write_at(len, list)?;
        let (raw, _) = read_trailer(&*self.image.first)?;
        let segment = Segment {
            number,
            count: self.count(),
            id: self.id,
            start: range.start,
        };
        let trailer = raw
            .of_part(segment, len, sum.finalize())
            .relisted(len..len + list_len);
        file.write_at(len + list_len, trailer.as_bytes())?;
        file.flush()
    }
}

fn ranges(len: u64, cut: SplitMethod, list: u64) -> Result<Vec<Range<u64>>> {
    let invalid = |message: String| Error::invalid(LAYER, message);
    // Bytes of each file in addition to its data.
    let rest = image_list(&[])?.len() as u64 + KOLY_SIZE;
    let room = |bytes: u64, beside: u64| match bytes.saturating_sub(beside) / GRAIN * GRAIN {
        0 => Err(invalid(format!(
            "{} for each part is too small: {beside} bytes of each part are overhead",
            match bytes {
                1 => "1 byte".to_owned(),
                _ => format!("{bytes} bytes"),
            }
        ))),
        room => Ok(room),
    };
    let ends: Vec<u64> = match cut {
        SplitMethod::Whole => vec![len],
        SplitMethod::Size { first, each } => {
            let (first, each) = (room(first, list + KOLY_SIZE)?.min(len), room(each, rest)?);
            let more = (len - first).div_ceil(each);
            if more >= u64::from(MAX_WRITTEN_PARTS) {
                return Err(invalid(format!(
                    "{} parts of {each} bytes are required: the maximum is {MAX_WRITTEN_PARTS}",
                    more + 1
                )));
            }
            (0..=more).map(|n| (first + n * each).min(len)).collect()
        }
        SplitMethod::Count { parts, .. } if parts == 0 || parts > MAX_WRITTEN_PARTS => {
            return Err(invalid(format!(
                "cannot split into {parts} parts: expected 1 to {MAX_WRITTEN_PARTS}"
            )));
        }
        SplitMethod::Count { first, parts } => {
            let parts = u64::from(parts);
            let own = list + KOLY_SIZE;
            let even = ((len + own + rest * (parts - 1)) / parts).max(own + GRAIN);
            let first = if parts == 1 {
                len
            } else {
                room(first.unwrap_or(even), own)?.min(len)
            };
            if (len - first) < parts - 1 {
                return Err(invalid(format!(
                    "cannot split {len} bytes of data into {parts} such parts"
                )));
            }
            let share = |n: u64| {
                narrow::<u64>(
                    u128::from(len - first) * u128::from(n) / u128::from((parts - 1).max(1)),
                )
            };
            (0..parts).map(|n| first + share(n)).collect()
        }
    };
    let starts = std::iter::once(0).chain(ends.iter().copied());
    Ok(starts.zip(&ends).map(|(start, &end)| start..end).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_cover_the_data_and_keep_to_their_sizes() {
        let (len, list) = (1_000_003, 8000);
        let check = |cut: SplitMethod| {
            let ranges = ranges(len, cut, list).unwrap();
            assert_eq!((ranges[0].start, ranges.last().unwrap().end), (0, len));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(
                ranges.iter().all(|range| range.start < range.end),
                "{cut:?}: {ranges:?}"
            );
            ranges
        };
        assert_eq!(check(SplitMethod::Whole).len(), 1);
        let sized = check(SplitMethod::Size {
            first: 100_000,
            each: 300_000,
        });
        assert!(sized[0].end + list + KOLY_SIZE <= 100_000);
        assert!(
            sized[1..]
                .iter()
                .all(|range| range.end - range.start + 223 + KOLY_SIZE <= 300_000)
        );
        assert_eq!(
            check(SplitMethod::Size {
                first: 1 << 30,
                each: 1 << 30
            })
            .len(),
            1
        );
        for parts in [1, 2, 3, 10, 999] {
            assert_eq!(
                check(SplitMethod::Count { first: None, parts }).len(),
                parts as usize
            );
        }
        assert!(
            check(SplitMethod::Count {
                first: Some(50_000),
                parts: 3
            })[0]
                .end
                <= 50_000
        );
    }

    #[test]
    fn cuts_without_room_are_refused() {
        let fails = |cut| ranges(1_000_000, cut, 8000).unwrap_err().to_string();
        assert!(
            fails(SplitMethod::Size {
                first: 8000,
                each: 8000
            })
            .contains("too small")
        );
        assert!(
            fails(SplitMethod::Size {
                first: 100_000,
                each: 600
            })
            .contains("too small")
        );
        assert!(
            fails(SplitMethod::Size {
                first: 100_000,
                each: 1600
            })
            .contains("the maximum is 999")
        );
        assert!(
            fails(SplitMethod::Count {
                first: None,
                parts: 0
            })
            .contains("1 to 999")
        );
        assert!(
            fails(SplitMethod::Count {
                first: Some(u64::MAX),
                parts: 3
            })
            .contains("cannot split")
        );
        assert!(
            ranges(
                0,
                SplitMethod::Count {
                    first: None,
                    parts: 2
                },
                10
            )
            .is_err()
        );
    }
}
