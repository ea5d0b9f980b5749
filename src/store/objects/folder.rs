//! Objects as a folder that is only read: a sparse bundle in a bucket, as `aws s3 sync` put it there.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::{ObjectMeta, Objects};
use crate::device::BlockDevice;
use crate::store::ranges::{Fetched, Pieces, Ranges};
use crate::store::{Entry, Guard, Lock, Meta, Open, Put, Store, check_name};
use crate::{Error, Kind, Result};

const LAYER: &str = "bucket";

/// Objects as a [`Store`] in which nothing can be changed. Who changes the objects meanwhile is not kept from it; a file that
/// has got shorter is an error, not zeros.
#[derive(Debug)]
pub struct ObjectFolder {
    objects: Arc<dyn Objects>,
    pieces: Arc<Pieces>,
}

impl ObjectFolder {
    /// A folder of all that is in `objects`, which keeps up to `memory` bytes of them at hand.
    pub fn new(objects: Arc<dyn Objects>, memory: u64) -> Self {
        Self { objects, pieces: Pieces::new(memory) }
    }
}

impl Store for ObjectFolder {
    fn open(&self, name: &str, how: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        check_name(name)?;
        if how != Open::Read {
            return Err(Error::read_only(LAYER).named(name));
        }
        let Some(meta) = self.objects.stat(name)? else { return Ok(None) };
        let version = format!("{name}\n{}", meta.tag);
        let object = Object { objects: self.objects.clone(), key: name.to_owned(), len: meta.len };
        Ok(Some(Arc::new(Fetched::new(Box::new(object), &version, &self.pieces))))
    }

    fn put(&self, name: &str, _bytes: &[u8], _cond: Put) -> Result<bool> {
        check_name(name)?;
        Err(Error::read_only(LAYER).named(name))
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        Ok(self.objects.stat(name)?.as_ref().map(meta))
    }

    fn copy(&self, _from: &str, to: &str) -> Result<()> {
        Err(Error::read_only(LAYER).named(to))
    }

    fn rename(&self, _from: &str, to: &str) -> Result<()> {
        Err(Error::read_only(LAYER).named(to))
    }

    fn remove(&self, name: &str) -> Result<bool> {
        Err(Error::read_only(LAYER).named(name))
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        self.objects.list(prefix, &mut |name, found| each(Entry::new(name, &|| Ok(Some(meta(found))))))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn lock(&self, name: &str, mode: Lock) -> Result<Guard> {
        check_name(name)?;
        match mode {
            Lock::Shared => Ok(Guard::nothing()),
            Lock::Exclusive => Err(Error::read_only(LAYER).named(name)),
        }
    }
}

fn meta(object: &ObjectMeta) -> Meta {
    let mut version = DefaultHasher::new();
    object.tag.hash(&mut version);
    Meta { len: object.len, allocated: object.len, version: version.finish() }
}

/// An object of a known length.
#[derive(Debug)]
struct Object {
    objects: Arc<dyn Objects>,
    key: String,
    len: u64,
}

impl Ranges for Object {
    fn len(&self) -> u64 {
        self.len
    }

    fn fetch(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        match self.objects.read_at(&self.key, offset, into)? {
            Some(n) if n == into.len() => Ok(()),
            found => {
                let found = found.map_or_else(|| "is gone".to_owned(), |n| format!("ends after {n} of {} bytes", into.len()));
                let message = format!("{found}: it was changed while the image is open, open it again");
                Err(Error::new(Kind::Conflict, LAYER, message).named(&self.key))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::sparsebundle::{Bundle, CreateOptions};
    use crate::device::{Access, BlockDeviceExt};
    use crate::store::{MemoryObjects, MemoryStore};

    #[test]
    fn a_file_that_gets_shorter_is_an_error() {
        let objects = Arc::new(MemoryObjects::default());
        objects.put("bands/0", &[1; 3 << 20], Put::Replace).unwrap();
        let folder = ObjectFolder::new(objects.clone(), 1 << 20);
        let file = folder.open("bands/0", Open::Read).unwrap().unwrap();
        assert_eq!(file.read_vec(0, 2).unwrap(), [1, 1]);
        objects.put("bands/0", &[2; 1 << 20], Put::Replace).unwrap();
        assert_eq!(file.read_vec(2 << 20, 4096).unwrap_err().kind(), Kind::Conflict);
        objects.remove("bands/0").unwrap();
        assert_eq!(file.read_vec(0, 3 << 20).unwrap_err().kind(), Kind::Conflict);
    }

    #[test]
    fn a_bundle_that_was_copied_there_is_a_disk() {
        let store = Arc::new(MemoryStore::default());
        let bundle = Bundle::create(store.clone(), &CreateOptions { len: 64 << 20, band_size: None }).unwrap();
        bundle.write_at(20 << 20, b"in the third band").unwrap();
        bundle.flush().unwrap();
        drop(bundle);
        let objects = Arc::new(MemoryObjects::default());
        let copied = store.list("", &mut |entry| {
            let file = store.open(entry.name, Open::Read)?.expect("a listed file");
            let bytes = file.read_vec(0, file.info().len as usize)?;
            objects.put(entry.name, &bytes, Put::Replace).map(drop)
        });
        copied.unwrap();

        let folder = Arc::new(ObjectFolder::new(objects.clone(), 1 << 20));
        assert!(Bundle::open(folder.clone(), Access::ReadWrite).is_err());
        let bundle = Bundle::open(folder, Access::ReadOnly).unwrap();
        assert_eq!(bundle.read_vec(20 << 20, 17).unwrap(), b"in the third band");
        assert_eq!(bundle.read_vec(0, 4096).unwrap(), [0; 4096]);
        objects.put("bands/2", b"short", Put::Replace).unwrap();
        let again = Bundle::open(Arc::new(ObjectFolder::new(objects, 1 << 20)), Access::ReadOnly).unwrap();
        assert_eq!(again.read_vec(16 << 20, 8).unwrap(), *b"short\0\0\0");
    }
}
