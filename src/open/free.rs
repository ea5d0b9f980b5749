//! Which bytes of a volume no file uses, by the map of its file system.

use std::sync::Arc;

use super::apfs;
use super::volume::{Volume, VolumeFormat};
use crate::Result;
use crate::fs::foreign::Foreign;
use crate::fs::hfsplus::{HfsPlus, HfsPlusFree};
use crate::fs::{FileSystem, FreeMap};

impl VolumeFormat {
    /// What it is where only its free space is read.
    const fn foreign(self) -> Option<Foreign> {
        match self {
            Self::Ext => Some(Foreign::Ext),
            Self::Fat => Some(Foreign::Fat),
            Self::ExFat => Some(Foreign::ExFat),
            Self::Ntfs => Some(Foreign::Ntfs),
            _ => None,
        }
    }
}

impl Volume {
    /// Which of its bytes no file uses, in bytes of the volume: on the disk they lie `range.start`
    /// further. `None`: the map of this format is not read yet.
    ///
    /// It is handed out whatever state the volume is in; whoever is going to rely on it asks
    /// [`FreeMap::is_in_order`].
    pub fn free_map(&self) -> Result<Option<Arc<dyn FreeMap>>> {
        match self.format {
            VolumeFormat::HfsPlus | VolumeFormat::Hfsx => {
                Ok(Some(Arc::new(HfsPlusFree::open(self.device().clone())?)))
            }
            VolumeFormat::Apfs => Ok(Some(Arc::new(self.container()?.free_map()?))),
            other => other
                .foreign()
                .map(|foreign| Ok(Arc::new(foreign.free_map(self.device().clone())?) as _))
                .transpose(),
        }
    }

    /// Where the volume ends by what it says of itself, in bytes of its device. `None`: nothing
    /// here reads that of volumes of this format.
    pub(crate) fn told_len(&self) -> Result<Option<u64>> {
        match self.format {
            VolumeFormat::HfsPlus | VolumeFormat::Hfsx => {
                HfsPlus::open(self.device().clone()).map(|fs| Some(fs.volume().total))
            }
            VolumeFormat::Apfs => {
                let container = self.container()?;
                Ok(Some(
                    container
                        .block_count()
                        .saturating_mul(container.block_size().into()),
                ))
            }
            other => other
                .foreign()
                .map(|foreign| Ok(foreign.free_map(self.device().clone())?.end()))
                .transpose(),
        }
    }

    /// The same, once a quick check has found that the volume was left in order and that its map is
    /// not plainly wrong: what a trim goes by. [`Kind::Conflict`](crate::Kind::Conflict) or
    /// [`Kind::Corrupt`](crate::Kind::Corrupt) if not.
    pub fn trusted_free_map(&self) -> Result<Option<Arc<dyn FreeMap>>> {
        match self.format {
            VolumeFormat::HfsPlus | VolumeFormat::Hfsx => Ok(Some(Arc::new(
                HfsPlus::open(self.device().clone())?.trusted_free_map()?,
            ))),
            VolumeFormat::Apfs => Ok(Some(Arc::new(self.container()?.trusted_free_map()?))),
            other => other
                .foreign()
                .map(|foreign| {
                    Ok(Arc::new(foreign.free_map(self.device().clone())?.trusted()?) as _)
                })
                .transpose(),
        }
    }

    /// The same with what a trim makes free first: what only older checkpoints of an APFS container
    /// wait for.
    pub fn foretold_free_map(&self) -> Result<Option<Arc<dyn FreeMap>>> {
        match self.format {
            VolumeFormat::Apfs => Ok(Some(self.container()?.foretold_free_map()?)),
            _ => self.trusted_free_map(),
        }
    }

    /// Bytes of an APFS container that older checkpoints hold back; `None` for anything else, or if
    /// it cannot be read.
    pub fn pending(&self) -> Option<u64> {
        if self.format != VolumeFormat::Apfs {
            return None;
        }
        self.container().ok().map(|container| container.pending())
    }

    /// Makes free what only older checkpoints of an APFS container wait for, as far as it can be
    /// changed: none of its volumes is open for changes. Nothing elsewhere.
    pub(crate) fn release_queued(&self) -> Result<()> {
        match self.format {
            VolumeFormat::Apfs => apfs::release_queued(&self.container()?),
            _ => Ok(()),
        }
    }
}
