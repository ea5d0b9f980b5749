//! On-disk structures of UDF: conversion between bytes and types, without I/O. All numbers are
//! little-endian. Source of the facts: `docs/formats/udf.md`; sections of ECMA-167, 3rd edition, are
//! named at each as part/section.

mod file;
mod volume;

use zerocopy::little_endian::{I16, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{DateTime, Timestamp};

pub(super) use file::{
    AllocationExtentRaw, AttributeRaw, DeviceRaw, ExtendedAdRaw, ExtendedEntryRaw, ExtentLengthRaw,
    FileEntryRaw, FileSetRaw, FileTimesRaw, FinderRaw, IcbTagRaw, ImplementationRaw, IndirectRaw,
    LongAdRaw, NameRaw, PathComponentRaw, ShortAdRaw, allocation, attribute_type, characteristics,
    component, extent_kind, file_type, icb_flags, icb_strategy,
};
pub(super) use volume::{
    AnchorRaw, IntegrityRaw, IntegrityUseRaw, LogicalVolumeRaw, MapHeadRaw, MetadataMapRaw,
    PartitionRaw, PlainMapRaw, PointerRaw, PrimaryRaw, SpaceBitmapRaw, SparableMapRaw,
    SparingEntryRaw, SparingTableRaw, TypedMapRaw, VatHeaderRaw, VatTrailerRaw,
};

/// Identifiers of descriptors (3/7.2.1 and 4/7.2.1).
pub(super) mod tag_id {
    /// A sparing table; not of ECMA-167, but of UDF.
    pub(in crate::udf) const SPARING_TABLE: u16 = 0;
    pub(in crate::udf) const PRIMARY: u16 = 1;
    pub(in crate::udf) const ANCHOR: u16 = 2;
    /// Points to the next extent of a volume descriptor sequence.
    pub(in crate::udf) const POINTER: u16 = 3;
    pub(in crate::udf) const PARTITION: u16 = 5;
    pub(in crate::udf) const LOGICAL_VOLUME: u16 = 6;
    pub(in crate::udf) const TERMINATOR: u16 = 8;
    pub(in crate::udf) const INTEGRITY: u16 = 9;
    pub(in crate::udf) const FILE_SET: u16 = 256;
    /// A file identifier descriptor: an entry of a directory.
    pub(in crate::udf) const NAME: u16 = 257;
    pub(in crate::udf) const ALLOCATION_EXTENT: u16 = 258;
    pub(in crate::udf) const INDIRECT: u16 = 259;
    pub(in crate::udf) const FILE: u16 = 261;
    pub(in crate::udf) const ATTRIBUTE_HEADER: u16 = 262;
    pub(in crate::udf) const SPACE_BITMAP: u16 = 264;
    pub(in crate::udf) const EXTENDED_FILE: u16 = 266;
}

/// The tag at the start of every descriptor.
///
/// Source: ECMA-167 3/7.2.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct TagRaw {
    /*00*/ pub(super) identifier: U16, // tag_id
    /*02*/ pub(super) version: U16,
    /*04*/ pub(super) checksum: u8, // sum of the other bytes of the tag
    /*05*/ pub(super) reserved: u8,
    /*06*/ pub(super) serial: U16,
    /*08*/ pub(super) crc: U16,
    /*0A*/ pub(super) crc_len: U16, // bytes after the tag
    /*0C*/ pub(super) location: U32, // sector of the volume, or block of the partition
}
const _: () = assert!(size_of::<TagRaw>() == 16);

/// An identifier of an implementation or of a structure.
///
/// Source: ECMA-167 1/7.4.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct EntityRaw {
    /*00*/ pub(super) flags: u8,
    /*01*/ pub(super) identifier: [u8; 23],
    /*18*/ pub(super) suffix: [u8; 8], // begins with the revision of UDF in BCD in some
}
const _: () = assert!(size_of::<EntityRaw>() == 32);

/// A point in time.
///
/// Source: ECMA-167 1/7.3.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct TimeRaw {
    /*00*/
    pub(super) zone: U16, // type in the top 4 bits, minutes east of UTC in the others
    /*02*/ pub(super) year: I16,
    /*04*/ pub(super) month: u8,
    /*05*/ pub(super) day: u8,
    /*06*/ pub(super) hour: u8,
    /*07*/ pub(super) minute: u8,
    /*08*/ pub(super) second: u8,
    /*09*/ pub(super) centiseconds: u8,
    /*0A*/ pub(super) hundreds: u8, // of microseconds
    /*0B*/ pub(super) microseconds: u8,
}
const _: () = assert!(size_of::<TimeRaw>() == 12);

/// An extent of sectors of the volume.
///
/// Source: ECMA-167 3/7.1.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(super) struct SectorExtentRaw {
    /*0*/ pub(super) len: U32, // bytes
    /*4*/ pub(super) sector: U32,
}
const _: () = assert!(size_of::<SectorExtentRaw>() == 8);

/// A block of a partition.
///
/// Source: ECMA-167 4/7.1.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct AddressRaw {
    /*0*/ pub(super) block: U32,
    /*4*/ pub(super) partition: U16, // index of its map
}
const _: () = assert!(size_of::<AddressRaw>() == 6);

impl EntityRaw {
    /// Returns true if the identifier is `name`.
    pub(super) fn is(&self, name: &[u8]) -> bool {
        let (start, rest) = self
            .identifier
            .split_at(name.len().min(self.identifier.len()));
        start == name && rest.iter().all(|&byte| byte == 0)
    }

    /// Returns the identifier for a message.
    pub(super) fn shown(&self) -> String {
        let end = self.identifier.iter().position(|&byte| byte == 0);
        let bytes = &self.identifier[..end.unwrap_or(self.identifier.len())];
        bytes.escape_ascii().to_string()
    }
}

impl TimeRaw {
    /// The zone of local time whose distance from UTC is not known.
    const NO_ZONE: i16 = -2047;
    /// Maximum distance of a zone from UTC in minutes.
    const MAX_ZONE: i16 = 1440;

    /// Returns the time. `None` if it is not set or invalid. Local time without a zone counts as UTC.
    pub(super) fn get(&self) -> Option<Timestamp> {
        let (kind, zone) = (self.zone.get() >> 12, self.zone.get() & 0xFFF);
        // Sign extension of 12 bits.
        let minutes = (zone << 4).cast_signed() >> 4;
        let minutes = match (kind, minutes) {
            (1, Self::NO_ZONE) => 0,
            (1, minutes) if minutes.abs() > Self::MAX_ZONE => return None,
            (1, minutes) => minutes,
            _ => 0,
        };
        let date = DateTime {
            year: self.year.get().into(),
            month: self.month,
            day: self.day,
            hour: self.hour,
            minute: self.minute,
            second: self.second,
        };
        let parts = [self.centiseconds, self.hundreds, self.microseconds];
        let is_valid = (1..=12).contains(&date.month)
            && (1..=31).contains(&date.day)
            && (1..=9999).contains(&date.year)
            && date.hour < 24
            && date.minute < 60
            && date.second < 61;
        let nanos = match parts.iter().all(|&part| part < 100) {
            true => {
                parts
                    .iter()
                    .fold(0, |sum, &part| sum * 100 + u32::from(part))
                    * 1000
            }
            false => 0,
        };
        is_valid.then(|| Timestamp {
            seconds: date.timestamp().seconds - i64::from(minutes) * 60,
            nanos,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_zone() {
        let time = |zone: u16| TimeRaw {
            zone: zone.into(),
            year: 2024.into(),
            month: 3,
            day: 1,
            hour: 12,
            minute: 34,
            second: 56,
            centiseconds: 78,
            hundreds: 90,
            microseconds: 12,
        };
        let shown = |zone| time(zone).get().map(|time| time.to_string());
        let utc = Some("2024-03-01T12:34:56.789012000Z".to_owned());
        assert_eq!(shown(0x1000), utc);
        assert_eq!(shown(0x0000), utc);
        // Two hours east, one hour west, not known, more than a day.
        assert_eq!(shown(0x1078).unwrap(), "2024-03-01T10:34:56.789012000Z");
        assert_eq!(shown(0x1FC4).unwrap(), "2024-03-01T13:34:56.789012000Z");
        assert_eq!(shown(0x1801), utc);
        assert_eq!(shown(0x1700), None);
        let unset = TimeRaw::read_from_bytes(&[0; 12]).unwrap();
        assert_eq!(unset.get(), None);
    }

    #[test]
    fn identifiers_are_compared_whole() {
        let mut entity = EntityRaw::read_from_bytes(&[0; 32]).unwrap();
        entity.identifier[..5].copy_from_slice(b"*UDF ");
        assert!(entity.is(b"*UDF ") && !entity.is(b"*UDF"));
        entity.identifier[5] = 0xFF;
        assert_eq!(entity.shown(), "*UDF \\xff");
    }
}
