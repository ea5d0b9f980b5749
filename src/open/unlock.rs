//! Encryption around an image file or within a bundle: the first layer that is looked for, and laid off with a passphrase from
//! outside.

use std::fmt;
use std::sync::Arc;

use super::{Layer, OpenOptions};
use crate::crypt::{Description, Device, Key, KeyMaterial, Locked, Secret};
use crate::device::{Access, BlockDevice};
use crate::{Error, Kind, Result};

const LAYER: &str = "encryption";

/// The message of the error about an image whose passphrase nobody has given.
pub const PASSPHRASE_NEEDED: &str = "the image is encrypted: a passphrase is needed";
/// The same of an image that only a private key opens.
pub const PRIVATE_KEY_NEEDED: &str = "the image is encrypted: a private key is needed";

/// Whoever knows what opens images: an option, a keychain, a person. The library never asks by itself.
pub trait Keys: fmt::Debug {
    /// The passphrase or private key of the image that is encrypted like this; `None` if it is not known. Asked only of
    /// images that are encrypted, once each time one is opened.
    fn key(&self, image: &Description) -> Result<Option<Key>>;
}

/// The same passphrase for every image.
impl Keys for Secret {
    fn key(&self, _image: &Description) -> Result<Option<Key>> {
        Ok(Some(Key::Passphrase(self.clone())))
    }
}

/// The plain bytes of `file`: its own, or what its encryption hides.
pub(super) fn unlock(
    file: Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
    layers: &mut Vec<Layer>,
) -> Result<Arc<dyn BlockDevice>> {
    let Some(locked) = Locked::read(&*file)? else { return Ok(file) };
    let version = locked.describe().version;
    let keys = keys(&locked, options, layers)?;
    let plain = Device::new(file, locked, &keys)?;
    if options.access == Access::ReadWrite && plain.info().access == Access::ReadOnly {
        let message = format!("version {version} is only read; a converted copy can be changed");
        return Err(Error::new(Kind::ReadOnly, LAYER, message));
    }
    Ok(Arc::new(plain))
}

/// The keys behind a header, whose layer is kept whether or not it opens.
pub(super) fn keys(locked: &Locked, options: &OpenOptions<'_>, layers: &mut Vec<Layer>) -> Result<KeyMaterial> {
    let description = locked.describe();
    layers.push(Layer::Crypt(description.clone()));
    locked.unlock_with(&key(&description, options.keys)?)
}

/// What opens the image that is encrypted like this.
pub(super) fn key(description: &Description, keys: Option<&dyn Keys>) -> Result<Key> {
    let known = keys.map(|keys| keys.key(description)).transpose()?.flatten();
    known.ok_or_else(|| needed(description))
}

fn needed(description: &Description) -> Error {
    match (description.has_passphrase(), description.has_public_key()) {
        (true, _) => Error::new(Kind::WrongKey, LAYER, PASSPHRASE_NEEDED),
        (false, true) => Error::new(Kind::WrongKey, LAYER, PRIVATE_KEY_NEEDED),
        (false, false) => Error::new(Kind::Corrupt, LAYER, "the image's keys were erased: nothing opens it any more"),
    }
}
