//! Reading, unlocking and creation of the header of an encrypted image.

use uuid::Uuid;
use zerocopy::{FromBytes, IntoBytes};
use zeroize::Zeroizing;

use super::entry::{Content, KeyEntry, KeySlot, NewKeySlot, packed};
use super::hmac::HmacKey;
use super::keys::{Derivation, KeyMaterial, KeyWrap, MAX_ITERATIONS, random};
use super::layout::{
    DATA_OFFSET_512, DATA_OFFSET_4096, DIRECTORY_SIZE, DirectoryRaw, ENTRIES_AT, HEADER_SIZE,
    Header, HeaderRaw, MAGIC_V1, MAGIC_V2, MAX_ENTRIES, PASSPHRASE_SIZE, PassphraseEntry,
    TRAILER_SIZE, Trailer, TrailerRaw,
};
use super::public_key::{Certificate, PrivateKey};
use super::secret::Secret;
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::size::{narrow, to_usize};
use crate::{Error, Kind, Result};

const LAYER: &str = "encryption header";

/// Public properties of the encryption of an image, as `info` shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Version of the format: 1 (`cdsaencr`, read only) or 2 (`encrcdsa`).
    pub version: u8,
    /// Size of the AES key in bits: 128 or 256.
    pub key_bits: u32,
    /// Cipher block size in bytes.
    pub block: u32,
    /// The UUID of the image.
    pub uuid: Uuid,
    /// Length of the plain text in bytes.
    pub data_size: u64,
    /// File offset of the cipher text, in bytes.
    pub data_offset: u64,
    /// The key entries, in the order of the header.
    pub key_slots: Vec<KeySlot>,
}

impl Description {
    /// Returns true if a passphrase opens it.
    pub fn has_passphrase(&self) -> bool {
        self.key_slots
            .iter()
            .any(|way| matches!(way, KeySlot::Passphrase { .. }))
    }

    /// Returns the maximum number of key entries in its header.
    pub fn max_key_slots(&self) -> u64 {
        match self.version {
            1 => 1,
            _ => (self.data_offset.saturating_sub(HEADER_SIZE)
                / (DIRECTORY_SIZE + PASSPHRASE_SIZE))
                .min(u64::from(MAX_ENTRIES)),
        }
    }

    /// Returns true if a private key opens it.
    pub fn has_public_key(&self) -> bool {
        self.key_slots
            .iter()
            .any(|way| matches!(way, KeySlot::PublicKey { .. }))
    }

    /// Returns the unsupported key entries with reasons, by the numbers that `passwd list` shows.
    /// `None` if all are supported.
    pub fn not_understood(&self) -> Option<String> {
        let named: Vec<_> = (1..)
            .zip(&self.key_slots)
            .filter_map(|(number, way): (usize, _)| match way {
                KeySlot::Unknown { why, .. } => {
                    Some(format!("key entry {number} is unsupported ({why})"))
                }
                _ => None,
            })
            .collect();
        (!named.is_empty()).then(|| named.join(", "))
    }

    /// Returns the error for an image without a supported key entry: its keys were erased, or all
    /// entries are unsupported.
    pub fn closed(&self) -> Error {
        let error = self.key_slots.iter().find_map(|way| {
            if let KeySlot::Unknown { error, .. } = way {
                Some(*error)
            } else {
                None
            }
        });
        match (self.not_understood(), error) {
            (Some(named), Some(kind)) => Error::new(
                kind,
                LAYER,
                format!("no supported key entry matches: {named}"),
            ),
            _ => Error::corrupt(
                LAYER,
                ENTRIES_AT,
                "the keys were erased; the image cannot be decrypted any more",
            ),
        }
    }
}

/// A passphrase or private key that opens an image.
#[derive(Debug, Clone)]
pub enum Key {
    /// The bytes of a passphrase.
    Passphrase(Secret),
    /// The private key of a certificate.
    Private(PrivateKey),
}

/// The validated header (or trailer) of an encrypted image, not unlocked.
#[derive(Debug, Clone)]
pub struct LockedHeader {
    version: Version,
    /// File offset of the cipher text, in bytes.
    pub(super) data_offset: u64,
    pub(super) data_size: u64,
    pub(super) block: u32,
}

#[derive(Debug, Clone)]
enum Version {
    One(Trailer),
    Two {
        header: Header,
        entries: Vec<KeyEntry>,
    },
}

impl LockedHeader {
    /// Reads the header of `file`; `None` if there is none.
    pub fn read(file: &dyn BlockDevice) -> Result<Option<Self>> {
        let len = file.info().len;
        if len >= 8 && file.read_array::<8>(0)? == MAGIC_V2 {
            if len < HEADER_SIZE {
                return Err(short(len));
            }
            return Self::read_v2(file).map(Some);
        }
        if len >= TRAILER_SIZE && file.read_array::<8>(len - 8)? == MAGIC_V1 {
            let at = len - TRAILER_SIZE;
            let raw =
                TrailerRaw::read_from_bytes(&file.read_array::<{ to_usize(TRAILER_SIZE) }>(at)?)
                    .map_err(|_| short(at))?;
            let trailer = Trailer::parse(&raw, at)?;
            return Ok(Some(Self {
                data_offset: 0,
                data_size: trailer.data_size,
                block: trailer.block,
                version: Version::One(trailer),
            }));
        }
        Ok(None)
    }

    fn read_v2(file: &dyn BlockDevice) -> Result<Self> {
        let raw = HeaderRaw::read_from_bytes(&file.read_array::<{ to_usize(HEADER_SIZE) }>(0)?)
            .map_err(|_| short(0))?;
        let header = Header::parse(&raw)?;
        if file.info().len < header.data_offset {
            return Err(short(file.info().len));
        }
        let entries = KeyEntry::read_all(file, &header)?;
        Ok(Self {
            data_offset: header.data_offset,
            data_size: header.data_size,
            block: header.block,
            version: Version::Two { header, entries },
        })
    }

    /// Creates a header with the image's keys wrapped for each key of `protection`. Returns it with
    /// its bytes up to the start of the data.
    pub fn make(
        keys: &KeyMaterial,
        options: &Protection,
        data_size: u64,
    ) -> Result<(Self, Zeroizing<Vec<u8>>)> {
        let data_offset = match options.block {
            512 => DATA_OFFSET_512,
            4096 => DATA_OFFSET_4096,
            other => {
                return Err(Error::invalid(
                    LAYER,
                    format!("unsupported cipher block size {other}: expected 512 or 4096"),
                ));
            }
        };
        let mut uuid = [0; 16];
        random(&mut uuid)?;
        let key_slots = options.key_slots();
        if key_slots.is_empty() {
            return Err(Error::invalid(
                LAYER,
                "a passphrase or certificate is required to encrypt an image",
            ));
        }
        let entries = narrow::<u32>(key_slots.len());
        let header = Header {
            key_bits: options.key_bits,
            uuid,
            block: options.block,
            data_size,
            data_offset,
            entries,
        };
        let wrapped = key_slots
            .iter()
            .map(|way| way.wrap(keys))
            .collect::<Result<Vec<_>>>()?;
        let places = packed(wrapped.iter().map(|(_, bytes)| bytes.len() as u64));
        let mut bytes = Zeroizing::new(header.to_raw().as_bytes().to_vec());
        for ((kind, _), place) in wrapped.iter().zip(&places) {
            bytes.extend_from_slice(DirectoryRaw::new(*kind, place).as_bytes());
        }
        wrapped
            .iter()
            .for_each(|(_, entry)| bytes.extend_from_slice(entry));
        if bytes.len() as u64 > data_offset {
            return Err(Error::limit(
                LAYER,
                format!(
                    "{entries} key entries do not fit in the header, which ends at byte \
                     {data_offset}"
                ),
            ));
        }
        bytes.resize(to_usize(data_offset), 0);
        // Read back, so that a header that cannot be opened is never written.
        let made = Self::read_v2(&Memory::read_only(bytes.to_vec()))?;
        Ok((made, bytes))
    }

    /// Unlocks with a passphrase. Tries every entry, so that a wrong passphrase takes as long as a
    /// correct one.
    pub fn unlock(&self, passphrase: &[u8]) -> Result<KeyMaterial> {
        self.unlock_by_passphrase(passphrase).map(|(keys, _)| keys)
    }

    /// Unlocks with a passphrase or a private key.
    pub fn unlock_with(&self, key: &Key) -> Result<KeyMaterial> {
        self.open_with(key).map(|(keys, _)| keys)
    }

    /// Unlocks, and returns the keys with the number of the matching entry, from 0.
    pub(super) fn open_with(&self, key: &Key) -> Result<(KeyMaterial, usize)> {
        match key {
            Key::Passphrase(passphrase) => self.unlock_by_passphrase(passphrase),
            Key::Private(key) => self.unlock_by_private_key(key),
        }
    }

    fn unlock_by_passphrase(&self, passphrase: &[u8]) -> Result<(KeyMaterial, usize)> {
        let mut found = None;
        match &self.version {
            Version::One(trailer) => found = unlock_v1(trailer, passphrase)?.map(|keys| (keys, 0)),
            Version::Two { header, entries } => {
                let (tried, left) = within_iterations(entries);
                let mut malformed = None;
                for (number, entry) in tried {
                    let derivation = Derivation {
                        iterations: entry.iterations,
                        salt: entry.salt.clone(),
                    };
                    let key = derivation.derive(passphrase, entry.wrap)?;
                    match key.unwrap(&entry.iv, &entry.blob, header.key_bits) {
                        Ok(keys) => found = found.or(keys.map(|keys| (keys, number))),
                        Err(error) => malformed = malformed.or(Some(error)),
                    }
                }
                if let (None, Some(error)) = (&found, malformed) {
                    return Err(error);
                }
                if found.is_none() && left > 0 {
                    let message = format!(
                        "wrong passphrase for the key entries that were tried; {left} more were \
                         not tried, because all together need more than {MAX_ITERATIONS} iterations"
                    );
                    return Err(Error::limit(LAYER, message));
                }
            }
        }
        found.ok_or_else(|| {
            let described = self.describe();
            match (described.has_passphrase(), described.not_understood()) {
                (true, None) => Error::new(Kind::WrongKey, LAYER, "wrong passphrase"),
                (true, Some(named)) => Error::new(
                    Kind::WrongKey,
                    LAYER,
                    format!("wrong passphrase, or one of an unsupported entry: {named}"),
                ),
                (false, _) => self.no_such_way(
                    "the image cannot be opened with a passphrase, only with a private key",
                ),
            }
        })
    }

    /// Tries the entry with the identifier of the key first, then the others, because identifiers
    /// may have other meanings.
    fn unlock_by_private_key(&self, key: &PrivateKey) -> Result<(KeyMaterial, usize)> {
        let Version::Two { header, entries } = &self.version else {
            return Err(Error::new(
                Kind::WrongKey,
                LAYER,
                "the image cannot be opened with a private key, only with a passphrase",
            ));
        };
        let mut entries: Vec<_> = entries
            .iter()
            .enumerate()
            .filter_map(|(number, entry)| entry.public_key(number))
            .collect();
        if entries.is_empty() {
            return Err(self.no_such_way(
                "the image cannot be opened with a private key, only with a passphrase",
            ));
        }
        entries.sort_by_key(|(_, entry)| entry.hash != key.id());
        for (number, entry) in entries {
            if let Some(keys) = key.unwrap(entry, header.key_bits)? {
                return Ok((keys, number));
            }
        }
        Err(Error::new(
            Kind::WrongKey,
            LAYER,
            "the private key does not match any certificate of the image",
        ))
    }

    /// Returns the error for a type of key without an entry; `message` applies if all entries are
    /// supported.
    fn no_such_way(&self, message: &'static str) -> Error {
        let described = self.describe();
        match described.not_understood() {
            None if !described.key_slots.is_empty() => Error::new(Kind::WrongKey, LAYER, message),
            _ => described.closed(),
        }
    }

    /// Returns the properties that are known without a key.
    pub fn describe(&self) -> Description {
        let (version, key_bits, uuid, key_slots) = match &self.version {
            Version::One(trailer) => {
                let wrap = KeyWrap::TripleDes;
                (
                    1,
                    trailer.key_bits,
                    trailer.uuid,
                    vec![KeySlot::Passphrase {
                        iterations: trailer.iterations,
                        wrap,
                    }],
                )
            }
            Version::Two { header, entries } => (
                2,
                header.key_bits,
                header.uuid,
                entries.iter().map(KeyEntry::describe).collect(),
            ),
        };
        let uuid = Uuid::from_bytes(uuid);
        Description {
            version,
            key_bits,
            block: self.block,
            uuid,
            data_size: self.data_size,
            data_offset: self.data_offset,
            key_slots,
        }
    }

    /// Returns header and entries of version 2, the only version that is written.
    pub(super) fn into_v2(self) -> Result<(Header, Vec<KeyEntry>)> {
        match self.version {
            Version::Two { header, entries } => Ok((header, entries)),
            Version::One(_) => {
                let message = "cannot change the keys of version 1; convert the image to get new \
                               ones";
                Err(Error::new(Kind::ReadOnly, LAYER, message))
            }
        }
    }

    /// Returns true if the format is one that is written.
    pub(super) fn writable(&self) -> bool {
        matches!(self.version, Version::Two { .. })
    }
}

/// Encryption parameters of a new image.
#[derive(Debug, Clone)]
pub struct Protection {
    /// Size of the AES key in bits: 128 or 256.
    pub key_bits: u32,
    /// Cipher block size in bytes: 512 as newer macOS writes, or 4096.
    pub block: u32,
    /// The passphrase that opens it, if any.
    pub passphrase: Option<Secret>,
    /// Iterations of the key derivation.
    pub iterations: u32,
    /// The cipher that wraps the keys for the passphrase.
    pub key_wrap: KeyWrap,
    /// Certificates whose private keys open it.
    pub certificates: Vec<Certificate>,
}

impl Protection {
    /// Returns the key entries in the order of macOS: certificates first.
    fn key_slots(&self) -> Vec<NewKeySlot> {
        let certificates = self
            .certificates
            .iter()
            .cloned()
            .map(NewKeySlot::Certificate);
        let (iterations, wrap) = (self.iterations, self.key_wrap);
        let passphrase = self.passphrase.iter().cloned();
        certificates
            .chain(passphrase.map(|passphrase| NewKeySlot::Passphrase {
                passphrase,
                iterations,
                wrap,
            }))
            .collect()
    }
}

/// Returns the passphrase entries to try, with their numbers, and the number of omitted ones. The
/// sum of their iterations is limited, so that many entries cannot cause minutes of computation;
/// those with few iterations come first.
fn within_iterations(entries: &[KeyEntry]) -> (Vec<(usize, &PassphraseEntry)>, usize) {
    let mut found: Vec<_> = entries
        .iter()
        .enumerate()
        .filter_map(|(number, entry)| match &entry.content {
            Content::Passphrase(entry) => Some((number, entry)),
            _ => None,
        })
        .collect();
    found.sort_by_key(|(_, entry)| entry.iterations);
    let mut sum = 0;
    let fits = |(_, entry): &(usize, &PassphraseEntry)| {
        sum += u64::from(entry.iterations);
        sum <= u64::from(MAX_ITERATIONS)
    };
    let tried: Vec<_> = found.iter().copied().take_while(fits).collect();
    let left = found.len() - tried.len();
    (tried, left)
}

fn unlock_v1(trailer: &Trailer, passphrase: &[u8]) -> Result<Option<KeyMaterial>> {
    let key = Derivation {
        iterations: trailer.iterations,
        salt: trailer.salt.clone(),
    }
    .derive(passphrase, KeyWrap::TripleDes)?;
    let [cipher, mac, integrity] = &trailer.blobs;
    let (cipher, mac, integrity) = match (
        key.unwrap_v1(cipher),
        key.unwrap_v1(mac),
        key.unwrap_v1(integrity),
    ) {
        (Some(cipher), Some(mac), Some(integrity)) => (cipher, mac, integrity),
        (None, None, None) => return Ok(None),
        _ => {
            return Err(Error::new(
                Kind::Corrupt,
                LAYER,
                "a wrapped key is damaged (the passphrase is right)",
            ));
        }
    };
    if HmacKey::new(&integrity).mac(&trailer.covered) != trailer.mac {
        return Err(Error::new(
            Kind::Corrupt,
            LAYER,
            "the trailer is damaged: its MAC does not match (the passphrase is right)",
        ));
    }
    KeyMaterial::from_parts(&cipher, &mac, trailer.key_bits).map(Some)
}

fn short(at: u64) -> Error {
    Error::corrupt(LAYER, at, "the file is truncated within the header")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::crypt::KeyRing;
    use crate::crypt::keys::DERIVED;

    /// Asserts that the first of several passphrases, the last, and a wrong one take the same
    /// number of iterations.
    #[test]
    fn a_wrong_passphrase_takes_as_many_iterations_as_a_right_one() {
        let keys = KeyMaterial::random(128).unwrap();
        let derived = |bytes: Vec<u8>, passphrase: &[u8]| {
            let locked = LockedHeader::read(&Memory::read_only(bytes))
                .unwrap()
                .unwrap();
            let before = DERIVED.get();
            let opened = locked.unlock(passphrase);
            (
                opened.map(drop).map_err(|error| error.kind()),
                DERIVED.get() - before,
            )
        };
        let passphrase = |word: &str| NewKeySlot::Passphrase {
            passphrase: Secret::new(word.into()),
            iterations: 30,
            wrap: KeyWrap::TripleDes,
        };
        let one = Protection {
            key_bits: 128,
            block: 512,
            passphrase: Some(Secret::new(b"first".to_vec())),
            iterations: 50,
            key_wrap: KeyWrap::TripleDes,
            certificates: Vec::new(),
        };
        let (_, alone) = LockedHeader::make(&keys, &one, 0).unwrap();
        assert_eq!(derived(alone.to_vec(), b"first"), (Ok(()), 50));
        assert_eq!(derived(alone.to_vec(), b"wrong"), (Err(Kind::WrongKey), 50));

        let file: Arc<dyn BlockDevice> = Arc::new(Memory::from(alone.to_vec()));
        let first = Key::Passphrase(Secret::new(b"first".to_vec()));
        KeyRing::unlock(file.clone(), &first)
            .unwrap()
            .insert(&passphrase("second"))
            .unwrap();
        let several = file.read_vec(0, alone.len()).unwrap();
        for (word, opened) in [
            ("first", Ok(())),
            ("second", Ok(())),
            ("wrong", Err(Kind::WrongKey)),
            ("", Err(Kind::WrongKey)),
        ] {
            assert_eq!(
                derived(several.clone(), word.as_bytes()),
                (opened, 80),
                "{word}"
            );
        }
    }
}
