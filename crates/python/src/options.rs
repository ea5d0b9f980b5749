//! The options with which an image is opened, and opened again after an operation on it.

use std::path::PathBuf;
use std::str::FromStr;

use bandsaw::container::Format;
use bandsaw::crypt::aea::{
    ArchiveDescription, ArchiveKey, ArchiveKeys, P256PrivateKey, P256PublicKey, Profile,
    SymmetricKey,
};
use bandsaw::crypt::{Description, Key, PrivateKey, Secret};
use bandsaw::device::Access;
use bandsaw::fs::{LockedVolume, VolumeKey};
use bandsaw::open::{Keys, NetworkOptions, OpenOptions};
use bandsaw::{Error, Result};

/// Options of opening, with their keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImageOptions {
    pub(crate) writable: bool,
    pub(crate) format: Option<Format>,
    pub(crate) keys: KeyRing,
    pub(crate) shadows: Vec<PathBuf>,
    pub(crate) checkpoint: Option<u64>,
    /// Name or UUID of the logical volume of Core Storage that is the disk.
    pub(crate) logical_volume: Option<String>,
    /// Disks with other parts of a Core Storage group.
    pub(crate) physical_volumes: Vec<PathBuf>,
    pub(crate) system_files: bool,
}

/// The keys that the caller gave.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyRing {
    passphrase: Option<Secret>,
    /// A private key of a certificate or an archive, PEM, the recovery key of a volume, or the key of an archive.
    key: Option<Secret>,
    /// The public key of the signer of an archive.
    signer: Option<Vec<u8>>,
}

/// Returns a value of the caller that has a name: a format, an algorithm.
pub(crate) fn named<T: FromStr<Err = Error>>(name: Option<&str>) -> Result<Option<T>> {
    name.map(str::parse).transpose()
}

impl ImageOptions {
    /// Returns the options for the library.
    pub(crate) fn opening(&self) -> OpenOptions<'_> {
        OpenOptions {
            access: match self.writable {
                true => Access::ReadWrite,
                false => Access::ReadOnly,
            },
            image_format: self.format,
            keys: Some(&self.keys),
            shadows: &self.shadows,
            checkpoint: self.checkpoint,
            logical_volume: self.logical_volume.as_deref(),
            physical_volumes: &self.physical_volumes,
            system_files: self.system_files,
            network: network(),
            ..OpenOptions::default()
        }
    }
}

/// Returns the options for images in buckets: those of the environment.
pub(crate) fn network() -> NetworkOptions<'static> {
    NetworkOptions {
        variables: |name| std::env::var(name).ok(),
        ..NetworkOptions::default()
    }
}

impl KeyRing {
    pub(crate) fn new(
        passphrase: Option<Vec<u8>>,
        key: Option<Vec<u8>>,
        signer: Option<Vec<u8>>,
    ) -> Self {
        Self {
            signer,
            passphrase: passphrase.map(Secret::new),
            key: key.map(Secret::new),
        }
    }

    /// Returns the private key of a certificate, if one was given.
    fn private_key(&self) -> Option<Result<Key>> {
        let key = self.key.as_ref().filter(|_| self.has_pem())?;
        Some(PrivateKey::parse(key).map(Key::Private))
    }

    /// Returns true if the key is that of a PEM file.
    fn has_pem(&self) -> bool {
        let key = self.key.as_deref().unwrap_or_default();
        key.windows(10).any(|text| text == b"-----BEGIN")
    }
}

impl Keys for KeyRing {
    fn key(&self, _image: &Description) -> Result<Option<Key>> {
        if let Some(key) = self.private_key() {
            return key.map(Some);
        }
        Ok(self.passphrase.clone().map(Key::Passphrase))
    }

    fn archive_keys(&self, archive: &ArchiveDescription) -> Result<ArchiveKeys> {
        let private = || -> Result<Option<ArchiveKey>> {
            let key = self.key.as_ref().map(|key| P256PrivateKey::parse(key));
            Ok(key.transpose()?.map(ArchiveKey::Private))
        };
        let key = match archive.profile {
            Profile::Symmetric | Profile::SymmetricSigned
                if archive.has_wrapped_key && self.has_pem() =>
            {
                private()?
            }
            Profile::Symmetric | Profile::SymmetricSigned => {
                let key = self.key.as_ref().map(|key| SymmetricKey::parse(key));
                key.transpose()?.map(ArchiveKey::Symmetric)
            }
            Profile::Recipient | Profile::RecipientSigned => private()?,
            Profile::Passphrase => self.passphrase.clone().map(ArchiveKey::Passphrase),
            Profile::Signed => None,
        };
        let signer = self.signer.as_ref().map(|key| P256PublicKey::parse(key));
        let signer = signer.transpose()?.filter(|_| archive.profile.is_signed());
        Ok(ArchiveKeys { key, signer })
    }

    fn volume_key(&self, _volume: &LockedVolume) -> Result<Option<VolumeKey>> {
        if let (Some(key), None) = (&self.key, self.private_key()) {
            return Ok(Some(VolumeKey::Recovery(key.clone())));
        }
        Ok(self.passphrase.clone().map(VolumeKey::Passphrase))
    }
}
