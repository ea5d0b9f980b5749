//! The hints for errors that mean the same for every verb.

use std::borrow::Cow;
use std::io;

use bandsaw::{Error, Kind, Reason};

use crate::passphrase;

/// Returns the default hint for a cause or kind of error.
pub(super) fn hint(error: &Error) -> Option<Cow<'static, str>> {
    if let Some(hint) = error.reason().and_then(|reason| hint_of(reason, error)) {
        return Some(hint);
    }
    let hint = match error.kind() {
        Kind::Io => match error.io_kind()? {
            io::ErrorKind::PermissionDenied => Some("check who owns the file and its permissions"),
            io::ErrorKind::StorageFull => Some("the disk that holds the target is full"),
            io::ErrorKind::ReadOnlyFilesystem => Some(
                "the disk that holds the file is mounted read-only: use a copy on another disk",
            ),
            io::ErrorKind::FileTooLarge => Some(
                "raise the limit on the size of files (`ulimit -f`), or use another file system",
            ),
            _ => None,
        },
        Kind::WrongKey => Some(passphrase::HINT),
        _ => None,
    };
    hint.map(Cow::Borrowed)
}

/// Returns the default hint for the cause of an error.
fn hint_of(reason: Reason, error: &Error) -> Option<Cow<'static, str>> {
    let image = error.file().unwrap_or("IMAGE");
    let hint = match reason {
        Reason::UnknownFormat => format!(
            "run `bandsaw diagnose {image}` to examine it, or use `--image-format udrw` to open it \
             as a raw disk"
        ),
        Reason::UnknownContents => {
            format!("run `bandsaw diagnose {image}` to see what was recognized")
        }
        Reason::NotABundle => format!(
            "name an image in the folder; `bandsaw create NEW.dmg --from {image}` makes an image \
             of the folder"
        ),
        Reason::Truncated => format!(
            "copy the image again from its source; `bandsaw diagnose {image}` shows what is missing"
        ),
        Reason::PrivateKeyNeeded => "use --private-key FILE with the key of a certificate".into(),
        Reason::ArchiveKeyNeeded => {
            "use --aea-key FILE with the key, as base64 or hexadecimal digits".into()
        }
        Reason::ArchivePrivateKeyNeeded => {
            "use --aea-private-key FILE with the private key; --fetch-key fetches that of system \
             software"
                .into()
        }
        Reason::SignerKeyNeeded => "use --aea-signer FILE with the public key of the signer".into(),
        Reason::WrongArchiveKey => {
            "use --aea-key FILE or --aea-private-key FILE for another key, --aea-signer FILE for \
             another public key"
                .into()
        }
        Reason::VolumeLocked | Reason::WrongVolumeKey => {
            return Some(passphrase::VOLUME_HINT.into());
        }
        Reason::Signed => "use --remove-signature to continue without the signature".into(),
        Reason::InUse => "end the program that uses it first".into(),
        Reason::DamagedVolume => format!(
            "run `bandsaw check {image}` to list the damage, and `bandsaw repair {image}` to \
             repair it"
        ),
        Reason::RepairInterrupted => format!(
            "run `bandsaw repair --undo {image}` to restore the image, or `bandsaw repair {image}` \
             to restore and then repair it"
        ),
        Reason::PartialExists => "resume it with the same source and options, or remove it".into(),
        Reason::KeysChanged => format!(
            "run `bandsaw passwd list {image}` to see the key entries, then change a passphrase \
             again to remove the old ones"
        ),
        Reason::NoVolumes | Reason::NoSuchVolume => {
            format!("run `bandsaw info {image}` to see its contents")
        }
        Reason::NoSuchSnapshot => match error.file().and_then(|image| image.rsplit_once('@')) {
            Some((bundle, _)) => {
                format!("run `bandsaw snapshot list {bundle}` to list the snapshots")
            }
            None => return None,
        },
        Reason::CaseIgnored => "create a case-sensitive volume (--fs apfs-case-sensitive or --fs \
                                hfsx), or rename one of the two"
            .into(),
        Reason::SameName => "rename one of the two".into(),
        Reason::NameTooLong => "rename it first".into(),
        Reason::NoSuchState => "run `bandsaw tm states BUNDLE` to list the states".into(),
        Reason::OnBattery => "use --battery-allowed to run on battery power".into(),
        // Verbs know the options that help.
        _ => return None,
    };
    Some(hint.into())
}
