//! Files that the volumes of an image hold before and after a repair.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::target::Target;
use crate::device::Access;
use crate::fs::{FileKind, FileSystem};
use crate::open::{self, OpenOptions, Volume, VolumeFormat};
use crate::partition;
use crate::progress::Progress;
use crate::store::{Open, Staged, Store};
use crate::{Kind, Result};

/// Folders deeper than this are not looked into.
const DEPTH: usize = 10_000;

/// A volume that holds fewer files after a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Where the volume is, and its number where it is one of several there.
    pub volume: String,
    /// Files before. `None`: the volume could not be read.
    pub before: Option<u64>,
    /// Files after. `None`: there is no volume any more.
    pub after: Option<u64>,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.before, self.after) {
            (Some(before), Some(after)) => write!(f, "{} holds {after} files afterwards, {before} before", self.volume),
            (None, Some(after)) => write!(f, "{} holds {after} files afterwards, and could not be read before", self.volume),
            (_, None) => write!(f, "{} is gone afterwards, {} files before", self.volume, self.before.unwrap_or_default()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Count {
    files: u64,
    /// As the volume's header counts them.
    told: u64,
    /// Whether every folder could be read.
    is_whole: bool,
}

/// Volumes by where they begin on the disk and their number there.
type Counts = BTreeMap<(u64, u32), (String, Option<Count>)>;

/// The volumes of an image that hold fewer files on the staged view than on the untouched one.
pub(super) fn of(
    target: &Target,
    untouched: &Staged,
    staged: &Staged,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Vec<Loss>> {
    let view = |store: &Staged| counts(target, Arc::new(store.clone()), options, progress);
    let (before, after) = (view(untouched)?, view(staged)?);
    let mut losses = Vec::new();
    for (key, (volume, after)) in &after {
        let known = before.get(key).and_then(|(_, count)| *count);
        let lost = match (known, after) {
            (Some(before), Some(after)) if after.files < before.files => Some((Some(before.files), after.files)),
            // The rest of a volume that could not be read to its end is known by its header alone.
            (Some(before), Some(after)) if !before.is_whole && after.told < before.told => Some((Some(before.told), after.told)),
            (None, Some(after)) if after.files == 0 && before.contains_key(key) => Some((None, 0)),
            _ => None,
        };
        losses.extend(lost.map(|(before, after)| Loss { volume: volume.clone(), before, after: Some(after) }));
    }
    for (key, (volume, count)) in &before {
        let is_gone = after.get(key).is_none_or(|(_, count)| count.is_none());
        if let Some(count) = count.filter(|count| is_gone && count.files > 0) {
            losses.push(Loss { volume: volume.clone(), before: Some(count.files), after: None });
        }
    }
    Ok(losses)
}

/// The volumes of a view, as far as it opens.
fn counts(target: &Target, store: Arc<dyn Store>, options: &OpenOptions<'_>, progress: &dyn Progress) -> Result<Counts> {
    let options = &OpenOptions { access: Access::ReadOnly, ..*options };
    let mut counts = Counts::new();
    let stored = super::stored(target, store, Open::Read)?;
    let Some(disk) = readable(open::disk_of(&target.path, stored, options, &mut Vec::new()))? else { return Ok(counts) };
    let Some(map) = readable(partition::probe(&*disk))? else { return Ok(counts) };
    let Some(volumes) = readable(open::find_volumes(&disk, map.as_ref()))? else { return Ok(counts) };
    for volume in volumes.iter().filter(|volume| volume.format.is_supported()) {
        for (number, fs) in opened(volume, options)? {
            let name = if volume.format == VolumeFormat::Apfs {
                format!("volume {number} on {}", volume.place())
            } else {
                volume.place()
            };
            let count = match fs {
                Some(fs) => Some(count(&*fs, progress)?),
                None => None,
            };
            counts.insert((volume.range.start, number), (name, count));
        }
    }
    Ok(counts)
}

/// `None`: it cannot be read, which is what is being repaired.
fn readable<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), Kind::Cancelled) => Err(error),
        Err(_) => Ok(None),
    }
}

type Opened = Vec<(u32, Option<Arc<dyn FileSystem>>)>;

fn opened(volume: &Volume, options: &OpenOptions<'_>) -> Result<Opened> {
    if volume.format != VolumeFormat::Apfs {
        return Ok(vec![(1, readable(volume.open())?)]);
    }
    let Some(container) = readable(volume.container())? else { return Ok(vec![(1, None)]) };
    let mut found = Opened::new();
    for label in container.labels() {
        let Some(label) = readable(label)? else { continue };
        found.push((label.number, readable(volume.open_numbered(label.number, options.keys))?));
    }
    Ok(found)
}

/// Files and other objects that are no folders, as far as folders can be read.
fn count(fs: &dyn FileSystem, progress: &dyn Progress) -> Result<Count> {
    progress.stage("count files", 0);
    let mut count = Count { files: 0, told: fs.volume().files, is_whole: true };
    let mut folders = vec![(fs.root(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        progress.check()?;
        let listed = fs.list(folder, &mut |entry| {
            progress.advance(1);
            match entry.attributes.kind {
                FileKind::Folder if depth < DEPTH => folders.push((entry.attributes.id, depth + 1)),
                FileKind::Folder => {}
                _ => count.files += 1,
            }
            Ok(ControlFlow::Continue(()))
        });
        match listed {
            Err(error) if error.kind() == Kind::Cancelled => return Err(error),
            listed => count.is_whole &= listed.is_ok(),
        }
    }
    Ok(count)
}
