//! Encrypted volumes: their description for the callback that returns the key, and the keys.

use zeroize::Zeroizing;

use bandsaw_core::Result;
#[cfg(doc)]
use bandsaw_core::crypt::MAX_ITERATIONS;
use bandsaw_core::crypt::{self, Secret};

/// An encrypted volume whose key is needed.
#[derive(Debug, Clone, Default)]
pub struct LockedVolume {
    /// Name of the volume, as in [`VolumeInfo`](super::VolumeInfo).
    pub name: String,
    /// Passphrase hint.
    pub hint: Option<String>,
}

/// A passphrase or key that opens an encrypted volume.
#[derive(Debug, Clone)]
pub enum VolumeKey {
    /// Passphrase of the volume or of one of its users, as bytes.
    Passphrase(Secret),
    /// Recovery key that was shown when the volume was encrypted, with its dashes.
    Recovery(Secret),
}

/// The credentials of a new encrypted volume.
#[derive(Debug, Clone)]
pub struct VolumeEncryption {
    /// Passphrase, as bytes; not empty.
    pub passphrase: Secret,
    /// Optional recovery key, with its dashes; [`recovery_key`] generates one.
    pub recovery_key: Option<Secret>,
    /// Passphrase hint, at most 255 bytes; readable without the passphrase.
    pub hint: Option<String>,
    /// Number of iterations of the passphrase's derivation, 1 to [`MAX_ITERATIONS`].
    pub iterations: u32,
}

/// Generates a recovery key in the form that macOS uses: six groups of four letters and digits,
/// with 120 random bits. Characters that are easily confused are not used.
pub fn recovery_key() -> Result<Secret> {
    const SIGNS: [u8; 32] = *b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";
    let mut random = Zeroizing::new([0; 24]);
    crypt::random(&mut *random)?;
    // Allocated with its full capacity, because growing would leave copies behind that are not
    // wiped.
    let mut key = Vec::with_capacity(29);
    for (at, byte) in random.iter().enumerate() {
        if at > 0 && at % 4 == 0 {
            key.push(b'-');
        }
        key.push(SIGNS[usize::from(byte % 32)]);
    }
    Ok(Secret::new(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_keys_look_like_those_of_macos() {
        let key = recovery_key().unwrap();
        let groups: Vec<_> = str::from_utf8(&key).unwrap().split('-').collect();
        assert_eq!(groups.len(), 6);
        let signs = |group: &&str| {
            group.len() == 4
                && group
                    .bytes()
                    .all(|sign| sign.is_ascii_uppercase() || sign.is_ascii_digit())
        };
        assert!(groups.iter().all(signs), "{groups:?}");
        assert_ne!(*key, *recovery_key().unwrap());
    }
}
