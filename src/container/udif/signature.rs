//! The code signature of an image: hashes of the file in a code directory.
//!
//! Source: docs/formats/udif.md §9; the layout of the structures: Apple xnu,
//! `osfmk/kern/cs_blobs.h`.

use std::ops::Range;

use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::layout::signature::{
    BlobIndexRaw, BlobRaw, CodeDirectoryRaw, LaterFieldsRaw, SuperBlobRaw,
};
use super::layout::{KOLY_SIZE, koly_field};
use super::{BlockDevice, BlockDeviceExt, Udif};
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Kind, Result};

const LAYER: &str = "code signature";
/// Longest signature, in bytes; real ones are of some ten thousand.
const MAX_BYTES: u64 = 16 << 20;
/// Most blobs in a signature; real ones have up to ten.
const MAX_BLOBS: u32 = 100;
/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

const MAGIC_SUPER_BLOB: u32 = 0xFADE_0CC0;
const MAGIC_DIRECTORY: u32 = 0xFADE_0C02;
/// Kinds of blobs: a directory, a further one with other hashes, certificates, a ticket.
const SLOT_DIRECTORY: u32 = 0;
const SLOTS_ALTERNATE: Range<u32> = 0x1000..0x1005;
const SLOT_CMS: u32 = 0x10000;
const SLOT_TICKET: u32 = 0x10002;
/// The special slot with the hash of the trailer.
const SLOT_TRAILER: u32 = 6;
/// Versions of the directory since which a field exists.
const WITH_TEAM: u32 = 0x2_0200;
const WITH_LONG_LIMIT: u32 = 0x2_0300;

/// The contents of a code signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeSignature {
    /// The identifier of the signed image.
    pub identifier: String,
    /// The identifier of the signer's team, if there is one.
    pub team: Option<String>,
    /// The hash functions of the directories, in their order: `sha1`, `sha256`, `sha384`.
    pub hashes: Vec<&'static str>,
    /// True if certificates vouch for the directory; they are not verified.
    pub certified: bool,
    /// True if a notarization ticket is attached, which is not verified.
    pub ticket: bool,
    directories: Vec<Directory>,
}

/// A list of hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Directory {
    identifier: String,
    team: Option<String>,
    hash: HashKind,
    /// Number of signed bytes from the beginning of the file.
    limit: u64,
    /// Length of a page in bytes.
    page: u64,
    pages: Vec<Vec<u8>>,
    trailer: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HashKind {
    Sha1,
    Sha256,
    Sha256Short,
    Sha384,
}

impl HashKind {
    fn of(number: u8) -> Result<Self> {
        match number {
            1 => Ok(Self::Sha1),
            2 => Ok(Self::Sha256),
            3 => Ok(Self::Sha256Short),
            4 => Ok(Self::Sha384),
            _ => Err(invalid(format!("unknown hash function {number}"))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 | Self::Sha256Short => "sha256",
            Self::Sha384 => "sha384",
        }
    }

    /// Returns the length of a hash in bytes.
    fn len(self) -> usize {
        match self {
            Self::Sha1 | Self::Sha256Short => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }

    fn hasher(self) -> Hasher {
        match self {
            Self::Sha1 => Hasher::Sha1(Sha1::new()),
            Self::Sha256 | Self::Sha256Short => Hasher::Sha256(Sha256::new()),
            Self::Sha384 => Hasher::Sha384(Sha384::new()),
        }
    }
}

enum Hasher {
    Sha1(Sha1),
    Sha256(Sha256),
    Sha384(Sha384),
}

impl Hasher {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha384(hasher) => hasher.update(bytes),
        }
    }

    fn finish(self, kind: HashKind) -> Vec<u8> {
        let mut hash = match self {
            Self::Sha1(hasher) => hasher.finalize().to_vec(),
            Self::Sha256(hasher) => hasher.finalize().to_vec(),
            Self::Sha384(hasher) => hasher.finalize().to_vec(),
        };
        hash.truncate(kind.len());
        hash
    }
}

impl Udif {
    /// Returns the contents of the code signature; `None` if there is none. [`Kind::Corrupt`] if
    /// they are no code directory.
    pub fn code_signature(&self) -> Result<Option<CodeSignature>> {
        let Some(range) = self.signature() else {
            return Ok(None);
        };
        let len = range.end - range.start;
        if len > MAX_BYTES {
            return Err(Error::new(
                Kind::Limit,
                LAYER,
                format!("longer than {MAX_BYTES} bytes"),
            ));
        }
        let bytes = self.first.read_vec(range.start, to_usize(len))?;
        CodeSignature::parse(&bytes, range.start).map(Some)
    }

    /// Compares the file with the hashes of its code signature, and returns true if all agree.
    /// Certificates and tickets are not verified.
    pub fn verify_signature(
        &self,
        signature: &CodeSignature,
        progress: &dyn Progress,
    ) -> Result<bool> {
        let total = signature.directories.iter().map(|one| one.limit).sum();
        progress.stage("signature", total);
        for directory in &signature.directories {
            if !directory.agrees(&*self.first, progress)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl CodeSignature {
    /// Parses the signature that begins at `start` of its file.
    fn parse(bytes: &[u8], start: u64) -> Result<Self> {
        let (head, _) = structure::<SuperBlobRaw>(bytes, 0)?;
        if head.head.magic != MAGIC_SUPER_BLOB {
            return Err(invalid("unknown magic number"));
        }
        let count = head.count.get();
        if count > MAX_BLOBS {
            return Err(invalid(format!("{count} blobs")));
        }
        let mut signature = Self {
            identifier: String::new(),
            team: None,
            hashes: Vec::new(),
            certified: false,
            ticket: false,
            directories: Vec::new(),
        };
        let mut kinds = Vec::new();
        for index in 0..count as usize {
            let at = size_of::<SuperBlobRaw>() + index * size_of::<BlobIndexRaw>();
            let (entry, _) = structure::<BlobIndexRaw>(bytes, at)?;
            let (kind, offset) = (entry.kind.get(), entry.offset.get() as usize);
            // Each directory takes a pass over the file.
            if kinds.contains(&kind) {
                return Err(invalid(format!("two blobs of kind {kind:#x}")));
            }
            kinds.push(kind);
            let (head, _) = structure::<BlobRaw>(bytes, offset)?;
            let len = head.len.get() as usize;
            let blob = part(bytes, offset, len)?;
            if kind == SLOT_DIRECTORY || SLOTS_ALTERNATE.contains(&kind) {
                signature.directories.push(Directory::parse(blob, start)?);
            } else if kind == SLOT_CMS {
                signature.certified = len > size_of::<BlobRaw>();
            } else if kind == SLOT_TICKET {
                signature.ticket = len > size_of::<BlobRaw>();
            }
        }
        let Some(first) = signature.directories.first() else {
            return Err(invalid("there is no code directory"));
        };
        signature.identifier = first.identifier.clone();
        signature.team = first.team.clone();
        signature.hashes = (signature.directories.iter())
            .map(|directory| directory.hash.name())
            .collect();
        Ok(signature)
    }
}

impl Directory {
    fn parse(blob: &[u8], start: u64) -> Result<Self> {
        let (head, rest) = structure::<CodeDirectoryRaw>(blob, 0)?;
        if head.head.magic != MAGIC_DIRECTORY {
            return Err(invalid("a code directory has an unknown magic number"));
        }
        let version = head.version.get();
        let hashes_at = head.hashes_at.get() as usize;
        let (special, count) = (head.special_slots.get(), head.pages.get());
        let hash = HashKind::of(head.hash_kind)?;
        if usize::from(head.hash_len) != hash.len() {
            return Err(invalid(format!("a hash of {} bytes", head.hash_len)));
        }
        let later = || structure::<LaterFieldsRaw>(rest, 0).map(|(fields, _)| fields);
        let limit = match version >= WITH_LONG_LIMIT {
            true => later()?.long_limit.get(),
            false => 0,
        };
        let limit = match limit {
            0 => u64::from(head.limit.get()),
            long => long,
        };
        if limit > start || limit == 0 {
            return Err(invalid(format!(
                "{limit} bytes are signed, before byte {start}"
            )));
        }
        let page = match head.page_log {
            0 => limit,
            log @ 9..=32 => 1 << log,
            log => return Err(invalid(format!("a page of 2^{log} bytes"))),
        };
        if limit.div_ceil(page) != u64::from(count) {
            return Err(invalid(format!("{count} pages for {limit} bytes")));
        }
        let hash_at = |slot: usize| -> Result<Vec<u8>> {
            Ok(part(
                blob,
                hashes_at.saturating_add(slot * hash.len()),
                hash.len(),
            )?
            .to_vec())
        };
        // Checked before anything is allocated for the pages.
        part(blob, hashes_at, (count as usize).saturating_mul(hash.len()))?;
        let trailer = match special >= SLOT_TRAILER {
            true => {
                let before = SLOT_TRAILER as usize * hash.len();
                let at = hashes_at.checked_sub(before);
                let at = at.ok_or_else(|| invalid("the hashes begin too early"))?;
                let stored = part(blob, at, hash.len())?;
                // An empty slot is zero.
                stored
                    .iter()
                    .any(|byte| *byte != 0)
                    .then(|| stored.to_vec())
            }
            false => None,
        };
        let team_at = match version >= WITH_TEAM {
            true => later()?.team_at.get(),
            false => 0,
        };
        Ok(Self {
            identifier: text(blob, head.identifier_at.get())?,
            team: match team_at {
                0 => None,
                at => Some(text(blob, at)?),
            },
            hash,
            limit,
            page,
            pages: (0..count as usize).map(hash_at).collect::<Result<_>>()?,
            trailer,
        })
    }

    /// Compares the pages and the trailer of `file` with their hashes.
    fn agrees(&self, file: &dyn BlockDevice, progress: &dyn Progress) -> Result<bool> {
        for (stored, number) in self.pages.iter().zip(0_u64..) {
            let end = (self.page.saturating_mul(number + 1)).min(self.limit);
            let mut at = self.page * number;
            let mut hasher = self.hash.hasher();
            while at < end {
                progress.check()?;
                let len = PIECE.min(end - at);
                hasher.update(&file.read_vec(at, to_usize(len))?);
                progress.advance(len);
                at += len;
            }
            if hasher.finish(self.hash) != *stored {
                return Ok(false);
            }
        }
        let Some(stored) = &self.trailer else {
            return Ok(true);
        };
        let at = file.info().len.saturating_sub(KOLY_SIZE);
        let mut trailer = file.read_vec(at, to_usize(KOLY_SIZE))?;
        // The signature's length counts as zero in the hash.
        let at = to_usize(koly_field::SIGNATURE_LENGTH);
        trailer[at..at + 8].fill(0);
        let mut hasher = self.hash.hasher();
        hasher.update(&trailer);
        Ok(hasher.finish(self.hash) == *stored)
    }
}

/// Returns `len` bytes at `at`.
fn part(bytes: &[u8], at: usize, len: usize) -> Result<&[u8]> {
    at.checked_add(len)
        .and_then(|end| bytes.get(at..end))
        .ok_or_else(|| invalid("a field is outside of its blob"))
}

/// Returns the structure at `at`, and what follows it.
fn structure<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &[u8],
    at: usize,
) -> Result<(&T, &[u8])> {
    let rest = bytes.get(at..).unwrap_or_default();
    T::ref_from_prefix(rest).map_err(|_| invalid("a structure is outside of its blob"))
}

/// Returns the text that ends with a zero byte.
fn text(bytes: &[u8], at: u32) -> Result<String> {
    let rest = bytes.get(at as usize..).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == 0);
    let end = end.ok_or_else(|| invalid("a text has no end"))?;
    Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::Corrupt, LAYER, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::Memory;
    use crate::progress::Silent;
    use crate::testing::udif::{image, signed, with_signature};

    fn open(bytes: &[u8]) -> Udif {
        Udif::open(Arc::new(Memory::read_only(bytes))).unwrap()
    }

    #[test]
    fn hashes_cover_the_file_and_the_trailer() {
        let plain = image(&[7; 64 << 10], None);
        assert_eq!(open(&plain).code_signature().unwrap(), None);
        for log in [0, 12] {
            let signed = with_signature(&plain, log);
            let udif = open(&signed);
            let signature = udif.code_signature().unwrap().unwrap();
            assert_eq!(signature.identifier, "org.example.disk");
            assert_eq!(signature.team.as_deref(), Some("TEAM"));
            assert_eq!(signature.hashes, ["sha256"]);
            assert!(!signature.certified && !signature.ticket);
            assert!(udif.verify_signature(&signature, &Silent).unwrap());
            // A byte of the data, of the list and of the trailer.
            for at in [100, plain.len() - 600, signed.len() - 8] {
                let mut changed = signed.clone();
                changed[at] ^= 1;
                let Ok(udif) = Udif::open(Arc::new(Memory::read_only(&*changed))) else {
                    continue;
                };
                assert!(
                    !udif.verify_signature(&signature, &Silent).unwrap(),
                    "{log}: {at}"
                );
            }
        }
        let placeholder = open(&signed(&plain)).code_signature();
        assert_eq!(placeholder.unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn blobs_of_one_kind_are_refused() {
        let signed = with_signature(&image(&[7; 8 << 10], None), 12);
        let range = open(&signed).signature().unwrap();
        let bytes = &signed[to_usize(range.start)..to_usize(range.end)];
        // The index of the only blob twice, both of what lies eight bytes further now.
        let entry = [0, 0, 0, 0, 0, 0, 0, 28];
        let twice = [&bytes[..8], &[0, 0, 0, 2], &entry, &entry, &bytes[20..]].concat();
        let error = CodeSignature::parse(&twice, range.start).unwrap_err();
        assert!(error.to_string().contains("two blobs"), "{error}");
    }

    #[test]
    fn any_field_may_be_wrong() {
        let signed = with_signature(&image(&[7; 8 << 10], None), 12);
        let range = open(&signed).signature().unwrap();
        let bytes = &signed[to_usize(range.start)..to_usize(range.end)];
        for at in 0..bytes.len() {
            for value in [0, 0x7F, 0xFF] {
                let mut changed = bytes.to_vec();
                changed[at] = value;
                // An error or another signature, but no panic.
                let _ = CodeSignature::parse(&changed, range.start);
            }
            assert!(
                CodeSignature::parse(&bytes[..at], range.start).is_err(),
                "{at}"
            );
        }
    }
}
