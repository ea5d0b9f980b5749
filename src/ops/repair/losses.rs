//! Comparison of the files in the volumes of an image before and after a repair.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::target::Target;
use crate::device::Access;
use crate::fs::{FileKind, FileSystem, hfsplus};
use crate::open::{self, OpenOptions, Volume, VolumeFormat};
use crate::progress::Progress;
use crate::store::{Open, Staged, Store};
use crate::{Kind, Result};

/// Largest depth of folders that are counted.
const DEPTH: usize = 10_000;

/// A volume that holds fewer files after a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Location of the volume, with its number if there are several.
    pub volume: String,
    /// Number of files before. `None` if neither the volume nor its header could be read.
    pub before: Option<u64>,
    /// Number of files after. `None` if the volume no longer exists.
    pub after: Option<u64>,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.before, self.after) {
            (Some(before), Some(after)) => write!(
                f,
                "{} holds {after} files afterwards, {before} before",
                self.volume
            ),
            (None, Some(after)) => write!(
                f,
                "{} holds {after} files afterwards, and could not be read before",
                self.volume
            ),
            (_, None) => write!(
                f,
                "{} is gone afterwards, {} files before",
                self.volume,
                self.before.unwrap_or_default()
            ),
        }
    }
}

/// A volume on a view of an image.
#[derive(Debug)]
struct VolumeCount {
    /// Display name.
    volume: String,
    /// Counts in the volume headers, if they can be read.
    recorded: Option<HeaderCounts>,
    /// Number of files in its folders. `None` if the volume cannot be opened.
    count: Option<u64>,
}

/// Counts in the headers of a volume.
#[derive(Debug, Clone, Copy)]
struct HeaderCounts {
    files: u64,
    /// Number of leaf records in the catalog tree, according to the tree header.
    records: Option<u64>,
}

impl HeaderCounts {
    /// Returns true if both counts are lower than in `before`: a single one may have been wrong.
    fn is_less_than(self, before: Self) -> bool {
        let fewer_records = self
            .records
            .zip(before.records)
            .is_none_or(|(now, before)| now < before);
        self.files < before.files && fewer_records
    }
}

/// Volumes by their disk offset and their number at that offset.
type Counts = BTreeMap<(u64, u32), VolumeCount>;

/// Returns the volumes of an image that hold fewer files on the staged view than on the untouched
/// one. If `changed_volumes` is true, a volume without known counts before is included.
pub(super) fn of(
    target: &Target,
    untouched: &Staged,
    staged: &Staged,
    options: &OpenOptions<'_>,
    changed_volumes: bool,
    progress: &dyn Progress,
) -> Result<Vec<Loss>> {
    let view = |store: &Staged| counts(target, Arc::new(store.clone()), options, progress);
    let (before, after) = (view(untouched)?, view(staged)?);
    let mut losses = Vec::new();
    for (key, now) in &after {
        let (Some(before), Some(count)) = (before.get(key), now.count) else {
            continue;
        };
        // Files whose records were not found before are only known from the counts in the headers.
        let recorded = before.recorded.zip(now.recorded);
        let lost = match (before.count, recorded) {
            (Some(before), _) if count < before => Some((Some(before), count)),
            (_, Some((before, now))) => now
                .is_less_than(before)
                .then_some((Some(before.files), now.files)),
            (None, None) if changed_volumes => Some((None, count)),
            (_, None) => None,
        };
        losses.extend(lost.map(|(before, after)| Loss {
            volume: now.volume.clone(),
            before,
            after: Some(after),
        }));
    }
    for (key, before) in &before {
        let is_gone = after.get(key).is_none_or(|now| now.count.is_none());
        if let Some(count) = before.count.filter(|count| is_gone && *count > 0) {
            losses.push(Loss {
                volume: before.volume.clone(),
                before: Some(count),
                after: None,
            });
        }
    }
    Ok(losses)
}

/// Counts the files of the volumes of a view, as far as it can be opened.
fn counts(
    target: &Target,
    store: Arc<dyn Store>,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Counts> {
    let options = &OpenOptions {
        access: Access::ReadOnly,
        ..*options
    };
    let mut counts = Counts::new();
    let stored = super::stored(target, store, Open::Read)?;
    let Some(disk) = readable(open::disk_of(
        &target.path,
        stored,
        options,
        &mut Vec::new(),
    ))?
    else {
        return Ok(counts);
    };
    let Some((_, volumes)) = readable(open::find_contents(&disk))? else {
        return Ok(counts);
    };
    for volume in volumes.iter().filter(|volume| volume.format.is_supported()) {
        for (number, recorded, fs) in opened(volume, options)? {
            let name = if volume.format == VolumeFormat::Apfs {
                format!("volume {number} on {}", volume.place())
            } else {
                volume.place()
            };
            let count = fs.map(|fs| count(&*fs, progress)).transpose()?;
            counts.insert(
                (volume.range.start, number),
                VolumeCount {
                    volume: name,
                    recorded,
                    count,
                },
            );
        }
    }
    Ok(counts)
}

/// Returns `None` for an error: unreadable structures are what the repair is for.
fn readable<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), Kind::Cancelled) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Volume numbers, file counts in the headers, and the volumes that can be opened.
type Opened = Vec<(u32, Option<HeaderCounts>, Option<Arc<dyn FileSystem>>)>;

fn opened(volume: &Volume, options: &OpenOptions<'_>) -> Result<Opened> {
    if volume.format != VolumeFormat::Apfs {
        let recorded = hfsplus::recorded_counts(volume.device())
            .map(|(files, records)| HeaderCounts { files, records });
        return Ok(vec![(1, recorded, readable(volume.open())?)]);
    }
    let Some(container) = readable(volume.container())? else {
        return Ok(vec![(1, None, None)]);
    };
    let mut found = Opened::new();
    for summary in container.volumes() {
        let Some(summary) = readable(summary)? else {
            continue;
        };
        let number = summary.label.number;
        let recorded = HeaderCounts {
            files: summary.files,
            records: None,
        };
        found.push((
            number,
            Some(recorded),
            readable(volume.open_numbered(number, options.keys))?,
        ));
    }
    Ok(found)
}

/// Counts files and other objects except folders, as far as folders can be read.
fn count(fs: &dyn FileSystem, progress: &dyn Progress) -> Result<u64> {
    progress.stage("count files", 0);
    let mut count = 0;
    let mut folders = vec![(fs.root(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        progress.check()?;
        let listed = fs.list(folder, &mut |entry| {
            progress.advance(1);
            match entry.attributes.kind {
                FileKind::Folder if depth < DEPTH => folders.push((entry.attributes.id, depth + 1)),
                FileKind::Folder => {}
                _ => count += 1,
            }
            Ok(ControlFlow::Continue(()))
        });
        // If listing a folder fails, the entries listed so far count.
        if let Err(error) = listed
            && error.kind() == Kind::Cancelled
        {
            return Err(error);
        }
    }
    Ok(count)
}
