//! The parts of a Core Storage group on several disks, and a logical volume as the disk.

use std::path::Path;
use std::sync::Arc;

use super::core_storage::{CoreStoragePeers, check_contents, is_core_storage};
use super::opening::Opening;
use super::volume::{LAYER, Volume};
use super::{FoundDisk, OpenOptions, contents};
use crate::device::{Access, BlockDevice};
use crate::fs::core_storage::LogicalDevice;
use crate::{Error, Kind, Result};

/// Adds the physical volumes of other images that the options name, and the descriptions of damage
/// that is passed over.
pub(super) fn add_physical_volumes(
    volumes: &mut [Volume],
    options: &OpenOptions<'_>,
) -> Result<()> {
    let named = options.physical_volumes;
    let first = volumes.iter().find(|volume| is_core_storage(volume));
    let Some(first) = first else {
        return match named.first() {
            None => Ok(()),
            Some(_) => Err(Error::invalid(
                LAYER,
                "the image has no Core Storage volume, so that other physical volumes have no use",
            )),
        };
    };
    let mut peers = CoreStoragePeers::default();
    peers.extend(&first.peers);
    for path in named {
        let found = peers_in(path, options).map_err(|error| error.in_file(path))?;
        peers.extend(&found);
    }
    let peers = Arc::new(peers);
    for volume in volumes.iter_mut().filter(|volume| is_core_storage(volume)) {
        volume.set_peers(peers.clone());
    }
    Ok(())
}

impl Opening<'_> {
    /// Makes the logical volume that the options name the disk.
    pub(super) fn use_logical_volume(&mut self, found: &mut FoundDisk, name: &str) -> Result<()> {
        let (device, damage) = logical_disk(&found.disk, name, &self.options)?;
        self.is_unlocked = device.is_encrypted();
        self.warnings.extend(damage);
        found.disk = device;
        Ok(())
    }
}

/// Opens the logical volume of this name or UUID on a disk, and returns the description of damage
/// that is passed over as well. [`Kind::ReadOnly`] if the options are those of a change.
pub(super) fn logical_disk(
    disk: &Arc<dyn BlockDevice>,
    name: &str,
    options: &OpenOptions<'_>,
) -> Result<(Arc<LogicalDevice>, Option<String>)> {
    if options.access == Access::ReadWrite {
        let message = "Core Storage volumes can only be read; copy the files to another image";
        return Err(Error::new(Kind::ReadOnly, LAYER, message));
    }
    let (_, mut volumes) = contents::find(disk)?;
    add_physical_volumes(&mut volumes, options)?;
    let mut failed = None;
    for volume in volumes.iter().filter(|volume| is_core_storage(volume)) {
        let group = volume.core_storage()?;
        match group.select(Some(name)) {
            Ok(logical) => {
                let device = volume.open_logical(&group, logical, options.keys)?;
                check_contents(volume, &*device)?;
                return Ok((device, volume.warning_of_older_state()));
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.unwrap_or_else(|| {
        Error::new(
            Kind::NotFound,
            LAYER,
            "the image has no Core Storage volume",
        )
    }))
}

/// Returns the physical volumes, and the volumes that may hold keys, in another image.
fn peers_in(path: &Path, options: &OpenOptions<'_>) -> Result<CoreStoragePeers> {
    let options = OpenOptions {
        access: Access::ReadOnly,
        image_format: None,
        shadows: &[],
        section: None,
        logical_volume: None,
        physical_volumes: &[],
        ..*options
    };
    let image = super::open(path, &options)?;
    let peers = CoreStoragePeers::of(image.volumes());
    if peers.is_empty() {
        return Err(Error::new(
            Kind::NotFound,
            LAYER,
            "the image has no physical volume of Core Storage",
        ));
    }
    Ok(peers)
}
