//! Reduction of the storage of an image: free space is discarded as by a trim, runs of zeros too on
//! request, and files in bands or chunks are packed. `bandsaw compact`.
//!
//! Every step leaves a consistent image, and completed steps are not lost: compaction can be
//! stopped, killed or interrupted by a power failure at any time, and is resumed by running it
//! again.

mod zeros;

use super::space::{FreeSpace, SpaceMap, Storage, UnconfirmedVolumes, can_punch};
use super::{orphans, trim, usage};
use crate::container::Orphan;
use crate::device::AfterDiscard;
use crate::open::{Image, Keys, OpenOptions, Volume};
use crate::progress::Progress;
use crate::{Error, Reason, Result, platform};

const LAYER: &str = "compact";

/// Options of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// True to read everything in use and discard runs of zeros too. `None`: only if no volume on
    /// the disk is of a format whose free space is known.
    pub zeros: Option<bool>,
    /// True to proceed on battery power.
    pub battery_allowed: bool,
}

/// The reason why storage can be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Bands or chunks that are entirely free.
    FreeUnits,
    /// Free parts of bands or chunks that are partly in use.
    FreeParts,
    /// Runs of zeros that are in use, as far as is known.
    Zeros,
}

/// A volume whose free space is not freed.
#[derive(Debug)]
pub struct SkippedVolume {
    /// Number of its partition; `None` if it is the whole disk.
    pub partition: Option<u32>,
    /// Location: `partition 1`.
    pub place: String,
    /// The reason.
    pub error: Error,
}

/// An estimate of a compaction.
#[derive(Debug)]
pub struct Plan {
    /// Usage of the bands.
    pub map: SpaceMap,
    /// Bytes of storage that would be freed, by cause.
    pub causes: Vec<(Cause, u64)>,
    /// Bytes that older checkpoints of APFS containers hold now, and that are freed first.
    pub pending: u64,
    /// Volumes that would be skipped: location and reason of each.
    pub refused: Vec<SkippedVolume>,
    /// Stored data that belongs to no part of the disk.
    pub orphans: OrphanReport,
    /// Bytes of storage that the image's files take now.
    pub allocated: u64,
}

/// Stored data that belongs to no part of the disk.
#[derive(Debug, Default)]
pub struct OrphanReport {
    /// Location and length of each piece.
    pub found: Vec<Orphan>,
    /// The reason why a repair would keep it. `None`: a repair removes it, with undo data, because
    /// nothing refers to it.
    pub kept: Option<String>,
    is_resolved: bool,
}

impl OrphanReport {
    fn of(image: &Image, progress: &dyn Progress) -> Result<Self> {
        let found = orphans::of_image(image, progress)?;
        if found.is_empty() {
            return Ok(Self::default());
        }
        let account = orphans::account_image(image, &OpenOptions::default(), progress)?;
        Ok(Self {
            found,
            is_resolved: account.objection().is_none(),
            kept: account.objection().map(str::to_owned),
        })
    }

    /// Returns true if other storage may be freed: there are no orphans, or nothing refers to them.
    /// Otherwise the geometry of the disk may be wrong.
    pub fn is_resolved(&self) -> bool {
        self.found.is_empty() || self.is_resolved
    }

    /// Returns the number of bytes found.
    pub fn bytes(&self) -> u64 {
        self.found.iter().map(|orphan| orphan.len).sum()
    }
}

impl Plan {
    /// Returns the bytes of storage that would be freed.
    pub fn returns(&self) -> u64 {
        self.causes.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Result of a compaction.
#[derive(Debug)]
pub struct Compacted {
    /// Bytes of storage that the image's files took before.
    pub before: u64,
    /// Bytes of storage that the image's files take afterwards.
    pub after: u64,
    /// Bytes of discarded zeros that were in use, as far as is known.
    pub zeros: u64,
    /// True if the host can free parts of files. Otherwise only whole bands or chunks were freed.
    pub can_punch: bool,
    /// Stored data that belongs to no part of the disk.
    pub orphans: OrphanReport,
    /// Volumes that were skipped: location and reason of each.
    pub refused: Vec<SkippedVolume>,
}

/// Estimates what [`compact`] would free, without changes. The image may be open read-only.
pub fn plan(
    image: &Image,
    options: &Options,
    keys: Option<&dyn Keys>,
    progress: &dyn Progress,
) -> Result<Plan> {
    let unconfirmed = UnconfirmedVolumes::checked(image, keys, progress)?;
    let free = FreeSpace::projected_free(image).without(&unconfirmed);
    let Some(storage) = Storage::of(image, progress)? else {
        return Err(Error::unsupported(
            LAYER,
            format!(
                "cannot compact {}: the format has no free space",
                image.format()
            ),
        ));
    };
    let map = SpaceMap::measure(image, &storage, &free, progress)?;
    let (units, parts) = map.returns();
    let mut causes = vec![(Cause::FreeUnits, units), (Cause::FreeParts, parts)];
    if wants_zeros(options, &free) {
        let mut zeros = 0;
        zeros::find(
            image,
            &storage,
            &free,
            map.can_punch,
            progress,
            &mut |run| {
                zeros += storage.allocated_in(&run)?;
                Ok(())
            },
        )?;
        causes.push((Cause::Zeros, zeros));
    }
    let orphans = OrphanReport::of(image, progress)?;
    causes.retain(|(_, bytes)| *bytes > 0 && orphans.is_resolved());
    let pending = image.volumes().iter().filter_map(Volume::pending).sum();
    Ok(Plan {
        map,
        causes,
        pending,
        refused: refused(free),
        orphans,
        allocated: usage::host(image, progress)?.allocated,
    })
}

/// Fails on battery power. `None`: the host does not report it.
fn check_power(on_battery: Option<bool>) -> Result<()> {
    match on_battery {
        Some(true) => {
            Err(Error::conflict(LAYER, "the computer runs on battery power")
                .because(Reason::OnBattery))
        }
        _ => Ok(()),
    }
}

/// Frees the storage that `image`, open for writing, does not need, and packs it. Durable on
/// return. Stored data that belongs to no part of the disk is kept: only a [repair](super::repair)
/// removes it, with undo data. Free space of a container with a volume that `keys` does not unlock is
/// kept, as by a [trim](trim::trim).
///
/// [`Kind::Conflict`](crate::Kind) on battery power, unless that is allowed;
/// [`Kind::Unsupported`](crate::Kind) for formats that cannot be changed.
pub fn compact(
    image: &Image,
    options: &Options,
    keys: Option<&dyn Keys>,
    progress: &dyn Progress,
) -> Result<Compacted> {
    if !options.battery_allowed {
        check_power(platform::on_battery())?;
    }
    // Before anything is discarded: what has no storage then tells whether data was lost.
    let unconfirmed = UnconfirmedVolumes::checked(image, keys, progress)?;
    let before = usage::host(image, progress)?.allocated;
    let orphaned = OrphanReport::of(image, progress)?;
    if !orphaned.is_resolved() {
        return Ok(Compacted {
            before,
            after: before,
            zeros: 0,
            can_punch: can_punch(image, false),
            orphans: orphaned,
            refused: refused(FreeSpace::of(image).without(&unconfirmed)),
        });
    }
    let trimmed = trim::trim_confirmed(image, &unconfirmed, progress)?;
    let mut given = 0;
    let free = FreeSpace::of(image).without(&unconfirmed);
    if wants_zeros(options, &free) {
        let storage = trim::storage(image, progress)?;
        let mut unflushed = 0;
        zeros::find(
            image,
            &storage,
            &free,
            trimmed.can_punch,
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
        // Moved chunks were copied with their holes, which decrypt to noise, so these are stored
        // now.
        trim::free_all(
            image,
            &trim::storage(image, progress)?,
            &free,
            trimmed.can_punch,
            progress,
        )?;
    }
    let after = usage::host(image, progress)?.allocated;
    let mut orphaned = orphaned;
    if !orphaned.found.is_empty() {
        orphaned.kept = Some("nothing refers to it: `bandsaw repair` removes it".into());
    }
    Ok(Compacted {
        before,
        after,
        zeros: given,
        can_punch: trimmed.can_punch,
        orphans: orphaned,
        refused: refused(free),
    })
}

/// Returns true if runs of zeros are to be searched.
fn wants_zeros(options: &Options, free: &FreeSpace) -> bool {
    options.zeros.unwrap_or_else(|| free.is_unknown())
}

fn refused(free: FreeSpace) -> Vec<SkippedVolume> {
    let volumes = free.volumes.into_iter();
    let skipped = volumes.filter_map(|found| {
        Some(SkippedVolume {
            partition: found.volume.partition,
            place: found.volume.place(),
            error: found.map.err()?,
        })
    });
    skipped.collect()
}

/// Moves data from the end of the file into its unused space, and truncates it. A sparse image does
/// this itself on every flush. Returns `false` if there was no unused space.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn battery_power_is_refused_with_its_reason() {
        assert!(check_power(None).is_ok() && check_power(Some(false)).is_ok());
        let refused = check_power(Some(true)).unwrap_err();
        assert_eq!(refused.reason(), Some(Reason::OnBattery));
        assert_eq!(refused.kind(), crate::Kind::Conflict);
    }
}
