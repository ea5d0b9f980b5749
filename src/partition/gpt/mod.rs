//! The GUID partition table: two copies of a header and a table, each with checksums.

mod change;
mod check;
mod copies;
mod create;
mod repair;

use std::mem::offset_of;
use std::ops::Range;

use uuid::Uuid;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::layout::{GPT_REVISION, GPT_SIGNATURE, GptEntryRaw, GptHeaderRaw, MbrRaw};
use super::{Map, Partition, Scheme, TypeId, block_range};
use crate::device::{BlockDevice, BlockDeviceExt, is_zero};
use crate::size::{narrow, to_usize};
use crate::{Error, Kind, Result};

pub use change::{Change, PlannedChange, change, disk_len_for};
pub(crate) use change::{last_end, plan_change};
pub(super) use check::check;
use check::is_well_sized;
pub(super) use copies::copies;
pub(crate) use copies::difference;
pub use create::{Guids, MapGeometry, NewPartition, create, create_single};
pub use repair::{Repaired, repair, repair_with};

const LAYER: &str = "gpt";
const HEADER: &str = "gpt header";
const TABLE: &str = "gpt table";

/// Maximum number of bytes of a table that are read: 64 times the usual size. The size is an
/// untrusted number from disk.
const MAX_TABLE: u64 = 1 << 20;

/// Block of the primary header.
const PRIMARY: u64 = 1;

/// A validated header.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Header {
    block: u32,
    my_lba: u64,
    alternate_lba: u64,
    first_usable: u64,
    last_usable: u64,
    disk_guid: Uuid,
    entries_lba: u64,
    entry_count: u32,
    entry_size: u32,
    entries_crc: u32,
}

/// One of the two copies: header and table, both with valid checksums.
#[derive(Debug)]
struct Copy {
    header: Header,
    table: Vec<u8>,
}

/// The result of reading a copy.
type CopyResult = Result<Copy>;

/// The extent of the search for a GPT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// A GPT counts if block 0 announces it, with either copy; if block 0 is blank, with a valid
    /// primary; and if block 0 is a damaged protective MBR, with two copies that agree.
    Announced,
    /// As above. In addition, the backup alone counts if block 0 is blank, and two copies that
    /// agree count if block 0 is no MBR. For disks on which nothing else is found: these copies may
    /// be remains of former use.
    Everywhere,
}

/// Reads the map, if there is one. `mbr` is block 0.
pub(super) fn probe(disk: &dyn BlockDevice, mbr: &MbrRaw, search: Search) -> Result<Option<Map>> {
    let Some(copies) = Copies::find(disk, mbr, search)? else {
        return Ok(None);
    };
    let last = last_block(disk, copies.block);
    let mut map = copies.into_map(disk)?;
    let block_0 = if mbr.is_blank() {
        Some("the protective MBR is missing")
    } else if mbr.is_protective() {
        None
    } else if has_protective_form(mbr, last) {
        Some("the protective MBR is damaged; the GPT is used")
    } else {
        Some("block 0 is not a protective MBR; the GPT is used")
    };
    map.problems
        .extend(block_0.map(|what| Error::corrupt(LAYER, 0, what)));
    Ok(Some(map))
}

/// Returns true if the entries are those of a protective MBR of a disk whose last block is `last`,
/// except for the type. No program creates a partition that begins in block 1 and covers the disk.
fn has_protective_form(mbr: &MbrRaw, last: u64) -> bool {
    let [claim, rest @ ..] = &mbr.entries;
    is_well_sized(claim, last) && rest.iter().all(|entry| is_zero(entry.as_bytes()))
}

/// Both copies of a GPT with blocks of the same size, or the errors of reading them.
struct Copies {
    block: u32,
    primary: CopyResult,
    backup: CopyResult,
}

impl Copies {
    /// Reads the copies of the GPT that counts on a disk with this block 0. `None`: the disk has
    /// none. Neither copy is valid if block 0 announces a GPT that cannot be used.
    fn find(disk: &dyn BlockDevice, mbr: &MbrRaw, search: Search) -> Result<Option<Self>> {
        let (protective, blank) = (mbr.is_protective(), mbr.is_blank());
        let mut unusable = None;
        for block in block_sizes(disk) {
            let last = last_block(disk, block);
            let is_damaged = !protective && !blank && has_protective_form(mbr, last);
            let is_unknown = !mbr.has_signature() && search == Search::Everywhere;
            if !(protective || blank || is_damaged || is_unknown) {
                continue;
            }
            let primary = read_copy(disk, block, PRIMARY)?;
            let backup_alone = protective || blank && search == Search::Everywhere;
            if primary.is_err() && !backup_alone {
                continue;
            }
            let place = primary
                .as_ref()
                .map_or(last, |primary| primary.header.alternate_lba);
            let found = Self {
                block,
                backup: read_backup(disk, block, place)?,
                primary,
            };
            let counts = match (&found.primary, &found.backup) {
                (Ok(_), _) if protective || blank => true,
                (Ok(primary), Ok(backup)) => place == last && backup.agrees_with(primary),
                (Err(_), Ok(_)) => true,
                (_, Err(_)) => false,
            };
            if counts {
                return Ok(Some(found));
            }
            if protective && !mbr.has_own_partitions() {
                unusable.get_or_insert(found);
            }
        }
        Ok(unusable)
    }

    /// Returns the map from the better of the two copies.
    fn into_map(self, disk: &dyn BlockDevice) -> Result<Map> {
        let last = last_block(disk, self.block);
        match (self.primary, self.backup) {
            (Ok(primary), backup) => {
                let mut map = read_map(disk, &primary);
                map.problems.extend(backup_problem(&primary, backup, last));
                Ok(map)
            }
            (Err(damage), Ok(backup)) => {
                let mut map = read_map(disk, &backup);
                map.problems.push(
                    Error::new(
                        damage.kind(),
                        LAYER,
                        "the primary copy of the map cannot be used; the backup is used",
                    )
                    .caused_by(damage),
                );
                Ok(map)
            }
            (Err(damage), Err(backup)) => Err(neither(damage, &backup)),
        }
    }
}

/// Returns the error for a GPT of which neither copy is valid.
fn neither(primary: Error, backup: &Error) -> Error {
    let what = format!("neither copy of the map can be used; the backup: {backup}; the primary");
    Error::new(Kind::Corrupt, LAYER, what).caused_by(primary)
}

/// Returns the block sizes to try, that of the disk first: a GPT counts in blocks but does not
/// state their size.
fn block_sizes(disk: &dyn BlockDevice) -> [u32; 2] {
    if disk.info().block == 4096 {
        [4096, 512]
    } else {
        [512, 4096]
    }
}

/// Returns the problem of the backup of a valid primary, if there is one.
fn backup_problem(primary: &Copy, backup: CopyResult, last: u64) -> Option<Error> {
    let at = primary
        .header
        .alternate_lba
        .saturating_mul(primary.header.block.into());
    match backup {
        Err(damage) => Some(
            Error::new(damage.kind(), LAYER, "the backup of the map cannot be used")
                .caused_by(damage),
        ),
        Ok(backup) if !backup.agrees_with(primary) => Some(Error::corrupt(
            LAYER,
            at,
            "the two copies of the map differ; the primary is used",
        )),
        Ok(_) if primary.header.alternate_lba != last => Some(Error::corrupt(
            LAYER,
            at,
            "the backup of the map is not at the end of the disk",
        )),
        Ok(_) => None,
    }
}

/// Returns the length of the disk in bytes that the primary of a GPT states; `None` if there is no
/// valid primary.
pub(crate) fn recorded_len(disk: &dyn BlockDevice) -> Result<Option<u64>> {
    for block in block_sizes(disk) {
        if let Ok(primary) = read_copy(disk, block, PRIMARY)? {
            return Ok(primary
                .header
                .alternate_lba
                .checked_add(1)
                .and_then(|blocks| blocks.checked_mul(block.into())));
        }
    }
    Ok(None)
}

/// Returns the length of the disk in bytes that the backup of a GPT whose header ends at byte `end`
/// states; `None` if there is no valid one. Nothing before it is read.
pub(crate) fn recorded_by_backup(disk: &dyn BlockDevice, end: u64) -> Result<Option<u64>> {
    for block in block_sizes(disk) {
        let Some(lba) = (end / u64::from(block)).checked_sub(1) else {
            continue;
        };
        if read_copy(disk, block, lba)?.is_ok() {
            return Ok(Some((lba + 1) * u64::from(block)));
        }
    }
    Ok(None)
}

/// Returns true if both copies are valid and agree, and the backup is at the place stated by the
/// primary; `None` if there is no valid primary.
pub(crate) fn are_copies_whole(disk: &dyn BlockDevice) -> Result<Option<bool>> {
    for block in block_sizes(disk) {
        if let Ok(primary) = read_copy(disk, block, PRIMARY)? {
            let backup = read_backup(disk, block, primary.header.alternate_lba)?;
            return Ok(Some(
                backup.is_ok_and(|backup| backup.agrees_with(&primary)),
            ));
        }
    }
    Ok(None)
}

fn last_block(disk: &dyn BlockDevice, block: u32) -> u64 {
    (disk.info().len / u64::from(block)).saturating_sub(1)
}

/// Reads and checks the copy whose header is at block `lba`. The outer error is a read error.
fn read_copy(disk: &dyn BlockDevice, block: u32, lba: u64) -> Result<CopyResult> {
    let len = disk.info().len;
    let Some(offset) = lba
        .checked_mul(block.into())
        .filter(|&at| disk.info().check(HEADER, at, block.into()).is_ok())
    else {
        let what = format!("the header at block {lba} is past the end of the disk of {len} bytes");
        return Ok(Err(Error::new(Kind::Corrupt, HEADER, what)));
    };
    let bytes = disk.read_vec(offset, block as usize)?;
    let header = match Header::parse(&bytes, block, lba, len / u64::from(block)) {
        Ok(header) => header,
        Err(error) => return Ok(Err(error.at(offset))),
    };
    let table_offset = header.entries_lba * u64::from(block);
    let table = disk.read_vec(table_offset, to_usize(header.table_bytes()))?;
    if crc32fast::hash(&table) != header.entries_crc {
        return Ok(Err(Error::corrupt(
            TABLE,
            table_offset,
            "checksum mismatch",
        )));
    }
    Ok(Ok(Copy { header, table }))
}

/// Reads and checks the copy at block `lba` as the backup of the one at block 1.
fn read_backup(disk: &dyn BlockDevice, block: u32, lba: u64) -> Result<CopyResult> {
    let found = read_copy(disk, block, lba)?;
    Ok(found.and_then(|backup| match backup.header.alternate_lba {
        PRIMARY => Ok(backup),
        other => {
            let what = format!("invalid location {other} of the primary: expected block {PRIMARY}");
            Err(Error::corrupt(HEADER, lba * u64::from(block), what))
        }
    }))
}

impl Header {
    /// Parses the header in the block `bytes`, read at block `lba` of `blocks`.
    fn parse(bytes: &[u8], block: u32, lba: u64, blocks: u64) -> Result<Self> {
        let bad = |what: String| Err(Error::new(Kind::Corrupt, HEADER, what));
        let Ok((raw, _)) = GptHeaderRaw::ref_from_prefix(bytes) else {
            return bad("expected a whole block".into());
        };
        if raw.signature != GPT_SIGNATURE {
            return bad("the signature EFI PART is missing".into());
        }
        let size = raw.header_size.get() as usize;
        let Some(covered) = bytes
            .get(..size)
            .filter(|covered| covered.len() >= size_of::<GptHeaderRaw>())
        else {
            return bad(format!(
                "invalid header size {size}: expected 92 to {block}"
            ));
        };
        if header_crc(covered) != raw.header_crc.get() {
            return bad("checksum mismatch".into());
        }
        if raw.revision.get() >> 16 != GPT_REVISION >> 16 {
            return bad(format!(
                "unsupported revision {:#x}: expected 1",
                raw.revision
            ));
        }
        if raw.my_lba.get() != lba {
            return bad(format!(
                "wrong location: the header records block {}, but is at {lba}",
                raw.my_lba
            ));
        }
        Self::from(raw, block).checked(blocks)
    }

    fn from(raw: &GptHeaderRaw, block: u32) -> Self {
        Self {
            block,
            my_lba: raw.my_lba.get(),
            alternate_lba: raw.alternate_lba.get(),
            first_usable: raw.first_usable.get(),
            last_usable: raw.last_usable.get(),
            disk_guid: Uuid::from_bytes_le(raw.disk_guid),
            entries_lba: raw.entries_lba.get(),
            entry_count: raw.entry_count.get(),
            entry_size: raw.entry_size.get(),
            entries_crc: raw.entries_crc.get(),
        }
    }

    /// Fails if the table is too large, or not within the disk's `blocks`.
    fn checked(self, blocks: u64) -> Result<Self> {
        let bad = |what: String| Err(Error::new(Kind::Corrupt, HEADER, what));
        if self.entry_size < 128 || !self.entry_size.is_power_of_two() {
            return bad(format!(
                "invalid entry size {}: expected 128 times a power of two",
                self.entry_size
            ));
        }
        if self.entry_count == 0 || self.table_bytes() > MAX_TABLE {
            let most = MAX_TABLE / u64::from(self.entry_size);
            return bad(format!(
                "invalid number of entries {}: expected 1 to {most}",
                self.entry_count
            ));
        }
        if self.entries_lba < 2
            || self
                .entries_lba
                .checked_add(self.table_blocks())
                .is_none_or(|end| end > blocks)
        {
            let what = format!(
                "table of {} blocks at block {} exceeds the disk",
                self.table_blocks(),
                self.entries_lba
            );
            return bad(what);
        }
        Ok(self)
    }

    /// Returns the table size in bytes. Cannot overflow, because both factors have 32 bits.
    fn table_bytes(&self) -> u64 {
        u64::from(self.entry_count) * u64::from(self.entry_size)
    }

    fn table_blocks(&self) -> u64 {
        self.table_bytes().div_ceil(self.block.into())
    }

    /// Returns a whole block that begins with this header.
    fn to_block(&self) -> Vec<u8> {
        let mut raw = GptHeaderRaw::new_zeroed();
        raw.signature = GPT_SIGNATURE;
        raw.revision = GPT_REVISION.into();
        raw.header_size = narrow::<u32>(size_of::<GptHeaderRaw>()).into();
        raw.my_lba = self.my_lba.into();
        raw.alternate_lba = self.alternate_lba.into();
        raw.first_usable = self.first_usable.into();
        raw.last_usable = self.last_usable.into();
        raw.disk_guid = self.disk_guid.to_bytes_le();
        raw.entries_lba = self.entries_lba.into();
        raw.entry_count = self.entry_count.into();
        raw.entry_size = self.entry_size.into();
        raw.entries_crc = self.entries_crc.into();
        raw.header_crc = header_crc(raw.as_bytes()).into();
        let mut block = raw.as_bytes().to_vec();
        block.resize(self.block as usize, 0);
        block
    }
}

impl Copy {
    /// Returns true if both copies describe the same disk.
    fn agrees_with(&self, other: &Self) -> bool {
        let (a, b) = (&self.header, &other.header);
        a.my_lba != b.my_lba
            && a.disk_guid == b.disk_guid
            && (a.my_lba, a.alternate_lba) == (b.alternate_lba, b.my_lba)
            && (a.first_usable, a.last_usable) == (b.first_usable, b.last_usable)
            && self.table == other.table
            && a.entry_size == b.entry_size
    }

    /// Returns the used entries with their numbers.
    fn entries(&self) -> impl Iterator<Item = (u32, &GptEntryRaw)> {
        let entries = self.table.chunks_exact(self.header.entry_size as usize);
        let entries = (1..).zip(
            entries
                .filter_map(|bytes| GptEntryRaw::ref_from_prefix(bytes).ok().map(|(raw, _)| raw)),
        );
        entries.filter(|(_, raw)| raw.type_guid != [0; 16])
    }

    /// Returns the range of blocks that the other copy must not overlap: from the first to the last
    /// block of this copy, of the usable range, and of the partitions, even if they are outside of
    /// that range.
    fn taken(&self) -> Range<u64> {
        let header = &self.header;
        let own = [
            header.my_lba..header.my_lba + 1,
            header.entries_lba..header.entries_lba + header.table_blocks(),
        ];
        let usable = header.first_usable..header.last_usable.saturating_add(1);
        let used = self
            .entries()
            .map(|(_, raw)| raw.first.get()..raw.last.get().saturating_add(1));
        own.into_iter().chain(used).fold(usable, |all, blocks| {
            all.start.min(blocks.start)..all.end.max(blocks.end)
        })
    }
}

/// Updates the checksums of both copies, as far as their fields are valid, so that fuzzing reaches
/// the checks after them.
#[cfg(feature = "testing")]
pub(crate) fn store_checksum(disk: &dyn BlockDevice) {
    for (block, lba) in block_sizes(disk)
        .into_iter()
        .flat_map(|block| [(block, PRIMARY), (block, last_block(disk, block))])
    {
        let offset = lba * u64::from(block);
        let Ok(mut raw) = crate::partition::read::<GptHeaderRaw>(disk, offset) else {
            continue;
        };
        if raw.signature != GPT_SIGNATURE {
            continue;
        }
        let table = Header::from(&raw, block).checked(last_block(disk, block) + 1);
        let table = table.and_then(|header| {
            disk.read_vec(
                header.entries_lba * u64::from(block),
                to_usize(header.table_bytes()),
            )
        });
        if let Ok(table) = table {
            raw.entries_crc = crc32fast::hash(&table).into();
        }
        // Bytes covered by the checksum beyond the fields are preserved, and invalid sizes are left
        // unchanged.
        let mut covered = raw.as_bytes().to_vec();
        let more = u64::from(raw.header_size.get())
            .min(block.into())
            .saturating_sub(covered.len() as u64);
        covered.extend(
            disk.read_vec(offset + covered.len() as u64, to_usize(more))
                .unwrap_or_default(),
        );
        raw.header_crc = header_crc(&covered).into();
        let _ = disk.write_at(offset, raw.as_bytes());
    }
}

/// Returns the checksum of a header, with its own field treated as zero.
fn header_crc(covered: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&covered[..offset_of!(GptHeaderRaw, header_crc)]);
    hasher.update(&[0; size_of::<u32>()]);
    hasher.update(&covered[offset_of!(GptHeaderRaw, reserved)..]);
    hasher.finalize()
}

fn read_map(disk: &dyn BlockDevice, copy: &Copy) -> Map {
    let header = &copy.header;
    let mut map = Map {
        scheme: Scheme::Gpt,
        block: header.block,
        disk_guid: Some(header.disk_guid),
        partitions: Vec::new(),
        problems: Vec::new(),
    };
    for (number, raw) in copy.entries() {
        let offset = header.entries_lba * u64::from(header.block)
            + u64::from(number - 1) * u64::from(header.entry_size);
        match read_partition(raw, number, header.block, disk.info().len) {
            Ok(partition) => map.partitions.push(partition),
            Err(problem) => {
                map.problems.push(problem.at(offset));
                continue;
            }
        }
        if raw.first.get() < header.first_usable || raw.last.get() > header.last_usable {
            let what = format!(
                "partition {number} is not within the blocks for partitions, {} to {}",
                header.first_usable, header.last_usable
            );
            map.problems.push(Error::corrupt(TABLE, offset, what));
        }
    }
    map
}

fn read_partition(raw: &GptEntryRaw, number: u32, block: u32, len: u64) -> Result<Partition> {
    let (first, last) = (raw.first.get(), raw.last.get());
    let count = last
        .checked_sub(first)
        .and_then(|blocks| blocks.checked_add(1))
        .unwrap_or(0);
    let range = block_range(TABLE, number, first, count, block, len)?;
    let units = raw
        .name
        .iter()
        .map(|unit| unit.get())
        .take_while(|&unit| unit != 0);
    let name = char::decode_utf16(units)
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    let mut partition = Partition::new(
        number,
        range,
        name,
        TypeId::Guid(Uuid::from_bytes_le(raw.type_guid)),
    );
    partition.guid = Some(Uuid::from_bytes_le(raw.guid));
    partition.flags = raw.attributes.get();
    Ok(partition)
}
