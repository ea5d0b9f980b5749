//! Folders of the host by number, each opened from its parent and never by a whole path. A tree may
//! therefore be deeper than the longest path, and a symbolic link inserted by another process is
//! refused instead of followed.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::platform::nodes;
use crate::sync::Mutex;

/// Number of folders kept open: few descriptors, but more than two threads need for folders next to
/// each other.
const KEPT_OPEN: usize = 32;

/// The folders of one tree. The most recently used ones are kept open.
#[derive(Debug)]
pub(super) struct Folders {
    root: Arc<OwnedFd>,
    latest: Mutex<Vec<(u32, Arc<OwnedFd>)>>,
}

/// A lookup of the parent and name of a folder.
pub(super) trait ParentLookup: fmt::Debug {
    /// Returns parent and name of folder `number`, which is not 0.
    fn place(&self, number: u32) -> (u32, &str);
}

impl Folders {
    /// Returns the folders below `root`, which has the number 0.
    pub(super) fn below(root: OwnedFd) -> Self {
        Self {
            root: Arc::new(root),
            latest: Mutex::default(),
        }
    }

    /// Opens folder `number`.
    pub(super) fn open(&self, number: u32, family: &dyn ParentLookup) -> io::Result<Arc<OwnedFd>> {
        let mut missing = Vec::new();
        let mut at = number;
        let mut open = loop {
            if let Some(open) = self.cached_open(at) {
                break open;
            }
            missing.push(at);
            at = family.place(at).0;
        };
        while let Some(next) = missing.pop() {
            open = Arc::new(nodes::open_folder(&open, family.place(next).1)?);
            self.cache_open(next, &open);
        }
        Ok(open)
    }

    fn cached_open(&self, number: u32) -> Option<Arc<OwnedFd>> {
        if number == 0 {
            return Some(self.root.clone());
        }
        let latest = self.latest.lock();
        latest
            .iter()
            .rev()
            .find(|(kept, _)| *kept == number)
            .map(|(_, open)| open.clone())
    }

    fn cache_open(&self, number: u32, open: &Arc<OwnedFd>) {
        let mut latest = self.latest.lock();
        if latest.len() == KEPT_OPEN {
            latest.remove(0);
        }
        latest.push((number, open.clone()));
    }
}
