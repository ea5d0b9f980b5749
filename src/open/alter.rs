//! What becomes of a volume as a whole: its length, its journal.

use std::sync::Arc;

use super::volume::{Volume, VolumeFormat};
use crate::device::BlockDevice;
use crate::fs::ResizeVolume;
use crate::fs::hfsplus::{self, HfsPlusMut, WriteOptions};
use crate::{Error, Result};

const LAYER: &str = "volume";

impl Volume {
    /// Opens it to make it longer or shorter, on `device` if that is longer than its partition.
    /// [`Kind::Unsupported`](crate::Kind::Unsupported) if its format is not resized.
    pub(crate) fn open_resizable(&self, device: Arc<dyn BlockDevice>) -> Result<Box<dyn ResizeVolume>> {
        match self.format {
            VolumeFormat::HfsPlus | VolumeFormat::Hfsx => {
                if hfsplus::probe(&*device)? == Some(hfsplus::Probed::Wrapped) {
                    let message = "an HFS+ volume in an HFS wrapper is not resized; copy its files to a new image";
                    return Err(Error::unsupported(LAYER, message).named(self.place()));
                }
                Ok(Box::new(HfsPlusMut::open(device, WriteOptions::default())?))
            }
            other => Err(Error::unsupported(LAYER, format!("{other} is not resized yet")).named(self.place())),
        }
    }

    /// Gives the volume a journal that stays, of `size` bytes or as large as Apple's formatter makes it.
    /// [`Kind::Conflict`](crate::Kind::Conflict) if it has one.
    pub fn enable_journal(&self, size: Option<u64>) -> Result<()> {
        self.open_hfs_plus()?.enable_journal(size)
    }

    /// Takes the volume's journal away, with what waits in it made. [`Kind::NotFound`](crate::Kind::NotFound) if it has none.
    pub fn disable_journal(&self) -> Result<()> {
        self.open_hfs_plus()?.disable_journal()
    }

    fn open_hfs_plus(&self) -> Result<HfsPlusMut> {
        match self.format {
            VolumeFormat::HfsPlus | VolumeFormat::Hfsx => HfsPlusMut::open(self.device().clone(), WriteOptions::default()),
            other => Err(Error::unsupported(LAYER, format!("{other} has no journal to be given or taken")).named(self.place())),
        }
    }
}
