//! Rollback of a container to an older checkpoint.
//!
//! The objects of the older checkpoint are written into the rings again, as a transaction after all
//! others. The blocks that it refers to stay in place, and so does the newest checkpoint until the
//! new superblock is written: after a crash the container is in its previous state or in the older
//! one.

use std::sync::Arc;

use zerocopy::FromBytes;

use super::LAYER;
use super::checkpoint::{EphemeralObject, Rings};
use super::ephemeral::Ephemeral;
use crate::apfs::checkpoint::{self, data_area, descriptor_area};
use crate::apfs::container::Container;
use crate::apfs::layout::{ContainerRaw, ObjectRaw, Xid, store_checksum};
use crate::{LockedVolume, VolumeKey};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::problem::{Problems, Severity};
use bandsaw_core::progress::Progress;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Kind, Result};

/// A valid checkpoint that is not the newest.
#[derive(Debug)]
pub struct OlderCheckpoint {
    container: Container,
    newest: ContainerRaw,
}

impl OlderCheckpoint {
    /// Plans to make the checkpoint of transaction `xid` the newest of the container on `device`.
    /// Returns `None` if it already is.
    ///
    /// # Errors
    ///
    /// [`Kind::NotFound`] if the checkpoint has been overwritten, [`Kind::Corrupt`] if it is not
    /// valid, [`Kind::WrongKey`] if `key` does not return the keys of encrypted volumes, which
    /// cannot be checked without them.
    pub fn plan(
        device: &Arc<dyn BlockDevice>,
        xid: u64,
        key: &dyn Fn(&LockedVolume) -> Result<VolumeKey>,
        progress: &dyn Progress,
    ) -> Result<Option<Self>> {
        let container = Arc::new(Container::open(device.clone(), Some(xid))?);
        let anchor = checkpoint::anchor(&**device, &mut Vec::new())?;
        let newest = checkpoint::superblocks(&container.store, &anchor)?
            .into_iter()
            .next();
        let Some(newest) = newest.filter(|newest| newest.xid() != xid) else {
            return Ok(None);
        };
        if container
            .store
            .block_size
            .of(container.store.blocks)
            .is_none_or(|bytes| bytes > device.info().len)
        {
            return Err(Error::new(
                Kind::Corrupt,
                LAYER,
                "the image is shorter than the container",
            ));
        }
        let mut problems = Problems::default();
        let unseen = container.check_state("", key, &mut problems, progress)?;
        if let Some(error) = unseen.into_iter().next() {
            return Err(error);
        }
        if let Some(problem) = problems
            .into_iter()
            .find(|problem| problem.severity > Severity::Note)
        {
            let message = format!("damaged: {}", problem.error);
            return Err(
                Error::new(Kind::Corrupt, LAYER, message).named(format!("checkpoint {xid}"))
            );
        }
        let container = Arc::into_inner(container).ok_or_else(|| {
            Error::conflict(LAYER, "the container is open elsewhere in this process")
        })?;
        Ephemeral::read(&container)?.check_idle()?;
        Ok(Some(Self {
            container,
            newest: newest.raw,
        }))
    }

    /// Returns a description of the rollback for the user, in one sentence.
    pub fn step(&self) -> String {
        let (from, to) = (self.newest.object.xid, self.container.checkpoint());
        format!(
            "roll back from checkpoint {from} to {to}: later changes are lost, and files changed \
             since may have wrong contents"
        )
    }

    /// Performs the rollback; it is durable when this returns.
    pub fn apply(&self) -> Result<()> {
        let (store, old, newest) = (
            &self.container.store,
            &self.container.superblock,
            &self.newest,
        );
        let xid = Xid(newest
            .object
            .xid
            .get()
            .max(newest.next_xid.get().saturating_sub(1))
            .saturating_add(1));
        let objects = self.objects(xid)?;
        let size = u64::from(store.block_size.get());
        let blocks: u64 = objects
            .iter()
            .map(|object| object.bytes.len() as u64 / size)
            .sum();
        let (desc, data) = (
            descriptor_area(old, store.blocks)?,
            data_area(old, store.blocks)?,
        );
        let mut raw = *old;
        // The number of maps is the same, as the number of objects is.
        let windows = [
            (old.desc_index, old.desc_len),
            (newest.desc_index, newest.desc_len),
        ];
        raw.desc_next = beside(
            newest.desc_next.get(),
            old.desc_len.get().into(),
            desc.end - desc.start,
            &windows,
        )?
        .into();
        let windows = [
            (old.data_index, old.data_len),
            (newest.data_index, newest.data_len),
        ];
        raw.data_next = beside(
            newest.data_next.get(),
            blocks,
            data.end - data.start,
            &windows,
        )?
        .into();
        Rings {
            store,
            raw: &mut raw,
        }
        .write(xid, &objects)?;
        Rings {
            store,
            raw: &mut raw,
        }
        .write_anchor()
    }

    /// Returns the checkpoint's objects, renumbered to transaction `xid`.
    fn objects(&self, xid: Xid) -> Result<Vec<EphemeralObject>> {
        let ephemeral = Ephemeral::read(&self.container)?;
        let mut objects = vec![EphemeralObject {
            entry: ephemeral.manager,
            bytes: self.container.spaceman()?,
        }];
        objects.extend(
            ephemeral
                .objects
                .into_iter()
                .map(|(entry, bytes)| EphemeralObject { entry, bytes }),
        );
        objects.extend(
            ephemeral
                .queue_nodes
                .into_iter()
                .map(|(oid, bytes)| EphemeralObject::queue_node(oid, bytes)),
        );
        for object in &mut objects {
            if let Ok((head, _)) = ObjectRaw::mut_from_prefix(&mut object.bytes) {
                head.xid = xid.into();
            }
            store_checksum(&mut object.bytes);
        }
        Ok(objects)
    }
}

type Window = (zerocopy::little_endian::U32, zerocopy::little_endian::U32);

/// Returns the first slot of `wanted` consecutive ones in a ring of `all` blocks that are in none
/// of the windows, searching from `first`.
fn beside(first: u32, wanted: u64, all: u64, windows: &[Window]) -> Result<u32> {
    let taken = |slot: u64| {
        windows.iter().any(|(start, len)| {
            (slot + all - u64::from(start.get()) % all) % all < u64::from(len.get())
        })
    };
    // Number of consecutive free slots that end with the current one. The search goes once around
    // the ring plus the length of a run.
    let mut free = 0;
    for step in 0..all.saturating_add(wanted) {
        let slot = (u64::from(first) + step) % all;
        free = if taken(slot) { 0 } else { free + 1 };
        if free == wanted && wanted <= all {
            // No truncation: below the size of the ring.
            return Ok(narrow((slot + all + 1 - wanted) % all));
        }
    }
    let message = format!(
        "cannot roll back: no room for {wanted} blocks of a checkpoint beside the two others, in \
         an area of {all} blocks"
    );
    Err(Error::limit(LAYER, message))
}
