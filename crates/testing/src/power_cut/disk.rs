//! The contents of the cache and of the disk.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::Keep;
use super::names::{FileId, Names};
use crate::Random;
use crate::pages::Pages;
use bandsaw_core::store::{Attributes, Meta, NodeKind};

/// Bytes that a disk writes atomically.
pub(super) const SECTOR: u64 = 512;
/// Nanoseconds of the clock between two events.
const TICK: i64 = 1_000_000_000;

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
    /// Another name of a file.
    Link {
        from: String,
        to: String,
    },
    /// A new name of a folder, in the same folder.
    RenameFolder {
        from: String,
        to: String,
    },
    /// An empty folder is removed.
    RemoveFolder {
        name: String,
    },
    /// All names are durable.
    Sync,
    /// The names in these folders are durable.
    SyncFolders {
        folders: Vec<FileId>,
    },
    /// New attributes of a file, and perhaps a modification time in nanoseconds since 1970.
    Attributes {
        file: FileId,
        modified: Option<i64>,
    },
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
    pub(super) names: Names,
    files: BTreeMap<FileId, FileState>,
    /// Time of the last event, in nanoseconds since 1970.
    clock: i64,
}

#[derive(Debug, Clone, Default)]
struct FileState {
    live: Pages,
    durable: Pages,
    unflushed: Vec<ContentChange>,
    changes: u64,
    times: Times,
    durable_times: Times,
}

/// The times of a file, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    modified: i64,
    changed: i64,
}

impl Disk {
    pub(super) fn new_id(&self) -> FileId {
        self.names.new_id()
    }

    pub(super) fn find(&self, name: &str) -> Option<FileId> {
        self.names.find(name)
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
            changed: None,
        }
    }

    pub(super) fn attributes(&self, file: FileId) -> Attributes {
        let state = &self.files[&file];
        Attributes {
            kind: NodeKind::File,
            len: state.live.len(),
            modified: state.times.modified,
            changed: state.times.changed,
            inode: file.0,
            links: self.names.count(file),
        }
    }

    pub(super) fn apply(&mut self, event: &Event) {
        self.clock += TICK;
        let now = self.clock;
        match event {
            Event::Place {
                name,
                file,
                contents,
            } => {
                let times = Times {
                    modified: now,
                    changed: now,
                };
                let state = FileState {
                    live: contents.clone(),
                    durable: contents.clone(),
                    times,
                    durable_times: times,
                    ..FileState::default()
                };
                self.files.insert(*file, state);
                self.names.place(name, *file);
            }
            Event::Rename { from, to } => {
                let file = self.names.rename(from, to);
                self.touch(file, now);
            }
            Event::Link { from, to } => {
                let file = self.names.link(from, to);
                self.touch(file, now);
            }
            Event::Remove { name } => self.names.remove(name),
            Event::RenameFolder { from, to } => self.names.rename_folder(from, to),
            Event::RemoveFolder { name } => self.names.remove_folder(name),
            Event::Sync => self.names.sync(),
            Event::SyncFolders { folders } => self.names.sync_folders(folders),
            Event::Attributes { file, modified } => {
                self.touch(Some(*file), now);
                if let (Some(state), Some(modified)) = (self.files.get_mut(file), modified) {
                    state.times.modified = *modified;
                }
            }
            Event::ContentChange { file, change } => {
                if let Some(state) = self.files.get_mut(file) {
                    apply_change(&mut state.live, change);
                    state.unflushed.push(change.clone());
                    state.changes += 1;
                    state.times = Times {
                        modified: now,
                        changed: now,
                    };
                }
            }
            Event::Flush { file } => {
                if let Some(state) = self.files.get_mut(file) {
                    state.durable = state.live.clone();
                    state.unflushed.clear();
                    state.durable_times = state.times;
                }
            }
        }
    }

    /// Records a change of a file's attributes.
    fn touch(&mut self, file: Option<FileId>, now: i64) {
        if let Some(state) = file.and_then(|file| self.files.get_mut(&file)) {
            state.times.changed = now;
        }
    }

    /// Returns the state of the disk after a crash.
    pub(super) fn crash(&self, keep: Keep) -> Disk {
        let seed = if let Keep::Some(seed) = keep { seed } else { 0 };
        let mut random = Random::new(seed);
        let mut times = Random::new(seed ^ 0x7469_6d65);
        let names = self.names.crash(keep, &mut random);
        let files = names.files().into_iter().map(|file| {
            let state = &self.files[&file];
            let contents = match keep {
                Keep::Nothing => state.durable.clone(),
                Keep::Everything => state.live.clone(),
                Keep::Some(_) => state.some_contents(&mut random),
            };
            let found = match keep {
                Keep::Nothing => state.durable_times,
                Keep::Everything => state.times,
                Keep::Some(_) => state.some_times(&mut times),
            };
            (
                file,
                FileState {
                    live: contents.clone(),
                    durable: contents,
                    // A version is as durable as the contents that it counts.
                    changes: state.changes + u64::from(!state.unflushed.is_empty()),
                    times: found,
                    durable_times: found,
                    ..FileState::default()
                },
            )
        });
        Disk {
            files: files.collect(),
            names,
            clock: self.clock,
        }
    }
}

impl FileState {
    /// Returns for each time the durable or the present one.
    fn some_times(&self, random: &mut Random) -> Times {
        let mut either = |one, other| if random.one_in(2) { one } else { other };
        Times {
            modified: either(self.times.modified, self.durable_times.modified),
            changed: either(self.times.changed, self.durable_times.changed),
        }
    }

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
