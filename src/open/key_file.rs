//! Where an image keeps its keys: the beginning of its file, or the token of a bundle. Opened apart from the rest, because
//! changing keys needs nothing else of the image.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Keys, LAYER};
use crate::container::sparsebundle;
use crate::crypt::{self, Description, KeyRing, Locked};
use crate::device::{Access, BlockDevice};
use crate::store::{Guard, Local, LocalFile, Lock, Open};
use crate::{Error, Kind, Result};

/// The encryption header of an image, not unlocked.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    file: Arc<dyn BlockDevice>,
    description: Description,
    _locks: Vec<Guard>,
}

impl KeyFile {
    /// Looks for a header in the image at `path`, a file or a sparse bundle; `None` if it is not encrypted, or no image at
    /// all. [`Access::ReadWrite`] takes the image's lock, reading its header needs none.
    pub fn open(path: &Path, access: Access) -> Result<Option<Self>> {
        let kept = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::new(Kind::NotFound, LAYER, "does not exist"),
            _ => Error::io(LAYER, "look at", error),
        };
        let meta = fs::metadata(path).map_err(|error| kept(error).in_file(path))?;
        let opened = if meta.is_dir() { Self::in_bundle(path, access) } else { Self::in_file(path, access) };
        opened.map_err(|error| error.in_file(path))
    }

    fn in_file(path: &Path, access: Access) -> Result<Option<Self>> {
        let how = if access == Access::ReadWrite { Open::Write } else { Open::Read };
        let Some(file) = LocalFile::open(path, how)? else { return Ok(None) };
        if access == Access::ReadWrite {
            file.lock(Lock::Exclusive)?;
        }
        Self::new(path.to_owned(), Arc::new(file), Vec::new())
    }

    fn in_bundle(path: &Path, access: Access) -> Result<Option<Self>> {
        let store = Local::new(path);
        if !sparsebundle::is_bundle(&store)? {
            return Ok(None);
        }
        let (how, locks) = match access {
            Access::ReadWrite => (Open::Write, sparsebundle::lock_unused(&store)?),
            Access::ReadOnly => (Open::Read, Vec::new()),
        };
        let Some((name, token)) = sparsebundle::open_token(&store, how)? else { return Ok(None) };
        let path = path.join(name);
        Self::new(path.clone(), token, locks).map_err(|error| error.in_file(path))
    }

    fn new(path: PathBuf, file: Arc<dyn BlockDevice>, locks: Vec<Guard>) -> Result<Option<Self>> {
        let Some(locked) = Locked::read(&*file)? else { return Ok(None) };
        Ok(Some(Self { path, file, description: locked.describe(), _locks: locks }))
    }

    /// What the header tells without a key.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Unlocks it by what `keys` knows, to change the ways into the image.
    pub fn unlock(&self, keys: &dyn Keys) -> Result<KeyRing> {
        let key = super::unlock::key(&self.description, Some(keys));
        key.and_then(|key| KeyRing::unlock(self.file.clone(), &key)).map_err(|error| error.in_file(&self.path))
    }

    /// Removes every way into the image, durably: nothing opens it any more.
    pub fn erase_keys(self) -> Result<()> {
        crypt::erase_keys(&*self.file).map_err(|error| error.in_file(&self.path))
    }
}
