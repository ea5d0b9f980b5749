//! The system use field of a directory record, by the System Use Sharing Protocol (SUSP 1.12): a
//! sequence of entries with a signature, which may continue in another place of the volume.

use zerocopy::FromBytes;

use super::layout::SharingRaw;

/// Length of the head of an entry in bytes: signature, length, version.
const HEAD: usize = 4;
/// Length of the field of a disc by CD-ROM XA in bytes, which precedes the entries.
const XA: usize = 14;
/// Maximum length of a continuation area in bytes.
pub(super) const MAX_AREA: u32 = 32 << 10;
/// Maximum number of continuation areas of a record.
pub(super) const MAX_AREAS: usize = 64;

/// An entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) signature: [u8; 2],
    /// The bytes after the head.
    pub(super) data: &'a [u8],
    /// The byte for the version of the entry.
    pub(super) version: u8,
}

/// The entries of a system use field or of a continuation area, up to the first that is malformed.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let &[first, second, len, version] = self.0.first_chunk::<HEAD>()?;
        let len = usize::from(len);
        let signature = [first, second];
        if len < HEAD || len > self.0.len() || signature == *b"ST" {
            return None;
        }
        let (entry, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(Field {
            signature,
            data: entry.get(HEAD..).unwrap_or_default(),
            version,
        })
    }
}

/// Returns the number of bytes before the first entry of each record, by the record of the root
/// directory itself. `None`: the volume does not use the protocol.
pub(super) fn bytes_to_skip(of_root: &[u8]) -> Option<usize> {
    [0, XA].into_iter().find_map(|start| {
        let first = Fields(of_root.get(start..)?).next()?;
        let (raw, _) = SharingRaw::read_from_prefix(first.data).ok()?;
        (first.signature == *b"SP" && raw.check == [0xBE, 0xEF]).then_some(usize::from(raw.skip))
    })
}

/// Returns the entries of the record of the root directory itself, whose first is `SP`.
pub(super) fn fields_of_root(of_root: &[u8]) -> Fields<'_> {
    let starts_with_sharing = |bytes: &[u8]| bytes.starts_with(b"SP");
    let after_xa = of_root.get(XA..).unwrap_or_default();
    match !starts_with_sharing(of_root) && starts_with_sharing(after_xa) {
        true => Fields(after_xa),
        false => Fields(of_root),
    }
}
