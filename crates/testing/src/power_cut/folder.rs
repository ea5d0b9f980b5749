//! A folder of a simulated host: a [`PowerCut`] whose names are synced folder by folder.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::Event;
use super::names::FileId;
use super::{LAYER, PowerCut, Recorder};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::store::{
    Attributes, Entry, Guard, HostStore, Lock, Meta, NodeKind, Open, Put, Store, check_folder,
    check_name,
};
use bandsaw_core::sync::Mutex;
use bandsaw_core::{Error, Result};

/// A folder of a simulated host. Clones share the list of folders that the next sync makes durable.
#[derive(Clone)]
pub struct PowerCutFolder {
    cut: PowerCut,
    /// Its path, without `/` at the beginning and the end.
    path: String,
    /// Paths of the folders in which names were changed since the last sync.
    changed: Arc<Mutex<BTreeSet<String>>>,
}

impl PowerCutFolder {
    pub(super) fn new(cut: PowerCut, path: &str) -> Self {
        Self {
            cut,
            path: path.trim_matches('/').to_owned(),
            changed: Arc::default(),
        }
    }

    /// Returns the name of a file or a folder in the whole store.
    fn full(&self, name: &str) -> String {
        match (self.path.as_str(), name) {
            ("", name) => name.to_owned(),
            (path, "") => path.to_owned(),
            (path, name) => format!("{path}/{name}"),
        }
    }

    /// Returns the folders in which a name is created with `name`, each missing folder included.
    fn holders(&self, name: &str) -> Vec<String> {
        let names = &self.cut.recorder.lock().now.names;
        let full = self.full(name);
        let mut holders = vec![above(&full).to_owned()];
        let mut folder = above(&full);
        while names.folder(folder).is_none() {
            folder = above(folder);
            holders.push(folder.to_owned());
        }
        holders
    }

    /// Changes names, and marks the folders that have to be synced. The change is made first: a
    /// concurrent sync must not take the mark and miss it.
    fn change<T>(&self, name: &str, change: impl FnOnce(&str) -> Result<T>) -> Result<T> {
        let holders = self.holders(name);
        let done = change(&self.full(name));
        self.changed.lock().extend(holders);
        done
    }

    fn file(&self, recorder: &Recorder, name: &str) -> Result<FileId> {
        check_name(name)?;
        let found = recorder.now.find(&self.full(name));
        found.ok_or_else(|| Error::not_found(LAYER, name))
    }

    fn set_attributes(&self, name: &str, modified: Option<i64>) -> Result<()> {
        let mut recorder = self.cut.recorder.lock();
        let file = self.file(&recorder, name)?;
        recorder.record(Event::Attributes { file, modified });
        recorder.record(Event::Flush { file });
        Ok(())
    }

    fn remove_all(&self, recorder: &mut Recorder, full: &str) {
        let Some(folder) = recorder.now.names.folder(full) else {
            return;
        };
        let names = recorder.now.names.names_in(folder);
        let names: Vec<String> = names.map(|(last, _)| format!("{full}/{last}")).collect();
        for name in names {
            match name.strip_suffix('/') {
                Some(folder) => self.remove_all(recorder, folder),
                None => recorder.record(Event::Remove { name }),
            }
        }
        let name = full.to_owned();
        recorder.record(Event::RemoveFolder { name });
    }
}

/// Returns the folder of a path.
fn above(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl fmt::Debug for PowerCutFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PowerCutFolder")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Store for PowerCutFolder {
    fn open(&self, name: &str, mode: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        check_name(name)?;
        match mode {
            Open::Read | Open::Write => self.cut.open(&self.full(name), mode),
            Open::Create | Open::CreateNew => self.change(name, |full| self.cut.open(full, mode)),
        }
    }

    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool> {
        check_name(name)?;
        self.change(name, |full| self.cut.put(full, bytes, cond))
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        check_name(name)?;
        self.cut.stat(&self.full(name))
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        self.change(to, |to| self.cut.copy(&self.full(from), to))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        self.change(to, |to| self.change(from, |from| self.cut.rename(from, to)))
    }

    fn remove(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        self.change(name, |full| self.cut.remove(full))
    }

    fn remove_folder(&self, name: &str) -> Result<()> {
        check_folder(name)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let root = self.full("");
        let root = match root.as_str() {
            "" => root,
            _ => format!("{root}/"),
        };
        self.cut.list(&format!("{root}{prefix}"), &mut |entry| {
            let name = entry.name.strip_prefix(&root).unwrap_or(entry.name);
            each(Entry::new(name, &|| entry.meta()))
        })
    }

    fn sync(&self) -> Result<()> {
        let changed = std::mem::take(&mut *self.changed.lock());
        let mut recorder = self.cut.recorder.lock();
        let names = &recorder.now.names;
        let folders: Vec<FileId> = changed
            .iter()
            .filter_map(|path| names.folder(path))
            .collect();
        if !folders.is_empty() {
            recorder.record(Event::SyncFolders { folders });
        }
        Ok(())
    }

    fn lock(&self, name: &str, mode: Lock) -> Result<Guard> {
        check_name(name)?;
        if mode == Lock::Exclusive {
            self.open(name, Open::Create)?;
        }
        self.cut.lock(&self.full(name), mode)
    }
}

impl HostStore for PowerCutFolder {
    fn host_path(&self, name: &str) -> PathBuf {
        Path::new("/").join(self.full(name))
    }

    fn elsewhere(&self, folder: &Path) -> Arc<dyn HostStore> {
        let path = folder.to_str().unwrap_or_default();
        Arc::new(Self::new(self.cut.clone(), path))
    }

    fn attributes(&self, name: &str) -> Result<Option<Attributes>> {
        check_folder(name)?;
        let recorder = self.cut.recorder.lock();
        let full = self.full(name);
        if let Some(file) = recorder.now.find(&full) {
            return Ok(Some(recorder.now.attributes(file)));
        }
        let folder = |folder: FileId| Attributes {
            kind: NodeKind::Folder,
            len: 0,
            modified: 0,
            changed: 0,
            inode: folder.0,
            links: 1,
        };
        Ok(recorder.now.names.folder(&full).map(folder))
    }

    fn each_name_in(
        &self,
        name: &str,
        each: &mut dyn FnMut(OsString) -> Result<()>,
    ) -> Result<bool> {
        check_folder(name)?;
        let found: Option<Vec<OsString>> = {
            let names = &self.cut.recorder.lock().now.names;
            names.folder(&self.full(name)).map(|folder| {
                let names = names.names_in(folder);
                names
                    .map(|(last, _)| last.trim_end_matches('/').into())
                    .collect()
            })
        };
        let is_there = found.is_some();
        found.into_iter().flatten().try_for_each(each)?;
        Ok(is_there)
    }

    fn set_modified(&self, name: &str, nanos: i64) -> Result<()> {
        self.set_attributes(name, Some(nanos))
    }

    fn set_owner_of(&self, name: &str, like: &str) -> Result<()> {
        self.file(&self.cut.recorder.lock(), like)?;
        self.set_attributes(name, None)
    }

    fn link(&self, from: &str, to: &str) -> Result<bool> {
        check_name(from)?;
        check_name(to)?;
        self.change(to, |to| {
            let mut recorder = self.cut.recorder.lock();
            let from = self.full(from);
            if recorder.now.find(to).is_some() {
                return Err(Error::conflict(LAYER, "the name is taken").named(to));
            }
            let is_found = recorder.now.find(&from).is_some();
            if is_found {
                let to = to.to_owned();
                recorder.record(Event::Link { from, to });
            }
            Ok(is_found)
        })
    }

    fn clone_of(&self, from: &str, to: &str) -> Result<bool> {
        check_name(from)?;
        check_name(to)?;
        Ok(false)
    }

    fn copy_from(&self, from: &Path, to: &str) -> Result<bool> {
        check_name(to)?;
        let from = from.to_str().unwrap_or_default().trim_start_matches('/');
        self.change(to, |to| self.cut.copy(from, to))?;
        Ok(false)
    }

    fn rename_folder(&self, from: &str, to: &str) -> Result<bool> {
        check_name(from)?;
        check_name(to)?;
        self.change(to, |to| {
            let mut recorder = self.cut.recorder.lock();
            let from = self.full(from);
            let names = &recorder.now.names;
            if names.folder(&from).is_none() {
                return Err(Error::not_found(LAYER, from));
            }
            let taken = names.folder(to);
            if taken.is_some_and(|taken| names.names_in(taken).next().is_some()) {
                return Ok(false);
            }
            let to = to.to_owned();
            recorder.record(Event::RenameFolder { from, to });
            Ok(true)
        })
    }

    fn remove_tree(&self, name: &str) -> Result<()> {
        check_name(name)?;
        self.change(name, |full| {
            self.remove_all(&mut self.cut.recorder.lock(), full);
            Ok(())
        })
    }

    fn remove_leftovers(&self, name: &str, prefix: &str) {
        // Of processes that ended before: what the store had at its beginning.
        let leftovers: Vec<String> = {
            let recorder = self.cut.recorder.lock();
            let full = self.full(name);
            let names = |names: &super::names::Names| -> Vec<String> {
                let found = names.folder(&full).into_iter();
                let found = found.flat_map(|folder| names.names_in(folder));
                found.map(|(last, _)| last.to_owned()).collect()
            };
            let old = names(&recorder.start.names);
            let mut now = names(&recorder.now.names);
            now.retain(|last| last.starts_with(prefix) && old.contains(last));
            now
        };
        for last in leftovers {
            let below = match name {
                "" => last,
                _ => format!("{name}/{last}"),
            };
            let _ = match below.strip_suffix('/') {
                Some(folder) => self.remove_tree(folder),
                None => self.remove(&below).map(drop),
            };
        }
    }

    fn sync_tree(&self, name: &str) -> Result<()> {
        check_folder(name)?;
        let mut recorder = self.cut.recorder.lock();
        let names = &recorder.now.names;
        let mut folders = Vec::new();
        let mut found: Vec<FileId> = names.folder(&self.full(name)).into_iter().collect();
        while let Some(folder) = found.pop() {
            folders.push(folder);
            let below = names
                .names_in(folder)
                .filter(|(last, _)| last.ends_with('/'));
            found.extend(below.map(|(_, folder)| folder));
        }
        if folders.is_empty() {
            return Err(Error::not_found(LAYER, name));
        }
        recorder.record(Event::SyncFolders { folders });
        Ok(())
    }
}
