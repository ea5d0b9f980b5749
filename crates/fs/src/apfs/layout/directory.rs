//! Directory entries and the hash by which they are sorted (§8.3).

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FileId, KeyRest, RecordKey, XFields, entry_field, field_flags, record_type};

/// A directory entry; extended fields follow.
///
/// Source: Apple File System Reference (2020-06-22), j_drec_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct DirectoryEntryRaw {
    /*00*/ pub(crate) file_id: U64,
    /*08*/ pub(crate) added: U64, // date
    /*10*/ pub(crate) flags: U16, // ENTRY_TYPE_MASK: the type of its mode, >> 12
}
const _: () = assert!(size_of::<DirectoryEntryRaw>() == 0x12);

/// Bits of the type in [`DirectoryEntryRaw::flags`].
pub(crate) const ENTRY_TYPE_MASK: u16 = 0xF;

impl DirectoryEntryRaw {
    /// Returns the entry and its extended fields; `None` if they are truncated.
    pub(crate) fn parse(value: &[u8]) -> Option<(&Self, XFields<'_>)> {
        let (entry, rest) = Self::ref_from_prefix(value).ok()?;
        Some((entry, XFields::parse(rest)?))
    }

    /// Appends the entry. `sibling` is the number of the name if the object has several.
    pub(crate) fn put(&self, sibling: Option<FileId>, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
        if let Some(sibling) = sibling {
            let (kind, flags) = (entry_field::SIBLING_ID, field_flags::DO_NOT_COPY);
            XFields::put(&[(kind, flags, U64::from(sibling).as_bytes())], out);
        }
    }
}

impl<'a> RecordKey<'a> {
    /// Returns the key of entry `name` in folder `parent`, with `hash` if the volume's directories
    /// are hashed.
    pub(crate) fn entry(parent: FileId, name: &'a [u8], hash: Option<u32>) -> Self {
        let rest = hash.map_or(KeyRest::Name(name), |hash| KeyRest::Hashed(hash, name));
        Self {
            id: parent,
            kind: record_type::DIRECTORY_ENTRY,
            rest,
        }
    }
}
