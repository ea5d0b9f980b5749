//! Access to a volume for verbs that read stored contents and store them again.

use std::ops::Deref;
use std::sync::Arc;

use super::orphans;
use crate::Result;
use crate::address::VolumeSelector;
use crate::fs::FileSystemMut;
use crate::open::{Image, Keys};
use crate::progress::Progress;

const LAYER: &str = "volume";

/// A volume that is open for changes and whose contents can be read to be stored again: zeros in them
/// are no lost data.
#[derive(Debug)]
pub struct RewritableVolume(Arc<dyn FileSystemMut>);

impl RewritableVolume {
    /// Opens the selected volume of `image`; without a selector, the first writable one. `keys` has the
    /// key of an encrypted one.
    ///
    /// [`Kind::Undecided`](crate::Kind::Undecided) if the image stores data that may be the storage of
    /// places in use: these read as zeros, which would become the contents. Other errors are those of
    /// [`Image::file_system_mut_as`].
    pub fn open(
        image: &Image,
        which: Option<&VolumeSelector>,
        keys: Option<&dyn Keys>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        // Before the volume is opened, which marks it as in use.
        orphans::check(image, LAYER, progress)?;
        image.file_system_mut_as(which, keys).map(Self)
    }
}

impl Deref for RewritableVolume {
    type Target = dyn FileSystemMut;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}
