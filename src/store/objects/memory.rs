//! Objects in memory, for tests.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use super::{FillBuffer, ObjectMeta, Objects, ObjectsExt, SharedBytes};
use crate::store::{Put, check_name};
use crate::sync::Mutex;
use crate::{Error, Result};

const LAYER: &str = "memory objects";

/// Objects in memory. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryObjects(Arc<Mutex<BTreeMap<String, StoredObject>>>);

#[derive(Clone)]
struct StoredObject {
    bytes: Arc<[u8]>,
    meta: ObjectMeta,
}

impl std::fmt::Debug for StoredObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.meta.fmt(f)
    }
}

impl Objects for MemoryObjects {
    fn read_scattered(
        &self,
        key: &str,
        offset: u64,
        into: &mut [&mut [u8]],
    ) -> Result<Option<(usize, String)>> {
        check_name(key)?;
        let Some(object) = self.0.lock().get(key).cloned() else {
            return Ok(None);
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let all = object.bytes.get(start..).unwrap_or_default();
        let mut rest = all;
        for buffer in into {
            let (now, later) = rest.split_at(rest.len().min(buffer.len()));
            buffer[..now.len()].copy_from_slice(now);
            rest = later;
        }
        Ok(Some((all.len() - rest.len(), object.meta.tag)))
    }

    fn put_gathered(&self, key: &str, pieces: Vec<SharedBytes>, cond: Put) -> Result<bool> {
        check_name(key)?;
        let pieces: Vec<&[u8]> = pieces.iter().map(SharedBytes::as_ref).collect();
        let bytes: Arc<[u8]> = pieces.concat().into();
        let len = bytes.len() as u64;
        let meta = ObjectMeta {
            len,
            tag: format!("{:08x}-{len:x}", crc32fast::hash(&bytes)),
            modified: SystemTime::now(),
        };
        let mut objects = self.0.lock();
        if cond == Put::IfAbsent && objects.contains_key(key) {
            return Ok(false);
        }
        objects.insert(key.to_owned(), StoredObject { bytes, meta });
        Ok(true)
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
        check_name(from)?;
        check_name(to)?;
        let mut objects = self.0.lock();
        let mut object = objects
            .get(from)
            .ok_or_else(|| Error::not_found(LAYER, from))?
            .clone();
        object.meta.modified = SystemTime::now();
        objects.insert(to.to_owned(), object);
        Ok(())
    }

    fn remove(&self, key: &str) -> Result<bool> {
        check_name(key)?;
        Ok(self.0.lock().remove(key).is_some())
    }

    fn stat(&self, key: &str) -> Result<Option<ObjectMeta>> {
        check_name(key)?;
        Ok(self.0.lock().get(key).map(|object| object.meta.clone()))
    }

    fn list(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(&str, &ObjectMeta) -> Result<()>,
    ) -> Result<()> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let found: Vec<_> = self
            .0
            .lock()
            .range::<str, _>(from)
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, object)| (key.clone(), object.meta.clone()))
            .collect();
        found.iter().try_for_each(|(key, meta)| each(key, meta))
    }
}
