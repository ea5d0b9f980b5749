//! A wrapper of objects that observes every request before it is made, and may refuse it.

use std::fmt;
use std::sync::Arc;

use bandsaw::Result;
use bandsaw::store::{FillBuffer, ObjectMeta, Objects, ObjectsExt, Put, SharedBytes};

/// A request.
pub(super) enum Call<'a> {
    Read,
    Put(&'a str, &'a [u8], Put),
    Copy(&'a str, &'a str),
    Remove(&'a str),
    Stat,
    List,
}

pub(super) trait Porter: fmt::Debug + Send + Sync {
    /// Called before a request; an error is returned to the caller instead of making the request.
    fn meets(&self, call: Call<'_>, inner: &dyn Objects) -> Result<()>;
}

#[derive(Debug)]
pub(super) struct Through<P> {
    inner: Arc<dyn Objects>,
    pub(super) porter: P,
}

impl<P: Porter> Through<P> {
    pub(super) fn new(inner: &Arc<dyn Objects>, porter: P) -> Arc<Self> {
        Arc::new(Self {
            inner: inner.clone(),
            porter,
        })
    }

    fn pass(&self, call: Call<'_>) -> Result<&dyn Objects> {
        self.porter.meets(call, &*self.inner)?;
        Ok(&*self.inner)
    }
}

impl<P: Porter> Objects for Through<P> {
    fn read_scattered(
        &self,
        key: &str,
        offset: u64,
        into: &mut [&mut [u8]],
    ) -> Result<Option<(usize, String)>> {
        self.pass(Call::Read)?.read_scattered(key, offset, into)
    }

    fn put_gathered(&self, key: &str, pieces: Vec<SharedBytes>, cond: Put) -> Result<bool> {
        let bytes = pieces.iter().map(SharedBytes::as_ref).collect::<Vec<_>>();
        self.pass(Call::Put(key, &bytes.concat(), cond))?
            .put_gathered(key, pieces, cond)
    }

    fn put_large(
        &self,
        key: &str,
        len: u64,
        fill: &FillBuffer<'_>,
        confirm: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        self.put_buffered(key, len, fill, confirm)
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        self.pass(Call::Copy(from, to))?.copy(from, to)
    }

    fn remove(&self, key: &str) -> Result<bool> {
        self.pass(Call::Remove(key))?.remove(key)
    }

    fn stat(&self, key: &str) -> Result<Option<ObjectMeta>> {
        self.pass(Call::Stat)?.stat(key)
    }

    fn list(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(&str, &ObjectMeta) -> Result<()>,
    ) -> Result<()> {
        self.pass(Call::List)?.list(prefix, each)
    }
}
