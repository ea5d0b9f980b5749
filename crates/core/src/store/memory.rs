//! A folder in memory, for tests and for `memory:` images.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::locks::Locks;
use super::{Entry, Guard, Lock, Meta, Open, Put, Store, check_folder, check_name};
use crate::device::{Access, BlockDevice, Memory};
use crate::sync::Mutex;
use crate::{Error, Result};

const LAYER: &str = "memory store";

/// Named devices in memory. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    files: Arc<Mutex<BTreeMap<String, Arc<Memory>>>>,
    locks: Locks,
}

impl Store for MemoryStore {
    fn open(&self, name: &str, mode: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        check_name(name)?;
        let mut files = self.files.lock();
        let there = files.get(name).cloned();
        let (file, access) = match (mode, there) {
            (Open::Read | Open::Write, None) | (Open::CreateNew, Some(_)) => return Ok(None),
            (Open::Read, Some(file)) => (file, Access::ReadOnly),
            (Open::Write | Open::Create, Some(file)) => (file, Access::ReadWrite),
            (Open::Create | Open::CreateNew, None) => {
                let file = Arc::new(Memory::zeros(0));
                files.insert(name.to_owned(), file.clone());
                (file, Access::ReadWrite)
            }
        };
        Ok(Some(Arc::new(file.view(access))))
    }

    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool> {
        check_name(name)?;
        let mut files = self.files.lock();
        if cond == Put::IfAbsent && files.contains_key(name) {
            return Ok(false);
        }
        files.insert(name.to_owned(), Arc::new(Memory::from(bytes.to_vec())));
        Ok(true)
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        check_name(name)?;
        Ok(self.files.lock().get(name).map(|file| meta(file)))
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut files = self.files.lock();
        let bytes = files
            .get(from)
            .ok_or_else(|| Error::not_found(LAYER, from))?
            .to_vec();
        files.insert(to.to_owned(), Arc::new(Memory::from(bytes)));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut files = self.files.lock();
        let file = files
            .remove(from)
            .ok_or_else(|| Error::not_found(LAYER, from))?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        Ok(self.files.lock().remove(name).is_some())
    }

    fn remove_folder(&self, name: &str) -> Result<()> {
        check_folder(name)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let found: Vec<String> = self
            .files
            .lock()
            .keys()
            .filter(|name| name.starts_with(prefix))
            .cloned()
            .collect();
        found
            .iter()
            .try_for_each(|name| each(Entry::new(name, &|| self.stat(name))))
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
        self.locks.acquire(name, mode)
    }
}

fn meta(file: &Memory) -> Meta {
    let contents = file.to_vec();
    let len = contents.len() as u64;
    Meta {
        len,
        allocated: len,
        version: u64::from(crc32fast::hash(&contents)),
        changed: None,
    }
}
