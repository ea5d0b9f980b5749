//! How a verb encrypts the volume that it makes, and what becomes of its recovery key.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bandsaw::crypt::Secret;
use bandsaw::fs::{VolumeEncryption, recovery_key};
use bandsaw::{Error, Kind};
use clap::{Args, ValueHint};

use crate::failure::{Failure, Outcome};
use crate::passphrase::{Iterations, VolumePassphrase};

/// How a new volume is encrypted, if it is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct EncryptingVolume {
    /// Encrypt the volume itself, as FileVault does; of APFS only
    #[arg(long, help_heading = "Encrypted volumes", display_order = 816)]
    encrypt_volume: bool,
    /// Let a recovery key open the volume, too, and write it to this new file; - shows it
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        requires = "encrypt_volume",
        help_heading = "Encrypted volumes",
        display_order = 817
    )]
    recovery_key_file: Option<PathBuf>,
    /// What reminds of the volume's passphrase; anybody can read it
    #[arg(
        long,
        value_name = "TEXT",
        requires = "encrypt_volume",
        help_heading = "Encrypted volumes",
        display_order = 818
    )]
    volume_hint: Option<String>,
    #[command(flatten)]
    passphrase: VolumePassphrase,
}

/// What is going to open a new volume.
#[derive(Debug)]
pub(crate) struct NewVolumeKeys {
    pub(crate) encryption: VolumeEncryption,
    recovery_key_file: Option<PathBuf>,
}

/// A recovery key for which there is no volume yet. Dropped, its file is removed.
#[derive(Debug)]
pub(crate) struct RecoveryKey {
    key: Secret,
    /// `None`: it is shown.
    file: Option<PathBuf>,
    kept: bool,
}

impl EncryptingVolume {
    pub(crate) fn is_wanted(&self) -> bool {
        self.encrypt_volume
    }

    /// How the volume is to be encrypted, with the passphrase asked for; `before` are on standard
    /// input before it.
    pub(crate) fn choose(
        &self,
        before: usize,
        iterations: Iterations,
    ) -> Outcome<Option<NewVolumeKeys>> {
        if !self.encrypt_volume {
            return match self.passphrase.given() {
                Some(option) => Err(Failure::usage(
                    option,
                    "means nothing without --encrypt-volume",
                )),
                None => Ok(None),
            };
        }
        let passphrase = self.passphrase.choose(before).map_err(|error| match error.kind() {
            Kind::WrongKey => Failure::from(error)
                .hint("it is read by --volume-passfile FILE, --volume-passfd N, --volume-passenv NAME or --volume-stdinpass"),
            _ => error.into(),
        })?;
        let recovery_key = self
            .recovery_key_file
            .as_ref()
            .map(|_| recovery_key())
            .transpose()?;
        let (hint, iterations) = (self.volume_hint.clone(), iterations.count());
        let encryption = VolumeEncryption {
            passphrase,
            recovery_key,
            hint,
            iterations,
        };
        Ok(Some(NewVolumeKeys {
            encryption,
            recovery_key_file: self.recovery_key_file.clone(),
        }))
    }
}

impl NewVolumeKeys {
    /// Writes the recovery key to its file before there is a volume that only it may open one day;
    /// `None` if there is none.
    pub(crate) fn store_recovery_key(self) -> Outcome<Option<RecoveryKey>> {
        let (Some(key), Some(path)) = (self.encryption.recovery_key, self.recovery_key_file) else {
            return Ok(None);
        };
        if path.as_os_str() == "-" {
            return Ok(Some(RecoveryKey {
                key,
                file: None,
                kept: false,
            }));
        }
        const OPTION: &str = "--recovery-key-file";
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::new(
                Kind::Conflict,
                OPTION,
                "exists already, and is not overwritten",
            ),
            _ => Error::io(OPTION, "the recovery key cannot be written", error),
        };
        write(&path, &key).map_err(|error| failed(error).in_file(&path))?;
        Ok(Some(RecoveryKey {
            key,
            file: Some(path),
            kept: false,
        }))
    }
}

/// Nobody but its owner reads the file.
fn write(path: &Path, key: &Secret) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let written = file
        .write_all(key)
        .and_then(|()| file.write_all(b"\n"))
        .and_then(|()| file.sync_all());
    written.inspect_err(|_| drop(fs::remove_file(path)))
}

impl RecoveryKey {
    /// The volume is there. Returns the key if it is to be shown.
    pub(crate) fn keep(mut self) -> Option<String> {
        self.kept = true;
        self.file
            .is_none()
            .then(|| String::from_utf8_lossy(&self.key).into_owned())
    }
}

impl Drop for RecoveryKey {
    fn drop(&mut self) {
        if let Some(path) = self.file.as_ref().filter(|_| !self.kept) {
            // Without its volume it opens nothing.
            let _ = fs::remove_file(path);
        }
    }
}
