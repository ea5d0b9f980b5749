//! The keys of an encrypted volume, unlocked from its keybags with a passphrase or recovery key
//! (§11).

use sha2::{Digest, Sha256};
use uuid::Uuid;
use zerocopy::FromBytes;
use zeroize::Zeroizing;

use super::container::Container;
use super::der::{self, tag};
use super::layout::{
    KeybagEntry, ObjectRaw, PERSONAL_RECOVERY_KEY, Paddr, PrangeRaw, VolumeRaw, keybag_entries,
    keybag_tag, object_type, verify,
};
use super::store::Store;
use crate::{LockedVolume, VolumeKey};
use bandsaw_core::crypt::{MAX_ITERATIONS, Xts, pbkdf2_sha256, unwrap_key};
use bandsaw_core::{Error, Kind, Reason, Result};

const LAYER: &str = "apfs keybag";
/// Layer of errors about a wrong key, the same for all file systems.
const LOCKED_LAYER: &str = "volume encryption";
/// Upper limit for the length of a keybag: each entry has some hundred bytes.
const MAX_KEYBAG_BLOCKS: u64 = 64;

/// Bits of a blob's flags.
mod blob_flags {
    /// The key is wrapped with a key that only the Mac's own processor has.
    pub(super) const HARDWARE: u32 = 1;
    /// 128-bit keys, from a volume converted from CoreStorage.
    pub(super) const SHORT: u32 = 2;
}

/// A wrapped key and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Blob {
    uuid: [u8; 16],
    flags: u32,
    wrapped: Vec<u8>,
    /// Iterations and salt, for keys under a passphrase.
    derivation: Option<(u64, Vec<u8>)>,
}

impl Blob {
    /// Parses the blob of a keybag entry; `None` if it is invalid.
    fn parse(data: &[u8]) -> Option<Self> {
        let (outer, _) = der::first(data).filter(|(element, _)| element.tag == tag::WHOLE)?;
        let inner = der::find(outer.content, tag::WRAPPED)?.content;
        let field = |number| der::find(inner, number).map(|element| element.content);
        let derivation = match (field(tag::ITERATIONS), field(tag::SALT)) {
            (Some(iterations), Some(salt)) => Some((der::integer(iterations)?, salt.to_vec())),
            _ => None,
        };
        Some(Self {
            uuid: field(tag::UUID)?.try_into().ok()?,
            flags: u32::from_le_bytes(*field(tag::FLAGS)?.first_chunk()?),
            wrapped: field(tag::KEY)?.to_vec(),
            derivation,
        })
    }

    /// Unwraps the key with `outer`: 32 bytes, or 16 if the blob's flags say so.
    fn unwrap(&self, outer: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if self.flags & blob_flags::SHORT != 0 {
            return unwrap_key(outer.get(..16)?, self.wrapped.get(..24)?);
        }
        unwrap_key(outer, self.wrapped.get(..40)?)
    }
}

/// The data for unlocking a volume.
#[derive(Debug)]
pub(super) struct VolumeLock {
    /// Description of the volume for the callback that returns its key.
    pub(super) locked: LockedVolume,
    volume_key: Blob,
    /// Unlock records with the UUIDs of their owners.
    records: Vec<(Uuid, Blob)>,
}

impl Container {
    /// Reads the data for unlocking a volume from the keybags.
    pub(super) fn lock_of(&self, raw: &VolumeRaw) -> Result<VolumeLock> {
        let bag = read_keybag(
            &self.store,
            &self.superblock.key_locker,
            &self.superblock.uuid,
            object_type::CONTAINER_KEYBAG,
        )?;
        let entries = entries(&bag)?;
        let missing = |what: &str| {
            Error::new(Kind::Corrupt, LAYER, format!("the container has no {what}"))
                .named(raw.label())
        };
        let find = |tag| {
            entries
                .iter()
                .find(|entry| (entry.uuid, entry.tag) == (raw.uuid(), tag))
        };
        let volume_key = find(keybag_tag::VOLUME_KEY).and_then(|entry| Blob::parse(entry.data));
        let volume_key = volume_key.ok_or_else(|| missing("wrapped key for the volume"))?;
        let place = find(keybag_tag::UNLOCK_RECORDS)
            .and_then(|entry| PrangeRaw::read_from_prefix(entry.data).ok());
        let (place, _) = place.ok_or_else(|| missing("keybag for the volume"))?;

        let bag = read_keybag(&self.store, &place, &raw.uuid, object_type::VOLUME_KEYBAG)?;
        let mut lock = VolumeLock {
            locked: LockedVolume {
                name: raw.label(),
                ..LockedVolume::default()
            },
            volume_key,
            records: Vec::new(),
        };
        for KeybagEntry { uuid, tag, data } in self::entries(&bag)? {
            match tag {
                keybag_tag::UNLOCK_RECORDS => lock
                    .records
                    .extend(Blob::parse(data).map(|blob| (uuid, blob))),
                keybag_tag::PASSPHRASE_HINT => {
                    lock.locked.hint = Some(String::from_utf8_lossy(data).into_owned())
                }
                _ => {}
            }
        }
        Ok(lock)
    }
}

impl VolumeLock {
    /// Returns the volume's key; [`Kind::WrongKey`] if `key` does not match.
    pub(super) fn unlock(&self, key: &VolumeKey) -> Result<Zeroizing<[u8; 32]>> {
        let (secret, recovery) = match key {
            VolumeKey::Passphrase(secret) => (secret, false),
            VolumeKey::Recovery(secret) => (secret, true),
        };
        let failed = |kind, message: &'static str| {
            let failed = Error::new(kind, LOCKED_LAYER, message).named(&self.locked.name);
            Err(match kind {
                Kind::WrongKey => failed.because(Reason::WrongVolumeKey),
                _ => failed,
            })
        };
        let mut hardware = self.volume_key.flags & blob_flags::HARDWARE != 0;
        // Limit for the iterations of all records together.
        let mut budget = MAX_ITERATIONS;
        let mut tried = false;
        for (_, record) in self
            .records
            .iter()
            .filter(|(uuid, _)| !recovery || *uuid == PERSONAL_RECOVERY_KEY)
        {
            let Some((iterations, salt)) = &record.derivation else {
                continue;
            };
            if record.flags & blob_flags::HARDWARE != 0 {
                hardware = true;
                continue;
            }
            let iterations = u32::try_from(*iterations).unwrap_or(u32::MAX);
            let Some(left) = budget.checked_sub(iterations) else {
                return failed(
                    Kind::Limit,
                    "invalid number of iterations in the key record",
                );
            };
            budget = left;
            tried = true;
            let derived = pbkdf2_sha256(secret, salt, iterations);
            if let Some(outer) = record.unwrap(&*derived) {
                return match self.volume_key(&outer) {
                    Some(key) => Ok(key),
                    None => failed(
                        Kind::Corrupt,
                        "the volume key is damaged (the key that unlocks it is right)",
                    ),
                };
            }
        }
        match (tried, hardware, recovery) {
            (true, _, false) => failed(Kind::WrongKey, "wrong passphrase"),
            (true, _, true) => failed(Kind::WrongKey, "wrong recovery key"),
            (false, true, _) => {
                failed(Kind::Unsupported, "encrypted with hardware keys of its Mac")
            }
            (false, false, true) => failed(Kind::WrongKey, "the volume has no recovery key"),
            (false, false, false) => failed(Kind::Corrupt, "the volume has no key record"),
        }
    }

    fn volume_key(&self, outer: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
        // The outer key may have 128 bits, padded with zeros.
        let filled = outer.len() == 32 && outer[16..].iter().all(|&byte| byte == 0);
        let key = self
            .volume_key
            .unwrap(if filled { &outer[..16] } else { outer })?;
        let mut whole = Zeroizing::new([0; 32]);
        whole.get_mut(..key.len())?.copy_from_slice(&key);
        if key.len() == 16 {
            let rest = Zeroizing::new(<[u8; 32]>::from(
                Sha256::new()
                    .chain_update(key.as_slice())
                    .chain_update(self.volume_key.uuid)
                    .finalize(),
            ));
            whole[16..].copy_from_slice(&rest[..16]);
        }
        Some(whole)
    }
}

pub(super) fn entries(bag: &[u8]) -> Result<Vec<KeybagEntry<'_>>> {
    keybag_entries(bag).ok_or_else(|| {
        Error::new(
            Kind::Corrupt,
            LAYER,
            "an entry reaches past the end of the keybag",
        )
    })
}

/// Reads and decrypts a keybag; the UUID is both keys of the cipher.
pub(super) fn read_keybag(
    store: &Store,
    place: &PrangeRaw,
    uuid: &[u8; 16],
    kind: u32,
) -> Result<Zeroizing<Vec<u8>>> {
    let (start, count) = (Paddr::from(place.start), place.count.get());
    if start == Paddr(0) || !(1..=MAX_KEYBAG_BLOCKS).contains(&count) {
        let message = format!(
            "invalid keybag of {count} blocks from block {start}: expected 1 to \
             {MAX_KEYBAG_BLOCKS}"
        );
        return Err(Error::new(Kind::Corrupt, LAYER, message));
    }
    let mut bag = Zeroizing::new(store.read(LAYER, start, count)?.into_vec());
    if is_keybag(&bag, kind) {
        return Ok(bag);
    }
    let mut key = [0; 32];
    key[..16].copy_from_slice(uuid);
    key[16..].copy_from_slice(uuid);
    let units = u64::from(store.block_size.get()) / Xts::UNIT as u64;
    Xts::new(&key).decrypt(start.0.wrapping_mul(units), &mut bag);
    match is_keybag(&bag, kind) {
        true => Ok(bag),
        false => Err(Error::corrupt(
            LAYER,
            store.offset(start),
            format!("checksum mismatch of the keybag in block {start}"),
        )),
    }
}

fn is_keybag(bytes: &[u8], kind: u32) -> bool {
    verify(bytes)
        && ObjectRaw::ref_from_prefix(bytes).is_ok_and(|(header, _)| header.kind.get() == kind)
}

/// Parses bytes as a keybag and as a blob, as unlocking does; returns the number of entries.
#[cfg(feature = "testing")]
pub fn read_keybag_bytes(bytes: &[u8]) -> usize {
    let blobs = keybag_entries(bytes).unwrap_or_default();
    let _ = Blob::parse(bytes);
    blobs
        .iter()
        .filter(|entry| Blob::parse(entry.data).is_some())
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw_core::crypt::Secret;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    /// Returns the vector of §11.4, from a volume that macOS encrypted.
    fn lock() -> VolumeLock {
        let blob = |wrapped: &str, derivation| Blob {
            uuid: [0; 16],
            flags: 0,
            wrapped: hex(wrapped),
            derivation,
        };
        let salt = hex("173bef77ee988613d49e3fe8151a5426");
        let kek =
            "d09b894891b7c5adc23a3c5df2f9396d0e6a1836291c642c8ef84803c48dfd7aed15495765dae43d";
        let vek =
            "ea8a4cfa03dc0a558ae82aeb117744ca635dff5b9f644ffc776dfaf25588fe169325971a700f2efc";
        VolumeLock {
            locked: LockedVolume {
                name: "Secret".into(),
                ..LockedVolume::default()
            },
            volume_key: blob(vek, None),
            records: vec![(Uuid::nil(), blob(kek, Some((100_000, salt))))],
        }
    }

    #[test]
    fn a_passphrase_opens_what_macos_encrypted() {
        let key = |text: &str| VolumeKey::Passphrase(Secret::new(text.as_bytes().to_vec()));
        let expected = hex("bd2e117191d60689fedf367b2227b1a47341c555834b7a09deee1a91dc9e25c3");
        assert_eq!(lock().unlock(&key("hunter2hunter2")).unwrap()[..], expected);
        let error = lock().unlock(&key("hunter3")).unwrap_err();
        assert_eq!(error.kind(), Kind::WrongKey);
        assert!(error.to_string().contains("Secret"), "{error}");
    }

    #[test]
    fn failed_unlocks_say_why() {
        let recovery = VolumeKey::Recovery(Secret::new(b"AAAA-BBBB".to_vec()));
        let message = |lock: VolumeLock| lock.unlock(&recovery).unwrap_err().message().to_owned();
        assert!(message(lock()).contains("has no recovery key"));
        let with = |change: fn(&mut Blob)| {
            let mut lock = lock();
            lock.records[0].0 = PERSONAL_RECOVERY_KEY;
            change(&mut lock.records[0].1);
            lock
        };
        assert!(message(with(|_| {})).contains("wrong recovery key"));
        assert!(
            message(with(|blob| blob.flags = blob_flags::HARDWARE))
                .contains("hardware keys of its Mac")
        );
        assert!(
            message(with(|blob| blob.derivation = Some((u64::MAX, Vec::new()))))
                .contains("invalid number of iterations")
        );
    }
}
