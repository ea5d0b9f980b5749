//! Repair of a volume: its records are read from the trees, made consistent, and written as new
//! trees to free blocks.
//!
//! No block in use is overwritten before the header, a single sector, refers to the new trees:
//! after a crash the volume is in its former state, or repaired. Only if a volume has no room for
//! new trees, they overwrite the old ones. If only counts, headers and the bitmap are wrong, they
//! are corrected in place. The result is first assembled on a copy-on-write view and checked there;
//! see [`Repair`].

mod assemble;
mod attributes;
mod forks;
mod headers;
mod leaf;
mod links;
mod losses;
mod objects;
mod packed;
mod rewrite;
mod salvage;
mod steps;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

pub(super) use self::headers::compare as compare_headers;

use self::assemble::Rebuilt;
use self::forks::{ContentCopy, UsedBlocks};
use self::rewrite::NewTrees;
use super::check::{self, Derived, TreeTotals, check, check_and_count, derived_structure};
use super::layout::{
    AllocBlock, Extent, ForkRaw, HEADER_OFFSET, VolumeHeader, VolumeHeaderRaw, extents_of,
    volume_attributes,
};
use super::{header, journal, read_structure};
use crate::{Loss, Losses, Lost, RepairStep};
use bandsaw_core::decision::CopyChoice;
use bandsaw_core::device::{BlockDevice, CowDevice, Spill};
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Progress;
use bandsaw_core::{Error, Kind, Reason, Result, platform};

const LAYER: &str = "hfs+ repair";

/// Number of files of a journal: the journal and its info block.
const JOURNAL_FILES: u64 = 2;

/// A repair that has been planned and checked on a view, but not written.
#[derive(Debug)]
pub struct Repair {
    device: Arc<dyn BlockDevice>,
    findings: Vec<Problem>,
    steps: Vec<RepairStep>,
    losses: Losses,
    left: Vec<Problem>,
    pending: Option<PendingWrites>,
}

/// The changes to be written.
#[derive(Debug)]
struct PendingWrites {
    overlay: Arc<CowDevice>,
    copies: Vec<ContentCopy>,
    block_size: u32,
    /// The extents of the bitmap, which is changed in place.
    bitmap: Vec<Extent>,
    header: VolumeHeaderRaw,
}

impl Repair {
    /// Checks the volume on `device`, plans its repair, and checks the result. Nothing is written.
    ///
    /// Fails with [`Kind::Corrupt`] if no valid volume header is left, with [`Kind::Limit`] if the
    /// volume has not enough free blocks for new trees, and with [`Kind::Conflict`] if the journal
    /// has pending transactions that can be replayed, or if a writer was interrupted.
    ///
    /// Fails with [`Kind::Undecided`] if the two volume headers disagree and the evidence on the
    /// volume is inconclusive.
    ///
    /// The new trees are kept in memory up to 32 MiB, then in an unlinked file in the folder
    /// for temporary files.
    pub fn plan(device: Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<Self> {
        let spill = Arc::new(Spill::to(platform::temporary_folder()));
        Self::plan_on(device, None, &spill, progress)
    }

    /// Plans a repair like [`plan`](Self::plan), with its changes in `spill`, and using the header
    /// `assumed` where the evidence is inconclusive.
    pub fn plan_on(
        device: Arc<dyn BlockDevice>,
        assumed: Option<CopyChoice>,
        spill: &Arc<Spill>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let (findings, totals) = check_and_count(device.clone(), progress)?;
        let mut unowned = totals.as_ref().and_then(|totals| totals.unowned.clone());
        let mut repair = Self {
            device: device.clone(),
            findings,
            steps: Vec::new(),
            losses: Losses::default(),
            left: Vec::new(),
            pending: None,
        };
        if !repair.findings.iter().any(is_wrong) {
            return Ok(repair);
        }
        let header::LocatedHeader { device, header, .. } = header::locate(device)?;
        repair.device = device.clone();
        // Neither the blocks of such a journal nor its pending changes can be derived from the
        // records.
        let waits = header.has(volume_attributes::JOURNALED)
            && matches!(journal::pending(&device, &header), Ok(Some(_)));
        if waits || journal::is_transient(&*device, &header) {
            let message = "the journal is not empty; open the volume for writing first to replay \
                           it";
            return Err(Error::conflict(LAYER, message));
        }
        let resolved = headers::resolve(&device, &header, assumed, progress)?;
        let is_changed = resolved.raw != header.raw;
        let was_clean = header.is_clean();
        let header = resolved;
        let tried = match (is_changed, totals) {
            // Facts counted with another header are not valid.
            (true, _) => {
                let pending = in_place_alone(&device, &header, None, spill, progress)?;
                let (left, totals) = check_and_count(pending.overlay.clone(), progress)?;
                // The view is marked clean, and the volume may not be.
                unowned = totals.as_ref().and_then(|totals| totals.unowned.clone());
                if let Some(unowned) = &mut unowned {
                    unowned.is_certain &= was_clean;
                }
                match totals {
                    Some(totals) if left.iter().any(is_wrong) => {
                        corrected(&device, &header, &left, &totals, spill, progress)?
                    }
                    Some(totals) if is_journal_whole(&header, &totals) => Some((pending, left)),
                    _ => None,
                }
            }
            (false, Some(totals)) => {
                corrected(&device, &header, &repair.findings, &totals, spill, progress)?
            }
            (false, None) => None,
        };
        if let Some((pending, left)) = tried.filter(|(_, left)| !left.iter().any(is_wrong)) {
            repair.left = left;
            if repair.findings.iter().any(|problem| {
                is_wrong(problem) && derived_structure(problem) == Some(Derived::Bitmap)
            }) {
                repair.steps.push("correct the bitmap".into());
            }
            repair
                .steps
                .push("rewrite both headers and mark the volume clean".into());
            repair.pending = Some(pending);
        } else {
            let is_bitmap_certain = unowned.as_ref().is_some_and(|found| found.is_certain);
            let rebuilt = Rebuilt::new(&device, &header, is_bitmap_certain, spill, progress)?;
            // Recovered records state more of the blocks; the rebuilding has counted the others.
            unowned = unowned.filter(|found| !found.suspects.is_empty());
            if let Some(unowned) = &mut unowned {
                unowned.is_certain = false;
            }
            repair.left = check(rebuilt.pending.overlay.clone(), progress)?;
            (repair.steps, repair.losses) = (rebuilt.steps, rebuilt.losses);
            repair
                .steps
                .push("write new trees, bitmap and headers".into());
            repair.pending = Some(rebuilt.pending);
        }
        if let Some(unowned) = unowned.filter(|_| repair.losses.certain.is_empty()) {
            let loss = |path, what| Loss { path, what };
            let bytes = unowned.blocks * u64::from(header.block_size);
            let blocks = loss("/".to_owned(), Lost::Unowned(bytes));
            let Losses { certain, possible } = &mut repair.losses;
            let list = if unowned.is_certain {
                certain
            } else {
                &mut *possible
            };
            list.push(blocks);
            let suspects = unowned.suspects.into_iter();
            possible.extend(suspects.map(|path| loss(path, Lost::Contents(None))));
            repair.losses.sort();
        }
        Ok(repair)
    }

    /// Returns true for the error of a plan that finds no room on the volume.
    pub fn is_without_room(error: &Error) -> bool {
        error.reason() == Some(Reason::VolumeFull)
    }

    /// Returns the findings of the check before the repair.
    pub fn findings(&self) -> &[Problem] {
        &self.findings
    }

    /// Returns the steps of the repair, one for each kind.
    pub fn steps(&self) -> &[RepairStep] {
        &self.steps
    }

    /// Returns what could be read of the volume, and will not be on it afterwards.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Returns the findings that would remain after the repair.
    pub fn left(&self) -> &[Problem] {
        &self.left
    }

    /// Returns true if there is anything to write.
    pub fn is_needed(&self) -> bool {
        self.pending.is_some()
    }

    /// Fails with [`Kind::Corrupt`] if the result would still contain errors, in which case
    /// [`apply`](Self::apply) refuses to write.
    pub fn check_result(&self) -> Result<()> {
        match self.left.iter().find(|problem| is_wrong(problem)) {
            None => Ok(()),
            Some(problem) => {
                let message = format!(
                    "nothing was written: the repair would leave damage: {}",
                    problem.error
                );
                Err(Error::new(Kind::Corrupt, LAYER, message))
            }
        }
    }

    /// Writes the repair and makes it durable. Fails with [`Kind::Corrupt`] if the result would
    /// still contain errors.
    pub fn apply(&self, progress: &dyn Progress) -> Result<()> {
        self.check_result()?;
        self.pending
            .as_ref()
            .map_or(Ok(()), |pending| pending.write(&*self.device, progress))
    }
}

fn is_wrong(problem: &Problem) -> bool {
    problem.severity >= Severity::Warning
}

/// Returns true if the volume has no journal, or the journal has its files, which are the only
/// owners of its blocks.
fn is_journal_whole(header: &VolumeHeader, totals: &TreeTotals) -> bool {
    !header.has(volume_attributes::JOURNALED) || totals.journal_files >= JOURNAL_FILES
}

/// Corrects headers and bitmap in place if nothing else is wrong; returns the changes and the
/// remaining findings. The trees are unchanged since the check that reported `found`, and are not
/// walked again.
fn corrected(
    device: &Arc<dyn BlockDevice>,
    header: &VolumeHeader,
    found: &[Problem],
    totals: &TreeTotals,
    spill: &Arc<Spill>,
    progress: &dyn Progress,
) -> Result<Option<(PendingWrites, Vec<Problem>)>> {
    let is_enough = found
        .iter()
        .filter(|problem| is_wrong(problem))
        .all(|problem| derived_structure(problem).is_some());
    if !is_enough || !totals.complete || totals.overlaps || !is_journal_whole(header, totals) {
        return Ok(None);
    }
    let pending = in_place_alone(device, header, Some(totals), spill, progress)?;
    let parsed = VolumeHeader::parse(&pending.header, HEADER_OFFSET, device.info().len)?;
    let left = check::check_in_place(pending.overlay.clone(), &parsed, totals, progress)?;
    Ok(Some((pending, left)))
}

/// Returns the error of a plan that finds no room on the volume.
fn no_room(message: impl Into<Cow<'static, str>>) -> Error {
    Error::limit(LAYER, message).because(Reason::VolumeFull)
}

/// Returns the volume with its trees unchanged, with both headers as in the valid one, and with
/// counts and bitmap from `totals`: sufficient if nothing else is wrong.
fn in_place_alone(
    device: &Arc<dyn BlockDevice>,
    header: &VolumeHeader,
    totals: Option<&TreeTotals>,
    spill: &Arc<Spill>,
    progress: &dyn Progress,
) -> Result<PendingWrites> {
    let overlay = Arc::new(CowDevice::spilling(device.clone(), spill.clone()));
    let mut raw = header.raw;
    rewrite::mark_clean(&mut raw);
    rewrite::repair_clumps(&mut raw, header, alternate(device, header)?.as_ref());
    let bitmap = in_place(&raw.allocation_file, header);
    if let Some(totals) = totals {
        raw.file_count = u32::try_from(totals.files).unwrap_or(u32::MAX).into();
        raw.folder_count = u32::try_from(totals.folders).unwrap_or(u32::MAX).into();
        raw.encodings_bitmap = (raw.encodings_bitmap.get() | totals.encodings).into();
        raw.next_catalog_id = raw
            .next_catalog_id
            .get()
            .max(totals.highest.0.saturating_add(1))
            .into();
        let mut taken = UsedBlocks::default();
        totals
            .used
            .iter()
            .filter_map(|&run| run_of(run))
            .for_each(|extent| taken.insert(extent));
        let rewrite = NewTrees {
            overlay: overlay.clone(),
            header,
            taken,
            old: Vec::new(),
            has_reserve: true,
            progress,
        };
        raw.free_blocks = rewrite.write_bitmap(&bitmap)?.into();
    }
    rewrite::write_headers(&*overlay, &raw)?;
    Ok(PendingWrites {
        overlay,
        copies: Vec::new(),
        block_size: header.block_size,
        bitmap,
        header: raw,
    })
}

fn run_of((start, end): (u64, u64)) -> Option<Extent> {
    Some(Extent {
        start: AllocBlock(u32::try_from(start).ok()?),
        count: u32::try_from(end.checked_sub(start)?).ok()?,
    })
}

/// Returns the alternate header, if it belongs to a volume of this size.
fn alternate(
    device: &Arc<dyn BlockDevice>,
    header: &VolumeHeader,
) -> Result<Option<VolumeHeaderRaw>> {
    let len = device.info().len;
    let raw: VolumeHeaderRaw = read_structure(&**device, len - HEADER_OFFSET)?;
    let same = |other: &VolumeHeader| {
        (other.block_size, other.total_blocks) == (header.block_size, header.total_blocks)
    };
    Ok(VolumeHeader::parse(&raw, len - HEADER_OFFSET, len)
        .ok()
        .filter(same)
        .map(|_| raw))
}

/// Returns the extents of one of the volume's own files that are within the volume.
fn in_place(fork: &ForkRaw, header: &VolumeHeader) -> Vec<Extent> {
    extents_of(&fork.extents)
        .filter(|extent| extent.end() <= u64::from(header.total_blocks))
        .collect()
}
