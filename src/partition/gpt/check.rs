//! Check of a GPT: block 0, each of the two copies, and their agreement.

use std::collections::BTreeSet;
use std::mem::offset_of;

use uuid::Uuid;

use super::{
    Copies, Copy, HEADER, LAYER, PRIMARY, Search, TABLE, has_protective_form, last_block, read_map,
};
use crate::device::BlockDevice;
use crate::error::Place;
use crate::partition::Map;
use crate::partition::kind::PROTECTIVE;
use crate::partition::layout::{GptHeaderRaw, MbrEntryRaw, MbrRaw};
use crate::problem::{Problems, Severity};
use crate::{Error, Kind, Result};

const MBR: &str = "protective mbr";

/// Offset of the entries in block 0.
const ENTRIES_AT: u64 = offset_of!(MbrRaw, entries) as u64;

/// Offset of the other header's location in a header.
const ALTERNATE_LBA_AT: u64 = offset_of!(GptHeaderRaw, alternate_lba) as u64;

/// Adds every problem of the GPT of `disk` and returns its map, read from the better copy; `None`
/// if the disk has no GPT. `mbr` is block 0.
pub(in crate::partition) fn check(
    disk: &dyn BlockDevice,
    mbr: &MbrRaw,
    search: Search,
    problems: &mut Problems,
) -> Result<Option<Map>> {
    let Some(copies) = Copies::find(disk, mbr, search)? else {
        return Ok(None);
    };
    if copies.primary.is_ok() || copies.backup.is_ok() {
        check_mbr(mbr, last_block(disk, copies.block), problems);
    }
    let map = copies.check(disk, problems);
    let neither = "neither copy of the partition map can be used";
    map.map(Some)
        .ok_or_else(|| Error::new(Kind::Corrupt, LAYER, neither))
}

impl Copies {
    /// Adds every problem of the copies and returns the map from the better one.
    fn check(self, disk: &dyn BlockDevice, problems: &mut Problems) -> Option<Map> {
        let block = self.block;
        let last = last_block(disk, block);
        let at = |lba: u64| lba.saturating_mul(block.into());
        let other = self
            .primary
            .as_ref()
            .map_or(last, |primary| primary.header.alternate_lba);
        let was_cut = other > last;
        if was_cut {
            let cut = format!(
                "the disk is truncated: it ends with block {last}, but the backup belongs in \
                 block {other}"
            );
            problems.add(
                Severity::Damage,
                Error::corrupt(HEADER, at(PRIMARY) + ALTERNATE_LBA_AT, cut),
            );
        }
        match (&self.primary, &self.backup) {
            (Ok(primary), Ok(backup)) if !backup.agrees_with(primary) => {
                let differs = "the backup is intact but differs from the primary, which is used";
                problems.add(Severity::Warning, Error::corrupt(LAYER, at(other), differs));
            }
            (Ok(_), Ok(_)) if other != last => {
                let misplaced = format!(
                    "the backup is not in the last block, {last}: the disk has grown since"
                );
                problems.add(
                    Severity::Warning,
                    Error::corrupt(LAYER, at(other), misplaced),
                );
            }
            _ => {}
        }
        for (name, lba, copy) in [
            ("primary", PRIMARY, &self.primary),
            ("backup", other, &self.backup),
        ] {
            match copy {
                Ok(copy) => check_header(copy, name, was_cut, last, problems),
                // This is the backup, whose loss was already reported.
                Err(_) if was_cut => {}
                Err(error) => problems.add(Severity::Damage, unusable(error, name, at(lba))),
            }
        }
        self.primary
            .or(self.backup)
            .ok()
            .map(|copy| check_entries(disk, &copy, problems))
    }
}

/// Returns an error that names the copy and the reason why it cannot be used.
fn unusable(error: &Error, name: &str, header_at: u64) -> Error {
    let at = match error.place() {
        Place::Offset(at) => *at,
        Place::Name(_) | Place::None => header_at,
    };
    Error::new(
        error.kind(),
        error.layer(),
        format!(
            "the {name} copy of the map cannot be used: {}",
            error.message()
        ),
    )
    .at(at)
}

fn check_header(copy: &Copy, name: &str, was_cut: bool, last: u64, problems: &mut Problems) {
    let header = &copy.header;
    let mut add = |what: String| {
        let at = header.my_lba.saturating_mul(header.block.into());
        problems.add(
            Severity::Damage,
            Error::corrupt(HEADER, at, format!("the {name} copy of the map: {what}")),
        );
    };
    if header.first_usable > header.last_usable {
        return add(format!(
            "invalid range of blocks for partitions: {} to {}",
            header.first_usable, header.last_usable
        ));
    }
    let usable = header.first_usable..=header.last_usable;
    let table = header.entries_lba..header.entries_lba + header.table_blocks();
    if table.start <= *usable.end() && table.end > *usable.start() {
        add(format!(
            "the table in blocks {table:?} overlaps the blocks for partitions, {usable:?}"
        ));
    }
    if header.last_usable >= last && !was_cut {
        add(format!(
            "blocks for partitions up to {}, the last of the disk is {last}",
            header.last_usable
        ));
    }
}

/// Reads the map from this copy, and reports its problems.
fn check_entries(disk: &dyn BlockDevice, copy: &Copy, problems: &mut Problems) -> Map {
    let mut map = read_map(disk, copy);
    map.problems
        .drain(..)
        .for_each(|error| problems.add(Severity::Damage, error));
    let mut seen = BTreeSet::new();
    for (number, raw) in copy.entries().filter(|(_, raw)| !seen.insert(raw.guid)) {
        let header = &copy.header;
        let at = header.entries_lba * u64::from(header.block)
            + u64::from(number - 1) * u64::from(header.entry_size);
        let twice = format!(
            "partition {number} has the GUID of another, {}",
            Uuid::from_bytes_le(raw.guid)
        );
        problems.add(Severity::Warning, Error::corrupt(TABLE, at, twice));
    }
    map
}

/// Returns true if the protective entry covers a disk whose last block is `last`: all blocks except
/// this one, as UEFI requires, or the maximum number, which some programs write regardless of the
/// disk.
pub(super) fn is_well_sized(claim: &MbrEntryRaw, last: u64) -> bool {
    let blocks = u64::from(claim.blocks.get());
    claim.first.get() == 1 && (blocks == last.min(u32::MAX.into()) || blocks == u64::from(u32::MAX))
}

/// Checks block 0 of a disk with a GPT whose last block is `last`.
fn check_mbr(mbr: &MbrRaw, last: u64, problems: &mut Problems) {
    let mut add =
        |severity, at: u64, what: String| problems.add(severity, Error::corrupt(MBR, at, what));
    if !mbr.is_protective() {
        let what = if mbr.is_blank() {
            "missing: block 0 is blank, and most programs find no partitions".to_owned()
        } else if !has_protective_form(mbr, last) {
            "missing: block 0 has other contents, and most programs find no partitions".to_owned()
        } else if mbr.has_signature() {
            format!(
                "wrong entry type {:#04x}: expected {PROTECTIVE:#04x}, and most programs find no \
                 GPT",
                mbr.entries[0].kind
            )
        } else {
            "no signature 55 aa, and most programs find no partitions".to_owned()
        };
        return add(Severity::Damage, 0, what);
    }
    if mbr.has_own_partitions() {
        add(
            Severity::Note,
            ENTRIES_AT,
            "hybrid MBR: block 0 has partitions of its own beside those of the GPT".into(),
        );
    }
    for (number, entry) in (0..)
        .zip(&mbr.entries)
        .filter(|(_, entry)| entry.kind == PROTECTIVE)
    {
        let (first, blocks) = (entry.first.get(), u64::from(entry.blocks.get()));
        if !is_well_sized(entry, last) && !mbr.has_own_partitions() {
            let what = format!(
                "wrong range: {blocks} blocks from block {first}, expected {last} \
                                from 1"
            );
            add(
                Severity::Warning,
                ENTRIES_AT + number * size_of::<MbrEntryRaw>() as u64,
                what,
            );
        }
    }
}
