//! Mending what is certain: each layer of an image from what the image itself still tells, nothing by guess.
//!
//! From the bottom: the lists and leftovers of a sparse bundle, the ends of sparse images, ASIF and raw images, then the
//! partition map, then volumes: HFS+ is mended, APFS falls back to an older checkpoint where that is asked for. Each step is durable before the next and whole by itself, so that a crash leaves an
//! image that is repaired in part.

use std::path::Path;
use std::sync::Arc;

use crate::container::raw::Raw;
use crate::container::{Format, asif, sparsebundle, sparseimage};
use crate::device::{Access, BlockDevice, Leave};
use crate::fs::LockedVolume;
use crate::fs::apfs::FallBack;
use crate::open::{self, Layer, OpenOptions, Volume, VolumeFormat};
use crate::partition::{self, gpt};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

const COPY_AT_THE_END: &str = "copy at the end";

/// Whether to mend, or only to tell what would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Nothing is changed.
    DryRun,
    /// The image is changed.
    Apply,
}

/// What was mended, or would be.
#[derive(Debug, Default)]
pub struct Repaired {
    /// Layer and sentence of each step, in their order.
    pub steps: Vec<(&'static str, String)>,
    /// What is wrong and was left, because it is not certain what is right.
    pub refused: Vec<Error>,
}

impl Repaired {
    fn add(&mut self, layer: &'static str, steps: impl IntoIterator<Item = String>) {
        self.steps.extend(steps.into_iter().map(|step| (layer, step)));
    }

    /// The steps of a layer, or why there are none. `false`: it stays damaged, and nothing above it must be written.
    fn take(&mut self, layer: &'static str, found: Result<Vec<String>>) -> Result<bool> {
        match found {
            Ok(steps) => self.add(layer, steps),
            Err(error)
                if matches!(
                    error.kind(),
                    Kind::Corrupt | Kind::OutOfRange | Kind::Unsupported | Kind::Limit | Kind::Conflict
                ) =>
            {
                self.refused.push(error);
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

/// Mends the image at `path`, or tells what would be mended. With layers over it only the map of the disk, in the topmost of
/// them.
///
/// An error is one that keeps all of it from being looked at: the image is in use, or its passphrase missing.
pub fn repair(path: &Path, options: &OpenOptions<'_>, how: How, progress: &dyn Progress) -> Result<Repaired> {
    let access = if how == How::Apply { Access::ReadWrite } else { Access::ReadOnly };
    let options = OpenOptions { access, ..*options };
    let mut repaired = Repaired::default();
    let done = if !options.shadows.is_empty() {
        // What lies below the topmost layer is not to be changed, nor is it what is wrong with the disk.
        open::open_disk(path, &options, &mut Vec::new())
            .and_then(|found| map(&found.disk, &options, how, progress, &mut repaired))
    } else if let Some(files) = open::files(path, &reading(&options))? {
        drop(files);
        folder(path, &options, how, progress, &mut repaired)
    } else {
        file(path, &options, how, progress, &mut repaired)
    };
    done.map_err(|error| error.in_file(path)).map(|()| repaired)
}

fn reading<'a>(options: &OpenOptions<'a>) -> OpenOptions<'a> {
    OpenOptions { access: Access::ReadOnly, ..*options }
}

fn folder(path: &Path, options: &OpenOptions<'_>, how: How, progress: &dyn Progress, repaired: &mut Repaired) -> Result<()> {
    open::refuse_old_numbering(path, &reading(options))?;
    // The disk is looked at first: what it says of its size decides what lies past its end.
    let is_disk_whole = reaches_no_further(path, &reading(options))?;
    let Some(store) = open::files(path, options)? else {
        return Err(Error::new(Kind::Conflict, "repair", "is no folder any more"));
    };
    loop {
        let held = if how == How::Apply { Some(sparsebundle::locks(&*store)?) } else { None };
        let plan = sparsebundle::plan(&*store, is_disk_whole, progress)?;
        repaired.add("sparse bundle", plan.steps());
        if how == How::Apply {
            plan.apply(&*store, progress)?;
        }
        drop(held);
        if how == How::DryRun || !plan.is_full() {
            repaired.refused.extend(plan.refused);
            break;
        }
    }
    // In a bucket one opens it at a time.
    drop(store);
    let (layers, stopped) = open::trace(path, options);
    match (layers.iter().find_map(Layer::disk), stopped) {
        (Some(disk), _) => {
            drop(layers);
            map(&disk, options, how, progress, repaired)
        }
        // Told among what is refused.
        (None, Some(error)) if error.kind() != Kind::Corrupt => Err(error),
        _ => Ok(()),
    }
}

/// Whether all that is on the disk, as far as it is known, ends within it.
fn reaches_no_further(path: &Path, options: &OpenOptions<'_>) -> Result<bool> {
    let (layers, stopped) = open::trace(path, options);
    let Some(disk) = layers.iter().find_map(Layer::disk) else {
        // In use, or locked: nothing can be done. Damage is for the steps to mend.
        return stopped.filter(|error| !matches!(error.kind(), Kind::Corrupt | Kind::NotFound)).map_or(Ok(false), Err);
    };
    let fits = layers.iter().all(|layer| match layer {
        Layer::Partitions(map) => map.problems.iter().all(|problem| problem.kind() != Kind::OutOfRange),
        Layer::Volumes(volumes) => volumes.iter().all(|volume| !volume.format.is_supported() || volume.look().is_ok()),
        _ => true,
    });
    Ok(fits && stopped.is_none() && gpt::told_len(&*disk)?.is_none_or(|told| told <= disk.info().len))
}

fn file(path: &Path, options: &OpenOptions<'_>, how: How, progress: &dyn Progress, repaired: &mut Repaired) -> Result<()> {
    let plain = open::open_plain(path, options)?;
    let format = options.image_format.map_or_else(|| open::recognise(&*plain), Ok)?;
    let disk: Arc<dyn BlockDevice> = match format {
        Format::Udsp => {
            let steps = if how == How::Apply { sparseimage::repair(&plain) } else { sparseimage::plan(&plain) };
            if !repaired.take("sparse image", steps)? {
                return Ok(());
            }
            Arc::new(sparseimage::SparseImage::open(plain)?)
        }
        Format::Asif => {
            let steps = if how == How::Apply { asif::repair(&plain, progress) } else { asif::plan(&plain, progress) };
            if !repaired.take("ASIF", steps)? {
                return Ok(());
            }
            let image = asif::Asif::open(plain)?;
            open::stands_alone(&image)?;
            Arc::new(image)
        }
        Format::Udrw | Format::Udto => {
            let steps = raw_tail(&plain, how);
            let extended = steps.as_ref().is_ok_and(|steps| !steps.is_empty());
            if !repaired.take("raw image", steps)? {
                return Ok(());
            }
            if extended && how == How::DryRun {
                // What is missing is the backup, which is not there to be looked at yet.
                repaired.add("GPT", [COPY_AT_THE_END.to_owned()]);
                return Ok(());
            }
            Arc::new(Raw::new(plain))
        }
        _ => {
            let fixed = "a compressed image has no second copy of anything; get the file again";
            repaired.refused.push(Error::unsupported("udif", fixed));
            return Ok(());
        }
    };
    map(&disk, options, how, progress, repaired)
}

/// A raw image whose last sectors are missing, those of the backup GPT: the primary says how long it was, and no partition
/// is cut.
fn raw_tail(file: &Arc<dyn BlockDevice>, how: How) -> Result<Vec<String>> {
    let len = file.info().len;
    let disk = Raw::new(file.clone());
    let Some(whole) = gpt::told_len(&disk)?.filter(|whole| *whole > len) else { return Ok(Vec::new()) };
    let Some(map) = partition::probe(&disk)? else { return Ok(Vec::new()) };
    if let Some(cut) = map.problems.iter().find(|problem| problem.kind() == Kind::OutOfRange) {
        let lost = format!("was cut short, and what is lost is not in the image: {}", cut.message());
        return Err(Error::corrupt("raw image", len, lost));
    }
    if how == How::Apply {
        file.set_len(whole, Leave::Zeros)?;
        file.flush()?;
    }
    Ok(vec![format!("the file is extended by {} bytes to {whole}, which were behind the last partition", whole - len)])
}

fn map(
    disk: &Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
    how: How,
    progress: &dyn Progress,
    repaired: &mut Repaired,
) -> Result<()> {
    let plan = match gpt::plan(&**disk) {
        Ok(plan) => plan,
        // Disks without a GPT have nothing of it to mend.
        Err(error) if error.kind() == Kind::NotFound => return volumes(disk, options, how, progress, repaired),
        // Nor has a disk that is one volume, whatever looks like the rest of a map on it.
        Err(_) if is_one_volume(disk) => return volumes(disk, options, how, progress, repaired),
        Err(error) => return repaired.take("GPT", Err(error)).map(drop),
    };
    let parts = plan.parts();
    if how == How::Apply {
        plan.apply(&**disk)?;
        disk.flush()?;
    }
    let parts =
        [(parts.protective_mbr, "protective MBR"), (parts.primary, "copy at the beginning"), (parts.backup, COPY_AT_THE_END)];
    repaired.add("GPT", parts.into_iter().filter(|(written, _)| *written).map(|(_, part)| part.to_owned()));
    repaired.refused.extend(plan.refused);
    volumes(disk, options, how, progress, repaired)
}

fn is_one_volume(disk: &Arc<dyn BlockDevice>) -> bool {
    matches!(partition::probe(&**disk), Ok(None)) && open::find_volumes(disk, None).is_ok_and(|found| !found.is_empty())
}

/// The volumes that can be found; where the map is to be mended first, a dry run finds fewer.
fn volumes(
    disk: &Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
    how: How,
    progress: &dyn Progress,
    repaired: &mut Repaired,
) -> Result<()> {
    let Ok(map) = partition::probe(&**disk) else { return Ok(()) };
    let found = match open::find_volumes(disk, map.as_ref()) {
        Ok(found) => found,
        Err(error) if error.kind() == Kind::Io => return Err(error),
        // A partition past the end of the disk, told above.
        Err(_) => return Ok(()),
    };
    for volume in found {
        let place = volume.place();
        if volume.format == VolumeFormat::Apfs {
            let steps = apfs(&volume, options, how, progress).map_err(|error| error.in_file(&place));
            repaired.take("volume", steps)?;
            continue;
        }
        let mut settled = None;
        let plan = match volume.plan_repair(progress) {
            Err(error) if error.kind() == Kind::Conflict && how == How::Apply => volume.settle_journal().and_then(|()| {
                settled = Some(format!("{place}: make the changes that waited in the journal"));
                volume.plan_repair(progress)
            }),
            plan => plan,
        };
        repaired.add("volume", settled);
        let steps = plan.and_then(|plan| {
            let Some(repair) = plan else { return Ok(Vec::new()) };
            repair.is_possible()?;
            if how == How::Apply {
                repair.apply(progress)?;
            }
            Ok(repair.steps().iter().map(|step| format!("{place}: {step}")).collect())
        });
        repaired.take("volume", steps.map_err(|error| error.in_file(&place)))?;
    }
    Ok(())
}

/// Of an APFS container nothing is mended; what is damaged falls back to an older checkpoint, if one is named.
fn apfs(volume: &Volume, options: &OpenOptions<'_>, how: How, progress: &dyn Progress) -> Result<Vec<String>> {
    let key = |locked: &LockedVolume| open::volume_key(locked, options.keys);
    let place = volume.place();
    if let Some(xid) = options.checkpoint {
        let Some(plan) = FallBack::plan(volume.device(), xid, &key, progress)? else { return Ok(Vec::new()) };
        if how == How::Apply {
            plan.apply()?;
        }
        return Ok(vec![format!("{place}: {}", plan.step())]);
    }
    let mut problems = Problems::default();
    let opened = volume.container().and_then(|found| found.check(&place, &key, &mut problems, progress));
    let is_sound = match opened {
        Ok(_) => problems.worst() <= Some(Severity::Note),
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::OutOfRange) => false,
        Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::WrongKey) => true,
        Err(error) => return Err(error),
    };
    if is_sound {
        return Ok(Vec::new());
    }
    let message = "nothing in an APFS container is mended: `--checkpoint XID` falls back to an older state that is in order, one of \
                   those that `bandsaw info --json` lists";
    Err(Error::unsupported("apfs container", message))
}
