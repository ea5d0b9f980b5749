//! Encrypted volumes, as far as whoever knows their keys has to be told of them.

use zeroize::Zeroizing;

use crate::Result;
#[cfg(doc)]
use crate::crypt::MOST_ITERATIONS;
use crate::crypt::{self, Secret};

/// An encrypted volume whose key is wanted.
#[derive(Debug, Clone, Default)]
pub struct LockedVolume {
    /// Its name, as [`VolumeInfo`](super::VolumeInfo) has it.
    pub name: String,
    /// What its owner wrote down to be reminded of the passphrase.
    pub hint: Option<String>,
}

/// A passphrase or key that opens an encrypted volume.
#[derive(Debug, Clone)]
pub enum VolumeKey {
    /// The passphrase of the volume or of one of its users, as bytes.
    Passphrase(Secret),
    /// The recovery key that was shown when the volume was encrypted, as it is written, dashes
    /// included.
    Recovery(Secret),
}

/// How a new encrypted volume is opened later.
#[derive(Debug, Clone)]
pub struct VolumeEncryption {
    /// Its passphrase, as bytes; not empty.
    pub passphrase: Secret,
    /// A recovery key that opens it, too, as it is written; [`recovery_key`] makes one.
    pub recovery_key: Option<Secret>,
    /// What is shown, to anybody, of whom the passphrase is wanted. At most 255 bytes.
    pub hint: Option<String>,
    /// Iterations of the passphrase's derivation, 1 to [`MOST_ITERATIONS`].
    pub iterations: u32,
}

/// A new recovery key as macOS writes them: six groups of four letters and digits, 120 random bits.
/// Those that are taken for one another are left out.
pub fn recovery_key() -> Result<Secret> {
    const SIGNS: [u8; 32] = *b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";
    let mut random = Zeroizing::new([0; 24]);
    crypt::random(&mut *random)?;
    // All of it at once: growing would leave copies behind that nobody wipes.
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
