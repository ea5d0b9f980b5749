//! Restoration of one copy of a GPT from the other, and of block 0 from either.

use std::ops::Range;

use zerocopy::IntoBytes;

use super::check::is_well_sized;
use super::create::protective_mbr;
use super::{
    Copies, Copy, CopyResult, Header, LAYER, PRIMARY, Search, has_protective_form, last_block,
    neither,
};
use crate::decision::{Alternative, CopyChoice, Undecided};
use crate::device::{BlockDevice, BlockDeviceExt, is_zero, regions};
use crate::partition::kind::PROTECTIVE;
use crate::partition::layout::{GPT_SIGNATURE, GptHeaderRaw, MbrRaw};
use crate::partition::read;
use crate::{Error, Kind, Result};

/// Bytes that are written atomically.
const SECTOR: usize = 512;

/// The parts written by a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repaired {
    /// The protective MBR: its block was blank, or stated a wrong number of blocks.
    pub protective_mbr: bool,
    /// Header and table at the beginning of the disk, from the backup, or updated because the
    /// backup has moved.
    pub primary: bool,
    /// Header and table at the end of the disk, from the primary.
    pub backup: bool,
}

/// The changes of a repair.
#[derive(Debug, Default)]
struct MapRepair {
    mbr: Option<MbrRaw>,
    primary: Option<Copy>,
    backup: Option<Copy>,
    /// Byte range on the disk of the former header of a backup that has moved.
    old_backup: Option<Range<u64>>,
    /// Problems that are not repaired, because the right state is uncertain.
    refused: Vec<Error>,
}

/// Repairs the GPT of `disk` so that both copies are valid and agree, with the backup at the end of
/// the disk, and the protective MBR is right, unless block 0 has other contents. If both copies are
/// valid but differ, the primary is used, as by readers.
///
/// Each copy is written, table before header, while the other is valid, so that a valid one exists
/// at any time. Fails without a change if neither copy can be used, if there is no room for a copy,
/// or if there is no GPT. A backup that cannot be moved to the end of the disk is repaired where it
/// is.
pub fn repair(disk: &dyn BlockDevice) -> Result<Repaired> {
    disk.info().check_writable(LAYER)?;
    repair_with(disk, Search::Announced, Some(CopyChoice::Primary)).map(|(repaired, _)| repaired)
}

/// Repairs the GPT that `search` finds, in which `counts` selects the copy to use if both are valid
/// and differ. With `None`, that is an error of [`Kind::Undecided`]. Returns also the problems that
/// are not repaired, because the right state is uncertain.
pub fn repair_with(
    disk: &dyn BlockDevice,
    search: Search,
    counts: Option<CopyChoice>,
) -> Result<(Repaired, Vec<Error>)> {
    let mbr = read::<MbrRaw>(disk, 0)?;
    let Some(Copies {
        block,
        primary,
        backup,
    }) = Copies::find(disk, &mbr, search)?
    else {
        return Err(Error::new(Kind::NotFound, LAYER, "the disk has no GPT").at(0));
    };
    let last = last_block(disk, block);
    let mut plan = match (primary, backup) {
        (Ok(primary), backup) => by_primary(disk, primary, backup, counts)?,
        (Err(_), Ok(backup)) => MapRepair {
            primary: Some(primary_of(&backup)?),
            ..MapRepair::default()
        },
        (Err(damage), Err(backup)) => return Err(neither(damage, &backup)),
    };
    if mbr.is_protective() || mbr.is_blank() || has_protective_form(&mbr, last) {
        plan.mbr = repaired(&mbr, last);
    } else {
        let what = "block 0 is neither blank nor a protective MBR; it is not changed";
        plan.refused.push(Error::corrupt(LAYER, 0, what));
    }
    plan.write(disk)?;
    let written = Repaired {
        protective_mbr: plan.mbr.is_some(),
        primary: plan.primary.is_some(),
        backup: plan.backup.is_some(),
    };
    Ok((written, plan.refused))
}

impl MapRepair {
    fn write(&self, disk: &dyn BlockDevice) -> Result<()> {
        // The backup first, because the new primary may refer to a backup at a new place.
        for copy in self.backup.iter().chain(&self.primary) {
            copy.write(disk)?;
        }
        if let Some(mbr) = &self.mbr {
            disk.write_at(0, mbr.as_bytes())?;
            disk.flush()?;
        }
        if let Some(old) = &self.old_backup {
            regions::blank(disk, old.clone())?;
            disk.flush()?;
        }
        Ok(())
    }
}

/// Returns the corrected block 0; `None` if it is right, or contains more than a protective entry.
fn repaired(mbr: &MbrRaw, last: u64) -> Option<MbrRaw> {
    let right = protective_mbr(last + 1);
    if mbr.is_blank() {
        return Some(right);
    }
    let corrected = MbrRaw {
        boot_code: mbr.boot_code,
        ..right
    };
    if !mbr.is_protective() {
        return Some(corrected);
    }
    let mut claims = mbr.entries.iter().filter(|entry| entry.kind == PROTECTIVE);
    let only = claims
        .next()
        .filter(|_| claims.next().is_none() && !mbr.has_own_partitions());
    only.filter(|entry| !is_well_sized(entry, last))
        .map(|_| corrected)
}

fn by_primary(
    disk: &dyn BlockDevice,
    primary: Copy,
    backup: CopyResult,
    counts: Option<CopyChoice>,
) -> Result<MapRepair> {
    let last = last_block(disk, primary.header.block);
    if primary.header.alternate_lba > last {
        let what = format!(
            "the disk is truncated: it ends before block {}, where the backup of the map belongs",
            primary.header.alternate_lba
        );
        return Err(Error::new(Kind::Corrupt, LAYER, what));
    }
    if let Ok(backup) = &backup
        && !backup.agrees_with(&primary)
    {
        match counts {
            None => return Err(differ(&primary, backup)),
            Some(CopyChoice::Alternate) => {
                return Ok(MapRepair {
                    primary: Some(primary_of(backup)?),
                    ..MapRepair::default()
                });
            }
            Some(CopyChoice::Primary) => {}
        }
    }
    if primary.header.alternate_lba < last {
        match at_the_end(disk, &primary, last) {
            Ok(plan) => return Ok(plan),
            Err(error) if error.kind() == Kind::Io => return Err(error),
            Err(error) => {
                return Ok(MapRepair {
                    refused: vec![error],
                    ..in_place(backup, &primary)?
                });
            }
        }
    }
    in_place(backup, &primary)
}

/// Returns the error for two valid copies with different maps.
pub(super) fn differ(primary: &Copy, backup: &Copy) -> Error {
    let describe = |copy: &Copy| {
        let header = &copy.header;
        let partitions: Vec<_> = copy
            .entries()
            .map(|(number, raw)| {
                format!("partition {number} in blocks {} to {}", raw.first, raw.last)
            })
            .collect();
        let partitions = if partitions.is_empty() {
            "no partitions".to_owned()
        } else {
            partitions.join(", ")
        };
        format!(
            "{partitions}; usable blocks {} to {}; disk GUID {}",
            header.first_usable, header.last_usable, header.disk_guid
        )
    };
    let alternative = |which: CopyChoice, copy| Alternative {
        assume: format!("map={}", which.name()),
        evidence: describe(copy),
    };
    let alternatives = vec![
        alternative(CopyChoice::Primary, primary),
        alternative(CopyChoice::Alternate, backup),
    ];
    let what = "both copies of the map are intact, but they differ".to_owned();
    Undecided { what, alternatives }.into_error(LAYER)
}

/// Plans the repair of the backup at the place stated by the primary.
fn in_place(backup: CopyResult, primary: &Copy) -> Result<MapRepair> {
    if backup.is_ok_and(|backup| backup.agrees_with(primary)) {
        return Ok(MapRepair::default());
    }
    Ok(MapRepair {
        backup: Some(primary.backup()?),
        ..MapRepair::default()
    })
}

/// Plans to move the backup to the last block of a disk that has grown. That place must be blank,
/// or contain parts of the same backup from an interrupted repair.
fn at_the_end(disk: &dyn BlockDevice, primary: &Copy, last: u64) -> Result<MapRepair> {
    let block = u64::from(primary.header.block);
    let table_blocks = primary.header.table_blocks();
    let last_usable = last
        .checked_sub(table_blocks + 1)
        .filter(|usable| *usable >= primary.header.last_usable);
    let no_room = || {
        Error::unsupported(
            LAYER,
            format!("no room for the backup before the end of the disk, block {last}"),
        )
    };
    let last_usable = last_usable.ok_or_else(no_room)?;
    let header = Header {
        alternate_lba: last,
        last_usable,
        ..primary.header.clone()
    };
    let moved = Copy {
        header,
        table: primary.table.clone(),
    };
    let backup = moved.backup()?;
    if !is_blank_or(disk, &backup)? {
        let what = "the backup is not at the end of the disk, and the space there is not blank; \
             it is not moved";
        return Err(Error::corrupt(LAYER, (last_usable + 1) * block, what));
    }
    let old = primary.header.alternate_lba;
    // The block number may be invalid: the block is not changed unless it contains a header, and is
    // between the blocks used by the primary and the new backup.
    let is_between = (primary.taken().end..=last_usable).contains(&old);
    let old_backup =
        (is_between && holds_header(disk, old * block)?).then(|| old * block..(old + 1) * block);
    Ok(MapRepair {
        backup: Some(backup),
        old_backup,
        primary: Some(moved),
        ..MapRepair::default()
    })
}

fn holds_header(disk: &dyn BlockDevice, offset: u64) -> Result<bool> {
    Ok(read::<GptHeaderRaw>(disk, offset)?.signature == GPT_SIGNATURE)
}

/// Returns true if every sector at the place of `copy` is blank or already has the right contents.
fn is_blank_or(disk: &dyn BlockDevice, copy: &Copy) -> Result<bool> {
    let block = u64::from(copy.header.block);
    for (lba, bytes) in [
        (copy.header.entries_lba, copy.table.clone()),
        (copy.header.my_lba, copy.header.to_block()),
    ] {
        let found = disk.read_vec(lba * block, bytes.len())?;
        if found
            .chunks(SECTOR)
            .zip(bytes.chunks(SECTOR))
            .any(|(found, right)| found != right && !is_zero(found))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the primary that belongs to a backup at the end of the disk.
fn primary_of(backup: &Copy) -> Result<Copy> {
    let entries_lba = PRIMARY + 1;
    let first_taken = backup.taken().start;
    if entries_lba + backup.header.table_blocks() > first_taken {
        let what = format!(
            "no room for the primary's table before block {first_taken}, the first block for partitions"
        );
        return Err(Error::unsupported(LAYER, what));
    }
    Ok(backup.moved(PRIMARY, backup.header.my_lba, entries_lba))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::device::Memory;
    use crate::partition::gpt::{NewPartition, create, read_copy};
    use crate::partition::{APPLE_HFS, probe};

    /// Numbers of blocks before and after the disk has grown.
    const OLD: u64 = 300;
    const NEW: u64 = 500;

    #[test]
    fn a_wrong_place_of_the_backup_costs_nothing() {
        let grown = Memory::zeros(NEW as usize * 512);
        let disk = Memory::zeros(OLD as usize * 512);
        let partition = NewPartition {
            range: 40 * 512..200 * 512,
            type_guid: APPLE_HFS,
            guid: Uuid::from_bytes([1; 16]),
            name: "x".into(),
        };
        create(&disk, 512, Uuid::from_bytes([9; 16]), &[partition]).unwrap();
        grown.write_at(0, &disk.to_vec()).unwrap();
        grown.write_at(210 * 512, &[7; 512]).unwrap();
        grown
            .write_at(50 * 512, &grown.read_vec(512, 512).unwrap())
            .unwrap();
        grown.write_at(0, b"EFI PART").unwrap();
        let expected = probe(&grown).unwrap().unwrap().partitions;
        let before = grown.to_vec();
        let first_of_table = NEW - 33;
        // Boot code that looks like a header, the primary itself, its table, a file that looks like
        // a header, a gap, a block without a header, the new backup's table.
        for alternate in [0, 1, 2, 50, 220, 210, first_of_table, NEW - 2] {
            let disk = Memory::from(before.clone());
            let mut primary = read_copy(&disk, 512, PRIMARY).unwrap().unwrap();
            primary.header.alternate_lba = alternate;
            primary.write(&disk).unwrap();
            repair(&disk).unwrap();
            let map = probe(&disk).unwrap().unwrap();
            assert_eq!(map.partitions, expected, "{alternate}");
            assert!(map.problems.is_empty(), "{alternate}: {:?}", map.problems);
            assert_eq!(repair(&disk).unwrap(), Repaired::default(), "{alternate}");
            assert_eq!(
                disk.to_vec()[34 * 512..OLD as usize * 512],
                before[34 * 512..OLD as usize * 512],
                "{alternate}"
            );
        }
        repair(&grown).unwrap();
        assert!(
            is_zero(&grown.read_vec((OLD - 1) * 512, 512).unwrap()),
            "what was the backup goes"
        );
    }
}
