//! Extended fields: optional small values of inodes and directory entries (§8.2).

use bandsaw_core::size::narrow;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Types of an inode's fields.
pub(crate) mod inode_field {
    pub(crate) const SNAPSHOT_XID: u8 = 1;
    pub(crate) const DELTA_TREE_OID: u8 = 2;
    pub(crate) const DOCUMENT_ID: u8 = 3; // u32
    pub(crate) const NAME: u8 = 4; // UTF-8 and NUL
    pub(crate) const PREVIOUS_SIZE: u8 = 5; // u64
    pub(crate) const FINDER_INFO: u8 = 7; // 32 bytes
    pub(crate) const DATA_STREAM: u8 = 8; // DataStreamRaw
    pub(crate) const DIRECTORY_STATS: u8 = 10; // u64
    pub(crate) const VOLUME_UUID: u8 = 11;
    pub(crate) const SPARSE_BYTES: u8 = 13; // u64
    pub(crate) const DEVICE: u8 = 14; // u32
    pub(crate) const PURGEABLE_FLAGS: u8 = 15; // u64
    pub(crate) const ORIGINAL_SYNC_ROOT: u8 = 16; // u64
    pub(crate) const CLONE_GROUP: u8 = 21; // u64
}

/// Types of a directory entry's fields.
pub(crate) mod entry_field {
    pub(crate) const SIBLING_ID: u8 = 1; // u64
    pub(crate) const GENERATION: u8 = 2; // u64
}

/// Flags of a field.
pub(crate) mod field_flags {
    pub(crate) const DATA_DEPENDENT: u8 = 0x01;
    pub(crate) const DO_NOT_COPY: u8 = 0x02;
    pub(crate) const CHILDREN_INHERIT: u8 = 0x08;
    pub(crate) const USER: u8 = 0x10;
    pub(crate) const SYSTEM: u8 = 0x20;
}

/// The head of a record's fields. Their heads follow, then their values, each padded to eight
/// bytes.
///
/// Source: Apple File System Reference (2020-06-22), xf_blob_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct XFieldsRaw {
    /*00*/ pub(crate) count: U16,
    /*02*/ pub(crate) used: U16, // bytes of all values, filled up
}
const _: () = assert!(size_of::<XFieldsRaw>() == 4);

/// The head of a field.
///
/// Source: Apple File System Reference (2020-06-22), x_field_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct XFieldRaw {
    /*00*/ pub(crate) kind: u8, // inode_field or entry_field
    /*01*/ pub(crate) flags: u8, // field_flags
    /*02*/ pub(crate) size: U16, // of the value, not filled up
}
const _: () = assert!(size_of::<XFieldRaw>() == 4);

/// The fields of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct XFields<'a> {
    heads: &'a [XFieldRaw],
    values: &'a [u8],
}

impl<'a> XFields<'a> {
    /// Parses the fields after the fixed part of a record, if there are any; `None` if a value is
    /// truncated.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self {
                heads: &[],
                values: &[],
            });
        }
        let (head, rest) = XFieldsRaw::ref_from_prefix(bytes).ok()?;
        let (heads, values) =
            <[XFieldRaw]>::ref_from_prefix_with_elems(rest, head.count.get().into()).ok()?;
        // Other writers may omit the padding of the last value.
        let end = |heads: &[XFieldRaw]| {
            heads
                .iter()
                .map(|head| padded(head.size.get().into()))
                .sum::<usize>()
        };
        let needed = heads.split_last().map_or(0, |(last, before)| {
            end(before) + usize::from(last.size.get())
        });
        (needed <= values.len()).then_some(Self { heads, values })
    }

    /// Iterates over type, flags and value of the fields.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, u8, &'a [u8])> {
        let values = self.values;
        let mut at = 0;
        self.heads.iter().map_while(move |head| {
            let size = usize::from(head.size.get());
            let value = values.get(at..at + size)?;
            at += padded(size);
            Some((head.kind, head.flags, value))
        })
    }

    /// Returns the value of the first field of a type.
    pub(crate) fn get(&self, kind: u8) -> Option<&'a [u8]> {
        self.iter()
            .find(|&(found, ..)| found == kind)
            .map(|(.., value)| value)
    }

    /// Returns the value of a field as a structure; `None` also if it is too short.
    pub(crate) fn read<T: FromBytes + KnownLayout + Immutable + Unaligned + Copy>(
        &self,
        kind: u8,
    ) -> Option<T> {
        T::ref_from_prefix(self.get(kind)?)
            .ok()
            .map(|(value, _)| *value)
    }

    /// Appends the on-disk form of fields (type, flags, value); nothing if there are none. Values
    /// must be shorter than 64 KiB, each and all together.
    pub(crate) fn put(fields: &[(u8, u8, &[u8])], out: &mut Vec<u8>) {
        if fields.is_empty() {
            return;
        }
        let used: usize = fields.iter().map(|(.., value)| padded(value.len())).sum();
        debug_assert!(used <= usize::from(u16::MAX), "fields are small");
        // No truncation, as documented above.
        let head = XFieldsRaw {
            count: narrow::<u16>(fields.len()).into(),
            used: narrow::<u16>(used).into(),
        };
        out.extend_from_slice(head.as_bytes());
        for &(kind, flags, value) in fields {
            out.extend_from_slice(
                XFieldRaw {
                    kind,
                    flags,
                    size: narrow::<u16>(value.len()).into(),
                }
                .as_bytes(),
            );
        }
        for (.., value) in fields {
            out.extend_from_slice(value);
            out.resize(out.len() + padded(value.len()) - value.len(), 0);
        }
    }
}

fn padded(size: usize) -> usize {
    size.next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::little_endian::{U32, U64};

    #[test]
    fn fields_survive_the_disk() {
        let fields: [(u8, u8, &[u8]); 3] = [
            (inode_field::NAME, field_flags::DO_NOT_COPY, b"name\0"),
            (inode_field::DEVICE, 0, &[1, 2, 3, 4]),
            (inode_field::SPARSE_BYTES, 0, &[9; 8]),
        ];
        let mut bytes = Vec::new();
        XFields::put(&fields, &mut bytes);
        assert_eq!(bytes.len(), 4 + 3 * 4 + 3 * 8);
        assert_eq!(bytes[2], 24);
        let found = XFields::parse(&bytes).unwrap();
        assert!(found.iter().eq(fields));
        assert_eq!(
            found.read::<U32>(inode_field::DEVICE),
            Some(U32::new(0x0403_0201))
        );
        assert_eq!(found.read::<U64>(inode_field::DEVICE), None);
        assert_eq!(found.get(inode_field::FINDER_INFO), None);
        assert!(XFields::parse(&[]).unwrap().iter().next().is_none());
    }

    #[test]
    fn cut_fields_are_none() {
        let mut bytes = Vec::new();
        XFields::put(&[(1, 0, &[1; 8]), (2, 0, &[2; 8])], &mut bytes);
        for len in 1..bytes.len() {
            assert!(XFields::parse(&bytes[..len]).is_none(), "{len}");
        }
        bytes[..2].fill(0xFF);
        assert!(XFields::parse(&bytes).is_none());
    }
}
