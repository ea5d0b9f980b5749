//! A part of a disk that is used as the whole disk.

use std::str::FromStr;
use std::sync::Arc;

use crate::device::{BlockDevice, Slice};
use crate::{Error, Kind, Result};

use super::LAYER;

/// Bytes of a sector, the unit of sections.
const SECTOR: u64 = 512;

/// Sectors of a disk, as in hdiutil's `-section`: `START` up to the end, `FIRST-LAST` inclusive, or
/// `START,COUNT`. Sectors have 512 bytes, and the first is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    first: u64,
    /// `None`: all that follow.
    count: Option<u64>,
}

impl Section {
    /// Returns the section of `disk`. [`Kind::OutOfRange`] if the disk is shorter.
    pub(super) fn of(self, disk: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
        let len = disk.info().len;
        let start = self.first.checked_mul(SECTOR).filter(|start| *start < len);
        let end = match self.count {
            None => Some(len),
            Some(count) => self
                .first
                .checked_add(count)
                .and_then(|end| end.checked_mul(SECTOR))
                .filter(|end| *end <= len),
        };
        let (Some(start), Some(end)) = (start, end) else {
            let message = format!(
                "the section exceeds the {} sectors of the disk",
                len.div_ceil(SECTOR)
            );
            return Err(Error::new(Kind::OutOfRange, LAYER, message));
        };
        Ok(Arc::new(Slice::new(disk, start..end)?))
    }
}

impl FromStr for Section {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || {
            format!(
                "invalid section {text}: expected START, FIRST-LAST or START,COUNT in sectors \
                     of 512 bytes"
            )
        };
        let number = |digits: &str| digits.trim().parse::<u64>().map_err(|_| wrong());
        let (first, count) = match (text.split_once('-'), text.split_once(',')) {
            (Some((first, last)), None) => {
                let (first, last) = (number(first)?, number(last)?);
                (
                    first,
                    Some(
                        last.checked_sub(first)
                            .and_then(|more| more.checked_add(1))
                            .ok_or_else(wrong)?,
                    ),
                )
            }
            (None, Some((first, count))) => (
                number(first)?,
                Some(number(count)?).filter(|count| *count > 0),
            ),
            _ => {
                return Ok(Self {
                    first: number(text)?,
                    count: None,
                });
            }
        };
        count
            .map(|count| Self {
                first,
                count: Some(count),
            })
            .ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{BlockDeviceExt, Memory};

    #[test]
    fn sections_are_parsed_in_three_forms() {
        let section = |text: &str| text.parse::<Section>();
        for (text, first, count) in [
            ("40", 40, None),
            ("40-41", 40, Some(2)),
            ("40,41", 40, Some(41)),
            ("0-0", 0, Some(1)),
        ] {
            assert_eq!(section(text), Ok(Section { first, count }), "{text}");
        }
        for text in [
            "",
            "x",
            "-1",
            "1-",
            "2-1",
            "1,0",
            "1,",
            "1-2,3",
            "0-18446744073709551615",
            "99999999999999999999",
        ] {
            assert!(section(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_section_lies_within_the_disk() {
        let disk = || {
            Arc::new(Memory::from(
                (0..2048).map(|at| (at / 512) as u8).collect::<Vec<_>>(),
            )) as Arc<dyn BlockDevice>
        };
        let section = |text: &str| text.parse::<Section>().unwrap().of(disk());
        for (text, sectors) in [("1", vec![1, 2, 3]), ("1-2", vec![1, 2]), ("3,1", vec![3])] {
            let part = section(text).unwrap();
            let read = part.read_vec(0, part.info().len as usize).unwrap();
            assert_eq!(
                read.iter()
                    .step_by(512)
                    .map(|byte| u32::from(*byte))
                    .collect::<Vec<_>>(),
                sectors,
                "{text}"
            );
        }
        for text in [
            "4",
            "3-4",
            "0,5",
            "18446744073709551615",
            "1,18446744073709551615",
        ] {
            assert_eq!(
                section(text).unwrap_err().kind(),
                Kind::OutOfRange,
                "{text}"
            );
        }
    }
}
