//! The state of a writable volume, modified by one thread at a time; operations are atomic.

use std::sync::Arc;

use zerocopy::IntoBytes;

use super::checkpoint::room;
use super::container::{KEPT_CHECKPOINTS, WORTH_RELEASING, write_whole};
use super::ephemeral::Ephemeral;
use super::inode::Inode;
use super::kept_references::KeptReferences;
use super::space::Space;
use super::tree::{ChangingTree, OidCounter};
use super::{LAYER, WriteOptions, preconditions};
use crate::apfs::btree::{Addressing, Key, TreeKind};
use crate::apfs::build::node::TreeKind as Shape;
use crate::apfs::container::Container;
use crate::apfs::layout::{
    ContainerRaw, FileId, Oid, OmapRaw, Paddr, RecordKey, VolumeRaw, Xid, nanoseconds, object_type,
    record_type,
};
use crate::apfs::omap::{Omap, View};
use crate::apfs::store::Store;
use crate::apfs::volume::Apfs;
use crate::{FileSystem, LockedVolume, Timestamp, VolumeInfo, VolumeKey};
use bandsaw_core::device::failed::FailureFlag;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Reason, Result};

/// Number of changed nodes above which a commit is made implicitly.
const MAX_CHANGED: u64 = 2048;

/// A function that returns the key of an encrypted volume.
pub(super) type AskKey<'a> = &'a dyn Fn(&LockedVolume) -> Result<VolumeKey>;

/// A volume and the state for modifying it.
#[derive(Debug)]
pub(super) struct Volume {
    /// The volume with all changes.
    pub(super) read: Apfs,
    pub(super) store: Store,
    /// Container superblock as of the last commit.
    pub(super) container: ContainerRaw,
    pub(super) ephemeral: Ephemeral,
    pub(super) space: Space,
    pub(super) files: ChangingTree,
    /// Extent-reference tree.
    pub(super) references: ChangingTree,
    /// Extent-reference trees of its snapshots, newest first, which are never changed.
    pub(super) kept: Vec<KeptReferences>,
    pub(super) omap: (OmapRaw, ChangingTree),
    pub(super) container_omap: (OmapRaw, ChangingTree),
    /// Object number of the volume.
    pub(super) oid: Oid,
    /// Next number of a virtual object.
    pub(super) next_oid: OidCounter,
    pub(super) options: WriteOptions,
    /// True if a transaction is in progress.
    begun: bool,
    /// Volume superblock as of the last commit.
    committed: VolumeRaw,
    pub(super) failed: FailureFlag,
    /// Unlinked files.
    pub(super) orphans: Vec<FileId>,
    /// Objects that have no name yet.
    pub(super) nameless: Vec<FileId>,
    /// True if the volume's superblock records this program as the last modifier.
    pub(super) signed: bool,
    /// True if the superblock in block 0 is older than the last commit.
    pub(super) anchor_is_old: bool,
}

impl Volume {
    /// Opens volume `number`, from 1, of a container for changes.
    pub(super) fn open(
        container: &Arc<Container>,
        number: u32,
        options: WriteOptions,
        key: AskKey<'_>,
    ) -> Result<Self> {
        container.store.device.info().check_writable(LAYER)?;
        // A change of an older state would overwrite what the newer one uses.
        preconditions::check_newest(container)?;
        // Allocation is only safe with a correct free map.
        container.trusted_free_map()?;
        let index = number
            .checked_sub(1)
            .and_then(|index| usize::try_from(index).ok());
        let oid = index.and_then(|index| container.volume_oids().nth(index));
        let Some(oid) = oid else {
            return Err(Error::not_found(LAYER, format!("volume {number}")));
        };
        let (raw, _) = container.volume_superblock(oid)?;
        let ephemeral = Ephemeral::read(container)?;
        // All reasons against a change come before the first tree is opened for it.
        preconditions::check_writable(container, &raw, &ephemeral)
            .map_err(|error| error.named(raw.label()))?;
        let read = container.open_volume(number, None, key)?;
        let store = container.store.clone();
        let next_oid = OidCounter::new(container.superblock.next_oid.get());
        let size = store.block_size;
        let omap_tree = |raw: &OmapRaw| {
            let kind = (TreeKind::Omap, Shape::omap(size));
            ChangingTree::open(
                &store,
                kind,
                Addressing::Physical,
                raw.tree_oid.into(),
                OidCounter::physical(),
            )
        };
        let omap = Omap::open(&store, Paddr(raw.omap_oid.get()))?.raw;
        // Extents of snapshots stay allocated when files lose them.
        let kept = container.snapshot_references(&raw, &omap)?;
        let kept = kept.into_iter().map(KeptReferences::new).collect();
        let omap = (omap, omap_tree(&omap)?);
        let container_omap = container.view.omap.raw;
        let container_omap = (container_omap, omap_tree(&container_omap)?);
        let references = (
            TreeKind::ExtentReferences,
            Shape::physical(size, object_type::EXTENT_REF_TREE),
        );
        let references = ChangingTree::open(
            &store,
            references,
            Addressing::Physical,
            raw.extent_ref_tree_oid.into(),
            OidCounter::physical(),
        )?;
        let xid = Xid(container.checkpoint());
        let view = View {
            omap: Arc::new(Omap {
                raw: omap.0,
                tree: omap.1.reader()?,
            }),
            xid,
        };
        let kind = (
            TreeKind::Files {
                hashed: read.names.hashed(),
            },
            Shape::files(size, read.cipher.is_some()),
        );
        let stored = Addressing::Virtual(view, read.cipher.clone());
        let files = ChangingTree::open(
            &store,
            kind,
            stored,
            raw.root_tree_oid.into(),
            next_oid.clone(),
        )?;
        let space = Space::open(&store, container.spaceman()?, &ephemeral.queue_nodes)?;
        let read = read.with(raw, files.reader()?);
        let mut volume = Self {
            read,
            store,
            container: container.superblock,
            ephemeral,
            space,
            files,
            references,
            kept,
            omap,
            container_omap,
            oid,
            next_oid,
            options,
            begun: false,
            committed: raw,
            failed: FailureFlag::default(),
            orphans: Vec::new(),
            nameless: Vec::new(),
            signed: false,
            anchor_is_old: false,
        };
        // A crash leaves files that were unlinked while open; they still take space.
        volume.find_orphans()?;
        Ok(volume)
    }

    /// Returns the properties of the volume for its users.
    pub(super) fn info(&self) -> VolumeInfo {
        let bytes = |blocks: u64| self.store.block_size.of(blocks).unwrap_or(u64::MAX);
        let free = bytes(self.space.free().saturating_sub(self.needed()));
        let info = self.read.volume();
        let free = if self.read.raw.quota_blocks.get() == 0 {
            free
        } else {
            info.free.min(free)
        };
        let pending = if self.read.raw.quota_blocks.get() == 0 {
            bytes(self.space.main_queue.blocks())
        } else {
            0
        };
        VolumeInfo {
            free,
            pending,
            ..info
        }
    }

    /// Returns the time for timestamps of changes.
    pub(super) fn now(&self) -> Timestamp {
        self.options.now.unwrap_or_else(Timestamp::now)
    }

    /// Returns the time for timestamps of changes in on-disk form.
    pub(super) fn date(&self) -> zerocopy::little_endian::U64 {
        nanoseconds(self.now())
    }

    /// Returns a new number for an inode, a stream or a name.
    pub(super) fn next_id(&mut self) -> FileId {
        let id = self.read.raw.next_file_id.get();
        self.read.raw.next_file_id = (id + 1).into(); // counted in 60 bits, one by one
        FileId(id)
    }

    /// Returns the number of the current transaction, or of the next if there is none.
    pub(super) fn xid(&self) -> Xid {
        Xid(self.container.next_xid.get())
    }

    /// Returns the maximum number of blocks that a commit needs.
    pub(super) fn needed(&self) -> u64 {
        // A changed node may change one or two nodes of the object map, and split one.
        3 * self.files.changed() + 2 * self.references.changed() + 24
    }

    /// Returns the number of runs that the free queue can hold, limited by its own nodes and by the
    /// space in a checkpoint.
    fn queue_room(&self) -> usize {
        let others = self.ephemeral.objects.len() as u64;
        self.space
            .queue_room(room(&self.container, self.store.block_size).saturating_sub(others))
    }

    /// Performs an operation atomically. `change` may be called twice: if there are too few free
    /// blocks, a commit that frees some is made before the second call. `grows` is true if the
    /// operation may allocate more than it frees; it must then leave free space for operations that
    /// do not.
    pub(super) fn change<T>(
        &mut self,
        grows: bool,
        mut change: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.failed.check(LAYER)?;
        self.begin(KEPT_CHECKPOINTS)?;
        match self.step(grows, &mut change) {
            Err(error)
                if error.kind() == Kind::Limit
                    && (self.is_changed() || self.space.main_queue.blocks() > 0) =>
            {
                // Frees the blocks of older checkpoints.
                self.commit()?;
                self.begun = false;
                self.begin(0)?;
                self.step(grows, &mut change)
            }
            done => done,
        }
    }

    fn step<T>(
        &mut self,
        grows: bool,
        change: &mut dyn FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let raw = self.read.raw;
        self.files.mark();
        self.references.mark();
        self.space.mark();
        let done = change(self).and_then(|done| {
            self.read.files = self.files.reader()?;
            let kept = if grows {
                (self.store.blocks / 64).clamp(16, 128)
            } else {
                0
            };
            if self.space.free() < self.needed() + kept {
                return Err(Error::limit(LAYER, "the volume is full").because(Reason::VolumeFull));
            }
            Ok(done)
        });
        if done.is_err() {
            self.files.rollback();
            self.references.rollback();
            self.read.raw = raw;
            let undone = self.space.rollback().and_then(|()| {
                self.read.files = self.files.reader()?;
                Ok(())
            });
            self.failed.record(undone)?;
            return done;
        }
        let queued = self.space.main_queue.runs() + to_usize(self.files.changed());
        if self.files.changed() + self.references.changed() > MAX_CHANGED
            || queued > self.queue_room()
        {
            self.commit()?;
        }
        done
    }

    /// Begins a transaction if there is none. Blocks that only checkpoints before the last `kept`
    /// need are freed.
    fn begin(&mut self, kept: u64) -> Result<()> {
        if self.begun {
            return Ok(());
        }
        let xid = self.xid();
        let room = self.queue_room();
        let short =
            self.space.main_queue.runs() * 2 > room || self.space.free() < self.store.blocks / 16;
        let kept = if short { 0 } else { kept };
        let begun = self
            .space
            .begin(xid, xid.0.saturating_sub(1), xid.0.saturating_sub(kept));
        self.failed.record(begun)?;
        self.begun = true;
        Ok(())
    }

    /// Frees the blocks that only older checkpoints need, if there are enough of them, by writing
    /// newer checkpoints without changes. Everything must have been committed before.
    pub(super) fn release_queued(&mut self) -> Result<()> {
        self.failed.check(LAYER)?;
        if self.space.main_queue.blocks() < WORTH_RELEASING {
            return Ok(());
        }
        for _ in 0..=KEPT_CHECKPOINTS {
            self.begin(KEPT_CHECKPOINTS)?;
            let Self {
                store,
                container,
                ephemeral,
                space,
                next_oid,
                ..
            } = self;
            let written = write_whole(store, container, ephemeral, space, next_oid);
            self.failed.record(written)?;
            self.committed();
        }
        self.write_anchor()
    }

    /// Begins a transaction outside an operation.
    pub(super) fn begin_empty(&mut self) -> Result<()> {
        self.begin(KEPT_CHECKPOINTS)
    }

    /// Returns true if there is anything to commit.
    pub(super) fn is_changed(&self) -> bool {
        self.files.is_changed() || self.references.is_changed() || self.read.raw != self.committed
    }

    /// Records that the transaction has been committed.
    pub(super) fn committed(&mut self) {
        self.begun = false;
        self.committed = self.read.raw;
        self.anchor_is_old = true;
    }

    // Records of the file-system tree.

    pub(super) fn inode(&self, id: FileId) -> Result<Inode> {
        let key = Key::Record(RecordKey::single(id, record_type::INODE));
        let found = self
            .files
            .reader()?
            .get(&key, |record| Inode::parse(id, record))?;
        let none = || Error::not_found(LAYER, format!("object {id:#x}"));
        found
            .ok_or_else(none)?
            .ok_or_else(|| corrupt(id, "malformed inode"))
    }

    pub(super) fn put_inode(&mut self, inode: &Inode) -> Result<()> {
        self.put(
            RecordKey::single(inode.id, record_type::INODE),
            &inode.record(),
        )
    }

    pub(super) fn put(&mut self, key: RecordKey<'_>, value: &[u8]) -> Result<()> {
        let mut bytes = Vec::new();
        key.put(&mut bytes);
        self.files.put(&bytes, value)
    }

    pub(super) fn put_raw(
        &mut self,
        key: RecordKey<'_>,
        value: &(impl IntoBytes + zerocopy::Immutable),
    ) -> Result<()> {
        self.put(key, value.as_bytes())
    }

    /// Removes a record, which must exist.
    pub(super) fn remove_record(&mut self, key: RecordKey<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        key.put(&mut bytes);
        match self.files.remove(&bytes)? {
            true => Ok(()),
            false => Err(corrupt(
                key.id,
                "a record of the object is missing from the tree of files",
            )),
        }
    }

    pub(super) fn record(&self, key: RecordKey<'_>) -> Result<Option<Vec<u8>>> {
        self.files.reader()?.get(&Key::Record(key), <[u8]>::to_vec)
    }

    /// Returns key and value of all records of one type of an object.
    pub(super) fn records(&self, id: FileId, kind: u8) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let tree = self.files.reader()?;
        let mut cursor = tree.seek(&Key::Record(RecordKey::single(id, kind)))?;
        let mut found = Vec::new();
        while let Some(record) = cursor.next()? {
            let Key::Record(key) = record.key else { break };
            if (key.id, key.kind) != (id, kind) {
                break;
            }
            let mut bytes = Vec::new();
            key.put(&mut bytes);
            found.push((bytes, record.value.to_vec()));
        }
        Ok(found)
    }
}

pub(super) fn corrupt(id: FileId, message: &'static str) -> Error {
    Error::new(Kind::Corrupt, LAYER, message).named(format!("object {id:#x}"))
}
