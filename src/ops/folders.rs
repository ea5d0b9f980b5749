//! Folders of the host known by number, each opened from its parent and never by a whole path: so a
//! tree may be deeper than the longest path, and a symbolic link that somebody slips in is refused
//! instead of followed.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::platform::nodes;

/// Few descriptors, but more than two threads need for folders side by side.
const KEPT_OPEN: usize = 32;

/// The folders of one tree, the latest few of them kept open.
#[derive(Debug)]
pub(super) struct Folders {
    root: Arc<OwnedFd>,
    latest: Mutex<Vec<(u32, Arc<OwnedFd>)>>,
}

/// Where a folder is: the number of its parent, and its name there.
pub(super) trait Family: fmt::Debug {
    /// Parent and name of folder `number`, which is not 0.
    fn place(&self, number: u32) -> (u32, &str);
}

impl Folders {
    /// Folders below `root`, which is number 0.
    pub(super) fn below(root: OwnedFd) -> Self {
        Self {
            root: Arc::new(root),
            latest: Mutex::default(),
        }
    }

    /// Folder `number`, open.
    pub(super) fn open(&self, number: u32, family: &dyn Family) -> io::Result<Arc<OwnedFd>> {
        let mut missing = Vec::new();
        let mut at = number;
        let mut open = loop {
            if let Some(open) = self.kept(at) {
                break open;
            }
            missing.push(at);
            at = family.place(at).0;
        };
        while let Some(next) = missing.pop() {
            open = Arc::new(nodes::open_folder(&open, family.place(next).1)?);
            self.keep(next, &open);
        }
        Ok(open)
    }

    fn kept(&self, number: u32) -> Option<Arc<OwnedFd>> {
        if number == 0 {
            return Some(self.root.clone());
        }
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest
            .iter()
            .rev()
            .find(|(kept, _)| *kept == number)
            .map(|(_, open)| open.clone())
    }

    fn keep(&self, number: u32, open: &Arc<OwnedFd>) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.len() == KEPT_OPEN {
            latest.remove(0);
        }
        latest.push((number, open.clone()));
    }
}
