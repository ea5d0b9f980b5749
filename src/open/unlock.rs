//! Encryption around an image file or within a bundle: the first layer that is looked for, and laid off with a passphrase from
//! outside.

use std::fmt;
use std::sync::Arc;

use super::{Layer, OpenOptions};
use crate::crypt::{Description, Device, KeyMaterial, Locked, Secret};
use crate::device::{Access, BlockDevice};
use crate::{Error, Kind, Result};

const LAYER: &str = "encryption";

/// The message of the error about an image whose passphrase nobody has given.
pub const PASSPHRASE_NEEDED: &str = "the image is encrypted: a passphrase is needed";

/// Whoever knows the passphrases of images: an option, a keychain, a person. The library never asks by itself.
pub trait Keys: fmt::Debug {
    /// The passphrase of the image that is encrypted like this; `None` if it is not known. Asked only of images that are
    /// encrypted, once each time one is opened.
    fn passphrase(&self, image: &Description) -> Result<Option<Secret>>;
}

/// The same passphrase for every image.
impl Keys for Secret {
    fn passphrase(&self, _image: &Description) -> Result<Option<Secret>> {
        Ok(Some(self.clone()))
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
    locked.unlock(&passphrase(&description, options)?)
}

fn passphrase(description: &Description, options: &OpenOptions<'_>) -> Result<Secret> {
    if description.passphrases.is_empty() {
        return Err(Error::unsupported(LAYER, "the image opens with a private key only, and those are not used yet"));
    }
    let given = options.keys.map(|keys| keys.passphrase(description)).transpose()?.flatten();
    given.ok_or_else(|| Error::new(Kind::WrongKey, LAYER, PASSPHRASE_NEEDED))
}
