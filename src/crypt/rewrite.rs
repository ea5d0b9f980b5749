//! Replacing the entries of a header in place, so that a crash always leaves a complete set of
//! entries.
//!
//! The directory selects the valid entries, and all of it that is written here is in the first
//! sector of 512 bytes, which a disk writes atomically. The new entries are first written to free
//! space, then the directory is switched to them; then they are written to their final place,
//! directly after the directory, and it is switched once more. A flush separates these steps.
//! Finally everything that no entry uses is wiped.

use std::ops::Range;

use zerocopy::IntoBytes;

use super::entry::{KeyEntry, packed};
use super::layout::{DIRECTORY_SIZE, DirectoryRaw, ENTRIES_AT, HEADER_SIZE, Header};
use crate::device::{BlockDevice, BlockDeviceExt, is_zero};
use crate::{Error, Kind, Result};

const LAYER: &str = "encryption header";
/// Number of bytes that a disk writes atomically.
const SECTOR: u64 = 512;
/// Maximum number of entries whose directory is within the first sector.
const MOST_WRITTEN: u64 = (SECTOR - HEADER_SIZE) / DIRECTORY_SIZE;

/// Replaces `old` with `new` (type and bytes of each entry). On return it is durable, and `old` is
/// wiped.
pub(super) fn rewrite(
    file: &dyn BlockDevice,
    header: &Header,
    old: &[KeyEntry],
    new: &[(u32, Vec<u8>)],
) -> Result<()> {
    for count in [old.len(), new.len()] {
        if count as u64 > MOST_WRITTEN {
            let message =
                format!("{count} key entries; up to {MOST_WRITTEN} can be changed safely");
            return Err(Error::new(Kind::Limit, LAYER, message));
        }
    }
    let places = packed(new.iter().map(|(_, bytes)| bytes.len() as u64));
    let aside = aside(header, old, &places)?;
    put(file, new, &aside)?;
    put(file, new, &places)?;
    wipe(
        file,
        places.last().map_or(HEADER_SIZE, |last| last.end)..header.data_offset,
    )
}

/// Removes all entries. Durable on return.
pub(super) fn erase(file: &dyn BlockDevice, header: &Header) -> Result<()> {
    // One write of the rest of the first sector, so that no crash leaves a count without its
    // directory.
    file.write_at(ENTRIES_AT, &[0; (SECTOR - ENTRIES_AT) as usize])?;
    wipe(file, SECTOR..header.data_offset)
}

/// Writes entries and then, in one sector, the directory that refers to them.
fn put(file: &dyn BlockDevice, entries: &[(u32, Vec<u8>)], places: &[Range<u64>]) -> Result<()> {
    for ((_, bytes), place) in entries.iter().zip(places) {
        file.write_at(place.start, bytes)?;
    }
    file.flush()?;
    let mut directory = (entries.len() as u32).to_be_bytes().to_vec();
    for ((kind, _), place) in entries.iter().zip(places) {
        directory.extend_from_slice(DirectoryRaw::new(*kind, place).as_bytes());
    }
    file.write_at(ENTRIES_AT, &directory)?;
    file.flush()
}

/// Returns free space for entries of the lengths of `places`, which overlaps neither the old nor
/// the new places.
fn aside(header: &Header, old: &[KeyEntry], places: &[Range<u64>]) -> Result<Vec<Range<u64>>> {
    let end = |ranges: &[Range<u64>]| ranges.last().map_or(HEADER_SIZE, |last| last.end);
    let length = end(places) - HEADER_SIZE;
    let mut taken: Vec<_> = old.iter().map(|entry| entry.range.clone()).collect();
    taken.push(0..end(places).max(Header::directory_at(header.entries)));
    taken.sort_by_key(|range| range.start);
    let mut start = 0;
    for range in taken {
        if start + length <= range.start {
            break;
        }
        start = start.max(range.end.next_multiple_of(SECTOR));
    }
    if start + length > header.data_offset {
        return Err(Error::new(
            Kind::Limit,
            LAYER,
            format!(
                "no room before the data at {} for the new key entries",
                header.data_offset
            ),
        ));
    }
    let shift = start.saturating_sub(places.first().map_or(start, |first| first.start));
    Ok(places
        .iter()
        .map(|place| place.start + shift..place.end + shift)
        .collect())
}

fn wipe(file: &dyn BlockDevice, range: Range<u64>) -> Result<()> {
    // Pieces that are zeros already are not written, so that the host keeps its holes.
    const PIECE: u64 = 4096;
    let mut at = range.start;
    while at < range.end {
        let piece = (range.end - at).min(PIECE) as usize;
        if !is_zero(&file.read_vec(at, piece)?) {
            file.write_at(at, &vec![0; piece])?;
        }
        at += piece as u64;
    }
    file.flush()
}
