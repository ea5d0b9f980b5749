//! The recognition of a volume: the sequence of identifiers at its start, and the anchors, by which the
//! size of its sectors is found.

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Result};
use zerocopy::FromBytes;

use super::LAYER;
use super::layout::{AnchorRaw, tag_id};
use super::tag::check_tag;

/// The byte at which the sequence of identifiers begins.
const START: u64 = 32_768;
/// Length of an identifier's structure in bytes; of a sector if that is longer.
const STRUCTURE: u64 = 2048;
/// Identifiers of the sequence. The fourth and fifth are those of UDF.
const IDENTIFIERS: [&[u8; 5]; 7] = [
    b"CD001", b"BEA01", b"BOOT2", b"NSR02", b"NSR03", b"TEA01", b"CDW02",
];
/// Maximum number of structures that are read.
const MAX_STRUCTURES: u64 = 64;

/// Sector sizes in bytes, the most frequent first. `mkudffs` also makes those of more than 4096.
const SECTOR_SIZES: [u64; 7] = [2048, 512, 4096, 1024, 8192, 16_384, 32_768];
/// Number of the sector with the first anchor.
pub(super) const FIRST_ANCHOR: u64 = 256;
/// Number of the sector with the anchor of a disc that is not closed.
const OPEN_ANCHOR: u64 = 512;
/// Length of an anchor in bytes.
const ANCHOR: u64 = 512;

/// An anchor whose tag is right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anchor {
    /// In bytes.
    pub(super) sector_size: u64,
    pub(super) sector: u64,
    pub(super) raw: AnchorRaw,
}

/// Returns true if the identifiers of UDF are at the start of the volume.
///
/// If those of ISO 9660 are there, too, an anchor must be found: a copy of a disc that has lost it can
/// be read as ISO 9660.
pub fn is_recognized(device: &dyn BlockDevice) -> Result<bool> {
    let Some(first) = identifier_at(device, START)? else {
        return Ok(false);
    };
    let (mut is_udf, mut is_iso) = (first.starts_with(b"NSR"), first == b"CD001");
    // A longer sector has one structure.
    let longer = SECTOR_SIZES.into_iter().filter(|&size| size > STRUCTURE);
    for stride in [STRUCTURE].into_iter().chain(longer) {
        for number in 1..MAX_STRUCTURES {
            let Some(name) = identifier_at(device, START + number * stride)? else {
                break;
            };
            is_udf |= name.starts_with(b"NSR");
            is_iso |= name == b"CD001";
        }
    }
    Ok(is_udf && (!is_iso || find_anchor(device)?.is_some()))
}

/// Returns the identifier of the structure at a byte. `None`: it is unknown.
fn identifier_at(device: &dyn BlockDevice, at: u64) -> Result<Option<&'static [u8; 5]>> {
    if at + 6 > device.info().len {
        return Ok(None);
    }
    let found = device.read_array::<6>(at)?;
    Ok(IDENTIFIERS.into_iter().find(|name| found[1..] == **name))
}

/// Returns the first anchor.
pub(super) fn find_anchor(device: &dyn BlockDevice) -> Result<Option<Anchor>> {
    for sector_size in SECTOR_SIZES {
        for sector in places(device, sector_size) {
            if let Some(raw) = read_anchor(device, sector_size, sector)? {
                return Ok(Some(Anchor {
                    sector_size,
                    sector,
                    raw,
                }));
            }
        }
    }
    Ok(None)
}

/// Returns all anchors of sectors of this size.
pub(super) fn anchors(device: &dyn BlockDevice, sector_size: u64) -> Result<Vec<Anchor>> {
    let mut found: Vec<Anchor> = Vec::new();
    for sector in places(device, sector_size) {
        let is_known = found.iter().any(|known| known.sector == sector);
        if let Some(raw) = read_anchor(device, sector_size, sector)?.filter(|_| !is_known) {
            found.push(Anchor {
                sector_size,
                sector,
                raw,
            });
        }
    }
    Ok(found)
}

/// Returns the numbers of the sectors in which an anchor can be.
fn places(device: &dyn BlockDevice, sector_size: u64) -> impl Iterator<Item = u64> {
    let sectors = device.info().len / sector_size;
    let last = sectors.checked_sub(1);
    let before_last = last.and_then(|last| last.checked_sub(FIRST_ANCHOR));
    [Some(FIRST_ANCHOR), before_last, last, Some(OPEN_ANCHOR)]
        .into_iter()
        .flatten()
        .filter(move |&sector| sector < sectors && sector > 0)
}

fn read_anchor(
    device: &dyn BlockDevice,
    sector_size: u64,
    sector: u64,
) -> Result<Option<AnchorRaw>> {
    let bytes = device.read_vec(sector * sector_size, to_usize(ANCHOR))?;
    let Ok(location) = u32::try_from(sector) else {
        return Ok(None);
    };
    let is_anchor =
        check_tag(&bytes, location).is_ok_and(|tag| tag.identifier.get() == tag_id::ANCHOR);
    let raw = AnchorRaw::read_from_prefix(&bytes);
    Ok(raw.ok().map(|(raw, _)| raw).filter(|_| is_anchor))
}

/// Returns the error that there is no anchor.
pub(super) fn no_anchor(device: &dyn BlockDevice) -> Error {
    let message = format!(
        "no anchor in sectors 256 and 512, and at the end, of a volume of {} bytes: it may be truncated",
        device.info().len
    );
    Error::corrupt(LAYER, FIRST_ANCHOR * SECTOR_SIZES[0], message)
}
