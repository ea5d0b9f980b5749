//! Creation of snapshots (§8.9): a copy of the volume's superblock, its name and record, an entry of the
//! object map, and a new tree of extent references, effective with one checkpoint.

use zerocopy::little_endian::U64;
use zerocopy::{FromZeros, IntoBytes};

use super::commit::relocate_physical;
use super::kept_references::KeptReferences;
use super::space::{AllocationUse, Block};
use super::tree::{ChangingTree, OidCounter};
use super::volume::Volume;
use super::{ApfsMut, LAYER};
use crate::Timestamp;
use crate::apfs::btree::{Addressing, Key, TreeKind};
use crate::apfs::build::node::TreeKind as Shape;
use crate::apfs::build::tree::{TreePlace, Writer, empty_root};
use crate::apfs::layout::{
    BACKUP_ROLE, ObjectRaw, Oid, OmapSnapshotRaw, Paddr, RecordKey, SNAPSHOT_NAMES_ID,
    SnapshotNameRaw, SnapshotRaw, Xid, nanoseconds, object_type, put_name, record_type, storage,
    tree_flags,
};
use crate::build::output::Output;
use bandsaw_core::device::{BlockDeviceExt, Memory};
use bandsaw_core::{Error, Reason, Result};

/// Maximum length of a snapshot's name in bytes, which is that of a file.
const MAX_NAME: usize = 255;
/// Number of blocks that a snapshot may take beside those of a commit: two new objects, and a path of
/// each of two trees with a split on every level.
const BLOCKS: u64 = 32;

impl ApfsMut {
    /// Takes a snapshot of the current state of the volume, with everything that was changed before.
    /// It is durable when this returns. `created` is the time that it records; `None` for the time of
    /// the operation.
    ///
    /// # Errors
    ///
    /// [`Kind::Conflict`](bandsaw_core::Kind) if there is a snapshot of this name, [`Kind::Invalid`](bandsaw_core::Kind) for a name that is empty, has a
    /// slash or NUL, or is longer than 255 bytes, and [`Kind::Limit`](bandsaw_core::Kind) if the volume is full; nothing is
    /// changed then.
    pub fn take_snapshot(&self, name: &str, created: Option<Timestamp>) -> Result<()> {
        if name.is_empty() || name.len() > MAX_NAME || name.contains(['/', '\0']) {
            let message = format!(
                "invalid name of a snapshot: expected 1 to {MAX_NAME} bytes without slash and NUL"
            );
            return Err(Error::invalid(LAYER, message).named(name));
        }
        let mut volume = self.shared.write();
        self.shared.commit_reaped(&mut volume)?;
        volume.take_snapshot(name, created)
    }

    /// Gives the volume the role of a destination of Time Machine's backups.
    pub fn set_backup_role(&self) -> Result<()> {
        self.shared.write().change(false, |volume| {
            volume.read.raw.role = BACKUP_ROLE.into();
            Ok(())
        })
    }
}

impl Volume {
    fn take_snapshot(&mut self, name: &str, created: Option<Timestamp>) -> Result<()> {
        let key = RecordKey::named(
            SNAPSHOT_NAMES_ID,
            record_type::SNAPSHOT_NAME,
            name.as_bytes(),
        );
        let names = self.snapshot_tree()?;
        if names.reader()?.get(&Key::Record(key), |_| ())?.is_some() {
            return Err(Error::conflict(LAYER, "the snapshot already exists").named(name));
        }
        self.begin_empty()?;
        if self.space.free() < self.needed() + BLOCKS {
            return Err(Error::limit(LAYER, "the volume is full").because(Reason::VolumeFull));
        }
        let created = created.map_or(self.date(), nanoseconds);
        let done = self.add_snapshot(name, created, names);
        self.failed.record(done)
    }

    /// Writes a snapshot. After an error the volume in memory is not that of any transaction.
    fn add_snapshot(&mut self, name: &str, created: U64, mut names: ChangingTree) -> Result<()> {
        let xid = self.xid();
        let mut blocks = Vec::new();
        let superblock = self.copy_superblock(xid, &mut blocks)?;
        self.name_snapshot((xid, created), name, superblock, &mut names, &mut blocks)?;
        let references = self.take_block()?;
        let kind = Shape::physical(self.store.block_size, object_type::EXTENT_REF_TREE);
        blocks.push((references, empty_root(kind, Oid(references.0), xid)));
        self.list_snapshot(xid, &mut blocks)?;
        let raw = &mut self.read.raw;
        raw.snapshots = raw.snapshots.get().saturating_add(1).into();
        raw.allocated_blocks = raw.allocated_blocks.get().saturating_add(1).into();
        for (place, bytes) in &blocks {
            self.store
                .device
                .write_at(self.store.offset(*place), bytes)?;
        }
        let kind = (TreeKind::ExtentReferences, kind);
        let numbers = OidCounter::physical();
        let before = KeptReferences::new(self.read.raw.extent_ref_tree_oid.into());
        self.kept.insert(0, before);
        self.references = ChangingTree::open(
            &self.store,
            kind,
            Addressing::Physical,
            Oid(references.0),
            numbers,
        )?;
        self.commit()
    }

    /// Opens the tree of the names and records of snapshots.
    fn snapshot_tree(&self) -> Result<ChangingTree> {
        let shape = Shape::physical(self.store.block_size, object_type::SNAP_META_TREE);
        ChangingTree::open(
            &self.store,
            (TreeKind::Snapshots, shape),
            Addressing::Physical,
            self.read.raw.snap_meta_tree_oid.into(),
            OidCounter::physical(),
        )
    }

    fn take_block(&mut self) -> Result<Paddr> {
        Ok(Paddr(
            self.space.allocate(1, AllocationUse::Metadata)?.start,
        ))
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
        (xid, created): (Xid, U64),
        name: &str,
        superblock: Paddr,
        tree: &mut ChangingTree,
        blocks: &mut Vec<Block>,
    ) -> Result<()> {
        let raw = SnapshotRaw {
            extent_ref_tree_oid: self.read.raw.extent_ref_tree_oid,
            superblock_oid: superblock.into(),
            created,
            changed: created,
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
        let change = relocate_physical(tree, &mut self.space, xid, blocks)?;
        self.count_blocks(change);
        self.read.raw.snap_meta_tree_oid = tree.root().into();
        Ok(())
    }

    /// Adds a record to the snapshot tree of the object map, which the first snapshot makes.
    fn list_snapshot(&mut self, xid: Xid, blocks: &mut Vec<Block>) -> Result<()> {
        let size = self.store.block_size;
        let shape = Shape {
            subtype: object_type::OMAP_SNAPSHOT,
            flags: tree_flags::PHYSICAL,
            fixed: Some((size_of::<U64>(), size_of::<OmapSnapshotRaw>())),
            ..Shape::omap(size)
        };
        let (key, value) = (U64::from(xid), OmapSnapshotRaw::new_zeroed());
        let root = match self.omap.0.snapshot_tree_oid.get() {
            0 => {
                let place = self.take_block()?;
                let memory = Memory::zeros(size.bytes());
                let place_of = TreePlace {
                    base: Paddr(place.0),
                    oids: None,
                    xid,
                };
                let mut writer = Writer::new(shape, place_of, Output::new(&memory, 0));
                writer.add(key.as_bytes(), value.as_bytes())?;
                writer.finish()?;
                blocks.push((place, memory.read_vec(0, size.bytes())?));
                self.count_blocks(1);
                Oid(place.0)
            }
            root => {
                let mut tree = ChangingTree::open(
                    &self.store,
                    (TreeKind::OmapSnapshots, shape),
                    Addressing::Physical,
                    Oid(root),
                    OidCounter::physical(),
                )?;
                tree.put(key.as_bytes(), value.as_bytes())?;
                let change = relocate_physical(&mut tree, &mut self.space, xid, blocks)?;
                self.count_blocks(change);
                tree.root()
            }
        };
        let raw = &mut self.omap.0;
        raw.snapshot_count = raw.snapshot_count.get().saturating_add(1).into();
        raw.snapshot_tree_oid = root.into();
        raw.most_recent_snapshot = xid.into();
        Ok(())
    }
}
