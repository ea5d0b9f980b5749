//! Where named bytes live: a folder of [`BlockDevice`]s.
//!
//! A sparse bundle lives in a store (its folder); a single-file image is a store of which one name
//! is used. Names are relative paths with `/` between their parts (`bands/1f`), never absolute and
//! never with `..` in them.

#[cfg(feature = "s3")]
mod bucket;
mod local;
mod locks;
mod memory;
pub mod objects;
#[cfg(feature = "s3")]
mod ranges;
mod remote;
mod staged;
#[cfg(feature = "s3")]
pub(crate) mod web;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::device::BlockDevice;
use crate::{Error, Kind, Result};

#[cfg(feature = "s3")]
pub use bucket::{Bucket, BucketOptions, BucketPlace, Credentials};
pub use local::{FileMode, Local, LocalFile};
#[cfg(feature = "testing")]
pub(crate) use locks::Locks;
pub use memory::MemoryStore;
pub use objects::{Fill, MemoryObjects, ObjectMeta, Objects, Piece};
pub use remote::{
    CacheOptions, Checkpointed, FlushTo, Holder, Remote, RemoteOptions, Snapshot, Status,
};
pub(crate) use staged::Content;
pub use staged::Staged;

/// A folder of devices.
///
/// A device's `flush` makes contents durable; [`sync`](Self::sync) makes names durable. The
/// devices' `set_len` is how files grow: a write past the end of a file is refused, as for every
/// device.
pub trait Store: fmt::Debug + Send + Sync {
    /// The device called `name`. `None`: it does not exist ([`Open::Read`], [`Open::Write`]), or
    /// does already ([`Open::CreateNew`]). Folders in `name` are made as needed by the creating
    /// modes.
    fn open(&self, name: &str, how: Open) -> Result<Option<Arc<dyn BlockDevice>>>;

    /// Stores `bytes` under `name`, all or nothing and durably once [`sync`](Self::sync) returned.
    /// `false`: [`Put::IfAbsent`] found the name taken.
    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool>;

    /// What is known of `name` without opening it.
    fn stat(&self, name: &str) -> Result<Option<Meta>>;

    /// An independent copy: by reference or on the server's side where that is possible.
    fn copy(&self, from: &str, to: &str) -> Result<()>;

    /// Moves a name, replacing what stood there, in one step. [`Kind::Unsupported`] where names
    /// cannot be moved so.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a file. `false`: there was none.
    fn remove(&self, name: &str) -> Result<bool>;

    /// Calls `each` for every file whose name begins with `prefix`, in any order, folders walked
    /// through. An error from `each` stops the walk and is returned. Files that come or go
    /// meanwhile may be met or not.
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()>;

    /// Makes the names made, moved and removed so far durable.
    fn sync(&self) -> Result<()>;

    /// Takes the lock called `name`, waiting a moment for who is letting go of it; it is free again
    /// when the guard is dropped. An exclusive lock creates the file if it is missing; a shared one
    /// of a missing file holds nothing and succeeds. [`Kind::Conflict`], naming the holder where
    /// that is known, when somebody else has it.
    fn lock(&self, name: &str, mode: Lock) -> Result<Guard>;
}

/// How [`Store::open`] opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// Must exist; reads only.
    Read,
    /// Must exist; reads and writes.
    Write,
    /// Made if missing; reads and writes.
    Create,
    /// Must not exist; reads and writes.
    CreateNew,
}

/// What [`Store::put`] does about a name that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// Replaces it.
    Replace,
    /// Leaves it and says so.
    IfAbsent,
}

/// A file met by [`Store::list`]. Its [`Meta`] is asked for on demand: a count of a million names
/// asks nothing.
pub struct Entry<'a> {
    /// Its name within the store.
    pub name: &'a str,
    meta: &'a dyn Fn() -> Result<Option<Meta>>,
}

impl<'a> Entry<'a> {
    /// A file called `name`, about which `meta` tells more.
    pub fn new(name: &'a str, meta: &'a dyn Fn() -> Result<Option<Meta>>) -> Self {
        Self { name, meta }
    }

    /// What is known of it. `None`: it has gone meanwhile.
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

/// What is known of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Bytes.
    pub len: u64,
    /// Bytes of storage behind them, where the store tells.
    pub allocated: u64,
    /// Changes whenever the contents do (nanoseconds of the last change, or a hash of the store's
    /// version tag).
    pub version: u64,
}

/// Who else may hold the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Other readers.
    Shared,
    /// Nobody.
    Exclusive,
}

/// A lock that is held until this is dropped.
pub struct Guard(Option<Box<dyn Held>>);

/// A lock that may be forgotten by whoever gave it.
pub(crate) trait Held: Send + Sync {
    /// [`Guard::keep`].
    fn keep(&self) -> Result<()>;
}

/// A lock that is held as long as this lives.
struct Kept(#[expect(dead_code, reason = "held, not read")] Box<dyn Any + Send + Sync>);

impl Held for Kept {
    fn keep(&self) -> Result<()> {
        Ok(())
    }
}

impl Guard {
    /// A guard that lets go by dropping `held`.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(Kept(Box::new(held)))))
    }

    /// A guard that is asked from time to time.
    pub(crate) fn watched(held: impl Held + 'static) -> Self {
        Self(Some(Box::new(held)))
    }

    /// Sees to it that the lock is still held, and takes it again where a file server has forgotten
    /// it. An error says that somebody else has it by now; who has had it and let go again is not
    /// seen.
    pub fn keep(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |held| held.keep())
    }

    /// A guard that holds nothing.
    pub fn nothing() -> Self {
        Self(None)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// Refuses names that could lead out of the store.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let fine = !name.is_empty()
        && name
            .split('/')
            .all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'));
    if fine {
        Ok(())
    } else {
        Err(Error::new(Kind::Invalid, "store", "not a name within the folder").named(name))
    }
}
