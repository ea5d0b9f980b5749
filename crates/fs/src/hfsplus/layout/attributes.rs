//! Keys and records of the attributes tree (§6.9, §8).

use std::mem::offset_of;

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::catalog::unit_count;
use super::{Cnid, ExtentsRaw, ForkRaw};

/// Maximum number of UTF-16 units in an attribute's name.
pub(crate) const MAX_ATTRIBUTE_NAME_UNITS: usize = 127;
/// Maximum length of an attribute key, without its length field.
pub(crate) const ATTRIBUTES_MAX_KEY_LENGTH: u16 = 266;
/// Length of an attribute key without its name.
pub(crate) const ATTRIBUTES_MIN_KEY_LENGTH: u16 = 12;

/// Attribute that holds access control lists; records have a flag for it.
pub(crate) const SECURITY: &str = "com.apple.system.Security";

/// Types at the beginning of each attribute record.
pub(crate) mod attribute_type {
    /// [`super::InlineAttributeHeadRaw`], then the value.
    pub(crate) const INLINE: u32 = 0x10;
    /// [`super::ForkAttributeRaw`].
    pub(crate) const FORK: u32 = 0x20;
    /// [`super::ExtentsAttributeRaw`].
    pub(crate) const EXTENTS: u32 = 0x30;
}

/// Head of an attribute key; the name follows.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusAttrKey.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(crate) struct AttributeKeyHeadRaw {
    /*00*/ pub(crate) key_length: U16, // ATTRIBUTES_MIN_KEY_LENGTH + 2 * name_length
    /*02*/ pub(crate) pad: U16,
    /*04*/ pub(crate) file_id: U32,
    /*08*/ pub(crate) start_block: U32, // 0 but for EXTENTS
    /*12*/ pub(crate) name_length: U16, // in UTF-16 units
}
const _: () = assert!(size_of::<AttributeKeyHeadRaw>() == 14);
/// Offset of the number of units of the name in a record.
pub(crate) const ATTRIBUTE_NAME_LENGTH_AT: usize = offset_of!(AttributeKeyHeadRaw, name_length);

/// An attribute key. Ordered by file, name (by units), start block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttributeKey<'a> {
    /// CNID of the object.
    pub(crate) file: Cnid,
    /// Name of at most [`MAX_ATTRIBUTE_NAME_UNITS`] units.
    pub(crate) name: &'a [U16],
    /// First block of the value that the record describes.
    pub(crate) start_block: u32,
}

impl<'a> AttributeKey<'a> {
    /// Splits `record` into the key at its beginning and the data; `None` if the key is invalid.
    pub(crate) fn split(record: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = AttributeKeyHeadRaw::ref_from_prefix(record).ok()?;
        let units = usize::from(head.name_length.get());
        let (name, _) = <[U16]>::ref_from_prefix_with_elems(rest, units).ok()?;
        let key_length = usize::from(head.key_length.get());
        if units > MAX_ATTRIBUTE_NAME_UNITS
            || key_length < usize::from(ATTRIBUTES_MIN_KEY_LENGTH) + 2 * units
        {
            return None;
        }
        let data = record.get(2 + key_length..)?;
        Some((
            Self {
                file: Cnid(head.file_id.get()),
                name,
                start_block: head.start_block.get(),
            },
            data,
        ))
    }

    /// Appends the on-disk form of the key. The name is at most [`MAX_ATTRIBUTE_NAME_UNITS`] units.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let units = unit_count(self.name);
        let head = AttributeKeyHeadRaw {
            key_length: (ATTRIBUTES_MIN_KEY_LENGTH + 2 * units).into(),
            pad: 0.into(),
            file_id: self.file.0.into(),
            start_block: self.start_block.into(),
            name_length: units.into(),
        };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(self.name.as_bytes());
    }
}

/// Head of an inline attribute; `size` bytes follow, and a padding byte if that is odd.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusAttrData.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(crate) struct InlineAttributeHeadRaw {
    /*00*/ pub(crate) record_type: U32, // attribute_type::INLINE
    /*04*/ pub(crate) reserved: [U32; 2],
    /*12*/ pub(crate) size: U32,
}
const _: () = assert!(size_of::<InlineAttributeHeadRaw>() == 16);

/// An attribute whose value is stored in blocks.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusAttrForkData.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(crate) struct ForkAttributeRaw {
    /*00*/ pub(crate) record_type: U32, // attribute_type::FORK
    /*04*/ pub(crate) reserved: U32,
    /*08*/ pub(crate) fork: ForkRaw,
}
const _: () = assert!(size_of::<ForkAttributeRaw>() == 88);

/// Further extents of an attribute's value.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusAttrExtents.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(crate) struct ExtentsAttributeRaw {
    /*00*/ pub(crate) record_type: U32, // attribute_type::EXTENTS
    /*04*/ pub(crate) reserved: U32,
    /*08*/ pub(crate) extents: ExtentsRaw,
}
const _: () = assert!(size_of::<ExtentsAttributeRaw>() == 72);

/// Returns the maximum length of a value that macOS stores inline in a tree with nodes of this size
/// (§8), such that a node holds two of them with the longest keys.
pub(crate) fn max_inline_value(node_size: u16) -> u16 {
    ((node_size - 14 - 6) / 2 - 268 - 16) & !1
}

/// The data of an attributes leaf record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AttributeRecord<'a> {
    /// An inline value.
    Inline(&'a [u8]),
    /// The fork that holds the value.
    Fork(&'a ForkRaw),
    /// Further extents of the value.
    Extents(&'a ExtentsRaw),
}

impl<'a> AttributeRecord<'a> {
    /// Parses the record in `data`; `None` if its type is unknown or it is truncated.
    pub(crate) fn parse(data: &'a [u8]) -> Option<Self> {
        let (kind, _) = U32::ref_from_prefix(data).ok()?;
        match kind.get() {
            attribute_type::INLINE => {
                let (head, rest) = InlineAttributeHeadRaw::ref_from_prefix(data).ok()?;
                Some(Self::Inline(
                    rest.get(..usize::try_from(head.size.get()).ok()?)?,
                ))
            }
            attribute_type::FORK => Some(Self::Fork(
                &ForkAttributeRaw::ref_from_prefix(data).ok()?.0.fork,
            )),
            attribute_type::EXTENTS => Some(Self::Extents(
                &ExtentsAttributeRaw::ref_from_prefix(data).ok()?.0.extents,
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_limits_are_those_of_macos() {
        assert_eq!(max_inline_value(8192), 3802);
        assert_eq!(max_inline_value(4096), 1754);
    }

    #[test]
    fn keys_survive_the_disk() {
        let name: Vec<U16> = "myxattr".encode_utf16().map(U16::new).collect();
        let mut bytes = Vec::new();
        AttributeKey {
            file: Cnid(19),
            name: &name,
            start_block: 8,
        }
        .put(&mut bytes);
        assert_eq!(bytes[..2], [0, 26]);
        let (key, rest) = AttributeKey::split(&bytes).unwrap();
        assert_eq!(
            (key.file, key.name, key.start_block),
            (Cnid(19), name.as_slice(), 8)
        );
        assert!(rest.is_empty());
    }

    #[test]
    fn an_inline_value_longer_than_its_record_is_refused() {
        let head = InlineAttributeHeadRaw {
            record_type: attribute_type::INLINE.into(),
            size: 5.into(),
            ..Default::default()
        };
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(b"four");
        assert!(AttributeRecord::parse(&bytes).is_none());
        bytes.push(b'!');
        assert!(matches!(
            AttributeRecord::parse(&bytes),
            Some(AttributeRecord::Inline(b"four!"))
        ));
    }
}
