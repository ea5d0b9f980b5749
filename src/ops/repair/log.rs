//! The log of a repair: its changes in the order in which they are made, with the places of the
//! saved bytes.
//!
//! A text file with a line for each change; `bytes` belongs to the `edit` or `replace` before it:
//!
//! ```text
//! take NAME LENGTH CRC                        NAME is moved to `files/NAME`
//! rename FROM TO
//! create NAME
//! replace NAME OLD-LENGTH NEW-LENGTH          NAME is stored anew as a whole
//! edit NAME OLD-LENGTH NEW-LENGTH             bytes or the length of NAME change
//! bytes START END PLACE OLD-CRC NEW-CRCS      PLACE: offset in `data`, or `zeros`;
//!                                             NEW-CRCS: those of the new bytes of each
//!                                             sector, separated by commas, or `cut`
//! ```
//!
//! Sectors are those of the file: only the first and the last one of a range can be shorter. A
//! write that a crash interrupts leaves each of them old or new.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use super::LAYER;
use super::ranges::without;
use crate::device::{BlockDevice, regions};
use crate::open::interrupted;
use crate::size::to_usize;
use crate::store::Store;
use crate::{Error, Kind, Result};

/// Granularity of the comparison of old and new bytes, in bytes: the unit in which storage writes.
pub(super) const SECTOR: u64 = 512;
/// Number of parts in which the new bytes are written: each is durable before the next begins, so
/// that a crash leaves old and new bytes side by side in one part only.
const PARTS: usize = 32;

/// Saved bytes of a file that are overwritten or truncated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SavedRange {
    pub(super) range: Range<u64>,
    /// Offset of the saved bytes in `data`. `None`: they are zeros.
    pub(super) offset: Option<u64>,
    /// CRC-32 of the saved bytes.
    pub(super) old: u32,
    /// CRC-32 of the new bytes of each sector. `None`: the range is truncated.
    pub(super) new: Option<Vec<u32>>,
}

/// Splits a range at the multiples of the sector size.
pub(super) fn sectors(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = (start / SECTOR)
            .saturating_add(1)
            .saturating_mul(SECTOR)
            .min(range.end);
        (start < range.end).then_some(start..at)
    })
}

/// Returns the CRC-32 of each sector of `bytes`, which are stored at the offset `at`.
pub(super) fn sums(at: u64, bytes: &[u8]) -> Vec<u32> {
    sectors(at..at + bytes.len() as u64)
        .map(|sector| {
            crc32fast::hash(&bytes[to_usize(sector.start - at)..to_usize(sector.end - at)])
        })
        .collect()
}

/// Returns the number of sectors that a range touches.
fn count(range: &Range<u64>) -> u64 {
    if range.is_empty() {
        return 0;
    }
    range.end.div_ceil(SECTOR) - range.start / SECTOR
}

/// A change of the contents of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) name: String,
    pub(super) old_len: u64,
    pub(super) new_len: u64,
    pub(super) saved: Vec<SavedRange>,
}

impl Edit {
    /// Returns the part in which each saved range is written, the first of them `first`, and the
    /// number of the part after them. The truncation of the file has a part of its own.
    pub(super) fn parts(&self, first: usize, ranges_in_part: usize) -> (Vec<usize>, usize) {
        let cut = self
            .saved
            .iter()
            .filter(|saved| saved.new.is_some())
            .count();
        let cut = first + cut.div_ceil(ranges_in_part);
        let part = |(at, saved): (usize, &SavedRange)| match saved.new {
            Some(_) => first + at / ranges_in_part,
            None => cut,
        };
        (self.saved.iter().enumerate().map(part).collect(), cut + 1)
    }

    /// Returns the place of bytes that something else wrote past the old end of `file`, which is
    /// complete: the repair leaves zeros there, except for the saved ranges.
    pub(super) fn find_foreign(&self, file: &dyn BlockDevice) -> Result<Option<u64>> {
        let appended = self.old_len.min(self.new_len)..self.new_len;
        let written: Vec<_> = self.saved.iter().map(|saved| saved.range.clone()).collect();
        for range in without(Some(appended), &written) {
            let start = range.start;
            if !regions::is_zero(file, range)? {
                return Ok(Some(start));
            }
        }
        Ok(None)
    }

    /// Returns the part of a saved range that was in the old file: the rest has been appended.
    pub(super) fn old_range(&self, saved: &SavedRange) -> Range<u64> {
        saved.range.start..saved.range.end.min(self.old_len).max(saved.range.start)
    }
}

/// A change of the image's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileChange {
    /// A file is moved to the quarantine in the undo data.
    Quarantine { name: String, len: u64, sum: u32 },
    /// A file is renamed to an unused name.
    Rename(String, String),
    /// A file is created.
    Create(String),
    /// A file is stored anew as a whole; the only saved range is that of its old bytes.
    Replace(Edit),
    /// Bytes or the length of a file change.
    Edit(Edit),
}

/// All changes of a repair in the order in which they are made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) changes: Vec<FileChange>,
}

impl Log {
    /// Returns the ranges of a file that the repair writes or appends. None of a file that it
    /// replaces as a whole.
    pub(super) fn written(&self, name: &str) -> Vec<Range<u64>> {
        let edits = self.changes.iter().filter_map(|change| match change {
            FileChange::Edit(edit) if edit.name == name => Some(edit),
            _ => None,
        });
        let mut written = Vec::new();
        for edit in edits {
            written.push(edit.old_len.min(edit.new_len)..edit.new_len);
            written.extend(edit.saved.iter().map(|saved| saved.range.clone()));
        }
        written
    }

    /// Returns the names of the files of which the repair changes bytes or the length.
    pub(super) fn edited(&self) -> BTreeSet<&str> {
        let edited = self.changes.iter().filter_map(|change| match change {
            FileChange::Edit(edit) => Some(edit.name.as_str()),
            _ => None,
        });
        edited.collect()
    }

    /// Returns the name at which `image` has the file that is called `name` after the repair, which
    /// may not have been renamed yet.
    pub(super) fn present_name<'a>(&'a self, image: &dyn Store, name: &'a str) -> Result<&'a str> {
        let renames = || {
            self.changes.iter().filter_map(|change| match change {
                FileChange::Rename(from, to) => Some((from.as_str(), to.as_str())),
                _ => None,
            })
        };
        let Some((old, _)) = renames().find(|(_, to)| *to == name) else {
            return Ok(name);
        };
        // The new name may be that of a file that has not been moved away either, and the old one
        // that of another renamed file.
        let is_reused = renames().any(|(_, to)| to == old);
        let is_old = match is_reused {
            true => image.stat(name)?.is_none(),
            false => image.stat(old)?.is_some(),
        };
        Ok(if is_old { old } else { name })
    }

    /// Returns the names of the files that the repair creates, replaces, renames or removes.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        for change in &self.changes {
            match change {
                FileChange::Quarantine { name, .. } | FileChange::Create(name) => {
                    names.insert(name.as_str());
                }
                FileChange::Replace(edit) => drop(names.insert(edit.name.as_str())),
                FileChange::Rename(from, to) => names.extend([from.as_str(), to.as_str()]),
                FileChange::Edit(_) => {}
            }
        }
        names
    }

    /// Returns the names of the files that the repair creates.
    pub(super) fn created(&self) -> BTreeSet<&str> {
        let created = self.changes.iter().filter_map(|change| match change {
            FileChange::Create(name) => Some(name.as_str()),
            _ => None,
        });
        created.collect()
    }

    /// Returns the number of saved ranges that are written in one part.
    pub(super) fn ranges_in_part(&self) -> usize {
        let written = |edit: &Edit| {
            edit.saved
                .iter()
                .filter(|saved| saved.new.is_some())
                .count()
        };
        let edits = self.changes.iter().filter_map(|change| match change {
            FileChange::Edit(edit) => Some(written(edit)),
            _ => None,
        });
        edits.sum::<usize>().div_ceil(PARTS).max(1)
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for change in &self.changes {
            let edit = match change {
                FileChange::Quarantine { name, len, sum } => {
                    let _ = writeln!(text, "take {} {len} {sum:08x}", escaped(name));
                    continue;
                }
                FileChange::Rename(from, to) => {
                    let _ = writeln!(text, "rename {} {}", escaped(from), escaped(to));
                    continue;
                }
                FileChange::Create(name) => {
                    let _ = writeln!(text, "create {}", escaped(name));
                    continue;
                }
                FileChange::Replace(edit) => ("replace", edit),
                FileChange::Edit(edit) => ("edit", edit),
            };
            let (word, edit) = edit;
            let name = escaped(&edit.name);
            let _ = writeln!(text, "{word} {name} {} {}", edit.old_len, edit.new_len);
            for saved in &edit.saved {
                let place = saved
                    .offset
                    .map_or("zeros".to_owned(), |offset| offset.to_string());
                let new = saved.new.as_ref().map_or("cut".to_owned(), |sums| {
                    let sums: Vec<_> = sums.iter().map(|sum| format!("{sum:08x}")).collect();
                    sums.join(",")
                });
                let Range { start, end } = saved.range;
                let _ = writeln!(text, "bytes {start} {end} {place} {:08x} {new}", saved.old);
            }
        }
        text
    }

    /// Reads the log of a repair.
    pub(super) fn read(undo: &dyn Store, name: &str) -> Result<Self> {
        let mut log = Self::default();
        for line in interrupted::read(undo, name)?.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            log.add(&words).ok_or_else(|| {
                Error::new(
                    Kind::Corrupt,
                    LAYER,
                    format!("malformed undo log: unknown line {line:?}"),
                )
                .named(name)
            })?;
        }
        Ok(log)
    }

    fn add(&mut self, words: &[&str]) -> Option<()> {
        let crc = |text: &str| u32::from_str_radix(text, 16).ok();
        let edit = |name: &str, old_len: &str, new_len: &str| {
            Some(Edit {
                name: unescaped(name),
                old_len: old_len.parse().ok()?,
                new_len: new_len.parse().ok()?,
                saved: Vec::new(),
            })
        };
        let is_whole = matches!(self.changes.last(), Some(FileChange::Replace(_)));
        let change = match words {
            ["take", name, len, sum] => FileChange::Quarantine {
                name: unescaped(name),
                len: len.parse().ok()?,
                sum: crc(sum)?,
            },
            ["rename", from, to] => FileChange::Rename(unescaped(from), unescaped(to)),
            ["create", name] => FileChange::Create(unescaped(name)),
            ["replace", name, old, new] => FileChange::Replace(edit(name, old, new)?),
            ["edit", name, old, new] => FileChange::Edit(edit(name, old, new)?),
            ["bytes", start, end, place, old, new] => {
                let (FileChange::Edit(edit) | FileChange::Replace(edit)) =
                    self.changes.last_mut()?
                else {
                    return None;
                };
                let range = start.parse().ok()?..end.parse().ok()?;
                let offset = match *place {
                    "zeros" => None,
                    place => Some(place.parse().ok()?),
                };
                let new = match *new {
                    "cut" => None,
                    "" => Some(Vec::new()),
                    new => Some(new.split(',').map(crc).collect::<Option<Vec<_>>>()?),
                };
                let written = match is_whole {
                    true => 0..edit.new_len,
                    false => range.clone(),
                };
                let is_wrong = |new: &Vec<u32>| new.len() as u64 != count(&written);
                let is_outside = range.end > edit.old_len.max(edit.new_len);
                if range.start > range.end || is_outside || new.as_ref().is_some_and(is_wrong) {
                    return None;
                }
                edit.saved.push(SavedRange {
                    range,
                    offset,
                    old: crc(old)?,
                    new,
                });
                return Some(());
            }
            _ => return None,
        };
        self.changes.push(change);
        Some(())
    }
}

/// Escapes a name so that it is one word of a line.
pub(super) fn escaped(name: &str) -> String {
    name.replace('%', "%25")
        .replace('\n', "%0a")
        .replace('\r', "%0d")
        .replace(' ', "%20")
}

pub(super) fn unescaped(name: &str) -> String {
    name.replace("%20", " ")
        .replace("%0d", "\r")
        .replace("%0a", "\n")
        .replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::interrupted::file_of;
    use crate::store::{MemoryStore, Put};

    #[test]
    fn a_log_is_read_as_it_was_written() {
        let edit = |name: &str| Edit {
            name: name.into(),
            old_len: 900,
            new_len: 700,
            saved: vec![
                SavedRange {
                    range: 5..700,
                    offset: Some(12),
                    old: 9,
                    new: Some(vec![7, 0xfedc_ba98]),
                },
                SavedRange {
                    range: 700..900,
                    offset: None,
                    old: 0xfedc_ba98,
                    new: None,
                },
            ],
        };
        let log = Log {
            changes: vec![
                FileChange::Quarantine {
                    name: "bands/ a%b\nc%20".into(),
                    len: 5,
                    sum: 6,
                },
                FileChange::Rename("bands/A".into(), "bands/a".into()),
                FileChange::Create("bands/1".into()),
                FileChange::Replace(edit("Info.plist")),
                FileChange::Edit(edit("bands/0")),
            ],
        };
        let store = MemoryStore::default();
        let put = |text: &[u8]| assert!(store.put("1/log", text, Put::Replace).unwrap());
        let file = file_of(&log.to_text());
        put(&file);
        assert_eq!(Log::read(&store, "1/log").unwrap(), log);
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 4;
            put(&damaged);
            let kind = Log::read(&store, "1/log").unwrap_err().kind();
            assert!(matches!(kind, Kind::Corrupt | Kind::Unsupported), "{at}");
        }
        put(&file_of("bytes 1 2 zeros 0 cut"));
        assert!(Log::read(&store, "1/log").is_err(), "bytes of no file");
        for (line, what) in [
            ("2 1 zeros 0 cut", "a range ends before its start"),
            ("0 600 zeros 0 1", "a range of two sectors has one checksum"),
            ("0 600 zeros 0 1,2,3", "a range of two sectors has three"),
            ("0 901 zeros 0 1,2", "a range ends after the file"),
        ] {
            put(&file_of(&format!("edit a 900 700\nbytes {line}")));
            assert!(Log::read(&store, "1/log").is_err(), "{what}");
        }
    }

    #[test]
    fn a_range_is_split_at_sectors() {
        let split = |range| sectors(range).collect::<Vec<_>>();
        assert_eq!(split(5..1100), [5..512, 512..1024, 1024..1100]);
        assert_eq!(split(512..1024).first(), Some(&(512..1024)));
        assert_eq!(split(7..7), []);
        for range in [5..1100, 512..1024, 7..7, 511..513, 0..1] {
            assert_eq!(
                count(&range),
                split(range.clone()).len() as u64,
                "{range:?}"
            );
        }
        assert_eq!(
            sums(511, &[1; 513]),
            [sums(0, &[1]), sums(0, &[1; 512])].concat()
        );
    }
}
