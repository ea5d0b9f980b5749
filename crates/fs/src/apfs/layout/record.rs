//! Keys of a volume's records, in the file-system tree and in the separate trees (§8).

use std::cmp::Ordering;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::FileId;
use bandsaw_core::size::narrow;

/// Record types, in the top four bits of [`RecordKeyRaw`].
pub(crate) mod record_type {
    pub(crate) const SNAPSHOT: u8 = 1; // snapshot metadata tree
    pub(crate) const EXTENT_REF: u8 = 2; // extent-reference tree
    pub(crate) const INODE: u8 = 3;
    pub(crate) const XATTR: u8 = 4;
    pub(crate) const SIBLING_LINK: u8 = 5;
    pub(crate) const DATA_STREAM: u8 = 6;
    pub(crate) const CRYPTO_STATE: u8 = 7;
    pub(crate) const FILE_EXTENT: u8 = 8;
    pub(crate) const DIRECTORY_ENTRY: u8 = 9;
    pub(crate) const DIRECTORY_STATS: u8 = 10;
    pub(crate) const SNAPSHOT_NAME: u8 = 11; // snapshot metadata tree
    pub(crate) const SIBLING_MAP: u8 = 12;
    pub(crate) const FILE_INFO: u8 = 13; // sealed volumes
}

/// Bits of the object number in a key.
pub(crate) const FILE_ID_MASK: u64 = (1 << 60) - 1;
/// Object number in the keys of snapshot names.
pub(crate) const SNAPSHOT_NAMES_ID: FileId = FileId(FILE_ID_MASK);

/// The head of every key: type and object number in one integer.
///
/// Source: Apple File System Reference (2020-06-22), j_key_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct RecordKeyRaw {
    /*00*/ pub(crate) id_and_type: U64, // type << 60 | id
}
const _: () = assert!(size_of::<RecordKeyRaw>() == 8);

impl RecordKeyRaw {
    /// Returns the head of a key. Bits of `id` above the 60th are dropped.
    pub(crate) fn new(id: FileId, kind: u8) -> Self {
        Self {
            id_and_type: (u64::from(kind) << 60 | id.0 & FILE_ID_MASK).into(),
        }
    }

    /// Returns the number of the record's object.
    pub(crate) fn id(self) -> FileId {
        FileId(self.id_and_type.get() & FILE_ID_MASK)
    }

    /// Returns the type, of [`record_type`].
    pub(crate) fn kind(self) -> u8 {
        // No truncation: four bits are left.
        (self.id_and_type.get() >> 60) as u8
    }
}

/// Number of bits of a name's length in the key of a hashed directory entry; the hash is above
/// them.
pub(crate) const NAME_LEN_BITS: u32 = 10;
/// Maximum length of a name with its NUL, in bytes.
pub(crate) const MAX_NAME_LEN: usize = (1 << NAME_LEN_BITS) - 1;

/// A key. Names are without their NUL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordKey<'a> {
    /// Number of the record's object.
    pub(crate) id: FileId,
    /// Type, of [`record_type`].
    pub(crate) kind: u8,
    /// The part that distinguishes records of the same object and type.
    pub(crate) rest: KeyRest<'a>,
}

/// The part of a key after its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRest<'a> {
    /// Nothing: the object has only one such record.
    Single,
    /// Offset of a file extent in the stream, number of a sibling, or address of a file info with
    /// its type.
    Number(u64),
    /// Name of an attribute, of a snapshot, or of an entry in a directory without hashes.
    Name(&'a [u8]),
    /// Hash and name of an entry in a hashed directory.
    Hashed(u32, &'a [u8]),
}

impl<'a> RecordKey<'a> {
    /// Returns the key of a record that is unique for the object.
    pub(crate) fn single(id: FileId, kind: u8) -> Self {
        Self {
            id,
            kind,
            rest: KeyRest::Single,
        }
    }

    /// Returns a key with a number.
    pub(crate) fn numbered(id: FileId, kind: u8, number: u64) -> Self {
        Self {
            id,
            kind,
            rest: KeyRest::Number(number),
        }
    }

    /// Returns a key with a name.
    pub(crate) fn named(id: FileId, kind: u8, name: &'a [u8]) -> Self {
        Self {
            id,
            kind,
            rest: KeyRest::Name(name),
        }
    }

    /// Parses a key; `None` if `bytes` are not one. `hashed` is true if the volume's directories
    /// are hashed.
    pub(crate) fn parse(bytes: &'a [u8], hashed: bool) -> Option<Self> {
        let (head, rest) = RecordKeyRaw::ref_from_prefix(bytes).ok()?;
        let kind = head.kind();
        let rest = match kind {
            record_type::XATTR | record_type::SNAPSHOT_NAME => KeyRest::Name(split_name(rest)?),
            record_type::DIRECTORY_ENTRY if hashed => {
                let (packed, name) = U32::ref_from_prefix(rest).ok()?;
                let len = packed.get() as usize & MAX_NAME_LEN;
                KeyRest::Hashed(
                    packed.get() >> NAME_LEN_BITS,
                    without_nul(name.get(..len)?)?,
                )
            }
            record_type::DIRECTORY_ENTRY => KeyRest::Name(split_name(rest)?),
            record_type::SIBLING_LINK | record_type::FILE_EXTENT | record_type::FILE_INFO => {
                KeyRest::Number(U64::ref_from_prefix(rest).ok()?.0.get())
            }
            _ => KeyRest::Single,
        };
        Some(Self {
            id: head.id(),
            kind,
            rest,
        })
    }

    /// Appends the on-disk form of the key. A name must have at most [`MAX_NAME_LEN`] bytes with
    /// its NUL.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(RecordKeyRaw::new(self.id, self.kind).as_bytes());
        match self.rest {
            KeyRest::Single => {}
            KeyRest::Number(number) => out.extend_from_slice(&number.to_le_bytes()),
            KeyRest::Name(name) => put_name(name, out),
            KeyRest::Hashed(hash, name) => {
                let packed = hash << NAME_LEN_BITS | u32::from(name_len(name));
                out.extend_from_slice(&packed.to_le_bytes());
                out.extend_from_slice(name);
                out.push(0);
            }
        }
    }
}

/// The order of records in a tree (§5.4): object, type, then number, name by bytes, or hash and
/// name.
impl Ord for RecordKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.id, self.kind)
            .cmp(&(other.id, other.kind))
            .then_with(|| match (self.rest, other.rest) {
                (KeyRest::Number(a), KeyRest::Number(b)) => a.cmp(&b),
                (KeyRest::Name(a), KeyRest::Name(b)) => a.cmp(b),
                (KeyRest::Hashed(a, name_a), KeyRest::Hashed(b, name_b)) => {
                    (a, name_a).cmp(&(b, name_b))
                }
                // Keys of one type in one tree have the same variant.
                (a, b) => a.rank().cmp(&b.rank()),
            })
    }
}

impl PartialOrd for RecordKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl KeyRest<'_> {
    fn rank(&self) -> u8 {
        match self {
            Self::Single => 0,
            Self::Number(_) => 1,
            Self::Name(_) => 2,
            Self::Hashed(..) => 3,
        }
    }
}

/// Returns the name behind a 16-bit length that counts its NUL; `None` if it is truncated, without
/// a NUL, or too long.
pub(crate) fn split_name(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = U16::ref_from_prefix(bytes).ok()?;
    let len = usize::from(len.get());
    without_nul(rest.get(..len).filter(|_| len <= MAX_NAME_LEN)?)
}

fn without_nul(name: &[u8]) -> Option<&[u8]> {
    name.split_last()
        .filter(|&(&last, _)| last == 0)
        .map(|(_, name)| name)
}

/// Appends a name with its NUL behind a 16-bit length. It must have at most [`MAX_NAME_LEN`] bytes
/// with its NUL.
pub(crate) fn put_name(name: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&name_len(name).to_le_bytes());
    out.extend_from_slice(name);
    out.push(0);
}

/// Returns the length of a name with its NUL.
fn name_len(name: &[u8]) -> u16 {
    debug_assert!(name.len() < MAX_NAME_LEN, "checked by whoever makes names");
    // No truncation, as documented above.
    narrow::<u16>(name.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_disk(key: &RecordKey<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        key.put(&mut bytes);
        bytes
    }

    #[test]
    fn keys_survive_the_disk() {
        let id = FileId(0x1234);
        let hashed = RecordKey {
            id,
            kind: record_type::DIRECTORY_ENTRY,
            rest: KeyRest::Hashed(0x2B_29A3, b"private-dir"),
        };
        let keys = [
            (RecordKey::single(id, record_type::INODE), false),
            (
                RecordKey::numbered(id, record_type::FILE_EXTENT, 4096),
                false,
            ),
            (
                RecordKey::named(id, record_type::XATTR, b"com.apple.decmpfs"),
                true,
            ),
            (
                RecordKey::named(id, record_type::DIRECTORY_ENTRY, b"a"),
                false,
            ),
            (hashed, true),
        ];
        for (key, hashes) in keys {
            assert_eq!(RecordKey::parse(&on_disk(&key), hashes), Some(key));
        }
        assert_eq!(
            on_disk(&hashed)[8..12],
            (0x2B_29A3_u32 << 10 | 12).to_le_bytes()
        );
        assert_eq!(on_disk(&keys[0].0), (3_u64 << 60 | 0x1234).to_le_bytes());
    }

    #[test]
    fn cut_keys_are_none() {
        let key = RecordKey {
            id: FileId(2),
            kind: record_type::DIRECTORY_ENTRY,
            rest: KeyRest::Hashed(1, b"name"),
        };
        let bytes = on_disk(&key);
        for len in 0..bytes.len() {
            assert_eq!(RecordKey::parse(&bytes[..len], true), None, "{len}");
        }
        let mut unended = bytes;
        *unended.last_mut().unwrap() = b'x';
        assert_eq!(RecordKey::parse(&unended, true), None);
        let lying = [
            &on_disk(&RecordKey::single(FileId(2), record_type::XATTR))[..],
            &[0xFF, 0xFF, b'a', 0],
        ]
        .concat();
        assert_eq!(RecordKey::parse(&lying, true), None);
        let longest = [b'x'; MAX_NAME_LEN - 1];
        let key = RecordKey::named(FileId(2), record_type::XATTR, &longest);
        assert_eq!(RecordKey::parse(&on_disk(&key), true), Some(key));
        let head = on_disk(&RecordKey::single(FileId(2), record_type::XATTR));
        let longer = [&head[..], &1024_u16.to_le_bytes(), &longest, b"x\0"].concat();
        assert_eq!(RecordKey::parse(&longer, true), None);
    }

    /// The object is compared before the type, although it has the lower bits, and names as bytes
    /// (§5.4).
    #[test]
    fn order_is_that_of_the_tree() {
        let (a, b) = (FileId(1), FileId(2));
        let sorted = [
            RecordKey::single(a, record_type::DATA_STREAM),
            RecordKey::single(b, record_type::INODE),
            RecordKey::named(b, record_type::XATTR, b"com.apple.ResourceFork"),
            RecordKey::named(b, record_type::XATTR, b"com.apple.decmpfs"),
            RecordKey::numbered(b, record_type::FILE_EXTENT, 0),
            RecordKey::numbered(b, record_type::FILE_EXTENT, 0x1_0000),
            RecordKey {
                id: b,
                kind: record_type::DIRECTORY_ENTRY,
                rest: KeyRest::Hashed(1, b"z"),
            },
            RecordKey {
                id: b,
                kind: record_type::DIRECTORY_ENTRY,
                rest: KeyRest::Hashed(2, b"a"),
            },
        ];
        assert!(sorted.is_sorted_by(|a, b| a < b));
    }
}
