//! Files that hold the forks of a file of classic Mac OS: MacBinary and AppleSingle hold both,
//! AppleDouble the resource fork of the file beside it.

pub mod layout;

use std::ops::Range;

use zerocopy::FromBytes;

use self::layout::{
    APPLE_DOUBLE_MAGIC, APPLE_SINGLE_MAGIC, AppleDoubleEntryRaw, AppleDoubleRaw, ENTRY_DATA_FORK,
    ENTRY_RESOURCE_FORK, MacBinaryRaw,
};
use crate::Result;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::size::to_usize;

/// Bytes that are read of a header, with its entries.
const HEAD: u64 = 4096;
/// Forks in MacBinary files are padded to a multiple of this many bytes.
const UNIT: u64 = 128;

/// The places of the forks in a file, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkPlaces {
    /// The name of the format.
    pub format: &'static str,
    /// The data fork; `None` in AppleDouble files.
    pub data: Option<Range<u64>>,
    /// The resource fork.
    pub resource: Option<Range<u64>>,
}

/// Returns the places of the forks in `file`. `None` if it is of no such format.
pub fn find(file: &dyn BlockDevice) -> Result<Option<ForkPlaces>> {
    let len = file.info().len;
    let head = file.read_vec(0, to_usize(len.min(HEAD)))?;
    Ok(entries(&head, len).or_else(|| mac_binary(&head, len)))
}

/// Reads AppleSingle and AppleDouble.
fn entries(head: &[u8], len: u64) -> Option<ForkPlaces> {
    let (header, rest) = AppleDoubleRaw::ref_from_prefix(head).ok()?;
    let format = match header.magic.get() {
        APPLE_SINGLE_MAGIC => "AppleSingle",
        APPLE_DOUBLE_MAGIC => "AppleDouble",
        _ => return None,
    };
    let count = usize::from(header.entries.get());
    let rest = rest.get(..count * size_of::<AppleDoubleEntryRaw>())?;
    let entries = <[AppleDoubleEntryRaw]>::ref_from_bytes(rest).ok()?;
    let find = |id: u32| {
        let entry = entries.iter().find(|entry| entry.id.get() == id)?;
        let start = u64::from(entry.offset.get());
        let end = start + u64::from(entry.length.get());
        (end <= len && start < end).then_some(start..end)
    };
    Some(ForkPlaces {
        format,
        data: find(ENTRY_DATA_FORK).filter(|_| format == "AppleSingle"),
        resource: find(ENTRY_RESOURCE_FORK),
    })
}

/// Reads MacBinary II and III, whose headers have a checksum.
fn mac_binary(head: &[u8], len: u64) -> Option<ForkPlaces> {
    let (header, _) = MacBinaryRaw::ref_from_prefix(head).ok()?;
    let is_valid = header.version == 0
        && (1..=63).contains(&header.name_length)
        && (header.zero_74, header.zero_82) == (0, 0)
        && header.checksum.get() == crc16(&head[..124])
        && header.checksum.get() != 0;
    if !is_valid {
        return None;
    }
    let padded = |length: u64| length.next_multiple_of(UNIT);
    let data = UNIT + padded(header.more_header.get().into());
    let data_end = data + u64::from(header.data_length.get());
    let resource = padded(data_end);
    let resource_end = resource + u64::from(header.resource_length.get());
    (data_end <= len).then(|| ForkPlaces {
        format: "MacBinary",
        data: Some(data..data_end),
        resource: Some(resource..resource_end).filter(|fork| !fork.is_empty() && fork.end <= len),
    })
}

/// Returns the CRC-16 of XMODEM: polynomial 0x1021, from zero.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u16::from(*byte) << 8, |sum, _| {
            sum << 1 ^ if sum & 0x8000 != 0 { 0x1021 } else { 0 }
        })
    })
}

/// Returns a MacBinary II file with these forks, for tests.
#[cfg(any(test, feature = "testing"))]
pub fn mac_binary_of(data: &[u8], resource: &[u8]) -> Vec<u8> {
    use zerocopy::{FromZeros, IntoBytes};
    let mut header = MacBinaryRaw::new_zeroed();
    header.name_length = 4;
    header.name[..4].copy_from_slice(b"Disk");
    header.data_length = crate::size::narrow::<u32>(data.len()).into();
    header.resource_length = crate::size::narrow::<u32>(resource.len()).into();
    (header.writer, header.least_reader) = (129, 129);
    header.checksum = crc16(&header.as_bytes()[..124]).into();
    let mut file = header.as_bytes().to_vec();
    for fork in [data, resource] {
        file.extend(fork);
        file.resize(file.len().next_multiple_of(to_usize(UNIT)), 0);
    }
    file
}

/// Returns an AppleDouble file with this resource fork, or an AppleSingle file with both, for tests.
#[cfg(any(test, feature = "testing"))]
pub fn apple_file_of(data: Option<&[u8]>, resource: &[u8]) -> Vec<u8> {
    use zerocopy::IntoBytes;
    let forks: Vec<_> = [
        (ENTRY_DATA_FORK, data),
        (ENTRY_RESOURCE_FORK, Some(resource)),
    ]
    .into_iter()
    .filter_map(|(id, fork)| Some((id, fork?)))
    .collect();
    let header = AppleDoubleRaw {
        magic: match data {
            Some(_) => APPLE_SINGLE_MAGIC,
            None => APPLE_DOUBLE_MAGIC,
        }
        .into(),
        version: layout::APPLE_DOUBLE_VERSION.into(),
        filler: [0; 16],
        entries: crate::size::narrow::<u16>(forks.len()).into(),
    };
    let mut file = header.as_bytes().to_vec();
    let mut at = file.len() + forks.len() * size_of::<AppleDoubleEntryRaw>();
    for (id, fork) in &forks {
        let entry = AppleDoubleEntryRaw {
            id: (*id).into(),
            offset: crate::size::narrow::<u32>(at).into(),
            length: crate::size::narrow::<u32>(fork.len()).into(),
        };
        file.extend(entry.as_bytes());
        at += fork.len();
    }
    forks.iter().for_each(|(_, fork)| file.extend(*fork));
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;

    fn found(bytes: Vec<u8>) -> Option<ForkPlaces> {
        find(&Memory::read_only(bytes)).unwrap()
    }

    #[test]
    fn forks_are_found() {
        let both = found(mac_binary_of(&[1; 1000], &[2; 300])).unwrap();
        assert_eq!(
            (both.data, both.resource),
            (Some(128..1128), Some(1152..1452))
        );
        let both = found(apple_file_of(Some(&[1; 100]), &[2; 30])).unwrap();
        assert_eq!((both.data, both.resource), (Some(50..150), Some(150..180)));
        let one = found(apple_file_of(None, &[2; 30])).unwrap();
        assert_eq!((one.data, one.resource), (None, Some(38..68)));
    }

    #[test]
    fn other_files_have_no_forks() {
        let file = mac_binary_of(&[1; 1000], &[2; 300]);
        assert!(found(file[..600].to_vec()).is_none(), "truncated");
        for at in [0, 1, 74, 82, 83, 124] {
            let mut changed = file.clone();
            changed[at] ^= 0xFF;
            assert!(found(changed).is_none(), "byte {at}");
        }
        assert_eq!(found(vec![0; 4096]), None);
        assert_eq!(found(Vec::new()), None);
    }

    /// The value that catalogs of CRCs give for CRC-16/XMODEM.
    #[test]
    fn the_checksum_is_that_of_xmodem() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
    }
}
