//! The location of an image's keys: the header of its file, or the token of a bundle. Opened
//! separately, because changing keys needs nothing else of the image.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::remote::{self, RemoteTarget};
use super::{Keys, LAYER, NetworkOptions, OpenOptions, interrupted, is_archive, look_at};
use crate::container::sparsebundle;
use crate::crypt::{self, Description, KeyRing, LockedHeader};
use crate::device::{Access, BlockDevice};
use crate::store::{Guard, Local, LocalFile, Lock, Open, Store};
use crate::{Error, Result};

const IN_BUCKET: &str = "cannot erase keys in a bucket: it may keep older versions; remove all \
                         objects of the image instead";
const IN_SNAPSHOTS: &str = "cannot erase keys: the snapshots have them too; remove the snapshots \
                            first (`bandsaw snapshot delete`)";

/// The encryption header of an image, still locked.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    file: Arc<dyn BlockDevice>,
    description: Description,
    /// Places that retain copies of the keys after they are erased here, and the remedy.
    copies: Option<&'static str>,
    _locks: Vec<Guard>,
}

impl KeyFile {
    /// Opens the encryption header of the image at `path`, a file or a sparse bundle; `None` if it
    /// is not encrypted, or not an image. [`Kind::Unsupported`](crate::Kind) for an encrypted archive,
    /// [`Kind::Corrupt`](crate::Kind) for a bundle whose token holds bytes that are not a header.
    /// [`Access::ReadWrite`] locks the image, reading its header
    /// does not.
    pub fn open(path: &Path, access: Access, network: NetworkOptions) -> Result<Option<Self>> {
        let options = OpenOptions {
            access,
            network,
            ..OpenOptions::default()
        };
        let found = |found: Option<Self>| {
            if found.is_some() {
                interrupted::refuse_or_warn(path, access)?;
            }
            Ok(found)
        };
        let opened = || match remote::find(path, &options)? {
            Some(RemoteTarget::Folder(store, _)) => {
                Self::in_bundle(path, &*store, access, Some(IN_BUCKET))
            }
            Some(RemoteTarget::Snapshot(store)) => Self::in_bundle(path, &*store, access, None),
            Some(RemoteTarget::File(file)) => Self::new(path.to_owned(), file, None, Vec::new()),
            None if look_at(path)?.is_dir() => {
                Self::in_bundle(path, &Local::new(path), access, None)
            }
            None => Self::in_file(path, access),
        };
        opened()
            .and_then(found)
            .map_err(|error: Error| error.in_file(path))
    }

    fn in_file(path: &Path, access: Access) -> Result<Option<Self>> {
        let file = match access {
            Access::ReadWrite => LocalFile::open_locked(path, Open::Write, Lock::Exclusive)?,
            Access::ReadOnly => LocalFile::open(path, Open::Read)?,
        };
        let Some(file) = file else { return Ok(None) };
        Self::new(path.to_owned(), Arc::new(file), None, Vec::new())
    }

    fn in_bundle(
        path: &Path,
        store: &dyn Store,
        access: Access,
        copies: Option<&'static str>,
    ) -> Result<Option<Self>> {
        if !sparsebundle::is_bundle(store)? {
            return Ok(None);
        }
        let (mode, locks) = match access {
            Access::ReadWrite => {
                sparsebundle::check_changeable(store)?;
                (Open::Write, sparsebundle::lock_unused(store)?)
            }
            Access::ReadOnly => (Open::Read, Vec::new()),
        };
        if let Some(damage) = sparsebundle::damaged_token(store)? {
            return Err(damage);
        }
        let Some((name, token)) = sparsebundle::open_token(store, mode)? else {
            return Ok(None);
        };
        let path = path.join(name);
        let copies = match copies {
            None if sparsebundle::has_snapshots(store)? => Some(IN_SNAPSHOTS),
            known => known,
        };
        Self::new(path.clone(), token, copies, locks).map_err(|error| error.in_file(path))
    }

    fn new(
        path: PathBuf,
        file: Arc<dyn BlockDevice>,
        copies: Option<&'static str>,
        locks: Vec<Guard>,
    ) -> Result<Option<Self>> {
        if is_archive(&*file)? {
            let message = "is an encrypted archive, which has no key entries";
            return Err(Error::unsupported(LAYER, message));
        }
        let Some(locked) = LockedHeader::read(&*file)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            path,
            file,
            description: locked.describe(),
            copies,
            _locks: locks,
        }))
    }

    /// Returns the properties that the header stores unencrypted.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Unlocks the header with `keys`, to change the key slots.
    pub fn unlock(&self, keys: &dyn Keys) -> Result<KeyRing> {
        let key = super::unlock::key(&self.description, Some(keys));
        key.and_then(|key| KeyRing::unlock(self.file.clone(), &key))
            .map_err(|error| error.in_file(&self.path))
    }

    /// Refuses to erase keys of which copies are known to remain.
    pub fn check_erasable(&self) -> Result<()> {
        self.copies.map_or(Ok(()), |copies| {
            Err(Error::conflict(LAYER, copies).in_file(&self.path))
        })
    }

    /// Removes every key slot, durably: the image can no longer be opened.
    pub fn erase_keys(self) -> Result<()> {
        self.check_erasable()?;
        crypt::erase_keys(&*self.file).map_err(|error| error.in_file(&self.path))
    }
}
