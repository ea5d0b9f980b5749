//! The contents of the cache and of the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::Keep;
use crate::Random;
use crate::pages::Pages;
use bandsaw_core::store::Meta;

/// Bytes that a disk writes atomically.
pub(super) const SECTOR: u64 = 512;

/// A file, independent of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(u64);

/// A recorded change of the store.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A name refers to a new file, whose first contents are durable.
    Place {
        name: String,
        file: FileId,
        contents: Pages,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    /// All names are durable.
    Sync,
    ContentChange {
        file: FileId,
        change: ContentChange,
    },
    /// The file's contents and length are durable.
    Flush {
        file: FileId,
    },
}

/// A recorded change of a file's contents.
#[derive(Debug, Clone)]
pub(super) enum ContentChange {
    /// New contents of whole sectors (the file's last one may be partial).
    Data { sector: u64, bytes: Arc<[u8]> },
    /// These sectors are zeroed.
    Zeros { sectors: Range<u64> },
    /// The new length. The effect of a truncation on the sectors is recorded separately.
    Len { len: u64 },
}

/// All names and files, twice: as visible, and as durable.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    names: BTreeMap<String, FileId>,
    synced: BTreeMap<String, FileId>,
    unsynced: Vec<NameChange>,
    files: BTreeMap<FileId, FileState>,
    last_id: u64,
}

/// A change of a name: the file that it refers to, or none.
#[derive(Debug, Clone)]
struct NameChange {
    name: String,
    file: Option<FileId>,
    /// The change by which the file got its new name, if this is the removal of its old one.
    moved_by: Option<usize>,
}

#[derive(Debug, Clone, Default)]
struct FileState {
    live: Pages,
    durable: Pages,
    unflushed: Vec<ContentChange>,
    changes: u64,
}

impl Disk {
    pub(super) fn new_id(&mut self) -> FileId {
        FileId(self.last_id + 1)
    }

    pub(super) fn newest(&self) -> FileId {
        FileId(self.last_id)
    }

    pub(super) fn find(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    pub(super) fn names(&self, prefix: &str) -> Vec<String> {
        self.names
            .keys()
            .filter(|name| name.starts_with(prefix))
            .cloned()
            .collect()
    }

    pub(super) fn has_unsynced_names(&self) -> bool {
        !self.unsynced.is_empty()
    }

    pub(super) fn has_unflushed(&self, file: FileId) -> bool {
        !self.files[&file].unflushed.is_empty()
    }

    pub(super) fn contents(&self, file: FileId) -> &Pages {
        &self.files[&file].live
    }

    pub(super) fn meta(&self, file: FileId) -> Meta {
        let state = &self.files[&file];
        Meta {
            len: state.live.len(),
            allocated: state.live.allocated(),
            version: file.0 << 32 | state.changes,
        }
    }

    pub(super) fn apply(&mut self, event: &Event) {
        match event {
            Event::Place {
                name,
                file,
                contents,
            } => {
                self.last_id = self.last_id.max(file.0);
                let state = FileState {
                    live: contents.clone(),
                    durable: contents.clone(),
                    ..FileState::default()
                };
                self.files.insert(*file, state);
                self.name(name, Some(*file), None);
            }
            Event::Rename { from, to } => {
                let file = self.find(from);
                self.name(to, file, None);
                self.name(from, None, Some(self.unsynced.len() - 1));
            }
            Event::Remove { name } => self.name(name, None, None),
            Event::Sync => {
                self.synced = self.names.clone();
                self.unsynced.clear();
            }
            Event::ContentChange { file, change } => {
                if let Some(state) = self.files.get_mut(file) {
                    apply_change(&mut state.live, change);
                    state.unflushed.push(change.clone());
                    state.changes += 1;
                }
            }
            Event::Flush { file } => {
                if let Some(state) = self.files.get_mut(file) {
                    state.durable = state.live.clone();
                    state.unflushed.clear();
                }
            }
        }
    }

    fn name(&mut self, name: &str, file: Option<FileId>, moved_by: Option<usize>) {
        match file {
            Some(file) => self.names.insert(name.to_owned(), file),
            None => self.names.remove(name),
        };
        self.unsynced.push(NameChange {
            name: name.to_owned(),
            file,
            moved_by,
        });
    }

    /// Returns the state of the disk after a crash.
    pub(super) fn crash(&self, keep: Keep) -> Disk {
        let mut random = Random::new(if let Keep::Some(seed) = keep { seed } else { 0 });
        let names = match keep {
            Keep::Nothing => self.synced.clone(),
            Keep::Everything => self.names.clone(),
            Keep::Some(_) => self.some_names(&mut random),
        };
        let found: BTreeSet<FileId> = names.values().copied().collect();
        let files = found.into_iter().map(|file| {
            let state = &self.files[&file];
            let contents = match keep {
                Keep::Nothing => state.durable.clone(),
                Keep::Everything => state.live.clone(),
                Keep::Some(_) => state.some_contents(&mut random),
            };
            (
                file,
                FileState {
                    live: contents.clone(),
                    durable: contents,
                    // A version is as durable as the contents that it counts.
                    changes: state.changes + u64::from(!state.unflushed.is_empty()),
                    ..FileState::default()
                },
            )
        });
        Disk {
            files: files.collect(),
            synced: names.clone(),
            names,
            unsynced: Vec::new(),
            last_id: self.last_id,
        }
    }

    /// Returns for each name some file that it referred to since the last sync.
    fn some_names(&self, random: &mut Random) -> BTreeMap<String, FileId> {
        // The last change of each name that survives.
        let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
        let odds = random.within(1..4);
        for (index, change) in self.unsynced.iter().enumerate() {
            if random.within(0..4) < odds {
                kept.insert(&change.name, index);
            }
        }
        // A file whose old name is gone must have its new one. Each round only adds changes, so the
        // loop ends.
        while let Some((to, by)) = self.lost_by_move(&kept) {
            kept.insert(to, by);
        }
        let mut names = self.synced.clone();
        for (name, index) in kept {
            match self.unsynced[index].file {
                Some(file) => names.insert(name.to_owned(), file),
                None => names.remove(name),
            };
        }
        names
    }

    /// Returns a rename whose removal of the old name survived without the new name.
    fn lost_by_move(&self, kept: &BTreeMap<&str, usize>) -> Option<(&str, usize)> {
        self.unsynced
            .iter()
            .enumerate()
            .find_map(|(index, change)| {
                let by = change.moved_by?;
                let gain = &self.unsynced[by];
                let is_lost = kept
                    .get(change.name.as_str())
                    .is_some_and(|last| *last >= index);
                let is_gained = kept.get(gain.name.as_str()).is_some_and(|last| *last >= by);
                (is_lost && !is_gained).then_some((gain.name.as_str(), by))
            })
    }
}

impl FileState {
    /// Returns for each sector some contents since the last flush; and likewise a length.
    fn some_contents(&self, random: &mut Random) -> Pages {
        let mut contents = self.durable.clone();
        let mut len = contents.len();
        // Contents survive independently of the length: each sector has a fixed offset.
        let longest = self
            .unflushed
            .iter()
            .map(|change| {
                if let ContentChange::Len { len } = change {
                    *len
                } else {
                    0
                }
            })
            .max();
        contents.set_len(contents.len().max(longest.unwrap_or(0)));
        let odds = random.within(0..5);
        for change in &self.unflushed {
            let kept = random.within(0..4) < odds;
            match change {
                ContentChange::Len { len: changed } if kept => len = *changed,
                ContentChange::Len { .. } => {}
                change if random.one_in(4) => tear(&mut contents, change, random),
                change if kept => apply_change(&mut contents, change),
                _ => {}
            }
        }
        contents.set_len(len);
        contents
    }
}

fn apply_change(contents: &mut Pages, change: &ContentChange) {
    match change {
        ContentChange::Data { sector, bytes } => contents.write(sector * SECTOR, bytes),
        ContentChange::Zeros { sectors } => {
            contents.zero(sectors.start * SECTOR..sectors.end * SECTOR)
        }
        ContentChange::Len { len } => contents.set_len(*len),
    }
}

/// Applies a change to some of its sectors.
fn tear(contents: &mut Pages, change: &ContentChange, random: &mut Random) {
    match change {
        ContentChange::Data { sector, bytes } => {
            for (at, part) in (*sector..).zip(bytes.chunks(SECTOR as usize)) {
                if random.one_in(2) {
                    contents.write(at * SECTOR, part);
                }
            }
        }
        ContentChange::Zeros { sectors } if !sectors.is_empty() => {
            let from = random.within(sectors.clone());
            let to = random.within(from..sectors.end + 1);
            contents.zero(from * SECTOR..to * SECTOR);
        }
        ContentChange::Zeros { .. } | ContentChange::Len { .. } => {}
    }
}
