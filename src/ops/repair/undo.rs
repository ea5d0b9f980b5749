//! The undo data of a repair: written durably before the first byte of the image changes.
//!
//! Each repair has a folder of its own, `1/`, `2/`, …, undone from the last to the first:
//!
//! ```text
//! log         the changes, with checksums of the old and of the new bytes (`log.rs`)
//! data        the bytes that are overwritten or truncated, as stored in the image's files
//! files/NAME  files of the image that the repair removed
//! state       the fingerprint of the image after the repair (`fingerprint.rs`), written last and
//!             as a whole: the rest is complete, and the image is being changed
//! applied     an empty file: the repair is complete. An undo begins by removing it
//! ```
//!
//! Without `state` the repair has changed nothing. With `state` and without `applied` it, or its
//! undo, was interrupted; it is rolled back, which can begin at any step and be repeated. Before,
//! the image is compared with the log (`image_state.rs`): it may have been replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::LAYER;
use super::fingerprint::Fingerprint;
use super::image_state::{self, ImageState, pieces};
use super::log::{Edit, FileChange, Log, SavedRange, sums};
use super::revert::{Undone, revert, verify};
use super::save::{Planned, save};
use super::target::Target;
use super::undo_store::{FILES, UndoStore};
use crate::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, CowDevice};
use crate::open::OpenOptions;
use crate::open::interrupted::{self, LOG, State};
use crate::size::to_usize;
use crate::store::{Open, Put, Staged, Store};
use crate::{Error, Kind, Result};

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
    let saved = save(undo, number, staged, &planned, notes).and_then(|log| {
        let found = Fingerprint::of(target, staged, &log, options, temporary)?;
        undo.set_prepared(number, &found.to_text())?;
        Ok(log)
    });
    let log = match saved {
        Ok(log) => log,
        Err(error) => {
            // The image is unchanged. Errors of this cleanup would hide the original failure.
            let _ = undo.clear(number);
            return Err(undo.cannot_save(error));
        }
    };
    let done = apply(target, undo, number, &planned, &log).and_then(|()| undo.set_applied(number));
    if let Err(error) = done {
        let restored = undo
            .set_undoing(number)
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

/// Fails if a file that the repair changes, replaces or removes cannot be saved, for example because
/// it is a symbolic link or a folder.
pub(super) fn check_kinds(staged: &Staged) -> Result<()> {
    let below = staged.below();
    for (name, content) in staged.changes() {
        let origin = content.and_then(|content| content.origin.clone());
        for name in [Some(name), origin].into_iter().flatten() {
            below
                .open(&name, Open::Read)
                .map_err(|error| error.named(&name))?;
        }
    }
    plan(staged).map(drop)
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

/// Performs the changes: names first, then contents, in the parts and the order by which
/// `image_state.rs` recognizes an image after a crash.
fn apply(
    target: &Target,
    undo: &UndoStore,
    number: u64,
    planned: &Planned,
    log: &Log,
) -> Result<()> {
    let image = &*target.store;
    // Over the file itself, because one that was renamed has lost its old name.
    let new_of = |name: &str, file: Option<&Arc<dyn BlockDevice>>| {
        let content = &planned.contents[name];
        let below = file.filter(|_| content.origin.is_some()).cloned();
        CowDevice::with(content.changes.clone(), below, Access::ReadOnly)
    };
    let ranges_in_part = log.ranges_in_part();
    let mut has_names = false;
    for change in &log.changes {
        if !matches!(change, FileChange::Edit(_)) {
            has_names = true;
        } else if std::mem::take(&mut has_names) {
            image.sync()?;
            undo.store().sync()?;
        }
        match change {
            FileChange::Quarantine { name, .. } => {
                undo.move_in(image, name, &format!("{number}/{FILES}{name}"))?;
            }
            FileChange::Rename(from, to) => image.rename(from, to)?,
            FileChange::Create(name) => drop(image.open(name, Open::CreateNew)?),
            FileChange::Replace(Edit { name, new_len, .. }) => {
                let bytes = new_of(name, None).read_vec(0, to_usize(*new_len))?;
                image.put(name, &bytes, Put::Replace)?;
            }
            FileChange::Edit(edit) => {
                let missing = || Error::not_found(LAYER, &edit.name);
                let file = image.open(&edit.name, Open::Write)?.ok_or_else(missing)?;
                let new = new_of(&edit.name, Some(&file));
                write_edit(&*file, &new, edit, ranges_in_part)?;
            }
        }
    }
    image.sync()
}

/// Writes the new contents of a file, durably, part by part.
fn write_edit(
    file: &dyn BlockDevice,
    new: &dyn BlockDevice,
    edit: &Edit,
    ranges_in_part: usize,
) -> Result<()> {
    if file.info().len < edit.new_len {
        file.set_len(edit.new_len, AfterDiscard::Zeros)?;
    }
    let (parts, _) = edit.parts(0, ranges_in_part);
    let mut last = 0;
    let written = edit.saved.iter().zip(parts);
    for (SavedRange { range, .. }, part) in written.filter(|(saved, _)| saved.new.is_some()) {
        if part != last {
            file.flush()?;
            last = part;
        }
        let bytes = new.read_vec(range.start, to_usize(range.end - range.start))?;
        file.write_at(range.start, &bytes)?;
    }
    if file.info().len > edit.new_len {
        file.flush()?;
        file.set_len(edit.new_len, AfterDiscard::Any)?;
    }
    file.flush()
}

/// Makes the changes of a complete repair durable, in case its process was killed before.
fn flush(image: &dyn Store, log: &Log) -> Result<()> {
    for change in &log.changes {
        if let FileChange::Edit(edit) = change
            && let Some(file) = image.open(&edit.name, Open::Write)?
        {
            file.flush()?;
        }
    }
    image.sync()
}

/// Rolls back an interrupted repair, or completes an interrupted undo of one. `None`: there is
/// none. A repair of which only the mark is missing that it is complete gets it.
/// [`Kind::Conflict`] if the image was replaced or changed since; nothing is written then.
pub(super) fn roll_back(target: &Target) -> Result<Option<Undone>> {
    let undo = target.undo()?;
    let image = &*target.store;
    let mut done = None;
    for (number, state) in undo.repairs()?.into_iter().rev() {
        match state {
            None => undo.clear(number)?,
            Some(State::Applied) => {}
            Some(State::Prepared) => {
                let repair = SavedRepair::read(undo, number)?;
                if repair.check_to_roll_back(target, image)? == ImageState::New {
                    flush(image, &repair.log)?;
                    undo.set_applied(number)?;
                } else {
                    done.get_or_insert_with(Undone::default)
                        .add(repair.undo(target)?);
                }
            }
        }
    }
    Ok(done)
}

/// Does the same to `image`, a staged view, and leaves the undo data.
pub(super) fn try_roll_back(
    target: &Target,
    image: &dyn Store,
    undo: &UndoStore,
) -> Result<Option<Undone>> {
    let mut done = None;
    for (number, state) in undo.repairs()?.into_iter().rev() {
        if state.is_some_and(|state| state != State::Applied) {
            let repair = SavedRepair::read(undo, number)?;
            if repair.check_to_roll_back(target, image)? != ImageState::New {
                done.get_or_insert_with(Undone::default).add(revert(
                    image,
                    undo,
                    number,
                    &repair.log,
                    true,
                )?);
            }
        }
    }
    Ok(done)
}

/// Undoes all repairs that have undo data, the last first. [`Kind::Conflict`] if the image changed
/// since the last one, [`Kind::Corrupt`] if undo data is damaged; nothing is changed then. If it
/// changed between two repairs, only those after the change are undone.
pub(super) fn undo(target: &Target, temporary: &Path) -> Result<Undone> {
    let undo = target.undo()?;
    undo.check()?;
    let all = undo.repairs()?;
    let known: Vec<_> = all
        .iter()
        .rev()
        .filter_map(|(number, state)| Some((*number, (*state)?)))
        .collect();
    // The image as it is once the later repairs are undone.
    let view = Staged::new(target.store.clone(), temporary.to_owned());
    let (mut undoable, mut changed) = (Vec::new(), None);
    for (at, (number, state)) in known.iter().enumerate() {
        let repair = SavedRepair::read(undo, *number)?;
        let is_interrupted = *state != State::Applied;
        verify(&view, undo, *number, &repair.log, is_interrupted)?;
        if changed.is_some() {
            continue;
        }
        let image: &dyn Store = if at == 0 { &*target.store } else { &view };
        let found = match state {
            State::Applied => repair.check_unchanged(image),
            State::Prepared => repair.find(image).map(drop),
        };
        match found {
            Err(error) if at > 0 && error.kind() == Kind::Conflict => {
                changed = Some(error.message().to_owned());
                continue;
            }
            found => found?,
        }
        if at + 1 < known.len() {
            revert(&view, undo, *number, &repair.log, true)?;
        }
        undoable.push(repair);
    }
    let mut done = Undone {
        kept: known.len() - undoable.len(),
        kept_because: changed,
        ..Undone::default()
    };
    for repair in undoable {
        done.add(repair.undo(target)?);
    }
    for (number, _) in all.iter().filter(|(_, state)| state.is_none()) {
        undo.clear(*number)?;
    }
    if done.repairs == 0 {
        let message = "no undo data: the image was not repaired, or the repair was committed";
        return Err(Error::new(Kind::NotFound, LAYER, message));
    }
    Ok(done)
}

/// The undo data of one repair.
struct SavedRepair<'a> {
    undo: &'a UndoStore,
    number: u64,
    log: Log,
    recorded: Fingerprint,
}

impl<'a> SavedRepair<'a> {
    fn read(undo: &'a UndoStore, number: u64) -> Result<Self> {
        Ok(Self {
            undo,
            number,
            log: Log::read(undo.store(), &format!("{number}/{LOG}"))?,
            recorded: Fingerprint::read(undo.store(), number)?,
        })
    }

    /// Undoes the repair, or completes its undo, and removes the undo data.
    fn undo(self, target: &Target) -> Result<Undone> {
        let Self { undo, number, .. } = self;
        if self.recorded.is_of_another(target) {
            // A copy is undone because that was asked for; `repair` may complete it.
            undo.set_prepared(number, &self.recorded.claimed_by(target).to_text())?;
        }
        undo.set_undoing(number)?;
        let done = revert(&*target.store, undo, number, &self.log, false)?;
        undo.clear(number)?;
        Ok(done)
    }

    /// Checks the undo data, and returns the state of an image whose repair was interrupted.
    /// [`Kind::Conflict`] if it was replaced or changed since.
    fn find(&self, image: &dyn Store) -> Result<ImageState> {
        verify(image, self.undo, self.number, &self.log, true)?;
        match image_state::find(image, self.undo, self.number, &self.log, &self.recorded)? {
            ImageState::Foreign(what) => {
                let message = format!(
                    "replaced or changed since its repair was interrupted, and restoring would \
                     mix old and new: {what}; nothing was changed; `bandsaw repair --commit` \
                     removes the undo data and leaves the image as it is"
                );
                Err(Error::conflict(LAYER, message))
            }
            state => Ok(state),
        }
    }

    /// Returns the state of an image that nobody has asked to restore.
    fn check_to_roll_back(&self, target: &Target, image: &dyn Store) -> Result<ImageState> {
        let state = self.find(image)?;
        if state == ImageState::Partly && self.recorded.is_of_another(target) {
            let message = "another file than the one whose repair was interrupted; if it is a copy \
                           of that, restore it with `bandsaw repair --undo`; nothing was changed";
            return Err(Error::conflict(LAYER, message));
        }
        Ok(state)
    }
}

/// Removes all undo data and all quarantined files. That of an interrupted repair is only removed
/// if the image has none or all of its changes, or was replaced or changed since.
pub(super) fn commit(target: &Target) -> Result<Undone> {
    let undo = target.undo()?;
    undo.check()?;
    for (number, state) in undo.repairs()? {
        if state != Some(State::Prepared) {
            continue;
        }
        // Damaged undo data does not show that the image can do without it.
        let found = SavedRepair::read(undo, number).and_then(|repair| repair.find(&*target.store));
        match found {
            Ok(ImageState::Partly) => return Err(interrupted::error()),
            Err(error) if error.kind() != Kind::Conflict => {
                return Err(interrupted::error().caused_by(error));
            }
            _ => {}
        }
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

impl SavedRepair<'_> {
    /// Fails with [`Kind::Conflict`] unless the image is as the repair left it.
    fn check_unchanged(&self, image: &dyn Store) -> Result<()> {
        let changed = |what: String| {
            let message =
                format!("changed since it was repaired, and undoing would mix old and new: {what}");
            Err(Error::conflict(LAYER, message))
        };
        if let Some(what) = self.recorded.difference(image)? {
            return changed(what);
        }
        for change in &self.log.changes {
            let (FileChange::Edit(edit) | FileChange::Replace(edit)) = change else {
                continue;
            };
            let name = &edit.name;
            let Some(file) = image.open(name, Open::Read)? else {
                return changed(name.clone());
            };
            if file.info().len != edit.new_len {
                return changed(name.clone());
            }
            let is_edit = matches!(change, FileChange::Edit(_));
            if let Some(at) = edit.find_foreign(&*file)?.filter(|_| is_edit) {
                return changed(format!("{name} at byte {at}"));
            }
            for SavedRange { range, new, .. } in &edit.saved {
                if new.is_none() {
                    continue;
                }
                let range = match change {
                    FileChange::Replace(_) => 0..edit.new_len,
                    _ => range.clone(),
                };
                let mut new = new.iter().flatten();
                for piece in pieces(range.clone()) {
                    let bytes = file.read_vec(piece.start, to_usize(piece.end - piece.start))?;
                    let mut is_new = |sum| new.next().is_none_or(|new| *new == sum);
                    if !sums(piece.start, &bytes).into_iter().all(&mut is_new) {
                        return changed(format!("{name} at byte {}", piece.start));
                    }
                }
            }
        }
        Ok(())
    }
}
