//! The prologue of an archive: everything before its first cluster.

use zerocopy::FromBytes;
use zeroize::Zeroizing;

use super::LAYER;
use super::derive::{KeySchedule, derivation_key, hkdf};
use super::keys::{ArchiveKey, ArchiveKeys, POINT};
use super::layout::{
    HEADER_SIZE, Header, HeaderRaw, MAGIC, Mac, Profile, RootHeader, TAIL_SIZE, TailRaw,
};
use super::metadata::{self, MetadataEntry};
use super::scrypt::derive;
use super::signature::{self, SignatureState};
use super::wrapped_key::{self, KEY_URL, RESPONSE};
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::{Error, Kind, Reason, Result};

/// Maximum length of the address of a private key, in bytes.
const MAX_URL: usize = 4096;

/// The properties of an archive, as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveDescription {
    /// The kinds of keys, encryption and signature.
    pub profile: Profile,
    /// Length of the metadata in bytes.
    pub metadata_len: u32,
    /// The entries of the metadata; `None` if it is no list of entries.
    pub metadata: Option<Vec<MetadataEntry>>,
    /// True if the metadata holds the key of the archive, wrapped for a private key.
    pub has_wrapped_key: bool,
    /// The address of that private key, as the metadata states it. Nobody checked it.
    pub key_url: Option<String>,
    /// The result of verifying the signature. Of a locked archive it is not verified.
    pub signature: SignatureState,
    /// The sizes and methods; `None`: the archive is locked.
    pub root: Option<RootHeader>,
}

/// The prologue of an archive, not unlocked.
#[derive(Debug, Clone)]
pub struct LockedArchive {
    header: Header,
    bytes: Vec<u8>,
    /// Length of the file in bytes.
    file_len: u64,
}

/// An archive whose keys are known.
#[derive(Debug, Clone)]
pub struct UnlockedArchive {
    pub(super) description: ArchiveDescription,
    pub(super) root: RootHeader,
    pub(super) keys: KeySchedule,
    /// File offset of the first cluster, in bytes.
    pub(super) first: u64,
    /// The MAC of its header.
    pub(super) first_mac: Mac,
}

impl LockedArchive {
    /// Reads the prologue of `file`; `None` if it is no archive. [`Kind::Unsupported`] for an unknown
    /// profile.
    pub fn read(file: &dyn BlockDevice) -> Result<Option<Self>> {
        if !Self::begins(file)? {
            return Ok(None);
        }
        let file_len = file.info().len;
        let cut = || {
            let message = "the file is truncated within the header";
            Error::corrupt(LAYER, file_len, message).because(Reason::Truncated)
        };
        if file_len < HEADER_SIZE as u64 {
            return Err(cut());
        }
        let start = file.read_array::<HEADER_SIZE>(0)?;
        let header = HeaderRaw::read_from_bytes(&start).map_err(|_| cut())?;
        let header = Header::parse(&header)?;
        if file_len < header.prologue_len() as u64 {
            return Err(cut());
        }
        let bytes = file.read_vec(0, header.prologue_len())?;
        Ok(Some(Self {
            header,
            bytes,
            file_len,
        }))
    }

    /// Returns true if `file` begins as an archive does.
    pub fn begins(file: &dyn BlockDevice) -> Result<bool> {
        Ok(file.info().len >= MAGIC.len() as u64 && file.read_array::<4>(0)? == MAGIC)
    }

    /// Returns the properties that are stored unencrypted.
    pub fn describe(&self) -> ArchiveDescription {
        let profile = self.header.profile;
        ArchiveDescription {
            profile,
            metadata_len: self.header.metadata,
            metadata: metadata::parse(self.metadata()),
            has_wrapped_key: self.wrapped_key().is_some(),
            key_url: metadata::value(self.metadata(), KEY_URL)
                .filter(|url| url.len() <= MAX_URL)
                .and_then(|url| std::str::from_utf8(url).ok())
                .map(|url| url.trim_end_matches('\0').to_owned()),
            signature: match profile.is_signed() {
                true => SignatureState::NoPublicKey,
                false => SignatureState::None,
            },
            root: None,
        }
    }

    fn metadata(&self) -> &[u8] {
        &self.bytes[HEADER_SIZE..self.header.signature_at()]
    }

    /// Returns the entry of the metadata with the wrapped key, if the profile has such a key.
    fn wrapped_key(&self) -> Option<&[u8]> {
        let profile = self.header.profile;
        matches!(profile, Profile::Symmetric | Profile::SymmetricSigned)
            .then(|| metadata::value(self.metadata(), RESPONSE))?
    }

    fn tail(&self) -> Result<TailRaw> {
        let at = self.bytes.len() - TAIL_SIZE;
        TailRaw::read_from_bytes(&self.bytes[at..])
            .map_err(|_| Error::corrupt(LAYER, at as u64, "the header is too short"))
    }

    /// Unlocks the archive and verifies its signature, if the public key is among `keys`.
    ///
    /// [`Kind::WrongKey`] if a key is missing or wrong, with a [`Reason`] except for a wrong passphrase;
    /// [`Kind::Unsupported`] for a private key without the feature `recipients`.
    pub fn unlock(&self, keys: &ArchiveKeys) -> Result<UnlockedArchive> {
        let tail = self.tail()?;
        let profile = self.header.profile;
        let schedule = self.schedule(&tail, keys)?;
        let mut root = Zeroizing::new(tail.root);
        // The MAC covers the metadata and the MAC of the first cluster as well, so that neither can be exchanged.
        let before = [&tail.first_mac[..], self.metadata()];
        if !schedule.root().open(&before, &mut *root, &tail.root_mac) {
            return Err(wrong(profile));
        }
        let signature = match &keys.signer {
            _ if !profile.is_signed() => SignatureState::None,
            Some(signer) => signature::verify(&self.bytes, &self.header, &schedule, signer)?,
            None => SignatureState::NoPublicKey,
        };
        let first = self.bytes.len() as u64;
        let root = RootHeader::parse(&root, first, self.file_len)?;
        Ok(UnlockedArchive {
            description: ArchiveDescription {
                signature,
                root: Some(root),
                ..self.describe()
            },
            root,
            keys: schedule,
            first,
            first_mac: tail.first_mac,
        })
    }

    /// Returns the derived keys of the archive.
    fn schedule(&self, tail: &TailRaw, keys: &ArchiveKeys) -> Result<KeySchedule> {
        let profile = self.header.profile;
        let missing = |message: &'static str, reason| {
            Err(Error::new(Kind::WrongKey, LAYER, message).because(reason))
        };
        let mut salt = Zeroizing::new(tail.salt);
        let (mut of_sender, mut of_recipient): (&[u8], &[u8]) = Default::default();
        let key = match (profile, &keys.key) {
            (Profile::Signed, _) => {
                let at = self.bytes.len() - TAIL_SIZE - profile.key_len();
                let mut key = Zeroizing::new([0; 32]);
                key.copy_from_slice(&self.bytes[at..at + 32]);
                key
            }
            (Profile::Symmetric | Profile::SymmetricSigned, Some(ArchiveKey::Symmetric(key))) => {
                Zeroizing::new(*key.bytes())
            }
            (Profile::Symmetric | Profile::SymmetricSigned, given) => {
                match (self.wrapped_key(), given) {
                    (Some(wrapped), Some(ArchiveKey::Private(private))) => {
                        Zeroizing::new(*wrapped_key::unwrap(wrapped, private)?.bytes())
                    }
                    (Some(_), _) => {
                        let message = "the archive is encrypted: its key is required, or the \
                                       private key for which the metadata wraps it";
                        return missing(message, Reason::ArchivePrivateKeyNeeded);
                    }
                    (None, _) => {
                        let message = "the archive is encrypted: its key is required";
                        return missing(message, Reason::ArchiveKeyNeeded);
                    }
                }
            }
            (Profile::Passphrase, Some(ArchiveKey::Passphrase(passphrase))) => {
                let mut salts = Zeroizing::new([0; 64]);
                hkdf(&[], &*salt, &[b"AEA_SCRYPT"], &mut *salts);
                let (of_scrypt, of_main) = salts.split_at(32);
                salt.copy_from_slice(of_main);
                derive(passphrase, of_scrypt, self.header.scrypt_strength)?
            }
            (Profile::Passphrase, _) => {
                let message = "the archive is encrypted: a passphrase is required";
                return missing(message, Reason::PassphraseNeeded);
            }
            (Profile::Recipient | Profile::RecipientSigned, Some(ArchiveKey::Private(private))) => {
                let at = self.bytes.len() - TAIL_SIZE - profile.key_len();
                let sender = self.bytes.get(at..).and_then(<[u8]>::first_chunk);
                let wrong = || {
                    let message = "the public key of the sender is not one of P-256";
                    Error::corrupt(LAYER, at as u64, message)
                };
                let sender: &[u8; POINT] = sender.ok_or_else(wrong)?;
                let shared = private.agree(sender).map_err(|error| match error.kind() {
                    Kind::Unsupported => error,
                    _ => wrong(),
                })?;
                (of_sender, of_recipient) = (&sender[..], &private.public().point()[..]);
                shared
            }
            (Profile::Recipient | Profile::RecipientSigned, _) => {
                let message =
                    "the archive is encrypted for a private key, which is required to open it";
                return missing(message, Reason::ArchivePrivateKeyNeeded);
            }
        };
        let signer = match (&keys.signer, profile) {
            (Some(signer), _) if profile.is_signed() => &signer.point()[..],
            // Nothing is encrypted, so the contents can be read without their MACs, which depend on the key.
            (None, Profile::Signed) => return Ok(KeySchedule::unknown()),
            (None, Profile::SymmetricSigned | Profile::RecipientSigned) => {
                let message = "the archive is signed: the public key of its signer is required";
                return missing(message, Reason::SignerKeyNeeded);
            }
            _ => &[][..],
        };
        let profile_bytes = &self.bytes[4..8];
        let info = [
            &b"AEA_AMK"[..],
            profile_bytes,
            of_sender,
            of_recipient,
            signer,
        ];
        let main = derivation_key(&*salt, &*key, &info);
        Ok(KeySchedule::new(main, profile.is_encrypted()))
    }
}

/// Returns the error of a root header whose MAC does not match.
fn wrong(profile: Profile) -> Error {
    let message = match profile {
        Profile::Signed => "wrong public key, or the header is damaged: its MAC does not match",
        Profile::SymmetricSigned => {
            "wrong key or public key, or the header is damaged: its MAC does not match"
        }
        Profile::Passphrase => "wrong passphrase, or the header is damaged: its MAC does not match",
        Profile::Symmetric => "wrong key, or the header is damaged: its MAC does not match",
        Profile::Recipient => "wrong private key, or the header is damaged: its MAC does not match",
        Profile::RecipientSigned => {
            "wrong private key or public key, or the header is damaged: its MAC does not match"
        }
    };
    let error = Error::new(Kind::WrongKey, LAYER, message);
    match profile {
        Profile::Passphrase => error,
        _ => error.because(Reason::WrongArchiveKey),
    }
}
