//! Restoring one copy of a GPT from the other.

use zerocopy::IntoBytes;

use super::create::protective_mbr;
use super::{Copy, Found, LAYER, PRIMARY, block_sizes, last_block, read_backup, read_copy};
use crate::device::BlockDevice;
use crate::partition::layout::MbrRaw;
use crate::partition::read;
use crate::{Error, Kind, Result};

/// What [`repair`] wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repaired {
    /// The protective MBR, whose block was blank.
    pub protective_mbr: bool,
    /// Header and table at the beginning of the disk, from the backup.
    pub primary: bool,
    /// Header and table at the end, from the primary.
    pub backup: bool,
}

/// Makes both copies of the GPT of `disk` whole and the same, and the protective MBR if block 0 is blank. Where both copies
/// are whole but differ, the primary counts, as it does for readers.
///
/// Only the damaged copy is written, table before header, so that the other is there at every moment. Refused, and nothing
/// changed, if neither copy can be used, if a copy would not fit where it belongs, or if there is no GPT at all.
pub fn repair(disk: &dyn BlockDevice) -> Result<Repaired> {
    disk.info().check_writable(LAYER)?;
    let mbr = read::<MbrRaw>(disk, 0)?;
    let blank = mbr.as_bytes().iter().all(|&byte| byte == 0);
    if !blank && !mbr.is_protective() {
        return Err(Error::new(Kind::NotFound, LAYER, "block 0 does not say that the disk has a GPT").at(0));
    }
    let mut damage = None;
    for block in block_sizes(disk) {
        let last = last_block(disk, block);
        let mut repaired = match read_copy(disk, block, PRIMARY)? {
            Ok(primary) => restore_backup(disk, &primary)?,
            Err(error) if blank => {
                damage = damage.or(Some(error));
                continue;
            }
            Err(error) => match read_backup(disk, block, last)? {
                Ok(backup) => restore_primary(disk, &backup)?,
                Err(_) => {
                    damage = damage.or(Some(error));
                    continue;
                }
            },
        };
        if blank {
            disk.write_at(0, protective_mbr(last + 1).as_bytes())?;
            disk.flush()?;
            repaired.protective_mbr = true;
        }
        return Ok(repaired);
    }
    let error = Error::new(Kind::Corrupt, LAYER, "neither copy can be used to restore the other");
    Err(match damage {
        Some(damage) => error.caused_by(damage),
        None => error,
    })
}

fn restore_backup(disk: &dyn BlockDevice, primary: &Copy) -> Result<Repaired> {
    let is_whole = |found: Found| found.is_ok_and(|backup| backup.agrees_with(primary));
    if is_whole(read_backup(disk, primary.header.block, primary.header.alternate_lba)?) {
        return Ok(Repaired::default());
    }
    if primary.header.alternate_lba > last_block(disk, primary.header.block) {
        let what = format!("the disk ends before block {}, where the backup belongs", primary.header.alternate_lba);
        return Err(Error::new(Kind::Corrupt, LAYER, what));
    }
    primary.backup()?.write(disk)?;
    Ok(Repaired { backup: true, ..Repaired::default() })
}

fn restore_primary(disk: &dyn BlockDevice, backup: &Copy) -> Result<Repaired> {
    let entries_lba = PRIMARY + 1;
    let first_taken = backup.taken().start;
    if entries_lba + backup.header.table_blocks() > first_taken {
        let what = format!("no room for the primary's table before block {first_taken}, the first for partitions");
        return Err(Error::unsupported(LAYER, what));
    }
    backup.moved(PRIMARY, backup.header.my_lba, entries_lba).write(disk)?;
    Ok(Repaired { primary: true, ..Repaired::default() })
}
