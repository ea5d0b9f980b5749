//! The names of a bundle: their files, and the lists of those with uncommitted changes.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::file::File;
use super::layout::FileState;
use crate::sync::{Mutex, MutexGuard};

/// The state of a name.
#[derive(Debug, Clone)]
pub(super) enum NameState {
    /// A file that has not been opened.
    Known(Arc<FileState>),
    /// A file that is, or was, open.
    Open(Arc<File>),
    /// A file that was removed.
    Gone,
}

/// The current state of all names, and those with uncommitted changes.
#[derive(Debug, Default)]
pub(super) struct Names {
    live: Mutex<BTreeMap<String, NameState>>,
    dirty: Mutex<DirtyNames>,
}

/// Names with uncommitted changes.
#[derive(Debug, Default)]
struct DirtyNames {
    /// For the next commit to the store.
    commit: BTreeSet<String>,
    /// For the next flush to the local disk, if flushes go there.
    writeback: BTreeSet<String>,
}

/// The lists in which the name of a file already is.
#[derive(Debug, Default)]
pub(super) struct Listed {
    commit: AtomicBool,
    writeback: AtomicBool,
}

impl Names {
    pub(super) fn new(live: BTreeMap<String, NameState>) -> Self {
        Self {
            live: Mutex::new(live),
            dirty: Mutex::default(),
        }
    }

    pub(super) fn live(&self) -> MutexGuard<'_, BTreeMap<String, NameState>> {
        self.live.lock()
    }

    pub(super) fn open_files(&self) -> Vec<Arc<File>> {
        let live = self.live();
        live.values()
            .filter_map(|name| {
                if let NameState::Open(file) = name {
                    Some(file.clone())
                } else {
                    None
                }
            })
            .collect()
    }

    /// Lists names together: one commit includes all of them, and so does one local flush, if
    /// `writeback` is set.
    pub(super) fn mark_dirty<'a>(&self, names: impl IntoIterator<Item = &'a str>, writeback: bool) {
        let mut dirty = self.dirty.lock();
        for name in names {
            dirty.commit.insert(name.to_owned());
            if writeback {
                dirty.writeback.insert(name.to_owned());
            }
        }
    }

    /// Takes the list for the next commit.
    pub(super) fn take_for_commit(&self) -> BTreeSet<String> {
        mem::take(&mut self.dirty.lock().commit)
    }

    /// Takes the list for the next flush to the local disk.
    pub(super) fn take_for_writeback(&self) -> BTreeSet<String> {
        mem::take(&mut self.dirty.lock().writeback)
    }

    /// Lists names again after a failed flush to the local disk.
    pub(super) fn put_back_for_writeback(&self, names: BTreeSet<String>) {
        self.dirty.lock().writeback.extend(names);
    }
}

impl Listed {
    /// Marks a file as in both lists; its creator lists it once it has its name.
    pub(super) fn set(&self) {
        self.commit.store(true, Ordering::SeqCst);
        self.writeback.store(true, Ordering::SeqCst);
    }

    /// Marks a file as in the list for the next commit.
    pub(super) fn set_for_commit(&self) {
        self.commit.store(true, Ordering::SeqCst);
    }

    /// Returns true if the name has to be listed: for a commit, or for a flush to the local disk if
    /// `writeback` is set.
    pub(super) fn begin(&self, writeback: bool) -> bool {
        !self.commit.swap(true, Ordering::SeqCst)
            || (writeback && !self.writeback.swap(true, Ordering::SeqCst))
    }

    /// Marks a file that is about to be committed; later changes list it again.
    pub(super) fn end_commit(&self) {
        self.commit.store(false, Ordering::SeqCst);
    }

    /// Marks a file that is about to be flushed to the local disk; later changes list it again.
    pub(super) fn end_writeback(&self) {
        self.writeback.store(false, Ordering::SeqCst);
    }

    /// Returns true if the file is in one of the lists.
    pub(super) fn is_any(&self) -> bool {
        self.commit.load(Ordering::SeqCst) || self.writeback.load(Ordering::SeqCst)
    }
}
