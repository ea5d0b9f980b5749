//! A folder in memory, for tests and for `memory:` images.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Entry, Guard, Lock, Meta, Open, Put, Store, check_name};
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::{Error, Kind, Result};

const LAYER: &str = "memory store";

/// Named devices in memory. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    files: Arc<Mutex<BTreeMap<String, Arc<Memory>>>>,
    locks: Arc<Mutex<HashMap<String, Held>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Shared(usize),
    Exclusive,
}

impl MemoryStore {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Memory>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn open(&self, name: &str, how: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        check_name(name)?;
        let mut files = self.files();
        let there = files.get(name).cloned();
        Ok(match (how, there) {
            (Open::Read | Open::Write, None) | (Open::CreateNew, Some(_)) => None,
            (Open::Read | Open::Write | Open::Create, Some(file)) => Some(file),
            (Open::Create | Open::CreateNew, None) => {
                let file = Arc::new(Memory::zeros(0));
                files.insert(name.to_owned(), file.clone());
                Some(file)
            }
        })
    }

    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool> {
        check_name(name)?;
        let mut files = self.files();
        if cond == Put::IfAbsent && files.contains_key(name) {
            return Ok(false);
        }
        files.insert(name.to_owned(), Arc::new(Memory::from(bytes.to_vec())));
        Ok(true)
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        check_name(name)?;
        Ok(self.files().get(name).map(|file| meta(file)))
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut files = self.files();
        let bytes = files.get(from).ok_or_else(|| Error::not_found(LAYER, from))?.to_vec();
        files.insert(to.to_owned(), Arc::new(Memory::from(bytes)));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut files = self.files();
        let file = files.remove(from).ok_or_else(|| Error::not_found(LAYER, from))?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        Ok(self.files().remove(name).is_some())
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let found: Vec<String> = self.files().keys().filter(|name| name.starts_with(prefix)).cloned().collect();
        found.iter().try_for_each(|name| each(Entry::new(name, &|| self.stat(name))))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn lock(&self, name: &str, mode: Lock) -> Result<Guard> {
        check_name(name)?;
        match mode {
            Lock::Exclusive => drop(self.open(name, Open::Create)?),
            Lock::Shared if self.stat(name)?.is_none() => return Ok(Guard::nothing()),
            Lock::Shared => {}
        }
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let held = match (locks.get(name), mode) {
            (None, Lock::Exclusive) => Held::Exclusive,
            (None, Lock::Shared) => Held::Shared(1),
            (Some(Held::Shared(n)), Lock::Shared) => Held::Shared(n + 1),
            (Some(_), _) => return Err(Error::new(Kind::Conflict, LAYER, "is in use within this process").named(name)),
        };
        locks.insert(name.to_owned(), held);
        Ok(Guard::new(Release { locks: self.locks.clone(), name: name.to_owned() }))
    }
}

fn meta(file: &Memory) -> Meta {
    let len = file.info().len;
    let contents = file.read_vec(0, len as usize).unwrap_or_default();
    Meta { len, allocated: len, version: u64::from(crc32fast::hash(&contents)) }
}

struct Release {
    locks: Arc<Mutex<HashMap<String, Held>>>,
    name: String,
}

impl Drop for Release {
    fn drop(&mut self) {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        match locks.get(&self.name) {
            Some(Held::Shared(n)) if *n > 1 => {
                let left = Held::Shared(n - 1);
                locks.insert(self.name.clone(), left);
            }
            _ => drop(locks.remove(&self.name)),
        }
    }
}
