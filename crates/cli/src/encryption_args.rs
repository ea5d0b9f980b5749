//! Encryption of new images.

use std::path::PathBuf;

use bandsaw::crypt::{Encryption, Secret};
use bandsaw::open::Image;
use bandsaw::size;
use clap::{Args, ValueEnum, ValueHint};

use crate::failure::{Failure, Outcome};
use crate::passphrase::{self, Iterations, KeyWrapArgs};

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

    /// Returns the cipher for keys of this many bits.
    pub(crate) fn of_bits(bits: u32) -> Self {
        if bits == 128 {
            Self::Aes128
        } else {
            Self::Aes256
        }
    }
}

/// The option that permits a decrypted copy.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct DecryptArgs {
    /// Write a decrypted copy of an encrypted image
    #[arg(long, help_heading = "Encryption", display_order = 701)]
    pub(crate) decrypt: bool,
}

impl DecryptArgs {
    /// Refuses to write the plain text of an encrypted image without the option.
    pub(crate) fn check(self, source: &Image) -> Outcome {
        if self.decrypt || !source.is_secret() {
            return Ok(());
        }
        Err(Failure::usage(
            "--decrypt",
            "the source is encrypted but the copy is not; this option permits it",
        ))
    }
}

/// The encryption options of a new image.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NewEncryptionArgs {
    /// Set the cipher block size: 512 or 4096
    ///
    /// macOS writes 512; 4096 is faster. The default is 512, or 4096 for an image in one file that
    /// may exceed 2 TiB.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = "Encryption", display_order = 702, hide_short_help = true)]
    cipher_block: Option<u64>,
    /// Allow the private key of this certificate to open the image
    ///
    /// The certificate is an X.509 file, PEM or DER. The passphrase opens the image as well.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Encryption", display_order = 703, hide_short_help = true)]
    certificate: Vec<PathBuf>,
    #[command(flatten)]
    iterations: Iterations,
    #[command(flatten)]
    wrapping: KeyWrapArgs,
}

impl NewEncryptionArgs {
    /// Returns the default options with these certificates.
    pub(crate) fn with_certificates(certificate: Vec<PathBuf>) -> Self {
        Self {
            certificate,
            ..Self::default()
        }
    }

    /// Returns the encryption of the new image. The passphrase is asked for after the certificates
    /// were read.
    pub(crate) fn with(
        &self,
        cipher: Cipher,
        passphrase: impl FnOnce() -> Outcome<Secret>,
    ) -> Outcome<Encryption> {
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
            passphrase: passphrase()?,
            certificates,
        })
    }

    /// Returns the iteration count for deriving the key of a new passphrase.
    pub(crate) fn iterations(&self) -> Iterations {
        self.iterations
    }

    /// Returns an option that was given. All of them require encryption.
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
