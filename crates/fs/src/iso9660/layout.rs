//! On-disk structures of ISO 9660: volume descriptors, directory records and dates. Source: ECMA-119,
//! 4th edition; the sections are named at each.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian, little_endian,
};

use crate::{DateTime, Timestamp};

/// Length of a logical sector in bytes. Volume descriptors have this length.
pub(super) const SECTOR: u64 = 2048;
/// Number of the first sector with a volume descriptor.
pub(super) const FIRST_DESCRIPTOR: u64 = 16;
/// Identifier of every volume descriptor.
pub(super) const IDENTIFIER: [u8; 5] = *b"CD001";
/// Identifier of the record of a directory itself.
pub(super) const SELF: [u8; 1] = [0];
/// Identifier of the record of the parent directory.
pub(super) const PARENT: [u8; 1] = [1];
/// Length of a directory record without its identifier in bytes.
const RECORD: usize = size_of::<RecordRaw>();
/// Seconds of the unit of time zones, a quarter of an hour.
const ZONE: i64 = 15 * 60;
/// Maximum distance of a time zone from UTC in quarters of an hour.
const MAX_ZONE: i8 = 56;

/// Types of volume descriptors (8.1.1).
pub(super) mod kind {
    pub(in super::super) const PRIMARY: u8 = 1;
    /// Supplementary: a second tree with names in another character set.
    pub(in super::super) const SUPPLEMENTARY: u8 = 2;
    pub(in super::super) const TERMINATOR: u8 = 255;
}

/// Flags of directory records (9.1.6).
pub(super) mod flags {
    /// Need not be shown to users.
    pub(in super::super) const HIDDEN: u8 = 0x01;
    pub(in super::super) const DIRECTORY: u8 = 0x02;
    /// Belongs to the file of the same name that follows: its resource fork.
    pub(in super::super) const ASSOCIATED: u8 = 0x04;
    /// The file continues in the next record.
    pub(in super::super) const CONTINUED: u8 = 0x80;
}

/// Escape sequences of UCS-2 at levels 1, 2 and 3, by which Joliet is recognized.
///
/// Source: Joliet specification, "SVD Escape Sequences Field".
const JOLIET: [&[u8; 3]; 3] = [b"%/@", b"%/C", b"%/E"];

/// A 16-bit number in both byte orders.
///
/// Source: ECMA-119, 7.2.3.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct BothU16 {
    /*0*/ little: little_endian::U16,
    /*2*/ big: big_endian::U16,
}
const _: () = assert!(size_of::<BothU16>() == 4);

/// A 32-bit number in both byte orders.
///
/// Source: ECMA-119, 7.3.3.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct BothU32 {
    /*0*/ little: little_endian::U32,
    /*4*/ big: big_endian::U32,
}
const _: () = assert!(size_of::<BothU32>() == 8);

/// The fields of a primary or supplementary volume descriptor that are used.
///
/// Source: ECMA-119, 8.4 and 8.5.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DescriptorRaw {
    /*000*/ pub(super) kind: u8, // kind
    /*001*/ pub(super) identifier: [u8; 5],
    /*006*/ pub(super) version: u8,
    /*007*/ pub(super) flags: u8,
    /*008*/ pub(super) system: [u8; 32],
    /*028*/ pub(super) name: [u8; 32],
    /*048*/ pub(super) unused: [u8; 8],
    /*050*/ pub(super) blocks: BothU32, // of the volume
    /*058*/ pub(super) escapes: [u8; 32],
    /*078*/ pub(super) set_size: BothU16,
    /*07C*/ pub(super) sequence: BothU16,
    /*080*/ pub(super) block_size: BothU16, // bytes
    /*084*/ pub(super) path_table_len: BothU32, // bytes
    /*08C*/ pub(super) path_tables: [u8; 16],
    /*09C*/ pub(super) root: RecordRaw,
    /*0BD*/ pub(super) root_name: u8,
    /*0BE*/ pub(super) texts: [u8; 623],
    /*32D*/ pub(super) created: [u8; 17],
    /*33E*/ pub(super) modified: [u8; 17],
    /*34F*/ pub(super) expires: [u8; 17],
    /*360*/ pub(super) effective: [u8; 17],
}
const _: () = assert!(size_of::<DescriptorRaw>() == 0x371);

/// A directory record without its identifier.
///
/// Source: ECMA-119, 9.1.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RecordRaw {
    /*00*/ pub(super) len: u8, // bytes of the record
    /*01*/ pub(super) attribute_blocks: u8, // before the contents
    /*02*/ pub(super) block: BothU32,
    /*0A*/ pub(super) size: BothU32, // bytes
    /*12*/ pub(super) date: [u8; 7],
    /*19*/ pub(super) flags: u8, // flags
    /*1A*/ pub(super) unit: u8, // blocks, of an interleaved file
    /*1B*/ pub(super) gap: u8, // blocks, of an interleaved file
    /*1C*/ pub(super) sequence: BothU16,
    /*20*/ pub(super) name_len: u8,
}
const _: () = assert!(size_of::<RecordRaw>() == 33);

/// A directory record with its identifier and its system use field.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) raw: RecordRaw,
    bytes: Vec<u8>,
}

impl BothU16 {
    /// Returns the little-endian number.
    pub(super) fn get(self) -> u16 {
        self.little.get()
    }

    /// Returns false if both numbers are set and differ.
    pub(super) fn agrees(self) -> bool {
        self.big.get() == 0 || self.big.get() == self.little.get()
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn new(number: u16) -> Self {
        Self {
            little: number.into(),
            big: number.into(),
        }
    }
}

impl BothU32 {
    /// Returns the little-endian number.
    pub(super) fn get(self) -> u32 {
        self.little.get()
    }

    /// Returns false if both numbers are set and differ. Some programs write one of them only.
    pub(super) fn agrees(self) -> bool {
        self.big.get() == 0 || self.big.get() == self.little.get()
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn new(number: u32) -> Self {
        Self {
            little: number.into(),
            big: number.into(),
        }
    }
}

impl DescriptorRaw {
    /// Returns true if names of its tree are in UCS-2.
    pub(super) fn is_joliet(&self) -> bool {
        self.kind == kind::SUPPLEMENTARY
            && JOLIET
                .iter()
                .any(|escape| self.escapes.starts_with(&escape[..]))
    }

    /// Returns the block size in bytes if it is one of those that the format allows here.
    pub(super) fn block_size(&self) -> Option<u64> {
        let size = self.block_size.get();
        (self.block_size.agrees() && matches!(size, 512 | 1024 | 2048)).then(|| size.into())
    }
}

impl RecordRaw {
    pub(super) fn is_directory(&self) -> bool {
        self.flags & flags::DIRECTORY != 0
    }

    pub(super) fn is_associated(&self) -> bool {
        self.flags & flags::ASSOCIATED != 0
    }

    pub(super) fn is_continued(&self) -> bool {
        self.flags & flags::CONTINUED != 0
    }

    pub(super) fn is_interleaved(&self) -> bool {
        self.unit != 0 || self.gap != 0
    }

    /// Returns the block at which the contents begin, behind an extended attribute record.
    pub(super) fn first_block(&self) -> u64 {
        u64::from(self.block.get()) + u64::from(self.attribute_blocks)
    }

    /// Returns false if place and size differ between the byte orders.
    pub(super) fn agrees(&self) -> bool {
        self.block.agrees() && self.size.agrees()
    }
}

impl Record {
    /// Parses the record at the start of `bytes`, whose first byte is not zero. An error says why it
    /// is malformed.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let (raw, _) =
            RecordRaw::read_from_prefix(bytes).map_err(|_| "a directory record is truncated")?;
        let len = usize::from(raw.len);
        let name_len = usize::from(raw.name_len);
        if name_len == 0 || RECORD + name_len > len {
            return Err("a directory record is shorter than its identifier");
        }
        match bytes.get(..len) {
            None => Err("a directory record is truncated"),
            Some(record) => Ok(Self {
                raw,
                bytes: record.to_vec(),
            }),
        }
    }

    /// Returns the identifier.
    pub(super) fn name(&self) -> &[u8] {
        let end = RECORD + usize::from(self.raw.name_len);
        self.bytes.get(RECORD..end).unwrap_or_default()
    }

    /// Returns the system use field, which begins at an even offset.
    pub(super) fn system_use(&self) -> &[u8] {
        let end = RECORD + usize::from(self.raw.name_len);
        self.bytes
            .get(end.next_multiple_of(2)..)
            .unwrap_or_default()
    }

    /// Returns the system use field without the byte that aligns it.
    pub(super) fn unaligned_system_use(&self) -> &[u8] {
        let end = RECORD + usize::from(self.raw.name_len);
        self.bytes.get(end..).unwrap_or_default()
    }

    /// Returns true if it is the record of a directory itself or of its parent.
    pub(super) fn is_link_to_directory(&self) -> bool {
        *self.name() == SELF || *self.name() == PARENT
    }
}

/// Returns the time in a directory record (9.1.5): years since 1900, month, day, hour, minute,
/// second, quarters of an hour east of UTC. `None` if it is not set or invalid.
pub(super) fn short_date(bytes: [u8; 7]) -> Option<Timestamp> {
    let [year, month, day, hour, minute, second, zone] = bytes;
    let date = DateTime {
        year: 1900 + i64::from(year),
        month,
        day,
        hour,
        minute,
        second,
    };
    in_zone(date, 0, zone.cast_signed())
}

/// Returns the time in a volume descriptor (8.4.26.1): digits of year, month, day, hour, minute,
/// second and hundredths, then quarters of an hour east of UTC. `None` if it is not set or invalid.
pub(super) fn long_date(bytes: [u8; 17]) -> Option<Timestamp> {
    let number = |range: std::ops::Range<usize>| {
        bytes.get(range)?.iter().try_fold(0_u16, |number, &digit| {
            let digit = char::from(digit).to_digit(10)?;
            number
                .checked_mul(10)?
                .checked_add(u16::try_from(digit).ok()?)
        })
    };
    let two = |start: usize| u8::try_from(number(start..start + 2)?).ok();
    let date = DateTime {
        year: number(0..4)?.into(),
        month: two(4)?,
        day: two(6)?,
        hour: two(8)?,
        minute: two(10)?,
        second: two(12)?,
    };
    let zone = bytes.last()?.cast_signed();
    in_zone(date, u32::from(two(14).unwrap_or(0)) * 10_000_000, zone)
}

fn in_zone(date: DateTime, nanos: u32, zone: i8) -> Option<Timestamp> {
    let is_valid = (1..=12).contains(&date.month)
        && (1..=31).contains(&date.day)
        && date.hour < 24
        && date.minute < 60
        && date.second < 61
        && (-MAX_ZONE..=MAX_ZONE).contains(&zone);
    is_valid.then(|| Timestamp {
        seconds: date.timestamp().seconds - i64::from(zone) * ZONE,
        nanos,
    })
}

/// The contents of an entry `SP`, by which the protocol is recognized.
///
/// Source: SUSP 1.12, 5.3.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SharingRaw {
    /*0*/ pub(super) check: [u8; 2],
    /*2*/ pub(super) skip: u8, // bytes before the first entry of each record
}
const _: () = assert!(size_of::<SharingRaw>() == 3);

/// The contents of an entry `CE`: the place where the entries continue.
///
/// Source: SUSP 1.12, 5.1.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ContinuationRaw {
    /*00*/ pub(super) block: BothU32,
    /*08*/ pub(super) offset: BothU32, // bytes
    /*10*/ pub(super) len: BothU32, // bytes
}
const _: () = assert!(size_of::<ContinuationRaw>() == 24);

/// The contents of an entry `PX`: POSIX attributes.
///
/// Source: RRIP 1.12, 4.1.1.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct PosixRaw {
    /*00*/ pub(super) mode: BothU32,
    /*08*/ pub(super) links: BothU32,
    /*10*/ pub(super) uid: BothU32,
    /*18*/ pub(super) gid: BothU32,
}
const _: () = assert!(size_of::<PosixRaw>() == 32);

/// The contents of an entry `PN`: a device number.
///
/// Source: RRIP 1.12, 4.1.2.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DeviceRaw {
    /*0*/ pub(super) high: BothU32,
    /*8*/ pub(super) low: BothU32,
}
const _: () = assert!(size_of::<DeviceRaw>() == 16);

/// Type, creator and flags, at the end of an entry of either form.
///
/// Source: Technical Note FL36; xnu, `bsd/isofs/cd9660/iso.h`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct TypeRaw {
    /*0*/ pub(super) kind: [u8; 4],
    /*4*/ pub(super) creator: [u8; 4],
    /*8*/ pub(super) flags: big_endian::U16, // absent from some entries `BA`
}
const _: () = assert!(size_of::<TypeRaw>() == 10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_a_zone() {
        let time = |bytes| short_date(bytes).map(|time| time.to_string());
        assert_eq!(
            time([124, 3, 1, 12, 34, 56, 4]).as_deref(),
            Some("2024-03-01T11:34:56Z")
        );
        assert_eq!(
            time([70, 1, 1, 0, 0, 0, 0xE4]).as_deref(),
            Some("1970-01-01T07:00:00Z")
        );
        for invalid in [[0; 7], [124, 13, 1, 0, 0, 0, 0], [124, 1, 1, 24, 0, 0, 0]] {
            assert_eq!(time(invalid), None);
        }
        let long = |text: &[u8; 16], zone| {
            let mut bytes = [zone; 17];
            bytes[..16].copy_from_slice(text);
            long_date(bytes).map(|time| time.to_string())
        };
        assert_eq!(
            long(b"2024030112345650", 4).as_deref(),
            Some("2024-03-01T11:34:56.500000000Z")
        );
        assert_eq!(long(b"0000000000000000", 0), None);
        assert_eq!(long(b"2024 30112345650", 0), None);
    }

    #[test]
    fn malformed_records_are_refused() {
        let mut bytes = [0; 40];
        (bytes[0], bytes[32], bytes[33]) = (40, 1, b'A');
        let record = Record::parse(&bytes).unwrap();
        assert_eq!((record.name(), record.system_use().len()), (&b"A"[..], 6));
        for (at, value) in [(0, 33), (0, 41), (32, 0), (32, 8)] {
            let mut changed = bytes;
            changed[at] = value;
            assert!(Record::parse(&changed).is_err(), "{at}: {value}");
        }
        assert!(Record::parse(&bytes[..32]).is_err());
        bytes[32] = 2;
        let record = Record::parse(&bytes).unwrap();
        assert_eq!(record.system_use().len(), 4);
        assert_eq!(record.unaligned_system_use().len(), 5);
    }
}
