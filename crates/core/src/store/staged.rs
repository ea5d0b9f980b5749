//! An overlay of a store that keeps all changes to itself, so that they can be tried out before
//! anything is written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Entry, Guard, Lock, Meta, Open, Put, Store, check_folder, check_name};
use crate::device::{Access, AfterDiscard, BlockDevice, Changes, CowDevice, Spill, regions};
use crate::sync::Mutex;
use crate::{Error, Result};

const LAYER: &str = "staged store";

/// A store that reads through to another and keeps writes, lengths, and created, renamed and
/// removed names to itself. Clones share them. Its locks hold nothing: the caller holds those of
/// the store below.
#[derive(Debug, Clone)]
pub struct Staged(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    below: Arc<dyn Store>,
    spill: Arc<Spill>,
    /// Names that have been opened for changes, created, renamed or removed (`None`).
    files: Mutex<BTreeMap<String, Option<Arc<Content>>>>,
    /// Records the ranges that are read.
    is_traced: bool,
}

/// The contents of a staged name.
#[derive(Debug)]
pub struct Content {
    /// The name of the visible file below. `None`: a new file.
    pub origin: Option<String>,
    /// True if it was stored as a whole by [`Store::put`].
    pub is_put: bool,
    /// The bytes that differ from the file below.
    pub changes: Arc<Changes>,
}

impl Staged {
    /// Creates an overlay without changes. Those that exceed the memory go to an unnamed file in
    /// the folder `spill`.
    pub fn new(below: Arc<dyn Store>, spill: PathBuf) -> Self {
        Self(Arc::new(Inner {
            below,
            spill: Arc::new(Spill::to(spill)),
            files: Mutex::default(),
            is_traced: false,
        }))
    }

    /// Creates a view that records the ranges that are read.
    pub fn traced(below: Arc<dyn Store>, spill: PathBuf) -> Self {
        let mut staged = Self::new(below, spill);
        // Always: there are no clones yet.
        if let Some(inner) = Arc::get_mut(&mut staged.0) {
            inner.is_traced = true;
        }
        staged
    }

    /// Returns the ranges that were read from each file, in order and without overlaps.
    pub fn reads(&self) -> Vec<(String, Vec<Range<u64>>)> {
        let files = self.0.files.lock();
        let reads = files
            .iter()
            .filter_map(|(name, content)| Some((name.clone(), content.as_ref()?.changes.reads()?)));
        reads.collect()
    }

    /// Returns the store below.
    pub fn below(&self) -> &Arc<dyn Store> {
        &self.0.below
    }

    /// Returns the removed names (`None`) and the names whose files are new, renamed or changed.
    pub fn changes(&self) -> Vec<(String, Option<Arc<Content>>)> {
        let is_changed = |name: &String, content: &Option<Arc<Content>>| {
            content.as_ref().is_none_or(|content| {
                content.origin.as_ref() != Some(name) || content.changes.count() > 0
            })
        };
        let files = self.0.files.lock();
        files
            .iter()
            .filter(|(name, content)| is_changed(name, content))
            .map(|(n, c)| (n.clone(), c.clone()))
            .collect()
    }

    /// Returns true if anything differs from the store below; bytes are not compared.
    pub fn is_changed(&self) -> bool {
        !self.changes().is_empty()
    }

    fn new_content(&self, origin: Option<String>, len: u64, is_put: bool) -> Arc<Content> {
        let changes = Changes::new(len, self.0.spill.clone());
        let changes = Arc::new(if self.0.is_traced {
            changes.traced()
        } else {
            changes
        });
        Arc::new(Content {
            origin,
            is_put,
            changes,
        })
    }

    /// Opens the contents of a name as a device.
    pub fn device(
        &self,
        content: Arc<Content>,
        access: Access,
    ) -> Result<Option<Arc<dyn BlockDevice>>> {
        let below = match &content.origin {
            Some(origin) => match self.0.below.open(origin, Open::Read)? {
                Some(below) => Some(below),
                None => return Ok(None),
            },
            None => None,
        };
        let device = CowDevice::with(content.changes.clone(), below, access);
        Ok(Some(Arc::new(device)))
    }

    fn content(&self, name: &str) -> Result<Option<Arc<Content>>> {
        if let Some(known) = self.0.files.lock().get(name) {
            return Ok(known.clone());
        }
        let Some(below) = self.0.below.open(name, Open::Read)? else {
            return Ok(None);
        };
        let content = self.new_content(Some(name.to_owned()), below.info().len, false);
        // Another thread may have opened the name meanwhile: both share the contents that were first.
        Ok(self
            .0
            .files
            .lock()
            .entry(name.to_owned())
            .or_insert(Some(content))
            .clone())
    }

    fn put_content(&self, bytes: &[u8]) -> Result<Arc<Content>> {
        let content = self.new_content(None, 0, true);
        let device = CowDevice::with(content.changes.clone(), None, Access::ReadWrite);
        device.set_len(bytes.len() as u64, AfterDiscard::Zeros)?;
        device.write_at(0, bytes)?;
        Ok(content)
    }
}

impl Store for Staged {
    fn open(&self, name: &str, mode: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        check_name(name)?;
        let content = self.content(name)?;
        let access = if mode == Open::Read {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        };
        let content = match (mode, content) {
            (Open::Read | Open::Write, None) | (Open::CreateNew, Some(_)) => return Ok(None),
            (_, Some(content)) => content,
            (Open::Create | Open::CreateNew, None) => {
                let content = self.new_content(None, 0, false);
                self.0
                    .files
                    .lock()
                    .insert(name.to_owned(), Some(content.clone()));
                content
            }
        };
        self.device(content, access)
    }

    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool> {
        check_name(name)?;
        if cond == Put::IfAbsent && self.stat(name)?.is_some() {
            return Ok(false);
        }
        let content = self.put_content(bytes)?;
        self.0.files.lock().insert(name.to_owned(), Some(content));
        Ok(true)
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        check_name(name)?;
        match self.0.files.lock().get(name) {
            Some(Some(content)) => {
                let len = content.changes.len();
                Ok(Some(Meta {
                    len,
                    allocated: len,
                    version: content.changes.count(),
                    changed: None,
                }))
            }
            Some(None) => Ok(None),
            None => self.0.below.stat(name),
        }
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        let source = self
            .open(from, Open::Read)?
            .ok_or_else(|| Error::not_found(LAYER, from))?;
        let content = self.new_content(None, 0, false);
        let target = CowDevice::with(content.changes.clone(), None, Access::ReadWrite);
        regions::copy_all(&*source, &target)?;
        self.0.files.lock().insert(to.to_owned(), Some(content));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let content = self
            .content(from)?
            .ok_or_else(|| Error::not_found(LAYER, from))?;
        let mut files = self.0.files.lock();
        files.insert(from.to_owned(), None);
        files.insert(to.to_owned(), Some(content));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<bool> {
        let there = self.stat(name)?.is_some();
        if there {
            self.0.files.lock().insert(name.to_owned(), None);
        }
        Ok(there)
    }

    fn remove_folder(&self, name: &str) -> Result<()> {
        check_folder(name)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        // Copied: `each` may call this store.
        let known: BTreeMap<String, bool> = self
            .0
            .files
            .lock()
            .iter()
            .filter(|(name, _)| name.starts_with(prefix))
            .map(|(n, c)| (n.clone(), c.is_some()))
            .collect();
        self.0.below.list(prefix, &mut |entry| {
            if known.contains_key(entry.name) {
                Ok(())
            } else {
                each(entry)
            }
        })?;
        known
            .iter()
            .filter(|(_, there)| **there)
            .try_for_each(|(name, _)| each(Entry::new(name, &|| self.stat(name))))
    }

    // Nothing is stored that could be made durable.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn lock(&self, name: &str, _mode: Lock) -> Result<Guard> {
        check_name(name)?;
        Ok(Guard::nothing())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BlockDeviceExt;
    use crate::store::MemoryStore;

    fn names(store: &dyn Store) -> Vec<String> {
        let mut names = Vec::new();
        let listed = store.list("", &mut |entry| {
            names.push(entry.name.to_owned());
            Ok(())
        });
        listed.unwrap();
        names.sort();
        names
    }

    #[test]
    fn changes_show_and_the_store_below_stays() {
        let below = MemoryStore::default();
        for name in ["a", "b", "c"] {
            below
                .put(name, &[name.as_bytes()[0]; 10_000], Put::Replace)
                .unwrap();
        }
        let staged = Staged::new(Arc::new(below.clone()), std::env::temp_dir());
        let a = staged.open("a", Open::Write).unwrap().unwrap();
        assert!(!staged.is_changed(), "an open file is no change");
        a.write_at(4090, &[1; 20]).unwrap();
        a.set_len(5000, AfterDiscard::Zeros).unwrap();
        a.set_len(9000, AfterDiscard::Zeros).unwrap();
        let mut expected = vec![b'a'; 5000];
        expected[4090..4110].fill(1);
        expected.resize(9000, 0);
        assert!(a.read_vec(0, 9000).unwrap() == expected);
        staged.rename("b", "d").unwrap();
        staged.remove("c").unwrap();
        staged.put("e", b"new", Put::Replace).unwrap();
        assert_eq!(names(&staged), ["a", "d", "e"]);
        assert_eq!(
            staged
                .open("d", Open::Read)
                .unwrap()
                .unwrap()
                .read_vec(0, 2)
                .unwrap(),
            b"bb"
        );
        assert!(
            staged
                .open("a", Open::Read)
                .unwrap()
                .unwrap()
                .read_vec(0, 9000)
                .unwrap()
                == expected
        );
        assert_eq!(staged.changes().len(), 5);
        assert_eq!(names(&below), ["a", "b", "c"]);
        assert!(
            below
                .open("a", Open::Read)
                .unwrap()
                .unwrap()
                .read_vec(0, 10_000)
                .unwrap()
                == [b'a'; 10_000]
        );
    }
}
