//! Consistency check of the header of an encrypted image, as far as it is possible without a key.

use std::ops::Range;

use zerocopy::FromBytes;

use super::entry::Content;
use super::layout::{
    DirectoryRaw, ENTRIES_AT, HEADER_SIZE, Header, HeaderRaw, MAGIC_V1, MAGIC_V2, PASSPHRASE,
    PUBLIC_KEY, TRAILER_SIZE, Trailer, TrailerRaw,
};
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::problem::{Problems, Severity};
use crate::size::{counted, to_usize};
use crate::{Error, Kind, Result};

const LAYER: &str = "encryption header";
const ENTRY: &str = "encryption key entry";

/// Maximum number of bytes after the data in real images, which are padded to whole blocks of the
/// host.
pub(super) const PADDING: u64 = 4096;

/// Reports every problem of the header or trailer of `file`, read-only, and returns the cipher
/// block size in bytes; `None` if the file is not encrypted. Fails if the header is damaged so much
/// that nothing else can be checked, or uses unknown features.
pub fn check(file: &dyn BlockDevice, problems: &mut Problems) -> Result<Option<u32>> {
    let len = file.info().len;
    if len >= 8 && file.read_array::<8>(0)? == MAGIC_V2 {
        return check_v2(file, len, problems).map(Some);
    }
    if len >= TRAILER_SIZE && file.read_array::<8>(len - 8)? == MAGIC_V1 {
        return check_v1(file, len, problems).map(Some);
    }
    Ok(None)
}

fn check_v2(file: &dyn BlockDevice, len: u64, problems: &mut Problems) -> Result<u32> {
    let cut =
        |what: &str| Error::corrupt(LAYER, len, format!("the file is truncated within {what}"));
    if len < HEADER_SIZE {
        return Err(cut("it"));
    }
    let raw = HeaderRaw::read_from_bytes(&file.read_array::<{ to_usize(HEADER_SIZE) }>(0)?)
        .map_err(|_| cut("it"))?;
    let header = Header::parse(&raw)?;
    let (mut places, mut keys, mut unknown) = (Vec::new(), 0, 0);
    for n in 0..header.entries {
        let at = Header::directory_at(n);
        if at + size_of::<DirectoryRaw>() as u64 > len {
            problems.add(Severity::Damage, cut("the directory of key entries"));
            break;
        }
        let entry = file.read_array::<{ size_of::<DirectoryRaw>() }>(at)?;
        let entry = DirectoryRaw::read_from_bytes(&entry).map_err(|_| cut("the directory"))?;
        let place = match entry_range(file, &header, &entry) {
            Ok(place) => place,
            Err(error) => {
                problems.add(Severity::Damage, error);
                continue;
            }
        };
        let kind = entry.kind.get();
        match Content::read(file, kind, &place) {
            Ok(_) => keys += 1,
            // An unknown type of entry or wrapping does not affect the other entries.
            Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::Limit) => {
                unknown += 1;
                let severity = if matches!(kind, PASSPHRASE | PUBLIC_KEY) {
                    Severity::Warning
                } else {
                    Severity::Note
                };
                let named = format!("key entry {} is skipped: {}", n + 1, error.message());
                problems.add(severity, Error::new(error.kind(), ENTRY, named).at(at));
            }
            Err(error) => problems.add(Severity::Damage, error),
        }
        places.push(place);
    }
    overlaps(places, problems);
    if keys == 0 && unknown == 0 {
        let none = format!(
            "none of the {} key entries can unlock the image",
            header.entries
        );
        problems.add(Severity::Damage, Error::corrupt(LAYER, ENTRIES_AT, none));
    }
    let end = header
        .data_offset
        .saturating_add(header.data_size.next_multiple_of(header.block.into()));
    check_end(&header_end(&header, end), len, problems);
    Ok(header.block)
}

/// The required length of the file, and its description.
struct RequiredLength {
    end: u64,
    why: String,
}

fn header_end(header: &Header, end: u64) -> RequiredLength {
    RequiredLength {
        end,
        why: format!(
            "{} bytes of data from byte {}",
            header.data_size, header.data_offset
        ),
    }
}

/// Reports a file that is shorter than its header requires, or much longer.
fn check_end(needed: &RequiredLength, len: u64, problems: &mut Problems) {
    let RequiredLength { end, why } = needed;
    if *end > len {
        let cut = format!(
            "the file is truncated: it ends here, but the header records {why}, which end at {end}"
        );
        problems.add(Severity::Damage, Error::corrupt(LAYER, len, cut));
    } else if len - end > PADDING {
        let unused = counted(len - end, "unused byte", "unused bytes") + " after the data";
        problems.add(Severity::Note, Error::corrupt(LAYER, *end, unused));
    }
}

/// Returns the file range of an entry; fails if it is not within the file.
fn entry_range(
    file: &dyn BlockDevice,
    header: &Header,
    entry: &DirectoryRaw,
) -> Result<Range<u64>> {
    let place = entry.range(header)?;
    if place.end > file.info().len {
        return Err(Error::corrupt(
            ENTRY,
            place.start,
            "the file is truncated within the entry",
        ));
    }
    Ok(place)
}

fn overlaps(mut places: Vec<Range<u64>>, problems: &mut Problems) {
    places.sort_unstable_by_key(|place| place.start);
    for pair in places.windows(2).filter(|pair| pair[0].end > pair[1].start) {
        let both = format!(
            "the key entries at {} and {} overlap",
            pair[0].start, pair[1].start
        );
        problems.add(Severity::Damage, Error::corrupt(ENTRY, pair[1].start, both));
    }
}

fn check_v1(file: &dyn BlockDevice, len: u64, problems: &mut Problems) -> Result<u32> {
    let at = len - TRAILER_SIZE;
    let raw = file.read_array::<{ to_usize(TRAILER_SIZE) }>(at)?;
    let raw = TrailerRaw::read_from_bytes(&raw)
        .map_err(|_| Error::corrupt(LAYER, at, "the file is truncated within the trailer"))?;
    let trailer = Trailer::parse(&raw, at)?;
    let end = trailer.data_size.next_multiple_of(trailer.block.into());
    check_end(
        &RequiredLength {
            end,
            why: format!("{} bytes of data", trailer.data_size),
        },
        at,
        problems,
    );
    Ok(trailer.block)
}
