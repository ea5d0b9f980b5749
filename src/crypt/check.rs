//! Everything that is wrong with the header of an encrypted image, as far as it can be told without
//! a key.

use std::ops::Range;

use zerocopy::FromBytes;

use super::entry::Content;
use super::layout::{
    DirectoryRaw, HEADER_SIZE, Header, HeaderRaw, MAGIC_V1, MAGIC_V2, PASSPHRASE, PUBLIC_KEY,
    TRAILER_SIZE, Trailer, TrailerRaw,
};
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::problem::{Problems, Severity};
use crate::{Error, Kind, Result};

const LAYER: &str = "encryption header";
const ENTRY: &str = "encryption key entry";

/// What real images have after their data at most: they are padded to whole blocks of the host.
const PADDING: u64 = 4096;

/// Adds every problem of the header or trailer of `file`, which is only read, and returns the bytes
/// of its cipher blocks; `None` if the file is not encrypted. An error is damage that leaves
/// nothing to tell, or says what is not known.
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
    let cut = |what: &str| Error::corrupt(LAYER, len, format!("the file ends within {what}"));
    if len < HEADER_SIZE {
        return Err(cut("it"));
    }
    let raw = HeaderRaw::read_from_bytes(&file.read_array::<{ HEADER_SIZE as usize }>(0)?)
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
        let place = match place(file, &header, &entry) {
            Ok(place) => place,
            Err(error) => {
                problems.add(Severity::Damage, error);
                continue;
            }
        };
        let kind = entry.kind.get();
        match Content::read(file, kind, &place) {
            Ok(_) => keys += 1,
            // A kind or a way of wrapping that is not known does no harm to the others.
            Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::Limit) => {
                unknown += 1;
                let severity = if matches!(kind, PASSPHRASE | PUBLIC_KEY) {
                    Severity::Warning
                } else {
                    Severity::Note
                };
                let named = format!("key entry {} is passed over: {}", n + 1, error.message());
                problems.add(severity, Error::new(error.kind(), ENTRY, named).at(at));
            }
            Err(error) => problems.add(Severity::Damage, error),
        }
        places.push(place);
    }
    overlaps(places, problems);
    if keys == 0 && unknown == 0 {
        let none = format!(
            "none of the {} key entries could open the image",
            header.entries
        );
        problems.add(Severity::Damage, Error::corrupt(LAYER, 0x48, none));
    }
    let end = header
        .data_offset
        .saturating_add(header.data_size.next_multiple_of(header.block.into()));
    check_end(&header_end(&header, end), len, problems);
    Ok(header.block)
}

/// How far the file must reach, and in which words that is told.
struct Needed {
    end: u64,
    why: String,
}

fn header_end(header: &Header, end: u64) -> Needed {
    Needed {
        end,
        why: format!(
            "{} bytes of data from byte {}",
            header.data_size, header.data_offset
        ),
    }
}

/// Returns whether the file holds what its header tells, and little more.
fn check_end(needed: &Needed, len: u64, problems: &mut Problems) {
    let Needed { end, why } = needed;
    if *end > len {
        let cut = format!(
            "the header tells of {why}, which end at {end}; the file ends here and was cut short"
        );
        problems.add(Severity::Damage, Error::corrupt(LAYER, len, cut));
    } else if len - end > PADDING {
        let unused = format!("{} bytes after the data belong to nothing", len - end);
        problems.add(Severity::Note, Error::corrupt(LAYER, *end, unused));
    }
}

/// The bytes of an entry, which are in the file.
fn place(file: &dyn BlockDevice, header: &Header, entry: &DirectoryRaw) -> Result<Range<u64>> {
    let place = entry.range(header)?;
    if place.end > file.info().len {
        return Err(Error::corrupt(
            ENTRY,
            place.start,
            "the file ends within the entry",
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
    let raw = file.read_array::<{ TRAILER_SIZE as usize }>(at)?;
    let raw = TrailerRaw::read_from_bytes(&raw)
        .map_err(|_| Error::corrupt(LAYER, at, "the file ends within the trailer"))?;
    let trailer = Trailer::parse(&raw, at)?;
    let end = trailer.data_size.next_multiple_of(trailer.block.into());
    check_end(
        &Needed {
            end,
            why: format!("{} bytes of data", trailer.data_size),
        },
        at,
        problems,
    );
    Ok(trailer.block)
}
