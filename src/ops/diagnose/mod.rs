//! Diagnosis of images that do not open: the errors of `open`, with known causes and remedies.
//!
//! * [`content`]: files that are not images.
//! * [`volumes`]: disks that open, but have no usable volume.
//!
//! The causes by layer and kind of error are here, as the first that applies counts.

mod content;
mod volumes;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::describe::layer_facts;
use crate::device::{Access, BlockDevice, BlockDeviceExt};
use crate::error::ImagePart;
use crate::open::{self, Conclusion, Examination, Layer, OpenOptions, remote};
use crate::problem::Severity;
use crate::progress::Progress;
use crate::store::{LocalFile, Open};
use crate::{Error, Kind, Reason, Result, platform};

/// Result of a diagnosis.
#[derive(Debug)]
pub struct Diagnosis {
    /// The layers from the bottom as far as they open: a name and a sentence each.
    pub layers: Vec<(String, String)>,
    /// The first problem. `None`: nothing is wrong, and the disk has a volume.
    pub cause: Option<Cause>,
    /// The check of the image. `None`: it cannot be checked, for example because it is missing.
    pub check: Option<Examination>,
}

/// The first problem of an image.
#[derive(Debug)]
pub struct Cause {
    /// A stable name for programs: `cut-short`, `web-page`, `passphrase-missing`, ...
    pub code: &'static str,
    /// The layer in which it was found: `file`, `encryption`, `UDIF`, `partition map`, `volume`,
    /// ...
    pub layer: &'static str,
    /// The problem, in a sentence without a subject: `is a web page, ...`.
    pub what: String,
    /// Remedies, one sentence each; the most promising first.
    pub advice: Vec<String>,
    /// The error of opening or checking, if it failed.
    pub error: Option<Error>,
    /// True if the image opens nevertheless and nothing is damaged or unknown, except one of two
    /// lists.
    pub opens: bool,
}

impl Cause {
    fn new(code: &'static str, layer: &'static str, what: impl Into<String>) -> Self {
        Self {
            code,
            layer,
            what: what.into(),
            advice: Vec::new(),
            error: None,
            opens: false,
        }
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    fn of(mut self, error: Error) -> Self {
        self.error = Some(error);
        self
    }
}

/// Opens the image at `path` layer by layer, read-only, and returns the first problem.
///
/// Returns an error only if data needed for the diagnosis cannot be read. An image that does not
/// open is not an error.
pub fn diagnose(
    path: &Path,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Diagnosis> {
    if let Some(cause) = path_cause(path) {
        return Ok(Diagnosis {
            layers: Vec::new(),
            cause: Some(cause),
            check: None,
        });
    }
    let (layers, stopped) = open::trace(path, options);
    let (cause, check) = match stopped {
        Some(error) => {
            // A check of an unreadable file finds nothing.
            let is_readable = !matches!(error.kind(), Kind::Conflict | Kind::Io | Kind::NotFound);
            let check = is_readable.then(|| open::examine(path, options, progress));
            (
                Some(of_error(path, &layers, error)?),
                check.and_then(Result::ok),
            )
        }
        None => {
            let check = open::examine(path, options, progress)?;
            let cause = opened(path, &layers, &check)?.map(|cause| Cause {
                opens: cause.error.is_none(),
                ..cause
            });
            (cause, Some(check))
        }
    };
    let cause = match open::interrupted::refuse_or_warn(path, Access::ReadOnly)? {
        Some(message) => Some(interrupted(path, message)),
        None => cause,
    };
    // A file of another type is not a disk, even if it was opened as a raw one.
    let is_disk = cause.as_ref().is_none_or(|cause| cause.layer != "file");
    let shown = layers
        .iter()
        .filter(|layer| is_disk || (layer.raw().is_none() && layer.volumes().is_none()));
    Ok(Diagnosis {
        layers: shown.flat_map(layer_facts).collect(),
        cause,
        check,
    })
}

/// Returns the cause for an image whose repair was interrupted, which comes before all others.
fn interrupted(path: &Path, message: String) -> Cause {
    let error = Error::new(Kind::Corrupt, "image", message)
        .because(Reason::RepairInterrupted)
        .in_file(path);
    Cause::new(
        "repair-interrupted",
        "file",
        "is as an interrupted repair left it",
    )
    .advise(format!("`bandsaw repair --undo {}`", path.display()))
    .of(error)
}

/// Returns the cause for an image that opens. It has an error if the check found damage or
/// something unknown.
fn opened(path: &Path, layers: &[Layer], check: &Examination) -> Result<Option<Cause>> {
    if let Some(cause) = volumes::damaged(path, layers)? {
        return Ok(Some(cause));
    }
    Ok(match check.conclusion() {
        Conclusion::Damaged => damaged_list(path, layers)
            .filter(|_| check.problems.count(Severity::Damage) <= 1)
            .or_else(|| first(path, check, Severity::Damage)),
        Conclusion::Unknown(error) if error.kind() == Kind::WrongKey => {
            Some(locked(&error).of(error.in_file(path)))
        }
        Conclusion::Unknown(error) => Some(
            volumes::unusable(path, layers, check)
                .unwrap_or_else(|| structure(&error, &path.display().to_string()))
                .of(error.in_file(path)),
        ),
        Conclusion::Warned => {
            volumes::unusable(path, layers, check).or_else(|| first(path, check, Severity::Warning))
        }
        Conclusion::Unchecked | Conclusion::Sound => volumes::unusable(path, layers, check)
            .or_else(|| damaged_list(path, layers))
            .or_else(|| volumes::misnamed(path, layers)),
    })
}

/// Returns the cause by the first problem of this severity.
fn first(path: &Path, check: &Examination, severity: Severity) -> Option<Cause> {
    let problems = check.problems.listed();
    let first = problems
        .iter()
        .find(|problem| problem.severity == severity)?;
    let (code, layer) = damage_in(first.error.image_part());
    let count = check.problems.count(severity);
    let places = if count == 1 { "place" } else { "places" };
    let many = match severity {
        Severity::Damage => "is damaged in",
        _ => "opens, with warnings about",
    };
    let what = format!("{many} {count} {places}, the first: {}", first.error);
    let cause = match severity {
        Severity::Damage => {
            let error = Error::new(Kind::Corrupt, "diagnose", what.clone()).in_file(path);
            Cause::new(code, layer, what).of(error)
        }
        _ => Cause::new("warnings", layer, what),
    };
    Some(cause.advise(format!(
        "run `bandsaw check {}` to list all of them",
        path.display()
    )))
}

/// Returns the code of damage in a part of an image, and the display name of that part.
fn damage_in(part: ImagePart) -> (&'static str, &'static str) {
    match part {
        ImagePart::PartitionMap => ("partition-map-damaged", named(part)),
        ImagePart::Apfs | ImagePart::Volume => ("volume-damaged", named(part)),
        ImagePart::SparseBundle => ("bundle-damaged", named(part)),
        ImagePart::Encryption => ("encryption-damaged", named(part)),
        _ => ("container-damaged", named(part)),
    }
}

/// Returns the cause for a bundle that opens with one of its lists only.
fn damaged_list(path: &Path, layers: &[Layer]) -> Option<Cause> {
    let bundle = layers.iter().find_map(Layer::bundle)?;
    let warning = bundle.damaged_list()?;
    let name = path.display();
    let cause = Cause::new(
        "list-damaged",
        "sparse bundle",
        format!("opens, but one of its lists is damaged: {warning}"),
    );
    Some(cause.advise(format!(
        "run `bandsaw repair --dry-run {name}` to see whether the list can be restored"
    )))
}

/// Returns the cause for a path that does not exist or cannot be an image.
fn path_cause(path: &Path) -> Option<Cause> {
    if remote::is_elsewhere(path) {
        return None; // opening it says what is wrong
    }
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(missing(path)),
        Err(error) => return Some(unreadable(Error::io("file", "read metadata", error))),
    };
    if meta.is_file() && meta.len() == 0 {
        let empty = Cause::new("empty", "file", "is empty: the file has no bytes");
        return Some(
            content::unfinished(path)
                .unwrap_or(empty)
                .advise("download or copy it again"),
        );
    }
    if !meta.is_file() && !meta.is_dir() && !platform::is_disk(meta.file_type()) {
        return Some(Cause::new(
            "no-image",
            "file",
            "is neither a file nor a folder",
        ));
    }
    None
}

fn missing(path: &Path) -> Cause {
    if fs::symlink_metadata(path).is_ok() {
        return Cause::new(
            "missing",
            "file",
            "is a link to something that does not exist",
        );
    }
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let placeholder = path.with_file_name(format!(".{name}.icloud"));
    if placeholder.exists() {
        return Cause::new("missing", "file", "is in iCloud Drive and not on this disk")
            .advise("download it first: in the Finder, or with `brctl download`");
    }
    Cause::new("missing", "file", "does not exist").advise("check the spelling and the folder")
}

fn unreadable(error: Error) -> Cause {
    let denied = error.io_kind() == Some(ErrorKind::PermissionDenied);
    let cause = if denied {
        Cause::new("not-permitted", "file", "cannot be read: permission denied")
            .advise("check the owner and permissions of the file: `ls -l`")
            .advise("on macOS, give the terminal access to the folder in the privacy settings")
    } else {
        Cause::new(
            "read-error",
            "file",
            "cannot be read: I/O error of the disk or server",
        )
        .advise("copy the readable part with `ddrescue`, then diagnose the copy")
    };
    cause.of(error)
}

/// Returns the cause of an error of opening. `layers` were opened before it.
fn of_error(path: &Path, layers: &[Layer], error: Error) -> Result<Cause> {
    let name = path.display();
    let cause = match error.kind() {
        Kind::WrongKey => locked(&error),
        Kind::Conflict => Cause::new("in-use", "file", "is in use by another program").advise(
            "eject or close it there first: two programs must not change an image at the same time",
        ),
        Kind::Io => return Ok(unreadable(error)),
        Kind::Corrupt | Kind::OutOfRange | Kind::Unsupported if is_only_file(layers) => {
            match of_content(path)? {
                Some(cause) => cause,
                None => structure(&error, &name.to_string()),
            }
        }
        _ => structure(&error, &name.to_string()),
    };
    Ok(cause.of(error))
}

fn locked(error: &Error) -> Cause {
    let of_archive = |code, is| Cause::new(code, "encryption", is);
    match error.reason() {
        Some(Reason::ArchiveKeyNeeded) => {
            return of_archive(
                "key-missing",
                "is an encrypted archive, and its key was not given",
            )
            .advise("give it with --aea-key FILE, as base64 or hexadecimal digits");
        }
        Some(Reason::ArchivePrivateKeyNeeded) => {
            return of_archive(
                "private-key-missing",
                "is an archive that is encrypted for a private key, which was not given",
            )
            .advise("give it with --aea-private-key FILE");
        }
        Some(Reason::SignerKeyNeeded) => {
            let is = "is an encrypted and signed archive, and the public key of its signer was not given";
            return of_archive("public-key-missing", is).advise("give it with --aea-signer FILE");
        }
        Some(Reason::WrongArchiveKey) => {
            let is =
                "is an encrypted or signed archive, and the key is wrong or its header damaged";
            return of_archive("key-wrong", is)
                .advise("compare the file with its source: another copy has another key");
        }
        _ => {}
    }
    let given = !matches!(
        error.reason(),
        Some(Reason::PassphraseNeeded | Reason::PrivateKeyNeeded)
    );
    if given {
        return Cause::new(
            "passphrase-wrong",
            "encryption",
            "is encrypted, and the passphrase is wrong",
        )
        .advise(
            "check the newline: --stdinpass reads everything up to the end, --passfile \
                 ignores a final newline",
        )
        .advise(
            "characters outside ASCII may have another Unicode form where the image was created",
        );
    }
    Cause::new(
        "passphrase-missing",
        "encryption",
        "is encrypted, and no passphrase was given",
    )
    .advise("give it with --passfile FILE, --passfd N, --passenv NAME or --stdinpass")
}

/// Returns true if no layer above the file was recognized, so that the file may be of any type.
fn is_only_file(layers: &[Layer]) -> bool {
    layers
        .iter()
        .all(|layer| layer.is_file() || layer.volumes().is_some_and(<[_]>::is_empty))
}

fn of_content(path: &Path) -> Result<Option<Cause>> {
    if !path.is_file() {
        return Ok(None);
    }
    let Some(file) = LocalFile::open(path, Open::Read)? else {
        return Ok(None);
    };
    let recognized = content::recognize(path, &file)?;
    if recognized.is_none()
        && crate::device::regions::is_zero(
            &file,
            file.info().len.saturating_sub(1 << 20)..file.info().len,
        )?
    {
        let zeros = "ends with a MiB of zeros: the file was preallocated but not written to the \
                     end";
        return Ok(Some(content::cut_short(zeros)));
    }
    let recognized = recognized.or_else(|| content::unfinished(path));
    if recognized.is_none() {
        let head = file.read_vec(0, file.info().len.min(64 << 10) as usize)?;
        if content::look_random(&head) {
            let what = "is not a disk image that is known, and its bytes look random, as encrypted ones do";
            let name = path.display();
            return Ok(Some(
                Cause::new("unknown", "disk", what)
                    .advise("if it is a raw disk, open it with `--image-format udrw`")
                    .advise(format!(
                        "if it is a VeraCrypt or TrueCrypt volume, which no signature tells: `veracrypt {name}`, or \
                         `cryptsetup open --type tcrypt --veracrypt {name} NAME`"
                    )),
            ));
        }
    }
    Ok(recognized)
}

/// Returns the cause for a damaged structure of a layer, if the file is not of another type.
fn structure(error: &Error, name: &str) -> Cause {
    let what = |text: &str| format!("{text}: {}", error.message());
    let check = format!("run `bandsaw check {name}` to list all problems by layer");
    match (error.image_part(), error.kind()) {
        (_, Kind::Unsupported) if error.reason() == Some(Reason::UnknownFormat) => {
            let what = "is not a disk image: no known container, partition map or file system";
            let encrypted = "it may be encrypted by a program without a signature (VeraCrypt, for \
                             example)";
            Cause::new("unknown", "disk", what)
                .advise("if it is a raw disk, open it with `--image-format udrw`")
                .advise(encrypted)
        }
        (_, Kind::Unsupported) if error.reason() == Some(Reason::NotABundle) => {
            let what = "is not a sparse bundle: the folder has neither Info.plist nor Info.bckup";
            let list =
                "if it was a bundle, copy Info.plist from one of the same size and band size";
            Cause::new("no-image", "folder", what)
                .advise("name the bundle itself, not its parent folder")
                .advise(list)
        }
        (ImagePart::Ewf, Kind::Invalid | Kind::NotFound) => Cause::new(
            "one-part",
            named(ImagePart::Ewf),
            what("is one of several files"),
        )
        .advise("put all files (.E01, .E02, ...) in one folder and open the first"),
        (ImagePart::Ndif, Kind::NotFound) => {
            let what = "is an NDIF image without its resource fork";
            Cause::new("resource-fork-missing", named(ImagePart::Ndif), what).advise(
                "copy it with its fork: as a MacBinary file, or with the file `._` beside it",
            )
        }
        (
            part @ (ImagePart::Qcow2 | ImagePart::Vhd | ImagePart::Vhdx | ImagePart::Vmdk),
            Kind::Unsupported,
        ) => Cause::new(
            "other-system",
            named(part),
            what("is of an unsupported kind"),
        )
        .advise(format!(
            "convert it to a raw image: `qemu-img convert -O raw {name} disk.img`"
        )),
        (ImagePart::Udif, Kind::Invalid | Kind::NotFound) => {
            Cause::new("one-part", "UDIF", what("is one of several files"))
                .advise("put all parts (.dmg, .002.dmgpart, ...) in one folder and open the first")
        }
        (_, Kind::NotFound) => Cause::new("layer-missing", "stack", what("requires another image"))
            .advise("open it together with the images below it"),
        (part, Kind::Unsupported) => Cause::new(
            "not-supported",
            named(part),
            what("is of an unsupported kind"),
        )
        .advise("convert it on a Mac: `hdiutil convert -format UDRW`"),
        (part, Kind::Limit) => Cause::new(
            "not-supported",
            named(part),
            what("exceeds a limit of this version"),
        )
        .advise(check),
        (ImagePart::PartitionMap, _) => match error.reason() {
            Some(Reason::Truncated) => {
                let ends = "is truncated: its partitions are past the end of the file";
                content::cut_short(ends)
                    .in_layer("partition map")
                    .advise(check)
            }
            _ => Cause::new(
                "partition-map-damaged",
                "partition map",
                what("has a damaged partition map"),
            )
            .advise(format!(
                "run `bandsaw repair --dry-run {name}` to see whether it can be repaired"
            ))
            .advise(check),
        },
        (ImagePart::SparseBundle, _) => Cause::new(
            "bundle-damaged",
            "sparse bundle",
            what("is a damaged sparse bundle"),
        )
        .advise(format!(
            "run `bandsaw repair --dry-run {name}` to see what can be repaired"
        ))
        .advise(check),
        (ImagePart::Encryption, _) => Cause::new(
            "encryption-damaged",
            "encryption",
            what("has a damaged encryption header, or is truncated"),
        )
        .advise("get another copy: nothing can be decrypted without an intact header")
        .advise(check),
        (part, _) => {
            let (code, name) = damage_in(part);
            Cause::new(code, name, what("is damaged"))
                .advise("download or copy it again, and compare its size with that of the original")
                .advise(check)
        }
    }
}

/// Returns the display name of a part of an image.
fn named(part: ImagePart) -> &'static str {
    match part {
        ImagePart::Encryption => "encryption",
        ImagePart::SparseBundle => "sparse bundle",
        ImagePart::SparseImage => "sparse image",
        ImagePart::Asif => "ASIF",
        ImagePart::Udif => "UDIF",
        ImagePart::DiskCopy => "Disk Copy 4.2",
        ImagePart::Dart => "DART",
        ImagePart::Ndif => "NDIF",
        ImagePart::Qcow2 => "QCOW2",
        ImagePart::Vhd => "VHD",
        ImagePart::Vhdx => "VHDX",
        ImagePart::Vmdk => "VMDK",
        ImagePart::Ewf => "EWF",
        ImagePart::PartitionMap => "partition map",
        ImagePart::Apfs | ImagePart::Volume => "volume",
        _ => "container",
    }
}

impl Cause {
    fn in_layer(mut self, layer: &'static str) -> Self {
        self.layer = layer;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_named_after_the_part_of_the_image() {
        for (layer, code, name) in [
            ("gpt header", "partition-map-damaged", "partition map"),
            (
                "apple partition map",
                "partition-map-damaged",
                "partition map",
            ),
            ("hfs+ catalog", "volume-damaged", "volume"),
            ("apfs object map", "volume-damaged", "volume"),
            ("fat table", "volume-damaged", "volume"),
            ("iso 9660", "volume-damaged", "volume"),
            ("compressed file", "volume-damaged", "volume"),
            ("sparse bundle", "bundle-damaged", "sparse bundle"),
            ("key entry", "encryption-damaged", "encryption"),
            ("udif block table", "container-damaged", "UDIF"),
            ("asif", "container-damaged", "ASIF"),
            ("sparse image", "container-damaged", "sparse image"),
            ("stack", "container-damaged", "container"),
        ] {
            let part = Error::corrupt(layer, 0, "odd").image_part();
            assert_eq!(damage_in(part), (code, name), "{layer}");
        }
    }

    #[test]
    fn a_damaged_structure_is_a_cause() {
        let cut = Error::corrupt("gpt header", 0, "odd").because(Reason::Truncated);
        let unknown = Error::unsupported("image", "odd").because(Reason::UnknownFormat);
        let no_bundle = Error::unsupported("image", "odd").because(Reason::NotABundle);
        for (error, code, layer) in [
            (unknown, "unknown", "disk"),
            (no_bundle, "no-image", "folder"),
            (Error::invalid("udif set", "odd"), "one-part", "UDIF"),
            (Error::invalid("udif", "odd"), "one-part", "UDIF"),
            (Error::limit("udif", "odd"), "not-supported", "UDIF"),
            (Error::not_found("asif", "a"), "layer-missing", "stack"),
            (Error::unsupported("asif", "odd"), "not-supported", "ASIF"),
            (Error::unsupported("hfs+", "odd"), "not-supported", "volume"),
            (Error::limit("gpt", "odd"), "not-supported", "partition map"),
            (cut, "cut-short", "partition map"),
            (
                Error::corrupt("mbr", 0, "odd"),
                "partition-map-damaged",
                "partition map",
            ),
            (
                Error::corrupt("sparse bundle", 0, "odd"),
                "bundle-damaged",
                "sparse bundle",
            ),
            (
                Error::corrupt("encryption header", 0, "odd"),
                "encryption-damaged",
                "encryption",
            ),
            (
                Error::corrupt("udif trailer", 0, "odd"),
                "container-damaged",
                "UDIF",
            ),
        ] {
            let cause = structure(&error, "a.img");
            assert_eq!((cause.code, cause.layer), (code, layer), "{error}");
            assert!(!cause.advice.is_empty(), "{error}");
        }
    }

    #[test]
    fn each_missing_key_has_its_advice() {
        for (reason, code, option) in [
            (Reason::PassphraseNeeded, "passphrase-missing", "--passfile"),
            (Reason::ArchiveKeyNeeded, "key-missing", "--aea-key"),
            (
                Reason::ArchivePrivateKeyNeeded,
                "private-key-missing",
                "--aea-private-key",
            ),
            (
                Reason::SignerKeyNeeded,
                "public-key-missing",
                "--aea-signer",
            ),
            (Reason::WrongArchiveKey, "key-wrong", "another copy"),
        ] {
            let cause = locked(&Error::new(Kind::WrongKey, "x", "odd").because(reason));
            assert_eq!(cause.code, code);
            assert!(cause.advice[0].contains(option), "{:?}", cause.advice);
        }
        let wrong = locked(&Error::new(Kind::WrongKey, "x", "odd"));
        assert_eq!(wrong.code, "passphrase-wrong");
    }
}
