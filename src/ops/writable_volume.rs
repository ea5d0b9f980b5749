//! Access to a volume for verbs that read stored contents and store them again.

use std::ops::Deref;
use std::sync::Arc;

use super::orphans;
use crate::address::VolumeSelector;
use crate::fs::FileSystemMut;
use crate::open::{Image, Keys};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

const LAYER: &str = "volume";

/// A volume that is open for changes and whose contents can be read to be stored again: zeros in them
/// are no lost data.
#[derive(Debug, Clone)]
pub struct RewritableVolume(Arc<dyn FileSystemMut>);

impl RewritableVolume {
    /// Opens the selected volume of `image`; without a selector, the first writable one. `keys` has the
    /// key of an encrypted one.
    ///
    /// [`Kind::Undecided`] if the image stores data that may be the storage of places in use: these
    /// read as zeros, which would become the contents. Other errors are those of
    /// [`Image::file_system_mut_as`].
    pub fn open(
        image: &Image,
        which: Option<&VolumeSelector>,
        keys: Option<&dyn Keys>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        // Before the volume is opened, which marks it as in use.
        orphans::refuse_orphans(image, LAYER, progress)?;
        image.file_system_mut_as(which, keys).map(Self)
    }
}

impl Deref for RewritableVolume {
    type Target = dyn FileSystemMut;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// A volume that is open for changes by programs, most of which do not need what it stores. Its
/// contents can be stored again under the condition of [`RewritableVolume`].
#[derive(Debug, Clone)]
pub struct WritableVolume {
    volume: RewritableVolume,
    /// The reason why contents cannot be stored again.
    doubt: Option<String>,
}

impl WritableVolume {
    /// Opens the selected volume of `image`; without a selector, the first writable one. `keys` has the
    /// key of an encrypted one. Errors are those of [`Image::file_system_mut_as`].
    pub fn open(
        image: &Image,
        which: Option<&VolumeSelector>,
        keys: Option<&dyn Keys>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let doubt = match orphans::refuse_orphans(image, LAYER, progress) {
            Ok(()) => None,
            Err(error) if error.io_kind().is_some() || error.kind() == Kind::Cancelled => {
                return Err(error);
            }
            Err(error) => Some(error.message().to_owned()),
        };
        let volume = image
            .file_system_mut_as(which, keys)
            .map(RewritableVolume)?;
        Ok(Self { volume, doubt })
    }

    /// Returns the volume for contents that are read to be stored again.
    ///
    /// [`Kind::Undecided`] if the image stores data that may be the storage of places in use.
    pub fn rewritable(&self) -> Result<&RewritableVolume> {
        match &self.doubt {
            None => Ok(&self.volume),
            Some(why) => Err(Error::new(Kind::Undecided, LAYER, why.clone())),
        }
    }

    /// Returns the volume for any other use.
    pub fn shared(&self) -> Arc<dyn FileSystemMut> {
        self.volume.0.clone()
    }
}

impl Deref for WritableVolume {
    type Target = dyn FileSystemMut;

    fn deref(&self) -> &Self::Target {
        &*self.volume
    }
}
