//! The opening of encrypted archives around images.

use std::path::Path;
use std::sync::Arc;

use super::layer::ArchiveLayer;
use super::layer::Layer;
use super::opening::Opening;
use super::remote::{self, RemoteTarget};
use super::{Keys, NetworkOptions, OpenOptions, look_at};
use crate::crypt::aea::{Archive, ArchiveDescription, ArchiveKey, ArchiveKeys, LockedArchive};
use crate::device::{Access, BlockDevice};
use crate::store::{LocalFile, Open};
use crate::{Error, Kind, Result};

const LAYER: &str = "encrypted archive";

impl Opening<'_> {
    /// Returns the contents of `file` if it is an archive, otherwise `file`. The layer is recorded
    /// even if unlocking fails.
    pub(super) fn archive(&mut self, file: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
        let Some(locked) = LockedArchive::read(&*file)? else {
            return Ok(file);
        };
        let description = locked.describe();
        let at = self.layers.len();
        self.layers.push(Layer::Archive(ArchiveLayer {
            description: description.clone(),
            contents: None,
        }));
        if self.options.access == Access::ReadWrite {
            let message = "encrypted archives can only be read; convert the image to change it";
            return Err(Error::new(Kind::ReadOnly, LAYER, message));
        }
        let keys = match self.options.keys {
            Some(keys) => self.keys_of(&description, keys)?,
            None => ArchiveKeys::default(),
        };
        let archive = Arc::new(Archive::new(file, locked.unlock(&keys)?));
        let description = archive.description().clone();
        self.warnings
            .extend(description.signature.warning().map(ToOwned::to_owned));
        if let Some(layer) = self.layers.get_mut(at) {
            *layer = Layer::Archive(ArchiveLayer {
                description,
                contents: Some(archive.clone()),
            });
        }
        Ok(archive)
    }

    /// Returns the keys of an archive: those that are known, or the private key of system software from the
    /// address in the metadata.
    fn keys_of(&self, archive: &ArchiveDescription, keys: &dyn Keys) -> Result<ArchiveKeys> {
        let mut known = keys.archive_keys(archive)?;
        if known.key.is_none() && archive.has_wrapped_key && keys.may_fetch_key() {
            let Some(url) = &archive.key_url else {
                let message = "the metadata has no address of the private key";
                return Err(Error::new(Kind::NotFound, LAYER, message));
            };
            let key = remote::private_key(url, self.options.network)?;
            known.key = Some(ArchiveKey::Private(key));
        }
        Ok(known)
    }

    /// Returns true if a layer of the image is encrypted, or the archive around it.
    pub(super) fn is_secret(&self) -> bool {
        self.layers.iter().any(Layer::is_secret)
    }
}

/// Returns true if `file` is an archive. Fails for one that is damaged, or of an unknown profile.
pub(crate) fn is_archive(file: &dyn BlockDevice) -> Result<bool> {
    LockedArchive::read(file).map(|archive| archive.is_some())
}

/// Returns what the archive at `path` stores unencrypted; `None` if it is no archive. The file is not
/// locked.
pub fn archive(path: &Path, network: NetworkOptions) -> Result<Option<ArchiveDescription>> {
    let options = OpenOptions {
        network,
        ..OpenOptions::default()
    };
    let read = || -> Result<_> {
        let file: Arc<dyn BlockDevice> = match remote::find(path, &options)? {
            Some(RemoteTarget::File(file)) => file,
            Some(RemoteTarget::Folder(..) | RemoteTarget::Snapshot(_)) => return Ok(None),
            None if look_at(path)?.is_dir() => return Ok(None),
            // Not locked, as for reading the header of an encrypted image.
            None => match LocalFile::open(path, Open::Read)? {
                Some(file) => Arc::new(file),
                None => return Ok(None),
            },
        };
        LockedArchive::read(&*file)
    };
    let found = read().map_err(|error| error.in_file(path))?;
    Ok(found.map(|locked| locked.describe()))
}
