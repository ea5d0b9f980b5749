//! The encryption context: which users open a family of logical volumes, and with which keys.

use std::sync::Arc;

use bandsaw_core::crypt::{MAX_ITERATIONS, Secret, decrypt_xts_unit, pbkdf2_sha256, unwrap_key};
use bandsaw_core::{Error, Kind, Reason, Result};
use sha2::{Digest, Sha256};
use uuid::Uuid;
use zerocopy::FromBytes;
use zeroize::Zeroizing;

use super::LAYER;
use super::layout::{UserKeyRaw, VolumeKeyRaw};
use super::property_list::Value;

/// Maximum number of users, and of keys.
const MAX_SLOTS: usize = 256;
/// Size of all keys but the derived one, in bytes.
const KEY: usize = 16;

/// Beginnings of a property list that is decrypted with the right key.
const BEGINNINGS: [&[u8]; 4] = [b"<?xml", b"<!DOCTYPE", b"<plist", b"<dict"];

/// The encryption of a family of logical volumes.
#[derive(Debug, Clone)]
pub(super) struct Context {
    users: Vec<User>,
    keys: Vec<VolumeKey>,
    status: Option<Arc<str>>,
    /// Number of the key in use.
    target: Option<u64>,
}

#[derive(Debug, Clone)]
struct User {
    salt: [u8; 16],
    iterations: u32,
    wrapped: [u8; 24],
    /// Identifier of the key that it wraps.
    wraps: Option<Arc<str>>,
    hint: Option<Arc<str>>,
}

/// A key of a logical volume, wrapped by another key.
#[derive(Debug, Clone)]
struct VolumeKey {
    number: Option<u64>,
    algorithm: Arc<str>,
    wrapped: Option<[u8; 24]>,
    /// Identifier of the key that wraps it.
    wrapped_by: Option<Arc<str>>,
}

/// The key of a logical volume for AES-XTS, wiped when dropped.
pub(super) type DataKey = Zeroizing<[u8; 32]>;

impl Context {
    /// Parses a context. `default` is the number of the key in use if the context names none.
    pub(super) fn parse(list: &Value, default: Option<u64>) -> Result<Self> {
        let conversion = list.get("ConversionInfo");
        let field = |name| conversion.and_then(|info| info.get(name));
        Ok(Self {
            users: slots(list, "CryptoUsers")?
                .iter()
                .map(User::parse)
                .filter_map(Result::transpose)
                .collect::<Result<_>>()?,
            keys: slots(list, "WrappedVolumeKeys")?
                .iter()
                .map(VolumeKey::parse)
                .collect::<Result<_>>()?,
            status: field("ConversionStatus").and_then(Value::text).cloned(),
            target: field("TargetContext").and_then(Value::integer).or(default),
        })
    }

    /// Decrypts and parses the file `EncryptedRoot.plist.wipekey` of a Mac's recovery partition.
    /// `key` and `uuid` are those of the physical volume.
    pub(super) fn parse_file(file: &[u8], key: &[u8; 16], uuid: Uuid) -> Result<Self> {
        for first in [key, uuid.as_bytes()] {
            let mut both = Zeroizing::new([0; 32]);
            both[..16].copy_from_slice(first);
            let mut list = file.to_vec();
            decrypt_xts_unit(&both, 0, &mut list);
            let text = list.trim_ascii_start();
            if BEGINNINGS.iter().any(|begin| text.starts_with(begin)) {
                return Self::parse(&Value::parse(&list)?, None);
            }
        }
        let message = "EncryptedRoot.plist.wipekey does not belong to this physical volume";
        Err(Error::new(Kind::Corrupt, LAYER, message))
    }

    /// Returns the keys in use; none if the volume is not encrypted. [`Kind::Unsupported`] if a
    /// conversion is in progress.
    fn used(&self) -> Result<Vec<&VolumeKey>> {
        match self.status.as_deref() {
            None | Some("Complete" | "NoConversion") => {}
            Some(status) => {
                let message = format!(
                    "unsupported: the volume is being encrypted or decrypted (conversion status \
                     {status:?}); let the Mac that it belongs to finish"
                );
                return Err(Error::unsupported(LAYER, message));
            }
        }
        let named = self
            .target
            .and_then(|target| self.keys.iter().find(|key| key.number == Some(target)));
        let found: Vec<_> = match named {
            Some(key) => vec![key],
            None => self.keys.iter().filter(|key| key.is_cipher()).collect(),
        };
        match found.iter().find(|key| !key.is_known()) {
            Some(other) => Err(Error::unsupported(
                LAYER,
                format!("unsupported cipher {:?}", other.algorithm),
            )),
            None => Ok(found.into_iter().filter(|key| key.is_cipher()).collect()),
        }
    }

    /// Returns true if a passphrase or recovery key is needed.
    pub(super) fn is_encrypted(&self) -> Result<bool> {
        self.used().map(|keys| !keys.is_empty())
    }

    /// Returns the hint of the first user that has one.
    pub(super) fn hint(&self) -> Option<&str> {
        let mut hints = self.users.iter().filter_map(|user| user.hint.as_deref());
        hints.find(|hint| !hint.is_empty())
    }

    /// Returns the key of a volume of `family`, unwrapped with a passphrase or a recovery key.
    /// [`Kind::WrongKey`] if it opens none.
    pub(super) fn unlock(&self, family: Uuid, secret: &Secret) -> Result<DataKey> {
        let keys = self.used()?;
        if self.users.is_empty() {
            let message = "the volume is encrypted, but has no passphrase or recovery key; a \
                           start volume keeps them on the recovery partition of its disk";
            return Err(Error::unsupported(LAYER, message));
        }
        // The counts come from the disk: without a limit, a crafted volume would keep a processor busy for
        // hours.
        let total: u64 = self
            .users
            .iter()
            .map(|user| u64::from(user.iterations))
            .sum();
        if total > u64::from(MAX_ITERATIONS) {
            let message = format!("{total} iterations of all users, at most {MAX_ITERATIONS}");
            return Err(Error::limit(LAYER, message));
        }
        for user in &self.users {
            let derived = pbkdf2_sha256(secret, &user.salt, user.iterations);
            let Some(outer) = unwrap_key(&derived[..KEY], &user.wrapped) else {
                continue;
            };
            // Identifiers are optional. A key that names none can be wrapped by any user's.
            let fits = |key: &&&VolumeKey| match (&key.wrapped_by, &user.wraps) {
                (Some(one), Some(other)) => one == other,
                _ => true,
            };
            let unwrapped = keys
                .iter()
                .filter(fits)
                .find_map(|key| unwrap_key(&outer, &key.wrapped?));
            if let Some(key) = unwrapped {
                return data_key(&key, family);
            }
        }
        let message = "the passphrase or recovery key is wrong";
        Err(Error::new(Kind::WrongKey, LAYER, message).because(Reason::WrongVolumeKey))
    }
}

/// Returns both halves of the key for data: the volume's key, and a hash of it and its family.
pub(super) fn data_key(key: &[u8], family: Uuid) -> Result<DataKey> {
    let mut both = Zeroizing::new([0; 32]);
    let (first, second) = both.split_at_mut(KEY);
    let key = key.get(..KEY).filter(|_| key.len() == KEY);
    let key = key.ok_or_else(|| Error::unsupported(LAYER, "unsupported length of a key"))?;
    first.copy_from_slice(key);
    let mut hash: [u8; 32] = Sha256::new()
        .chain_update(key)
        .chain_update(family.as_bytes())
        .finalize()
        .into();
    second.copy_from_slice(&hash[..KEY]);
    zeroize::Zeroize::zeroize(&mut hash);
    Ok(both)
}

impl User {
    /// Parses a user. `None`: one without a passphrase, who opens the volume by other means.
    fn parse(list: &Value) -> Result<Option<Self>> {
        let Some(data) = list.get("PassphraseWrappedKEKStruct").and_then(Value::data) else {
            return Ok(None);
        };
        if data.is_empty() {
            return Ok(None);
        }
        let raw = UserKeyRaw::read_from_bytes(data)
            .ok()
            .filter(|raw| raw.salt_len == 16 && raw.key_len == 24)
            .ok_or_else(|| corrupt("the wrapped key of a user has an unknown form"))?;
        Ok(Some(Self {
            salt: raw.salt,
            iterations: raw.iterations.get(),
            wrapped: raw.key,
            wraps: text(list, "KeyEncryptingKeyIdent"),
            hint: text(list, "PassphraseHint"),
        }))
    }
}

impl VolumeKey {
    fn parse(list: &Value) -> Result<Self> {
        let data = list.get("KEKWrappedVolumeKeyStruct").and_then(Value::data);
        let wrapped = match data.filter(|data| !data.is_empty()) {
            None => None,
            Some(data) => Some(
                VolumeKeyRaw::read_from_bytes(data)
                    .ok()
                    .filter(|raw| raw.len == 24)
                    .ok_or_else(|| corrupt("the wrapped key of a volume has an unknown form"))?
                    .key,
            ),
        };
        Ok(Self {
            number: list.get("VolumeKeyIndex").and_then(Value::integer),
            algorithm: text(list, "BlockAlgorithm").unwrap_or_else(|| "".into()),
            wrapped,
            wrapped_by: text(list, "KeyEncryptingKeyIdent"),
        })
    }

    fn is_cipher(&self) -> bool {
        *self.algorithm != *"None"
    }

    fn is_known(&self) -> bool {
        !self.is_cipher() || *self.algorithm == *"AES-XTS"
    }
}

fn text(list: &Value, name: &str) -> Option<Arc<str>> {
    list.get(name).and_then(Value::text).cloned()
}

/// Returns the elements of an array, of which there may be few.
fn slots<'a>(list: &'a Value, name: &str) -> Result<&'a [Value]> {
    let all = list.get(name).and_then(Value::array).unwrap_or_default();
    if all.len() > MAX_SLOTS {
        let message = format!("{} entries of {name}, at most {MAX_SLOTS}", all.len());
        return Err(Error::limit(LAYER, message));
    }
    Ok(all)
}

fn corrupt(message: &'static str) -> Error {
    Error::new(Kind::Corrupt, LAYER, message)
}
