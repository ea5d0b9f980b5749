//! The checkpoint of a new container: its map, its ephemeral objects and the container superblock.

use zerocopy::{FromZeros, IntoBytes};

use super::XID;
use super::node::{TreeKind, put};
use super::places::Places;
use super::space::{Queues, Space};
use super::tree::{TreePlace, Writer, empty_root};
use super::volume::{omap, omap_record};
use crate::apfs::geometry::Geometry;
use crate::apfs::layout::{
    BlockSize, CHECKPOINT_MAP_LAST, CONTAINER_MAGIC, CheckpointEntryRaw, CheckpointMapRaw,
    ContainerRaw, ObjectRaw, Oid, Paddr, PrangeRaw, ReaperRaw, container_flags,
    container_incompatible, object_type, omap_flags, reaper_buffer, reaper_flags, storage,
    store_checksum,
};
use crate::build::output::Output;
use bandsaw_core::Result;
use bandsaw_core::device::BlockDevice;
use bandsaw_core::size::narrow;

/// Object numbers of the container's own objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContainerOids {
    pub(super) spaceman: Oid,
    pub(super) reaper: Oid,
    pub(super) queues: Queues,
    /// The next free object number.
    pub(super) next: Oid,
}

/// A writer for the checkpoint of a new container.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContainerWriter<'a> {
    pub(super) device: &'a dyn BlockDevice,
    pub(super) geometry: &'a Geometry,
    pub(super) places: &'a Places,
    pub(super) oids: ContainerOids,
    pub(super) uuid: [u8; 16],
    /// Superblocks of the volumes, by slot.
    pub(super) volumes: &'a [Oid],
}

impl ContainerWriter<'_> {
    /// Writes everything but block 0, and returns the contents of block 0.
    pub(super) fn write(&self) -> Result<Vec<u8>> {
        let space = Space::new(self.geometry, self.places);
        space.write_pool(&mut Output::new(self.device, 0))?;
        self.write_omap()?;
        let objects = self.ephemeral(&space);
        let size = self.geometry.block_size.bytes() as u64;
        let mut place = self.places.data;
        let mut entries = Vec::with_capacity(objects.len());
        for (object, bytes) in &objects {
            entries.push(CheckpointEntryRaw {
                kind: object.kind,
                subtype: object.subtype,
                size: narrow::<u32>(bytes.len()).into(), // some blocks
                pad: 0.into(),
                fs_oid: 0.into(),
                oid: object.oid,
                paddr: place.into(),
            });
            self.write_at(place, bytes)?;
            place = Paddr(place.0 + bytes.len() as u64 / size);
        }
        self.write_at(self.places.desc, &self.map(&entries))?;
        let superblock = self.superblock(narrow(place.0 - self.places.data.0)); // within the area of checkpoints
        self.write_at(Paddr(self.places.desc.0 + 1), &superblock)?;
        Ok(superblock)
    }

    fn write_omap(&self) -> Result<()> {
        let Places {
            omap: place,
            omap_tree: base,
            ..
        } = *self.places;
        let size = self.geometry.block_size;
        let out = Output::new(self.device, base.0 * u64::from(size.get()));
        let mut tree = Writer::new(
            TreeKind::omap(size),
            TreePlace {
                base,
                oids: None,
                xid: XID,
            },
            out,
        );
        let mut records: Vec<_> = self.volumes.iter().zip(&self.places.volumes).collect();
        records.sort_by_key(|(oid, _)| **oid);
        for (&oid, place) in records {
            let (key, value) = omap_record(size, oid, place.superblock, 0);
            tree.add(key.as_bytes(), value.as_bytes())?;
        }
        let (root, _) = tree.finish()?;
        self.write_at(
            place,
            &omap(size, place, root, omap_flags::MANUALLY_MANAGED),
        )
    }

    /// Returns the ephemeral objects in the order of their blocks.
    fn ephemeral(&self, space: &Space<'_>) -> Vec<(ObjectRaw, Vec<u8>)> {
        let ContainerOids {
            spaceman,
            reaper,
            queues,
            ..
        } = self.oids;
        let size = self.geometry.block_size;
        let queue = |oid| {
            (
                oid,
                TreeKind::free_queue(size),
                empty_root(TreeKind::free_queue(size), oid, XID),
            )
        };
        let head =
            |oid, kind, subtype| ObjectRaw::new(oid, XID, kind | storage::EPHEMERAL, subtype);
        let mut objects = vec![
            (
                head(spaceman, object_type::SPACE_MANAGER, 0),
                space.manager(spaceman, queues),
            ),
            (
                head(reaper, object_type::REAPER, 0),
                idle_reaper(size, reaper),
            ),
        ];
        for (oid, kind, bytes) in [queue(queues.pool), queue(queues.main)] {
            objects.push((head(oid, object_type::BTREE_ROOT, kind.subtype), bytes));
        }
        objects
    }

    fn map(&self, entries: &[CheckpointEntryRaw]) -> Vec<u8> {
        let place = Oid(self.places.desc.0);
        let head = CheckpointMapRaw {
            object: ObjectRaw::new(
                place,
                XID,
                object_type::CHECKPOINT_MAP | storage::PHYSICAL,
                0,
            ),
            flags: CHECKPOINT_MAP_LAST.into(),
            count: narrow::<u32>(entries.len()).into(), // four
        };
        let mut block = vec![0; self.geometry.block_size.bytes()];
        let at = put(&mut block, 0, &head);
        put(&mut block, at, entries);
        store_checksum(&mut block);
        block
    }

    fn superblock(&self, data_len: u32) -> Vec<u8> {
        let geometry = self.geometry;
        // A checkpoint map and this superblock.
        let desc_len = 2;
        let mut raw = ContainerRaw {
            object: ObjectRaw::new(
                Oid::CONTAINER,
                XID,
                object_type::CONTAINER | storage::EPHEMERAL,
                0,
            ),
            magic: CONTAINER_MAGIC,
            block_size: geometry.block_size.get().into(),
            block_count: geometry.blocks.into(),
            incompatible_features: container_incompatible::VERSION_2.into(),
            uuid: self.uuid,
            next_oid: self.oids.next.into(),
            next_xid: (XID.0 + 1).into(),
            desc_blocks: geometry.desc_blocks.into(),
            data_blocks: geometry.data_blocks.into(),
            desc_base: self.places.desc.into(),
            data_base: self.places.data.into(),
            desc_next: desc_len.into(),
            data_next: data_len.into(),
            desc_len: desc_len.into(),
            data_len: data_len.into(),
            spaceman_oid: self.oids.spaceman.into(),
            omap_oid: self.places.omap.0.into(),
            reaper_oid: self.oids.reaper.into(),
            max_volumes: geometry.max_volumes.into(),
            flags: self
                .places
                .keybag
                .map_or(0, |_| container_flags::SOFTWARE_CRYPTO)
                .into(),
            key_locker: self
                .places
                .keybag
                .map_or_else(PrangeRaw::default, |place| PrangeRaw::new(place, 1)),
            ..ContainerRaw::new_zeroed()
        };
        raw.ephemeral_info[0] = geometry.ephemeral_info.into();
        for (slot, volume) in raw.volume_oids.iter_mut().zip(self.volumes) {
            *slot = (*volume).into();
        }
        let mut block = vec![0; geometry.block_size.bytes()];
        put(&mut block, 0, &raw);
        store_checksum(&mut block);
        block
    }

    fn write_at(&self, place: Paddr, bytes: &[u8]) -> Result<()> {
        self.device
            .write_at(place.0 * u64::from(self.geometry.block_size.get()), bytes)
    }
}

/// Returns a reaper with nothing to delete.
fn idle_reaper(block_size: BlockSize, oid: Oid) -> Vec<u8> {
    let raw = ReaperRaw {
        object: ObjectRaw::new(oid, XID, object_type::REAPER | storage::EPHEMERAL, 0),
        next_id: 1.into(),
        flags: reaper_flags::ALWAYS.into(),
        buffer_size: reaper_buffer(block_size).into(),
        ..ReaperRaw::new_zeroed()
    };
    let mut block = vec![0; block_size.bytes()];
    put(&mut block, 0, &raw);
    store_checksum(&mut block);
    block
}
