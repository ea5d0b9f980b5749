//! The key entries of a version 2 header: each is a way into the image.

use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes, transmute};

use super::keys::{Derivation, KeyMaterial, random};
use super::layout::{
    DIRECTORY_SIZE, DirectoryRaw, Header, PASSPHRASE, PASSPHRASE_SIZE, PUBLIC_KEY, PUBLIC_KEY_SIZE, Passphrase, PassphraseRaw,
    PublicKey, PublicKeyRaw,
};
use super::public_key::Certificate;
use super::secret::Secret;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::{Error, Result};

const LAYER: &str = "encryption key entry";

/// A way into an image, as it is told without a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WayIn {
    /// A passphrase.
    Passphrase {
        /// Of its derivation.
        iterations: u32,
    },
    /// The private key that belongs to a certificate.
    PublicKey {
        /// Which key: SHA-1 of the public key, in most certificates the subject key identifier.
        id: Vec<u8>,
        /// Of its modulus.
        bits: u32,
    },
    /// Something that nobody has described.
    Unknown {
        /// Its kind.
        kind: u32,
    },
}

/// A way in to be made.
#[derive(Debug, Clone)]
pub enum NewWay {
    /// A passphrase.
    Passphrase {
        /// As bytes.
        passphrase: Secret,
        /// Of its derivation.
        iterations: u32,
    },
    /// The private key that belongs to this certificate.
    Certificate(Certificate),
}

/// An entry as it stands in the header.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) kind: u32,
    /// Where it stands.
    pub(super) range: Range<u64>,
    pub(super) content: Content,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    Passphrase(Passphrase),
    PublicKey(PublicKey),
    Unknown,
}

impl Entry {
    /// The entries that the directory behind `header` leads to.
    pub(super) fn read_all(file: &dyn BlockDevice, header: &Header) -> Result<Vec<Self>> {
        let mut entries = Vec::new();
        for n in 0..header.entries {
            let bytes = file.read_array::<{ DIRECTORY_SIZE as usize }>(Header::directory_at(n))?;
            let directory: DirectoryRaw = transmute!(bytes);
            entries.push(Self { kind: directory.kind.get(), range: directory.range(header)?, content: Content::Unknown });
        }
        check_overlaps(&entries)?;
        for entry in &mut entries {
            entry.content = entry.read_content(file)?;
        }
        Ok(entries)
    }

    /// What stands there, whatever was read before.
    pub(super) fn read_content(&self, file: &dyn BlockDevice) -> Result<Content> {
        let at = self.range.start;
        match self.kind {
            PASSPHRASE => {
                let bytes = self.bytes(file)?;
                let (raw, _) = PassphraseRaw::ref_from_prefix(&bytes).map_err(|_| self.short("a passphrase", PASSPHRASE_SIZE))?;
                Passphrase::parse(raw, at).map(Content::Passphrase)
            }
            PUBLIC_KEY => {
                let mut bytes = self.bytes(file)?;
                // Whoever stores no more of the last field than is used is understood as well.
                bytes.resize(PUBLIC_KEY_SIZE as usize, 0);
                let raw = PublicKeyRaw::read_from_bytes(&bytes).map_err(|_| self.short("a public key", PUBLIC_KEY_SIZE))?;
                PublicKey::parse(&raw, at).map(Content::PublicKey)
            }
            _ => Ok(Content::Unknown),
        }
    }

    /// All of it, as stored.
    pub(super) fn bytes(&self, file: &dyn BlockDevice) -> Result<Vec<u8>> {
        file.read_vec(self.range.start, (self.range.end - self.range.start) as usize)
    }

    /// What it holds for a private key, with its number.
    pub(super) fn public_key(&self, number: usize) -> Option<(usize, &PublicKey)> {
        match &self.content {
            Content::PublicKey(entry) => Some((number, entry)),
            _ => None,
        }
    }

    fn short(&self, what: &str, size: u64) -> Error {
        let found = self.range.end - self.range.start;
        Error::corrupt(LAYER, self.range.start, format!("{found} bytes where {what} has {size}"))
    }

    pub(super) fn describe(&self) -> WayIn {
        match &self.content {
            Content::Passphrase(entry) => WayIn::Passphrase { iterations: entry.iterations },
            Content::PublicKey(entry) => WayIn::PublicKey { id: entry.hash.clone(), bits: entry.blob.len() as u32 * 8 },
            Content::Unknown => WayIn::Unknown { kind: self.kind },
        }
    }
}

impl NewWay {
    /// The entry that lets this in: its kind and its bytes.
    pub(super) fn wrap(&self, keys: &KeyMaterial) -> Result<(u32, Vec<u8>)> {
        Ok(match self {
            Self::Passphrase { passphrase, iterations } => {
                let derivation = Derivation::random(*iterations)?;
                let mut iv = [0; 8];
                random(&mut iv)?;
                let blob = derivation.derive(passphrase)?.wrap(&iv, keys);
                let entry = Passphrase { iterations: *iterations, salt: derivation.salt, iv, blob };
                (PASSPHRASE, entry.to_raw().as_bytes().to_vec())
            }
            Self::Certificate(certificate) => (PUBLIC_KEY, certificate.wrap(keys)?.to_raw().as_bytes().to_vec()),
        })
    }
}

/// Where entries of these sizes stand right behind their directory, as macOS packs them.
pub(super) fn packed(sizes: impl ExactSizeIterator<Item = u64>) -> Vec<Range<u64>> {
    let mut at = Header::directory_at(sizes.len() as u32);
    let mut places = Vec::with_capacity(sizes.len());
    for size in sizes {
        places.push(at..at + size);
        at += size;
    }
    places
}

/// Entries that share bytes are nobody's work, and would let a small header ask for much memory.
fn check_overlaps(entries: &[Entry]) -> Result<()> {
    let mut ranges: Vec<_> = entries.iter().map(|entry| &entry.range).filter(|range| !range.is_empty()).collect();
    ranges.sort_by_key(|range| range.start);
    match ranges.iter().zip(ranges.iter().skip(1)).find(|(one, next)| one.end > next.start) {
        Some((_, next)) => Err(Error::corrupt(LAYER, next.start, "the entry begins within another")),
        None => Ok(()),
    }
}
