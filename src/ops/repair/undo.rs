//! The undo data of a repair: written durably before the first byte of the image changes.
//!
//! Each repair has a folder of its own, `1/`, `2/`, …, undone from the last to the first:
//!
//! ```text
//! log         the changes, a line each, with checksums of the new bytes (see `Log`)
//! data        the bytes that are overwritten or truncated, as stored in the image's files
//! files/NAME  files of the image that the repair removed
//! sealed      written last: length and time of every file of the image at the end of the repair
//! undoing     exists while the repair is being undone
//! ```
//!
//! A folder without `log` belongs to a repair that changed nothing; one without `sealed` to a
//! repair that was interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use super::LAYER;
use super::target::{Target, Vault};
use crate::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, ExtentKind, is_zero};
use crate::open::interrupted::{self, LOG, SEALED, UNDOING};
use crate::store::{Content, Open, Put, Staged, Store};
use crate::{Error, Kind, Reason, Result};

const HEAD: &str = "bandsaw undo 1";
const DATA: &str = "data";
const FILES: &str = "files/";
/// Bytes compared and saved at a time.
const PIECE: u64 = 1 << 20;
/// Granularity of the comparison, in bytes.
const SECTOR: usize = 512;
/// Largest log in bytes, which is read into memory as a whole.
const MOST_LOG: u64 = 1 << 30;

/// Bytes of a file that a repair overwrites or truncates.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Old {
    range: Range<u64>,
    /// Offset of the saved bytes in `data`. `None`: they are zeros.
    kept: Option<u64>,
    /// CRC-32 of the new bytes. `None`: the range is truncated.
    new: Option<u32>,
    epoch: u64,
}

/// A change of the image's files.
#[derive(Debug, PartialEq, Eq)]
enum FileChange {
    /// The file is moved to `files/` of the undo data.
    Take(String),
    /// A file is renamed to a name that is unused.
    Rename(String, String),
    /// A file is replaced as a whole; its old bytes are saved.
    Replace(String, Vec<u8>),
    /// A file is created.
    Create(String),
    /// Bytes or the length of a file change.
    Edit {
        name: String,
        old_len: u64,
        new_len: u64,
        old: Vec<Old>,
    },
}

/// All changes of a repair in the order in which they are made.
#[derive(Debug, Default)]
struct Log {
    changes: Vec<FileChange>,
}

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

/// Writes the staged changes to the image of `target`. Returns `false` if there are none. If
/// writing fails, the image is restored.
pub(super) fn write(target: &Target, staged: &Staged) -> Result<bool> {
    let vault = target.vault()?;
    check_finished(vault)?;
    let planned = plan(staged)?;
    if planned.log.changes.is_empty() {
        return Ok(false);
    }
    vault.make()?;
    let folder = format!("{}/", generations(vault)?.last().map_or(1, |last| last + 1));
    let kept = keep(vault, &folder, staged, &planned);
    let log = match kept {
        Ok(log) => log,
        Err(error) => {
            // The image is unchanged. Errors of this cleanup would hide the original failure.
            let _ = clear(vault, &folder);
            return Err(error);
        }
    };
    let done = apply(target, vault, &folder, staged, &planned, &log)
        .and_then(|()| seal(target, vault, &folder));
    if let Err(error) = done {
        // Marked first, because a partly restored image does not match the sealed state.
        let restored =
            mark_undoing(vault, &folder).and_then(|()| revert(target, vault, &folder, &log));
        return match restored.and_then(|_| clear(vault, &folder)) {
            Ok(()) => Err(error),
            Err(second) => {
                let message = format!(
                    "{error}; and the image could not be restored: run `bandsaw repair --undo` on it"
                );
                Err(Error::new(Kind::Io, LAYER, message).caused_by(second))
            }
        };
    }
    Ok(true)
}

/// Fails if an interrupted repair has to be undone first.
pub(super) fn check_finished(vault: &Vault) -> Result<()> {
    vault.check()?;
    if interrupted::is_unfinished(vault.store())? {
        let message = "an earlier repair of this image was interrupted: run `bandsaw repair --undo` on it first";
        return Err(Error::new(Kind::Conflict, LAYER, message).because(Reason::RepairInterrupted));
    }
    Ok(())
}

/// Returns the numbers of the repairs that have undo data, in order.
fn generations(vault: &Vault) -> Result<Vec<u64>> {
    let mut found = BTreeSet::new();
    vault.store().list("", &mut |entry| {
        found.extend(
            entry
                .name
                .split_once('/')
                .and_then(|(number, _)| number.parse::<u64>().ok()),
        );
        Ok(())
    })?;
    Ok(found.into_iter().collect())
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
    for (name, content) in &changes {
        let was_there = below.stat(name)?.is_some();
        let moves_away = origins.contains_key(name.as_str());
        let Some(content) = content else {
            if was_there && !moves_away {
                taken.push(FileChange::Take(name.clone()));
            }
            continue;
        };
        contents.insert(name.clone(), content.clone());
        let edit = FileChange::Edit {
            name: name.clone(),
            old_len: 0,
            new_len: content.len(),
            old: Vec::new(),
        };
        match &content.origin {
            Some(origin) if origin == name => edited.push(edit),
            Some(origin) => {
                if was_there && !moves_away {
                    taken.push(FileChange::Take(name.clone()));
                }
                renamed.push((origin.clone(), name.clone()));
                edited.push(edit);
            }
            None if moves_away => {
                let message =
                    "a file is moved and another put in its place, which this version cannot undo";
                return Err(Error::unsupported(LAYER, message).named(name));
            }
            None if was_there && content.is_put => {
                new.push(FileChange::Replace(name.clone(), Vec::new()))
            }
            None if was_there => edited.push(edit),
            None => {
                new.push(FileChange::Create(name.clone()));
                edited.push(edit);
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
                "files change names in a circle, which this version cannot undo",
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

/// Writes the log and all old bytes to the undo data, durably.
fn keep(vault: &Vault, folder: &str, staged: &Staged, planned: &Planned) -> Result<Log> {
    let name = |last: &str| format!("{folder}{last}");
    let missing = || Error::not_found(LAYER, name(DATA));
    let data = vault
        .store()
        .open(&name(DATA), Open::Create)?
        .ok_or_else(missing)?;
    vault.protect(&name(DATA))?;
    let mut keeper = Keeper {
        data: &*data,
        len: 0,
    };
    let mut log = Log::default();
    for change in &planned.log.changes {
        log.changes.push(match change {
            FileChange::Take(name) => FileChange::Take(name.clone()),
            FileChange::Rename(from, to) => FileChange::Rename(from.clone(), to.clone()),
            FileChange::Create(name) => FileChange::Create(name.clone()),
            FileChange::Replace(name, _) => {
                FileChange::Replace(name.clone(), read_all(&**staged.below(), name)?)
            }
            FileChange::Edit { name, .. } => {
                match keeper.edit(staged, name, &planned.contents[name])? {
                    FileChange::Edit {
                        old_len,
                        new_len,
                        old,
                        ..
                    } if old_len == new_len && old.is_empty() => continue,
                    edit => edit,
                }
            }
        });
    }
    data.flush()?;
    vault
        .store()
        .put(&name(LOG), log.to_text().as_bytes(), Put::Replace)?;
    vault.protect(&name(LOG))?;
    vault.store().sync()?;
    vault.sync()?;
    Ok(log)
}

fn read_all(store: &dyn Store, name: &str) -> Result<Vec<u8>> {
    let file = store
        .open(name, Open::Read)?
        .ok_or_else(|| Error::not_found(LAYER, name))?;
    let len = file.info().len;
    if len > MOST_LOG {
        return Err(Error::new(
            Kind::Limit,
            LAYER,
            format!("{len} bytes are too many to be kept"),
        )
        .named(name));
    }
    file.read_vec(0, len as usize)
}

struct Keeper<'a> {
    data: &'a dyn BlockDevice,
    len: u64,
}

impl Keeper<'_> {
    /// Returns the change of a file's contents, and saves the old bytes of the ranges that differ.
    fn edit(&mut self, staged: &Staged, name: &str, content: &Arc<Content>) -> Result<FileChange> {
        let old_name = content.origin.as_deref().unwrap_or(name);
        let below = staged.below().open(old_name, Open::Read)?;
        let missing = || Error::not_found(LAYER, name);
        let new = staged
            .device(content.clone(), Access::ReadOnly)?
            .ok_or_else(missing)?;
        let old_len = below.as_ref().map_or(0, |below| below.info().len);
        let new_len = content.len();
        let mut old = Vec::new();
        let mut runs = content.runs();
        // A range that was truncated and extended again reads as zeros.
        let through = if content.origin.is_some() {
            content.through()
        } else {
            0
        };
        if through < old_len.min(new_len) {
            runs.push((through..old_len.min(new_len), 0));
        }
        for (range, epoch) in runs {
            let mut at = range.start;
            while at < range.end {
                let piece = at..range.end.min(at + PIECE);
                self.compare(
                    below.as_deref(),
                    old_len,
                    &*new,
                    piece.clone(),
                    epoch,
                    &mut old,
                )?;
                at = piece.end;
            }
        }
        if let Some(below) = below.filter(|_| new_len < old_len) {
            self.cut(&*below, new_len..old_len, &mut old)?;
        }
        Ok(FileChange::Edit {
            name: name.to_owned(),
            old_len,
            new_len,
            old,
        })
    }

    /// Saves the bytes that differ in `range`, which has at most [`PIECE`] bytes.
    fn compare(
        &mut self,
        below: Option<&dyn BlockDevice>,
        old_len: u64,
        new: &dyn BlockDevice,
        range: Range<u64>,
        epoch: u64,
        old: &mut Vec<Old>,
    ) -> Result<()> {
        let len = (range.end - range.start) as usize;
        let after = new.read_vec(range.start, len)?;
        let mut before = vec![0; len];
        let there = range.end.min(old_len).saturating_sub(range.start) as usize;
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
            let kept = self.keep(&before[start..end.min(there.max(start))])?;
            let place = range.start + start as u64..range.start + end as u64;
            old.push(Old {
                range: place,
                kept,
                new: Some(crc32fast::hash(&after[start..end])),
                epoch,
            });
            from = end;
        }
        Ok(())
    }

    /// Saves the bytes that are truncated.
    fn cut(
        &mut self,
        below: &dyn BlockDevice,
        range: Range<u64>,
        old: &mut Vec<Old>,
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let extent = below.extent_at(at..range.end)?;
            let end = at
                + if extent.kind == ExtentKind::Data {
                    extent.len.min(PIECE)
                } else {
                    extent.len
                };
            if extent.kind == ExtentKind::Data {
                let kept = self.keep(&below.read_vec(at, (end - at) as usize)?)?;
                old.extend(kept.map(|kept| Old {
                    range: at..end,
                    kept: Some(kept),
                    new: None,
                    epoch: 0,
                }));
            }
            at = end;
        }
        Ok(())
    }

    /// Saves bytes and returns their offset. `None`: they are zeros.
    fn keep(&mut self, bytes: &[u8]) -> Result<Option<u64>> {
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

/// Performs the changes: names first, then contents in the order in which they were flushed.
fn apply(
    target: &Target,
    vault: &Vault,
    folder: &str,
    staged: &Staged,
    planned: &Planned,
    log: &Log,
) -> Result<()> {
    let image = &*target.store;
    let mut has_names = false;
    for change in &log.changes {
        match change {
            FileChange::Take(name) => vault.take(image, name, &format!("{folder}{FILES}{name}"))?,
            FileChange::Rename(from, to) => image.rename(from, to)?,
            FileChange::Create(name) => {
                image.open(name, Open::CreateNew)?;
                vault.adopt(name)?;
            }
            FileChange::Replace(name, _) => {
                let content = &planned.contents[name];
                let missing = || Error::not_found(LAYER, name);
                let new = staged
                    .device(content.clone(), Access::ReadOnly)?
                    .ok_or_else(missing)?;
                image.put(
                    name,
                    &new.read_vec(0, content.len() as usize)?,
                    Put::Replace,
                )?;
            }
            FileChange::Edit { .. } => continue,
        }
        has_names = true;
    }
    if has_names {
        image.sync()?;
        vault.sync()?;
    }
    let edits = log.changes.iter().filter_map(|change| match change {
        FileChange::Edit {
            name, new_len, old, ..
        } => Some((name, *new_len, old)),
        _ => None,
    });
    let mut writes: BTreeMap<u64, BTreeMap<&str, Vec<&Old>>> = BTreeMap::new();
    let mut lens = Vec::new();
    for (name, new_len, old) in edits {
        let missing = || Error::not_found(LAYER, name);
        let file = image.open(name, Open::Write)?.ok_or_else(missing)?;
        if file.info().len < new_len {
            file.set_len(new_len, AfterDiscard::Zeros)?;
            file.flush()?;
        }
        lens.push((name, new_len));
        for one in old.iter().filter(|old| old.new.is_some()) {
            writes
                .entry(one.epoch)
                .or_default()
                .entry(name)
                .or_default()
                .push(one);
        }
    }
    for files in writes.values() {
        for (name, ranges) in files {
            let missing = || Error::not_found(LAYER, *name);
            let file = image.open(name, Open::Write)?.ok_or_else(missing)?;
            let new = staged
                .device(planned.contents[*name].clone(), Access::ReadOnly)?
                .ok_or_else(missing)?;
            for one in ranges {
                let bytes =
                    new.read_vec(one.range.start, (one.range.end - one.range.start) as usize)?;
                file.write_at(one.range.start, &bytes)?;
            }
            file.flush()?;
        }
    }
    for (name, new_len) in lens {
        let missing = || Error::not_found(LAYER, name);
        let file = image.open(name, Open::Write)?.ok_or_else(missing)?;
        if file.info().len > new_len {
            file.set_len(new_len, AfterDiscard::Any)?;
            file.flush()?;
        }
    }
    image.sync()
}

/// Records the state of the image, so that an undo detects later changes.
fn seal(target: &Target, vault: &Vault, folder: &str) -> Result<()> {
    let name = format!("{folder}{SEALED}");
    vault.store().put(
        &name,
        with_sum(state_of(target, vault)?).as_bytes(),
        Put::Replace,
    )?;
    vault.protect(&name)?;
    vault.store().sync()?;
    vault.sync()
}

/// Returns length and time of each file of an image, a line each, sorted by name.
fn state_of(target: &Target, vault: &Vault) -> Result<String> {
    let mut lines = Vec::new();
    target.store.list("", &mut |entry| {
        let last = entry.name.rsplit('/').next().unwrap_or_default();
        // Locks, snapshots and files of the Finder are not part of the disk.
        let is_other = entry.name == "lock" || last == ".DS_Store" || last.starts_with("._");
        if is_other || entry.name.starts_with(".bandsaw") {
            return Ok(());
        }
        if let Some(meta) = entry.meta()? {
            lines.push((
                escaped(entry.name),
                meta.len,
                vault.stamp(&*target.store, entry.name)?,
            ));
        }
        Ok(())
    })?;
    lines.sort();
    let mut text = format!("{HEAD}\n");
    for (name, len, stamp) in lines {
        let _ = writeln!(text, "file {len} {stamp:x} {name}");
    }
    Ok(text)
}

/// Undoes all repairs that have undo data, the last first. [`Kind::Conflict`] if the image changed
/// since.
pub(super) fn undo(target: &Target) -> Result<Undone> {
    let vault = target.vault()?;
    let mut done = Undone::default();
    let mut is_first = true;
    for number in generations(vault)?.into_iter().rev() {
        let folder = format!("{number}/");
        let Some(log) = Log::read(vault, &folder)? else {
            clear(vault, &folder)?;
            continue;
        };
        let is_undoing = vault.store().stat(&format!("{folder}{UNDOING}"))?.is_some();
        if is_first && !is_undoing {
            check_unchanged(target, vault, &folder, &log)?;
        }
        is_first = false;
        mark_undoing(vault, &folder)?;
        let one = revert(target, vault, &folder, &log)?;
        clear(vault, &folder)?;
        done = Undone {
            repairs: done.repairs + 1,
            files: done.files + one.files,
            bytes: done.bytes + one.bytes,
        };
    }
    vault.remove()?;
    if done.repairs == 0 {
        let message =
            "there is no undo data of this image: it was not repaired, or the repair was committed";
        return Err(Error::new(Kind::NotFound, LAYER, message));
    }
    Ok(done)
}

/// Removes the undo data of one repair. The log is durably removed first: without it the other
/// files are ignored.
fn clear(vault: &Vault, folder: &str) -> Result<()> {
    if vault.store().remove(&format!("{folder}{LOG}"))? {
        vault.store().sync()?;
    }
    vault.clear(folder)
}

fn mark_undoing(vault: &Vault, folder: &str) -> Result<()> {
    vault
        .store()
        .put(&format!("{folder}{UNDOING}"), b"", Put::Replace)?;
    vault.store().sync()
}

/// Removes all undo data and all quarantined files.
pub(super) fn commit(target: &Target) -> Result<Undone> {
    let vault = target.vault()?;
    check_finished(vault)?;
    let mut done = Undone::default();
    for number in generations(vault)? {
        let folder = format!("{number}/");
        vault.store().list(&folder, &mut |entry| {
            done.files += usize::from(entry.name[folder.len()..].starts_with(FILES));
            done.bytes += entry.meta()?.map_or(0, |meta| meta.len);
            Ok(())
        })?;
        clear(vault, &folder)?;
        done.repairs += 1;
    }
    vault.remove()?;
    if done.repairs == 0 {
        return Err(Error::new(
            Kind::NotFound,
            LAYER,
            "there is no undo data of this image",
        ));
    }
    Ok(done)
}

/// Fails with [`Kind::Conflict`] unless the image is as the repair left it. Nothing is checked
/// after an interrupted repair, which recorded no state.
fn check_unchanged(target: &Target, vault: &Vault, folder: &str, log: &Log) -> Result<()> {
    let changed = |what: String| {
        let message =
            format!("changed since it was repaired, and undoing would mix old and new: {what}");
        Err(Error::new(Kind::Conflict, LAYER, message))
    };
    let name = format!("{folder}{SEALED}");
    if vault.store().stat(&name)?.is_none() {
        return Ok(());
    }
    let text = read_text(vault.store(), &name)?;
    let now = state_of(target, vault)?;
    let (then, now): (BTreeSet<&str>, BTreeSet<&str>) =
        (text.lines().collect(), now.lines().collect());
    if let Some(line) = then.symmetric_difference(&now).next() {
        return changed(unescaped(line.splitn(4, ' ').last().unwrap_or_default()));
    }
    for change in &log.changes {
        let FileChange::Edit {
            name, new_len, old, ..
        } = change
        else {
            continue;
        };
        let Some(file) = target.store.open(name, Open::Read)? else {
            return changed(name.clone());
        };
        if file.info().len != *new_len {
            return changed(name.clone());
        }
        for Old { range, new, .. } in old {
            let Some(sum) = new else { continue };
            if crc32fast::hash(&file.read_vec(range.start, (range.end - range.start) as usize)?)
                != *sum
            {
                return changed(format!("{name} at byte {}", range.start));
            }
        }
    }
    Ok(())
}

/// Restores the image. It can start from any step and be repeated: each step is idempotent.
fn revert(target: &Target, vault: &Vault, folder: &str, log: &Log) -> Result<Undone> {
    let image = &*target.store;
    let mut done = Undone::default();
    let data = vault.store().open(&format!("{folder}{DATA}"), Open::Read)?;
    for change in log.changes.iter().rev() {
        match change {
            FileChange::Edit {
                name, old_len, old, ..
            } => {
                let is_new = log
                    .changes
                    .iter()
                    .any(|change| matches!(change, FileChange::Create(new) if new == name));
                let was = log.changes.iter().find_map(|change| match change {
                    FileChange::Rename(from, to) if to == name => Some(from.as_str()),
                    _ => None,
                });
                // The rename may not have happened yet.
                let file = match image.open(name, Open::Write)? {
                    Some(file) => Some(file),
                    None => was
                        .map(|was| image.open(was, Open::Write))
                        .transpose()?
                        .flatten(),
                };
                let Some(file) = file.filter(|_| !is_new) else {
                    continue;
                };
                done.bytes += restore(&*file, *old_len, old, data.as_deref())?;
                done.files += 1;
            }
            FileChange::Replace(name, bytes) => {
                image.put(name, bytes, Put::Replace)?;
                done.files += 1;
                done.bytes += bytes.len() as u64;
            }
            FileChange::Create(name) => drop(image.remove(name)?),
            FileChange::Rename(from, to) => {
                if image.stat(from)?.is_none() && image.stat(to)?.is_some() {
                    image.rename(to, from)?;
                    done.files += 1;
                }
            }
            FileChange::Take(name) => {
                let kept = format!("{folder}{FILES}{name}");
                if vault.store().stat(&kept)?.is_some() {
                    vault.give_back(image, &kept, name)?;
                    done.files += 1;
                }
            }
        }
    }
    image.sync()?;
    vault.sync()?;
    Ok(done)
}

/// Restores the old bytes and length of a file, durably. Returns the number of bytes restored.
fn restore(
    file: &dyn BlockDevice,
    old_len: u64,
    old: &[Old],
    data: Option<&dyn BlockDevice>,
) -> Result<u64> {
    if file.info().len < old_len {
        file.set_len(old_len, AfterDiscard::Zeros)?;
    }
    let mut bytes = 0;
    for Old { range, kept, .. } in old {
        let range = range.start..range.end.min(old_len);
        if range.is_empty() {
            continue;
        }
        bytes += range.end - range.start;
        match (kept, data) {
            (None, _) => file.discard(range, AfterDiscard::Zeros)?,
            (Some(at), Some(data)) => {
                let kept = data.read_vec(*at, (range.end - range.start) as usize)?;
                file.write_at(range.start, &kept)?;
            }
            (Some(_), None) => return Err(Error::not_found(LAYER, DATA)),
        }
    }
    if file.info().len > old_len {
        file.set_len(old_len, AfterDiscard::Any)?;
    }
    file.flush()?;
    Ok(bytes)
}

fn read_text(store: &dyn Store, name: &str) -> Result<String> {
    let corrupt = |what: &'static str| Error::new(Kind::Corrupt, LAYER, what).named(name);
    let text = String::from_utf8(read_all(store, name)?).map_err(|_| corrupt("expected text"))?;
    let (body, sum) = text
        .trim_end()
        .rsplit_once('\n')
        .ok_or_else(|| corrupt("expected a sum at its end"))?;
    let body = format!("{body}\n");
    if sum != format!("end {:08x}", crc32fast::hash(body.as_bytes())) {
        return Err(corrupt("its checksum does not match"));
    }
    if body.lines().next() != Some(HEAD) {
        return Err(Error::unsupported(
            LAYER,
            "is undo data of a kind that this version does not know",
        )
        .named(name));
    }
    Ok(body)
}

fn with_sum(mut text: String) -> String {
    let sum = crc32fast::hash(text.as_bytes());
    let _ = writeln!(text, "end {sum:08x}");
    text
}

/// Escapes a name so that it fits on one line.
fn escaped(name: &str) -> String {
    name.replace('%', "%25")
        .replace('\n', "%0a")
        .replace('\r', "%0d")
        .replace(' ', "%20")
}

fn unescaped(name: &str) -> String {
    name.replace("%20", " ")
        .replace("%0d", "\r")
        .replace("%0a", "\n")
        .replace("%25", "%")
}

impl Log {
    fn to_text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for change in &self.changes {
            let _ = match change {
                FileChange::Take(name) => writeln!(text, "take {}", escaped(name)),
                FileChange::Rename(from, to) => {
                    writeln!(text, "rename {} {}", escaped(from), escaped(to))
                }
                FileChange::Create(name) => writeln!(text, "create {}", escaped(name)),
                FileChange::Replace(name, bytes) => {
                    let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                        let _ = write!(hex, "{byte:02x}");
                        hex
                    });
                    writeln!(text, "replace {} {hex}", escaped(name))
                }
                FileChange::Edit {
                    name,
                    old_len,
                    new_len,
                    ..
                } => writeln!(text, "edit {} {old_len} {new_len}", escaped(name)),
            };
            let FileChange::Edit { old, .. } = change else {
                continue;
            };
            for Old {
                range,
                kept,
                new,
                epoch,
            } in old
            {
                let kept = kept.map_or("zeros".to_owned(), |at| at.to_string());
                let new = new.map_or("cut".to_owned(), |sum| format!("{sum:08x}"));
                let _ = writeln!(
                    text,
                    "bytes {} {} {kept} {new} {epoch}",
                    range.start, range.end
                );
            }
        }
        with_sum(text)
    }

    /// Reads the log. `None`: there is none, so nothing was changed.
    fn read(vault: &Vault, folder: &str) -> Result<Option<Self>> {
        let name = format!("{folder}{LOG}");
        if vault.store().stat(&name)?.is_none() {
            return Ok(None);
        }
        let text = read_text(vault.store(), &name)?;
        let mut log = Self::default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split(' ').collect();
            log.add(&words).ok_or_else(|| {
                Error::new(Kind::Corrupt, LAYER, format!("unknown line {line:?}")).named(&name)
            })?;
        }
        Ok(Some(log))
    }

    fn add(&mut self, words: &[&str]) -> Option<()> {
        let change = match words {
            ["take", name] => FileChange::Take(unescaped(name)),
            ["rename", from, to] => FileChange::Rename(unescaped(from), unescaped(to)),
            ["create", name] => FileChange::Create(unescaped(name)),
            ["replace", name, hex] => FileChange::Replace(unescaped(name), from_hex(hex)?),
            ["edit", name, old_len, new_len] => {
                let (old_len, new_len) = (old_len.parse().ok()?, new_len.parse().ok()?);
                FileChange::Edit {
                    name: unescaped(name),
                    old_len,
                    new_len,
                    old: Vec::new(),
                }
            }
            ["bytes", start, end, kept, new, epoch] => {
                let Some(FileChange::Edit { old, .. }) = self.changes.last_mut() else {
                    return None;
                };
                let range = start.parse().ok()?..end.parse().ok()?;
                if range.start > range.end {
                    return None;
                }
                let kept = if *kept == "zeros" {
                    None
                } else {
                    Some(kept.parse().ok()?)
                };
                let new = if *new == "cut" {
                    None
                } else {
                    Some(u32::from_str_radix(new, 16).ok()?)
                };
                old.push(Old {
                    range,
                    kept,
                    new,
                    epoch: epoch.parse().ok()?,
                });
                return Some(());
            }
            _ => return None,
        };
        self.changes.push(change);
        Some(())
    }
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|two| {
            u8::from_str_radix(
                std::str::from_utf8(two).ok().filter(|two| two.len() == 2)?,
                16,
            )
            .ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_as_it_was_written() {
        let old = vec![
            Old {
                range: 5..700,
                kept: Some(12),
                new: Some(7),
                epoch: 3,
            },
            Old {
                range: 700..900,
                kept: None,
                new: None,
                epoch: 0,
            },
        ];
        let log = Log {
            changes: vec![
                FileChange::Take("bands/ a%b\nc".into()),
                FileChange::Rename("bands/A".into(), "bands/a".into()),
                FileChange::Create("bands/1".into()),
                FileChange::Replace("Info.plist".into(), vec![0, 255, 16]),
                FileChange::Edit {
                    name: "bands/0".into(),
                    old_len: 900,
                    new_len: 700,
                    old,
                },
            ],
        };
        let text = log.to_text();
        let mut read = Log::default();
        for line in text
            .lines()
            .skip(1)
            .filter(|line| !line.starts_with("end "))
        {
            read.add(&line.split(' ').collect::<Vec<_>>()).unwrap();
        }
        assert_eq!(read.changes, log.changes);
        assert!(
            Log::default()
                .add(&["bytes", "1", "2", "zeros", "cut", "0"])
                .is_none()
        );
    }
}
