//! The keys of a new encrypted volume, and the keybags that hold them, wrapped (§11).
//!
//! A random key encrypts the volume. A second random key wraps the first one, in the container's
//! keybag; passphrase and recovery key wrap the second one, in the volume's.

use sha2::{Digest, Sha256};
use uuid::Uuid;
use zerocopy::IntoBytes;
use zeroize::Zeroizing;

use super::node::put;
use super::{BLOCK_SIZE, LAYER, XID};
use crate::VolumeEncryption;
use crate::apfs::cipher::VolumeCipher;
use crate::apfs::der::{self, tag};
use crate::apfs::layout::{
    KEYBAG_VERSION, KeybagEntry, KeybagRaw, ObjectRaw, Oid, PERSONAL_RECOVERY_KEY, Paddr,
    PrangeRaw, keybag_tag, object_type, put_keybag_entries, store_checksum,
};
use bandsaw_core::crypt::{MAX_ITERATIONS, hmac_sha256, pbkdf2_sha256, random, wrap_key};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

/// Largest number of volumes whose keys fit into a container keybag of one block; longer keybags
/// have not been observed.
pub(super) const MAX_VOLUMES: usize = 19;
/// Maximum length of a hint in bytes, so that the keybag fits into one block.
const MAX_HINT: usize = 255;
/// Prefix that is hashed before the salt of a blob to derive the key of its MAC.
const MAC_PREFIX: [u8; 6] = [0x01, 0x16, 0x20, 0x17, 0x15, 0x05];

/// The kind of key in a blob.
#[derive(Debug, Clone, Copy)]
enum KeyPurpose {
    Volume = 1,
    Outer = 2,
}

/// The keys of a volume.
#[derive(Debug)]
pub(super) struct VolumeKeys {
    uuid: Uuid,
    /// The volume encryption key.
    pub(super) key: Zeroizing<[u8; 32]>,
    /// The volume encryption key, wrapped, as in the container's keybag.
    wrapped: Vec<u8>,
    /// The key-encryption key as in the volume's keybag, by the UUID of its unlock record.
    records: Vec<(Uuid, Vec<u8>)>,
    hint: Option<String>,
}

impl VolumeKeys {
    /// Generates the keys of a volume.
    pub(super) fn new(uuid: Uuid, encryption: &VolumeEncryption) -> Result<Self> {
        let VolumeEncryption {
            passphrase,
            recovery_key,
            hint,
            iterations,
        } = encryption;
        let invalid = |message: String| Err(Error::invalid(LAYER, message));
        if passphrase.is_empty() {
            return invalid("empty passphrase for an encrypted volume".into());
        }
        if !(1..=MAX_ITERATIONS).contains(iterations) {
            return invalid(format!(
                "invalid number of iterations {iterations}: expected 1 to {MAX_ITERATIONS}"
            ));
        }
        if hint.as_ref().is_some_and(|hint| hint.len() > MAX_HINT) {
            return invalid(format!(
                "the hint is too long: the maximum is {MAX_HINT} bytes"
            ));
        }
        let (mut key, mut outer) = (Zeroizing::new([0; 32]), Zeroizing::new([0; 32]));
        random(&mut *key)?;
        random(&mut *outer)?;
        let wrapped = blob(uuid, KeyPurpose::Volume, &*outer, &*key, None)?;
        let ways = [
            (uuid, Some(passphrase)),
            (PERSONAL_RECOVERY_KEY, recovery_key.as_ref()),
        ];
        let mut records = Vec::new();
        for (whose, secret) in ways {
            let Some(secret) = secret else { continue };
            let mut salt = [0; 16];
            random(&mut salt)?;
            let derived = pbkdf2_sha256(secret, &salt, *iterations);
            records.push((
                whose,
                blob(
                    uuid,
                    KeyPurpose::Outer,
                    &*derived,
                    &*outer,
                    Some((*iterations, salt)),
                )?,
            ));
        }
        Ok(Self {
            uuid,
            key,
            wrapped,
            records,
            hint: hint.clone(),
        })
    }

    /// Returns the volume's keybag, encrypted for block `place`.
    pub(super) fn keybag(&self, place: Paddr) -> Vec<u8> {
        let record =
            |(uuid, data): &(Uuid, Vec<u8>)| (*uuid, keybag_tag::UNLOCK_RECORDS, data.clone());
        let hint = self.hint.as_ref().map(|hint| {
            (
                self.uuid,
                keybag_tag::PASSPHRASE_HINT,
                hint.clone().into_bytes(),
            )
        });
        let entries: Vec<_> = self.records.iter().map(record).chain(hint).collect();
        keybag(object_type::VOLUME_KEYBAG, self.uuid, place, &entries)
    }
}

/// Returns the container's keybag, encrypted for block `place`, with the key of each volume and the
/// location of its keybag. At most [`MAX_VOLUMES`] volumes.
pub(super) fn container_keybag(
    uuid: Uuid,
    place: Paddr,
    volumes: &[(&VolumeKeys, Paddr)],
) -> Vec<u8> {
    let entries: Vec<_> = volumes
        .iter()
        .flat_map(|(keys, place)| {
            let range = PrangeRaw::new(*place, 1).as_bytes().to_vec();
            [
                (keys.uuid, keybag_tag::UNLOCK_RECORDS, range),
                (keys.uuid, keybag_tag::VOLUME_KEY, keys.wrapped.clone()),
            ]
        })
        .collect();
    keybag(object_type::CONTAINER_KEYBAG, uuid, place, &entries)
}

/// Returns a keybag of one block, encrypted with the UUID of its owner.
fn keybag(kind: u32, uuid: Uuid, place: Paddr, entries: &[(Uuid, u16, Vec<u8>)]) -> Vec<u8> {
    let mut bag = vec![0; size_of::<KeybagRaw>()];
    let entries: Vec<_> = entries
        .iter()
        .map(|(uuid, tag, data)| KeybagEntry {
            uuid: *uuid,
            tag: *tag,
            data,
        })
        .collect();
    put_keybag_entries(&entries, &mut bag);
    let head = KeybagRaw {
        object: ObjectRaw::new(Oid::NONE, XID, kind, 0),
        version: KEYBAG_VERSION.into(),
        count: narrow::<u16>(entries.len()).into(), // few
        bytes: narrow::<u32>(bag.len() - size_of::<ObjectRaw>()).into(), // a block's
        padding: 0.into(),
    };
    put(&mut bag, 0, &head);
    bag.resize(BLOCK_SIZE.bytes(), 0);
    store_checksum(&mut bag);
    let mut key = [0; 32];
    key[..16].copy_from_slice(uuid.as_bytes());
    key[16..].copy_from_slice(uuid.as_bytes());
    VolumeCipher::new(&key, BLOCK_SIZE).encrypt_blocks(place.0, &mut bag);
    bag
}

/// Wraps a key with another into the blob of a keybag entry (§11.3). `derivation`: iterations and
/// salt if the outer key is derived from a passphrase.
fn blob(
    uuid: Uuid,
    holds: KeyPurpose,
    outer: &[u8],
    key: &[u8],
    derivation: Option<(u32, [u8; 16])>,
) -> Result<Vec<u8>> {
    let wrapped = wrap_key(outer, key);
    let wrapped = wrapped.ok_or_else(|| Error::invalid(LAYER, "unsupported key length"))?;
    let mut info = [0; 8];
    info[4] = holds as u8;
    let mut inner = Vec::new();
    der::put(tag::VERSION, &[0], &mut inner);
    der::put(tag::UUID, uuid.as_bytes(), &mut inner);
    der::put(tag::FLAGS, &info, &mut inner);
    der::put(tag::KEY, &wrapped, &mut inner);
    if let Some((iterations, salt)) = derivation {
        der::put(tag::ITERATIONS, &der::integer_bytes(iterations), &mut inner);
        der::put(tag::SALT, &salt, &mut inner);
    }
    let mut element = Vec::new();
    der::put(tag::WRAPPED, &inner, &mut element);
    let mut salt = [0; 8];
    random(&mut salt)?;
    let mut content = Vec::new();
    der::put(tag::VERSION, &[0], &mut content);
    der::put(tag::MAC, &mac(&salt, &element), &mut content);
    der::put(tag::MAC_SALT, &salt, &mut content);
    content.extend_from_slice(&element);
    let mut whole = Vec::new();
    der::put(tag::WHOLE, &content, &mut whole);
    Ok(whole)
}

/// Returns the MAC of a blob's element.
fn mac(salt: &[u8; 8], element: &[u8]) -> [u8; 32] {
    let key = Sha256::new()
        .chain_update(MAC_PREFIX)
        .chain_update(salt)
        .finalize();
    hmac_sha256(&key, element)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw_core::Kind;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    /// Taken from the keybag of a volume that macOS encrypted.
    #[test]
    fn macs_are_those_of_macos() {
        let element = hex("a349800100811000df510affe649699607efa24d86439282080000\
             00000100e0ff83284f51a3b016a89bd7bbb665ab01f140047b08aa49dbe17bcc1c6dad5ec9a465e5d1dab9e138933d74");
        let salt = hex("0603d465cd4154e6").try_into().unwrap();
        let expected = hex("fc9575a3116eb35d8c89198e88c9ab54e9ada2a98da2dd2f3284365b217f8abe");
        assert_eq!(mac(&salt, &element)[..], expected);
    }

    #[test]
    fn the_keybags_of_many_volumes_fit_one_block() {
        let secret = |text: &str| bandsaw_core::crypt::Secret::new(text.into());
        let hint = Some("x".repeat(MAX_HINT));
        let encryption = VolumeEncryption {
            passphrase: secret("passphrase"),
            recovery_key: Some(secret("ABCD")),
            hint,
            iterations: 1,
        };
        let keys = VolumeKeys::new(Uuid::nil(), &encryption).unwrap();
        assert_eq!(keys.keybag(Paddr(9)).len(), BLOCK_SIZE.bytes());
        let many = vec![(&keys, Paddr(9)); MAX_VOLUMES];
        assert_eq!(
            container_keybag(Uuid::nil(), Paddr(10), &many).len(),
            BLOCK_SIZE.bytes()
        );
        let bytes = [24 + 16, 24 + keys.wrapped.len()]
            .map(|len: usize| len.next_multiple_of(16))
            .iter()
            .sum::<usize>();
        assert!(size_of::<KeybagRaw>() + MAX_VOLUMES * bytes <= BLOCK_SIZE.bytes());
        let empty = VolumeEncryption {
            passphrase: secret(""),
            ..encryption
        };
        assert_eq!(
            VolumeKeys::new(Uuid::nil(), &empty).unwrap_err().kind(),
            Kind::Invalid
        );
    }
}
