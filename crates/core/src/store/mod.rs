//! Named byte arrays: a folder of [`BlockDevice`]s.
//!
//! A sparse bundle is a store (its folder); a single-file image is a store of which one name is
//! used. Names are relative paths with `/` between their parts (`bands/1f`), never absolute and
//! never with `..` in them.

mod host;
#[cfg_attr(windows, path = "windows.rs")]
mod local;
mod locks;
mod memory;
mod prefix;
mod single;
mod staged;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::device::BlockDevice;
use crate::{Error, Result};

pub use host::{Attributes, HostStore, NodeKind, names_in};
pub use local::{FileMode, Local, LocalFile};
pub use locks::Locks;
pub use memory::MemoryStore;
pub use prefix::PrefixStore;
pub use single::SingleFile;
pub use staged::Content;
pub use staged::Staged;

/// A folder of devices.
///
/// A device's `flush` makes contents durable; [`sync`](Self::sync) makes names durable. Files grow
/// only by the devices' `set_len`: a write past the end of a file is refused, as for every device.
pub trait Store: fmt::Debug + Send + Sync {
    /// Opens the device `name`. `None`: it does not exist ([`Open::Read`], [`Open::Write`]), or
    /// already exists ([`Open::CreateNew`]). The creating modes create missing folders in `name`.
    fn open(&self, name: &str, mode: Open) -> Result<Option<Arc<dyn BlockDevice>>>;

    /// Stores `bytes` under `name`, atomically, and durably once [`sync`](Self::sync) returned.
    /// `false`: [`Put::IfAbsent`] found the name taken.
    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool>;

    /// Returns the metadata of `name` without opening it.
    fn stat(&self, name: &str) -> Result<Option<Meta>>;

    /// Makes an independent copy: by reference or on the server's side if possible.
    fn copy(&self, from: &str, to: &str) -> Result<()>;

    /// Renames a file atomically, replacing an existing `to`. [`Kind::Unsupported`](crate::Kind) if the store
    /// cannot rename.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a file. `false`: it did not exist.
    fn remove(&self, name: &str) -> Result<bool>;

    /// Removes the folder `name` (the store's own folder is "") with its subfolders if they hold no
    /// files; otherwise the folders that hold some are left. Does nothing if a folder is no more
    /// than a part of names.
    fn remove_folder(&self, name: &str) -> Result<()>;

    /// Calls `each` for every file whose name begins with `prefix`, in any order, recursively. An
    /// error from `each` stops the listing and is returned. Files created or removed concurrently
    /// may or may not be included.
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()>;

    /// Makes all created, renamed and removed names durable.
    fn sync(&self) -> Result<()>;

    /// Takes the lock `name`, waiting a short time for a holder that is releasing it; it is
    /// released when the guard is dropped. An exclusive lock creates the file if it is missing; a
    /// shared one of a missing file holds nothing and succeeds. [`Kind::Conflict`](crate::Kind), naming the
    /// holder if known, if another process has it.
    fn lock(&self, name: &str, mode: Lock) -> Result<Guard>;
}

/// Modes of [`Store::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// Must exist; reads only.
    Read,
    /// Must exist; reads and writes.
    Write,
    /// Created if missing; reads and writes.
    Create,
    /// Must not exist; reads and writes.
    CreateNew,
}

/// The reaction of [`Store::put`] to a name that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// Replaces it.
    Replace,
    /// Leaves it and returns `false`.
    IfAbsent,
}

/// A file listed by [`Store::list`]. Its [`Meta`] is read on demand: counting a million names needs
/// none.
pub struct Entry<'a> {
    /// Its name within the store.
    pub name: &'a str,
    meta: &'a dyn Fn() -> Result<Option<Meta>>,
}

impl<'a> Entry<'a> {
    /// Creates an entry for the file `name`; `meta` reads its metadata.
    pub fn new(name: &'a str, meta: &'a dyn Fn() -> Result<Option<Meta>>) -> Self {
        Self { name, meta }
    }

    /// Reads the metadata. `None`: it was removed in the meantime.
    pub fn meta(&self) -> Result<Option<Meta>> {
        (self.meta)()
    }
}

impl fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The metadata of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Length in bytes.
    pub len: u64,
    /// Bytes of storage in use, if the store reports it.
    pub allocated: u64,
    /// Changes whenever the contents do (nanoseconds of the last change, or a hash of the store's
    /// version tag).
    pub version: u64,
    /// Seconds of Unix time of the last change of the contents, if the store records it.
    pub changed: Option<u64>,
}

/// The kind of a lock, by who else may hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Other readers.
    Shared,
    /// No one else.
    Exclusive,
}

/// A lock that is held until this is dropped.
pub struct Guard(Option<Box<dyn LockHandle>>);

/// A lock that the file server may lose.
pub(crate) trait LockHandle: Send + Sync {
    /// Implements [`Guard::revalidate`].
    fn revalidate(&self) -> Result<()>;
}

/// A lock that is held until this is dropped.
struct OpaqueLock(#[expect(dead_code, reason = "held, not read")] Box<dyn Any + Send + Sync>);

impl LockHandle for OpaqueLock {
    fn revalidate(&self) -> Result<()> {
        Ok(())
    }
}

impl Guard {
    /// Creates a guard that releases the lock by dropping `held`.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(OpaqueLock(Box::new(held)))))
    }

    /// Creates a guard whose lock must be checked periodically.
    #[cfg(unix)]
    pub(crate) fn watched(held: impl LockHandle + 'static) -> Self {
        Self(Some(Box::new(held)))
    }

    /// Checks that the lock is still held, and takes it again if a file server has lost it. An
    /// error means that another process has it now; one that had it in between and released it is
    /// not detected.
    pub fn revalidate(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |held| held.revalidate())
    }

    /// Creates a guard without a lock.
    pub fn nothing() -> Self {
        Self(None)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// Refuses names that could escape from the store.
pub fn check_name(name: &str) -> Result<()> {
    let fine = !name.is_empty()
        && name
            .split('/')
            .all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'));
    if fine {
        Ok(())
    } else {
        Err(Error::invalid(
            "store",
            "invalid name: expected a relative path without empty parts, `.` and `..`",
        )
        .named(name))
    }
}

/// Like [`check_name`] for a folder; the empty name is the folder of the store.
pub fn check_folder(name: &str) -> Result<()> {
    if name.is_empty() {
        Ok(())
    } else {
        check_name(name)
    }
}
