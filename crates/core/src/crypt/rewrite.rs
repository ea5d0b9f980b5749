//! Replacing the entries of a header in place, so that a crash always leaves a complete set of
//! entries.
//!
//! The directory selects the valid entries, and all of it that is written here is in the first
//! sector of 512 bytes, which a disk writes atomically. The new entries are first written to free
//! space, then the directory is switched to them, which is the commit; then they are written to
//! their final place, directly after the directory, and it is switched once more. A flush separates
//! these steps. Finally everything that no entry uses is wiped. An error says on which side of the
//! commit it occurred.

use std::ops::Range;

use zerocopy::IntoBytes;

use super::entry::{KeyEntry, packed};
use super::layout::{DIRECTORY_SIZE, DirectoryRaw, ENTRIES_AT, HEADER_SIZE, Header};
use crate::device::{BlockDevice, BlockDeviceExt, is_zero};
use crate::size::{narrow, to_usize};
use crate::{Error, Reason, Result};

const LAYER: &str = "encryption header";
/// Number of bytes that a disk writes atomically.
const SECTOR: u64 = 512;
/// Maximum number of entries whose directory is within the first sector.
const MAX_WRITTEN: u64 = (SECTOR - HEADER_SIZE) / DIRECTORY_SIZE;

/// Replaces `old` with `new` (type and bytes of each entry). On return it is durable, and `old` is
/// wiped. After an error the old entries are in force, unless its reason is
/// [`Reason::KeysChanged`].
pub(super) fn rewrite(
    file: &dyn BlockDevice,
    header: &Header,
    old: &[KeyEntry],
    new: &[(u32, Vec<u8>)],
) -> Result<()> {
    for count in [old.len(), new.len()] {
        if count as u64 > MAX_WRITTEN {
            let message =
                format!("cannot change {count} key entries safely: the maximum is {MAX_WRITTEN}");
            return Err(Error::limit(LAYER, message));
        }
    }
    let places = packed(new.iter().map(|(_, bytes)| bytes.len() as u64));
    let aside = aside(header, old, &places)?;
    write_entries(file, new, &aside)?;
    if let Err(error) = write_directory(file, new, &aside) {
        // A failed write or flush may have changed the directory all the same.
        return Err(match is_directory(file, new, &aside) {
            Ok(false) => error,
            Ok(true) => changed(error),
            Err(_) => Error::new(
                error.kind(),
                LAYER,
                "the key entries may have been changed: either the old or the new ones are in force",
            )
            .because(Reason::KeysChanged)
            .caused_by(error),
        });
    }
    let tidy = || {
        write_entries(file, new, &places)?;
        write_directory(file, new, &places)?;
        wipe(
            file,
            places.last().map_or(HEADER_SIZE, |last| last.end)..header.data_offset,
        )
    };
    tidy().map_err(changed)
}

/// Returns the error about a failure after the commit.
fn changed(error: Error) -> Error {
    let message = "the key entries were changed and the new ones are in force, but copies of the old ones may remain in the header";
    Error::new(error.kind(), LAYER, message)
        .because(Reason::KeysChanged)
        .caused_by(error)
}

/// Removes all entries. Durable on return.
pub(super) fn erase(file: &dyn BlockDevice, header: &Header) -> Result<()> {
    // One write of the rest of the first sector, so that no crash leaves a count without its
    // directory.
    file.write_at(ENTRIES_AT, &[0; to_usize(SECTOR - ENTRIES_AT)])?;
    wipe(file, SECTOR..header.data_offset)
}

/// Writes entries, durably.
fn write_entries(
    file: &dyn BlockDevice,
    entries: &[(u32, Vec<u8>)],
    places: &[Range<u64>],
) -> Result<()> {
    for ((_, bytes), place) in entries.iter().zip(places) {
        file.write_at(place.start, bytes)?;
    }
    file.flush()
}

/// Returns the directory of entries at these places, with their number before it.
fn directory(entries: &[(u32, Vec<u8>)], places: &[Range<u64>]) -> Vec<u8> {
    let mut directory = narrow::<u32>(entries.len()).to_be_bytes().to_vec();
    for ((kind, _), place) in entries.iter().zip(places) {
        directory.extend_from_slice(DirectoryRaw::new(*kind, place).as_bytes());
    }
    directory
}

/// Writes the directory that refers to entries at these places, in one sector, durably.
fn write_directory(
    file: &dyn BlockDevice,
    entries: &[(u32, Vec<u8>)],
    places: &[Range<u64>],
) -> Result<()> {
    file.write_at(ENTRIES_AT, &directory(entries, places))?;
    file.flush()
}

/// Returns true if the directory in the file is that of entries at these places.
fn is_directory(
    file: &dyn BlockDevice,
    entries: &[(u32, Vec<u8>)],
    places: &[Range<u64>],
) -> Result<bool> {
    let expected = directory(entries, places);
    Ok(file.read_vec(ENTRIES_AT, expected.len())? == expected)
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
        return Err(Error::limit(
            LAYER,
            format!(
                "no room for the new key entries before the data at {}",
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
    // Pieces that are zeros already are not written, so that the host keeps its holes and needs no
    // room. A piece ends where a block of the host does.
    const PIECE: u64 = 4096;
    let mut at = range.start;
    while at < range.end {
        let piece = to_usize((range.end - at).min(PIECE - at % PIECE));
        if !is_zero(&file.read_vec(at, piece)?) {
            file.write_at(at, &vec![0; piece])?;
        }
        at += piece as u64;
    }
    file.flush()
}
