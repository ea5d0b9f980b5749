//! Options of new encrypted archives (AEA).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use bandsaw::container::Format;
use bandsaw::crypt::Secret;
use bandsaw::crypt::aea::{
    Compression, NewArchive, NewArchiveKey, P256PrivateKey, P256PublicKey, SymmetricKey,
};
use clap::{Args, ValueEnum, ValueHint};

use crate::failure::{Failure, Outcome};
use crate::passphrase::key_in;

/// The compression of the segments of a new archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SegmentCompression {
    Lzfse,
    Zlib,
    Lz4,
    Lzma,
    None,
}

/// The keys of a new archive.
#[derive(Debug, Default, Args)]
pub(crate) struct NewArchiveArgs {
    /// Encrypt the new archive (.aea) with the key in this file
    ///
    /// The file holds 32 bytes, as base64, as hexadecimal digits or as they are. `openssl rand -hex 32` makes a
    /// key.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["decrypt", "new-passphrase"],
        help_heading = "Encryption",
        display_order = 705,
        hide_short_help = true
    )]
    new_aea_key: Option<PathBuf>,
    /// Encrypt the new archive (.aea) for this public key
    ///
    /// The file holds a public key of P-256, as PEM, DER or 65 bytes. The owner of the private key opens the
    /// archive with --aea-private-key.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["decrypt", "new_aea_key", "new-passphrase"],
        help_heading = "Encryption",
        display_order = 706,
        hide_short_help = true
    )]
    aea_recipient: Option<PathBuf>,
    /// Sign the new archive (.aea) with this private key
    ///
    /// The file holds a private key of P-256, as PEM or DER. Without an option that encrypts, the archive is
    /// only signed. One with a passphrase cannot be signed.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "new-passphrase",
        help_heading = "Encryption",
        display_order = 707,
        hide_short_help = true
    )]
    aea_signing_key: Option<PathBuf>,
    /// Compress the new archive: lzfse, zlib, lz4, lzma or none
    ///
    /// The default is lzfse, or none if the image in it is compressed.
    #[arg(
        long,
        value_name = "METHOD",
        hide_possible_values = true,
        help_heading = "Encryption",
        display_order = 708,
        hide_short_help = true
    )]
    aea_compression: Option<SegmentCompression>,
}

/// Returns true if a new file of this name is an encrypted archive.
pub(crate) fn is_archive(target: &Path) -> bool {
    let extension = target.extension().and_then(OsStr::to_str);
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("aea"))
}

/// Returns the format of the image in a new archive: by the extension before `.aea`, or raw.
pub(crate) fn format(target: &Path) -> Format {
    let inner = target.file_stem().map(Path::new);
    inner.and_then(Format::from_extension).unwrap_or_default()
}

impl NewArchiveArgs {
    /// Returns an option that was given. All of them require an archive.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--new-aea-key", self.new_aea_key.is_some()),
            ("--aea-recipient", self.aea_recipient.is_some()),
            ("--aea-signing-key", self.aea_signing_key.is_some()),
            ("--aea-compression", self.aea_compression.is_some()),
        ];
        given
            .into_iter()
            .find_map(|(option, given)| given.then_some(option))
    }

    /// Returns the options of a new archive around an image of this format. `passphrase` is asked for if
    /// `has_passphrase` is true and no option names a key.
    pub(crate) fn choose(
        &self,
        format: Format,
        has_passphrase: bool,
        passphrase: impl FnOnce() -> Outcome<Secret>,
    ) -> Outcome<NewArchive> {
        let signer = self.aea_signing_key.as_deref();
        let signer = signer.map(|path| key_in("--aea-signing-key", path, P256PrivateKey::parse));
        let signer = signer.transpose()?;
        let key = if let Some(path) = &self.new_aea_key {
            let key = key_in("--new-aea-key", path, SymmetricKey::parse)?;
            Some(NewArchiveKey::Symmetric(key))
        } else if let Some(path) = &self.aea_recipient {
            let key = key_in("--aea-recipient", path, P256PublicKey::parse)?;
            Some(NewArchiveKey::Recipient(key))
        } else if has_passphrase && signer.is_some() {
            return Err(Failure::usage(
                "--aea-signing-key",
                "an archive with a passphrase cannot be signed",
            ));
        } else if has_passphrase {
            Some(NewArchiveKey::Passphrase(passphrase()?))
        } else {
            None
        };
        if key.is_none() && signer.is_none() {
            let message = "an encrypted archive needs a key";
            return Err(Failure::usage("TARGET", message).hint(
                "use --new-aea-key FILE, --aea-recipient FILE, --encrypt for a passphrase, or \
                 --aea-signing-key FILE to sign it only",
            ));
        }
        let compression = match self.aea_compression {
            Some(SegmentCompression::Lzfse) => Compression::Lzfse,
            Some(SegmentCompression::Zlib) => Compression::Zlib,
            Some(SegmentCompression::Lz4) => Compression::Lz4,
            Some(SegmentCompression::Lzma) => Compression::Lzma,
            Some(SegmentCompression::None) => Compression::None,
            None if format.codec().is_some() => Compression::None,
            None => Compression::Lzfse,
        };
        Ok(NewArchive {
            key,
            signer,
            compression,
        })
    }
}
