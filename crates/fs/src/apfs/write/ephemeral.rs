//! The ephemeral objects of a checkpoint: free queues, which are rewritten, and others, which are
//! copied to every checkpoint.

use zerocopy::FromBytes;

use super::checkpoint::EphemeralObject;
use super::space::Space;
use super::tree::OidCounter;
use super::{LAYER, queue};
use crate::apfs::checkpoint::{self, data_area};
use crate::apfs::container::Container;
use crate::apfs::layout::{
    CheckpointEntryRaw, ObjectRaw, Oid, ReapListRaw, ReaperRaw, Xid, object_type, reaper_flags,
    store_checksum,
};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Kind, Result};

/// The ephemeral objects of a checkpoint besides the space manager.
#[derive(Debug)]
pub(super) struct Ephemeral {
    /// Checkpoint-map entry of the space manager.
    pub(super) manager: CheckpointEntryRaw,
    /// Reaper and reap lists, which are copied unchanged.
    pub(super) objects: Vec<(CheckpointEntryRaw, Vec<u8>)>,
    /// Nodes of the free queues.
    pub(super) queue_nodes: Vec<(Oid, Vec<u8>)>,
}

impl Ephemeral {
    /// Reads the ephemeral objects of a checkpoint.
    pub(super) fn read(container: &Container) -> Result<Self> {
        let (store, raw) = (&container.store, &container.superblock);
        let data = data_area(raw, store.blocks)?;
        let (mut manager, mut objects, mut queue_nodes) = (None, Vec::new(), Vec::new());
        for entry in &container.ephemeral {
            if entry.oid == raw.spaceman_oid {
                manager = Some(*entry);
                continue;
            }
            let bytes = checkpoint::read_ephemeral(store, &data, entry)?;
            if queue::is_node(entry.kind.get(), entry.subtype.get()) {
                queue_nodes.push((entry.oid.into(), bytes));
            } else {
                objects.push((*entry, bytes));
            }
        }
        let manager = manager.ok_or_else(|| {
            Error::new(
                Kind::Corrupt,
                LAYER,
                "no checkpoint map lists the space manager",
            )
        })?;
        Ok(Self {
            manager,
            objects,
            queue_nodes,
        })
    }

    /// Returns all ephemeral objects for the checkpoint of transaction `xid`. Object numbers are
    /// taken from `next_oid`.
    pub(super) fn of_next(
        &self,
        space: &mut Space,
        next_oid: &OidCounter,
        xid: Xid,
    ) -> Result<Vec<EphemeralObject>> {
        let mut roots = space.queue_roots();
        for root in &mut roots {
            if !root.is_some() {
                *root = next_oid.reserve(1);
            }
        }
        let mut queues = Vec::new();
        for (queue, root) in [&space.pool_queue, &space.main_queue]
            .into_iter()
            .zip(roots)
        {
            // Object numbers for all nodes but the root.
            let first = next_oid
                .reserve(queue.nodes(space.block_size(), root, Oid::NONE, xid)?.len() as u64 - 1);
            queues.extend(queue.nodes(space.block_size(), root, first, xid)?);
        }
        let manager = space.manager(roots);
        // No truncation: less than a hundred blocks in the largest container.
        let entry = CheckpointEntryRaw {
            size: narrow::<u32>(manager.len()).into(),
            ..self.manager
        };
        let mut objects = vec![EphemeralObject {
            entry,
            bytes: manager,
        }];
        for (entry, bytes) in &self.objects {
            let mut bytes = bytes.clone();
            if let Ok((head, _)) = ObjectRaw::mut_from_prefix(&mut bytes) {
                head.xid = xid.into();
            }
            store_checksum(&mut bytes);
            objects.push(EphemeralObject {
                entry: *entry,
                bytes,
            });
        }
        objects.extend(
            queues
                .into_iter()
                .map(|(oid, bytes)| EphemeralObject::queue_node(oid, bytes)),
        );
        Ok(objects)
    }

    /// Fails if an object is being deleted, or if there are ephemeral objects of unknown types.
    pub(super) fn check_idle(&self) -> Result<()> {
        for (entry, bytes) in &self.objects {
            let busy = match entry.kind.get() & object_type::MASK {
                object_type::REAPER => {
                    let reaper = ReaperRaw::read_from_prefix(bytes)
                        .ok()
                        .map(|(reaper, _)| reaper);
                    reaper.is_none_or(|reaper| reaper.flags.get() & reaper_flags::CONTINUE != 0)
                }
                object_type::REAP_LIST => ReapListRaw::read_from_prefix(bytes)
                    .ok()
                    .is_none_or(|(list, _)| list.count.get() != 0),
                kind => {
                    let message = format!(
                        "read-only: its checkpoints have objects of the unknown type {kind:#x}"
                    );
                    return Err(Error::unsupported(LAYER, message));
                }
            };
            if busy {
                return Err(Error::conflict(
                    LAYER,
                    "a deletion is in progress; let a Mac finish it first",
                ));
            }
        }
        Ok(())
    }
}
