//! Checkpoints: the states in which a container can be read, and the newest valid one (§3).

use std::ops::Range;

use zerocopy::FromBytes;

use super::layout::{
    AREA_SCATTERED, BlockSize, CHECKPOINT_MAP_LAST, CONTAINER_MAGIC, CheckpointEntryRaw,
    CheckpointMapRaw, ContainerRaw, OBJECT_HEADER, Oid, Paddr, object_type, verify,
};
use super::store::{Expected, Store};
use bandsaw_core::device::{BlockDevice, ExtentKind};
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "apfs checkpoint";

/// Far more blocks than the descriptor area of any container: the largest known has 280.
const MAX_DESCRIPTOR_BLOCKS: u64 = 1 << 14;
/// Maximum number of checkpoints that are tried; the rings of real containers hold a few.
const MAX_CHECKPOINTS: usize = 300;
/// Upper limit for the size of an ephemeral object: the space manager of a container of the largest
/// size is smaller.
const MAX_EPHEMERAL_BYTES: u32 = 1 << 24;
/// Number of blocks that are searched for a superblock if the first one is corrupt.
const SEARCHED: u64 = 512;

/// A superblock and its block.
#[derive(Debug, Clone)]
pub(super) struct Superblock {
    pub(super) raw: ContainerRaw,
    pub(super) paddr: Paddr,
}

impl Superblock {
    /// Returns the transaction of the checkpoint.
    pub(super) fn xid(&self) -> u64 {
        self.raw.object.xid.get()
    }
}

/// Reads the superblock in block 0, or the first one found if that is corrupt; it determines the
/// geometry.
pub(super) fn anchor(device: &dyn BlockDevice, problems: &mut Vec<Error>) -> Result<ContainerRaw> {
    match read_superblock(device, 0, None) {
        Ok(raw) => Ok(raw),
        Err(error) if error.kind() == Kind::Io || error.kind() == Kind::Unsupported => Err(error),
        Err(error) => {
            let block = u64::from(BlockSize::DEFAULT.get());
            let end = SEARCHED.min(device.info().len / block);
            let found = (1..end)
                .find_map(|at| read_superblock(device, at * block, Some(BlockSize::DEFAULT)).ok());
            let Some(raw) = found else { return Err(error) };
            problems.push(error);
            Ok(raw)
        }
    }
}

fn read_superblock(
    device: &dyn BlockDevice,
    offset: u64,
    expected: Option<BlockSize>,
) -> Result<ContainerRaw> {
    let corrupt = |message: String| Error::corrupt("apfs container", offset, message);
    let len = device.info().len;
    let mut head = [0; size_of::<ContainerRaw>()];
    if len
        .checked_sub(offset)
        .is_none_or(|rest| rest < head.len() as u64)
    {
        return Err(corrupt("truncated container: no superblock".to_owned()));
    }
    device.read_at(offset, &mut head)?;
    let (raw, _) =
        ContainerRaw::read_from_prefix(&head).map_err(|_| corrupt("is truncated".to_owned()))?;
    if raw.magic != CONTAINER_MAGIC {
        return Err(corrupt("expected a container superblock (NXSB)".to_owned()));
    }
    let size = raw.block_size.get();
    let Some(size) =
        BlockSize::new(size).filter(|&size| expected.is_none_or(|expected| size == expected))
    else {
        return Err(corrupt(format!(
            "invalid block size {size}: expected a power of two from 4096 to 65536"
        )));
    };
    if len - offset < size.get().into() {
        return Err(corrupt("truncated container: no superblock".to_owned()));
    }
    let mut block = vec![0; size.bytes()];
    device.read_at(offset, &mut block)?;
    if !verify(&block) {
        return Err(corrupt(
            "checksum mismatch of the container superblock".to_owned(),
        ));
    }
    Ok(raw)
}

/// Returns the block range of the descriptor area.
pub(super) fn descriptor_area(raw: &ContainerRaw, blocks: u64) -> Result<Range<u64>> {
    area(
        raw.desc_base.get(),
        raw.desc_blocks.get(),
        blocks,
        "descriptor",
    )
    .and_then(|area| {
        let count = area.end - area.start;
        if count > MAX_DESCRIPTOR_BLOCKS {
            let message = format!(
                "descriptor area of {count} blocks is too large: the maximum is \
                 {MAX_DESCRIPTOR_BLOCKS}"
            );
            return Err(Error::limit(LAYER, message));
        }
        Ok(area)
    })
}

/// Returns the block range of the data area, which holds ephemeral objects.
pub(super) fn data_area(raw: &ContainerRaw, blocks: u64) -> Result<Range<u64>> {
    area(raw.data_base.get(), raw.data_blocks.get(), blocks, "data")
}

fn area(base: u64, count: u32, blocks: u64, name: &str) -> Result<Range<u64>> {
    if count & AREA_SCATTERED != 0 {
        return Err(Error::unsupported(
            LAYER,
            format!("unsupported: the {name} area is not contiguous"),
        ));
    }
    let end = base
        .checked_add(count.into())
        .filter(|&end| count > 0 && base > 0 && end <= blocks);
    end.map(|end| base..end).ok_or_else(|| {
        let message = format!(
            "the {name} area, {count} blocks from block {base}, exceeds the container of \
                     {blocks} blocks"
        );
        Error::new(Kind::Corrupt, LAYER, message)
    })
}

/// Returns the superblocks in the descriptor area that may belong to a checkpoint, newest first, at
/// most [`MAX_CHECKPOINTS`].
pub(super) fn superblocks(store: &Store, anchor: &ContainerRaw) -> Result<Vec<Superblock>> {
    let area = descriptor_area(anchor, store.blocks)?;
    let count = area.end - area.start;
    let mut found = Vec::new();
    for slot in stored(store, &area)? {
        let paddr = Paddr(area.start + slot);
        let Ok(head) = store.peek::<{ OBJECT_HEADER + 4 }>(paddr) else {
            break;
        };
        if !head.ends_with(&CONTAINER_MAGIC) {
            continue;
        }
        let expected = Expected {
            oid: Oid::CONTAINER,
            kind: object_type::CONTAINER,
            subtype: 0,
        };
        let block = store.read(LAYER, paddr, 1)?;
        if store.check(LAYER, &block, paddr, &expected).is_err() {
            continue;
        }
        let Ok((raw, _)) = ContainerRaw::read_from_prefix(&block) else {
            continue;
        };
        let last = u64::from(raw.desc_index.get()) + u64::from(raw.desc_len.get());
        let in_place = last.checked_sub(1).is_some_and(|last| last % count == slot);
        if in_place && raw.uuid == anchor.uuid && raw.block_size == anchor.block_size {
            found.push(Superblock { raw, paddr });
        }
    }
    found.sort_by_key(|superblock| std::cmp::Reverse(superblock.xid()));
    found.truncate(MAX_CHECKPOINTS);
    Ok(found)
}

/// Returns the blocks of an area, from 0, that are not known to be zero: a container whose ring was
/// never full stores few.
fn stored(store: &Store, area: &Range<u64>) -> Result<Vec<u64>> {
    let (mut at, end) = (
        store.offset(Paddr(area.start)),
        store.offset(Paddr(area.end)).min(store.device.info().len),
    );
    let (begin, block) = (at, u64::from(store.block_size.get()));
    let mut slots = Vec::new();
    while at < end {
        let extent = store.device.extent_at(at..end)?;
        let next = at + extent.len;
        if extent.kind == ExtentKind::Data {
            let first = ((at - begin) / block).max(slots.last().map_or(0, |last| last + 1));
            slots.extend(first..(next - begin).div_ceil(block));
        }
        at = next;
    }
    Ok(slots)
}

/// Returns the entries of a checkpoint's maps after verifying every object that they list.
pub(super) fn ephemeral_objects(
    store: &Store,
    superblock: &Superblock,
) -> Result<Vec<CheckpointEntryRaw>> {
    let raw = &superblock.raw;
    let entries = map_entries(store, superblock)?;
    let data = data_area(raw, store.blocks)?;
    // Objects must not share blocks, so that verifying all of them takes no longer than reading the
    // area.
    let blocks: u64 = entries
        .iter()
        .map(|entry| u64::from(entry.size.get() / store.block_size.get()))
        .sum();
    if blocks > data.end - data.start {
        let message = format!(
            "objects of {blocks} blocks exceed the data area of {}",
            data.end - data.start
        );
        return Err(store.corrupt(LAYER, Oid::CONTAINER, superblock.paddr, message));
    }
    for entry in &entries {
        let bytes = read_ephemeral(store, &data, entry)?;
        let expected = Expected {
            oid: entry.oid.into(),
            kind: entry.kind.get() & object_type::MASK,
            subtype: entry.subtype.get(),
        };
        let header = store.check(LAYER, &bytes, entry.paddr.into(), &expected)?;
        if header.xid != raw.object.xid {
            let message = format!(
                "the superblock has transaction {}, but this object {}",
                raw.object.xid, header.xid
            );
            return Err(store.corrupt(LAYER, entry.oid.into(), entry.paddr.into(), message));
        }
    }
    Ok(entries)
}

fn map_entries(store: &Store, superblock: &Superblock) -> Result<Vec<CheckpointEntryRaw>> {
    let raw = &superblock.raw;
    let area = descriptor_area(raw, store.blocks)?;
    let (count, maps) = (
        area.end - area.start,
        u64::from(raw.desc_len.get()).saturating_sub(1),
    );
    if maps >= count {
        let message = format!("{maps} maps exceed the descriptor area of {count} blocks");
        return Err(store.corrupt(LAYER, Oid::CONTAINER, superblock.paddr, message));
    }
    let mut entries = Vec::new();
    for map in 0..maps {
        let paddr = Paddr(area.start + (u64::from(raw.desc_index.get()) + map) % count);
        let block = store.object(LAYER, paddr, object_type::CHECKPOINT_MAP)?;
        let corrupt = |message: String| store.corrupt(LAYER, Oid(paddr.0), paddr, message);
        let Some((head, found)) = CheckpointMapRaw::parse(&block) else {
            return Err(corrupt(
                "the checkpoint map records more entries than fit in its block".to_owned(),
            ));
        };
        if head.object.xid != raw.object.xid {
            return Err(corrupt(format!(
                "the superblock has transaction {}, but this object {}",
                raw.object.xid, head.object.xid
            )));
        }
        entries.extend_from_slice(found);
        if (head.flags.get() & CHECKPOINT_MAP_LAST != 0) != (map + 1 == maps) {
            return Err(corrupt(format!(
                "checkpoint map {} of {maps} has a wrong flag: only the last has the flag of the \
                 last",
                map + 1
            )));
        }
    }
    Ok(entries)
}

/// Reads an ephemeral object, which may wrap around the end of the data area.
pub(super) fn read_ephemeral(
    store: &Store,
    data: &Range<u64>,
    entry: &CheckpointEntryRaw,
) -> Result<Vec<u8>> {
    let (paddr, size, block) = (entry.paddr.get(), entry.size.get(), store.block_size.get());
    let corrupt =
        |message: String| store.corrupt(LAYER, entry.oid.into(), entry.paddr.into(), message);
    let count = u64::from(size / block);
    if size == 0
        || !size.is_multiple_of(block)
        || size > MAX_EPHEMERAL_BYTES
        || count > data.end - data.start
    {
        return Err(corrupt(format!("invalid object size {size}")));
    }
    if !data.contains(&paddr) {
        return Err(corrupt(format!(
            "is not in the data area, blocks {} to {}",
            data.start,
            data.end - 1
        )));
    }
    let first = count.min(data.end - paddr);
    let mut bytes = store.read(LAYER, Paddr(paddr), first)?.into_vec();
    if first < count {
        bytes.extend_from_slice(&store.read(LAYER, Paddr(data.start), count - first)?);
    }
    Ok(bytes)
}
