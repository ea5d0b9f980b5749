//! Encryption of new volumes, and their recovery keys.

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

/// The encryption options of a new volume.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct VolumeEncryptionArgs {
    /// Encrypt the APFS volume itself, as FileVault does
    #[arg(long, help_heading = "Encryption", display_order = 716)]
    encrypt_volume: bool,
    /// Create a recovery key and write it to this new file
    ///
    /// With - the key is printed.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        requires = "encrypt_volume",
        help_heading = "Encryption",
        display_order = 717
    )]
    recovery_key_file: Option<PathBuf>,
    /// Store a hint for the passphrase, readable by everyone
    #[arg(
        long,
        value_name = "TEXT",
        requires = "encrypt_volume",
        help_heading = "Encryption",
        display_order = 718,
        hide_short_help = true
    )]
    volume_hint: Option<String>,
    #[command(flatten)]
    passphrase: VolumePassphrase,
}

/// The keys of a new volume.
#[derive(Debug)]
pub(crate) struct NewVolumeKeys {
    pub(crate) encryption: VolumeEncryption,
    recovery_key_file: Option<PathBuf>,
}

/// The recovery key of a volume that does not exist yet. If dropped, its file is removed.
#[derive(Debug)]
pub(crate) struct RecoveryKey {
    key: Secret,
    /// The file; `None` if the key is printed.
    file: Option<PathBuf>,
    kept: bool,
}

impl VolumeEncryptionArgs {
    pub(crate) fn is_wanted(&self) -> bool {
        self.encrypt_volume
    }

    /// Returns the encryption of the volume, after asking for its passphrase. `before` counts the
    /// passphrases that come first on standard input.
    pub(crate) fn choose(
        &self,
        before: usize,
        iterations: Iterations,
    ) -> Outcome<Option<NewVolumeKeys>> {
        if !self.encrypt_volume {
            return match self.passphrase.given() {
                Some(option) => Err(Failure::usage(option, "requires --encrypt-volume")),
                None => Ok(None),
            };
        }
        let passphrase = self
            .passphrase
            .choose(before)
            .map_err(|error| match error.kind() {
                Kind::WrongKey => Failure::from(error).hint(
                    "use --volume-passfile FILE, --volume-passfd N, --volume-passenv NAME or \
                       --volume-stdinpass",
                ),
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
    /// Writes the recovery key to its file before the volume is made; `None` if there is no key. A
    /// volume must never exist without the key that may be needed to open it.
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
            io::ErrorKind::AlreadyExists => Error::conflict(OPTION, "already exists"),
            _ => Error::io(OPTION, "write the recovery key", error),
        };
        write(&path, &key).map_err(|error| failed(error).in_file(&path))?;
        Ok(Some(RecoveryKey {
            key,
            file: Some(path),
            kept: false,
        }))
    }
}

/// Writes the key to a file that only its owner can read.
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
    /// Keeps the file, as the volume exists now. Returns the key if it is to be printed.
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
            // A recovery key without its volume is useless.
            let _ = fs::remove_file(path);
        }
    }
}
