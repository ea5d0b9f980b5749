//! An open file as a store.

use std::fmt;
use std::sync::Arc;

use super::{Entry, Guard, Lock, Meta, Open, Put, Store};
use crate::device::BlockDevice;
use crate::{Error, Result};

const LAYER: &str = "single file";

/// Reads the metadata of a file.
type ReadMeta = dyn Fn() -> Result<Meta> + Send + Sync;

/// A store with one file, which is already open. It cannot be renamed, removed or joined by others.
pub struct SingleFile {
    name: String,
    file: Arc<dyn BlockDevice>,
    meta: Box<ReadMeta>,
}

impl SingleFile {
    /// Creates a store in which `file` has this name; `meta` reads its metadata.
    pub fn new(
        name: impl Into<String>,
        file: Arc<dyn BlockDevice>,
        meta: impl Fn() -> Result<Meta> + Send + Sync + 'static,
    ) -> Self {
        let (name, meta) = (name.into(), Box::new(meta));
        Self { name, file, meta }
    }

    fn refused(&self) -> Error {
        Error::unsupported(
            LAYER,
            "cannot add, rename or remove files: the image is a single file",
        )
        .named(&self.name)
    }
}

impl fmt::Debug for SingleFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFile")
            .field("name", &self.name)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Store for SingleFile {
    fn open(&self, name: &str, mode: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        match (mode, name == self.name) {
            (Open::Read | Open::Write | Open::Create, true) => Ok(Some(self.file.clone())),
            (Open::CreateNew, true) | (Open::Read | Open::Write, false) => Ok(None),
            (Open::Create | Open::CreateNew, false) => Err(self.refused()),
        }
    }

    fn put(&self, _name: &str, _bytes: &[u8], _cond: Put) -> Result<bool> {
        Err(self.refused())
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        if name == self.name {
            (self.meta)().map(Some)
        } else {
            Ok(None)
        }
    }

    fn copy(&self, _from: &str, _to: &str) -> Result<()> {
        Err(self.refused())
    }

    fn rename(&self, _from: &str, _to: &str) -> Result<()> {
        Err(self.refused())
    }

    fn remove(&self, name: &str) -> Result<bool> {
        if name == self.name {
            Err(self.refused())
        } else {
            Ok(false)
        }
    }

    fn remove_folder(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        if self.name.starts_with(prefix) {
            each(Entry::new(&self.name, &|| self.stat(&self.name)))
        } else {
            Ok(())
        }
    }

    fn sync(&self) -> Result<()> {
        self.file.flush()
    }

    fn lock(&self, _name: &str, _mode: Lock) -> Result<Guard> {
        Ok(Guard::nothing())
    }
}
