//! An alias record, with which the Finder locates the background picture of a window.
//!
//! Source: docs/formats/ds_store.md §4.

use zerocopy::{FromZeros, IntoBytes};

use super::layout::{
    ALIAS_HFS_PLUS, ALIAS_VERSION, AliasRaw, EJECTABLE, KIND_FILE, NOT_RELATIVE, TagRaw, tag,
};
use crate::size::narrow;

/// A file two levels below the root of a volume.
#[derive(Debug)]
pub(super) struct Alias<'a> {
    /// The volume name.
    pub(super) volume: &'a str,
    /// Creation date of the volume, in seconds since 1904.
    pub(super) volume_created: u32,
    /// Name and number of the folder in the root that contains the file.
    pub(super) folder: (&'a str, u32),
    /// Name and number of the file.
    pub(super) file: (&'a str, u32),
    /// Creation date of the file, in seconds since 1904.
    pub(super) created: u32,
}

impl Alias<'_> {
    /// Returns the encoded record.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (folder, folder_number) = self.folder;
        let (file, file_number) = self.file;
        let mut head = AliasRaw {
            version: ALIAS_VERSION.into(),
            kind: KIND_FILE.into(),
            volume: classic_string(self.volume),
            volume_created: self.volume_created.into(),
            file_system: ALIAS_HFS_PLUS,
            disk_kind: EJECTABLE.into(),
            folder_number: folder_number.into(),
            file: classic_string(file),
            file_number: file_number.into(),
            created: self.created.into(),
            levels: [NOT_RELATIVE.into(); 2],
            ..AliasRaw::new_zeroed()
        };
        let mut out = head.as_bytes().to_vec();
        tagged(&mut out, tag::FOLDER_NAME, &classic(folder));
        tagged(&mut out, tag::FOLDER_NUMBERS, &folder_number.to_be_bytes());
        let path = [classic(self.volume), classic(folder), classic(file)].join(&b':');
        tagged(&mut out, tag::CLASSIC_PATH, &path);
        tagged(&mut out, tag::UNICODE_NAME, &unicode(file));
        tagged(&mut out, tag::UNICODE_VOLUME, &unicode(self.volume));
        // Seconds in units of 1/65,536.
        tagged(
            &mut out,
            tag::VOLUME_DATE,
            &(u64::from(self.volume_created) << 16).to_be_bytes(),
        );
        tagged(
            &mut out,
            tag::FILE_DATE,
            &(u64::from(self.created) << 16).to_be_bytes(),
        );
        tagged(&mut out, tag::PATH, format!("/{folder}/{file}").as_bytes());
        tagged(
            &mut out,
            tag::MOUNT_POINT,
            format!("/Volumes/{}", self.volume).as_bytes(),
        );
        tagged(&mut out, tag::END, &[]);
        head.len = narrow::<u16>(out.len()).into();
        out[..size_of_val(&head)].copy_from_slice(head.as_bytes());
        out
    }
}

/// Returns a name in the encoding of classic Mac OS. A file whose name it cannot represent is
/// located by its number.
fn classic(name: &str) -> Vec<u8> {
    let letter = |c: char| match c {
        ':' => b'/',
        c if c.is_ascii() => c as u8,
        _ => b'?',
    };
    name.chars().map(letter).collect()
}

/// Returns the field with a name after its length, which is truncated if necessary.
fn classic_string<const FIELD: usize>(name: &str) -> [u8; FIELD] {
    let mut field = [0; FIELD];
    let mut name = classic(name);
    name.truncate(FIELD - 1);
    field[0] = narrow::<u8>(name.len());
    field[1..=name.len()].copy_from_slice(&name);
    field
}

/// Returns a name in UTF-16 after the number of its code units.
fn unicode(name: &str) -> Vec<u8> {
    let units: Vec<u16> = name.encode_utf16().collect();
    let count = narrow::<u16>(units.len());
    std::iter::once(count)
        .chain(units)
        .flat_map(u16::to_be_bytes)
        .collect()
}

fn tagged(out: &mut Vec<u8>, tag: u16, bytes: &[u8]) {
    let head = TagRaw {
        tag: tag.into(),
        len: narrow::<u16>(bytes.len()).into(),
    };
    out.extend(head.as_bytes());
    out.extend(bytes);
    // The next tag begins at an even offset.
    out.extend(std::iter::repeat_n(0, bytes.len() % 2));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_they_belong() {
        let alias = Alias {
            volume: "Caf\u{e9}",
            volume_created: 0x1122_3344,
            folder: (".background", 17),
            file: ("background.png", 18),
            created: 0x5566_7788,
        };
        let bytes = alias.to_bytes();
        assert_eq!(
            usize::from(u16::from_be_bytes([bytes[4], bytes[5]])),
            bytes.len()
        );
        assert_eq!(&bytes[6..15], b"\0\x02\0\0\x04Caf?");
        assert_eq!(&bytes[38..46], b"\x11\x22\x33\x44H+\0\x05");
        assert_eq!(&bytes[46..52], b"\0\0\0\x11\x0eb");
        assert_eq!(&bytes[114..122], b"\0\0\0\x12\x55\x66\x77\x88");
        assert_eq!(&bytes[150..155], b"\0\0\0\x0b.");
        assert!(bytes.ends_with(b"\xff\xff\0\0"));
    }
}
