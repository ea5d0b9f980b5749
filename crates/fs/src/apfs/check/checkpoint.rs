//! Superblocks and the rings of checkpoints (§2, §3).

use std::collections::HashMap;
use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes};

use super::blocks::{BlockUsers, User};
use super::report::Report;
use crate::apfs::checkpoint::{self, data_area, descriptor_area};
use crate::apfs::container::Container;
use crate::apfs::geometry::Geometry;
use crate::apfs::layout::{
    CheckpointEntryRaw, ContainerRaw, ObjectRaw, Oid, Paddr, object_type, storage, verify,
};
use crate::apfs::store::Store;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "apfs checkpoint";

/// The ephemeral objects of a checkpoint, by number: first block and contents.
pub(super) type Ephemerals = HashMap<Oid, (Paddr, Vec<u8>)>;

/// Checks superblocks, checkpoint areas and checkpoint maps; returns the ephemeral objects.
pub(super) fn check(
    container: &Container,
    blocks: &mut BlockUsers,
    report: &mut Report<'_>,
) -> Result<Ephemerals> {
    let (store, raw) = (&container.store, &container.superblock);
    let (desc, data) = (
        descriptor_area(raw, store.blocks)?,
        data_area(raw, store.blocks)?,
    );
    blocks.claim(0..1, User::container("superblock"));
    blocks.claim(desc.clone(), User::container("descriptor area"));
    blocks.claim(data.clone(), User::container("data area"));
    anchor(store, raw, report)?;
    superblock(container, &desc, report);
    ring(store, raw, &desc, report)?;
    objects(container, &data, report)
}

fn wrong(store: &Store, paddr: Paddr, message: impl std::fmt::Display) -> Error {
    store.corrupt(LAYER, Oid::CONTAINER, paddr, message)
}

/// Checks that block 0 is a copy of the newest superblock, or of an earlier one after a crash.
fn anchor(store: &Store, raw: &ContainerRaw, report: &mut Report<'_>) -> Result<()> {
    let block = store.read(LAYER, Paddr(0), 1)?;
    // Errors in the copy itself were reported when the container was opened.
    let Ok((copy, _)) = ContainerRaw::read_from_prefix(&block) else {
        return Ok(());
    };
    if !verify(&block) || copy.magic != raw.magic {
        return Ok(());
    }
    let (copied, newest) = (copy.object.xid.get(), raw.object.xid.get());
    if copied > newest {
        // Reported when the container was opened.
        return Ok(());
    }
    if copied != newest {
        let message = format!(
            "the superblock in block 0 has transaction {copied}, but the newest checkpoint has \
             {newest}: the container was not unmounted"
        );
        report.note(wrong(store, Paddr(0), message));
        return Ok(());
    }
    // These fields are counters, or are set while the container is mounted.
    let alike = |raw: &ContainerRaw| {
        let mut raw = *raw;
        (raw.object.checksum, raw.counters, raw.flags) = (0.into(), [0.into(); 32], 0.into());
        raw
    };
    if alike(&copy).as_bytes() != alike(raw).as_bytes() {
        report.warning(wrong(
            store,
            Paddr(0),
            "the superblock in block 0 differs from the superblock of the checkpoint with the same \
             transaction number",
        ));
    }
    Ok(())
}

/// Checks the fields of the superblock.
fn superblock(container: &Container, desc: &Range<u64>, report: &mut Report<'_>) {
    let (store, raw) = (&container.store, &container.superblock);
    let place = u64::from(raw.desc_index.get()) + u64::from(raw.desc_len.get()).saturating_sub(1);
    let place = Paddr(desc.start + place % (desc.end - desc.start));
    let mut warn = |message: String| report.warning(wrong(store, place, message));
    let xid = raw.object.xid.get();
    if raw.next_xid.get() != xid.saturating_add(1) {
        warn(format!(
            "the next transaction number is {}, expected {}",
            raw.next_xid,
            xid.saturating_add(1)
        ));
    }
    if raw.object.kind.get() != object_type::CONTAINER | storage::EPHEMERAL {
        warn(format!(
            "expected type {:#x}, found {:#x}",
            object_type::CONTAINER | storage::EPHEMERAL,
            raw.object.kind
        ));
    }
    let ring = |index: u32, len: u32, next: u32, all: u32| {
        u64::from(index) + u64::from(len) == u64::from(next) % u64::from(all.max(1))
            || (u64::from(index) + u64::from(len)) % u64::from(all.max(1)) == u64::from(next)
    };
    for (what, index, len, next, all) in [
        (
            "descriptors",
            raw.desc_index,
            raw.desc_len,
            raw.desc_next,
            raw.desc_blocks,
        ),
        (
            "data",
            raw.data_index,
            raw.data_len,
            raw.data_next,
            raw.data_blocks,
        ),
    ] {
        let (index, len, next, all) = (index.get(), len.get(), next.get(), all.get());
        if index >= all || len > all || !ring(index, len, next, all) {
            warn(format!(
                "invalid {what}: the superblock records {len} blocks from block {index} on and \
                 {next} as the next free block, in an area of {all} blocks"
            ));
        }
    }
    let bytes = store.block_size.of(store.blocks).unwrap_or(u64::MAX);
    if let Ok(geometry) = Geometry::new(bytes, store.block_size) {
        let (recorded, expected) = (raw.max_volumes.get(), geometry.max_volumes);
        if recorded != expected {
            warn(format!(
                "has room for {recorded} volumes, expected {expected}"
            ));
        }
    }
    let slots = raw
        .volume_oids
        .iter()
        .rposition(|oid| oid.get() != 0)
        .map_or(0, |last| last + 1);
    if slots > raw.max_volumes.get() as usize {
        warn(format!(
            "lists a volume in slot {slots}, but has room for {}",
            raw.max_volumes
        ));
    }
    let mut oids: Vec<_> = container.volume_oids().map(|oid| oid.0).collect();
    oids.sort_unstable();
    if oids.windows(2).any(|pair| pair[0] == pair[1]) {
        report.damage(wrong(store, place, "lists a volume twice"));
    }
}

/// Checks that every block of the descriptor area is an object of that block, or was never written.
/// Errors outside the checkpoint are minor: an interrupted commit leaves such blocks.
fn ring(
    store: &Store,
    raw: &ContainerRaw,
    desc: &Range<u64>,
    report: &mut Report<'_>,
) -> Result<()> {
    let count = desc.end - desc.start;
    for slot in 0..count {
        let paddr = Paddr(desc.start + slot);
        let block = store.read(LAYER, paddr, 1)?;
        let within = (slot + count - u64::from(raw.desc_index.get()) % count) % count
            < u64::from(raw.desc_len.get());
        if verify(&block) || (!within && block.iter().all(|byte| *byte == 0)) {
            let Ok((header, _)) = ObjectRaw::read_from_prefix(&block) else {
                continue;
            };
            let newer = header.xid.get() > raw.object.xid.get();
            if newer && !within && verify(&block) {
                let message = format!(
                    "the object is of transaction {}, which was not completed",
                    header.xid
                );
                report.note(store.corrupt(LAYER, header.oid.into(), paddr, message));
            }
            continue;
        }
        let message = "checksum mismatch";
        match within {
            true => report.damage(store.corrupt(LAYER, Oid(paddr.0), paddr, message)),
            false => report.note(store.corrupt(
                LAYER,
                Oid(paddr.0),
                paddr,
                format!("{message}, in a slot that is not in use"),
            )),
        }
    }
    Ok(())
}

/// Checks the entries of the checkpoint maps: each object is verified, and they must be contiguous.
fn objects(
    container: &Container,
    data: &Range<u64>,
    report: &mut Report<'_>,
) -> Result<Ephemerals> {
    let (store, raw) = (&container.store, &container.superblock);
    let (first, count) = (u64::from(raw.data_index.get()), data.end - data.start);
    let mut at = first;
    let mut found = Ephemerals::new();
    for entry in &container.ephemeral {
        let CheckpointEntryRaw { kind, size, .. } = entry;
        let (oid, paddr) = (Oid::from(entry.oid), Paddr::from(entry.paddr));
        let blocks = u64::from(size.get() / store.block_size.get());
        let mut wrong = |message: String| report.warning(store.corrupt(LAYER, oid, paddr, message));
        if paddr.0 != data.start + at % count {
            wrong(format!(
                "the checkpoint map records this block for the object, expected block {}",
                data.start + at % count
            ));
        }
        at += blocks;
        if kind.get() & storage::MASK != storage::EPHEMERAL {
            wrong(format!(
                "the checkpoint map records type {kind:#x}, expected an ephemeral object"
            ));
        }
        if oid < Oid::FIRST_USER || oid.0 >= raw.next_oid.get() {
            wrong(format!(
                "the object number is not in the range {:#x} to {:#x}",
                Oid::FIRST_USER,
                raw.next_oid.get().saturating_sub(1)
            ));
        }
        let bytes = checkpoint::read_ephemeral(store, data, entry)?;
        let stored = ObjectRaw::read_from_prefix(&bytes).map_or(0, |(header, _)| header.kind.get());
        if stored != kind.get() {
            wrong(format!("expected type {kind:#x}, found {stored:#x}"));
        }
        if found.insert(oid, (paddr, bytes)).is_some() {
            report.damage(store.corrupt(
                LAYER,
                oid,
                paddr,
                "the object appears twice in the checkpoint maps",
            ));
        }
    }
    if at - first != u64::from(raw.data_len.get()) {
        let message = format!(
            "the superblock records {} blocks of objects, but the checkpoint maps list {}",
            raw.data_len,
            at - first
        );
        report.warning(Error::new(Kind::Corrupt, LAYER, message));
    }
    for (oid, what) in [
        (raw.spaceman_oid, "space manager"),
        (raw.reaper_oid, "reaper"),
    ] {
        if !found.contains_key(&Oid::from(oid)) {
            report.damage(Error::new(
                Kind::Corrupt,
                LAYER,
                format!("no checkpoint map lists the {what}"),
            ));
        }
    }
    Ok(found)
}
