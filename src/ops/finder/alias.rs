//! An alias record, with which the Finder locates the background picture of a window.
//!
//! Source: docs/formats/ds_store.md §4.

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

/// Value of the record's field `version`.
const VERSION: u16 = 2;
/// A file, not a folder.
const KIND_FILE: u16 = 0;
const HFS_PLUS: &[u8; 2] = b"H+";
/// An ejectable disk.
const EJECTABLE: u16 = 5;

mod tag {
    pub(super) const FOLDER_NAME: u16 = 0;
    pub(super) const FOLDER_NUMBERS: u16 = 1;
    pub(super) const CLASSIC_PATH: u16 = 2;
    pub(super) const UNICODE_NAME: u16 = 14;
    pub(super) const UNICODE_VOLUME: u16 = 15;
    pub(super) const VOLUME_DATE: u16 = 16;
    pub(super) const FILE_DATE: u16 = 17;
    pub(super) const PATH: u16 = 18;
    pub(super) const MOUNT_POINT: u16 = 19;
    pub(super) const END: u16 = 0xFFFF;
}

impl Alias<'_> {
    /// Returns the encoded record.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (folder, folder_number) = self.folder;
        let (file, file_number) = self.file;
        let mut out = Vec::with_capacity(512);
        out.extend([0; 4]); // of whose it is
        out.extend([0; 2]); // its length, below
        out.extend(VERSION.to_be_bytes());
        out.extend(KIND_FILE.to_be_bytes());
        classic_string(&mut out, self.volume, 28);
        out.extend(self.volume_created.to_be_bytes());
        out.extend(HFS_PLUS);
        out.extend(EJECTABLE.to_be_bytes());
        out.extend(folder_number.to_be_bytes());
        classic_string(&mut out, file, 64);
        out.extend(file_number.to_be_bytes());
        out.extend(self.created.to_be_bytes());
        out.extend([0; 8]); // creator and type
        out.extend([0xFF; 4]); // not relative to another file
        out.extend([0; 4]); // of the volume: attributes,
        out.extend([0; 2]); // file system,
        out.extend([0; 10]); // and what nobody uses
        debug_assert_eq!(out.len(), 150);
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
        let length = (out.len() as u16).to_be_bytes();
        out[4..6].copy_from_slice(&length);
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

/// Writes a name after its length, in `field` bytes.
fn classic_string(out: &mut Vec<u8>, name: &str, field: usize) {
    let mut name = classic(name);
    name.truncate(field - 1);
    out.push(name.len() as u8);
    out.extend(&name);
    out.extend(std::iter::repeat_n(0, field - 1 - name.len()));
}

/// Returns a name in UTF-16 after the number of its code units.
fn unicode(name: &str) -> Vec<u8> {
    let units: Vec<u16> = name.encode_utf16().collect();
    let count = units.len() as u16;
    std::iter::once(count)
        .chain(units)
        .flat_map(u16::to_be_bytes)
        .collect()
}

fn tagged(out: &mut Vec<u8>, tag: u16, bytes: &[u8]) {
    out.extend(tag.to_be_bytes());
    out.extend((bytes.len() as u16).to_be_bytes());
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
