//! The key entries of a version 2 header, each of which can unlock the image.

use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes, transmute};

use super::keys::{Derivation, KeyMaterial, KeyWrap, random};
use super::layout::{
    DIRECTORY_SIZE, DirectoryRaw, Header, PASSPHRASE, PASSPHRASE_FIELDS, PASSPHRASE_SIZE,
    PUBLIC_KEY, PUBLIC_KEY_SIZE, PassphraseEntry, PassphraseRaw, PublicKeyEntry, PublicKeyRaw,
};
use super::public_key::Certificate;
use super::secret::Secret;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::size::{narrow, to_usize};
use crate::{Error, Kind, Result};

const LAYER: &str = "encryption key entry";

/// A key entry of an image, as it is described without a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySlot {
    /// A passphrase.
    Passphrase {
        /// Iterations of the key derivation.
        iterations: u32,
        /// The cipher that wraps the image's keys.
        wrap: KeyWrap,
    },
    /// The private key of a certificate.
    PublicKey {
        /// Identifier of the key: SHA-1 of the public key, in most certificates the subject key
        /// identifier.
        id: Vec<u8>,
        /// Size of its modulus in bits.
        bits: u32,
    },
    /// An unsupported entry. Other entries can still open the image.
    Unknown {
        /// Its type.
        kind: u32,
        /// The reason why it is unsupported.
        why: String,
        /// The error kind: unknown, damaged, or beyond a limit.
        error: Kind,
    },
}

/// A new key entry.
#[derive(Debug, Clone)]
pub enum NewKeySlot {
    /// A passphrase.
    Passphrase {
        /// The bytes of the passphrase.
        passphrase: Secret,
        /// Iterations of the key derivation.
        iterations: u32,
        /// The cipher that wraps the image's keys.
        wrap: KeyWrap,
    },
    /// The private key of this certificate.
    Certificate(Certificate),
}

/// An entry as it is stored in the header.
#[derive(Debug, Clone)]
pub(super) struct KeyEntry {
    pub(super) kind: u32,
    /// Its file range, empty if the directory has an invalid one.
    pub(super) range: Range<u64>,
    pub(super) content: Content,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    Passphrase(PassphraseEntry),
    PublicKey(PublicKeyEntry),
    /// Unsupported, with the reason.
    Unknown(Kind, String),
}

impl KeyEntry {
    /// Reads all entries of the directory of `header`.
    pub(super) fn read_all(file: &dyn BlockDevice, header: &Header) -> Result<Vec<Self>> {
        let mut entries = Vec::new();
        for n in 0..header.entries {
            let bytes = file.read_array::<{ to_usize(DIRECTORY_SIZE) }>(Header::directory_at(n))?;
            let directory: DirectoryRaw = transmute!(bytes);
            entries.push(Self::read(file, header, &directory)?);
        }
        Ok(entries)
    }

    /// Reads the entry of `directory`. Fails only if the file cannot be read: an unsupported entry
    /// must not prevent another from opening the image.
    fn read(file: &dyn BlockDevice, header: &Header, directory: &DirectoryRaw) -> Result<Self> {
        let kind = directory.kind.get();
        let found = directory
            .range(header)
            .map(|range| (range.clone(), Content::read(file, kind, &range)));
        let (range, content) = match found {
            Ok((range, content)) => (range, content),
            Err(error) => (0..0, Err(error)),
        };
        let content = match content {
            Err(error)
                if matches!(
                    error.kind(),
                    Kind::Unsupported | Kind::Corrupt | Kind::Limit
                ) =>
            {
                Content::Unknown(error.kind(), error.message().to_owned())
            }
            content => content?,
        };
        Ok(Self {
            kind,
            range,
            content,
        })
    }

    /// Returns the stored bytes of the entry. [`Kind::Corrupt`] if the directory has no valid
    /// range.
    pub(super) fn bytes(&self, file: &dyn BlockDevice) -> Result<Vec<u8>> {
        match &self.content {
            Content::Unknown(_, why) if self.range.is_empty() => {
                Err(Error::new(Kind::Corrupt, LAYER, why.clone()))
            }
            _ => file.read_vec(
                self.range.start,
                to_usize(self.range.end - self.range.start),
            ),
        }
    }

    /// Returns the contents for a private key, with the number of the entry.
    pub(super) fn public_key(&self, number: usize) -> Option<(usize, &PublicKeyEntry)> {
        match &self.content {
            Content::PublicKey(entry) => Some((number, entry)),
            _ => None,
        }
    }

    pub(super) fn describe(&self) -> KeySlot {
        match &self.content {
            Content::Passphrase(entry) => KeySlot::Passphrase {
                iterations: entry.iterations,
                wrap: entry.wrap,
            },
            Content::PublicKey(entry) => KeySlot::PublicKey {
                id: entry.hash.clone(),
                bits: narrow::<u32>(entry.blob.len()) * 8,
            },
            Content::Unknown(error, why) => KeySlot::Unknown {
                kind: self.kind,
                why: why.clone(),
                error: *error,
            },
        }
    }
}

impl Content {
    /// Reads the entry of this type at `range`. [`Kind::Unsupported`], [`Kind::Corrupt`] or
    /// [`Kind::Limit`] if it is not supported.
    pub(super) fn read(file: &dyn BlockDevice, kind: u32, range: &Range<u64>) -> Result<Self> {
        let at = range.start;
        // Reads at most the used bytes, whatever length the directory has. An entry that stores
        // only the used part of its last field is accepted, too.
        let bytes = |most: u64| file.read_vec(at, to_usize((range.end - at).min(most)));
        let short = |what: &str, found: usize, size: u64| {
            Error::corrupt(
                LAYER,
                at,
                format!(
                    "wrong length of {what}: {found} bytes, expected \
                                               {size}"
                ),
            )
        };
        match kind {
            PASSPHRASE => {
                let mut bytes = bytes(PASSPHRASE_SIZE)?;
                let found = bytes.len();
                if found < PASSPHRASE_FIELDS {
                    return Err(short("a passphrase", found, PASSPHRASE_SIZE));
                }
                bytes.resize(to_usize(PASSPHRASE_SIZE), 0);
                let raw = PassphraseRaw::ref_from_bytes(&bytes)
                    .map_err(|_| short("a passphrase", found, PASSPHRASE_SIZE))?;
                PassphraseEntry::parse(raw, at).map(Self::Passphrase)
            }
            PUBLIC_KEY => {
                let mut bytes = bytes(PUBLIC_KEY_SIZE)?;
                let found = bytes.len();
                bytes.resize(to_usize(PUBLIC_KEY_SIZE), 0);
                let raw = PublicKeyRaw::ref_from_bytes(&bytes)
                    .map_err(|_| short("a public key", found, PUBLIC_KEY_SIZE))?;
                PublicKeyEntry::parse(raw, at).map(Self::PublicKey)
            }
            other => Err(Error::unsupported(
                LAYER,
                format!("unsupported type {other}: expected 1 (passphrase) or 2 (public key)"),
            )
            .at(at)),
        }
    }
}

impl NewKeySlot {
    /// Wraps the keys for this entry. Returns its type and its bytes.
    pub(super) fn wrap(&self, keys: &KeyMaterial) -> Result<(u32, Vec<u8>)> {
        Ok(match self {
            Self::Passphrase {
                passphrase,
                iterations,
                wrap,
            } => {
                let derivation = Derivation::random(*iterations)?;
                // 8 bytes with AES, too, as macOS does.
                let mut iv = vec![0; 8];
                random(&mut iv)?;
                let blob = derivation.derive(passphrase, *wrap)?.wrap(&iv, keys);
                let entry = PassphraseEntry {
                    iterations: *iterations,
                    salt: derivation.salt,
                    wrap: *wrap,
                    iv,
                    blob,
                };
                (PASSPHRASE, entry.to_raw().as_bytes().to_vec())
            }
            Self::Certificate(certificate) => (
                PUBLIC_KEY,
                certificate.wrap(keys)?.to_raw().as_bytes().to_vec(),
            ),
        })
    }
}

/// Returns the ranges of entries of these sizes directly after their directory, as macOS packs
/// them.
pub(super) fn packed(sizes: impl ExactSizeIterator<Item = u64>) -> Vec<Range<u64>> {
    let mut at = Header::directory_at(narrow(sizes.len()));
    let mut places = Vec::with_capacity(sizes.len());
    for size in sizes {
        places.push(at..at + size);
        at += size;
    }
    places
}

/// Fails for entries that overlap: a change of one would change the other.
pub(super) fn check_overlaps<'a>(entries: impl Iterator<Item = &'a KeyEntry>) -> Result<()> {
    let mut ranges: Vec<_> = entries
        .map(|entry| &entry.range)
        .filter(|range| !range.is_empty())
        .collect();
    ranges.sort_by_key(|range| range.start);
    match ranges
        .iter()
        .zip(ranges.iter().skip(1))
        .find(|(one, next)| one.end > next.start)
    {
        Some((_, next)) => Err(Error::corrupt(
            LAYER,
            next.start,
            "the key entry overlaps another key entry",
        )),
        None => Ok(()),
    }
}
