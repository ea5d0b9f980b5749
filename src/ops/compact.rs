//! Making an image take no more storage than what is in it: free space is given back as by a trim,
//! runs of zeros too where that is wanted, and files in bands or chunks are packed. `bandsaw
//! compact`.
//!
//! Every step leaves an image that is whole, and what is done stays done: it can be stopped, killed
//! or lose its power at any moment, and is gone on with by running it again.

mod zeros;

use super::space::{FreeSpace, SpaceMap, Storage};
use super::{trim, usage};
use crate::device::AfterDiscard;
use crate::open::{Image, Volume};
use crate::progress::Progress;
use crate::{Error, Kind, Result, platform};

const LAYER: &str = "compact";

/// How to compact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Whether all that is in use is read, and what of it is zeros given back too. `None`: where no
    /// volume on the disk is of a kind whose free space is known.
    pub zeros: Option<bool>,
    /// Go on although the machine runs on its battery.
    pub battery_allowed: bool,
}

/// Why storage can be given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Bands, or chunks, all of which is free.
    FreeUnits,
    /// The free parts of others.
    FreeParts,
    /// What is in use, as far as is known, and is nothing but zeros.
    Zeros,
}

/// What compaction would do.
#[derive(Debug)]
pub struct Plan {
    /// How full the bands are.
    pub map: SpaceMap,
    /// Bytes of storage to be given back, by cause.
    pub causes: Vec<(Cause, u64)>,
    /// Bytes of APFS containers that older checkpoints hold back now, and that are made free first.
    pub pending: u64,
    /// Why volumes are left as they are: place and reason of each.
    pub refused: Vec<(String, Error)>,
    /// Bytes of storage behind the image's files now.
    pub allocated: u64,
}

impl Plan {
    /// Bytes of storage to be given back.
    pub fn returns(&self) -> u64 {
        self.causes.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// What compaction came to.
#[derive(Debug)]
pub struct Compacted {
    /// Bytes of storage behind the image's files before.
    pub before: u64,
    /// The same afterwards.
    pub after: u64,
    /// Bytes that were zeros and in use, as far as is known, and were given back.
    pub zeros: u64,
    /// True if parts of files could be given back. Where they could not, only whole bands, and
    /// chunks, were.
    pub parts: bool,
    /// Why volumes were left as they are: place and reason of each.
    pub refused: Vec<(String, Error)>,
}

/// Tells what [`compact`] would give back, and changes nothing. The image may be open for reading
/// only.
pub fn plan(image: &Image, options: &Options, progress: &dyn Progress) -> Result<Plan> {
    let free = FreeSpace::projected_free(image);
    let Some(storage) = Storage::of(image, progress)? else {
        return Err(Error::unsupported(
            LAYER,
            format!(
                "images of the kind {} have nothing to give back",
                image.format()
            ),
        ));
    };
    let map = SpaceMap::measure(image, &storage, &free, progress)?;
    let (units, parts) = map.returns();
    let mut causes = vec![(Cause::FreeUnits, units), (Cause::FreeParts, parts)];
    if wants_zeros(options, &free) {
        let mut zeros = 0;
        zeros::find(image, &storage, &free, map.parts, progress, &mut |run| {
            zeros += storage.allocated_in(&run)?;
            Ok(())
        })?;
        causes.push((Cause::Zeros, zeros));
    }
    causes.retain(|(_, bytes)| *bytes > 0);
    let pending = image.volumes().iter().filter_map(Volume::pending).sum();
    Ok(Plan {
        map,
        causes,
        pending,
        refused: refused(free),
        allocated: usage::host(image, progress)?.allocated,
    })
}

/// Gives back what `image`, open for changes, does not need, and packs it. Durable when it returns.
///
/// [`Kind::Conflict`] on battery power, unless that is allowed; [`Kind::Unsupported`] for images of
/// a kind that cannot be changed.
pub fn compact(image: &Image, options: &Options, progress: &dyn Progress) -> Result<Compacted> {
    if !options.battery_allowed && platform::on_battery() == Some(true) {
        return Err(Error::new(
            Kind::Conflict,
            LAYER,
            "the machine runs on its battery, and compaction there was not asked for",
        ));
    }
    let trimmed = trim::trim(image, progress)?;
    let mut given = 0;
    let free = FreeSpace::of(image);
    if wants_zeros(options, &free) {
        let storage = trim::storage(image, progress)?;
        let mut unflushed = 0;
        zeros::find(
            image,
            &storage,
            &free,
            trimmed.parts,
            progress,
            &mut |run| {
                let bytes = run.end - run.start;
                image.disk().discard(run, AfterDiscard::Any)?;
                (given, unflushed) = (given + bytes, unflushed + bytes);
                if unflushed >= trim::FLUSH {
                    unflushed = 0;
                    image.disk().flush()?;
                }
                Ok(())
            },
        )?;
        image.disk().flush()?;
    }
    if pack(image, progress)? && image.encryption().is_some() {
        // Chunks that were moved took their holes along as what these read as: noise.
        trim::give_back_all(
            image,
            &trim::storage(image, progress)?,
            &free,
            trimmed.parts,
            progress,
        )?;
    }
    let after = usage::host(image, progress)?.allocated;
    Ok(Compacted {
        before: trimmed.before,
        after,
        zeros: given,
        parts: trimmed.parts,
        refused: refused(free),
    })
}

/// Returns whether zeros are to be looked for.
fn wants_zeros(options: &Options, free: &FreeSpace) -> bool {
    options.zeros.unwrap_or_else(|| free.is_unknown())
}

fn refused(free: FreeSpace) -> Vec<(String, Error)> {
    let volumes = free.volumes.into_iter();
    volumes
        .filter_map(|found| found.map.err().map(|error| (found.volume.place(), error)))
        .collect()
}

/// Fills what was freed in the file with what stands at its end, and cuts it. A sparse image does
/// so by itself whenever it is flushed. `false`: there was nothing to fill.
fn pack(image: &Image, progress: &dyn Progress) -> Result<bool> {
    match image
        .overlays()
        .last()
        .map(|top| &*top.image)
        .or_else(|| image.asif())
    {
        Some(asif) if asif.usage().unused > 0 => asif.compact(progress).map(|()| true),
        _ => Ok(false),
    }
}
