//! The master boot record and the chain of extended boot records that it refers to.

mod change;

use zerocopy::{FromBytes, IntoBytes};

use super::layout::{BootSectorRaw, MBR_SIGNATURE, MbrEntryRaw, MbrRaw};
use super::{Map, Partition, Scheme, TypeId, block_range, kind, read};
use crate::device::{BlockDevice, is_zero};
use crate::{Error, Result};

pub(super) use self::change::{change, last_end};

const LAYER: &str = "mbr";

/// Maximum number of logical partitions that are read; Windows and Linux support fewer.
const MAX_LOGICAL: u32 = 128;

impl MbrRaw {
    pub(super) fn is_blank(&self) -> bool {
        is_zero(self.as_bytes())
    }

    pub(super) fn has_signature(&self) -> bool {
        self.signature == MBR_SIGNATURE
    }

    /// Returns true if the MBR is the protective MBR of a GPT.
    pub(super) fn is_protective(&self) -> bool {
        self.has_signature()
            && self
                .entries
                .iter()
                .any(|entry| entry.kind == kind::PROTECTIVE)
    }

    /// Returns true if the MBR has partitions other than the protective one.
    pub(super) fn has_own_partitions(&self) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.is_used() && entry.kind != kind::PROTECTIVE)
    }

    /// Returns true if the sector can be a partition table. Boot sectors of FAT, exFAT and NTFS
    /// have the same signature, and code or text at the place of the entries.
    fn is_plausible(&self) -> bool {
        self.has_signature()
            && self.entries.iter().all(|entry| entry.status & 0x7f == 0)
            && self.entries.iter().any(MbrEntryRaw::is_used)
            && !is_boot_sector(&self.boot_code)
    }
}

impl MbrEntryRaw {
    fn is_used(&self) -> bool {
        self.kind != 0 && self.blocks.get() != 0
    }

    fn partition(&self, number: u32, base: u64, block: u32, len: u64) -> Result<Partition> {
        let first = base + u64::from(self.first.get());
        let range = block_range(LAYER, number, first, self.blocks.get().into(), block, len)?;
        let mut partition = Partition::new(number, range, String::new(), TypeId::Byte(self.kind));
        partition.flags = self.status.into();
        Ok(partition)
    }
}

/// Reads the map in block 0, if there is one.
pub(super) fn probe(disk: &dyn BlockDevice, mbr: &MbrRaw) -> Result<Option<Map>> {
    if !mbr.is_plausible() {
        return Ok(None);
    }
    let info = disk.info();
    let mut map = Map {
        scheme: Scheme::Mbr,
        block: info.block,
        disk_guid: None,
        partitions: Vec::new(),
        problems: Vec::new(),
    };
    for (number, entry) in (1..).zip(&mbr.entries).filter(|(_, entry)| entry.is_used()) {
        match entry.partition(number, 0, info.block, info.len) {
            Ok(partition) => map.partitions.push(partition),
            Err(problem) => map.problems.push(problem.at(0)),
        }
    }
    let extended = mbr
        .entries
        .iter()
        .find(|entry| entry.is_used() && kind::is_extended(entry.kind));
    if let Some(extended) = extended {
        read_logical(disk, extended.first.get().into(), &mut map)?;
    }
    Ok(Some(map))
}

/// Reads the logical partitions of the chain whose head is block `head`. Each record describes one
/// partition, relative to itself, and the next record, relative to the head.
fn read_logical(disk: &dyn BlockDevice, head: u64, map: &mut Map) -> Result<()> {
    let info = disk.info();
    let mut at = head;
    let mut seen = Vec::new();
    for number in 5..5 + MAX_LOGICAL {
        let offset = at * u64::from(map.block);
        if seen.contains(&at) {
            map.problems.push(Error::corrupt(
                LAYER,
                offset,
                "cycle in the chain of extended boot records",
            ));
            return Ok(());
        }
        seen.push(at);
        let record = if info.check(LAYER, offset, 512).is_ok() {
            Some(read::<MbrRaw>(disk, offset)?)
        } else {
            None
        };
        let Some(record) = record.filter(|record| record.signature == MBR_SIGNATURE) else {
            map.problems.push(Error::corrupt(
                LAYER,
                offset,
                "expected an extended boot record with the signature 55 aa",
            ));
            return Ok(());
        };
        let [logical, next, ..] = record.entries;
        if logical.is_used() {
            match logical.partition(number, at, map.block, info.len) {
                Ok(partition) => map.partitions.push(partition),
                Err(problem) => map.problems.push(problem.at(offset)),
            }
        }
        if !next.is_used() {
            return Ok(());
        }
        at = head + u64::from(next.first.get());
    }
    map.problems.push(Error::corrupt(
        LAYER,
        head,
        format!("too many logical partitions (limit {MAX_LOGICAL})"),
    ));
    Ok(())
}

/// Returns true if block 0 begins like the boot sector of a FAT, exFAT or NTFS volume.
fn is_boot_sector(code: &[u8; 446]) -> bool {
    let Ok((boot, _)) = BootSectorRaw::ref_from_prefix(code) else {
        return false;
    };
    let jump = matches!(boot.jump[0], 0xeb | 0xe9);
    if matches!(&boot.oem, b"NTFS    " | b"EXFAT   ") {
        return jump;
    }
    jump && matches!(boot.bytes_per_sector.get(), 512 | 1024 | 2048 | 4096)
        && boot.sectors_per_cluster.is_power_of_two()
        && boot.reserved_sectors.get() > 0
        && matches!(boot.fats, 1 | 2)
        && boot.media >= 0xf0
}
