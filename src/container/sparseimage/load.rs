//! Loading and validation of the index of a sparse image. Source: docs/formats/sparseimage.md §1-3,
//! 6.

use zerocopy::{FromBytes, IntoBytes};

use super::layout::{
    BandIndex, FLAGS_AT, HeadRaw, HeaderPrefix, Label, NODE, NextRaw, SIZE_AT, Slot, slot_at,
    slots_of,
};
use super::table::{MAX_SLOTS, Table};
use super::{LAYER, SECTOR};
use crate::device::{BlockDevice, regions};
use crate::problem::{Findings, Severity};
use crate::size::{narrow, to_usize};
use crate::{Error, Result};

/// Maximum number of duplicate bands that are compared: more than an interrupted
/// [`commit`](super::commit) leaves.
const MAX_TWINS: usize = 1024;

/// The loaded index of an image.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) table: Table,
    /// Bands that have two slots. The later one is valid.
    pub(super) duplicates: Vec<DuplicateSlots>,
}

/// One band with two slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct DuplicateSlots {
    pub(super) band: BandIndex,
    pub(super) earlier: Slot,
    pub(super) later: Slot,
    /// True if both have the same contents. Otherwise the later one is zeros, from an interrupted
    /// discard.
    pub(super) equal: bool,
}

pub(super) fn load(file: &dyn BlockDevice, findings: &mut Findings<'_>) -> Result<Loaded> {
    let file_len = file.info().len;
    if file_len < NODE {
        return Err(Error::corrupt(
            LAYER,
            0,
            format!("the file is truncated: it has {file_len} bytes, the header takes {NODE}"),
        ));
    }
    let mut raw = HeadRaw::read_from_bytes(&[0; to_usize(NODE)]).map_err(|_| short(0))?;
    file.read_at(0, raw.as_mut_bytes())?;
    let head = HeaderPrefix::parse(&raw)?;
    if !head.usual_flags {
        findings.report(
            Severity::Note,
            Error::unsupported(LAYER, "unsupported flags in the header: expected 1").at(FLAGS_AT),
        )?;
    }
    if let Some(other) = head.other_sectors {
        let message = format!(
            "the header has {other} sectors here, and {} at byte 28, which count",
            head.sectors
        );
        findings.report(Severity::Warning, Error::corrupt(LAYER, SIZE_AT, message))?;
    }
    let mut table = Table::blank(
        u64::from(head.sectors_per_band) * SECTOR,
        head.sectors * SECTOR,
    );
    table.slots.extend(raw.slots.map(Label::from));
    let mut next = head.next;
    while next != 0 {
        findings.advance(1)?;
        next = load_next(file, &mut table, next)?;
    }
    let used = table
        .slots
        .iter()
        .rposition(|label| *label != Label::NONE)
        .map_or(0, |last| last + 1);
    table.slots.truncate(used);
    table.slots.shrink_to_fit();
    table.on_disk = used;
    table.nodes_on_disk = table.nodes.len();
    let duplicates = sort(file_len, &mut table, findings)?;
    let duplicates = compare(file, &table, duplicates, findings)?;
    Ok(Loaded { table, duplicates })
}

fn short(at: u64) -> Error {
    Error::corrupt(LAYER, at, "the file is truncated within a node")
}

/// Adds the node at byte `at`. Returns its link.
fn load_next(file: &dyn BlockDevice, table: &mut Table, at: u64) -> Result<u64> {
    let last = table.nodes.len() - 1;
    let link = table.nodes[last] + super::layout::link_at(last);
    let lowest = table.end_of_node(last);
    if at < lowest {
        let expected =
            format!("next node at {at} is within the bands of this node, which end at {lowest}");
        return Err(Error::corrupt(LAYER, link, expected));
    }
    let file_len = file.info().len;
    if !at.is_multiple_of(SECTOR) || at.checked_add(NODE).is_none_or(|end| end > file_len) {
        let expected = format!(
            "invalid next node at {at}: expected a multiple of {SECTOR} within the file of \
             {file_len} bytes"
        );
        return Err(Error::corrupt(LAYER, link, expected));
    }
    if table.slots.len() + slots_of(last + 1) as usize > MAX_SLOTS {
        let limit = format!("too many slots: at most {MAX_SLOTS} are supported");
        return Err(Error::limit(LAYER, limit).at(link));
    }
    let mut raw = NextRaw::read_from_bytes(&[0; to_usize(NODE)]).map_err(|_| short(at))?;
    file.read_at(at, raw.as_mut_bytes())?;
    let next = raw.parse(at)?;
    table.nodes.push(at);
    table.slots.extend(raw.slots.map(Label::from));
    Ok(next)
}

/// Sorts the slots into bands, leftovers and gaps. Returns the bands found twice, with both slots.
fn sort(
    file_len: u64,
    table: &mut Table,
    findings: &mut Findings<'_>,
) -> Result<Vec<(BandIndex, Slot, Slot)>> {
    let mut duplicates = Vec::new();
    for number in 0..narrow::<u32>(table.slots.len()) {
        let slot = Slot(number);
        let Some(band) = table.slots[number as usize].band() else {
            findings.report(
                Severity::Warning,
                error_at(table, slot, "is empty, although used slots follow"),
            )?;
            table.spare.insert(slot);
            continue;
        };
        if table.slot_offset(slot) >= file_len {
            let lost = format!(
                "band {} at byte {} is past the end of the file at {file_len}",
                band.0,
                table.slot_offset(slot)
            );
            findings.report(Severity::Damage, error_at(table, slot, lost))?;
        }
        if !table.is_visible(band) {
            let leftover = format!("band {} is past the end of the disk", band.0);
            findings.report(Severity::Warning, error_at(table, slot, leftover))?;
        }
        if let Some(earlier) = table.bands.insert(band, slot) {
            if duplicates.len() == MAX_TWINS {
                let twin = format!(
                    "band {} is also in slot {}, and {MAX_TWINS} more are in two slots",
                    band.0, earlier.0
                );
                return Err(error_at(table, slot, twin));
            }
            duplicates.push((band, earlier, slot));
        }
    }
    Ok(duplicates)
}

/// Compares duplicate bands. Reports those that differ as damage, unless the later one is zeros.
fn compare(
    file: &dyn BlockDevice,
    table: &Table,
    duplicates: Vec<(BandIndex, Slot, Slot)>,
    findings: &mut Findings<'_>,
) -> Result<Vec<DuplicateSlots>> {
    let mut compared = Vec::with_capacity(duplicates.len());
    for (band, earlier, later) in duplicates {
        let later_is_zero = is_zero_band(file, table, later)?;
        let equal = if later_is_zero {
            is_zero_band(file, table, earlier)?
        } else {
            same(file, table, earlier, later)?
        };
        let both = format!("band {} is also in slot {}", band.0, earlier.0);
        if equal || later_is_zero {
            findings.report(Severity::Warning, error_at(table, later, both))?;
        } else {
            findings.report(
                Severity::Damage,
                error_at(table, later, both + ", with other contents"),
            )?;
        }
        compared.push(DuplicateSlots {
            band,
            earlier,
            later,
            equal,
        });
    }
    Ok(compared)
}

/// Moves the slots without a label that hold data from `spare` to `orphans`.
pub(super) fn find_orphans(file: &dyn BlockDevice, table: &mut Table) -> Result<()> {
    let spare: Vec<Slot> = std::mem::take(&mut table.spare).into_iter().collect();
    let follows =
        |one: &Slot, next: &Slot| one.0 + 1 == next.0 && one.in_node().0 == next.in_node().0;
    // Whole runs first: a damaged image may have millions of empty slots in one hole.
    for run in spare.chunk_by(follows) {
        let start = table.slot_offset(run[0]);
        if regions::is_zero(file, start..start + run.len() as u64 * table.band_size)? {
            table.spare.extend(run);
            continue;
        }
        for &slot in run {
            if is_zero_band(file, table, slot)? {
                table.spare.insert(slot);
            } else {
                table.orphans.insert(slot);
            }
        }
    }
    Ok(())
}

/// Returns true if the band in `slot` is all zeros. Bytes past the end of the file count as zeros.
pub(super) fn is_zero_band(file: &dyn BlockDevice, table: &Table, slot: Slot) -> Result<bool> {
    let start = table.slot_offset(slot);
    regions::is_zero(file, start..start + table.band_size)
}

fn same(file: &dyn BlockDevice, table: &Table, one: Slot, other: Slot) -> Result<bool> {
    regions::are_equal(
        file,
        table.slot_offset(one),
        table.slot_offset(other),
        table.band_size,
    )
}

fn error_at(
    table: &Table,
    slot: Slot,
    message: impl Into<std::borrow::Cow<'static, str>>,
) -> Error {
    let (node, within) = slot.in_node();
    Error::corrupt(
        LAYER,
        table.nodes[node] + slot_at(node, within),
        format!("slot {} {}", slot.0, message.into()),
    )
}
