//! A container: its checkpoint, and the volumes that its superblock lists.

use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;

use super::btree::Key;
use super::checkpoint::{self, Superblock};
use super::free::ApfsFree;
use super::layout::{
    BlockSize, CONTAINER_MAGIC, CheckpointEntryRaw, ContainerRaw, Oid, Paddr, SpacemanRaw,
    VOLUME_MAGIC, VolumeRaw, Xid, container_incompatible, object_type, space_device, timestamp,
};
use super::omap::{Omap, View};
use super::store::{Expected, Store};
use super::writer::VolumeWriter;
use crate::Timestamp;
use bandsaw_core::device::{BlockDevice, Slice};
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "apfs container";

/// Incompatible features that do not affect reading, or that are supported.
const KNOWN: u64 = container_incompatible::VERSION_2;

/// Maximum number of checkpoints that are tried when the container is opened.
const MAX_TRIED: usize = 32;

/// Returns the bytes of the container whose superblock is in `sector`, at byte `offset` of `disk`, as far as
/// they are on the disk. `None`: no superblock with a valid checksum, or no valid checkpoint.
pub fn container_at(
    disk: &Arc<dyn BlockDevice>,
    offset: u64,
    sector: &[u8],
) -> Result<Option<Range<u64>>> {
    let magic = sector.get(offset_of!(ContainerRaw, magic)..);
    if !magic.is_some_and(|magic| magic.starts_with(&CONTAINER_MAGIC)) {
        return Ok(None);
    }
    let len = disk.info().len;
    let rest = Arc::new(Slice::new(disk.clone(), offset..len)?);
    // A superblock in the checkpoint descriptor area has the same magic number. From there the container does not
    // open, because its areas are at other distances than it states.
    let Ok(container) = Container::open(rest, None) else {
        return Ok(None);
    };
    let end = offset.saturating_add(container.size()).min(len);
    Ok(Some(offset..end))
}

/// An open container in the state of one of its checkpoints, read-only.
#[derive(Debug)]
pub struct Container {
    pub(super) store: Store,
    pub(super) superblock: ContainerRaw,
    pub(super) view: View,
    /// Entries of the checkpoint's maps, one per ephemeral object.
    pub(super) ephemeral: Vec<CheckpointEntryRaw>,
    free: u64,
    /// Number of blocks in the main device's free queue, by the queue's own count.
    pending: u64,
    /// Transactions of all superblocks that were found, newest first.
    checkpoints: Vec<u64>,
    problems: Vec<Error>,
    /// The newest transaction of which anything was found.
    newest: u64,
    /// True if the caller chose the checkpoint.
    is_chosen: bool,
    pub(super) writer: VolumeWriter,
}

impl Container {
    /// Opens the container at offset 0 of `device` in the state of its newest valid checkpoint, or
    /// of the checkpoint of transaction `checkpoint`. If the device is shorter than the container,
    /// blocks past its end cannot be read.
    ///
    /// # Errors
    ///
    /// [`Kind::Unsupported`] for Fusion drives and for unknown incompatible features,
    /// [`Kind::NotFound`] for a checkpoint that has been overwritten.
    pub fn open(device: Arc<dyn BlockDevice>, checkpoint: Option<u64>) -> Result<Self> {
        let mut problems = Vec::new();
        let anchor = checkpoint::anchor(&*device, &mut problems)?;
        check_features(&anchor)?;
        let Some(block_size) = BlockSize::new(anchor.block_size.get()) else {
            return Err(Error::corrupt(LAYER, 0, "the block size is 0"));
        };
        let store = Store {
            device,
            block_size,
            blocks: anchor.block_count.get(),
        };
        let found = checkpoint::superblocks(&store, &anchor)?;
        let checkpoints: Vec<_> = found.iter().map(Superblock::xid).collect();
        // Block 0 is written after the checkpoint that it is a copy of.
        if let Some(newest) = checkpoints
            .first()
            .filter(|newest| **newest < anchor.object.xid.get())
        {
            let message = format!(
                "has transaction {}, but the newest checkpoint has {newest}",
                anchor.object.xid
            );
            problems.push(Error::corrupt(LAYER, 0, message).named("superblock in block 0"));
        }
        let wanted =
            |superblock: &&Superblock| checkpoint.is_none_or(|xid| superblock.xid() == xid);
        let mut tried = found.iter().filter(wanted).take(MAX_TRIED).peekable();
        if tried.peek().is_none() {
            return Err(none_left(checkpoint, &found));
        }
        for superblock in tried {
            match load(&store, superblock) {
                Ok(loaded) => {
                    problems.extend(cut_short(&loaded.store));
                    let LoadedCheckpoint {
                        store,
                        view,
                        ephemeral,
                        free,
                        pending,
                    } = loaded;
                    let superblock = superblock.raw;
                    return Ok(Self {
                        store,
                        superblock,
                        view,
                        ephemeral,
                        free,
                        pending,
                        newest: anchor
                            .object
                            .xid
                            .get()
                            .max(checkpoints.first().copied().unwrap_or(0)),
                        is_chosen: checkpoint.is_some(),
                        checkpoints,
                        problems,
                        writer: VolumeWriter::default(),
                    });
                }
                Err(error) if matches!(error.kind(), Kind::Io | Kind::Unsupported) => {
                    return Err(error);
                }
                Err(error) => {
                    problems.push(error.named(format!("checkpoint {}", superblock.xid())))
                }
            }
        }
        // At least one checkpoint was tried if this is reached.
        Err(problems
            .pop()
            .unwrap_or_else(|| none_left(checkpoint, &found)))
    }

    /// Sets the lock that prevents several openings of one container from modifying it at the same
    /// time; they must share `writer`.
    #[must_use]
    pub fn with_writer(mut self, writer: &VolumeWriter) -> Self {
        self.writer = writer.clone();
        self
    }

    /// Returns the problems that did not prevent opening the container: corrupt newer checkpoints,
    /// a truncated image.
    pub fn problems(&self) -> &[Error] {
        &self.problems
    }

    /// Returns the transactions of all superblocks that were found, newest first. Checkpoints older
    /// than the open one may be partially overwritten.
    pub fn checkpoints(&self) -> &[u64] {
        &self.checkpoints
    }

    /// Returns the transaction of the open checkpoint.
    pub fn checkpoint(&self) -> u64 {
        self.superblock.object.xid.get()
    }

    /// Returns the time of the last change in the open state, by the superblocks of the volumes.
    pub fn time(&self) -> Option<Timestamp> {
        self.volume_oids()
            .filter_map(|oid| self.volume_superblock(oid).ok())
            .filter_map(|(raw, _)| timestamp(raw.last_modified))
            .max()
    }

    /// Returns a warning if the newest state is damaged and an older one is open, although the
    /// caller chose none. A superblock that does not verify itself is the normal end of a power
    /// failure, and no state.
    pub fn older_state(&self) -> Option<String> {
        if self.is_chosen || self.checkpoint() >= self.newest {
            return None;
        }
        let time = self
            .time()
            .map_or_else(String::new, |time| format!(" of {time}"));
        Some(format!(
            "the newest checkpoint of the APFS container, transaction {}, is damaged: the \
             one{time}, transaction {}, is used, and later changes are missing",
            self.newest,
            self.checkpoint()
        ))
    }

    /// Returns the container's UUID.
    pub fn uuid(&self) -> uuid::Uuid {
        self.superblock.uuid()
    }

    /// Returns the block size in bytes.
    pub fn block_size(&self) -> u32 {
        self.store.block_size.get()
    }

    /// Returns the number of blocks.
    pub fn block_count(&self) -> u64 {
        self.store.blocks
    }

    /// Returns the length of the container in bytes.
    pub fn size(&self) -> u64 {
        self.store
            .block_size
            .of(self.store.blocks)
            .unwrap_or(u64::MAX)
    }

    /// Returns the free space in bytes, which all volumes share, by the count of the space manager.
    pub fn free(&self) -> u64 {
        self.store.block_size.of(self.free).unwrap_or(u64::MAX)
    }

    /// Returns the number of bytes in the free queue of the space manager, which no volume uses any
    /// more, but which older checkpoints still need.
    pub fn pending(&self) -> u64 {
        let used = self.store.blocks.saturating_sub(self.free);
        self.store
            .block_size
            .of(self.pending.min(used))
            .unwrap_or(u64::MAX)
    }

    /// Returns the number of free blocks, by the count of the space manager.
    pub(super) fn free_blocks(&self) -> u64 {
        self.free
    }

    /// Returns the free map of the container; blocks in free queues count as used. The map reports
    /// that it is not in order if the open checkpoint is not the newest one, or while the container
    /// is being shrunk.
    pub fn free_map(&self) -> Result<ApfsFree> {
        let raw = &self.superblock;
        let newest = self.checkpoints.first() == Some(&self.checkpoint());
        let in_order = newest && self.problems.is_empty() && raw.blocked_out.count.get() == 0;
        let spaceman = self.spaceman()?;
        ApfsFree::new(
            self.store.device.clone(),
            self.store.block_size,
            self.store.blocks,
            &spaceman,
            in_order,
        )
    }

    /// Reads the space manager in full.
    pub(super) fn spaceman(&self) -> Result<Vec<u8>> {
        read_spaceman(&self.store, &self.superblock, &self.ephemeral)
    }

    /// Returns the object numbers of the volumes, in the order of their slots.
    pub(super) fn volume_oids(&self) -> impl Iterator<Item = Oid> + '_ {
        self.superblock
            .volume_oids
            .iter()
            .map(|&oid| Oid::from(oid))
            .filter(|oid| oid.is_some())
    }

    /// Returns the object numbers of volumes in the object map that the superblock does not list: its
    /// list is wrong then, and their blocks are in use.
    pub(super) fn unlisted_volumes(&self) -> Result<Vec<Oid>> {
        let listed: Vec<_> = self.volume_oids().collect();
        let mut mapped = Vec::new();
        let mut records = self.view.omap.tree.first()?;
        while let Some(record) = records.next()? {
            if let Key::Pair(oid, _) = record.key
                && !listed.contains(&Oid(oid))
            {
                mapped.push(Oid(oid));
            }
        }
        mapped.dedup();
        let mut volumes = Vec::new();
        for oid in mapped {
            // Deleted ones have no place, and other objects are of another kind.
            if let Some(at) = self.view.omap.lookup(oid, self.view.xid)?
                && read_volume(&self.store, at.paddr, oid).is_ok()
            {
                volumes.push(oid);
            }
        }
        Ok(volumes)
    }

    /// Returns the superblock of a volume, and its block.
    pub(super) fn volume_superblock(&self, oid: Oid) -> Result<(VolumeRaw, Paddr)> {
        let located = self.view.locate(oid)?;
        let raw = read_volume(&self.store, located.paddr, oid)?;
        Ok((raw, located.paddr))
    }
}

/// The geometry of a container by its superblocks.
#[derive(Debug, Clone, Copy)]
pub struct Geometry {
    /// Length in bytes by the newest checkpoint superblock; by block 0 if there is none.
    pub len: u64,
    /// Length in bytes by block 0, if that is of the same transaction and differs.
    pub differing: Option<u64>,
}

/// Reads the superblock in block 0 and the newest one in the descriptor area, and nothing else.
pub fn geometry(device: Arc<dyn BlockDevice>) -> Result<Geometry> {
    let anchor = checkpoint::anchor(&*device, &mut Vec::new())?;
    let Some(block_size) = BlockSize::new(anchor.block_size.get()) else {
        return Err(Error::corrupt(LAYER, 0, "the block size is 0"));
    };
    let blocks = anchor.block_count.get();
    let store = Store {
        device,
        block_size,
        blocks,
    };
    let len = |blocks| block_size.of(blocks).unwrap_or(u64::MAX);
    let found = checkpoint::superblocks(&store, &anchor)?;
    let Some(newest) = found.first() else {
        let (len, differing) = (len(blocks), None);
        return Ok(Geometry { len, differing });
    };
    let stated = newest.raw.block_count.get();
    let is_same_state = newest.xid() == anchor.object.xid.get();
    Ok(Geometry {
        len: len(stated),
        differing: (is_same_state && stated != blocks).then(|| len(blocks)),
    })
}

/// Reads the superblock of a volume from a block.
pub(super) fn read_volume(store: &Store, paddr: Paddr, oid: Oid) -> Result<VolumeRaw> {
    const LAYER: &str = "apfs volume";
    let block = store.block(LAYER, oid, paddr)?;
    store.check(
        LAYER,
        &block,
        paddr,
        &Expected {
            oid,
            kind: object_type::VOLUME,
            subtype: 0,
        },
    )?;
    let corrupt = |message| store.corrupt(LAYER, oid, paddr, message);
    let (raw, _) = VolumeRaw::read_from_prefix(&block).map_err(|_| corrupt("is truncated"))?;
    if raw.magic != VOLUME_MAGIC {
        return Err(corrupt("expected a volume superblock (APSB)"));
    }
    Ok(raw)
}

fn check_features(raw: &ContainerRaw) -> Result<()> {
    let features = raw.incompatible_features.get();
    let unsupported = |what: String| Err(Error::unsupported(LAYER, what));
    if features & container_incompatible::FUSION != 0 {
        return unsupported("unsupported: one half of a Fusion drive".to_owned());
    }
    if features & container_incompatible::VERSION_1 != 0 {
        return unsupported("unsupported: container of the APFS beta of 2016".to_owned());
    }
    match features & !KNOWN {
        0 => Ok(()),
        unknown => unsupported(format!("unsupported features {unknown:#x}")),
    }
}

/// The parts of a valid checkpoint, whose ephemeral objects verify and whose object map opens.
struct LoadedCheckpoint {
    store: Store,
    view: View,
    ephemeral: Vec<CheckpointEntryRaw>,
    free: u64,
    pending: u64,
}

fn load(store: &Store, superblock: &Superblock) -> Result<LoadedCheckpoint> {
    let raw = &superblock.raw;
    check_features(raw)?;
    let store = Store {
        blocks: raw.block_count.get(),
        ..store.clone()
    };
    let ephemeral = checkpoint::ephemeral_objects(&store, superblock)?;
    let spaceman = read_spaceman(&store, raw, &ephemeral)?;
    // The main device and the second tier.
    let (free, pending) = SpacemanRaw::ref_from_prefix(&spaceman).map_or((0, 0), |(head, _)| {
        let [main, tier] = &head.devices;
        (
            main.free.get().saturating_add(tier.free.get()),
            head.queues[space_device::QUEUE_MAIN].blocks.get(),
        )
    });
    let omap = Omap::open(&store, Oid::from(raw.omap_oid).into_paddr())?;
    let view = View {
        omap: Arc::new(omap),
        xid: Xid(superblock.xid()),
    };
    Ok(LoadedCheckpoint {
        store,
        view,
        ephemeral,
        free,
        pending,
    })
}

fn read_spaceman(
    store: &Store,
    raw: &ContainerRaw,
    ephemeral: &[CheckpointEntryRaw],
) -> Result<Vec<u8>> {
    let Some(entry) = ephemeral.iter().find(|entry| entry.oid == raw.spaceman_oid) else {
        return Err(Error::new(
            Kind::Corrupt,
            LAYER,
            "no checkpoint map lists the space manager",
        ));
    };
    checkpoint::read_ephemeral(store, &checkpoint::data_area(raw, store.blocks)?, entry)
}

/// Returns an error if the device is shorter than the container.
fn cut_short(store: &Store) -> Option<Error> {
    let len = store.device.info().len;
    let whole = store
        .block_size
        .of(store.blocks)
        .is_some_and(|bytes| bytes <= len);
    let message = || {
        format!(
            "the image is truncated: it ends at {len}, but the container has {} blocks",
            store.blocks
        )
    };
    (!whole).then(|| Error::corrupt(LAYER, len, message()))
}

fn none_left(wanted: Option<u64>, found: &[Superblock]) -> Error {
    match (wanted, found.first().zip(found.last())) {
        (Some(xid), Some((newest, oldest))) => {
            let message = match found.len() {
                1 => format!(
                    "does not exist; the only checkpoint of the container is {}",
                    newest.xid()
                ),
                count => format!(
                    "does not exist; the container has {count} checkpoints, from {} to {}",
                    oldest.xid(),
                    newest.xid()
                ),
            };
            Error::new(Kind::NotFound, LAYER, message).named(format!("checkpoint {xid}"))
        }
        _ => Error::new(
            Kind::Corrupt,
            LAYER,
            "no valid checkpoint in the descriptor area",
        ),
    }
}
