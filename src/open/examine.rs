//! Checks of the layers that [`open`](super::open) stacks, one by one. Damage to one does not end
//! the check as long as the next can still be determined.

use std::path::Path;
use std::sync::Arc;

use super::apfs::VolumeQuery;
use super::container::{detect_container, lock_file, stands_alone};
use super::opening::Opening;
use super::remote::{self, RemoteTarget};
use super::{
    Contents, LAYER, Layer, OpenOptions, StoredImage, Volume, asif_directories, contents, disk,
    gate, interrupted, logical_disk, look_at, unstored,
};
use crate::container::raw::Raw;
use crate::container::udif::{self, SegmentPart};
use crate::container::{ContainerKind, Format, Orphan, asif, sparsebundle, sparseimage};
use crate::crypt;
use crate::device::{Access, BlockDevice, ReadOnlyView};
use crate::fs::decoded;
use crate::partition::{self, Map};
use crate::problem::{Problem, Problems, Severity};
use crate::progress::Progress;
use crate::store::{Local, Store};
use crate::{Error, Kind, Reason, Result};

/// The layer name of an encryption header.
const ENCRYPTION: &str = "encryption header";

/// The result of checking a layer.
#[derive(Debug)]
pub enum Verdict {
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
    /// systems or other uses that are not checked.
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
    pub verdict: Verdict,
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
    /// Stored data that belongs to no part of the disk.
    orphans: Vec<Orphan>,
    /// The image, if it is ASIF.
    asif: Option<Arc<asif::Asif>>,
    /// The contents of the disk, if it could be read.
    pub contents: Option<Contents>,
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
                    Verdict::Unknown(error) => Some(error),
                    _ => None,
                })
        };
        let locked = unknown().find(|error| error.kind() == Kind::WrongKey);
        match locked.or_else(|| unknown().next()) {
            Some(error) => Conclusion::Unknown(error.duplicate()),
            None if self.problems.count(Severity::Warning) > 0 => Conclusion::Warned,
            None if matches!(self.contents, Some(Contents::Foreign(_))) => Conclusion::Unchecked,
            None => Conclusion::Sound,
        }
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
                verdict: Verdict::Unknown(error),
            }));
    }

    /// Records the result of a layer. Errors leave nothing to report: cancellation, images in use,
    /// and read errors, which tell nothing about the image.
    fn judged<T>(&mut self, layer: impl Into<String>, checked: Result<T>) -> Result<Option<T>> {
        let (verdict, value) = match checked {
            Ok(value) => (Verdict::Checked, Some(value)),
            Err(error) => match error.kind() {
                Kind::Cancelled | Kind::Conflict | Kind::Io => return Err(error),
                Kind::Corrupt | Kind::OutOfRange => {
                    self.problems.add(Severity::Damage, error);
                    (Verdict::Broken, None)
                }
                _ => (Verdict::Unknown(error), None),
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
    if let Some(message) = interrupted::check(path, Access::ReadOnly)? {
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

fn examine_folder(
    path: &Path,
    store: Arc<dyn Store>,
    options: &OpenOptions<'_>,
    found: &mut Examination,
    progress: &dyn Progress,
) -> Result<()> {
    if !sparsebundle::is_bundle(&*store)? {
        let opened = Opening::new(path, options).bundle(store, None).map(drop);
        return found.judged("folder", opened).map(drop);
    }
    let checked = sparsebundle::check(&*store, &mut found.problems, progress);
    if found.judged("sparse bundle", checked)?.is_none() {
        return Ok(());
    }
    let mut opening = Opening::new(path, options);
    let opened = opening.bundle(store, None);
    match found.opened("disk", opened)? {
        Some(opened) => {
            if let Some(bundle) = opening.layers.iter().find_map(Layer::bundle)
                && !bundle.is_between()
                && found.problems.count(Severity::Warning) > 0
            {
                found.orphans = bundle.orphans(progress)?;
            }
            if let Some(store) = opened.store
                && found.problems.count(Severity::Damage) == 0
                && let Some(damage) = gate::wrong_band_size(path, &store, options)?
            {
                found.problems.add(Severity::Damage, damage);
            }
            examine_shown(path, &opened.disk, Format::Udsb, options, found, progress)
        }
        None => Ok(()),
    }
}

fn examine_file(
    path: &Path,
    file: Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
    found: &mut Examination,
    progress: &dyn Progress,
) -> Result<()> {
    const ARCHIVE: &str = "encrypted archive";
    let mut opening = Opening::new(path, options);
    let Some(file) = found.opened(ARCHIVE, opening.archive(file))? else {
        return Ok(());
    };
    let archive = opening.layers.iter().find_map(Layer::archive);
    if let Some(archive) = archive.and_then(|archive| archive.contents.as_ref()) {
        let checked = crypt::aea::check(archive, &mut found.problems, progress);
        if found.judged(ARCHIVE, checked)?.is_none() {
            return Ok(());
        }
    }
    let encrypted = crypt::check(&*file, &mut found.problems);
    let is_encrypted = !matches!(encrypted, Ok(None));
    if is_encrypted && found.judged(ENCRYPTION, encrypted)?.is_none() {
        return Ok(());
    }
    let unlocked = Opening::new(path, options).unlock(file);
    let Some(plain) = found.opened("encrypted data", unlocked)? else {
        return Ok(());
    };
    let Some(format) = options.image_format.map_or_else(
        || found.opened("container", detect_container(&*plain)),
        |format| Ok(Some(format)),
    )?
    else {
        return Ok(());
    };
    let parts = if format.is_udif() {
        Opening::new(path, options).parts(plain.clone())
    } else {
        Ok(Vec::new())
    };
    match examine_container(&plain, parts, format, is_encrypted, found, progress)? {
        Some(disk) => examine_shown(path, &disk, format, options, found, progress),
        None => Ok(()),
    }
}

/// Checks the container in `plain` and returns its disk, if it can be determined.
fn examine_container(
    plain: &Arc<dyn BlockDevice>,
    parts: Result<Vec<SegmentPart>>,
    format: Format,
    is_encrypted: bool,
    found: &mut Examination,
    progress: &dyn Progress,
) -> Result<Option<Arc<dyn BlockDevice>>> {
    let (problems, orphans, asif) = (&mut found.problems, &mut found.orphans, &mut found.asif);
    let checked: Result<Arc<dyn BlockDevice>> = match format.container() {
        ContainerKind::SparseImage => {
            sparseimage::check(plain, problems, progress).and_then(|image| {
                *orphans = image.orphans()?;
                Ok(Arc::new(image) as _)
            })
        }
        ContainerKind::Asif => check_asif(plain, problems, progress).and_then(|mut image| {
            stands_alone(&image)?;
            if is_encrypted {
                image = image.encrypted();
            }
            *orphans = image.orphans()?;
            let image = Arc::new(image);
            *asif = Some(image.clone());
            let disk: Arc<dyn BlockDevice> = image.clone();
            let is_empty =
                matches!(contents::find(&disk), Ok((None, volumes)) if volumes.is_empty());
            if is_empty && let Some((other, why)) = asif_directories::that_opens(&image)? {
                problems.add(Severity::Damage, Error::new(Kind::Corrupt, "asif", why));
                *orphans = other.orphans()?;
                *asif = Some(other.clone());
                return Ok(other as _);
            }
            Ok(disk)
        }),
        ContainerKind::Raw => Ok(check_raw(plain, problems)),
        ContainerKind::Bundle => Err(Error::invalid(LAYER, "is a file, expected a folder (UDSB)")),
        ContainerKind::Udif => parts
            .and_then(|parts| udif::check(parts, problems, progress))
            .map(|image| Arc::new(image) as _),
    };
    found.judged(format.description(), checked)
}

/// Checks an ASIF image, with its other directory if the active one cannot be loaded.
fn check_asif(
    plain: &Arc<dyn BlockDevice>,
    problems: &mut Problems,
    progress: &dyn Progress,
) -> Result<asif::Asif> {
    let Some((other, why)) = asif_directories::that_loads(plain)? else {
        return asif::check(plain, problems, progress);
    };
    problems.add(Severity::Damage, Error::new(Kind::Corrupt, "asif", why));
    asif::check_with(plain, Some(other.directory().0), problems, progress)
}

fn check_raw(plain: &Arc<dyn BlockDevice>, problems: &mut Problems) -> Arc<dyn BlockDevice> {
    let raw = Raw::new(plain.clone());
    if raw.trailing() > 0 {
        let odd = format!(
            "the last {} bytes are not a whole sector and are ignored",
            raw.trailing()
        );
        problems.add(
            Severity::Warning,
            Error::corrupt("raw image", raw.info().len, odd),
        );
    }
    Arc::new(raw)
}

/// Checks the layers over a disk, if there are any, and the resulting disk.
fn examine_shown(
    path: &Path,
    disk: &Arc<dyn BlockDevice>,
    format: Format,
    options: &OpenOptions<'_>,
    found: &mut Examination,
    progress: &dyn Progress,
) -> Result<()> {
    if options.shadows.is_empty() {
        return examine_disk(disk, format, options, found, progress);
    }
    for shadow in options.shadows {
        let file: Arc<dyn BlockDevice> = lock_file(shadow, Access::ReadOnly)?;
        let checked = asif::check(&file, &mut found.problems, progress)
            .map_err(|error| error.in_file(shadow));
        if found
            .judged(format!("layer {}", shadow.display()), checked)?
            .is_none()
        {
            return Ok(());
        }
    }
    let opened = Opening::new(path, options)
        .stack(None)
        .map(|(opened, _)| opened);
    match found.opened("stack", opened)? {
        Some(stack) => examine_disk(&stack.disk, format, options, found, progress),
        None => Ok(()),
    }
}

/// Checks the partition map and every volume of a disk.
fn examine_disk(
    disk: &Arc<dyn BlockDevice>,
    format: Format,
    options: &OpenOptions<'_>,
    found: &mut Examination,
    progress: &dyn Progress,
) -> Result<()> {
    if let Some(name) = options.logical_volume {
        let opened = logical_disk::logical_disk(disk, name, &options.reading());
        let Some((logical, damage)) = found.opened("logical volume", opened)? else {
            return Ok(());
        };
        if let Some(damage) = damage.map(|damage| Error::new(Kind::Corrupt, LAYER, damage)) {
            found.problems.add(Severity::Damage, damage);
        }
        let options = OpenOptions {
            logical_volume: None,
            physical_volumes: &[],
            ..*options
        };
        let logical: Arc<dyn BlockDevice> = logical;
        return examine_disk(&logical, format, &options, found, progress);
    }
    let mut is_map_unusable = false;
    let problems = &mut found.problems;
    let contents = contents::find_with(disk, |search| {
        partition::check_with(&**disk, search, problems).inspect_err(|_| is_map_unusable = true)
    });
    let (map, mut volumes) = match contents {
        Err(error) if is_map_unusable => {
            return found.judged::<Map>("partition map", Err(error)).map(drop);
        }
        contents => match found.opened("volumes", contents)? {
            Some(contents) => contents,
            None => return Ok(()),
        },
    };
    found.layers.extend(map.as_ref().map(|map| CheckedLayer {
        layer: map.scheme.to_string(),
        verdict: Verdict::Checked,
    }));
    logical_disk::add_physical_volumes(&mut volumes, options)?;
    missing_volumes(disk, map.as_ref(), &volumes, &mut found.problems)?;
    let contents = found
        .contents
        .insert(Contents::of(disk, map.as_ref(), &volumes)?);
    match contents {
        Contents::Unknown => {
            let is_plain = format.is_plain()
                && options.image_format.is_none()
                && map.is_none()
                && !found.layers.iter().any(|judged| judged.layer == ENCRYPTION);
            let error = if is_plain {
                disk::unknown(&**disk)
            } else {
                contents::unknown()
            };
            found.judged::<()>("disk", Err(error))?;
        }
        Contents::Foreign(uses) => {
            let what = format!("not checked: {}", uses.join(", "));
            found
                .problems
                .add(Severity::Note, Error::unsupported("disk", what));
        }
        Contents::Blank if options.shadows.is_empty() => {
            let bytes: u64 = found.orphans.iter().map(|orphan| orphan.len).sum();
            if let Some(first) = found.orphans.first() {
                let message = format!(
                    "the disk is blank, but {bytes} stored bytes do not belong to any part of it \
                     ({}): the index of the image may be damaged",
                    first.what
                );
                found.is_in_doubt = true;
                found
                    .problems
                    .add(Severity::Warning, Error::new(Kind::Corrupt, LAYER, message));
            }
        }
        Contents::Volumes | Contents::Blank => {}
    }
    let looked_into = if found.only_outside {
        &[]
    } else {
        volumes.as_slice()
    };
    for volume in looked_into {
        let layer = format!("{} on {}", volume.format, volume.place());
        match volume.check(options.keys, &mut found.problems, progress) {
            Some(checked) => {
                let unseen = found.judged(layer, checked)?.unwrap_or_default();
                found
                    .layers
                    .extend(unseen.into_iter().map(|error| CheckedLayer {
                        layer: format!("volume on {}", volume.place()),
                        verdict: Verdict::Unknown(error),
                    }));
            }
            None => found.layers.push(CheckedLayer {
                layer,
                verdict: Verdict::Skipped,
            }),
        }
        if found.decoding && volume.format.is_supported() {
            decode_files(volume, options, found, progress)?;
        }
    }
    if !found.only_outside && !found.orphans.is_empty() && options.shadows.is_empty() {
        compare_orphans(disk, map.as_ref(), &volumes, found, progress)?;
    }
    if !found.only_outside
        && options.shadows.is_empty()
        && let Some(image) = &found.asif
        && let Some(place) = unstored::find_unwritten(image, &volumes, u64::MAX)?.first()
    {
        let message = unstored::describe_unwritten(place);
        found.is_in_doubt = true;
        found
            .problems
            .add(Severity::Warning, Error::new(Kind::Corrupt, LAYER, message));
    }
    Ok(())
}

/// Reports stored data that belongs to no part of the disk, if places that are in use have no
/// storage.
fn compare_orphans(
    disk: &Arc<dyn BlockDevice>,
    map: Option<&Map>,
    volumes: &[Volume],
    found: &mut Examination,
    progress: &dyn Progress,
) -> Result<()> {
    let unstored = match unstored::find(disk, map, volumes, progress) {
        Ok(unstored) => unstored,
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::OutOfRange) => return Ok(()),
        Err(error) => return Err(error),
    };
    let (Some(place), Some(first)) = (unstored.places.first(), found.orphans.first()) else {
        return Ok(());
    };
    let bytes: u64 = found.orphans.iter().map(|orphan| orphan.len).sum();
    let message = format!(
        "bytes {} to {} of the disk are in use but not stored, and {bytes} stored bytes do not \
         belong to any part of the disk ({}): the index of the image may be damaged",
        place.start, place.end, first.what
    );
    found.is_in_doubt = true;
    found
        .problems
        .add(Severity::Warning, Error::new(Kind::Corrupt, LAYER, message));
    Ok(())
}

/// Decodes the compressed files of every volume of the disk, including those in containers.
fn decode_files(
    volume: &Volume,
    options: &OpenOptions<'_>,
    found: &mut Examination,
    progress: &dyn Progress,
) -> Result<()> {
    let wanted = VolumeQuery {
        snapshot: None,
        keys: options.keys,
    };
    let numbers = if volume.format.is_container() {
        let container = found.opened("volumes", volume.container())?;
        // Failures are among the problems already.
        let volumes = container.map_or_else(Vec::new, |container| container.volumes());
        volumes
            .into_iter()
            .flatten()
            .map(|volume| Some(volume.label.number))
            .collect()
    } else {
        vec![None]
    };
    for number in numbers {
        let (mut layer, mut place) = ("compressed files".to_owned(), volume.place());
        if let Some(number) = number {
            layer += &format!(" of volume {number}");
            place += &format!(", volume {number}");
        }
        layer += &format!(" on {}", volume.place());
        let Some(fs) = found.opened(&layer, volume.open_within(number, wanted))? else {
            continue;
        };
        let checked = decoded::check(&*fs, &place, &mut found.problems, progress);
        found.judged(layer, checked)?;
    }
    Ok(())
}

/// Reports partitions of Apple's types that do not begin with such a volume. Blank ones are noted
/// as unformatted.
fn missing_volumes(
    disk: &Arc<dyn BlockDevice>,
    map: Option<&Map>,
    volumes: &[Volume],
    problems: &mut Problems,
) -> Result<()> {
    let partitions = map.map(|map| map.partitions.as_slice()).unwrap_or_default();
    for partition in partitions
        .iter()
        .filter(|partition| ["Apple_HFS", "Apple_APFS", "Apple_HFSX"].contains(&&*partition.kind))
    {
        if volumes
            .iter()
            .any(|volume| volume.partition == Some(partition.number))
        {
            continue;
        }
        let start = partition.range.start;
        let severity = if contents::is_partition_blank(disk, partition)? {
            Severity::Note
        } else {
            Severity::Warning
        };
        let what = format!(
            "partition {} has the type {}, but no known file system begins there",
            partition.number, partition.kind
        );
        problems.add(severity, Error::corrupt("volume", start, what));
    }
    Ok(())
}
