//! The header of an encrypted image as a whole: found, unlocked, made.

use std::ops::Range;

use uuid::Uuid;
use zerocopy::{FromBytes, IntoBytes};
use zeroize::Zeroizing;

use super::hmac::HmacKey;
use super::keys::{Derivation, KeyMaterial, random};
use super::layout::{
    DATA_OFFSET_512, DATA_OFFSET_4096, DirectoryRaw, HEADER_SIZE, Header, HeaderRaw, LARGEST_HEADER, MAGIC_V1, MAGIC_V2,
    PASSPHRASE_SIZE, Passphrase, PassphraseRaw, TRAILER_SIZE, Trailer, TrailerRaw,
};
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::{Error, Kind, Result};

const LAYER: &str = "encryption header";

/// What protects an image and how, as `info` shows it. Nothing secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// 1 (`cdsaencr`, read only) or 2 (`encrcdsa`).
    pub version: u8,
    /// 128 or 256.
    pub key_bits: u32,
    /// Bytes of a cipher block.
    pub block: u32,
    /// The image's own UUID.
    pub uuid: Uuid,
    /// Bytes of plain text.
    pub data_size: u64,
    /// Iterations of each passphrase's derivation.
    pub passphrases: Vec<u32>,
    /// Entries that open with a private key.
    pub public_keys: usize,
}

/// The header (or trailer) of an encrypted image, read and checked, still locked.
#[derive(Debug, Clone)]
pub struct Locked {
    version: Version,
    /// Where the cipher text lies in the file.
    pub(super) data_offset: u64,
    pub(super) data_size: u64,
    pub(super) block: u32,
}

#[derive(Debug, Clone)]
enum Version {
    One(Trailer),
    Two { header: Header, passphrases: Vec<Passphrase>, public_keys: usize },
}

impl Locked {
    /// The header of `file`, `None` where it has none.
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
            let raw = TrailerRaw::read_from_bytes(&file.read_array::<{ TRAILER_SIZE as usize }>(at)?).map_err(|_| short(at))?;
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
        let raw = HeaderRaw::read_from_bytes(&file.read_array::<{ HEADER_SIZE as usize }>(0)?).map_err(|_| short(0))?;
        let header = Header::parse(&raw)?;
        if file.info().len < header.data_offset {
            return Err(short(file.info().len));
        }
        let (mut passphrases, mut public_keys) = (Vec::new(), 0);
        for n in 0..header.entries {
            let at = Header::directory_at(n);
            let entry = DirectoryRaw::read_from_bytes(&file.read_array::<20>(at)?).map_err(|_| short(at))?;
            match entry.kind.get() {
                1 => passphrases.push(read_passphrase(file, entry.range(&header)?)?),
                2 => public_keys += 1,
                // Kinds nobody has described do not keep the others from opening the image.
                _ => {}
            }
        }
        Ok(Self {
            data_offset: header.data_offset,
            data_size: header.data_size,
            block: header.block,
            version: Version::Two { header, passphrases, public_keys },
        })
    }

    /// A new header: the image's keys wrapped by one passphrase, and the bytes up to where the data begin.
    pub fn make(keys: &KeyMaterial, options: &Protection, data_size: u64) -> Result<(Self, Zeroizing<Vec<u8>>)> {
        let data_offset = match options.block {
            512 => DATA_OFFSET_512,
            4096 => DATA_OFFSET_4096,
            other => {
                return Err(Error::new(Kind::Invalid, LAYER, format!("cipher blocks of {other} bytes; 512 and 4096 are known")));
            }
        };
        let mut uuid = [0; 16];
        random(&mut uuid)?;
        let header = Header { key_bits: options.key_bits, uuid, block: options.block, data_size, data_offset, entries: 1 };
        let entry = wrap(keys, &options.passphrase, options.iterations)?;
        let at = Header::directory_at(1);
        let directory = DirectoryRaw { kind: 1.into(), offset: at.into(), size: PASSPHRASE_SIZE.into() };
        let mut bytes = Zeroizing::new([header.to_raw().as_bytes(), directory.as_bytes(), entry.to_raw().as_bytes()].concat());
        bytes.resize(data_offset as usize, 0);
        let version = Version::Two { header, passphrases: vec![entry], public_keys: 0 };
        Ok((Self { version, data_offset, data_size, block: options.block }, bytes))
    }

    /// The keys, by a passphrase. Every entry is tried, so that a wrong one takes as long as a right one.
    pub fn unlock(&self, passphrase: &[u8]) -> Result<KeyMaterial> {
        let found = match &self.version {
            Version::One(trailer) => unlock_v1(trailer, passphrase)?,
            Version::Two { header, passphrases, .. } => {
                let mut found = None;
                for entry in passphrases {
                    let key = Derivation { iterations: entry.iterations, salt: entry.salt.clone() }.derive(passphrase)?;
                    found = found.or(key.unwrap(&entry.iv, &entry.blob, header.key_bits)?);
                }
                found
            }
        };
        found.ok_or_else(|| Error::new(Kind::WrongKey, LAYER, "the passphrase is wrong"))
    }

    /// What is known without a key.
    pub fn describe(&self) -> Description {
        match &self.version {
            Version::One(trailer) => Description {
                version: 1,
                key_bits: trailer.key_bits,
                block: self.block,
                uuid: Uuid::from_bytes(trailer.uuid),
                data_size: self.data_size,
                passphrases: vec![trailer.iterations],
                public_keys: 0,
            },
            Version::Two { header, passphrases, public_keys } => Description {
                version: 2,
                key_bits: header.key_bits,
                block: self.block,
                uuid: Uuid::from_bytes(header.uuid),
                data_size: self.data_size,
                passphrases: passphrases.iter().map(|entry| entry.iterations).collect(),
                public_keys: *public_keys,
            },
        }
    }

    /// Whether the format is one that we write.
    pub(super) fn writable(&self) -> bool {
        matches!(self.version, Version::Two { .. })
    }
}

/// How a new image is protected.
#[derive(Debug, Clone)]
pub struct Protection {
    /// 128 or 256.
    pub key_bits: u32,
    /// Bytes of a cipher block: 512 as newer macOS writes, or 4096.
    pub block: u32,
    /// Iterations of the passphrase's derivation.
    pub iterations: u32,
    /// The passphrase, as bytes.
    pub passphrase: Secret,
}

/// Bytes that are wiped when dropped and never shown.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl std::ops::Deref for Secret {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

pub(super) fn read_passphrase(file: &dyn BlockDevice, range: Range<u64>) -> Result<Passphrase> {
    debug_assert!(range.end <= LARGEST_HEADER, "checked by Header::parse");
    let bytes = file.read_vec(range.start, (range.end - range.start) as usize)?;
    let (raw, _) = PassphraseRaw::ref_from_prefix(&bytes).map_err(|_| {
        Error::corrupt(
            "encryption key entry",
            range.start,
            format!("{} bytes where a passphrase has {PASSPHRASE_SIZE}", bytes.len()),
        )
    })?;
    Passphrase::parse(raw, range.start)
}

fn wrap(keys: &KeyMaterial, passphrase: &[u8], iterations: u32) -> Result<Passphrase> {
    let derivation = Derivation::random(iterations)?;
    let mut iv = [0; 8];
    random(&mut iv)?;
    let blob = derivation.derive(passphrase)?.wrap(&iv, keys);
    Ok(Passphrase { iterations, salt: derivation.salt, iv, blob })
}

fn unlock_v1(trailer: &Trailer, passphrase: &[u8]) -> Result<Option<KeyMaterial>> {
    let key = Derivation { iterations: trailer.iterations, salt: trailer.salt.clone() }.derive(passphrase)?;
    let [cipher, mac, integrity] = &trailer.blobs;
    let (Some(cipher), Some(mac), Some(integrity)) = (key.unwrap_v1(cipher), key.unwrap_v1(mac), key.unwrap_v1(integrity)) else {
        return Ok(None);
    };
    if HmacKey::new(&integrity).mac(&trailer.covered) != trailer.mac {
        return Err(Error::new(Kind::Corrupt, LAYER, "the passphrase is right, but the trailer's MAC is not"));
    }
    KeyMaterial::from_parts(&cipher, &mac, trailer.key_bits).map(Some)
}

fn short(at: u64) -> Error {
    Error::corrupt(LAYER, at, "the file ends within it")
}
