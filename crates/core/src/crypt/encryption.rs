//! Encryption options of a new image, and the parameters that depend on its size.

use super::blocks::CipherBlocks;
use super::header::Protection;
use super::keys::{KeyWrap, MAX_ITERATIONS, MIN_ITERATIONS, calibrate};
use super::public_key::Certificate;
use super::secret::Secret;
use crate::{Error, Result};

const LAYER: &str = "encryption";

/// Encryption options of a new image. Its keys are always new.
#[derive(Debug, Clone)]
pub struct Encryption {
    /// Size of the AES key in bits: 256 or 128.
    pub key_bits: u32,
    /// Cipher block size in bytes, 512 or 4096. `None`: 512 as newer macOS writes, or 4096 for a
    /// file that may exceed 2 TiB.
    pub cipher_block: Option<u32>,
    /// Iterations of the key derivation, from [`MIN_ITERATIONS`] to [`MAX_ITERATIONS`]. `None`:
    /// as many as take a quarter of a second on this machine.
    pub iterations: Option<u32>,
    /// The cipher that wraps the keys for the passphrase.
    pub key_wrap: KeyWrap,
    /// The passphrase.
    pub passphrase: Secret,
    /// Certificates whose private keys also open the image.
    pub certificates: Vec<Certificate>,
}

impl Encryption {
    /// Returns the default options: AES-256, and defaults for the rest.
    pub fn new(passphrase: Secret) -> Self {
        Self {
            key_bits: 256,
            cipher_block: None,
            iterations: None,
            key_wrap: KeyWrap::TripleDes,
            passphrase,
            certificates: Vec::new(),
        }
    }

    /// Refuses what no header can record, and too few iterations.
    pub fn check(&self) -> Result<()> {
        if !matches!(self.key_bits, 128 | 256) {
            return Err(Error::invalid(
                LAYER,
                format!(
                    "unsupported AES key of {} bits: expected 128 or 256",
                    self.key_bits
                ),
            ));
        }
        if let Some(block) = self
            .cipher_block
            .filter(|block| !matches!(block, 512 | 4096))
        {
            return Err(Error::invalid(
                LAYER,
                format!("unsupported cipher block size {block}: expected 512 or 4096"),
            ));
        }
        match self.iterations {
            Some(count) if !(MIN_ITERATIONS..=MAX_ITERATIONS).contains(&count) => {
                let message = format!(
                    "invalid number of iterations {count}: expected {MIN_ITERATIONS} to \
                     {MAX_ITERATIONS}"
                );
                Err(Error::invalid(LAYER, message))
            }
            _ => Ok(()),
        }
    }

    /// Returns the cipher block size of an image of at most `most` encrypted bytes. [`Kind::Limit`](crate::Kind)
    /// past the last numbered block.
    pub fn block_for(&self, most: u64) -> Result<u32> {
        let small = CipherBlocks::check_size(LAYER, most, 512).is_ok();
        let block = self.cipher_block.unwrap_or(if small { 512 } else { 4096 });
        CipherBlocks::check_size(LAYER, most, block).map(|()| block)
    }

    /// Returns all parameters for an image of at most `most` encrypted bytes. Calibrates the
    /// iterations if necessary, which takes time.
    pub fn protection(&self, most: u64) -> Result<Protection> {
        self.check()?;
        Ok(Protection {
            key_bits: self.key_bits,
            block: self.block_for(most)?,
            iterations: self.iterations.unwrap_or_else(calibrate),
            key_wrap: self.key_wrap,
            passphrase: Some(self.passphrase.clone()),
            certificates: self.certificates.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn blocks_follow_from_the_size() {
        let asked = Encryption::new(Secret::new(b"x".to_vec()));
        assert_eq!(asked.block_for(2 << 40).unwrap(), 512);
        assert_eq!(asked.block_for((2 << 40) + 1).unwrap(), 4096);
        assert_eq!(asked.block_for(16 << 40).unwrap(), 4096);
        assert_eq!(
            asked.block_for((16 << 40) + 1).unwrap_err().kind(),
            Kind::Limit
        );
        let small = Encryption {
            cipher_block: Some(512),
            ..asked.clone()
        };
        assert_eq!(
            small.block_for((2 << 40) + 1).unwrap_err().kind(),
            Kind::Limit
        );
        let large = Encryption {
            cipher_block: Some(4096),
            ..asked
        };
        assert_eq!(large.block_for(512).unwrap(), 4096);
    }

    #[test]
    fn unsafe_or_unknown_settings_are_refused() {
        let asked = Encryption::new(Secret::new(b"x".to_vec()));
        for bad in [
            Encryption {
                key_bits: 192,
                ..asked.clone()
            },
            Encryption {
                cipher_block: Some(1024),
                ..asked.clone()
            },
            Encryption {
                iterations: Some(MIN_ITERATIONS - 1),
                ..asked.clone()
            },
            Encryption {
                iterations: Some(MAX_ITERATIONS + 1),
                ..asked.clone()
            },
        ] {
            assert_eq!(bad.check().unwrap_err().kind(), Kind::Invalid, "{bad:?}");
        }
        let protection = Encryption {
            key_bits: 128,
            ..asked
        }
        .protection(1 << 20)
        .unwrap();
        assert!(protection.iterations >= MIN_ITERATIONS && protection.key_bits == 128);
    }
}
