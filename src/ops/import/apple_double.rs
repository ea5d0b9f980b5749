//! AppleDouble: the FinderInfo, extended attributes and resource fork of a file in a second file
//! beside it, named `._` followed by the name of the first.
//!
//! Source: RFC 1740, section "AppleDouble format", and for the attributes Apple's published
//! `copyfile.c` and `vfs_xattr.c`: they follow the FinderInfo in the same entry, after the word
//! `ATTR`.

use std::fs::File;
use std::io;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::TAR_LAYER;
use super::layout::{
    ATTRIBUTES_AT, ATTRIBUTES_MAGIC, AttributeRaw, AttributesRaw, ENTRY_FINDER_INFO, FILLER,
    FINDER_INFO,
};
pub use crate::container::fork_file::layout::APPLE_DOUBLE_MAGIC as MAGIC;
use crate::container::fork_file::layout::{
    APPLE_DOUBLE_VERSION, AppleDoubleEntryRaw, AppleDoubleRaw, ENTRY_RESOURCE_FORK,
};
use crate::fs::source::Stream;
use crate::ops::tar::read::{Member, MemberKind, SparsePiece};
use crate::platform::FileExt;
use crate::size::to_usize;
use crate::{Error, Result};

/// Bytes of headers that are read; those of real files are much shorter.
const MAX_HEADERS: u64 = 1 << 20;
/// Longest value read into memory, in bytes. Longer values stay in the archive.
const MAX_IN_HAND: u64 = 4096;

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
    let mut head = vec![0; to_usize(len.min(MAX_HEADERS))];
    match file.read_exact_at(&mut head, offset) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            return Err(Error::io(TAR_LAYER, "read", error));
        }
        _ => {}
    }
    let Some(found) = parse(&head, len) else {
        return Ok(None);
    };
    let stream = |at: u64, length: u64| match head.get(to_usize(at)..to_usize(at + length)) {
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
    let limit = || {
        Error::limit(
            TAR_LAYER,
            "the attributes are too long for an AppleDouble file",
        )
    };
    let length = |length: usize| u32::try_from(length).map_err(|_| limit());
    let own = ["com.apple.FinderInfo", "com.apple.ResourceFork"];
    let [info, fork] = own.map(|own| attributes.iter().find(|(name, _)| name == own));
    let others: Vec<_> = attributes
        .iter()
        .filter(|(name, _)| !own.contains(&&**name))
        .collect();
    let mut info = info.map_or_else(Vec::new, |(_, value)| value.clone());
    info.resize(ATTRIBUTES_AT, 0);
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
        true => info_at + FINDER_INFO,
        false => data_at + data_len,
    };

    let header = AppleDoubleRaw {
        magic: MAGIC.into(),
        version: APPLE_DOUBLE_VERSION.into(),
        filler: FILLER,
        entries: count.into(),
    };
    let entry = |id: u32, offset: usize, len: usize| -> Result<_> {
        Ok(AppleDoubleEntryRaw {
            id: id.into(),
            offset: length(offset)?.into(),
            length: length(len)?.into(),
        })
    };
    let mut file = header.as_bytes().to_vec();
    file.extend(entry(ENTRY_FINDER_INFO, info_at, end - info_at)?.as_bytes());
    if let Some((_, fork)) = fork {
        file.extend(entry(ENTRY_RESOURCE_FORK, end, fork.len())?.as_bytes());
    }
    if others.is_empty() {
        file.extend(&info[..FINDER_INFO]);
    } else {
        file.extend(&info);
        let header = AttributesRaw {
            magic: ATTRIBUTES_MAGIC,
            total_size: length(end)?.into(),
            data_start: length(data_at)?.into(),
            data_length: length(data_len)?.into(),
            count: u16::try_from(others.len()).map_err(|_| limit())?.into(),
            ..AttributesRaw::new_zeroed()
        };
        file.extend(header.as_bytes());
        let mut at = data_at;
        for (name, value) in &others {
            let attribute = AttributeRaw {
                offset: length(at)?.into(),
                length: length(value.len())?.into(),
                flags: 0.into(),
                name_length: u8::try_from(name.len() + 1).map_err(|_| limit())?,
            };
            file.extend(attribute.as_bytes());
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
    if header.magic != MAGIC || header.version != APPLE_DOUBLE_VERSION {
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
            ENTRY_FINDER_INFO if length >= FINDER_INFO as u64 => {
                let info = head.get(to_usize(offset)..)?.get(..FINDER_INFO)?;
                if info.iter().any(|byte| *byte != 0) {
                    found.push(("com.apple.FinderInfo".into(), offset, FINDER_INFO as u64));
                }
                let rest = head.get(to_usize(offset) + ATTRIBUTES_AT..);
                let rest = rest.unwrap_or_default();
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
    if attributes.magic != ATTRIBUTES_MAGIC {
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
