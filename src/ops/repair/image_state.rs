//! Comparison of an image with the log of an interrupted repair, so that old bytes are not written
//! over an image that has been replaced or changed since.
//!
//! A repair makes its changes in parts: all names, then the ranges of each file in order. Each part
//! is durable before the next begins. The undo goes through the parts from the last to the first.
//! Wherever either was interrupted, there is a part before which everything is new and after which
//! everything is old. In that part each name and each sector is old or new. The rest of the image
//! is as recorded in the state of the repair.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::LAYER;
use super::fingerprint::Fingerprint;
use super::log::{Edit, FileChange, Log, SavedRange, sectors};
use super::undo_store::{DATA, FILES, PIECE, UndoStore, is_file};
use crate::device::{BlockDevice, BlockDeviceExt, is_zero};
use crate::open::interrupted::LOG;
use crate::size::to_usize;
use crate::store::{Open, Store};
use crate::{Error, Kind, Result};

/// The changes of a log that an image has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ImageState {
    /// None.
    Old,
    /// All: the repair was complete.
    New,
    /// Those up to some part.
    Partly,
    /// Others: it was replaced or changed by something else. The first difference.
    Foreign(String),
}

/// Returns the state of an image whose repair, or the undo of it, was interrupted.
pub(super) fn find(
    image: &dyn Store,
    undo: &UndoStore,
    number: u64,
    log: &Log,
    recorded: &Fingerprint,
) -> Result<ImageState> {
    if let Some(what) = recorded.outside_difference(image, log)? {
        return Ok(ImageState::Foreign(what));
    }
    let mut comparison = UndoComparison {
        image,
        undo,
        number,
        log,
        data: undo.store().open(&format!("{number}/{DATA}"), Open::Read)?,
        parts: BTreeMap::new(),
        is_incomplete: false,
        is_begun: false,
    };
    Ok(match comparison.run()? {
        Some(what) => ImageState::Foreign(what),
        None => comparison.conclude(),
    })
}

/// The states in which a name or a sector can be: both, if the repair does not change it.
#[derive(Debug, Clone, Copy)]
struct Matches {
    old: bool,
    new: bool,
}

impl Matches {
    fn is_foreign(self) -> bool {
        !self.old && !self.new
    }
}

/// The states of the names and sectors of one part.
#[derive(Debug, Default)]
struct Part {
    old: Option<String>,
    new: Option<String>,
}

impl Part {
    fn add(&mut self, matches: Matches, place: impl FnOnce() -> String) {
        match (matches.old, matches.new) {
            (true, false) => drop(self.old.get_or_insert_with(place)),
            (false, true) => drop(self.new.get_or_insert_with(place)),
            _ => {}
        }
    }
}

struct UndoComparison<'a> {
    image: &'a dyn Store,
    undo: &'a UndoStore,
    number: u64,
    log: &'a Log,
    data: Option<Arc<dyn BlockDevice>>,
    parts: BTreeMap<usize, Part>,
    /// Bytes of files that the repair creates or extends are missing.
    is_incomplete: bool,
    /// There are such bytes.
    is_begun: bool,
}

impl UndoComparison<'_> {
    /// Compares all changes. Returns a description of what is neither old nor new.
    fn run(&mut self) -> Result<Option<String>> {
        let log = self.log;
        let created = log.created();
        let (mut next, ranges_in_part) = (1, log.ranges_in_part());
        for change in &log.changes {
            let foreign = match change {
                FileChange::Quarantine { name, len, sum } => self.quarantine(name, *len, *sum)?,
                FileChange::Rename(from, to) => self.renamed(from, to)?,
                FileChange::Create(name) => {
                    let is_there = self.image.stat(name)?.is_some();
                    let matches = Matches {
                        old: !is_there,
                        new: is_there,
                    };
                    self.add_name(matches, name);
                    None
                }
                FileChange::Replace(edit) => self.replace(edit)?,
                FileChange::Edit(edit) => {
                    let name = edit.name.as_str();
                    let present = log.present_name(self.image, name)?;
                    let file = self.image.open(present, Open::Read)?;
                    let (parts, after) = edit.parts(next, ranges_in_part);
                    next = after;
                    match file {
                        None if created.contains(name) => {
                            self.is_incomplete = true;
                            None
                        }
                        None => Some(format!("{name} is missing")),
                        Some(file) if created.contains(name) => self.created(&*file, edit)?,
                        Some(file) => self.edit(&*file, edit, &parts, after - 1)?,
                    }
                }
            };
            if foreign.is_some() {
                return Ok(foreign);
            }
        }
        Ok(None)
    }

    /// Returns the state if the parts are in order.
    fn conclude(self) -> ImageState {
        let mut first_old: Option<String> = None;
        let mut has_new = self.is_begun;
        for part in self.parts.into_values() {
            if let (Some(old), Some(new)) = (&first_old, &part.new) {
                return ImageState::Foreign(format!(
                    "{new} is as after the repair, and {old}, which is written first, is not"
                ));
            }
            has_new |= part.new.is_some();
            first_old = first_old.or(part.old);
        }
        match (first_old.is_some() || self.is_incomplete, has_new) {
            (false, _) => ImageState::New,
            (true, true) => ImageState::Partly,
            (true, false) => ImageState::Old,
        }
    }

    fn part(&mut self, number: usize) -> &mut Part {
        self.parts.entry(number).or_default()
    }

    /// Records the state of a name.
    fn add_name(&mut self, matches: Matches, name: &str) {
        self.part(0).add(matches, || format!("the name {name}"));
    }

    fn quarantine(&mut self, name: &str, len: u64, sum: u32) -> Result<Option<String>> {
        let kept = format!("{}/{FILES}{name}", self.number);
        let is_kept = is_file(self.undo.store(), &kept, len, sum)?;
        let is_there = is_file(self.image, name, len, sum)?;
        let matches = Matches {
            old: is_there,
            new: is_kept && !is_there,
        };
        self.add_name(matches, name);
        if is_there || !is_kept {
            return Ok((!is_there).then(|| format!("{name} is missing or has other contents")));
        }
        // Another file that the repair moves or creates here is checked itself.
        let is_reused = |change: &FileChange| match change {
            FileChange::Rename(_, to) | FileChange::Create(to) => to == name,
            FileChange::Replace(edit) => edit.name == name,
            _ => false,
        };
        if self.log.changes.iter().any(is_reused) {
            return Ok(None);
        }
        let (Some(now), Some(kept)) = (
            self.image.open(name, Open::Read)?,
            self.undo.store().open(&kept, Open::Read)?,
        ) else {
            return Ok(None);
        };
        // A copy back to the image that was interrupted.
        let now_len = now.info().len;
        for piece in pieces(0..now_len) {
            let bytes = now.read_vec(piece.start, to_usize(piece.end - piece.start))?;
            let is_copy = now_len <= len && {
                let kept = kept.read_vec(piece.start, bytes.len())?;
                each_sector(&piece, |part| {
                    is_zero(&bytes[part.clone()]) || bytes[part.clone()] == kept[part]
                })
                .is_none()
            };
            if !is_copy {
                return Ok(Some(format!("{name} is new")));
            }
        }
        Ok(None)
    }

    fn renamed(&mut self, from: &str, to: &str) -> Result<Option<String>> {
        let stat = |name| Ok::<_, Error>(self.image.stat(name)?.is_some());
        let matches = Matches {
            old: stat(from)?,
            new: stat(to)?,
        };
        if matches.is_foreign() {
            return Ok(Some(format!("{from} is missing")));
        }
        self.add_name(matches, to);
        Ok(None)
    }

    fn replace(&mut self, edit: &Edit) -> Result<Option<String>> {
        let name = edit.name.as_str();
        let [SavedRange { old, new, .. }] = &edit.saved[..] else {
            return Err(malformed());
        };
        let old = is_file(self.image, name, edit.old_len, *old)?;
        let new = match self.image.open(name, Open::Read)? {
            Some(file) if file.info().len == edit.new_len => {
                let bytes = file.read_vec(0, to_usize(edit.new_len))?;
                Some(super::log::sums(0, &bytes)) == *new
            }
            _ => false,
        };
        let matches = Matches { old, new };
        self.add_name(matches, name);
        Ok(matches.is_foreign().then(|| name.to_owned()))
    }

    /// Compares a file that the repair creates: an undo removes it.
    fn created(&mut self, file: &dyn BlockDevice, edit: &Edit) -> Result<Option<String>> {
        let len = file.info().len;
        self.is_begun = true;
        if len != edit.new_len {
            self.is_incomplete = true;
            return Ok((len != 0).then(|| wrong_len(edit, len)));
        }
        for saved in &edit.saved {
            if let Some(at) = self.appended(file, saved)? {
                return Ok(Some(place(edit, at)));
            }
        }
        Ok(edit.find_foreign(file)?.map(|at| place(edit, at)))
    }

    /// Compares a range that was not in the old file: each sector is zeros or new. Returns the
    /// offset of the first other one.
    fn appended(&mut self, file: &dyn BlockDevice, saved: &SavedRange) -> Result<Option<u64>> {
        let mut new = saved.new.iter().flatten();
        for piece in pieces(saved.range.clone()) {
            let bytes = file.read_vec(piece.start, to_usize(piece.end - piece.start))?;
            let mut is_incomplete = false;
            let wrong = each_sector(&piece, |part| {
                let is_new = new.next() == Some(&crc32fast::hash(&bytes[part.clone()]));
                is_incomplete |= !is_new;
                is_new || is_zero(&bytes[part])
            });
            self.is_incomplete |= is_incomplete;
            if wrong.is_some() {
                return Ok(wrong);
            }
        }
        Ok(None)
    }

    /// Compares a file of which the repair changes bytes or the length; `cut` is the part in which
    /// it is truncated.
    fn edit(
        &mut self,
        file: &dyn BlockDevice,
        edit: &Edit,
        parts: &[usize],
        cut: usize,
    ) -> Result<Option<String>> {
        let len = file.info().len;
        if len != edit.old_len && len != edit.new_len {
            return Ok(Some(wrong_len(edit, len)));
        }
        let part = match edit.new_len > edit.old_len {
            true => parts.first().copied().unwrap_or(cut),
            false => cut,
        };
        if edit.new_len != edit.old_len {
            let matches = Matches {
                old: len == edit.old_len,
                new: len == edit.new_len,
            };
            self.part(part)
                .add(matches, || format!("the length of {}", edit.name));
        }
        if len == edit.new_len
            && let Some(at) = edit.find_foreign(file)?
        {
            return Ok(Some(place(edit, at)));
        }
        for (saved, part) in edit.saved.iter().zip(parts) {
            let foreign = if saved.range.start >= edit.old_len && saved.new.is_some() {
                match len == edit.new_len {
                    true => self.appended(file, saved)?,
                    false => None,
                }
            } else if saved.range.end > len {
                // It is truncated, as its length says.
                None
            } else {
                self.range(file, edit, saved, *part)?
            };
            if let Some(at) = foreign {
                return Ok(Some(place(edit, at)));
            }
        }
        Ok(None)
    }

    /// Compares a range of the old file: each sector is old or new, or zeros if it is truncated and
    /// being restored. Returns the offset of the first other one.
    fn range(
        &mut self,
        file: &dyn BlockDevice,
        edit: &Edit,
        saved: &SavedRange,
        part: usize,
    ) -> Result<Option<u64>> {
        if saved.range.end > edit.old_len {
            return Err(malformed());
        }
        let data = self.data.clone();
        let mut new = saved.new.iter().flatten();
        for piece in pieces(saved.range.clone()) {
            let len = to_usize(piece.end - piece.start);
            let now = file.read_vec(piece.start, len)?;
            let old = match (saved.offset, &data) {
                (None, _) => vec![0; len],
                (Some(_), None) => return Err(malformed()),
                (Some(offset), Some(data)) => {
                    data.read_vec(offset + (piece.start - saved.range.start), len)?
                }
            };
            let part = self.parts.entry(part).or_default();
            let wrong = each_sector(&piece, |bytes| {
                let matches = Matches {
                    old: now[bytes.clone()] == old[bytes.clone()],
                    new: match saved.new {
                        Some(_) => new.next() == Some(&crc32fast::hash(&now[bytes.clone()])),
                        None => is_zero(&now[bytes.clone()]),
                    },
                };
                part.add(matches, || place(edit, piece.start + bytes.start as u64));
                !matches.is_foreign()
            });
            if wrong.is_some() {
                return Ok(wrong);
            }
        }
        Ok(None)
    }
}

/// Splits a range into pieces that fit in memory, at multiples of the sector size.
pub(super) fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = (start / PIECE + 1).saturating_mul(PIECE).min(range.end);
        (start < range.end).then_some(start..at)
    })
}

/// Calls `is_right` with the place in `piece` of each sector. Returns the offset of the first one
/// for which it is false.
fn each_sector(piece: &Range<u64>, mut is_right: impl FnMut(Range<usize>) -> bool) -> Option<u64> {
    sectors(piece.clone())
        .find(|sector| {
            let (start, end) = (sector.start - piece.start, sector.end - piece.start);
            !is_right(to_usize(start)..to_usize(end))
        })
        .map(|sector| sector.start)
}

fn place(edit: &Edit, at: u64) -> String {
    format!("{} at byte {at}", edit.name)
}

fn wrong_len(edit: &Edit, now: u64) -> String {
    let Edit {
        name,
        old_len,
        new_len,
        ..
    } = edit;
    format!("the length of {name} is {now} bytes; it was {old_len}, and {new_len} after the repair")
}

fn malformed() -> Error {
    let message = "the undo data is damaged: malformed log of changes";
    Error::new(Kind::Corrupt, LAYER, message).named(LOG)
}
