//! Keys of encrypted images and volumes, which the caller of the library supplies.

use std::fmt;

use crate::crypt::aea::{ArchiveDescription, ArchiveKey, ArchiveKeys, Profile};
use crate::crypt::{Description, Key, Secret};
use crate::fs::{LockedVolume, VolumeKey};
use crate::{Error, Kind, Reason, Result};

const LAYER: &str = "encryption";

/// A source of keys for images and the encrypted volumes in them: an option, a keychain, a person.
/// The library never prompts by itself.
pub trait Keys: fmt::Debug {
    /// Returns the passphrase or private key of the image with this encryption; `None` if it is not
    /// known. Called only for encrypted images, once per open.
    fn key(&self, image: &Description) -> Result<Option<Key>>;

    /// Returns the keys of an encrypted or signed archive, as far as they are known. Called once per
    /// open.
    fn archive_keys(&self, archive: &ArchiveDescription) -> Result<ArchiveKeys>;

    /// Returns true if the private key for an archive of system software may be fetched from the address that its
    /// metadata names, if its key is not known otherwise.
    fn may_fetch_key(&self) -> bool {
        false
    }

    /// Returns the key of an encrypted volume within an image, once the image itself is open.
    fn volume_key(&self, volume: &LockedVolume) -> Result<Option<VolumeKey>>;
}

/// Offers the same passphrase for every image and volume.
impl Keys for Secret {
    fn key(&self, _image: &Description) -> Result<Option<Key>> {
        Ok(Some(Key::Passphrase(self.clone())))
    }

    fn archive_keys(&self, archive: &ArchiveDescription) -> Result<ArchiveKeys> {
        Ok(archive_passphrase(archive, Some(self)))
    }

    fn volume_key(&self, _volume: &LockedVolume) -> Result<Option<VolumeKey>> {
        Ok(Some(VolumeKey::Passphrase(self.clone())))
    }
}

/// Returns the keys of an archive of which at most a passphrase is known.
pub fn archive_passphrase(
    archive: &ArchiveDescription,
    passphrase: Option<&Secret>,
) -> ArchiveKeys {
    let takes_one = archive.profile == Profile::Passphrase;
    ArchiveKeys {
        key: passphrase
            .filter(|_| takes_one)
            .map(|passphrase| ArchiveKey::Passphrase(passphrase.clone())),
        signer: None,
    }
}

/// Returns the key of an encrypted volume. [`Kind::WrongKey`] with [`Reason::VolumeLocked`] if none
/// is known.
pub fn volume_key(volume: &LockedVolume, keys: Option<&dyn Keys>) -> Result<VolumeKey> {
    let known = keys
        .map(|keys| keys.volume_key(volume))
        .transpose()?
        .flatten();
    let message = "the volume is encrypted: a passphrase is required";
    let locked =
        || Error::new(Kind::WrongKey, "volume encryption", message).because(Reason::VolumeLocked);
    known.ok_or_else(|| locked().named(&volume.name))
}

/// Returns the passphrase or private key of the image with this encryption.
pub(super) fn key(description: &Description, keys: Option<&dyn Keys>) -> Result<Key> {
    let known = keys
        .map(|keys| keys.key(description))
        .transpose()?
        .flatten();
    known.ok_or_else(|| needed(description))
}

fn needed(description: &Description) -> Error {
    match (description.has_passphrase(), description.has_public_key()) {
        (true, _) => Error::new(
            Kind::WrongKey,
            LAYER,
            "the image is encrypted: a passphrase is required",
        )
        .because(Reason::PassphraseNeeded),
        (false, true) => Error::new(
            Kind::WrongKey,
            LAYER,
            "the image is encrypted: a private key is required",
        )
        .because(Reason::PrivateKeyNeeded),
        (false, false) => description.closed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_volume_is_named_in_the_error() {
        let volume = LockedVolume {
            name: "Secret".into(),
            ..LockedVolume::default()
        };
        let error = volume_key(&volume, None).unwrap_err();
        assert_eq!(
            (error.kind(), error.reason()),
            (Kind::WrongKey, Some(Reason::VolumeLocked))
        );
        assert!(error.to_string().contains("Secret"), "{error}");
        assert!(volume_key(&volume, Some(&Secret::new(b"known".to_vec()))).is_ok());
    }
}
