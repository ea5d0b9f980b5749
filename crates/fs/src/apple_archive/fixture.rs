//! Archives for tests and for fuzzing, with every field that is read.

use sha2::{Digest, Sha256};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{I64, U16, U32};

use super::layout::{EntryHeadRaw, FieldRaw, MAGICS, TimeRaw, XattrRaw};

/// The modification time of all objects, in seconds, with 5 nanoseconds.
pub const TIME: i64 = 1_700_000_000;
/// The contents of `folder/file.txt`.
pub const CONTENTS: &[u8] = b"hello, world\n";
/// The resource fork of `folder/file.txt`.
pub const RESOURCES: &[u8] = b"resources";

/// An entry that is made field by field.
#[derive(Debug, Default)]
pub struct FixtureEntry {
    fields: Vec<u8>,
    blobs: Vec<u8>,
}

impl FixtureEntry {
    /// Begins an entry of a type (`TYP`) with a path.
    pub fn new(kind: u8, path: &str) -> Self {
        Self::default()
            .number("TYP", 1, kind.into())
            .text("PAT", path)
    }

    fn field(&mut self, key: &str, subtype: u8) {
        let mut raw = FieldRaw {
            key: [b' '; 3],
            subtype,
        };
        raw.key.copy_from_slice(key.as_bytes());
        self.fields.extend_from_slice(raw.as_bytes());
    }

    /// Adds a number of 1, 2, 4 or 8 bytes.
    #[must_use]
    pub fn number(mut self, key: &str, len: u8, number: u64) -> Self {
        self.field(key, b'0' + len);
        self.fields
            .extend_from_slice(&number.to_le_bytes()[..len.into()]);
        self
    }

    /// Adds a text.
    #[must_use]
    pub fn text(mut self, key: &str, text: &str) -> Self {
        self.field(key, b'P');
        let len = U16::new(text.len() as u16);
        self.fields.extend_from_slice(len.as_bytes());
        self.fields.extend_from_slice(text.as_bytes());
        self
    }

    /// Adds a time.
    #[must_use]
    pub fn time(mut self, key: &str, seconds: i64, nanos: u32) -> Self {
        let raw = TimeRaw {
            seconds: I64::new(seconds),
            nanos: U32::new(nanos),
        };
        let has_nanos = nanos != 0;
        self.field(key, if has_nanos { b'T' } else { b'S' });
        let len = if has_nanos { 12 } else { 8 };
        self.fields.extend_from_slice(&raw.as_bytes()[..len]);
        self
    }

    /// Adds a hash.
    #[must_use]
    pub fn hash(mut self, key: &str, hash: &[u8]) -> Self {
        let subtype = match hash.len() {
            4 => b'F',
            20 => b'G',
            32 => b'H',
            48 => b'I',
            _ => b'J',
        };
        self.field(key, subtype);
        self.fields.extend_from_slice(hash);
        self
    }

    /// Adds a blob, whose length has 2, 4 or 8 bytes.
    #[must_use]
    pub fn blob(mut self, key: &str, len: u8, blob: &[u8]) -> Self {
        let subtype = match len {
            2 => b'A',
            4 => b'B',
            _ => b'C',
        };
        self.field(key, subtype);
        let number = (blob.len() as u64).to_le_bytes();
        self.fields.extend_from_slice(&number[..len.into()]);
        self.blobs.extend_from_slice(blob);
        self
    }

    /// Adds extended attributes.
    #[must_use]
    pub fn xattrs(self, xattrs: &[(&str, &[u8])]) -> Self {
        let mut blob = Vec::new();
        for (name, value) in xattrs {
            let raw = XattrRaw {
                length: U32::new((4 + name.len() + 1 + value.len()) as u32),
            };
            blob.extend_from_slice(raw.as_bytes());
            blob.extend_from_slice(name.as_bytes());
            blob.push(0);
            blob.extend_from_slice(value);
        }
        self.blob("XAT", 2, &blob)
    }

    /// Returns the bytes of the entry.
    pub fn bytes(&self) -> Vec<u8> {
        let head = EntryHeadRaw {
            magic: MAGICS[0],
            length: U16::new((size_of::<EntryHeadRaw>() + self.fields.len()) as u16),
        };
        [head.as_bytes(), &self.fields, &self.blobs].concat()
    }
}

fn object(kind: u8, path: &str, mode: u64) -> FixtureEntry {
    FixtureEntry::new(kind, path)
        .number("UID", 2, 501)
        .number("GID", 1, 20)
        .number("MOD", 2, mode)
        .number("FLG", 1, 0)
        .time("MTM", TIME, 5)
        .time("CTM", TIME - 1, 0)
}

/// Returns an archive with an object of every kind.
pub fn archive() -> Vec<u8> {
    let hash = Sha256::digest(CONTENTS);
    let xattrs: &[(&str, &[u8])] = &[
        ("com.apple.ResourceFork", RESOURCES),
        ("user.note", b"a note"),
        ("user.empty", b""),
    ];
    let entries = [
        FixtureEntry::default()
            .number("TYP", 1, b'M'.into())
            .blob("YAF", 2, b"TYP,PAT,DAT"),
        object(b'D', "", 0o755),
        object(b'D', "folder", 0o700),
        object(b'F', "folder/file.txt", 0o640)
            .number("HLC", 1, 7)
            .number("SIZ", 1, CONTENTS.len() as u64)
            .hash("SH2", &hash)
            .blob("DAT", 2, CONTENTS)
            .xattrs(xattrs),
        object(b'F', "folder/again.txt", 0o640).number("HLC", 1, 7),
        object(b'F', "clone.txt", 0o600)
            .number("SLC", 1, 3)
            .blob("DAT", 4, b"the same"),
        object(b'F', "cloned.txt", 0o600).number("SLC", 1, 3),
        object(b'F', "empty", 0o644).blob("DAT", 8, b""),
        object(b'L', "link", 0o755).text("LNK", "folder/file.txt"),
        object(b'P', "fifo", 0o644),
        object(b'C', "device", 0o644).number("DEV", 4, 0x0300_0002),
        // Its folder has no entry.
        object(b'F', "unknown/large", 0o644).blob("DAT", 4, &[7; 70_000]),
    ];
    entries.iter().flat_map(FixtureEntry::bytes).collect()
}
