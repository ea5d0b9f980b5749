//! The volumes that nodes belong to, by the object maps of all checkpoints: a node does not state its
//! volume.

use std::sync::Arc;

use crate::apfs::btree::Key;
use crate::apfs::container::Container;
use crate::apfs::layout::{Oid, Paddr};
use crate::apfs::omap::Omap;
use bandsaw_core::Result;
use bandsaw_core::progress::Progress;

/// Largest number of older checkpoints whose object maps are read.
const MAX_CHECKPOINTS: usize = 64;

/// The numbers of objects, each with the number of its volume.
#[derive(Debug, Default)]
pub(super) struct NodeOwners {
    /// In ascending order.
    all: Vec<(u64, u32)>,
    /// The only volume of the container.
    only: Option<u32>,
}

impl NodeOwners {
    /// Reads the object maps of all volumes. What cannot be read is left out.
    pub(super) fn read(container: &Arc<Container>, progress: &dyn Progress) -> Result<Self> {
        let mut owners = Self::default();
        if container.volume_oids().count() == 1 {
            owners.only = Some(1);
            return Ok(owners);
        }
        owners.add(container, progress)?;
        for &xid in container.checkpoints().iter().take(MAX_CHECKPOINTS) {
            progress.check()?;
            let device = container.store.device.clone();
            if let Ok(older) = Container::open(device, Some(xid)) {
                owners.add(&Arc::new(older), progress)?;
            }
            owners.all.sort_unstable();
            owners.all.dedup();
        }
        Ok(owners)
    }

    fn add(&mut self, container: &Arc<Container>, progress: &dyn Progress) -> Result<()> {
        for (number, oid) in (1..).zip(container.volume_oids()) {
            progress.check()?;
            let Ok((raw, _)) = container.volume_superblock(oid) else {
                continue;
            };
            let Ok(omap) = Omap::open(&container.store, Paddr(raw.omap_oid.get())) else {
                continue;
            };
            let Ok(mut cursor) = omap.tree.first() else {
                continue;
            };
            while let Ok(Some(record)) = cursor.next() {
                if let Key::Pair(oid, _) = record.key
                    && self.all.last() != Some(&(oid, number))
                {
                    self.all.push((oid, number));
                }
            }
        }
        Ok(())
    }

    /// Returns the number of the volume of a node, `None` if it is unknown.
    pub(super) fn of(&self, oid: Oid) -> Option<u32> {
        if self.only.is_some() {
            return self.only;
        }
        let at = self.all.partition_point(|&(other, _)| other < oid.0);
        self.all
            .get(at)
            .filter(|&&(other, _)| other == oid.0)
            .map(|&(_, number)| number)
    }
}
