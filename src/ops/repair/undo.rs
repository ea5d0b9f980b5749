//! The undo data of a repair: written durably before the first byte of the image changes.
//!
//! Each repair has a folder of its own, `1/`, `2/`, …, undone from the last to the first:
//!
//! ```text
//! log         the changes, with checksums of the old and of the new bytes (`log.rs`)
//! data        the bytes that are overwritten or truncated, as stored in the image's files
//! files/NAME  files of the image that the repair removed
//! state       `prepared` (the rest is complete; the image is being changed), `applied` (followed
//!             by the fingerprint of the image, see `fingerprint.rs`) or `undoing`
//! ```
//!
//! `state` is written as a whole. Without it the repair has changed nothing; in any state but
//! `applied` it was interrupted and is rolled back, which can begin at any step and be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::LAYER;
use super::fingerprint::Fingerprint;
use super::log::{Edit, FileChange, Log, SavedRange};
use super::target::Target;
use super::undo_store::{UndoStore, checksum, copy_file};
use crate::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, ExtentKind, is_zero};
use crate::open::OpenOptions;
use crate::open::interrupted::{self, LOG, STATE, State};
use crate::store::{Content, Open, Put, Staged, Store};
use crate::{Error, Kind, Result};

const DATA: &str = "data";
const FILES: &str = "files/";
/// Bytes compared, saved and restored at a time.
const PIECE: u64 = 1 << 20;
/// Granularity of the comparison, in bytes.
const SECTOR: usize = 512;
/// Maximum length of a file that is stored as a whole, in bytes.
const MAX_REPLACED: u64 = 64 << 20;

/// Result of an undo or a commit.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Number of repairs that were undone, or whose undo data was removed.
    pub repairs: usize,
    /// Number of image files that were restored, or of quarantined files that were removed.
    pub files: usize,
    /// Bytes that were restored, or bytes of undo data that were removed.
    pub bytes: u64,
}

/// Writes the staged changes to the image of `target`. `notes` (name and text) are stored with the
/// undo data. Returns `false` if there are no changes. If writing fails, the image is restored.
pub(super) fn write(
    target: &Target,
    staged: &Staged,
    options: &OpenOptions<'_>,
    temporary: &Path,
    notes: &[(&str, &str)],
) -> Result<bool> {
    let undo = target.undo()?;
    undo.check()?;
    let planned = plan(staged)?;
    if planned.log.changes.is_empty() {
        return Ok(false);
    }
    let number = undo.repairs()?.last().map_or(1, |(last, _)| last + 1);
    let log = match save(undo, number, staged, &planned, notes) {
        Ok(log) => log,
        Err(error) => {
            // The image is unchanged. Errors of this cleanup would hide the original failure.
            let _ = undo.clear(number);
            return Err(undo.cannot_save(error));
        }
    };
    let done = apply(target, undo, number, staged, &planned, &log)
        .and_then(|()| Fingerprint::of(target, options, temporary))
        .and_then(|found| undo.set_state(number, State::Applied, &found.to_text()));
    if let Err(error) = done {
        // Marked first, because a partly restored image does not match the recorded state.
        let restored = undo
            .set_state(number, State::Undoing, "")
            .and_then(|()| revert(&*target.store, undo, number, &log, false));
        return match restored.and_then(|_| undo.clear(number)) {
            Ok(()) => Err(error),
            Err(second) => {
                let message = format!(
                    "{error}; and the image could not be restored: run `bandsaw repair --undo`"
                );
                Err(Error::new(Kind::Io, LAYER, message).caused_by(second))
            }
        };
    }
    Ok(true)
}

/// The planned changes, without the old bytes.
struct Planned {
    log: Log,
    contents: BTreeMap<String, Arc<Content>>,
}

/// Orders the staged changes: removed files, renamed files, new or replaced files, contents.
fn plan(staged: &Staged) -> Result<Planned> {
    let below = staged.below();
    let changes = staged.changes();
    let mut contents = BTreeMap::new();
    let origins: BTreeMap<&str, &str> = changes
        .iter()
        .filter_map(|(name, content)| Some((content.as_ref()?.origin.as_deref()?, name.as_str())))
        .filter(|(origin, name)| origin != name)
        .collect();
    let (mut taken, mut renamed, mut new, mut edited) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let take = |name: &String| FileChange::Quarantine {
        name: name.clone(),
        len: 0,
        sum: 0,
    };
    for (name, content) in &changes {
        let was_there = below.stat(name)?.is_some();
        let moves_away = origins.contains_key(name.as_str());
        let Some(content) = content else {
            if was_there && !moves_away {
                taken.push(take(name));
            }
            continue;
        };
        contents.insert(name.clone(), content.clone());
        let edit = Edit {
            name: name.clone(),
            old_len: 0,
            new_len: content.changes.len(),
            saved: Vec::new(),
        };
        match &content.origin {
            Some(origin) if origin == name => edited.push(FileChange::Edit(edit)),
            Some(origin) => {
                if was_there && !moves_away {
                    taken.push(take(name));
                }
                renamed.push((origin.clone(), name.clone()));
                edited.push(FileChange::Edit(edit));
            }
            None if moves_away => {
                let message = "the repair would move this file and put another in its place, which \
                               cannot be undone in this version";
                return Err(Error::unsupported(LAYER, message).named(name));
            }
            None if was_there && content.is_put => new.push(FileChange::Replace(edit)),
            None if was_there => edited.push(FileChange::Edit(edit)),
            None => {
                new.push(FileChange::Create(name.clone()));
                edited.push(FileChange::Edit(edit));
            }
        }
    }
    let mut log = Log { changes: taken };
    // Each rename after its target has become unused.
    let mut waiting: Vec<_> = renamed;
    while !waiting.is_empty() {
        let from: BTreeSet<String> = waiting.iter().map(|(from, _)| from.clone()).collect();
        let (free, blocked): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(_, to)| !from.contains(to));
        if free.is_empty() {
            return Err(Error::unsupported(
                LAYER,
                "the repair would rename files in a cycle, which cannot be undone in this version",
            ));
        }
        log.changes.extend(
            free.into_iter()
                .map(|(from, to)| FileChange::Rename(from, to)),
        );
        waiting = blocked;
    }
    log.changes.extend(new);
    log.changes.extend(edited);
    Ok(Planned { log, contents })
}

/// Writes all old bytes, the log and the notes to the undo data, durably, and then the state.
fn save(
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
    undo.set_state(number, State::Prepared, "")?;
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
        let old = old.read_vec(0, old_len as usize)?;
        let saved = SavedRange {
            range: 0..old_len,
            offset: self.save(&old)?,
            old: crc32fast::hash(&old),
            new: checksum(&*new, 0..new_len)?,
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
        if through < both {
            runs.push(through..both);
        }
        for range in runs {
            let mut at = range.start;
            while at < range.end {
                let piece = at..range.end.min(at + PIECE);
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
        let len = (range.end - range.start) as usize;
        let after = new.read_vec(range.start, len)?;
        let mut before = vec![0; len];
        let there = range.end.min(edit.old_len).saturating_sub(range.start) as usize;
        if let Some(below) = below.filter(|_| there > 0) {
            below.read_at(range.start, &mut before[..there])?;
        }
        let mut from = 0;
        while from < len {
            let same =
                |at: &usize| before[*at..len.min(at + SECTOR)] == after[*at..len.min(at + SECTOR)];
            let Some(start) = (from..len).step_by(SECTOR).find(|at| !same(at)) else {
                break;
            };
            let end = (start..len).step_by(SECTOR).find(same).unwrap_or(len);
            let old = &before[start..end.min(there.max(start))];
            edit.saved.push(SavedRange {
                range: range.start + start as u64..range.start + end as u64,
                offset: self.save(old)?,
                old: crc32fast::hash(old),
                new: Some(crc32fast::hash(&after[start..end])),
            });
            from = end;
        }
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
                let old = below.read_vec(at, (end - at) as usize)?;
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

/// Performs the changes: names first, then contents. The order is of no importance to a crash,
/// after which the log restores the image.
fn apply(
    target: &Target,
    undo: &UndoStore,
    number: u64,
    staged: &Staged,
    planned: &Planned,
    log: &Log,
) -> Result<()> {
    let image = &*target.store;
    let new_of = |name: &String| {
        staged
            .device(planned.contents[name].clone(), Access::ReadOnly)?
            .ok_or_else(|| Error::not_found(LAYER, name))
    };
    for change in &log.changes {
        match change {
            FileChange::Quarantine { name, .. } => {
                undo.take(image, name, &format!("{number}/{FILES}{name}"))?;
            }
            FileChange::Rename(from, to) => image.rename(from, to)?,
            FileChange::Create(name) => drop(image.open(name, Open::CreateNew)?),
            FileChange::Replace(Edit { name, new_len, .. }) => {
                let bytes = new_of(name)?.read_vec(0, *new_len as usize)?;
                image.put(name, &bytes, Put::Replace)?;
            }
            FileChange::Edit(edit) => {
                let missing = || Error::not_found(LAYER, &edit.name);
                let file = image.open(&edit.name, Open::Write)?.ok_or_else(missing)?;
                write_edit(&*file, &*new_of(&edit.name)?, edit)?;
            }
        }
    }
    image.sync()
}

/// Writes the new contents of a file, durably.
fn write_edit(file: &dyn BlockDevice, new: &dyn BlockDevice, edit: &Edit) -> Result<()> {
    if file.info().len < edit.new_len {
        file.set_len(edit.new_len, AfterDiscard::Zeros)?;
    }
    for SavedRange { range, .. } in edit.saved.iter().filter(|saved| saved.new.is_some()) {
        let bytes = new.read_vec(range.start, (range.end - range.start) as usize)?;
        file.write_at(range.start, &bytes)?;
    }
    if file.info().len > edit.new_len {
        file.set_len(edit.new_len, AfterDiscard::Any)?;
    }
    file.flush()
}

/// Rolls back an interrupted repair, or completes an interrupted undo of one. `None`: there is
/// none.
pub(super) fn roll_back(target: &Target) -> Result<Option<Undone>> {
    let undo = target.undo()?;
    let mut done = None;
    for (number, state) in undo.repairs()?.into_iter().rev() {
        match state {
            None => undo.clear(number)?,
            Some(State::Applied) => {}
            Some(State::Prepared | State::Undoing) => {
                let log = Log::read(undo.store(), &format!("{number}/{LOG}"))?;
                verify(&*target.store, undo, number, &log)?;
                done.get_or_insert_with(Undone::default)
                    .add(undo_one(target, undo, number, &log)?);
            }
        }
    }
    Ok(done)
}

/// Does the same to `image`, a staged view, and leaves the undo data.
pub(super) fn try_roll_back(image: &dyn Store, undo: &UndoStore) -> Result<Option<Undone>> {
    let mut done = None;
    for (number, state) in undo.repairs()?.into_iter().rev() {
        if state.is_some_and(|state| state != State::Applied) {
            let log = Log::read(undo.store(), &format!("{number}/{LOG}"))?;
            verify(image, undo, number, &log)?;
            done.get_or_insert_with(Undone::default)
                .add(revert(image, undo, number, &log, true)?);
        }
    }
    Ok(done)
}

impl Undone {
    fn add(&mut self, other: Self) {
        self.repairs += other.repairs;
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// Undoes all repairs that have undo data, the last first. [`Kind::Conflict`] if the image changed
/// since, [`Kind::Corrupt`] if the undo data is damaged; nothing is changed then.
pub(super) fn undo(target: &Target) -> Result<Undone> {
    let undo = target.undo()?;
    undo.check()?;
    let repairs = undo.repairs()?;
    let mut is_last = true;
    for (number, state) in repairs.iter().rev() {
        let Some(state) = state else { continue };
        let log = Log::read(undo.store(), &format!("{number}/{LOG}"))?;
        verify(&*target.store, undo, *number, &log)?;
        if is_last && *state == State::Applied {
            check_unchanged(target, undo, *number, &log)?;
        }
        is_last = false;
    }
    let mut done = Undone::default();
    for (number, state) in repairs.into_iter().rev() {
        if state.is_none() {
            undo.clear(number)?;
            continue;
        }
        let log = Log::read(undo.store(), &format!("{number}/{LOG}"))?;
        done.add(undo_one(target, undo, number, &log)?);
    }
    if done.repairs == 0 {
        let message = "no undo data: the image was not repaired, or the repair was committed";
        return Err(Error::new(Kind::NotFound, LAYER, message));
    }
    Ok(done)
}

fn undo_one(target: &Target, undo: &UndoStore, number: u64, log: &Log) -> Result<Undone> {
    undo.set_state(number, State::Undoing, "")?;
    let done = revert(&*target.store, undo, number, log, false)?;
    undo.clear(number)?;
    Ok(done)
}

/// Removes all undo data and all quarantined files.
pub(super) fn commit(target: &Target) -> Result<Undone> {
    let undo = target.undo()?;
    undo.check()?;
    if interrupted::is_unfinished(undo.store())? {
        return Err(interrupted::error());
    }
    let mut done = Undone::default();
    for (number, _) in undo.repairs()? {
        let files = format!("{number}/{FILES}");
        undo.store().list(&format!("{number}/"), &mut |entry| {
            done.files += usize::from(entry.name.starts_with(&files));
            done.bytes += entry.meta()?.map_or(0, |meta| meta.len);
            Ok(())
        })?;
        undo.clear(number)?;
        done.repairs += 1;
    }
    if done.repairs == 0 {
        return Err(Error::new(
            Kind::NotFound,
            LAYER,
            "the image has no undo data",
        ));
    }
    Ok(done)
}

/// Fails with [`Kind::Conflict`] unless the image is as the repair left it.
fn check_unchanged(target: &Target, undo: &UndoStore, number: u64, log: &Log) -> Result<()> {
    let changed = |what: String| {
        let message =
            format!("changed since it was repaired, and undoing would mix old and new: {what}");
        Err(Error::conflict(LAYER, message))
    };
    let name = format!("{number}/{STATE}");
    let text = interrupted::read(undo.store(), &name)?;
    let recorded = text.split_once('\n').map_or("", |(_, rest)| rest);
    let recorded = Fingerprint::parse(recorded).ok_or_else(|| {
        Error::new(
            Kind::Corrupt,
            LAYER,
            "the undo data is damaged: malformed record of the repaired image",
        )
        .named(name)
    })?;
    if let Some(what) = recorded.difference(target)? {
        return changed(what);
    }
    for change in &log.changes {
        let (FileChange::Edit(edit) | FileChange::Replace(edit)) = change else {
            continue;
        };
        let name = &edit.name;
        let Some(file) = target.store.open(name, Open::Read)? else {
            return changed(name.clone());
        };
        if file.info().len != edit.new_len {
            return changed(name.clone());
        }
        for SavedRange { range, new, .. } in &edit.saved {
            let range = match change {
                FileChange::Replace(_) => 0..edit.new_len,
                _ => range.clone(),
            };
            if new.is_some() && checksum(&*file, range.clone())? != *new {
                return changed(format!("{name} at byte {}", range.start));
            }
        }
    }
    Ok(())
}

/// Fails with [`Kind::Corrupt`] if the undo data of a repair is damaged.
fn verify(image: &dyn Store, undo: &UndoStore, number: u64, log: &Log) -> Result<()> {
    let damaged = |name: &str| {
        let message = "the undo data is damaged (checksum mismatch); nothing was changed";
        Err(Error::new(Kind::Corrupt, LAYER, message).named(format!("{number}/{name}")))
    };
    let data = undo.store().open(&format!("{number}/{DATA}"), Open::Read)?;
    for change in &log.changes {
        match change {
            FileChange::Quarantine { name, len, sum } => {
                let kept = format!("{FILES}{name}");
                if !is_file(undo.store(), &format!("{number}/{kept}"), *len, *sum)?
                    && !is_file(image, name, *len, *sum)?
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

/// Returns true if a file has this length and checksum.
fn is_file(store: &dyn Store, name: &str, len: u64, sum: u32) -> Result<bool> {
    let Some(file) = store.open(name, Open::Read)? else {
        return Ok(false);
    };
    Ok(file.info().len == len && checksum(&*file, 0..len)? == Some(sum))
}

/// Restores the image. Can start from any step and be repeated: each step is idempotent. In a
/// trial the undo data stays as it is.
fn revert(
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
    let (mut created, mut old_names) = (BTreeSet::new(), BTreeMap::new());
    for change in &log.changes {
        match change {
            FileChange::Create(name) => drop(created.insert(name.as_str())),
            FileChange::Rename(from, to) => drop(old_names.insert(to.as_str(), from.as_str())),
            _ => {}
        }
    }
    let data = undo.store().open(&format!("{number}/{DATA}"), Open::Read)?;
    for change in log.changes.iter().rev() {
        match change {
            FileChange::Edit(edit) => {
                let name = edit.name.as_str();
                if created.contains(name) {
                    continue;
                }
                // The rename may not have happened yet.
                let file = match (image.open(name, Open::Write)?, old_names.get(name)) {
                    (None, Some(old)) => image.open(old, Open::Write)?,
                    (file, _) => file,
                };
                let Some(file) = file else { continue };
                done.bytes += restore(&*file, edit, data.as_deref())?;
                done.files += 1;
            }
            FileChange::Replace(edit) => {
                let [SavedRange { offset, .. }] = &edit.saved[..] else {
                    return Err(Error::new(
                        Kind::Corrupt,
                        LAYER,
                        "the undo data is damaged: malformed log of changes",
                    )
                    .named(LOG));
                };
                let len = edit.old_len.min(MAX_REPLACED) as usize;
                let old = match (offset, &data) {
                    (Some(offset), Some(data)) => data.read_vec(*offset, len)?,
                    _ => vec![0; len],
                };
                image.put(&edit.name, &old, Put::Replace)?;
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

/// Restores the old bytes and length of a file, durably. Returns the number of bytes restored.
fn restore(file: &dyn BlockDevice, edit: &Edit, data: Option<&dyn BlockDevice>) -> Result<u64> {
    if file.info().len < edit.old_len {
        file.set_len(edit.old_len, AfterDiscard::Zeros)?;
    }
    let mut bytes = 0;
    for saved in &edit.saved {
        let range = edit.old_range(saved);
        bytes += range.end - range.start;
        let mut at = range.start;
        match (saved.offset, data) {
            (None, _) if range.is_empty() => {}
            (None, _) => file.discard(range, AfterDiscard::Zeros)?,
            (Some(offset), Some(data)) => {
                while at < range.end {
                    let len = (range.end - at).min(PIECE);
                    let old = data.read_vec(offset + (at - range.start), len as usize)?;
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
