//! Encrypted volumes, as far as whoever knows their keys has to be told of them.

use crate::crypt::Secret;

/// An encrypted volume whose key is wanted.
#[derive(Debug, Clone, Default)]
pub struct LockedVolume {
    /// Its name, as [`VolumeInfo`](super::VolumeInfo) has it.
    pub name: String,
    /// What its owner wrote down to be reminded of the passphrase.
    pub hint: Option<String>,
}

/// What opens an encrypted volume.
#[derive(Debug, Clone)]
pub enum VolumeKey {
    /// The passphrase of the volume or of one of its users, as bytes.
    Passphrase(Secret),
    /// The recovery key that was shown when the volume was encrypted, as it is written, dashes included.
    Recovery(Secret),
}
