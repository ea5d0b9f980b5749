//! AppleDouble: the FinderInfo, extended attributes and resource fork of a file in a second file
//! beside it, named `._` followed by the name of the first.
//!
//! Source: RFC 1740, section "AppleDouble format", and for the attributes Apple's published
//! `copyfile.c` and `vfs_xattr.c`: they follow the FinderInfo in the same entry, after the word
//! `ATTR`.

use std::fs::File;
use std::io;

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::tar::LAYER;
use crate::fs::source::Stream;
use crate::ops::tar::read::{Member, MemberKind, SparsePiece};
use crate::platform::FileExt;
use crate::size::to_usize;
use crate::{Error, Result};

/// The first four bytes of an AppleDouble file, big-endian.
pub const MAGIC: u32 = 0x0005_1607;
const VERSION: u32 = 0x0002_0000;
const ATTRIBUTES: [u8; 4] = *b"ATTR";
/// Entry of the FinderInfo, followed by the attributes.
const ENTRY_FINDER_INFO: u32 = 9;
/// Entry of the resource fork.
const ENTRY_RESOURCE_FORK: u32 = 2;

/// Bytes of headers that are read; those of real files are much shorter.
const MAX_HEADERS: u64 = 1 << 20;
/// Longest value read into memory, in bytes. Longer values stay in the archive.
const MAX_IN_HAND: u64 = 4096;

/// Header of the file; entries follow.
///
/// Source: RFC 1740, "AppleDouble format".
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AppleDoubleRaw {
    /*00*/ magic: U32,
    /*04*/ version: U32,
    /*08*/ filler: [u8; 16],
    /*24*/ entries: U16,
}
const _: () = assert!(size_of::<AppleDoubleRaw>() == 26);

/// An entry: its kind, and where it is.
///
/// Source: RFC 1740, "AppleDouble format".
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AppleDoubleEntryRaw {
    /*00*/ id: U32,
    /*04*/ offset: U32,
    /*08*/ length: U32,
}
const _: () = assert!(size_of::<AppleDoubleEntryRaw>() == 12);

/// Header of the attributes, after the 32 bytes of FinderInfo and two bytes of padding.
///
/// Source: Apple xnu, bsd/vfs/vfs_xattr.c, attr_header.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AttributesRaw {
    /*00*/ magic: [u8; 4],
    /*04*/ tag: U32,
    /*08*/ total_size: U32,
    /*12*/ data_start: U32,
    /*16*/ data_length: U32,
    /*20*/ reserved: [U32; 3],
    /*32*/ flags: U16,
    /*34*/ count: U16,
}
const _: () = assert!(size_of::<AttributesRaw>() == 36);

/// One attribute, followed by its name with a zero byte, padded to a multiple of four.
///
/// Source: Apple xnu, bsd/vfs/vfs_xattr.c, attr_entry.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AttributeRaw {
    /*00*/ offset: U32, // of the value, from the beginning of the file
    /*04*/ length: U32,
    /*08*/ flags: U16,
    /*10*/ name_length: u8, // with the zero byte
}
const _: () = assert!(size_of::<AttributeRaw>() == 11);

/// Attributes by name.
pub(super) type Xattrs = Vec<(Box<str>, Stream)>;
/// Attributes by name, with offset and length of their values.
type Places = Vec<(Box<str>, u64, u64)>;

/// Returns the path of the file that `member` belongs to, if its name is that of an AppleDouble
/// file.
pub(super) fn partner(member: &Member) -> Option<Vec<u8>> {
    let slash = member
        .path
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1);
    let name = member.path[slash..]
        .strip_prefix(b"._")
        .filter(|name| !name.is_empty())?;
    (member.kind == MemberKind::File).then(|| [&member.path[..slash], name].concat())
}

/// Returns the attributes in an AppleDouble file in an archive. `None` for other files.
pub(super) fn of_member(file: &File, member: &Member) -> Result<Option<Xattrs>> {
    match member.pieces[..] {
        [SparsePiece { at: 0, offset, len }] => read(file, offset, len),
        _ => Ok(None),
    }
}

/// Returns the attributes in an AppleDouble file of `len` bytes at `offset` of `file`. `None` for
/// other files.
pub(super) fn read(file: &File, offset: u64, len: u64) -> Result<Option<Xattrs>> {
    let mut head = vec![0; len.min(MAX_HEADERS) as usize];
    match file.read_exact_at(&mut head, offset) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            return Err(Error::io(LAYER, "read", error));
        }
        _ => {}
    }
    let Some(found) = parse(&head, len) else {
        return Ok(None);
    };
    let stream = |at: u64, length: u64| match head.get(at as usize..(at + length) as usize) {
        Some(bytes) if length <= MAX_IN_HAND => Stream::Bytes(bytes.into()),
        _ => Stream::Extern {
            node: 0,
            offset: offset + at,
            len: length,
        },
    };
    Ok(Some(
        found
            .into_iter()
            .map(|(name, at, length)| (name, stream(at, length)))
            .collect(),
    ))
}

/// Returns the attributes in the AppleDouble file `bytes`, by name. `None` for other files.
pub fn decode(bytes: &[u8]) -> Option<Vec<(Box<str>, &[u8])>> {
    let found = parse(bytes, bytes.len() as u64)?.into_iter();
    found
        .map(|(name, at, len)| {
            let start = to_usize(at);
            Some((name, bytes.get(start..start + to_usize(len))?))
        })
        .collect()
}

/// Returns an AppleDouble file with these attributes, at least one. [`Kind::Limit`](crate::Kind) if
/// they exceed 4 GiB, or a name exceeds 254 bytes.
pub fn encode(attributes: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let limit = || Error::limit(LAYER, "the attributes are too long for an AppleDouble file");
    let length = |length: usize| u32::try_from(length).map_err(|_| limit());
    let own = ["com.apple.FinderInfo", "com.apple.ResourceFork"];
    let [info, fork] = own.map(|own| attributes.iter().find(|(name, _)| name == own));
    let others: Vec<_> = attributes
        .iter()
        .filter(|(name, _)| !own.contains(&&**name))
        .collect();
    let mut info = info.map_or_else(Vec::new, |(_, value)| value.clone());
    info.resize(34, 0);
    let count = 1 + u16::from(fork.is_some());
    let info_at =
        size_of::<AppleDoubleRaw>() + usize::from(count) * size_of::<AppleDoubleEntryRaw>();
    // A multiple of four.
    let list_at = info_at + info.len();
    let mut data_at = list_at + size_of::<AttributesRaw>();
    let entry_len = |name: &str| (size_of::<AttributeRaw>() + name.len() + 1).next_multiple_of(4);
    data_at += others
        .iter()
        .map(|(name, _)| entry_len(name))
        .sum::<usize>();
    let data_len: usize = others.iter().map(|(_, value)| value.len()).sum();
    let end = match others.is_empty() {
        true => info_at + 32,
        false => data_at + data_len,
    };

    let mut file = [MAGIC.to_be_bytes(), VERSION.to_be_bytes()].concat();
    file.extend(b"Mac OS X        ");
    file.extend(count.to_be_bytes());
    let mut words = |words: &[u32]| file.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    words(&[ENTRY_FINDER_INFO, length(info_at)?, length(end - info_at)?]);
    if let Some((_, fork)) = fork {
        words(&[ENTRY_RESOURCE_FORK, length(end)?, length(fork.len())?]);
    }
    file.resize(info_at, 0);
    file.extend(&info[..if others.is_empty() { 32 } else { 34 }]);
    if !others.is_empty() {
        file.extend(ATTRIBUTES);
        for word in [
            0,
            length(end)?,
            length(data_at)?,
            length(data_len)?,
            0,
            0,
            0,
        ] {
            file.extend(word.to_be_bytes());
        }
        file.extend([0; 2]);
        file.extend(
            u16::try_from(others.len())
                .map_err(|_| limit())?
                .to_be_bytes(),
        );
        let mut at = data_at;
        for (name, value) in &others {
            let name_len = u8::try_from(name.len() + 1).map_err(|_| limit())?;
            file.extend(length(at)?.to_be_bytes());
            file.extend(length(value.len())?.to_be_bytes());
            file.extend([0, 0, name_len]);
            file.extend(name.as_bytes());
            file.push(0);
            file.resize(file.len().next_multiple_of(4), 0);
            at += value.len();
        }
        others.iter().for_each(|(_, value)| file.extend(value));
    }
    if let Some((_, fork)) = fork {
        length(file.len() + fork.len())?;
        file.extend(fork);
    }
    Ok(file)
}

/// Returns the attributes by name, with the locations of their values in the file, whose first
/// bytes are `head`.
fn parse(head: &[u8], len: u64) -> Option<Places> {
    let (header, mut rest) = AppleDoubleRaw::ref_from_prefix(head).ok()?;
    if header.magic != MAGIC || header.version != VERSION {
        return None;
    }
    let mut found = Vec::new();
    for _ in 0..header.entries.get() {
        let (entry, behind) = AppleDoubleEntryRaw::ref_from_prefix(rest).ok()?;
        rest = behind;
        let (offset, length) = (u64::from(entry.offset.get()), u64::from(entry.length.get()));
        if offset + length > len {
            return None;
        }
        match entry.id.get() {
            ENTRY_FINDER_INFO if length >= 32 => {
                let info = head.get(offset as usize..offset as usize + 32)?;
                if info.iter().any(|byte| *byte != 0) {
                    found.push(("com.apple.FinderInfo".into(), offset, 32));
                }
                // After the 32 bytes, two bytes of padding.
                let rest = head.get(offset as usize + 34..).unwrap_or_default();
                found.extend(attributes(head, rest, len)?);
            }
            ENTRY_RESOURCE_FORK if length > 0 => {
                found.push(("com.apple.ResourceFork".into(), offset, length))
            }
            _ => {}
        }
    }
    Some(found)
}

fn attributes(head: &[u8], at: &[u8], len: u64) -> Option<Places> {
    let mut found = Vec::new();
    let Ok((attributes, mut rest)) = AttributesRaw::ref_from_prefix(at) else {
        return Some(found);
    };
    if attributes.magic != ATTRIBUTES {
        return Some(found);
    }
    for _ in 0..attributes.count.get() {
        let (attribute, behind) = AttributeRaw::ref_from_prefix(rest).ok()?;
        let name_length = usize::from(attribute.name_length);
        let name = behind.get(..name_length)?.strip_suffix(b"\0")?;
        let (offset, length) = (
            u64::from(attribute.offset.get()),
            u64::from(attribute.length.get()),
        );
        if offset + length > len {
            return None;
        }
        found.push((std::str::from_utf8(name).ok()?.into(), offset, length));
        // The next entry begins at a file offset that is a multiple of four.
        let end = head.len() - behind.len() + name_length;
        rest = head.get(end.next_multiple_of(4)..)?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apple_double_files_read_back() {
        let info = (
            "com.apple.FinderInfo".to_owned(),
            b"TEXTicnC\0\x10"[..].to_vec(),
        );
        let fork = ("com.apple.ResourceFork".to_owned(), vec![7; 1000]);
        let other = |name: &str, len| (name.to_owned(), vec![5; len]);
        for attributes in [
            vec![info.clone()],
            vec![fork.clone()],
            vec![info.clone(), fork.clone()],
            vec![other("com.apple.quarantine", 13)],
            vec![info, fork, other("a", 0), other("org.example.long", 5000)],
        ] {
            let file = encode(&attributes).unwrap();
            let expected: Vec<_> = attributes
                .into_iter()
                .map(|(name, mut value)| {
                    if name == "com.apple.FinderInfo" {
                        value.resize(32, 0);
                    }
                    (name.into_boxed_str(), value)
                })
                .collect();
            let mut found = decode(&file).unwrap();
            // Kinds come in their order.
            found.sort_by_key(|(name, _)| expected.iter().position(|(known, _)| known == name));
            let found: Vec<_> = found
                .into_iter()
                .map(|(name, value)| (name, value.to_vec()))
                .collect();
            assert_eq!(found, expected);
            for cut in 0..file.len() {
                let _ = decode(&file[..cut]);
            }
        }
        assert!(encode(&[other(&"x".repeat(255), 1)]).is_err());
        assert!(decode(b"no AppleDouble").is_none());
    }
}
