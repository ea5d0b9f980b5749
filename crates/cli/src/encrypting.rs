//! How a verb encrypts what it makes.

use std::path::PathBuf;

use bandsaw::crypt::{Encryption, Secret};
use bandsaw::size;
use clap::{Args, ValueEnum, ValueHint};

use crate::failure::Outcome;
use crate::passphrase::{self, Iterations, Wrapping};

/// The cipher of a new image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cipher {
    #[value(name = "aes-256", alias = "aes256")]
    Aes256,
    #[value(name = "aes-128", alias = "aes128")]
    Aes128,
}

impl Cipher {
    fn key_bits(self) -> u32 {
        match self {
            Self::Aes256 => 256,
            Self::Aes128 => 128,
        }
    }

    /// That of an image with keys of so many bits.
    pub(crate) fn of_bits(bits: u32) -> Self {
        if bits == 128 {
            Self::Aes128
        } else {
            Self::Aes256
        }
    }
}

/// How a new image is encrypted, if it is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Encrypting {
    /// Size of the cipher's blocks: 512 as macOS writes, or 4096, which is faster; without it 512,
    /// and 4096 where an image in one file may pass 2 TiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = "Encryption", display_order = 702)]
    cipher_block: Option<u64>,
    /// Let the private key of this certificate (X.509, PEM or DER) open the new image beside the
    /// passphrase
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Encryption", display_order = 703)]
    certificate: Vec<PathBuf>,
    #[command(flatten)]
    iterations: Iterations,
    #[command(flatten)]
    wrapping: Wrapping,
}

impl Encrypting {
    /// With these certificates beside the passphrase, everything else as by default.
    pub(crate) fn with_certificates(certificate: Vec<PathBuf>) -> Self {
        Self {
            certificate,
            ..Self::default()
        }
    }

    pub(crate) fn with(&self, cipher: Cipher, passphrase: Secret) -> Outcome<Encryption> {
        let certificates = self
            .certificate
            .iter()
            .map(|path| passphrase::certificate(path))
            .collect::<Result<_, _>>()?;
        Ok(Encryption {
            key_bits: cipher.key_bits(),
            cipher_block: self
                .cipher_block
                .map(|size| u32::try_from(size).unwrap_or(u32::MAX)),
            iterations: Some(self.iterations.count()),
            key_wrap: self.wrapping.cipher(),
            passphrase,
            certificates,
        })
    }

    /// Iterations of a new passphrase's derivation.
    pub(crate) fn iterations(&self) -> Iterations {
        self.iterations
    }

    /// An option that was given, all of which mean nothing where nothing is encrypted.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--cipher-block", self.cipher_block.is_some()),
            ("--certificate", !self.certificate.is_empty()),
            ("--iterations", self.iterations.is_given()),
            ("--key-wrap", self.wrapping.is_given()),
        ];
        given
            .into_iter()
            .find_map(|(option, given)| given.then_some(option))
    }
}
