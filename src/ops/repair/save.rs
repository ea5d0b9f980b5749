//! Saving of the bytes that a repair overwrites or truncates.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::LAYER;
use super::log::{Edit, FileChange, Log, SavedRange, sectors, sums};
use super::ranges::without;
use super::undo_store::{DATA, MAX_REPLACED, PIECE, UndoStore, checksum};
use crate::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, ExtentKind, is_zero};
use crate::open::interrupted::{self, LOG};
use crate::size::to_usize;
use crate::store::{Content, Open, Put, Staged};
use crate::{Error, Result};

/// The planned changes, without the old bytes.
pub(super) struct Planned {
    pub(super) log: Log,
    pub(super) contents: BTreeMap<String, Arc<Content>>,
}

/// Writes all old bytes, the log and the notes to the undo data, durably. Without a state, they
/// are ignored.
pub(super) fn save(
    undo: &UndoStore,
    number: u64,
    staged: &Staged,
    planned: &Planned,
    notes: &[(&str, &str)],
) -> Result<Log> {
    let name = |last: &str| format!("{number}/{last}");
    let missing = || Error::not_found(LAYER, name(DATA));
    let data = undo
        .store()
        .open(&name(DATA), Open::Create)?
        .ok_or_else(missing)?;
    let mut writer = UndoWriter {
        data: &*data,
        len: 0,
    };
    let below = &**staged.below();
    let mut log = Log::default();
    for change in &planned.log.changes {
        log.changes.push(match change {
            FileChange::Quarantine { name, .. } => {
                let file = below
                    .open(name, Open::Read)?
                    .ok_or_else(|| Error::not_found(LAYER, name))?;
                let len = file.info().len;
                FileChange::Quarantine {
                    name: name.clone(),
                    len,
                    sum: checksum(&*file, 0..len)?.unwrap_or_default(),
                }
            }
            FileChange::Rename(from, to) => FileChange::Rename(from.clone(), to.clone()),
            FileChange::Create(name) => FileChange::Create(name.clone()),
            FileChange::Replace(edit) => {
                FileChange::Replace(writer.replace(staged, edit, &planned.contents[&edit.name])?)
            }
            FileChange::Edit(edit) => {
                let edit = writer.edit(staged, &edit.name, &planned.contents[&edit.name])?;
                if edit.old_len == edit.new_len && edit.saved.is_empty() {
                    continue;
                }
                FileChange::Edit(edit)
            }
        });
    }
    data.flush()?;
    let text = interrupted::file_of(&log.to_text());
    undo.store().put(&name(LOG), &text, Put::Replace)?;
    for (note, text) in notes {
        undo.store()
            .put(&name(note), text.as_bytes(), Put::Replace)?;
    }
    undo.store().sync()?;
    Ok(log)
}

/// The file of saved bytes.
struct UndoWriter<'a> {
    data: &'a dyn BlockDevice,
    len: u64,
}

impl UndoWriter<'_> {
    /// Saves a file that is stored anew as a whole.
    fn replace(&mut self, staged: &Staged, edit: &Edit, content: &Arc<Content>) -> Result<Edit> {
        let missing = || Error::not_found(LAYER, &edit.name);
        let old = staged
            .below()
            .open(&edit.name, Open::Read)?
            .ok_or_else(missing)?;
        let new = staged
            .device(content.clone(), Access::ReadOnly)?
            .ok_or_else(missing)?;
        let (old_len, new_len) = (old.info().len, new.info().len);
        if old_len.max(new_len) > MAX_REPLACED {
            let message = format!("{old_len} bytes are too many to replace the file as a whole");
            return Err(Error::limit(LAYER, message).named(&edit.name));
        }
        let old = old.read_vec(0, to_usize(old_len))?;
        let saved = SavedRange {
            range: 0..old_len,
            offset: self.save(&old)?,
            old: crc32fast::hash(&old),
            new: Some(sums(0, &new.read_vec(0, to_usize(new_len))?)),
        };
        Ok(Edit {
            name: edit.name.clone(),
            old_len,
            new_len,
            saved: vec![saved],
        })
    }

    /// Returns the change of a file's contents, and saves the old bytes of the ranges that differ.
    fn edit(&mut self, staged: &Staged, name: &str, content: &Arc<Content>) -> Result<Edit> {
        let old_name = content.origin.as_deref().unwrap_or(name);
        let below = staged.below().open(old_name, Open::Read)?;
        let missing = || Error::not_found(LAYER, name);
        let new = staged
            .device(content.clone(), Access::ReadOnly)?
            .ok_or_else(missing)?;
        let mut edit = Edit {
            name: name.to_owned(),
            old_len: below.as_ref().map_or(0, |below| below.info().len),
            new_len: content.changes.len(),
            saved: Vec::new(),
        };
        let mut runs = content.changes.runs();
        // A range that was truncated and extended again reads as zeros.
        let through = if content.origin.is_some() {
            content.changes.through()
        } else {
            0
        };
        let both = edit.old_len.min(edit.new_len);
        runs.extend(without(Some(through..both), &content.changes.runs()));
        for range in runs {
            let mut at = range.start;
            while at < range.end {
                // Appended bytes are not restored, and have ranges of their own.
                let end = if at < edit.old_len {
                    edit.old_len
                } else {
                    u64::MAX
                };
                let piece = at..range.end.min(at + PIECE).min(end);
                at = piece.end;
                self.compare(below.as_deref(), &*new, piece, &mut edit)?;
            }
        }
        if let Some(below) = below.filter(|_| edit.new_len < edit.old_len) {
            self.cut(&*below, &mut edit)?;
        }
        Ok(edit)
    }

    /// Saves the bytes that differ in `range`, which has at most [`PIECE`] bytes.
    fn compare(
        &mut self,
        below: Option<&dyn BlockDevice>,
        new: &dyn BlockDevice,
        range: Range<u64>,
        edit: &mut Edit,
    ) -> Result<()> {
        let len = to_usize(range.end - range.start);
        let after = new.read_vec(range.start, len)?;
        let mut before = vec![0; len];
        let there = to_usize(range.end.min(edit.old_len).saturating_sub(range.start));
        if let Some(below) = below.filter(|_| there > 0) {
            below.read_at(range.start, &mut before[..there])?;
        }
        let mut differing: Option<Range<usize>> = None;
        for sector in sectors(range.clone()) {
            let sector = to_usize(sector.start - range.start)..to_usize(sector.end - range.start);
            if before[sector.clone()] != after[sector.clone()] {
                differing = Some(differing.map_or(sector.start, |found| found.start)..sector.end);
            } else if let Some(found) = differing.take() {
                self.save_range(&range, found, &before[..there], &after, edit)?;
            }
        }
        match differing {
            Some(found) => self.save_range(&range, found, &before[..there], &after, edit),
            None => Ok(()),
        }
    }

    /// Saves the bytes of the part `found` of `range`.
    fn save_range(
        &mut self,
        range: &Range<u64>,
        found: Range<usize>,
        before: &[u8],
        after: &[u8],
        edit: &mut Edit,
    ) -> Result<()> {
        let old = &before[found.start.min(before.len())..found.end.min(before.len())];
        let start = range.start + found.start as u64;
        edit.saved.push(SavedRange {
            range: start..range.start + found.end as u64,
            offset: self.save(old)?,
            old: crc32fast::hash(old),
            new: Some(sums(start, &after[found])),
        });
        Ok(())
    }

    /// Saves the bytes that are truncated.
    fn cut(&mut self, below: &dyn BlockDevice, edit: &mut Edit) -> Result<()> {
        let mut at = edit.new_len;
        while at < edit.old_len {
            let extent = below.extent_at(at..edit.old_len)?;
            let mut end = at + extent.len;
            if extent.kind == ExtentKind::Data {
                end = end.min(at + PIECE);
                let old = below.read_vec(at, to_usize(end - at))?;
                let saved = SavedRange {
                    range: at..end,
                    offset: self.save(&old)?,
                    old: crc32fast::hash(&old),
                    new: None,
                };
                edit.saved.extend(saved.offset.map(|_| saved));
            }
            at = end;
        }
        Ok(())
    }

    /// Saves bytes and returns their offset. `None`: they are zeros.
    fn save(&mut self, bytes: &[u8]) -> Result<Option<u64>> {
        if is_zero(bytes) {
            return Ok(None);
        }
        let at = self.len;
        self.len += bytes.len() as u64;
        self.data.set_len(self.len, AfterDiscard::Any)?;
        self.data.write_at(at, bytes)?;
        Ok(Some(at))
    }
}
