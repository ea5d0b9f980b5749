//! The names of files, as visible and as durable: a tree of folders.
//!
//! A name is in a folder, so a folder can be renamed with all that it holds, and is lost with it.

use std::collections::{BTreeMap, BTreeSet};

use super::Keep;
use crate::Random;

/// A file or a folder, independent of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(pub(super) u64);

/// A folder, and a name in it; that of a folder ends with `/`.
type Key = (FileId, String);

/// The folder of the store itself.
const ROOT: FileId = FileId(0);

#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    now: BTreeMap<Key, FileId>,
    synced: BTreeMap<Key, FileId>,
    unsynced: Vec<NameChange>,
    last_file: u64,
    last_change: u64,
}

/// A change of a name: the file that it refers to, or none.
#[derive(Debug, Clone)]
struct NameChange {
    number: u64,
    key: Key,
    file: Option<FileId>,
    cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Other,
    /// A folder that was created for the first name in it: it survives with any of these.
    NewFolder,
    /// The removal of the old name of a file, which the change of this number gave its new one.
    MovedBy(u64),
    /// The same for a folder, of which always one name survives.
    FolderMovedBy(u64),
    /// The removal of this folder, which was empty.
    Removed(FileId),
}

impl Names {
    pub(super) fn new_id(&self) -> FileId {
        FileId(self.last_file + 1)
    }

    pub(super) fn find(&self, name: &str) -> Option<FileId> {
        self.now.get(&self.key(name)?).copied()
    }

    /// Returns the folder `name`; the one of the store is "".
    pub(super) fn folder(&self, name: &str) -> Option<FileId> {
        let mut parts = name.split('/').filter(|part| !part.is_empty());
        parts.try_fold(ROOT, |folder, part| {
            self.now.get(&(folder, format!("{part}/"))).copied()
        })
    }

    fn key(&self, name: &str) -> Option<Key> {
        let (folder, last) = split(name);
        Some((self.folder(folder)?, last.to_owned()))
    }

    fn folder_key(&self, name: &str) -> Option<Key> {
        let (folder, last) = self.key(name)?;
        Some((folder, format!("{last}/")))
    }

    /// Returns the key of a name, in folders that are created if they are missing.
    fn make_key(&mut self, name: &str) -> Key {
        let (folders, last) = split(name);
        let mut folder = ROOT;
        for part in folders.split('/').filter(|part| !part.is_empty()) {
            let key = (folder, format!("{part}/"));
            folder = match self.now.get(&key) {
                Some(folder) => *folder,
                None => {
                    self.last_file += 1;
                    let new = FileId(self.last_file);
                    self.change(key, Some(new), Cause::NewFolder);
                    new
                }
            };
        }
        (folder, last.to_owned())
    }

    /// Returns the names directly in a folder; those of folders end with `/`.
    pub(super) fn names_in(&self, folder: FileId) -> impl Iterator<Item = (&str, FileId)> {
        within(&self.now, folder)
    }

    /// Returns the full names of all files that begin with `prefix`, in order.
    pub(super) fn list(&self, prefix: &str) -> Vec<String> {
        let mut names = Vec::new();
        let (folder, _) = split(prefix);
        if let Some(start) = self.folder(folder) {
            let above = match folder {
                "" => String::new(),
                _ => format!("{folder}/"),
            };
            self.walk(start, &above, &mut names);
        }
        names.retain(|name| name.starts_with(prefix));
        names.sort();
        names
    }

    fn walk(&self, folder: FileId, above: &str, names: &mut Vec<String>) {
        for (last, file) in self.names_in(folder) {
            let name = format!("{above}{last}");
            match last.ends_with('/') {
                true => self.walk(file, &name, names),
                false => names.push(name),
            }
        }
    }

    /// Returns all files that have a name.
    pub(super) fn files(&self) -> BTreeSet<FileId> {
        let files = self
            .now
            .iter()
            .filter(|((_, last), _)| !last.ends_with('/'));
        files.map(|(_, file)| *file).collect()
    }

    /// Returns the number of names of a file.
    pub(super) fn count(&self, file: FileId) -> u64 {
        self.now.values().filter(|found| **found == file).count() as u64
    }

    pub(super) fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    pub(super) fn place(&mut self, name: &str, file: FileId) {
        self.last_file = self.last_file.max(file.0);
        let key = self.make_key(name);
        self.change(key, Some(file), Cause::Other);
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> Option<FileId> {
        let old = self.key(from)?;
        let file = self.now.get(&old).copied();
        let new = self.make_key(to);
        self.change(new, file, Cause::Other);
        self.change(old, None, Cause::MovedBy(self.last_change));
        file
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> Option<FileId> {
        let file = self.find(from);
        let new = self.make_key(to);
        self.change(new, file, Cause::Other);
        file
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(key) = self.key(name) {
            self.change(key, None, Cause::Other);
        }
    }

    pub(super) fn rename_folder(&mut self, from: &str, to: &str) {
        if let (Some(old), Some(new)) = (self.folder_key(from), self.folder_key(to)) {
            let folder = self.now.get(&old).copied();
            self.change(new, folder, Cause::Other);
            self.change(old, None, Cause::FolderMovedBy(self.last_change));
        }
    }

    pub(super) fn remove_folder(&mut self, name: &str) {
        if let (Some(key), Some(folder)) = (self.folder_key(name), self.folder(name)) {
            self.change(key, None, Cause::Removed(folder));
        }
    }

    fn change(&mut self, key: Key, file: Option<FileId>, cause: Cause) {
        apply(&mut self.now, &key, file);
        self.last_change += 1;
        self.unsynced.push(NameChange {
            number: self.last_change,
            key,
            file,
            cause,
        });
    }

    pub(super) fn sync(&mut self) {
        self.synced = self.now.clone();
        self.unsynced.clear();
    }

    /// Makes the names in these folders durable, and what cannot survive without them.
    pub(super) fn sync_folders(&mut self, folders: &[FileId]) {
        let mut kept = BTreeMap::new();
        for (index, change) in self.unsynced.iter().enumerate() {
            if folders.contains(&change.key.0) {
                kept.insert(&change.key, index);
            }
        }
        self.complete(&mut kept, folders);
        let last: BTreeMap<Key, usize> = kept
            .into_iter()
            .map(|(key, index)| (key.clone(), index))
            .collect();
        for (key, index) in &last {
            apply(&mut self.synced, key, self.unsynced[*index].file);
        }
        let mut index = 0;
        self.unsynced.retain(|change| {
            let is_durable = last.get(&change.key).is_some_and(|last| index <= *last);
            index += 1;
            !is_durable
        });
    }

    /// Returns the names after a crash, all durable.
    pub(super) fn crash(&self, keep: Keep, random: &mut Random) -> Self {
        let names = match keep {
            Keep::Nothing => self.synced.clone(),
            Keep::Everything => self.now.clone(),
            Keep::Some(_) => self.some(random),
        };
        let mut now = BTreeMap::new();
        let mut folders = vec![ROOT];
        while let Some(folder) = folders.pop() {
            for (last, file) in within(&names, folder) {
                now.insert((folder, last.to_owned()), file);
                folders.extend(last.ends_with('/').then_some(file));
            }
        }
        Self {
            synced: now.clone(),
            now,
            unsynced: Vec::new(),
            last_file: self.last_file,
            last_change: 0,
        }
    }

    /// Returns for each name some file that it referred to since the last sync.
    fn some(&self, random: &mut Random) -> BTreeMap<Key, FileId> {
        // The last change of each name that survives.
        let mut kept: BTreeMap<&Key, usize> = BTreeMap::new();
        let odds = random.within(1..4);
        for (index, change) in self.unsynced.iter().enumerate() {
            if change.cause != Cause::NewFolder && random.within(0..4) < odds {
                kept.insert(&change.key, index);
            }
        }
        self.complete(&mut kept, &[]);
        // Synced names in a folder whose own name is not durable.
        for (index, change) in self.unsynced.iter().enumerate() {
            let is_in_doubt = change.cause == Cause::NewFolder
                && !kept.contains_key(&change.key)
                && change
                    .file
                    .is_some_and(|folder| within(&self.synced, folder).next().is_some());
            if is_in_doubt && random.one_in(2) {
                kept.insert(&change.key, index);
            }
        }
        self.complete(&mut kept, &[]);
        let mut names = self.synced.clone();
        for (key, index) in kept {
            apply(&mut names, key, self.unsynced[index].file);
        }
        names
    }

    /// Adds the changes that survive with others. Each round only adds changes, so the loop ends.
    fn complete<'a>(&'a self, kept: &mut BTreeMap<&'a Key, usize>, synced: &[FileId]) {
        while let Some(index) = self.lost(kept, synced) {
            kept.insert(&self.unsynced[index].key, index);
        }
    }

    /// Returns a change that is lost, although another survives that cannot without it.
    fn lost(&self, kept: &BTreeMap<&Key, usize>, synced: &[FileId]) -> Option<usize> {
        let has = |index: usize| {
            let last = kept.get(&self.unsynced[index].key);
            last.is_some_and(|last| *last >= index)
        };
        let find = |number: u64| {
            let found = self
                .unsynced
                .binary_search_by_key(&number, |change| change.number);
            found.ok() // durable already
        };
        let changes = || self.unsynced.iter().enumerate();
        changes().find_map(|(index, change)| match change.cause {
            // A file whose old name is gone must have its new one.
            Cause::MovedBy(by) => find(by).filter(|by| has(index) && !has(*by)),
            Cause::FolderMovedBy(by) => match find(by) {
                Some(by) if has(index) && !has(by) => Some(by),
                Some(by) if has(by) && !has(index) => Some(index),
                _ => None,
            },
            // A folder is removed after all names in it.
            Cause::Removed(folder) if has(index) => changes()
                .filter(|(inner, change)| *inner < index && change.key.0 == folder)
                .map(|(inner, _)| inner)
                .find(|inner| !has(*inner)),
            // Except for folders that are synced: that does not include their own names.
            Cause::NewFolder if !has(index) => {
                let holds = |change: &NameChange| {
                    change.file.is_some()
                        && Some(change.key.0) == self.unsynced[index].file
                        && !synced.contains(&change.key.0)
                };
                kept.values()
                    .any(|last| holds(&self.unsynced[*last]))
                    .then_some(index)
            }
            _ => None,
        })
    }
}

fn apply(names: &mut BTreeMap<Key, FileId>, key: &Key, file: Option<FileId>) {
    match file {
        Some(file) => names.insert(key.clone(), file),
        None => names.remove(key),
    };
}

fn within(names: &BTreeMap<Key, FileId>, folder: FileId) -> impl Iterator<Item = (&str, FileId)> {
    let from = names.range((folder, String::new())..);
    let names = from.take_while(move |((other, _), _)| *other == folder);
    names.map(|((_, last), file)| (last.as_str(), *file))
}

/// Splits a name into its folder and its last part.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}
