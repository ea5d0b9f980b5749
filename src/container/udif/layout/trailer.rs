//! On-disk structure of the trailer. Source: docs/formats/udif.md §2.

use std::ops::Range;

use uuid::Uuid;
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Checksum, ChecksumRaw};
use crate::size::narrow;
use crate::{Error, Result};

const KOLY: &str = "udif trailer";

/// The trailer, the last 512 bytes of the file.
///
/// Source: Apple Security, DiskImageRep, and images of hdiutil in keramics (docs/formats/udif.md §2).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct KolyRaw {
    /*000*/ magic: [u8; 4], // "koly"
    /*004*/ version: U32, // 4
    /*008*/ size: U32, // 512
    /*00C*/ flags: U32,
    /*010*/ running_data_fork_offset: U64,
    /*018*/ data_fork_offset: U64,
    /*020*/ data_fork_length: U64,
    /*028*/ resource_fork_offset: U64,
    /*030*/ resource_fork_length: U64,
    /*038*/ segment_number: U32,
    /*03C*/ segment_count: U32,
    /*040*/ segment_id: [u8; 16],
    /*050*/ data_checksum: ChecksumRaw,
    /*0D8*/ xml_offset: U64,
    /*0E0*/ xml_length: U64,
    /*0E8*/ reserved_1: [u8; 64],
    /*128*/ signature_offset: U64,
    /*130*/ signature_length: U64,
    /*138*/ reserved_2: [u8; 40],
    /*160*/ master_checksum: ChecksumRaw,
    /*1E8*/ variant: U32, // 1 device, 2 partition
    /*1EC*/ sector_count: U64,
    /*1F4*/ reserved_3: [u8; 12],
}
pub(crate) const KOLY_SIZE: u64 = 512;
pub(crate) const KOLY_MAGIC: [u8; 4] = *b"koly";
const _: () = assert!(size_of::<KolyRaw>() as u64 == KOLY_SIZE);

/// Offsets of fields in the trailer, for errors about them.
pub(crate) mod koly_field {
    use std::mem::offset_of;

    use super::KolyRaw;

    pub(crate) const RUNNING_OFFSET: u64 = offset_of!(KolyRaw, running_data_fork_offset) as u64;
    pub(crate) const DATA_FORK: u64 = offset_of!(KolyRaw, data_fork_offset) as u64;
    pub(crate) const DATA_FORK_LENGTH: u64 = offset_of!(KolyRaw, data_fork_length) as u64;
    pub(crate) const RESOURCE_FORK: u64 = offset_of!(KolyRaw, resource_fork_offset) as u64;
    pub(crate) const SEGMENT_NUMBER: u64 = offset_of!(KolyRaw, segment_number) as u64;
    pub(crate) const SEGMENT_COUNT: u64 = offset_of!(KolyRaw, segment_count) as u64;
    pub(crate) const SEGMENT_ID: u64 = offset_of!(KolyRaw, segment_id) as u64;
    pub(crate) const XML: u64 = offset_of!(KolyRaw, xml_offset) as u64;
    pub(crate) const SIGNATURE: u64 = offset_of!(KolyRaw, signature_offset) as u64;
    pub(crate) const SIGNATURE_LENGTH: u64 = offset_of!(KolyRaw, signature_length) as u64;
    pub(crate) const MASTER_CHECKSUM: u64 = offset_of!(KolyRaw, master_checksum) as u64;
    pub(crate) const SECTOR_COUNT: u64 = offset_of!(KolyRaw, sector_count) as u64;
}

/// Returns the offset of the last trailer in `bytes`, found by its first three fields.
pub(crate) fn find_trailer(bytes: &[u8]) -> Option<usize> {
    let (version, size) = (4_u32, narrow::<u32>(KOLY_SIZE));
    let mark = [KOLY_MAGIC, version.to_be_bytes(), size.to_be_bytes()].concat();
    bytes.windows(mark.len()).rposition(|window| window == mark)
}

impl KolyRaw {
    /// Returns a copy with a list of resources at `list`, and without a resource fork and a code
    /// signature.
    pub(crate) fn relisted(&self, list: Range<u64>) -> Self {
        Self {
            resource_fork_offset: 0.into(),
            resource_fork_length: 0.into(),
            xml_offset: list.start.into(),
            xml_length: (list.end - list.start).into(),
            signature_offset: 0.into(),
            signature_length: 0.into(),
            ..self.clone()
        }
    }

    /// Returns a copy for part `segment`, whose file starts with `len` bytes of data with the
    /// checksum `sum`.
    pub(crate) fn of_part(&self, segment: Segment, len: u64, sum: u32) -> Self {
        Self {
            running_data_fork_offset: segment.start.into(),
            data_fork_offset: 0.into(),
            data_fork_length: len.into(),
            segment_number: segment.number.into(),
            segment_count: segment.count.into(),
            segment_id: segment.id.into_bytes(),
            data_checksum: Checksum::Crc32(sum).into(),
            ..self.clone()
        }
    }
}

/// Fields of the trailer of a new single-file image, which starts with its data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewKoly {
    pub(crate) data_len: u64,
    pub(crate) list_len: u64,
    pub(crate) data_sum: u32,
    pub(crate) master_sum: u32,
    pub(crate) id: Uuid,
    pub(crate) variant: u32,
    pub(crate) sector_count: u64,
}

impl KolyRaw {
    /// Returns the trailer of a new image, whose list of resources follows its data.
    pub(crate) fn of_image(new: &NewKoly) -> Self {
        Self {
            magic: KOLY_MAGIC,
            version: 4.into(),
            size: narrow::<u32>(KOLY_SIZE).into(),
            flags: 1.into(), // flattened
            running_data_fork_offset: 0.into(),
            data_fork_offset: 0.into(),
            data_fork_length: new.data_len.into(),
            resource_fork_offset: 0.into(),
            resource_fork_length: 0.into(),
            segment_number: 1.into(),
            segment_count: 1.into(),
            segment_id: new.id.into_bytes(),
            data_checksum: Checksum::Crc32(new.data_sum).into(),
            xml_offset: new.data_len.into(),
            xml_length: new.list_len.into(),
            reserved_1: [0; 64],
            signature_offset: 0.into(),
            signature_length: 0.into(),
            reserved_2: [0; 40],
            master_checksum: Checksum::Crc32(new.master_sum).into(),
            variant: new.variant.into(),
            sector_count: new.sector_count.into(),
            reserved_3: [0; 12],
        }
    }
}

/// A parsed trailer, its ranges validated against the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Koly {
    pub(crate) data_fork: Range<u64>,
    pub(crate) resource_fork: Range<u64>,
    pub(crate) xml: Range<u64>,
    pub(crate) signature: Range<u64>,
    pub(crate) segment: Segment,
    pub(crate) data_checksum: Checksum,
    pub(crate) master_checksum: Checksum,
    pub(crate) sector_count: u64,
}

/// Position of a file in a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Number of the part, counted from 1; 0 and 1 of 0 or 1 are whole images.
    pub number: u32,
    /// Number of files in the set.
    pub count: u32,
    /// Identifier shared by all files of the set.
    pub id: Uuid,
    /// Offset of this file's data fork in the joined one, in bytes.
    pub start: u64,
}

impl Koly {
    /// Parses the trailer at file offset `at`; all its ranges must end before it.
    pub(crate) fn parse(raw: &KolyRaw, at: u64) -> Result<Self> {
        if raw.magic != KOLY_MAGIC {
            return Err(Error::corrupt(KOLY, at, "expected the signature koly"));
        }
        if (raw.version.get(), raw.size.get()) != (4, narrow::<u32>(KOLY_SIZE)) {
            let message = format!(
                "unsupported version {} of {} bytes: only version 4 of {KOLY_SIZE} bytes is \
                 supported",
                raw.version, raw.size
            );
            return Err(Error::unsupported(KOLY, message).at(at + 4));
        }
        let within = |name: &str, field: u64, offset: U64, length: U64| match offset
            .get()
            .checked_add(length.get())
        {
            Some(end) if end <= at => Ok(offset.get()..end),
            _ => Err(Error::corrupt(
                KOLY,
                at + field,
                format!("the {name}, {length} bytes at {offset}, reaches past the trailer at {at}"),
            )),
        };
        Ok(Self {
            data_fork: within(
                "data fork",
                0x18,
                raw.data_fork_offset,
                raw.data_fork_length,
            )?,
            resource_fork: within(
                "resource fork",
                0x28,
                raw.resource_fork_offset,
                raw.resource_fork_length,
            )?,
            xml: within("property list", 0xD8, raw.xml_offset, raw.xml_length)?,
            signature: within(
                "code signature",
                0x128,
                raw.signature_offset,
                raw.signature_length,
            )?,
            segment: Segment {
                number: raw.segment_number.get(),
                count: raw.segment_count.get(),
                id: Uuid::from_bytes(raw.segment_id),
                start: raw.running_data_fork_offset.get(),
            },
            data_checksum: raw.data_checksum.parse(),
            master_checksum: raw.master_checksum.parse(),
            sector_count: raw.sector_count.get(),
        })
    }
}
