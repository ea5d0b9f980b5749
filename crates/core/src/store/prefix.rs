//! A folder of another store.

use std::sync::Arc;

use super::{Entry, Guard, Lock, Meta, Open, Put, Store};
use crate::Result;
use crate::device::BlockDevice;

/// The files in a folder of another store, under their names within it.
///
/// Stores of two folders of the same parent can move files between each other with the parent's
/// [`rename`](Store::rename).
#[derive(Debug, Clone)]
pub struct PrefixStore {
    parent: Arc<dyn Store>,
    /// Ends with `/`.
    prefix: String,
}

impl PrefixStore {
    /// Creates a store for `folder` of `parent`. The folder need not exist.
    pub fn new(parent: Arc<dyn Store>, folder: &str) -> Self {
        Self {
            parent,
            prefix: format!("{folder}/"),
        }
    }

    /// Returns the name in the parent of the file `name`.
    pub fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Store for PrefixStore {
    fn open(&self, name: &str, mode: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        self.parent.open(&self.full(name), mode)
    }

    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool> {
        self.parent.put(&self.full(name), bytes, cond)
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        self.parent.stat(&self.full(name))
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        self.parent.copy(&self.full(from), &self.full(to))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.parent.rename(&self.full(from), &self.full(to))
    }

    fn remove(&self, name: &str) -> Result<bool> {
        self.parent.remove(&self.full(name))
    }

    fn remove_folder(&self, name: &str) -> Result<()> {
        let full = self.full(name);
        self.parent.remove_folder(if name.is_empty() {
            full.trim_end_matches('/')
        } else {
            &full
        })
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        self.parent
            .list(
                &self.full(prefix),
                &mut |entry| match entry.name.strip_prefix(&self.prefix) {
                    Some(name) => each(Entry::new(name, &|| entry.meta())),
                    None => Ok(()),
                },
            )
    }

    fn sync(&self) -> Result<()> {
        self.parent.sync()
    }

    fn lock(&self, name: &str, mode: Lock) -> Result<Guard> {
        self.parent.lock(&self.full(name), mode)
    }
}
