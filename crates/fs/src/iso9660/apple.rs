//! Apple's entries of the system use field: type, creator and Finder flags of a file.

use zerocopy::{FromBytes, IntoBytes};

use super::layout::{Record, TypeRaw};
use super::system_use::Fields;

/// The identifier of HFS in an entry `AA`.
const HFS: u8 = 2;
/// Length of an entry `AA` with HFS in bytes.
const LEN: usize = 14;
/// The Finder flag of files that are not shown.
pub(super) const INVISIBLE: u16 = 0x4000;
/// Length of Finder info in bytes.
const FINDER_INFO: usize = 32;

/// Identifiers in an entry `BA` that are followed by type and creator.
const OLD_TYPES: std::ops::RangeInclusive<u8> = 2..=6;
/// The one of these that is followed by flags, too.
const OLD_FLAGS: u8 = 6;

/// Type, creator and flags of a file for the Finder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FinderType {
    kind: [u8; 4],
    creator: [u8; 4],
    pub(super) flags: u16,
}

impl FinderType {
    /// Returns what Apple's entry in a record says, `skip` bytes from the start of its system use
    /// field.
    pub(super) fn of(record: &Record, skip: usize) -> Option<Self> {
        let field = record.system_use();
        Self::new_form(field.get(skip..).unwrap_or_default())
            .or_else(|| Self::new_form(field))
            .or_else(|| Self::old_form(field))
            .or_else(|| Self::old_form(record.unaligned_system_use()))
    }

    /// Reads an entry `AA`, which is one of the entries of SUSP.
    fn new_form(field: &[u8]) -> Option<Self> {
        let mut fields = Fields(field);
        let data = fields
            .find(|field| field.signature == *b"AA" && field.version == HFS)?
            .data;
        // The identifier is where other entries have their version.
        let raw = TypeRaw::read_from_bytes(data.get(..LEN - 4)?).ok()?;
        Some(Self {
            kind: raw.kind,
            creator: raw.creator,
            flags: raw.flags.get(),
        })
    }

    /// Reads an entry `BA`, which has no length.
    fn old_form(field: &[u8]) -> Option<Self> {
        let &[b'B', b'A', id] = field.first_chunk()? else {
            return None;
        };
        let rest = field.get(3..)?;
        let (&kind, rest) = rest.split_first_chunk()?;
        let (&creator, rest) = rest.split_first_chunk()?;
        let flags = match rest.first_chunk() {
            Some(flags) if id == OLD_FLAGS => u16::from_be_bytes(*flags),
            _ => 0,
        };
        OLD_TYPES.contains(&id).then_some(Self {
            kind,
            creator,
            flags,
        })
    }

    /// Returns the attribute `com.apple.FinderInfo`. `None` if it is all zero.
    pub(super) fn finder_info(self) -> Option<[u8; FINDER_INFO]> {
        let raw = TypeRaw {
            kind: self.kind,
            creator: self.creator,
            flags: self.flags.into(),
        };
        let mut info = [0; FINDER_INFO];
        info[..size_of::<TypeRaw>()].copy_from_slice(raw.as_bytes());
        (info != [0; FINDER_INFO]).then_some(info)
    }
}
