//! Objects in memory, for tests.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use super::{ObjectMeta, Objects};
use crate::store::{Put, check_name};
use crate::sync::{Mutex, MutexGuard};
use crate::{Error, Result};

const LAYER: &str = "memory objects";

/// Objects in memory. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryObjects(Arc<Mutex<BTreeMap<String, StoredObject>>>);

#[derive(Clone)]
struct StoredObject {
    bytes: Arc<[u8]>,
    modified: SystemTime,
}

impl StoredObject {
    fn new(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.into(),
            modified: SystemTime::now(),
        }
    }

    fn meta(&self) -> ObjectMeta {
        let len = self.bytes.len() as u64;
        ObjectMeta {
            len,
            tag: format!("{:08x}-{len:x}", crc32fast::hash(&self.bytes)),
            modified: self.modified,
        }
    }
}

impl std::fmt::Debug for StoredObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object")
            .field("len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

impl MemoryObjects {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, StoredObject>> {
        self.0.lock()
    }
}

impl Objects for MemoryObjects {
    fn read_at(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<Option<usize>> {
        check_name(key)?;
        let Some(object) = self.objects().get(key).cloned() else {
            return Ok(None);
        };
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|at| object.bytes.get(at..))
            .unwrap_or_default();
        let n = rest.len().min(into.len());
        into[..n].copy_from_slice(&rest[..n]);
        Ok(Some(n))
    }

    fn put(&self, key: &str, bytes: &[u8], cond: Put) -> Result<Option<ObjectMeta>> {
        check_name(key)?;
        let object = StoredObject::new(bytes);
        let mut objects = self.objects();
        if cond == Put::IfAbsent && objects.contains_key(key) {
            return Ok(None);
        }
        let meta = object.meta();
        objects.insert(key.to_owned(), object);
        Ok(Some(meta))
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut objects = self.objects();
        let bytes = objects
            .get(from)
            .ok_or_else(|| Error::not_found(LAYER, from))?
            .bytes
            .clone();
        objects.insert(
            to.to_owned(),
            StoredObject {
                bytes,
                modified: SystemTime::now(),
            },
        );
        Ok(())
    }

    fn remove(&self, key: &str) -> Result<bool> {
        check_name(key)?;
        Ok(self.objects().remove(key).is_some())
    }

    fn stat(&self, key: &str) -> Result<Option<ObjectMeta>> {
        check_name(key)?;
        Ok(self.objects().get(key).map(StoredObject::meta))
    }

    fn list(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(&str, &ObjectMeta) -> Result<()>,
    ) -> Result<()> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let found: Vec<_> = self
            .objects()
            .range::<str, _>(from)
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, object)| (key.clone(), object.meta()))
            .collect();
        found.iter().try_for_each(|(key, meta)| each(key, meta))
    }
}
