//! Creation of snapshots, for tests of volumes that have some.

use zerocopy::little_endian::U64;
use zerocopy::{FromZeros, IntoBytes};

use super::commit::relocate_physical;
use super::space::{AllocationUse, Block};
use super::tree::{ChangingTree, OidCounter};
use super::volume::Volume;
use super::{ApfsMut, LAYER};
use crate::apfs::btree::{Addressing, Node, Sizes, TreeKind};
use crate::apfs::build::node::TreeKind as Shape;
use crate::apfs::build::tree::{TreePlace, Writer, empty_root};
use crate::apfs::layout::{
    ObjectRaw, Oid, OmapSnapshotRaw, Paddr, RecordKey, SNAPSHOT_NAMES_ID, SnapshotNameRaw,
    SnapshotRaw, Xid, object_type, put_name, record_type, storage, tree_flags,
};
use crate::build::output::Output;
use bandsaw_core::Result;
use bandsaw_core::device::{BlockDeviceExt, Memory};

impl ApfsMut {
    /// Takes a snapshot of the current state of the volume.
    pub fn take_snapshot(&self, name: &str) -> Result<()> {
        self.shared.write().take_snapshot(name)
    }
}

impl Volume {
    fn take_snapshot(&mut self, name: &str) -> Result<()> {
        self.commit()?;
        self.begin_empty()?;
        let xid = self.xid();
        let mut blocks = Vec::new();
        let superblock = self.copy_superblock(xid, &mut blocks)?;
        self.name_snapshot(xid, name, superblock, &mut blocks)?;
        let references = self.take_block()?;
        let kind = Shape::physical(self.store.block_size, object_type::EXTENT_REF_TREE);
        blocks.push((references, empty_root(kind, Oid(references.0), xid)));
        self.list_snapshot(xid, &mut blocks)?;
        let raw = &mut self.read.raw;
        raw.snapshots = (raw.snapshots.get() + 1).into();
        raw.allocated_blocks = (raw.allocated_blocks.get() + 1).into();
        for (place, bytes) in &blocks {
            self.store
                .device
                .write_at(self.store.offset(*place), bytes)?;
        }
        let kind = (TreeKind::ExtentReferences, kind);
        let numbers = OidCounter::physical();
        self.kept
            .insert(0, self.read.raw.extent_ref_tree_oid.into());
        self.references = ChangingTree::open(
            &self.store,
            kind,
            Addressing::Physical,
            Oid(references.0),
            numbers,
        )?;
        self.commit()
    }

    fn take_block(&mut self) -> Result<Paddr> {
        Ok(Paddr(self.space.take(1, AllocationUse::Metadata)?.start))
    }

    fn copy_superblock(&mut self, xid: Xid, blocks: &mut Vec<Block>) -> Result<Paddr> {
        let place = self.take_block()?;
        let mut raw = self.read.raw;
        raw.object = ObjectRaw::new(
            Oid(place.0),
            xid,
            object_type::VOLUME | storage::PHYSICAL,
            0,
        );
        for oid in [
            &mut raw.omap_oid,
            &mut raw.extent_ref_tree_oid,
            &mut raw.snap_meta_tree_oid,
        ] {
            *oid = 0.into();
        }
        blocks.push(self.filled((place, raw.as_bytes().to_vec())));
        Ok(place)
    }

    fn name_snapshot(
        &mut self,
        xid: Xid,
        name: &str,
        superblock: Paddr,
        blocks: &mut Vec<Block>,
    ) -> Result<()> {
        let shape = Shape::physical(self.store.block_size, object_type::SNAP_META_TREE);
        let numbers = OidCounter::physical();
        let root = self.read.raw.snap_meta_tree_oid.into();
        let mut tree = ChangingTree::open(
            &self.store,
            (TreeKind::Snapshots, shape),
            Addressing::Physical,
            root,
            numbers,
        )?;
        let raw = SnapshotRaw {
            extent_ref_tree_oid: self.read.raw.extent_ref_tree_oid,
            superblock_oid: superblock.into(),
            created: self.date(),
            changed: self.date(),
            file_id: self.next_id().into(),
            extent_ref_tree_type: (object_type::BTREE_ROOT | storage::PHYSICAL).into(),
            flags: 0.into(),
        };
        let mut value = raw.as_bytes().to_vec();
        put_name(name.as_bytes(), &mut value);
        let on_disk = |key: RecordKey<'_>| {
            let mut bytes = Vec::new();
            key.put(&mut bytes);
            bytes
        };
        tree.put(
            &on_disk(RecordKey::single(
                crate::apfs::layout::FileId(xid.0),
                record_type::SNAPSHOT,
            )),
            &value,
        )?;
        let key = RecordKey::named(
            SNAPSHOT_NAMES_ID,
            record_type::SNAPSHOT_NAME,
            name.as_bytes(),
        );
        tree.put(
            &on_disk(key),
            SnapshotNameRaw { xid: xid.into() }.as_bytes(),
        )?;
        let change = relocate_physical(&mut tree, &mut self.space, xid, blocks)?;
        self.count_blocks(change);
        self.read.raw.snap_meta_tree_oid = tree.root().into();
        Ok(())
    }

    /// Rewrites the snapshot tree of the object map, which has one node.
    fn list_snapshot(&mut self, xid: Xid, blocks: &mut Vec<Block>) -> Result<()> {
        let size = self.store.block_size;
        let shape = Shape {
            subtype: object_type::OMAP_SNAPSHOT,
            flags: tree_flags::PHYSICAL,
            fixed: Some((size_of::<U64>(), size_of::<OmapSnapshotRaw>())),
            ..Shape::omap(size)
        };
        let old = self.omap.0.snapshot_tree_oid.get();
        let place = self.take_block()?;
        let memory = Memory::zeros(size.bytes());
        let place_of = TreePlace {
            base: Paddr(place.0),
            oids: None,
            xid,
        };
        let mut writer = Writer::new(shape, place_of, Output::new(&memory, 0));
        if old != 0 {
            let bytes = self.store.read(LAYER, Paddr(old), 1)?;
            let sizes = Sizes {
                key: size_of::<U64>(),
                value: size_of::<OmapSnapshotRaw>(),
            };
            let node = Node::parse(Oid(old), Paddr(old), bytes, Some(sizes));
            let node = node.map_err(|message| {
                bandsaw_core::Error::new(bandsaw_core::Kind::Corrupt, LAYER, message)
            })?;
            for (key, value) in (0..node.count).filter_map(|index| node.record(index)) {
                writer.add(key, value)?;
            }
            self.space.give(old..old + 1)?;
        } else {
            self.read.raw.allocated_blocks = (self.read.raw.allocated_blocks.get() + 1).into();
        }
        writer.add(
            U64::from(xid).as_bytes(),
            OmapSnapshotRaw::new_zeroed().as_bytes(),
        )?;
        writer.finish()?;
        blocks.push((place, memory.read_vec(0, size.bytes())?));
        let raw = &mut self.omap.0;
        raw.snapshot_count = (raw.snapshot_count.get() + 1).into();
        raw.snapshot_tree_oid = place.0.into();
        raw.most_recent_snapshot = xid.into();
        Ok(())
    }
}
