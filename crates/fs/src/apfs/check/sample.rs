//! An intact sample container for tests, and access to each structure that a test corrupts.

use std::collections::BTreeMap;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::apfs::btree::{Addressing, Key, Tree, TreeKind};
use crate::apfs::build::{NewVolume, Options, Plan};
use crate::apfs::checkpoint::descriptor_area;
use crate::apfs::container::Container;
use crate::apfs::layout::*;
use crate::apfs::names::NameRules;
use crate::apfs::volume::Apfs;
use crate::apfs::{ApfsMut, WriteOptions};
use crate::source;
use crate::testing::sample;
use crate::{FileSystem, FileSystemExt, FileSystemMut, NewKind, NewNode, Timestamp, VolumePlan};
use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw_core::progress::Silent;
use bandsaw_core::sync::Mutex;

const BLOCK: usize = 4096;

/// A container with an instance of every structure that tests corrupt.
#[derive(Clone)]
pub(in crate::apfs) struct Sample {
    pub(in crate::apfs) bytes: Vec<u8>,
}

/// Returns a container of `len` bytes with one volume, and its free bytes.
pub(in crate::apfs) fn container(len: usize, tree: source::Tree) -> (Arc<Memory>, u64) {
    let volume = NewVolume {
        name: "Patient".into(),
        case_sensitive: false,
        uuid: uuid::Uuid::nil(),
    };
    let options = Options {
        volumes: vec![volume],
        created: Timestamp::from_seconds(1_700_000_000),
        latest: None,
        uuid: uuid::Uuid::nil(),
    };
    let device = Arc::new(Memory::zeros(len));
    let plan = Plan::new(tree, options).unwrap();
    let built = plan.build(&*device, &Silent).unwrap();
    (device, built.free)
}

/// Returns a container like [`container`] whose volume has no files.
#[cfg(test)]
pub(in crate::apfs) fn empty_container(len: usize) -> (Arc<Memory>, u64) {
    container(
        len,
        source::Tree::empty(Timestamp::from_seconds(1_700_000_000)),
    )
}

fn build(len: usize) -> Vec<u8> {
    let (device, _) = container(len, sample::tree(60, &[]));
    // A second checkpoint, so that the free queues are not empty.
    let container = Arc::new(Container::open(device.clone(), None).unwrap());
    let options = WriteOptions {
        now: Some(Timestamp::from_seconds(1_750_000_000)),
    };
    let fs = ApfsMut::open(&container, 1, options, &|_| unreachable!()).unwrap();
    fs.create(fs.root(), "later", &NewNode::new(NewKind::File))
        .unwrap();
    fs.unmount().unwrap();
    device.read_vec(0, len).unwrap()
}

impl Sample {
    /// Returns a container of `len` bytes, built once per length.
    pub(in crate::apfs) fn new(len: usize) -> Self {
        static BUILT: Mutex<BTreeMap<usize, Vec<u8>>> = Mutex::new(BTreeMap::new());
        Self {
            bytes: BUILT
                .lock()
                .entry(len)
                .or_insert_with(|| build(len))
                .clone(),
        }
    }

    pub(in crate::apfs) fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(Memory::read_only(self.bytes.clone()))
    }

    fn container(&self) -> Arc<Container> {
        Arc::new(Container::open(self.device(), None).unwrap())
    }

    fn fs(&self) -> Apfs {
        self.container()
            .open_volume(1, None, &|_| unreachable!())
            .unwrap()
    }

    pub(super) fn block(&mut self, block: u64) -> &mut [u8] {
        let at = block as usize * BLOCK;
        &mut self.bytes[at..at + BLOCK]
    }

    /// Modifies an object in place and updates its checksum.
    pub(super) fn object(&mut self, block: u64, change: impl FnOnce(&mut [u8])) {
        change(self.block(block));
        store_checksum(self.block(block));
    }

    fn as_raw<T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned>(
        &mut self,
        block: u64,
        change: impl FnOnce(&mut T),
    ) {
        self.object(block, |bytes| change(T::mut_from_prefix(bytes).unwrap().0));
    }

    /// Returns the block of the newest superblock.
    pub(super) fn superblock_at(&self) -> u64 {
        let raw = self.container().superblock;
        let area = descriptor_area(&raw, u64::MAX).unwrap();
        let slot =
            u64::from(raw.desc_index.get() + raw.desc_len.get() - 1) % (area.end - area.start);
        area.start + slot
    }

    /// Modifies the newest superblock and its copy in block 0.
    pub(super) fn superblock(&mut self, change: impl Fn(&mut ContainerRaw)) {
        let place = self.superblock_at();
        for block in [place, 0] {
            self.as_raw(block, &change);
        }
    }

    pub(super) fn copy(&mut self, change: impl Fn(&mut ContainerRaw)) {
        self.as_raw(0, change);
    }

    /// Modifies the checkpoint map.
    pub(super) fn map(&mut self, change: impl FnOnce(&mut [u8])) {
        let place = self.superblock_at() - 1;
        self.object(place, change);
    }

    /// Returns the block of an ephemeral object.
    fn ephemeral(&self, wanted: impl Fn(&CheckpointEntryRaw) -> bool) -> u64 {
        let container = self.container();
        container
            .ephemeral
            .iter()
            .find(|entry| wanted(entry))
            .map(|entry| entry.paddr.get())
            .unwrap()
    }

    pub(super) fn space(&mut self, change: impl FnOnce(&mut SpacemanRaw)) {
        let oid = self.container().superblock.spaceman_oid;
        let place = self.ephemeral(|entry| entry.oid == oid);
        self.as_raw(place, change);
    }

    /// Modifies an allocation zone.
    pub(super) fn zone(&mut self, index: usize, change: impl FnOnce(&mut [u8])) {
        let oid = self.container().superblock.spaceman_oid;
        let place = self.ephemeral(|entry| entry.oid == oid);
        self.object(place, |bytes| {
            change(&mut bytes[0x158 + 0x88 * index..][..0x88])
        });
    }

    fn space_head(&self) -> SpacemanRaw {
        SpacemanRaw::read_from_prefix(&self.container().spaceman().unwrap())
            .unwrap()
            .0
    }

    pub(super) fn reaper(&mut self, change: impl FnOnce(&mut ReaperRaw)) {
        let oid = self.container().superblock.reaper_oid;
        let place = self.ephemeral(|entry| entry.oid == oid);
        self.as_raw(place, change);
    }

    /// Modifies the root of the main device's free queue.
    pub(super) fn queue(&mut self, change: impl FnOnce(&mut [u8])) {
        let oid = self.space_head().queues[space_device::QUEUE_MAIN].tree_oid;
        let place = self.ephemeral(|entry| entry.oid == oid);
        self.object(place, change);
    }

    pub(super) fn cib_at(&self) -> u64 {
        let manager = self.container().spaceman().unwrap();
        let at = self.space_head().devices[0].addresses.get() as usize;
        u64::from_le_bytes(manager[at..at + 8].try_into().unwrap())
    }

    pub(super) fn cib(&mut self, change: impl FnOnce(&mut ChunkInfoRaw)) {
        let place = self.cib_at();
        self.as_raw(place, change);
    }

    /// Modifies the record of the first chunk.
    pub(super) fn chunk(&mut self, change: impl FnOnce(&mut ChunkRaw)) {
        let place = self.cib_at();
        self.object(place, |bytes| {
            change(
                ChunkRaw::mut_from_prefix(&mut bytes[size_of::<ChunkInfoRaw>()..])
                    .unwrap()
                    .0,
            )
        });
    }

    /// Flips the bit of a block of the first chunk.
    pub(super) fn flip(&mut self, block: u64) {
        let mut place = 0;
        self.chunk(|chunk| place = chunk.bitmap.get());
        self.block(place)[block as usize / 8] ^= 1 << (block % 8);
    }

    /// Returns the pool's bitmap.
    pub(super) fn pool_bitmap(&mut self) -> &mut [u8] {
        let (head, manager) = (self.space_head(), self.container().spaceman().unwrap());
        let at = head.pool_slots.get() as usize;
        let slot = u16::from_le_bytes(manager[at..at + 2].try_into().unwrap());
        self.block(head.ring_base.get() + u64::from(slot))
    }

    pub(super) fn container_omap(&mut self, change: impl FnOnce(&mut OmapRaw)) {
        let place = self.container().superblock.omap_oid.get();
        self.as_raw(place, change);
    }

    pub(super) fn volume_raw(&self) -> VolumeRaw {
        self.volume_place().0
    }

    fn volume_place(&self) -> (VolumeRaw, Paddr) {
        let container = self.container();
        let oid = container.volume_oids().next().unwrap();
        container.volume_superblock(oid).unwrap()
    }

    pub(super) fn volume(&mut self, change: impl FnOnce(&mut VolumeRaw)) {
        let place = self.volume_place().1;
        self.as_raw(place.0, change);
    }

    pub(super) fn omap(&mut self, change: impl FnOnce(&mut OmapRaw)) {
        let place = self.volume_raw().omap_oid.get();
        self.as_raw(place, change);
    }

    pub(super) fn omap_root(&self) -> u64 {
        let mut sample = self.clone();
        let mut place = 0;
        sample.omap(|raw| place = raw.tree_oid.get());
        place
    }

    pub(super) fn references_root(&self) -> u64 {
        self.volume_raw().extent_ref_tree_oid.get()
    }

    /// Modifies the tree information at the end of a root.
    pub(super) fn info(&mut self, root: u64, change: impl FnOnce(&mut TreeInfoRaw)) {
        self.object(root, |bytes| {
            change(TreeInfoRaw::mut_from_suffix(bytes).unwrap().1)
        });
    }

    /// Modifies the head of a node.
    pub(super) fn node(&mut self, place: u64, change: impl FnOnce(&mut NodeRaw)) {
        self.as_raw(place, change);
    }

    /// Returns the block of the root of the file-system tree.
    pub(super) fn files_root(&self) -> u64 {
        self.path_to(&Key::Record(RecordKey::single(FileId::ROOT_PARENT, 0)))[0]
    }

    /// Returns the block of the first leaf of the file-system tree.
    pub(super) fn first_leaf(&self) -> u64 {
        *self
            .path_to(&Key::Record(RecordKey::single(FileId::ROOT_PARENT, 0)))
            .last()
            .unwrap()
    }

    fn path_to(&self, key: &Key<'_>) -> Vec<u64> {
        self.fs()
            .files
            .descend(key)
            .unwrap()
            .into_iter()
            .map(|(node, _)| node.paddr.0)
            .collect()
    }

    /// Returns the number of the object at a path.
    pub(super) fn id(&self, path: &str) -> FileId {
        FileId(self.fs().resolve(path).unwrap().id.0)
    }

    /// Modifies key and value of the first file-system record that is not before `key`.
    pub(super) fn record(
        &mut self,
        key: &RecordKey<'_>,
        change: impl FnOnce(&mut [u8], &mut [u8]),
    ) {
        let fs = self.fs();
        self.change_record(&fs.files, &Key::Record(*key), change);
    }

    fn change_record(
        &mut self,
        tree: &Tree,
        key: &Key<'_>,
        change: impl FnOnce(&mut [u8], &mut [u8]),
    ) {
        let path = tree.descend(key).unwrap();
        let (leaf, _) = path.last().unwrap();
        let index = tree.partition(leaf, |found| found < *key).unwrap();
        let (key, value) = leaf.entry(index).unwrap();
        self.object(leaf.paddr.0, |bytes| {
            let (mut changed, mut with) =
                (bytes[key.clone()].to_vec(), bytes[value.clone()].to_vec());
            change(&mut changed, &mut with);
            bytes[key].copy_from_slice(&changed);
            bytes[value].copy_from_slice(&with);
        });
    }

    pub(super) fn inode(&mut self, path: &str, change: impl FnOnce(&mut InodeRaw)) {
        let id = self.id(path);
        self.record(&RecordKey::single(id, record_type::INODE), |_, value| {
            change(InodeRaw::mut_from_prefix(value).unwrap().0);
        });
    }

    /// Modifies the data stream of an inode.
    pub(super) fn stream(&mut self, path: &str, change: impl FnOnce(&mut DataStreamRaw)) {
        let id = self.id(path);
        self.record(&RecordKey::single(id, record_type::INODE), |_, value| {
            // It is the last field of inodes that this library writes.
            change(DataStreamRaw::mut_from_suffix(value).unwrap().1);
        });
    }

    pub(super) fn entry(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut [u8], &mut DirectoryEntryRaw),
    ) {
        let hash = NameRules::CaseInsensitive.hash(name);
        self.record(
            &RecordKey::entry(FileId::ROOT, name.as_bytes(), hash),
            |key, value| {
                change(key, DirectoryEntryRaw::mut_from_prefix(value).unwrap().0);
            },
        );
    }

    pub(super) fn extent(&mut self, path: &str, change: impl FnOnce(&mut FileExtentRaw)) {
        let id = self.id(path);
        self.record(
            &RecordKey::numbered(id, record_type::FILE_EXTENT, 0),
            |_, value| {
                change(FileExtentRaw::mut_from_bytes(value).unwrap());
            },
        );
    }

    /// Modifies the first extent reference.
    pub(super) fn reference(&mut self, change: impl FnOnce(&mut ExtentRefRaw)) {
        let container = self.container();
        let root = Oid(self.references_root());
        let tree = Tree::open(
            &container.store,
            TreeKind::ExtentReferences,
            Addressing::Physical,
            root,
        )
        .unwrap();
        let key = Key::Record(RecordKey::single(FileId(0), record_type::EXTENT_REF));
        self.change_record(&tree, &key, |_, value| {
            change(ExtentRefRaw::mut_from_bytes(value).unwrap())
        });
    }

    /// Modifies the first record of the volume's object map.
    pub(super) fn object_record(&mut self, change: impl FnOnce(&mut OmapValueRaw)) {
        let container = self.container();
        let tree = Tree::open(
            &container.store,
            TreeKind::Omap,
            Addressing::Physical,
            Oid(self.omap_root()),
        )
        .unwrap();
        self.change_record(&tree, &Key::Pair(0, 0), |_, value| {
            change(OmapValueRaw::mut_from_bytes(value).unwrap())
        });
    }

    pub(super) fn xattr(&mut self, name: &str, change: impl FnOnce(&mut [u8])) {
        let id = self.id("with attributes");
        self.record(
            &RecordKey::named(id, record_type::XATTR, name.as_bytes()),
            |_, value| change(value),
        );
    }
}
