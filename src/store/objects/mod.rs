//! Objects of a bucket: the operations that every S3-compatible store implements correctly.
//!
//! An object store offers less than a folder ([`Store`](super::Store)): an object is written as a
//! whole, never in place, and never renamed. It guarantees that a put is atomic, and that of
//! several puts on condition of an absent key exactly one succeeds. Nothing here depends on
//! `If-Match`, nor on a conditional delete: the Ceph release used in tests compares the one wrongly
//! and ignores the other.

mod memory;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::Put;
use crate::{Error, Kind, Result};

pub use memory::MemoryObjects;

/// The objects of one image under their keys (`bands/1f`): keys are relative to its prefix in the
/// bucket, and are names in the sense of a [`Store`](super::Store), with `/` between their parts.
///
/// Requests come from any number of threads concurrently and block until they are answered. An
/// acknowledged change is durable and visible to every reader. A failed request may still have been
/// executed, if only its response was lost; a request may also be executed twice.
pub trait Objects: fmt::Debug + Send + Sync {
    /// Reads from `offset` into buffers, each filled before the next, in one request, so that all
    /// bytes are of one version. Returns the number of bytes read, and the tag of that version. Less
    /// than the length of the buffers, or 0 at or past the end, means the end of the object; the tag
    /// may be empty if no bytes were read. `None`: there is no such object.
    fn read_scattered(
        &self,
        key: &str,
        offset: u64,
        into: &mut [&mut [u8]],
    ) -> Result<Option<(usize, String)>>;

    /// Stores buffers, one after the other, as the whole object, atomically and durably. `false`:
    /// [`Put::IfAbsent`] found the key taken, possibly by an earlier attempt of the same request
    /// whose response was lost; a caller that must distinguish these stores a unique value in the
    /// object and reads it back.
    fn put_gathered(&self, key: &str, pieces: Vec<SharedBytes>, cond: Put) -> Result<bool>;

    /// Stores `len` bytes as the whole object, atomically and durably, replacing an existing
    /// object. They need not fit into memory: `fill` is called for pieces of them, by several
    /// threads concurrently. `confirm` is called after all pieces are stored: the object does not
    /// change before it succeeds, nor if any piece fails.
    fn put_large(
        &self,
        key: &str,
        len: u64,
        fill: &FillBuffer<'_>,
        confirm: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()>;

    /// Makes `to` a copy of `from`, on the server's side, replacing an existing object.
    /// [`Kind::NotFound`] if `from` does not exist.
    fn copy(&self, from: &str, to: &str) -> Result<()>;

    /// Removes an object, unconditionally. `false`: it certainly did not exist. `true` may be
    /// returned for a missing object, as most servers do not report that.
    fn remove(&self, key: &str) -> Result<bool>;

    /// Returns the metadata of an object. `None`: it does not exist.
    fn stat(&self, key: &str) -> Result<Option<ObjectMeta>>;

    /// Calls `each` for every object whose key begins with `prefix` (any string, `bands/1` too), in
    /// the order of keys as bytes. An error from `each` stops the listing and is returned. Objects
    /// created or removed concurrently may or may not be included.
    fn list(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(&str, &ObjectMeta) -> Result<()>,
    ) -> Result<()>;
}

/// Operations that follow from those of [`Objects`].
pub trait ObjectsExt: Objects {
    /// Reads from `offset` into `into`. Returns the number of bytes read; less than its length means
    /// the end of the object. `None`: there is no such object.
    fn read_at(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<Option<usize>> {
        let read = self.read_scattered(key, offset, &mut [into])?;
        Ok(read.map(|(n, _)| n))
    }

    /// Stores a copy of `bytes` as the whole object, like [`put_gathered`](Objects::put_gathered).
    fn put(&self, key: &str, bytes: &[u8], cond: Put) -> Result<bool> {
        self.put_gathered(key, vec![bytes.to_vec().into()], cond)
    }

    /// Stores `len` bytes like [`put_large`](Objects::put_large), in one put: they must fit into
    /// memory.
    fn put_buffered(
        &self,
        key: &str,
        len: u64,
        fill: &FillBuffer<'_>,
        confirm: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let bytes = SharedBytes::filled(len, fill)?;
        confirm()?;
        self.put_gathered(key, vec![bytes], Put::Replace).map(drop)
    }
}

impl<O: Objects + ?Sized> ObjectsExt for O {}

/// Returns true if a key that begins with `prefix` is `wanted`. The listing ends at the first such
/// key.
pub(crate) fn has_any(
    objects: &dyn Objects,
    prefix: &str,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<bool> {
    let mut found = false;
    let listed = objects.list(prefix, &mut |key, _| {
        found = wanted(key);
        if found {
            Err(Error::new(Kind::Cancelled, "object store", "one is enough"))
        } else {
            Ok(())
        }
    });
    if found {
        Ok(true)
    } else {
        listed.map(|()| false)
    }
}

/// A function that fills a buffer with the contents of a new object from an offset.
pub type FillBuffer<'a> = dyn Fn(u64, &mut [u8]) -> Result<()> + Sync + 'a;

/// The first bytes of a shared buffer.
#[derive(Clone)]
pub struct SharedBytes {
    buffer: Arc<dyn AsRef<[u8]> + Send + Sync>,
    len: usize,
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBytes")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl SharedBytes {
    /// Creates a piece of the first `len` bytes, or of all if the buffer is shorter.
    pub fn new(buffer: Arc<dyn AsRef<[u8]> + Send + Sync>, len: usize) -> Self {
        Self {
            len: len.min((*buffer).as_ref().len()),
            buffer,
        }
    }

    /// Returns `len` bytes in memory, as `fill` writes them.
    pub fn filled(len: u64, fill: &FillBuffer<'_>) -> Result<Self> {
        let len = usize::try_from(len)
            .map_err(|_| Error::unsupported("object store", "does not fit into memory"))?;
        let mut bytes = vec![0; len];
        fill(0, &mut bytes)?;
        Ok(bytes.into())
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(Arc::new(bytes), usize::MAX)
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &(*self.buffer).as_ref()[..self.len]
    }
}

/// The metadata of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Length in bytes.
    pub len: u64,
    /// The version tag (`ETag`, without quotes), compared for equality only: objects of one key
    /// with different bytes have different tags. The same bytes, stored again or copied, may have
    /// the same one or another.
    pub tag: String,
    /// Time of the last put, by the server's clock, often in whole seconds.
    pub modified: SystemTime,
}
