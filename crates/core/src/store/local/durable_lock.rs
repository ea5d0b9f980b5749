//! A lock of a file in a folder that survives a restart of the file server.
//!
//! A restarted file server has lost its locks. Linux's SMB client reclaims them with the next
//! request for the same open file; but a file that serves only as a lock gets no requests.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::host_path::HostPath;
use super::{FileMode, LAYER, file};
use crate::store::{Lock, LockHandle};
use crate::sync::Mutex;
use crate::{Error, Kind, Result, platform};

/// An exclusive lock.
pub(super) struct HeldLock {
    /// `None` after the lock was lost.
    file: Mutex<Option<File>>,
    folder: Arc<File>,
    name: String,
    path: HostPath,
    /// The mode of the lock file, in case it must be created again.
    mode: FileMode,
}

impl HeldLock {
    /// Keeps the lock of `file`, which has this name in `folder`, this path in messages, and this
    /// mode.
    pub(super) fn new(
        file: File,
        (folder, name): (Arc<File>, &str),
        path: HostPath,
        mode: FileMode,
    ) -> Self {
        Self {
            file: Mutex::new(Some(file)),
            folder,
            name: name.to_owned(),
            path,
            mode,
        }
    }
}

impl LockHandle for HeldLock {
    fn revalidate(&self) -> Result<()> {
        let mut held = self.file.lock();
        match held.as_ref() {
            // The folder was removed or replaced: the bands are no longer reachable by name.
            Some(file) if !file::has_name(file) => {
                return Err(self.path.named(file::removed(LAYER)));
            }
            Some(file) if !platform::is_forgotten(file) => return Ok(()),
            _ => {}
        }
        // The old file is closed first: its lock, now known only to this machine, would block the
        // new one.
        *held = None;
        let lost = |why: String| {
            let what = format!("the file server lost the lock, and {why}");
            self.path.named(Error::new(Kind::Io, LAYER, what))
        };
        let file = match open(&self.folder, &self.name, Lock::Exclusive, self.mode) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(lost("the file is gone".to_owned())),
            Err(source) => return Err(lost(format!("it cannot be reopened: {source}"))),
        };
        match platform::lock_soon(&file, true) {
            Ok(true) => {
                *held = Some(file);
                Ok(())
            }
            Ok(false) => Err(lost(format!(
                "now it {}",
                file::in_use(LAYER, &file).message()
            ))),
            Err(source) => Err(lost(format!("the lock cannot be acquired again: {source}"))),
        }
    }
}

/// Opens the file of a lock, creating it for an exclusive one. `None` if it is missing.
pub(super) fn open(
    folder: &File,
    name: &str,
    mode: Lock,
    new: FileMode,
) -> io::Result<Option<File>> {
    let flags = match mode {
        Lock::Shared => OFlags::RDONLY,
        Lock::Exclusive => OFlags::RDWR | OFlags::CREATE,
    };
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    match rustix::fs::openat(folder, name, flags, new.file()) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Local, Store};

    #[test]
    fn a_lock_that_was_lost_is_taken_again_or_missed() {
        let folder = tempfile::tempdir().unwrap();
        let root = Arc::new(File::open(folder.path()).unwrap());
        let path = folder.path().join("lock");
        let held = HeldLock {
            file: Mutex::new(None),
            folder: root,
            name: "lock".into(),
            path: HostPath::new(path),
            mode: FileMode::ANY,
        };
        held.revalidate().unwrap();
        let other = Local::new(folder.path());
        assert_eq!(
            other
                .lock("lock", Lock::Exclusive)
                .err()
                .map(|error| error.kind()),
            Some(Kind::Conflict)
        );
        held.revalidate().unwrap();
        *held.file.lock() = None;
        let taken = other.lock("lock", Lock::Exclusive).unwrap();
        taken.revalidate().unwrap();
        assert!(
            held.revalidate()
                .unwrap_err()
                .message()
                .contains("lost the lock")
        );
        drop(taken);
        held.revalidate().unwrap();
    }
}
