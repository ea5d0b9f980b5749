//! Check of a GPT: block 0, each of the two copies, and their agreement.

use std::collections::BTreeSet;

use uuid::Uuid;
use zerocopy::IntoBytes;

use super::{
    Copy, Found, HEADER, LAYER, PRIMARY, TABLE, block_sizes, last_block, read_backup, read_copy,
    read_map,
};
use crate::device::BlockDevice;
use crate::error::Place;
use crate::partition::Map;
use crate::partition::kind::PROTECTIVE;
use crate::partition::layout::{MbrEntryRaw, MbrRaw};
use crate::problem::{Problems, Severity};
use crate::{Error, Kind, Result};

const MBR: &str = "protective mbr";

/// Offset of the entries in block 0.
const ENTRIES_AT: u64 = 0x1be;

/// Offset of the other header's location in a header.
const ALTERNATE_LBA_AT: u64 = 0x20;

/// Adds every problem of the GPT of `disk` and returns its map, read from the better copy; `None`
/// if the disk has no GPT. `mbr` is block 0.
pub(in crate::partition) fn check(
    disk: &dyn BlockDevice,
    mbr: &MbrRaw,
    problems: &mut Problems,
) -> Result<Option<Map>> {
    let (protective, blank) = (
        mbr.is_protective(),
        mbr.as_bytes().iter().all(|&byte| byte == 0),
    );
    if !protective && !blank {
        return Ok(None);
    }
    for block in block_sizes(disk) {
        let copies = Copies::read(disk, block)?;
        // With a blank block 0, only a valid primary is accepted, as by `probe`.
        if copies.primary.is_ok() || (protective && copies.backup.is_ok()) {
            check_mbr(mbr, last_block(disk, block), problems);
            return Ok(copies.check(disk, block, problems));
        }
    }
    if !protective || mbr.has_own_partitions() {
        return Ok(None);
    }
    let [block, _] = block_sizes(disk);
    Copies::read(disk, block)?.check(disk, block, problems);
    Err(Error::new(
        Kind::Corrupt,
        LAYER,
        "neither copy can be used, so no partition can be told",
    ))
}

/// Both copies, or the errors of reading them.
struct Copies {
    primary: Found,
    backup: Found,
}

impl Copies {
    /// Reads both copies: the backup at the place stated by a valid primary, otherwise at the end
    /// of the disk.
    fn read(disk: &dyn BlockDevice, block: u32) -> Result<Self> {
        let primary = read_copy(disk, block, PRIMARY)?;
        let place = primary.as_ref().map_or(last_block(disk, block), |primary| {
            primary.header.alternate_lba
        });
        Ok(Self {
            backup: read_backup(disk, block, place)?,
            primary,
        })
    }

    fn check(self, disk: &dyn BlockDevice, block: u32, problems: &mut Problems) -> Option<Map> {
        let last = last_block(disk, block);
        let at = |lba: u64| lba.saturating_mul(block.into());
        let other = self
            .primary
            .as_ref()
            .map_or(last, |primary| primary.header.alternate_lba);
        let was_cut = other > last;
        if was_cut {
            let cut = format!(
                "the disk ends with block {last}, the backup belongs in block {other}: the disk was cut short"
            );
            problems.add(
                Severity::Damage,
                Error::corrupt(HEADER, at(PRIMARY) + ALTERNATE_LBA_AT, cut),
            );
        }
        match (&self.primary, &self.backup) {
            (Ok(primary), Ok(backup)) if !backup.agrees_with(primary) => {
                let differs = "the backup is whole but differs from the primary, which counts";
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
        format!("the {name} cannot be used: {}", error.message()),
    )
    .at(at)
}

fn check_header(copy: &Copy, name: &str, was_cut: bool, last: u64, problems: &mut Problems) {
    let header = &copy.header;
    let mut add = |what: String| {
        let at = header.my_lba.saturating_mul(header.block.into());
        problems.add(
            Severity::Damage,
            Error::corrupt(HEADER, at, format!("the {name}: {what}")),
        );
    };
    if header.first_usable > header.last_usable {
        return add(format!(
            "no blocks for partitions, {} to {}",
            header.first_usable, header.last_usable
        ));
    }
    let usable = header.first_usable..=header.last_usable;
    let table = header.entries_lba..header.entries_lba + header.table_blocks();
    if table.start <= *usable.end() && table.end > *usable.start() {
        add(format!(
            "its table in blocks {table:?} lies among those for partitions, {usable:?}"
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
        return add(
            Severity::Damage,
            0,
            "is missing: block 0 is blank, so that most programs see no partitions".into(),
        );
    }
    if mbr.has_own_partitions() {
        add(
            Severity::Note,
            ENTRIES_AT,
            "names partitions of its own beside the GPT (a hybrid MBR)".into(),
        );
    }
    for (number, entry) in (0..)
        .zip(&mbr.entries)
        .filter(|(_, entry)| entry.kind == PROTECTIVE)
    {
        let (first, blocks) = (entry.first.get(), u64::from(entry.blocks.get()));
        if !is_well_sized(entry, last) && !mbr.has_own_partitions() {
            let what = format!("claims {blocks} blocks from block {first}, expected {last} from 1");
            add(
                Severity::Warning,
                ENTRIES_AT + number * size_of::<MbrEntryRaw>() as u64,
                what,
            );
        }
    }
}
