//! A container: its checkpoint, and what it says of its volumes.

use std::sync::Arc;

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::checkpoint::{self, Superblock};
use super::free::ApfsFree;
use super::layout::{
    BlockSize, CheckpointEntryRaw, ContainerRaw, Oid, Paddr, SpacemanRaw, VOLUME_MAGIC, VolumeRaw,
    Xid, container_incompatible, object_type, space_device,
};
use super::omap::{Omap, View};
use super::store::{Expected, Store};
use super::writer::VolumeWriter;
use crate::device::BlockDevice;
use crate::{Error, Kind, Result};

const LAYER: &str = "apfs container";

/// Incompatible features that make no difference to reading, or that are handled.
const KNOWN: u64 = container_incompatible::VERSION_2;

/// Checkpoints that are tried before the container is given up.
const MOST_TRIED: usize = 32;

/// An open container, as one of its checkpoints has it. Nothing is ever written.
#[derive(Debug)]
pub struct Container {
    pub(super) store: Store,
    pub(super) superblock: ContainerRaw,
    pub(super) view: View,
    /// Where the checkpoint's ephemeral objects are.
    pub(super) ephemeral: Vec<CheckpointEntryRaw>,
    free: u64,
    /// Blocks in the main device's free queue, by its own count.
    pending: u64,
    /// The transactions of all superblocks that were found, newest first.
    checkpoints: Vec<u64>,
    problems: Vec<Error>,
    pub(super) writer: VolumeWriter,
}

impl Container {
    /// Opens the container that begins at the first byte of `device`, as of its newest checkpoint
    /// that is whole, or of that of transaction `checkpoint`. A device that ends before the
    /// container does is read as far as it goes.
    ///
    /// [`Kind::Unsupported`] for Fusion drives and for what came after this library,
    /// [`Kind::NotFound`] for a checkpoint that is not there any more.
    pub fn open(device: Arc<dyn BlockDevice>, checkpoint: Option<u64>) -> Result<Self> {
        let mut problems = Vec::new();
        let anchor = checkpoint::anchor(&*device, &mut problems)?;
        check_features(&anchor)?;
        let Some(block_size) = BlockSize::new(anchor.block_size.get()) else {
            return Err(Error::corrupt(LAYER, 0, "no block size"));
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
                "is of transaction {}, the newest checkpoint that is left of {newest}",
                anchor.object.xid
            );
            problems.push(Error::corrupt(LAYER, 0, message).named("superblock in block 0"));
        }
        let wanted =
            |superblock: &&Superblock| checkpoint.is_none_or(|xid| superblock.xid() == xid);
        let mut tried = found.iter().filter(wanted).take(MOST_TRIED).peekable();
        if tried.peek().is_none() {
            return Err(none_left(checkpoint, &found));
        }
        for superblock in tried {
            match load(&store, superblock) {
                Ok(loaded) => {
                    problems.extend(cut_short(&loaded.store));
                    let Loaded {
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
        // At least one was tried, or this would not be reached.
        Err(problems
            .pop()
            .unwrap_or_else(|| none_left(checkpoint, &found)))
    }

    /// The same, for one of several openings of one container that `writer` keeps from being
    /// changed at the same time.
    #[must_use]
    pub fn with_writer(mut self, writer: &VolumeWriter) -> Self {
        self.writer = writer.clone();
        self
    }

    /// What is wrong with the container though it could be opened: newer checkpoints that are
    /// damaged, an image cut short.
    pub fn problems(&self) -> &[Error] {
        &self.problems
    }

    /// The transactions of all superblocks that were found, newest first. Those older than the one
    /// that is open may be overwritten in part.
    pub fn checkpoints(&self) -> &[u64] {
        &self.checkpoints
    }

    /// The transaction of the checkpoint that is open.
    pub fn checkpoint(&self) -> u64 {
        self.superblock.object.xid.get()
    }

    /// The container's UUID.
    pub fn uuid(&self) -> uuid::Uuid {
        self.superblock.uuid()
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.store.block_size.get()
    }

    /// Its blocks.
    pub fn block_count(&self) -> u64 {
        self.store.blocks
    }

    /// Bytes of all its blocks.
    pub fn size(&self) -> u64 {
        self.store
            .block_size
            .of(self.store.blocks)
            .unwrap_or(u64::MAX)
    }

    /// Free bytes, which all volumes share, by the count of the space manager.
    pub fn free(&self) -> u64 {
        self.store.block_size.of(self.free).unwrap_or(u64::MAX)
    }

    /// Bytes that no volume uses any more and that are not free yet: older checkpoints hold them,
    /// in the free queue of the space manager.
    pub fn pending(&self) -> u64 {
        let used = self.store.blocks.saturating_sub(self.free);
        self.store
            .block_size
            .of(self.pending.min(used))
            .unwrap_or(u64::MAX)
    }

    /// Free blocks, by the count of the space manager.
    pub(super) fn free_blocks(&self) -> u64 {
        self.free
    }

    /// What of the container no volume uses, and what no older checkpoint waits to have freed. Of a
    /// checkpoint that is not the newest one, or while the container is being shrunk, the map is
    /// not in order.
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

    /// All bytes of the space manager.
    pub(super) fn spaceman(&self) -> Result<Vec<u8>> {
        read_spaceman(&self.store, &self.superblock, &self.ephemeral)
    }

    /// The volumes' numbers in the container's object map, in the order of their slots.
    pub(super) fn volume_oids(&self) -> impl Iterator<Item = Oid> + '_ {
        self.superblock
            .volume_oids
            .iter()
            .map(|&oid| Oid::from(oid))
            .filter(|oid| oid.is_some())
    }

    /// The superblock of a volume, and its block.
    pub(super) fn volume_superblock(&self, oid: Oid) -> Result<(VolumeRaw, Paddr)> {
        let located = self.view.locate(oid)?;
        let raw = read_volume(&self.store, located.paddr, oid)?;
        Ok((raw, located.paddr))
    }
}

/// The superblock of a volume in some block.
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
    let (raw, _) = VolumeRaw::read_from_prefix(&block).map_err(|_| corrupt("is cut short"))?;
    if raw.magic != VOLUME_MAGIC {
        return Err(corrupt("a volume superblock (APSB) expected"));
    }
    Ok(raw)
}

fn check_features(raw: &ContainerRaw) -> Result<()> {
    let features = raw.incompatible_features.get();
    let unsupported = |what: String| Err(Error::unsupported(LAYER, what));
    if features & container_incompatible::FUSION != 0 {
        return unsupported("is one half of a Fusion drive, which is not read".to_owned());
    }
    if features & container_incompatible::VERSION_1 != 0 {
        return unsupported("is of APFS's first beta, which is not read".to_owned());
    }
    match features & !KNOWN {
        0 => Ok(()),
        unknown => unsupported(format!(
            "has features ({unknown:#x}) that came after this program"
        )),
    }
}

/// What is read of a checkpoint that is whole: one whose ephemeral objects verify and whose object
/// map opens.
struct Loaded {
    store: Store,
    view: View,
    ephemeral: Vec<CheckpointEntryRaw>,
    free: u64,
    pending: u64,
}

fn load(store: &Store, superblock: &Superblock) -> Result<Loaded> {
    let raw = &superblock.raw;
    check_features(raw)?;
    let store = Store {
        blocks: raw.block_count.get(),
        ..store.clone()
    };
    let ephemeral = checkpoint::ephemeral_objects(&store, superblock)?;
    let spaceman = read_spaceman(&store, raw, &ephemeral)?;
    // The main device's count, and the second's.
    let count = |at: usize| {
        spaceman
            .get(at..)
            .and_then(|rest| U64::read_from_prefix(rest).ok())
            .map_or(0, |(count, _)| count.get())
    };
    let free = count(0x48).saturating_add(count(0x78));
    let queue = SpacemanRaw::ref_from_prefix(&spaceman)
        .ok()
        .map(|(head, _)| &head.queues[space_device::QUEUE_MAIN]);
    let pending = queue.map_or(0, |queue| queue.blocks.get());
    let omap = Omap::open(&store, Oid::from(raw.omap_oid).into_paddr())?;
    let view = View {
        omap: Arc::new(omap),
        xid: Xid(superblock.xid()),
    };
    Ok(Loaded {
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
            "the space manager is in no checkpoint map",
        ));
    };
    checkpoint::read_ephemeral(store, &checkpoint::data_area(raw, store.blocks)?, entry)
}

/// That the device ends before the container does.
fn cut_short(store: &Store) -> Option<Error> {
    let len = store.device.info().len;
    let whole = store
        .block_size
        .of(store.blocks)
        .is_some_and(|bytes| bytes <= len);
    let message = || {
        format!(
            "the image ends at {len} and was cut short: the container has {} blocks",
            store.blocks
        )
    };
    (!whole).then(|| Error::corrupt(LAYER, len, message()))
}

fn none_left(wanted: Option<u64>, found: &[Superblock]) -> Error {
    match (wanted, found.first().zip(found.last())) {
        (Some(xid), Some((newest, oldest))) => {
            let message = format!(
                "is not there; there are {} from {} to {}",
                found.len(),
                oldest.xid(),
                newest.xid()
            );
            Error::new(Kind::NotFound, LAYER, message).named(format!("checkpoint {xid}"))
        }
        _ => Error::new(
            Kind::Corrupt,
            LAYER,
            "no checkpoint is left in the descriptor area",
        ),
    }
}
