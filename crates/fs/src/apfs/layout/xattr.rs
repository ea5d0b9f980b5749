//! Extended attributes (§8.4).

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::DataStreamRaw;

/// The head of an attribute; [`XattrRaw::len`] bytes follow.
///
/// Source: Apple File System Reference (2020-06-22), j_xattr_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct XattrRaw {
    /*00*/ pub(crate) flags: U16, // xattr_flags
    /*02*/ pub(crate) len: U16, // bytes of the value, or of XattrStreamRaw
}
const _: () = assert!(size_of::<XattrRaw>() == 4);

/// Bits of [`XattrRaw::flags`].
pub(crate) mod xattr_flags {
    /// The value is in a stream; [`super::XattrStreamRaw`] follows.
    pub(crate) const DATA_STREAM: u16 = 0x01;
    /// The value follows.
    pub(crate) const EMBEDDED: u16 = 0x02;
    pub(crate) const FILE_SYSTEM_OWNED: u16 = 0x04;
    /// The stream belongs to the attribute alone.
    pub(crate) const PRIVATE_STREAM: u16 = 0x10;
}

/// Maximum length of an embedded value in bytes.
pub(crate) const MAX_EMBEDDED_XATTR: usize = 3804;

/// The location of an attribute's value in a stream.
///
/// Source: Apple File System Reference (2020-06-22), j_xattr_dstream_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct XattrStreamRaw {
    /*00*/ pub(crate) stream_id: U64,
    /*08*/ pub(crate) stream: DataStreamRaw,
}
const _: () = assert!(size_of::<XattrStreamRaw>() == 48);

/// An attribute's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum XattrValue<'a> {
    /// Embedded in the record.
    Embedded(&'a [u8]),
    /// In a stream.
    Stream(&'a XattrStreamRaw),
}

impl<'a> XattrValue<'a> {
    /// Parses the value in a record; `None` if it is truncated or its location is not specified.
    pub(crate) fn parse(record: &'a [u8]) -> Option<Self> {
        let (head, rest) = XattrRaw::ref_from_prefix(record).ok()?;
        let value = rest.get(..usize::from(head.len.get()))?;
        match head.flags.get() & (xattr_flags::DATA_STREAM | xattr_flags::EMBEDDED) {
            xattr_flags::DATA_STREAM => {
                Some(Self::Stream(XattrStreamRaw::ref_from_prefix(value).ok()?.0))
            }
            xattr_flags::EMBEDDED => Some(Self::Embedded(value)),
            _ => None,
        }
    }
}

/// Names of attributes with a meaning to the file system.
pub(crate) mod xattr_name {
    /// A symbolic link's target, ended by NUL.
    pub(crate) const SYMLINK: &str = "com.apple.fs.symlink";
    pub(crate) const DECMPFS: &str = "com.apple.decmpfs";
    pub(crate) const RESOURCE_FORK: &str = "com.apple.ResourceFork";
    pub(crate) const FINDER_INFO: &str = "com.apple.FinderInfo";
    pub(crate) const SECURITY: &str = "com.apple.system.Security";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_embedded_or_in_a_stream() {
        assert_eq!(
            XattrValue::parse(&[6, 0, 2, 0, b'a', 0, 9]),
            Some(XattrValue::Embedded(b"a\0"))
        );
        let stream = [&[0x11, 0, 48, 0, 7][..], &[0; 47]].concat();
        let Some(XattrValue::Stream(found)) = XattrValue::parse(&stream) else {
            panic!("no stream")
        };
        assert_eq!(found.stream_id.get(), 7);
        for bad in [
            &stream[..51],
            &[3, 0, 0, 0],
            &[0, 0, 0, 0],
            &[2, 0, 1, 0],
            &[1, 0, 0, 0],
            &[2],
        ] {
            assert_eq!(XattrValue::parse(bad), None, "{bad:?}");
        }
    }
}
