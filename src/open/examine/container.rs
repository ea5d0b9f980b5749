//! Checks of the layers up to the disk: encryption, containers, shadow files.

use std::path::Path;
use std::sync::Arc;

use super::Examination;
use super::disk::examine_disk;
use crate::container::raw::Raw;
use crate::container::udif::{self, SegmentPart};
use crate::container::{ContainerKind, Format, asif, sparsebundle, sparseimage};
use crate::crypt;
use crate::device::{Access, BlockDevice};
use crate::open::container::{lock_file, stands_alone};
use crate::open::geometry::Depth;
use crate::open::opening::Opening;
use crate::open::{LAYER, Layer, OpenOptions, asif_directories, band_size, contents, disk};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::store::Store;
use crate::{Error, Kind, Result, size};

/// Checks a sparse bundle and the disk in it.
pub(super) fn examine_folder(
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
    if found.judged(sparsebundle::LAYER, checked)?.is_none() {
        return Ok(());
    }
    let mut opening = Opening::new(path, options);
    let opened = opening.bundle(store, None);
    match found.opened("disk", opened)? {
        Some(opened) => {
            let bundle = opening.layers.iter().find_map(Layer::bundle);
            if let Some(bundle) = bundle.filter(|bundle| !bundle.is_between()) {
                found.unit = Some(bundle.band_size());
                if found.problems.count(Severity::Warning) > 0 {
                    found.orphans = bundle.orphans(progress)?;
                }
            }
            // A file that is longer than a band is a warning.
            let depth = match found.problems.count(Severity::Warning) {
                0 => Depth::Quick,
                _ => Depth::Full,
            };
            if let Some(store) = opened.store
                && found.problems.count(Severity::Damage) == 0
                && let Some(damage) = band_size::wrong_band_size(path, &store, options, depth)?
            {
                found.problems.add(Severity::Damage, damage);
            }
            examine_shown(path, &opened.disk, Format::Udsb, options, found, progress)
        }
        None => Ok(()),
    }
}

/// Checks an image in one file and the disk in it.
pub(super) fn examine_file(
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
    found.is_write_once = archive.is_some();
    if let Some(archive) = archive.and_then(|archive| archive.contents.as_ref()) {
        let checked = crypt::aea::check(archive, &mut found.problems, progress);
        if found.judged(ARCHIVE, checked)?.is_none() {
            return Ok(());
        }
    }
    let encrypted = crypt::check(&*file, &mut found.problems);
    found.is_encrypted = !matches!(encrypted, Ok(None));
    if found.is_encrypted && found.judged("encryption header", encrypted)?.is_none() {
        return Ok(());
    }
    let mut opening = Opening::new(path, options);
    let unlocked = opening.unlock(file);
    let Some(plain) = found.opened("encrypted data", unlocked)? else {
        return Ok(());
    };
    let forked = opening.forks(plain)?;
    let known = opening.warnings.len();
    let Some(format) = options.image_format.map_or_else(
        || found.opened("container", opening.detect(&forked)),
        |format| Ok(Some(format)),
    )?
    else {
        return Ok(());
    };
    for warning in opening.warnings.split_off(known) {
        let error = Error::new(Kind::Corrupt, LAYER, warning);
        found.problems.add(Severity::Warning, error);
    }
    let plain = forked.data.clone();
    found.is_write_once |= !format.can_change();
    if !format.can_create() {
        let checked = opening.read_only_image(&forked, format).and_then(|disk| {
            disk.check(&mut found.problems, progress)?;
            Ok(Arc::new(disk) as Arc<dyn BlockDevice>)
        });
        return match found.judged(format.description(), checked)? {
            Some(disk) => examine_shown(path, &disk, format, options, found, progress),
            None => Ok(()),
        };
    }
    if format.is_plain()
        && options.image_format.is_none()
        && !found.is_encrypted
        && let Some(error) = disk::shorter_than_sector(plain.info().len)
    {
        return found.judged::<()>("disk", Err(error)).map(drop);
    }
    let parts = if format.is_udif() {
        Opening::new(path, options).parts(plain.clone())
    } else {
        Ok(Vec::new())
    };
    match examine_container(&plain, parts, format, found.is_encrypted, found, progress)? {
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
    let (problems, orphans) = (&mut found.problems, &mut found.orphans);
    let (unit, asif) = (&mut found.unit, &mut found.asif);
    let checked: Result<Arc<dyn BlockDevice>> = match format.container() {
        ContainerKind::SparseImage => {
            sparseimage::check(plain, problems, progress).and_then(|image| {
                *orphans = image.orphans()?;
                *unit = Some(image.band_size());
                Ok(Arc::new(image) as _)
            })
        }
        ContainerKind::Asif => check_asif(plain, problems, progress).and_then(|mut image| {
            stands_alone(&image)?;
            if is_encrypted {
                image = image.encrypted();
            }
            *orphans = image.orphans()?;
            *unit = Some(image.chunk_size());
            let image = Arc::new(image);
            *asif = Some(image.clone());
            let disk: Arc<dyn BlockDevice> = image.clone();
            let is_empty =
                matches!(contents::find(&disk), Ok((None, volumes)) if volumes.is_empty());
            if is_empty && let Some((other, why)) = asif_directories::that_opens(&image)? {
                problems.add(
                    Severity::Damage,
                    Error::new(Kind::Corrupt, asif::LAYER, why),
                );
                *orphans = other.orphans()?;
                *asif = Some(other.clone());
                return Ok(other as _);
            }
            Ok(disk)
        }),
        ContainerKind::Raw => Ok(check_raw(plain, problems)),
        ContainerKind::Bundle | ContainerKind::ReadOnly => {
            Err(Error::invalid(LAYER, "is a file, expected a folder (UDSB)"))
        }
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
    problems.add(
        Severity::Damage,
        Error::new(Kind::Corrupt, asif::LAYER, why),
    );
    asif::check_with(plain, Some(other.directory().0), problems, progress)
}

fn check_raw(plain: &Arc<dyn BlockDevice>, problems: &mut Problems) -> Arc<dyn BlockDevice> {
    let raw = Raw::new(plain.clone());
    if raw.trailing() > 0 {
        let odd = format!(
            "{} after the last whole sector: ignored",
            size::counted(raw.trailing(), "byte", "bytes")
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
