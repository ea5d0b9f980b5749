//! What volumes held before a repair and do not hold afterwards.
//!
//! The repair of a volume compares its own records. Here, volumes are compared of which the repair
//! changed what lies below, or which fell back to an older state: folder by folder, so that memory
//! depends on the largest folder.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write as _};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::target::Target;
use crate::device::Access;
use crate::fs::{Attributes, Entry, FileKind, FileSystem, Loss, Losses, Lost, NodeId};
use crate::open::{self, OpenOptions, Volume};
use crate::progress::Progress;
use crate::store::{Open, Staged, Store};
use crate::{Kind, Result};

/// Largest depth of folders that are compared.
const DEPTH: usize = 10_000;

/// The losses of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeLosses {
    /// Location of the volume, with its number if there are several.
    pub volume: String,
    /// The losses.
    pub losses: Losses,
}

impl VolumeLosses {
    /// Returns the losses of a volume; `None` if there are none.
    pub(super) fn new(volume: &str, losses: Losses) -> Option<Self> {
        let volume = volume.to_owned();
        (!losses.is_empty()).then_some(Self { volume, losses })
    }
}

impl fmt::Display for VolumeLosses {
    /// Writes the number of losses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}es"),
        };
        let Losses { certain, possible } = &self.losses;
        write!(f, "{}: {}", self.volume, count(certain.len(), "loss"))?;
        match possible.len() {
            0 => Ok(()),
            more => write!(f, ", {}", count(more, "possible loss")),
        }
    }
}

/// Returns all losses as text, one on each line.
pub(super) fn text(all: &[VolumeLosses]) -> String {
    let mut text = String::new();
    for VolumeLosses { volume, losses } in all {
        for (kind, list) in [
            ("lost", &losses.certain),
            ("possibly lost", &losses.possible),
        ] {
            for loss in list {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{kind} from {volume}: {}", escaped(&loss.to_string()));
            }
        }
    }
    text
}

/// Returns a text without line breaks and other control characters.
fn escaped(text: &str) -> String {
    let each = |character: char| match character.is_control() {
        true => character.escape_default().collect::<String>(),
        false => character.to_string(),
    };
    text.chars().map(each).collect()
}

/// Volumes by their disk offset and their number at that offset: display name and, if it can be
/// opened, contents.
type Volumes = BTreeMap<(u64, u32), (String, Option<Arc<dyn FileSystem>>)>;

/// Compares the volumes of an image on the untouched view with those on the staged one, except
/// those at the disk offsets `rebuilt`, whose losses are known, unless they are gone.
pub(super) fn compare(
    target: &Target,
    untouched: &Staged,
    staged: &Staged,
    options: &OpenOptions<'_>,
    rebuilt: &[u64],
    progress: &dyn Progress,
) -> Result<Vec<VolumeLosses>> {
    let view = |store: &Staged| volumes(target, Arc::new(store.clone()), options);
    let (before, mut after) = (view(untouched)?, view(staged)?);
    let mut found = Vec::new();
    for (key, (name, volume)) in before {
        let Some(before) = volume else { continue };
        let after = after.remove(&key).and_then(|(_, volume)| volume);
        if after.is_some() && rebuilt.contains(&key.0) {
            continue;
        }
        let comparison = VolumeComparison {
            before: &*before,
            after: after.as_deref(),
            progress,
            losses: Losses::default(),
        };
        found.extend(VolumeLosses::new(&name, comparison.run()?));
    }
    Ok(found)
}

/// Returns the volumes of a view, as far as it can be opened.
fn volumes(target: &Target, store: Arc<dyn Store>, options: &OpenOptions<'_>) -> Result<Volumes> {
    let options = &OpenOptions {
        access: Access::ReadOnly,
        ..*options
    };
    let mut found = Volumes::new();
    let stored = super::stored(target, store, Open::Read)?;
    let Some(disk) = readable(open::disk_of(&target.path, stored, options))? else {
        return Ok(found);
    };
    let Some((_, volumes)) = readable(open::find_contents(&disk))? else {
        return Ok(found);
    };
    for volume in volumes.iter().filter(|volume| volume.format.is_supported()) {
        for (number, fs) in opened(volume, options)? {
            let name = if volume.format.is_container() {
                format!("volume {number} on {}", volume.place())
            } else {
                volume.place()
            };
            found.insert((volume.range.start, number), (name, fs));
        }
    }
    Ok(found)
}

/// Returns `None` for an error of structure, which is what the repair is for. Read errors are
/// returned.
fn readable<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), Kind::Cancelled | Kind::Io) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Volume numbers, and the volumes that can be opened.
type Opened = Vec<(u32, Option<Arc<dyn FileSystem>>)>;

fn opened(volume: &Volume, options: &OpenOptions<'_>) -> Result<Opened> {
    if !volume.format.is_container() {
        return Ok(vec![(1, readable(volume.open())?)]);
    }
    let Some(container) = readable(volume.container())? else {
        return Ok(vec![(1, None)]);
    };
    let mut found = Opened::new();
    for summary in container.volumes() {
        let Some(summary) = readable(summary)? else {
            continue;
        };
        let number = summary.label.number;
        let fs = readable(volume.open_numbered(number, options.keys))?;
        found.push((number, fs));
    }
    Ok(found)
}

/// The comparison of a volume with its later state.
struct VolumeComparison<'a> {
    before: &'a dyn FileSystem,
    /// The volume after the repair. `None` if it is gone.
    after: Option<&'a dyn FileSystem>,
    progress: &'a dyn Progress,
    losses: Losses,
}

impl VolumeComparison<'_> {
    fn run(mut self) -> Result<Losses> {
        self.progress.stage("compare files", 0);
        let root = self.after.map(|after| after.root());
        let mut ahead = vec![(self.before.root(), root, String::new(), 0)];
        while let Some((folder, later, path, depth)) = ahead.pop() {
            self.progress.check()?;
            let now = match (self.after, later) {
                (Some(after), Some(later)) => self.entries(after, later)?,
                _ => Vec::new(),
            };
            let now: HashMap<String, Attributes> = now
                .into_iter()
                .map(|entry| (entry.name, entry.attributes))
                .collect();
            for Entry { name, attributes } in self.entries(self.before, folder)? {
                let path = format!("{path}/{name}");
                let is_folder = attributes.kind == FileKind::Folder;
                let later = match now.get(&name) {
                    Some(later) => Some(later.clone()),
                    None => self.moved(&attributes)?,
                };
                match &later {
                    Some(later) => self.parts(&path, &attributes, later),
                    None if is_folder => self.add(&path, Lost::Folder),
                    None => self.add(&path, Lost::File),
                }
                if is_folder && depth < DEPTH {
                    let later = later.filter(|later| later.kind == FileKind::Folder);
                    ahead.push((attributes.id, later.map(|later| later.id), path, depth + 1));
                }
            }
        }
        self.losses.sort();
        Ok(self.losses)
    }

    fn add(&mut self, path: &str, what: Lost) {
        let path = path.to_owned();
        self.losses.certain.push(Loss { path, what });
    }

    /// Returns the attributes of an object that is elsewhere now.
    fn moved(&self, before: &Attributes) -> Result<Option<Attributes>> {
        let Some(after) = self.after else {
            return Ok(None);
        };
        Ok(readable(after.attributes(before.id))?.filter(|later| later.kind == before.kind))
    }

    /// Compares the parts of a file.
    fn parts(&mut self, path: &str, before: &Attributes, after: &Attributes) {
        if before.kind != FileKind::Folder && after.size < before.size {
            let (from, to) = (before.size, after.size);
            self.add(
                path,
                match to {
                    0 => Lost::Contents(Some(from)),
                    _ => Lost::End { from, to },
                },
            );
        }
        if after.resource_size < before.resource_size {
            let (from, to) = (before.resource_size, after.resource_size);
            self.add(path, Lost::Resource { from, to });
        }
        if before.has_xattrs && !after.has_xattrs {
            self.add(path, Lost::Attributes);
        }
    }

    /// Lists a folder, as far as it can be read.
    fn entries(&self, fs: &dyn FileSystem, folder: NodeId) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        let listed = fs.list(folder, &mut |entry| {
            self.progress.advance(1);
            found.push(entry);
            Ok(ControlFlow::Continue(()))
        });
        match listed {
            Err(error) if error.kind() == Kind::Cancelled => Err(error),
            _ => Ok(found),
        }
    }
}
