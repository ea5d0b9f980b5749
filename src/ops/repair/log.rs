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
//! bytes START END PLACE OLD-CRC NEW-CRC       PLACE: offset in `data`, or `zeros`;
//!                                             NEW-CRC: that of the new bytes, or `cut`
//! ```

use std::fmt::Write as _;
use std::ops::Range;

use super::LAYER;
use crate::open::interrupted;
use crate::store::Store;
use crate::{Error, Kind, Result};

/// Saved bytes of a file that are overwritten or truncated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SavedRange {
    pub(super) range: Range<u64>,
    /// Offset of the saved bytes in `data`. `None`: they are zeros.
    pub(super) offset: Option<u64>,
    /// CRC-32 of the saved bytes.
    pub(super) old: u32,
    /// CRC-32 of the new bytes. `None`: the range is truncated.
    pub(super) new: Option<u32>,
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
                let new = saved
                    .new
                    .map_or("cut".to_owned(), |sum| format!("{sum:08x}"));
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
                Error::new(Kind::Corrupt, LAYER, format!("unknown line {line:?}")).named(name)
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
                    new => Some(crc(new)?),
                };
                edit.saved.push(SavedRange {
                    range,
                    offset,
                    old: crc(old)?,
                    new,
                });
                return edit
                    .saved
                    .last()
                    .filter(|one| one.range.start <= one.range.end)
                    .map(drop);
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
                    new: Some(7),
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
        put(&file_of("edit a 1 1\nbytes 2 1 zeros 0 cut"));
        assert!(
            Log::read(&store, "1/log").is_err(),
            "a range ends before its start"
        );
    }
}
