//! Giving the storage back that no volume in an image uses: what macOS does when it attaches one,
//! and what attaching, mounting and serving do here before the first change. `bandsaw trim`.
//!
//! A volume's map is gone by only if the volume was left in order and its own structures are marked
//! used in it. Whatever is stopped, or cut off, halfway has given back less: nothing that is in use
//! is touched at any moment.

use std::ops::Range;
use std::path::Path;

use super::space::{FreeSpace, Storage, can_punch};
use super::usage;
use crate::container::sparsebundle::Bundle;
use crate::device::{Access, BlockDevice};
use crate::open::{Image, OpenOptions, VolumeFormat, examine};
use crate::problem::Severity;
use crate::progress::Progress;
use crate::{Error, Kind, Result};

const LAYER: &str = "trim";
/// Bytes of the disk given back between two looks at whether to go on.
const STRETCH: u64 = 1 << 30;
/// Bytes given back between two flushes: what is done so far stays done.
pub(super) const FLUSH: u64 = 16 << 30;

/// What a trim came to.
#[derive(Debug)]
pub struct Trimmed {
    /// The volumes, in the order of the disk.
    pub volumes: Vec<TrimmedVolume>,
    /// Bytes of storage behind the image's files before.
    pub before: u64,
    /// The same afterwards.
    pub after: u64,
    /// True if parts of files could be given back. Where they could not, only whole bands, and
    /// chunks, were.
    pub parts: bool,
}

/// What became of a volume's free space.
#[derive(Debug)]
pub struct TrimmedVolume {
    /// Where it is: `partition 1`.
    pub place: String,
    /// What it is.
    pub format: VolumeFormat,
    /// Bytes of it that are free, and were given back as far as they had storage.
    pub free: u64,
    /// Runs that they lie in.
    pub runs: u64,
    /// Why the volume was left as it is, if it was.
    pub refused: Option<Error>,
}

impl TrimmedVolume {
    /// Why the volume was left as it is, where that is more than that nothing is known of its free
    /// space.
    pub fn warning(&self) -> Option<String> {
        let error = self
            .refused
            .as_ref()
            .filter(|error| error.kind() != Kind::Unsupported)?;
        Some(format!(
            "what is free on {} was not given back: {}",
            self.place,
            error.message()
        ))
    }
}

/// Gives back what no volume of `image`, open for changes, uses. Durable when it returns. Volumes
/// that cannot be trusted are left, and told; so are those whose free space is not known.
///
/// [`Kind::Unsupported`] for images of a kind that cannot be changed.
pub fn trim(image: &Image, progress: &dyn Progress) -> Result<Trimmed> {
    let storage = storage(image, progress)?;
    let before = usage::host(image, progress)?.allocated;
    let parts = can_punch(image, true);
    release_queued(image)?;
    let volumes = give_back_trusted(image, &storage, parts, progress)?;
    let after = usage::host(image, progress)?.allocated;
    Ok(Trimmed {
        volumes,
        before,
        after,
        parts,
    })
}

/// What attaching, mounting and serving do with `image` before its first change, as macOS does: the
/// same as [`trim`], without the measuring. Nothing, and no error, where nothing can be given back:
/// for an image open for reading only, or of a kind that has all its storage always, or while the
/// size of its bands is being changed.
pub fn before_use(image: &Image, progress: &dyn Progress) -> Result<Vec<TrimmedVolume>> {
    if image.disk().info().access == Access::ReadOnly
        || image.bundle().is_some_and(Bundle::is_between)
    {
        return Ok(Vec::new());
    }
    match Storage::of(image, progress)? {
        Some(storage) => {
            // Who only wants to use the image is not kept from it by a container that is not in
            // order: nothing is given back of it.
            release_queued(image).or_else(|error| {
                if error.kind() == Kind::Corrupt {
                    Ok(())
                } else {
                    Err(error)
                }
            })?;
            give_back_trusted(image, &storage, can_punch(image, true), progress)
        }
        None => Ok(Vec::new()),
    }
}

/// Makes free what only older checkpoints of APFS containers wait for: what was removed comes back
/// when the image is used next.
fn release_queued(image: &Image) -> Result<()> {
    if image
        .volumes()
        .iter()
        .all(|volume| volume.format != VolumeFormat::Apfs)
    {
        return Ok(());
    }
    FreeSpace::of(image)
        .volumes
        .iter()
        .filter(|found| found.map.is_ok())
        .try_for_each(|found| found.volume.release_queued())
}

fn give_back_trusted(
    image: &Image,
    storage: &Storage<'_>,
    parts: bool,
    progress: &dyn Progress,
) -> Result<Vec<TrimmedVolume>> {
    let free = FreeSpace::of(image);
    let mut volumes = give_back_all(image, storage, &free, parts, progress)?;
    // Bands, and chunks, that a flush moved to where others had been took their holes along as what
    // these read as: noise.
    if image.encryption().is_some() && (image.sparse_image().is_some() || image.asif().is_some()) {
        give_back_all(image, storage, &free, parts, progress)?;
    }
    for (trimmed, found) in volumes.iter_mut().zip(free.volumes) {
        trimmed.refused = found.map.err();
    }
    Ok(volumes)
}

/// Gives back all that is free, durably.
pub(super) fn give_back_all(
    image: &Image,
    storage: &Storage<'_>,
    free: &FreeSpace,
    parts: bool,
    progress: &dyn Progress,
) -> Result<Vec<TrimmedVolume>> {
    let disk = image.disk();
    let mut volumes = Vec::with_capacity(free.volumes.len());
    progress.stage(
        "trim",
        free.volumes
            .iter()
            .map(|found| found.volume.range.end - found.volume.range.start)
            .sum(),
    );
    for found in &free.volumes {
        let (place, format) = (found.volume.place(), found.volume.format);
        let mut trimmed = TrimmedVolume {
            place,
            format,
            free: 0,
            runs: 0,
            refused: None,
        };
        let (mut unflushed, mut seen) = (0, found.volume.range.start);
        for run in found.runs() {
            let run = run?;
            progress.advance(run.start - seen);
            seen = run.end;
            trimmed.free += run.end - run.start;
            trimmed.runs += 1;
            unflushed += run.end - run.start;
            give_back(storage, &**disk, &run, parts, progress)?;
            if unflushed >= FLUSH {
                disk.flush()?;
                unflushed = 0;
            }
        }
        volumes.push(trimmed);
    }
    disk.flush()?;
    Ok(volumes)
}

/// The storage of an image that can be changed.
pub(super) fn storage<'a>(image: &'a Image, progress: &dyn Progress) -> Result<Storage<'a>> {
    image.disk().info().check_writable(LAYER)?;
    Storage::of(image, progress)?.ok_or_else(|| {
        Error::unsupported(
            LAYER,
            format!(
                "images of the kind {} store nothing for what is free",
                image.format()
            ),
        )
    })
}

/// Gives a run back, piece by piece.
fn give_back(
    storage: &Storage<'_>,
    disk: &dyn BlockDevice,
    run: &Range<u64>,
    parts: bool,
    progress: &dyn Progress,
) -> Result<()> {
    let mut at = run.start;
    while at < run.end {
        progress.check()?;
        // Up to a border, so that no band is cut in two.
        let end = ((at / STRETCH + 1) * STRETCH)
            .next_multiple_of(storage.units(disk.info().len).1)
            .min(run.end);
        storage.give_back(disk, &(at..end), parts)?;
        progress.advance(end - at);
        at = end;
    }
    Ok(())
}

/// Looks at every layer of the image at `path` first. [`Kind::Corrupt`] if anything is damaged.
pub fn check_fully(path: &Path, options: &OpenOptions<'_>, progress: &dyn Progress) -> Result<()> {
    let found = examine(path, options, progress)?;
    let damage = found.problems.count(Severity::Damage);
    match found
        .problems
        .into_iter()
        .find(|problem| problem.severity == Severity::Damage)
    {
        None => Ok(()),
        Some(first) => {
            let message = match damage {
                1 => "something is damaged, so nothing is given back".to_owned(),
                _ => format!("{damage} things are damaged, so nothing is given back; the first"),
            };
            Err(Error::new(Kind::Corrupt, LAYER, message)
                .caused_by(first.error)
                .in_file(path))
        }
    }
}
