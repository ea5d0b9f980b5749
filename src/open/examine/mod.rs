//! Checks of the layers that [`open`](super::open) stacks, one by one. Damage to one does not end
//! the check as long as the next can still be determined.

mod container;
mod disk;

use std::path::Path;
use std::sync::Arc;

use self::container::{examine_file, examine_folder};
use self::disk::examine_disk;
use super::container::lock_file;
use super::opening::Opening;
use super::remote::{self, RemoteTarget};
use super::{Contents, LAYER, OpenOptions, StoredImage, interrupted, look_at};
use crate::container::{Orphan, asif};
use crate::device::{Access, BlockDevice, ReadOnlyView};
use crate::problem::{Problem, Problems, Severity};
use crate::progress::Progress;
use crate::store::Local;
use crate::{Error, Kind, Reason, Result};

/// The result of checking a layer.
#[derive(Debug)]
pub enum LayerVerdict {
    /// All of it was checked.
    Checked,
    /// Damage ended the check; it is among the problems.
    Broken,
    /// It could not be checked, and so nothing above it either.
    Unknown(Error),
    /// No check exists for layers of this kind.
    Skipped,
}

/// The verdict on an image as a whole.
#[derive(Debug)]
pub enum Conclusion {
    /// Damage was found.
    Damaged,
    /// No damage was found, but a layer could not be checked: [`Kind::WrongKey`] if a key is
    /// missing or wrong, otherwise a layer is of an unknown kind.
    Unknown(Error),
    /// Warnings were found, and every layer was checked that can be.
    Warned,
    /// Nothing is wrong with the container and the partition map; all contents belong to file
    /// systems or other uses that are not checked: unsupported ones, and HFS.
    Unchecked,
    /// All that can be checked was checked, and nothing is wrong. Unsupported file systems beside
    /// supported ones were not checked.
    Sound,
}

impl Conclusion {
    /// Returns the stable name for programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Unknown(_) => "unknown",
            Self::Warned => "warned",
            Self::Unchecked => "unchecked",
            Self::Sound => "sound",
        }
    }
}

/// A layer, with the result of its check.
#[derive(Debug)]
pub struct CheckedLayer {
    /// `sparse bundle`, `GPT`, `HFS+ in partition 1`, ...
    pub layer: String,
    /// The result.
    pub verdict: LayerVerdict,
}

/// The results of checking an image.
#[derive(Debug, Default)]
pub struct Examination {
    /// The layers from the bottom, as far as they can be determined.
    pub layers: Vec<CheckedLayer>,
    /// The problems found in them.
    pub problems: Problems,
    /// True if the image stores data that belongs to no part of the disk, and places that are in
    /// use have no storage: files may have lost their contents.
    pub is_in_doubt: bool,
    /// True if the map or a volume extends past the end of the image's file, which is its disk.
    is_cut_off: bool,
    /// Stored data that belongs to no part of the disk.
    orphans: Vec<Orphan>,
    /// The size of a band or chunk in bytes, if the image is divided.
    unit: Option<u64>,
    /// The image, if it is ASIF.
    asif: Option<Arc<asif::Asif>>,
    /// True if the format of the image cannot be changed in place: a compressed image or an encrypted
    /// archive, of which nothing can be repaired.
    pub is_write_once: bool,
    /// The contents of the disk, if it could be read.
    pub contents: Option<Contents>,
    /// True if the image in one file has an encryption header.
    is_encrypted: bool,
    /// True if a volume was checked here.
    has_checked_volume: bool,
    /// True if a volume was not, because its format is not checked.
    has_skipped_volume: bool,
    /// True if compressed files are decoded.
    decoding: bool,
    /// True if volumes are not checked here.
    only_outside: bool,
}

impl Examination {
    /// Returns the verdict on the image as a whole.
    pub fn conclusion(&self) -> Conclusion {
        if self.problems.count(Severity::Damage) > 0 {
            return Conclusion::Damaged;
        }
        let unknown = || {
            self.layers
                .iter()
                .filter_map(|judged| match &judged.verdict {
                    LayerVerdict::Unknown(error) => Some(error),
                    _ => None,
                })
        };
        // The user can provide a missing key, but not the support of a format.
        let locked = unknown().find(|error| error.kind() == Kind::WrongKey);
        match locked.or_else(|| unknown().next()) {
            Some(error) => Conclusion::Unknown(error.duplicate()),
            None if self.problems.count(Severity::Warning) > 0 => Conclusion::Warned,
            None if matches!(self.contents, Some(Contents::Foreign(_))) => Conclusion::Unchecked,
            None if self.has_skipped_volume && !self.has_checked_volume => Conclusion::Unchecked,
            None => Conclusion::Sound,
        }
    }

    /// Returns true if the end of the image is missing, which no repair brings back.
    pub fn is_truncated(&self) -> bool {
        let is_cut_off = |problem: &Problem| {
            problem.severity == Severity::Damage
                && problem.error.reason() == Some(Reason::Truncated)
        };
        self.is_cut_off || self.problems.listed().iter().any(is_cut_off)
    }

    /// Adds the problems of volumes that were checked elsewhere, and the reasons why parts of them
    /// were not checked.
    pub(crate) fn add_volumes(
        &mut self,
        problems: impl IntoIterator<Item = Problem>,
        unchecked: impl IntoIterator<Item = Error>,
    ) {
        for Problem { severity, error } in problems {
            self.problems.add(severity, error);
        }
        self.layers
            .extend(unchecked.into_iter().map(|error| CheckedLayer {
                layer: "volume".to_owned(),
                verdict: LayerVerdict::Unknown(error),
            }));
    }

    /// Records that files may have lost data, with the reason.
    fn doubt(&mut self, message: String) {
        self.is_in_doubt = true;
        self.problems
            .add(Severity::Warning, Error::new(Kind::Corrupt, LAYER, message));
    }

    /// Records the result of a layer. Errors leave nothing to report: cancellation, images in use,
    /// and read errors, which are no evidence about the image.
    fn judged<T>(&mut self, layer: impl Into<String>, checked: Result<T>) -> Result<Option<T>> {
        let (verdict, value) = match checked {
            Ok(value) => (LayerVerdict::Checked, Some(value)),
            Err(error) => match error.kind() {
                Kind::Cancelled | Kind::Conflict | Kind::Io => return Err(error),
                Kind::Corrupt | Kind::OutOfRange => {
                    self.problems.add(Severity::Damage, error);
                    (LayerVerdict::Broken, None)
                }
                _ => (LayerVerdict::Unknown(error), None),
            },
        };
        self.layers.push(CheckedLayer {
            layer: layer.into(),
            verdict,
        });
        Ok(value)
    }

    /// Records the failure to open a layer, unless damage was already reported when it was checked.
    fn opened<T>(&mut self, layer: &str, opened: Result<T>) -> Result<Option<T>> {
        match opened {
            Err(error)
                if error.kind() == Kind::Corrupt && self.problems.count(Severity::Damage) > 0 =>
            {
                Ok(None)
            }
            Err(error) => self.judged(layer, Err(error)),
            Ok(value) => Ok(Some(value)),
        }
    }
}

/// Checks every layer of the image at `path`, which is opened read-only even if `options` say
/// otherwise.
pub fn examine(
    path: &Path,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Examination> {
    examine_into(Examination::default(), path, options, progress)
}

/// Like [`examine`], but also decodes every compressed file of every volume.
pub fn examine_contents(
    path: &Path,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Examination> {
    examine_into(
        Examination {
            decoding: true,
            ..Examination::default()
        },
        path,
        options,
        progress,
    )
}

/// Checks every layer of the image in `device`, like [`examine`]. `name` stands for it in errors.
pub fn examine_device(
    device: Arc<dyn BlockDevice>,
    name: &Path,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Examination> {
    examine_stored(
        name,
        StoredImage::File(Arc::new(ReadOnlyView(device))),
        Scope::All,
        options,
        progress,
    )
}

/// The layers that [`examine_stored`] checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All layers.
    All,
    /// All layers except the volumes.
    Outside,
}

/// Checks layers of these stored bytes.
pub(crate) fn examine_stored(
    path: &Path,
    stored: StoredImage,
    scope: Scope,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Examination> {
    let options = OpenOptions {
        access: Access::ReadOnly,
        ..*options
    };
    let mut found = Examination {
        only_outside: scope == Scope::Outside,
        ..Examination::default()
    };
    match stored {
        StoredImage::File(file) if !options.shadows.is_empty() => {
            let opened = Opening::new(path, &options).container(StoredImage::File(file));
            if let Some(stack) = found.opened("stack", opened)? {
                examine_disk(&stack.disk, stack.format, &options, &mut found, progress)?;
            }
        }
        StoredImage::File(file) => examine_file(path, file, &options, &mut found, progress)?,
        StoredImage::Folder(store) => examine_folder(path, store, &options, &mut found, progress)?,
    }
    found.problems.check_readable()?;
    Ok(found)
}

fn examine_into(
    mut found: Examination,
    path: &Path,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Examination> {
    let options = OpenOptions {
        access: Access::ReadOnly,
        ..*options
    };
    if let Some(message) = interrupted::refuse_or_warn(path, Access::ReadOnly)? {
        let error = Error::new(Kind::Corrupt, LAYER, message).because(Reason::RepairInterrupted);
        found.problems.add(Severity::Damage, error);
    }
    let examined = match remote::find(path, &options)? {
        Some(RemoteTarget::Folder(store, _) | RemoteTarget::Snapshot(store)) => {
            examine_folder(path, store, &options, &mut found, progress)
        }
        Some(RemoteTarget::File(file)) => examine_file(path, file, &options, &mut found, progress),
        None if look_at(path)?.is_dir() => examine_folder(
            path,
            Arc::new(Local::new(path)),
            &options,
            &mut found,
            progress,
        ),
        None => lock_file(path, Access::ReadOnly)
            .and_then(|file| examine_file(path, file, &options, &mut found, progress)),
    };
    examined
        .and_then(|()| found.problems.check_readable())
        .map_err(|error| error.in_file(path))
        .map(|()| found)
}
