//! Objects of a bucket: what every S3-compatible store can do, and nothing that some of them get
//! wrong.
//!
//! A store of objects is poorer than a folder ([`Store`](super::Store)): an object is written
//! whole, never in place, and never moved. Two things it does give: a put is all or nothing, and of
//! several puts that ask for an absent key exactly one succeeds. Nothing here depends on
//! `If-Match`, nor on a conditional delete: the Ceph release we test with compares the one wrongly
//! and ignores the other.

mod memory;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::Put;
use crate::{Error, Kind, Result};

pub use memory::MemoryObjects;

/// Objects under keys (`bands/1f`), as far as they concern one image: keys are relative to its
/// prefix in the bucket, and are names in the sense of a [`Store`](super::Store), with `/` between
/// their parts.
///
/// Requests come from any number of threads at once and block until they are answered. What was
/// acknowledged is durable and seen by every reader from then on. A request that failed may have
/// been done all the same, when only its answer was lost; a request may also arrive twice.
pub trait Objects: fmt::Debug + Send + Sync {
    /// Fills `into` with what the object has from `offset` on, in one request, so that all of it is
    /// of one version. Less than asked for, and 0 at or past the end, means that the object ends
    /// there. `None`: there is no such object.
    fn read_at(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<Option<usize>>;

    /// The same, and the tag of the version that was read.
    ///
    /// Unless a store knows better it is asked for afterwards, and is then that of the version or
    /// of a later one.
    fn read_tagged(
        &self,
        key: &str,
        offset: u64,
        into: &mut [u8],
    ) -> Result<Option<(usize, String)>> {
        let Some(n) = self.read_at(key, offset, into)? else {
            return Ok(None);
        };
        Ok(self.stat(key)?.map(|meta| (n, meta.tag)))
    }

    /// [`read_tagged`](Self::read_tagged) into several buffers, of which each is filled before the
    /// next.
    ///
    /// Unless a store knows better the bytes are read to one place first.
    fn read_scattered(
        &self,
        key: &str,
        offset: u64,
        into: &mut [&mut [u8]],
    ) -> Result<Option<(usize, String)>> {
        let mut bytes = vec![0; into.iter().map(|buffer| buffer.len()).sum()];
        let Some((n, tag)) = self.read_tagged(key, offset, &mut bytes)? else {
            return Ok(None);
        };
        let mut rest = &bytes[..n];
        for buffer in into {
            let (now, later) = rest.split_at(rest.len().min(buffer.len()));
            buffer[..now.len()].copy_from_slice(now);
            rest = later;
        }
        Ok(Some((n, tag)))
    }

    /// Stores `bytes` as the whole object, all or nothing and durably. `None`: [`Put::IfAbsent`]
    /// found the key taken, which may be by an earlier try of this very request whose answer was
    /// lost; who must know puts something of its own into the object and reads it back.
    fn put(&self, key: &str, bytes: &[u8], cond: Put) -> Result<Option<ObjectMeta>>;

    /// [`put`](Self::put) of what several buffers hold one after the other, replacing what stood
    /// there.
    ///
    /// Unless a store knows better they are put together in memory.
    fn put_gathered(&self, key: &str, pieces: Vec<Piece>) -> Result<()> {
        let bytes: Vec<&[u8]> = pieces.iter().map(Piece::as_ref).collect();
        self.put(key, &bytes.concat(), Put::Replace).map(drop)
    }

    /// Stores `len` bytes as the whole object, all or nothing and durably, replacing what stood
    /// there. They need not fit into memory: `fill` is asked for pieces of them from an offset on,
    /// by several threads at a time. `go_on` is asked once all are there: nothing has changed under
    /// the key before it agrees, nor if one of them fails.
    ///
    /// Unless a store knows better they are put together in memory.
    fn put_large(
        &self,
        key: &str,
        len: u64,
        fill: &Fill<'_>,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let Ok(len) = usize::try_from(len) else {
            return Err(Error::unsupported("object store", "does not fit into memory").named(key));
        };
        let mut bytes = vec![0; len];
        fill(0, &mut bytes)?;
        go_on()?;
        self.put(key, &bytes, Put::Replace).map(drop)
    }

    /// Makes `to` a copy of `from`, on the server's side, replacing what stood there.
    /// [`Kind::NotFound`] where `from` is no object.
    fn copy(&self, from: &str, to: &str) -> Result<()>;

    /// Removes an object, never on a condition. `false`: there was certainly none. `true` may be
    /// said of one that was not there, as most servers do not tell.
    fn remove(&self, key: &str) -> Result<bool>;

    /// What is known of an object. `None`: it does not exist.
    fn stat(&self, key: &str) -> Result<Option<ObjectMeta>>;

    /// Calls `each` for every object whose key begins with `prefix` (any string, `bands/1` too), in
    /// the order of keys as bytes. An error from `each` stops the listing and is returned. Objects
    /// that come or go meanwhile may be met or not.
    fn list(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(&str, &ObjectMeta) -> Result<()>,
    ) -> Result<()>;
}

/// Returns whether a key that begins with `prefix` is `wanted`. The listing ends with the first.
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

/// Fills a buffer with what an object is to have from an offset on.
pub type Fill<'a> = dyn Fn(u64, &mut [u8]) -> Result<()> + Sync + 'a;

/// The first bytes of a buffer that others may read too.
#[derive(Clone)]
pub struct Piece {
    buffer: Arc<dyn AsRef<[u8]> + Send + Sync>,
    len: usize,
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Piece {
    /// The first `len` bytes, or all if there are not so many.
    pub fn new(buffer: Arc<dyn AsRef<[u8]> + Send + Sync>, len: usize) -> Self {
        Self {
            len: len.min((*buffer).as_ref().len()),
            buffer,
        }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &(*self.buffer).as_ref()[..self.len]
    }
}

/// What is known of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Bytes.
    pub len: u64,
    /// The version tag (`ETag`, without quotes), compared for equality only: objects of one key
    /// with different bytes have different tags. The same bytes, stored again or copied, may have
    /// the same one or another.
    pub tag: String,
    /// When it was stored, by the server's clock, often in whole seconds; in the answer to a put by
    /// this machine's.
    pub modified: SystemTime,
}
