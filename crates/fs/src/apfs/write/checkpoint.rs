//! The checkpoint areas: maps and superblocks in one, ephemeral objects in the other (§3). Both are
//! rings.

use zerocopy::FromZeros;

use super::LAYER;
use crate::apfs::build::node::put;
use crate::apfs::checkpoint::{data_area, descriptor_area};
use crate::apfs::layout::{
    BlockSize, CHECKPOINT_MAP_LAST, CheckpointEntryRaw, CheckpointMapRaw, ContainerRaw, ObjectRaw,
    Oid, Paddr, Xid, checkpoint_map_capacity, object_type, storage, store_checksum,
};
use crate::apfs::store::Store;
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Result};

/// An ephemeral object of a checkpoint; the address in its entry is set when it is written.
#[derive(Debug)]
pub(super) struct EphemeralObject {
    pub(super) entry: CheckpointEntryRaw,
    pub(super) bytes: Vec<u8>,
}

impl EphemeralObject {
    /// Returns the ephemeral object for a node of a free queue.
    pub(super) fn queue_node(oid: Oid, bytes: Vec<u8>) -> Self {
        let mut entry = CheckpointEntryRaw::new_zeroed();
        if let Ok((head, _)) = <ObjectRaw as zerocopy::FromBytes>::ref_from_prefix(&bytes) {
            (entry.kind, entry.subtype) = (head.kind, head.subtype);
        }
        entry.size = narrow::<u32>(bytes.len()).into(); // a block
        entry.oid = oid.into();
        Self { entry, bytes }
    }
}

/// Returns the number of blocks of ephemeral objects that a checkpoint may have so that the next
/// one fits beside it. A container that has grown keeps the rings of a smaller one.
pub(super) fn room(raw: &ContainerRaw, size: BlockSize) -> u64 {
    let maps = u64::from(raw.desc_blocks.get() / 2).saturating_sub(1);
    u64::from(raw.data_blocks.get() / 2).min(maps * checkpoint_map_capacity(size) as u64)
}

/// The checkpoint areas of a container; `raw` is the superblock of its last checkpoint.
#[derive(Debug)]
pub(super) struct Rings<'a> {
    pub(super) store: &'a Store,
    pub(super) raw: &'a mut ContainerRaw,
}

impl Rings<'_> {
    /// Writes the checkpoint of transaction `xid`. It is durable when this returns; if this fails,
    /// the previous checkpoint remains current.
    pub(super) fn write(mut self, xid: Xid, objects: &[EphemeralObject]) -> Result<()> {
        let size = u64::from(self.store.block_size.get());
        let (desc, data) = (
            descriptor_area(self.raw, self.store.blocks)?,
            data_area(self.raw, self.store.blocks)?,
        );
        let (desc_blocks, data_blocks) = (desc.end - desc.start, data.end - data.start);
        let mut raw = *self.raw;
        let blocks: u64 = objects
            .iter()
            .map(|object| object.bytes.len() as u64 / size)
            .sum();
        let capacity = checkpoint_map_capacity(self.store.block_size);
        let maps = objects.len().div_ceil(capacity) as u64;
        let free = |all: u64, used: u32, wanted: u64| {
            all.checked_sub(used.into())
                .is_some_and(|free| wanted <= free)
        };
        if !free(data_blocks, raw.data_len.get(), blocks)
            || !free(desc_blocks, raw.desc_len.get(), maps + 1)
        {
            let message = format!(
                "no room for the changes: the checkpoint area of the container is too small for \
                 {blocks} blocks beside the last checkpoint"
            );
            return Err(Error::limit(LAYER, message));
        }
        let (desc_first, data_first) = (
            u64::from(raw.desc_next.get()),
            u64::from(raw.data_next.get()),
        );
        let mut entries = Vec::with_capacity(objects.len());
        let mut at = data_first % data_blocks;
        for object in objects {
            entries.push(CheckpointEntryRaw {
                paddr: (data.start + at).into(),
                ..object.entry
            });
            // An object may wrap around the end of the ring.
            for block in object.bytes.chunks(to_usize(size)) {
                self.put(Paddr(data.start + at), block)?;
                at = (at + 1) % data_blocks;
            }
        }
        for (map, entries) in (0..maps).zip(entries.chunks(capacity)) {
            let place = Paddr(desc.start + (desc_first + map) % desc_blocks);
            self.put(place, &self.map(place, xid, entries, map + 1 == maps))?;
        }
        self.store.device.flush()?;
        // No truncation: all of these are below the sizes of the rings.
        raw.object.xid = xid.into();
        raw.next_xid = (xid.0 + 1).into();
        (raw.desc_index, raw.desc_len) = (
            narrow::<u32>(desc_first % desc_blocks).into(),
            narrow::<u32>(maps + 1).into(),
        );
        (raw.data_index, raw.data_len) = (
            narrow::<u32>(data_first % data_blocks).into(),
            narrow::<u32>(blocks).into(),
        );
        raw.desc_next = narrow::<u32>((desc_first + maps + 1) % desc_blocks).into();
        raw.data_next = narrow::<u32>(at).into();
        *self.raw = raw;
        let place = Paddr(desc.start + (desc_first + maps) % desc_blocks);
        let superblock = self.superblock();
        self.put(place, &superblock)?;
        self.store.device.flush()
    }

    /// Updates the superblock in block 0, for readers that look only there.
    pub(super) fn write_anchor(&mut self) -> Result<()> {
        let block = self.superblock();
        let device = &self.store.device;
        device.write_at(0, &block).and_then(|()| device.flush())
    }

    /// Returns the block of the container superblock, with its checksum.
    fn superblock(&mut self) -> Vec<u8> {
        let mut block = vec![0; self.store.block_size.bytes()];
        put(&mut block, 0, self.raw);
        store_checksum(&mut block);
        block
    }

    fn map(&self, place: Paddr, xid: Xid, entries: &[CheckpointEntryRaw], last: bool) -> Vec<u8> {
        let head = CheckpointMapRaw {
            object: ObjectRaw::new(
                Oid(place.0),
                xid,
                object_type::CHECKPOINT_MAP | storage::PHYSICAL,
                0,
            ),
            flags: if last { CHECKPOINT_MAP_LAST } else { 0 }.into(),
            count: narrow::<u32>(entries.len()).into(), // as many as fit
        };
        let mut block = vec![0; self.store.block_size.bytes()];
        let at = put(&mut block, 0, &head);
        put(&mut block, at, entries);
        store_checksum(&mut block);
        block
    }

    fn put(&self, place: Paddr, block: &[u8]) -> Result<()> {
        self.store.device.write_at(self.store.offset(place), block)
    }
}
