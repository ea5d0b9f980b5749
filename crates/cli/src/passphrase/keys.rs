//! Keys of encrypted images and volumes, and options for new passphrases.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bandsaw::crypt::aea::{
    ArchiveDescription, ArchiveKey, ArchiveKeys, P256PrivateKey, P256PublicKey, Profile,
    SymmetricKey,
};
use bandsaw::crypt::{
    Certificate, Description, Key, KeyWrap, MAX_ITERATIONS, MIN_ITERATIONS, PrivateKey, Secret,
    calibrate,
};
use bandsaw::fs::{LockedVolume, VolumeKey};
use bandsaw::open::Keys;
use bandsaw::{Error, Result, platform};
use clap::{Args, ValueEnum, ValueHint};

use crate::headings::{IMAGES, NEW_PASSPHRASES, VOLUMES};

use super::secret_reader::{MAX_SECRET_LEN, read_secret};
use super::source::line_of;
use super::{Passphrase, VolumePassphrase};

/// The keys of an encrypted image and of the encrypted volumes in it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct UnlockArgs {
    #[command(flatten)]
    image: ImageUnlockArgs,
    #[command(flatten)]
    volume: VolumeUnlockArgs,
}

impl UnlockArgs {
    /// Returns the options with `--stdinpass`, if `stdin` is true.
    pub(crate) fn stdinpass(stdin: bool) -> Self {
        Self {
            image: ImageUnlockArgs::stdinpass(stdin),
            ..Self::default()
        }
    }

    /// Returns how many passphrases come from standard input before that of what the verb makes.
    pub(crate) fn on_stdin(&self) -> usize {
        self.image.on_stdin() + self.volume.passphrase.on_stdin()
    }
}

impl UnlockArgs {
    /// Returns true if a passphrase of an image is given and nothing needed it.
    pub(crate) fn is_spare(&self) -> bool {
        self.image.is_spare()
    }

    /// Returns true if an option gives the key of volumes, so that nothing is asked for.
    pub(crate) fn gives_volume_key(&self) -> bool {
        self.volume.recovery_key_file.is_some() || self.volume.passphrase.given().is_some()
    }

    /// Wipes the passphrases from memory, once everything is open.
    pub(crate) fn wipe(&self) {
        self.image.passphrase.wipe();
        *self.image.known_key.borrow_mut() = None;
        *self.image.known_private_key.borrow_mut() = None;
        self.volume.passphrase.wipe();
    }
}

impl Keys for UnlockArgs {
    fn key(&self, image: &Description) -> Result<Option<Key>> {
        self.image.key(image)
    }

    fn archive_keys(&self, archive: &ArchiveDescription) -> Result<ArchiveKeys> {
        self.image.archive_keys(archive)
    }

    fn may_fetch_key(&self) -> bool {
        self.image.may_fetch_key()
    }

    /// Returns one passphrase or recovery key for every volume.
    fn volume_key(&self, volume: &LockedVolume) -> Result<Option<VolumeKey>> {
        const OPTION: &str = "--recovery-key-file";
        if let Some(path) = &self.volume.recovery_key_file {
            platform::forbid_core_dumps();
            return line_of(OPTION, path).map(|key| Some(VolumeKey::Recovery(key)));
        }
        let hint = volume
            .hint
            .as_deref()
            .map(|hint| format!(" (hint: {})", hint.escape_debug()))
            .unwrap_or_default();
        let question = format!(
            "passphrase of the volume {}{hint}: ",
            volume.name.escape_debug()
        );
        let passphrase = if self.image.is_spare() && self.volume.passphrase.given().is_none() {
            self.image.passphrase.read(0, &question)?
        } else {
            let before = self.image.on_stdin();
            self.volume.passphrase.read(before, &question)?
        };
        Ok(passphrase.map(VolumeKey::Passphrase))
    }
}

/// Options of which one may give the passphrase of an image.
pub(crate) trait GivenPassphrase {
    /// Returns the option that gives the passphrase of an image, or `None`.
    fn passphrase_option(&self) -> Option<&'static str>;
}

impl GivenPassphrase for UnlockArgs {
    fn passphrase_option(&self) -> Option<&'static str> {
        self.image.passphrase_option()
    }
}

impl GivenPassphrase for ImageUnlockArgs {
    fn passphrase_option(&self) -> Option<&'static str> {
        self.passphrase.given()
    }
}

/// The keys of an encrypted image, for verbs that read only its header.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ImageUnlockArgs {
    #[command(flatten)]
    passphrase: Passphrase,
    /// Open an encrypted image with a private key (PEM)
    ///
    /// The file holds the private key of a certificate, as PKCS#8 or PKCS#1.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "passphrase",
        help_heading = IMAGES,
        display_order = 804
    )]
    private_key: Option<PathBuf>,
    /// Open an encrypted archive (AEA) with the key in this file
    ///
    /// The file holds 32 bytes, as base64, as hexadecimal digits or as they are.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        help_heading = IMAGES,
        display_order = 805,
        hide_short_help = true
    )]
    aea_key: Option<PathBuf>,
    /// Open an encrypted archive (AEA) with this private key
    ///
    /// The file holds a private key of P-256: that of the recipient, or the one for which the key in the metadata
    /// of system software is wrapped. It is PEM or DER (PKCS#8 or SEC1), or 97 or 32 bytes.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        help_heading = IMAGES,
        display_order = 806,
        hide_short_help = true
    )]
    aea_private_key: Option<PathBuf>,
    /// Fetch the private key of system software from Apple
    ///
    /// The metadata of the archive names the address, which may be anybody's. The key is fetched over https from
    /// that host only, and not stored.
    #[arg(
        long,
        conflicts_with = "aea_private_key",
        help_heading = IMAGES,
        display_order = 807,
        hide_short_help = true
    )]
    fetch_key: bool,
    /// Verify a signed archive (AEA) with this public key
    ///
    /// The file holds the public key of P-256 of the signer, as PEM, DER or 65 bytes. Without it, an
    /// archive that is only signed is read with a warning.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        help_heading = IMAGES,
        display_order = 808,
        hide_short_help = true
    )]
    aea_signer: Option<PathBuf>,
    /// The key in the file of `--aea-key`, once it was read: a pipe can be read only once.
    #[arg(skip)]
    known_key: RefCell<Option<SymmetricKey>>,
    /// The private key in the file of `--aea-private-key`, once it was read.
    #[arg(skip)]
    known_private_key: RefCell<Option<P256PrivateKey>>,
    /// The public key in the file of `--aea-signer`, once it was read.
    #[arg(skip)]
    known_signer: RefCell<Option<P256PublicKey>>,
    /// True once the key of an encrypted image was requested.
    #[arg(skip)]
    is_used: Cell<bool>,
}

impl ImageUnlockArgs {
    /// Returns the options with `--stdinpass`, if `stdin` is true.
    pub(crate) fn stdinpass(stdin: bool) -> Self {
        Self {
            passphrase: Passphrase::stdinpass(stdin),
            ..Self::default()
        }
    }

    /// Returns true if a passphrase is given that no image needs: it is then that of the volumes.
    fn is_spare(&self) -> bool {
        self.passphrase.given().is_some() && !self.is_used.get()
    }

    /// Returns how many passphrases come from standard input before that of what the verb makes.
    pub(crate) fn on_stdin(&self) -> usize {
        self.passphrase.on_stdin()
    }

    fn symmetric_key(&self) -> Result<Option<SymmetricKey>> {
        let path = self.aea_key.as_deref();
        remembered_key(&self.known_key, "--aea-key", path, SymmetricKey::parse)
    }

    fn archive_private_key(&self) -> Result<Option<P256PrivateKey>> {
        remembered_key(
            &self.known_private_key,
            "--aea-private-key",
            self.aea_private_key.as_deref(),
            P256PrivateKey::parse,
        )
    }

    fn signer(&self) -> Result<Option<P256PublicKey>> {
        let path = self.aea_signer.as_deref();
        remembered_key(
            &self.known_signer,
            "--aea-signer",
            path,
            P256PublicKey::parse,
        )
    }
}

impl Keys for ImageUnlockArgs {
    /// Returns one passphrase or private key for everything that a command opens.
    fn key(&self, image: &Description) -> Result<Option<Key>> {
        self.is_used.set(true);
        if let Some(path) = &self.private_key {
            let key = key_in("--private-key", path, PrivateKey::parse)?;
            return Ok(Some(Key::Private(key)));
        }
        if !image.has_passphrase() {
            return Ok(None);
        }
        Ok(self
            .passphrase
            .read(0, "passphrase: ")?
            .map(Key::Passphrase))
    }

    fn archive_keys(&self, archive: &ArchiveDescription) -> Result<ArchiveKeys> {
        let key = match archive.profile {
            Profile::Symmetric | Profile::SymmetricSigned => match self.symmetric_key()? {
                None if archive.has_wrapped_key => {
                    self.archive_private_key()?.map(ArchiveKey::Private)
                }
                key => key.map(ArchiveKey::Symmetric),
            },
            Profile::Recipient | Profile::RecipientSigned => {
                self.archive_private_key()?.map(ArchiveKey::Private)
            }
            Profile::Passphrase => {
                self.is_used.set(true);
                self.passphrase
                    .read(0, "passphrase: ")?
                    .map(ArchiveKey::Passphrase)
            }
            Profile::Signed => None,
        };
        let signer = match archive.profile.is_signed() {
            true => self.signer()?,
            false => None,
        };
        Ok(ArchiveKeys { key, signer })
    }

    fn may_fetch_key(&self) -> bool {
        self.fetch_key
    }

    fn volume_key(&self, _volume: &LockedVolume) -> Result<Option<VolumeKey>> {
        Ok(None)
    }
}

/// The keys of the encrypted volumes in an image.
#[derive(Debug, Clone, Default, Args)]
struct VolumeUnlockArgs {
    #[command(flatten)]
    passphrase: VolumePassphrase,
    /// Open an encrypted volume with the recovery key in this file
    ///
    /// The key is written as macOS shows it.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "volume-passphrase",
        help_heading = VOLUMES,
        display_order = 824
    )]
    recovery_key_file: Option<PathBuf>,
}

/// Reads all of the file that an option names.
fn secret_of(option: &'static str, path: &Path) -> Result<Secret> {
    platform::forbid_core_dumps();
    File::open(path)
        .and_then(read_secret)
        .map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => {
                Error::invalid(option, format!("longer than {MAX_SECRET_LEN} bytes"))
            }
            _ => Error::io(option, "read", error),
        })
}

/// Reads the key in the file that an option names.
pub(crate) fn key_in<T>(
    option: &'static str,
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T>,
) -> Result<T> {
    let key = secret_of(option, path).and_then(|key| parse(&key));
    key.map_err(|error| error.in_file(path))
}

/// Returns the key in the file that an option names, if the option is given. The file is read once, because it
/// may be a pipe.
fn remembered_key<T: Clone>(
    known: &RefCell<Option<T>>,
    option: &'static str,
    path: Option<&Path>,
    parse: impl FnOnce(&[u8]) -> Result<T>,
) -> Result<Option<T>> {
    let mut known = known.borrow_mut();
    if let (None, Some(path)) = (&*known, path) {
        *known = Some(key_in(option, path, parse)?);
    }
    Ok(known.clone())
}

/// Reads a certificate whose private key will open an image.
pub(crate) fn certificate(path: &Path) -> Result<Certificate> {
    key_in("--certificate", path, Certificate::parse)
}

/// The iteration count of a new passphrase.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Iterations {
    /// Set the iteration count for a new passphrase
    ///
    /// The minimum is 150000. The default takes a quarter of a second on this machine.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(i64::from(MIN_ITERATIONS)..=i64::from(MAX_ITERATIONS)),
        help_heading = NEW_PASSPHRASES,
        display_order = 890
    )]
    iterations: Option<u32>,
}

impl Iterations {
    pub(crate) fn is_given(self) -> bool {
        self.iterations.is_some()
    }

    /// Returns the number of iterations: that of the option, or one measured on this machine.
    pub(crate) fn count(self) -> u32 {
        self.iterations.unwrap_or_else(calibrate)
    }
}

/// The cipher around an image's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WrapCipher {
    #[value(name = "3des")]
    TripleDes,
    #[value(name = "aes", alias = "aes-192")]
    Aes,
}

/// The cipher that wraps the keys of an image for a new passphrase.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct KeyWrapArgs {
    /// Wrap the keys with 3des or aes
    ///
    /// Every macOS reads 3des, the default; current macOS writes aes.
    #[arg(
        long,
        value_name = "CIPHER",
        help_heading = NEW_PASSPHRASES,
        display_order = 891
    )]
    key_wrap: Option<WrapCipher>,
}

impl KeyWrapArgs {
    pub(crate) fn is_given(self) -> bool {
        self.key_wrap.is_some()
    }

    /// Returns the cipher of the option, by default Triple DES, which every system can read.
    pub(crate) fn cipher(self) -> KeyWrap {
        match self.key_wrap {
            Some(WrapCipher::Aes) => KeyWrap::Aes192,
            Some(WrapCipher::TripleDes) | None => KeyWrap::TripleDes,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        unlocking: UnlockArgs,
    }

    fn parse(args: &[&str]) -> std::result::Result<UnlockArgs, clap::Error> {
        Line::try_parse_from(["line"].iter().chain(args)).map(|line| line.unlocking)
    }

    fn volume_key(args: &[&str]) -> Option<VolumeKey> {
        parse(args)
            .unwrap()
            .volume_key(&LockedVolume {
                name: "Secret".into(),
                ..LockedVolume::default()
            })
            .unwrap()
    }

    #[test]
    fn a_volume_has_a_passphrase_of_its_own() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "ABCD-EFGH\n").unwrap();
        let path = file.path().to_str().unwrap();
        let of_both = ["--passfile", "/missing", "--volume-passfile", path];
        assert!(
            matches!(volume_key(&of_both), Some(VolumeKey::Passphrase(key)) if *key == *b"ABCD-EFGH")
        );
        assert!(
            matches!(volume_key(&["--recovery-key-file", path]), Some(VolumeKey::Recovery(key)) if *key == *b"ABCD-EFGH")
        );
        assert!(matches!(
            volume_key(&["--volume-passenv", "PATH"]),
            Some(VolumeKey::Passphrase(_))
        ));
    }

    #[test]
    fn a_passphrase_that_the_image_does_not_need_is_that_of_the_volume() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "ABCD-EFGH\n").unwrap();
        let given = parse(&["--passfile", file.path().to_str().unwrap()]).unwrap();
        for volume in ["A", "B"] {
            let volume = LockedVolume {
                name: volume.into(),
                ..LockedVolume::default()
            };
            let key = given.volume_key(&volume).unwrap();
            assert!(matches!(key, Some(VolumeKey::Passphrase(key)) if *key == *b"ABCD-EFGH"));
        }
        given.image.is_used.set(true);
        assert!(!given.image.is_spare(), "the image needed it");
    }

    #[test]
    fn the_key_of_an_archive_is_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, format!("{}\n", "4b".repeat(32))).unwrap();
        let archive = |profile| ArchiveDescription {
            profile,
            metadata_len: 0,
            metadata: None,
            has_wrapped_key: false,
            key_url: None,
            signature: bandsaw::crypt::aea::SignatureState::None,
            root: None,
        };
        let given = parse(&["--aea-key", path.to_str().unwrap()]).unwrap();
        let keys = given.archive_keys(&archive(Profile::Symmetric)).unwrap();
        assert!(matches!(keys.key, Some(ArchiveKey::Symmetric(_))));
        std::fs::remove_file(&path).unwrap();
        assert!(
            given
                .archive_keys(&archive(Profile::SymmetricSigned))
                .is_ok()
        );
        given.wipe();
        assert!(given.archive_keys(&archive(Profile::Symmetric)).is_err());
        let others = given.archive_keys(&archive(Profile::Signed)).unwrap();
        assert!(others.key.is_none());
        // A path of 32 bytes is no key.
        let as_path = "0".repeat(32);
        let given = parse(&["--aea-key", &as_path]).unwrap();
        let error = given
            .archive_keys(&archive(Profile::Symmetric))
            .unwrap_err();
        assert_eq!(error.file(), Some(&*as_path));
    }

    #[test]
    fn options_of_one_passphrase_exclude_each_other() {
        assert!(parse(&["--passfile", "a", "--volume-passfile", "b"]).is_ok());
        assert!(parse(&["--volume-stdinpass", "--volume-passfile", "b"]).is_err());
        assert!(parse(&["--recovery-key-file", "a", "--volume-passfile", "b"]).is_err());
        assert!(parse(&["--private-key", "a", "--passenv", "b"]).is_err());
    }

    #[test]
    fn passphrases_on_standard_input_are_counted() {
        assert_eq!(
            parse(&["--stdinpass", "--volume-stdinpass"])
                .unwrap()
                .on_stdin(),
            2
        );
        assert_eq!(
            parse(&["--passfile", "a", "--volume-stdinpass"])
                .unwrap()
                .on_stdin(),
            1
        );
        assert_eq!(parse(&[]).unwrap().on_stdin(), 0);
    }
}
