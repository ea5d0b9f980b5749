//! Restoring of an image from the undo data of a repair.

use super::LAYER;
use super::log::{Edit, FileChange, Log, SavedRange};
use super::undo_store::{
    DATA, FILES, MAX_REPLACED, PIECE, UndoStore, checksum, copy_file, is_file,
};
use crate::device::{AfterDiscard, BlockDevice, BlockDeviceExt};
use crate::open::interrupted::LOG;
use crate::size::to_usize;
use crate::store::{Open, Put, Store};
use crate::{Error, Kind, Result};

/// Result of an undo or a commit.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Number of repairs that were undone, or whose undo data was removed.
    pub repairs: usize,
    /// Number of image files that were restored, or of quarantined files that were removed.
    pub files: usize,
    /// Bytes that were restored, or bytes of undo data that were removed.
    pub bytes: u64,
    /// Number of earlier repairs that were not undone, because the image changed after them.
    pub kept: usize,
    /// The change, if there is one.
    pub kept_because: Option<String>,
}

impl Undone {
    pub(super) fn add(&mut self, other: Self) {
        self.repairs += other.repairs;
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// Fails with [`Kind::Corrupt`] if the undo data of a repair is damaged. During a repair, a file
/// that is to be moved may still be in the image alone, and is compared there (`image_state.rs`).
pub(super) fn verify(
    image: &dyn Store,
    undo: &UndoStore,
    number: u64,
    log: &Log,
    is_interrupted: bool,
) -> Result<()> {
    let damaged = |name: &str| {
        let message = "the undo data is damaged (checksum mismatch); nothing was changed";
        Err(Error::new(Kind::Corrupt, LAYER, message).named(format!("{number}/{name}")))
    };
    let data = undo.store().open(&format!("{number}/{DATA}"), Open::Read)?;
    for change in &log.changes {
        match change {
            FileChange::Quarantine { name, len, sum } => {
                let kept = format!("{FILES}{name}");
                let place = format!("{number}/{kept}");
                if is_interrupted && undo.store().stat(&place)?.is_none() {
                    continue;
                }
                if !is_file(undo.store(), &place, *len, *sum)? && !is_file(image, name, *len, *sum)?
                {
                    return damaged(&kept);
                }
            }
            FileChange::Edit(edit) | FileChange::Replace(edit) => {
                for saved in &edit.saved {
                    let old = edit.old_range(saved);
                    let Some(start) = saved.offset else { continue };
                    let end = start.saturating_add(old.end - old.start);
                    let found = match &data {
                        Some(data) => checksum(&**data, start..end)?,
                        None => None,
                    };
                    if found != Some(saved.old) {
                        return damaged(DATA);
                    }
                }
            }
            FileChange::Rename(..) | FileChange::Create(_) => {}
        }
    }
    Ok(())
}

/// Restores the image, in the reverse order of the repair (`image_state.rs`). Can start from any
/// step and be repeated: each step is idempotent. In a trial the undo data stays as it is.
pub(super) fn revert(
    image: &dyn Store,
    undo: &UndoStore,
    number: u64,
    log: &Log,
    is_trial: bool,
) -> Result<Undone> {
    let mut done = Undone {
        repairs: 1,
        ..Undone::default()
    };
    let created = log.created();
    let data = undo.store().open(&format!("{number}/{DATA}"), Open::Read)?;
    let ranges_in_part = log.ranges_in_part();
    for change in log.changes.iter().rev() {
        match change {
            FileChange::Edit(edit) => {
                let name = edit.name.as_str();
                if created.contains(name) {
                    continue;
                }
                let name = log.present_name(image, name)?;
                let Some(file) = image.open(name, Open::Write)? else {
                    continue;
                };
                done.bytes += restore(&*file, edit, ranges_in_part, data.as_deref())?;
                done.files += 1;
            }
            FileChange::Replace(edit) => {
                let [SavedRange { offset, old, .. }] = &edit.saved[..] else {
                    return Err(Error::new(
                        Kind::Corrupt,
                        LAYER,
                        "the undo data is damaged: malformed log of changes",
                    )
                    .named(LOG));
                };
                let len = to_usize(edit.old_len.min(MAX_REPLACED));
                let bytes = match (offset, &data) {
                    (Some(offset), Some(data)) => data.read_vec(*offset, len)?,
                    _ => vec![0; len],
                };
                if let Err(error) = image.put(&edit.name, &bytes, Put::Replace) {
                    // A full disk has no room for another copy, nor need of one.
                    if is_file(image, &edit.name, edit.old_len, *old)? {
                        continue;
                    }
                    return Err(error);
                }
                done.files += 1;
                done.bytes += edit.old_len;
            }
            FileChange::Create(name) => drop(image.remove(name)?),
            FileChange::Rename(from, to) => {
                if image.stat(from)?.is_none() && image.stat(to)?.is_some() {
                    image.rename(to, from)?;
                    done.files += 1;
                }
            }
            FileChange::Quarantine { name, len, sum } => {
                // A copy that was interrupted may have left both files.
                let kept = format!("{number}/{FILES}{name}");
                if undo.store().stat(&kept)?.is_none() || is_file(image, name, *len, *sum)? {
                    continue;
                }
                if is_trial {
                    copy_file(undo.store(), &kept, image, name)?;
                } else {
                    undo.restore_file(image, &kept, name)?;
                }
                done.files += 1;
            }
        }
    }
    image.sync()?;
    if !is_trial {
        undo.store().sync()?;
    }
    Ok(done)
}

/// Restores the old bytes and length of a file, durably: the last part first. Returns the number of
/// bytes restored.
fn restore(
    file: &dyn BlockDevice,
    edit: &Edit,
    ranges_in_part: usize,
    data: Option<&dyn BlockDevice>,
) -> Result<u64> {
    if file.info().len < edit.old_len {
        file.set_len(edit.old_len, AfterDiscard::Zeros)?;
    }
    let mut bytes = 0;
    let (parts, end) = edit.parts(0, ranges_in_part);
    let mut last = end;
    for (saved, part) in edit.saved.iter().zip(parts).rev() {
        if part != last {
            file.flush()?;
            last = part;
        }
        let range = edit.old_range(saved);
        bytes += range.end - range.start;
        let mut at = range.start;
        match (saved.offset, data) {
            (None, _) if range.is_empty() => {}
            (None, _) => file.discard(range, AfterDiscard::Zeros)?,
            (Some(offset), Some(data)) => {
                while at < range.end {
                    let len = (range.end - at).min(PIECE);
                    let old = data.read_vec(offset + (at - range.start), to_usize(len))?;
                    file.write_at(at, &old)?;
                    at += len;
                }
            }
            (Some(_), None) => return Err(Error::not_found(LAYER, DATA)),
        }
    }
    if file.info().len > edit.old_len {
        file.set_len(edit.old_len, AfterDiscard::Any)?;
    }
    file.flush()?;
    Ok(bytes)
}
