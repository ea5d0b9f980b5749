//! Repair of a volume: its records are read from the trees, made consistent, and written as new
//! trees to free blocks.
//!
//! No block in use is overwritten before the header, a single sector, refers to the new trees:
//! after a crash the volume is in its former state, or repaired. Only if a volume has no room for
//! new trees, they overwrite the old ones. If only counts, headers and the bitmap are wrong, they
//! are corrected in place. The result is first assembled on a copy-on-write view and checked there;
//! see [`Repair`].

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

use std::collections::HashSet;
use std::sync::Arc;

pub(super) use self::headers::compare as compare_headers;

use self::forks::{ContentCopy, OverflowRecords, RepairedForks, UsedBlocks};
use self::losses::Paths;
use self::objects::{AllObjects, RepairedObject};
use self::rewrite::{NewTrees, Records};
use self::salvage::Salvage;
use self::steps::{Steps, Subject};
use super::btree::{KeyOrder, TreeKind};
use super::check::{self, TreeTotals, check, check_and_count};
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
use bandsaw_core::{Error, Kind, Result, platform};

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
            if repair
                .findings
                .iter()
                .any(|problem| is_wrong(problem) && problem.error.layer() == check::BITMAP)
            {
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
        error.kind() == Kind::Limit && error.layer() == LAYER
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
        .all(is_of_header_or_bitmap);
    if !is_enough || !totals.complete || totals.overlaps || !is_journal_whole(header, totals) {
        return Ok(None);
    }
    let pending = in_place_alone(device, header, Some(totals), spill, progress)?;
    let parsed = VolumeHeader::parse(&pending.header, HEADER_OFFSET, device.info().len)?;
    let left = check::check_in_place(pending.overlay.clone(), &parsed, totals, progress)?;
    Ok(Some((pending, left)))
}

/// Treatment of the old trees while the new ones are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OldTrees {
    /// The old trees remain intact and are used after a crash.
    Keep,
    /// The new trees may overwrite the old ones; after a crash, only the undo data of the repair
    /// restores them.
    Overwrite,
    /// The same, and the new trees have no room to grow.
    OverwriteTightly,
}

/// Returns true if a finding concerns structures that are derived from the trees.
fn is_of_header_or_bitmap(problem: &Problem) -> bool {
    matches!(
        problem.error.layer(),
        check::BITMAP | check::HEADER | super::LAYER
    )
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

/// A volume with new trees, assembled on a view.
struct Rebuilt {
    pending: PendingWrites,
    steps: Vec<RepairStep>,
    losses: Losses,
}

impl Rebuilt {
    /// Assembles the repaired volume: with new trees beside the old ones, or else over them.
    fn new(
        device: &Arc<dyn BlockDevice>,
        header: &VolumeHeader,
        is_bitmap_certain: bool,
        spill: &Arc<Spill>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let total = header.total_blocks;
        // The device is longer if it was grown for this.
        let most = device.info().len / u64::from(header.block_size);
        let most = u32::try_from(most).unwrap_or(total);
        let attempts = [
            (total, OldTrees::Keep),
            (total, OldTrees::Overwrite),
            (total, OldTrees::OverwriteTightly),
        ];
        let grown = (most > total).then_some((most, OldTrees::Keep));
        let mut refused = None;
        for (total_blocks, old_trees) in attempts.into_iter().chain(grown) {
            let room = (total_blocks, old_trees);
            match assemble_volume(device, header, room, is_bitmap_certain, spill, progress) {
                Err(error) if error.kind() == Kind::Limit => refused = Some(error),
                done => return done,
            }
        }
        Err(refused.unwrap_or_else(|| Error::limit(LAYER, "no room for new trees")))
    }
}

/// Assembles the repaired volume, of `total_blocks`, on a view.
fn assemble_volume(
    device: &Arc<dyn BlockDevice>,
    header: &VolumeHeader,
    (total_blocks, old_trees): (u32, OldTrees),
    is_bitmap_certain: bool,
    spill: &Arc<Spill>,
    progress: &dyn Progress,
) -> Result<Rebuilt> {
    let mut all_steps = Steps::default();
    let steps = &mut all_steps;
    if old_trees != OldTrees::Keep {
        steps.add("overwrite the old trees: no room for new ones beside them");
    }
    let alternate = alternate(device, header)?;
    let space = salvage::space(device.clone(), header);
    let salvage = Salvage {
        space: &space,
        header,
        alternate: alternate.as_ref(),
        progress,
    };
    let mut catalog = salvage.tree(TreeKind::Catalog(header.variant))?;
    if catalog.records.is_empty() {
        return Err(Error::new(
            Kind::Corrupt,
            LAYER,
            "nothing was written: no record of the catalog was found, so no file can be recovered",
        ));
    }
    let overflow = salvage.tree(TreeKind::Extents)?;
    let values = salvage.tree(TreeKind::Attributes)?;
    for (tree, name) in [
        (&catalog, "catalog"),
        (&overflow, "extents tree"),
        (&values, "attributes tree"),
    ] {
        if tree.incomplete {
            let subject = Subject::Name(name.to_owned());
            steps.on_subject("recover records from damaged trees", subject);
        }
    }
    let KeyOrder::Catalog(names) = catalog.order else {
        return Err(Error::new(
            Kind::Corrupt,
            LAYER,
            "internal: the catalog has the key order of another tree",
        ));
    };
    let specs = [catalog.spec, overflow.spec, values.spec];
    let more = OverflowRecords::read(&overflow.records);
    let mut damage = losses::Trees::new(&mut catalog, &values, is_bitmap_certain);
    let referenced: HashSet<u32> = attributes::files(&values.records)
        .chain(more.files())
        .collect();
    let mut objects = AllObjects::read(catalog.records, names, header, steps);
    objects.repair(&|id| referenced.contains(&id), steps);
    drop(referenced);
    links::repair(&mut objects, steps);
    objects.part_names(steps);

    let mut grown = header.clone();
    grown.total_blocks = total_blocks;
    grown.raw.total_blocks = total_blocks.into();
    if total_blocks != header.total_blocks {
        steps.add("grow the volume to the end of its partition: it has no room");
    }
    let mut raw = grown.raw;
    rewrite::repair_clumps(&mut raw, header, alternate.as_ref());
    raw.encodings_bitmap = (raw.encodings_bitmap.get() | objects.encodings()).into();
    let journaled = header.has(volume_attributes::JOURNALED);
    let is_journal_dropped =
        journaled && (journal::pending(device, header).is_err() || !objects.has_journal());
    if is_journal_dropped {
        drop_journal(&mut raw, &mut objects, steps);
    }
    damage.own = special_extents(&raw, header);
    let mut old = damage.own.clone();
    if old_trees != OldTrees::Keep {
        old = in_place(&raw.allocation_file, header);
    }
    let mut forks = RepairedForks::default();
    forks.reserved = old;
    grown
        .reserved()
        .into_iter()
        .for_each(|extent| forks.taken.insert(extent));
    repair_startup(&mut raw.startup_file, header, &mut forks.taken, steps);
    let ids: HashSet<u32> = objects.all.iter().map(RepairedObject::id).collect();
    let compressed = objects.compressed();
    let values = attributes::repair(
        values.records,
        &ids,
        &compressed,
        header,
        &mut forks.taken,
        steps,
    );
    forks.objects(&mut objects, &more, header, total_blocks, steps)?;
    let folder_links = links::folder_links(&objects);
    objects.count(&values.owners, &folder_links, steps);
    objects.tell_threads(steps);

    let files = objects
        .all
        .iter()
        .filter(|object| !object.is_folder())
        .count();
    let counts = rewrite::Counts {
        files,
        folders: objects.all.len() - files - 1,
        next_id: objects.next_id(),
    };
    forks.find_longer(&more, |extent| salvage.is_used(extent))?;
    let (losses, mut steps) = {
        let paths = Paths::new(&objects);
        let ownerless = || {
            // The blocks of a journal that has lost its files belong to nothing either.
            if is_journal_dropped {
                return Ok(None);
            }
            let of_records = more
                .all_extents()
                .chain(objects.deleted_blocks.iter().copied())
                .chain(values.dropped_blocks.iter().copied());
            count_ownerless(&salvage, of_records, &damage.own, &forks)
        };
        let found = losses::find(
            &paths,
            &damage,
            &values,
            &forks,
            more.files(),
            header,
            &ownerless,
        )?;
        let name_of = |subject: &Subject| paths.subject(subject);
        (found, all_steps.finish(name_of))
    };
    let records = [
        Records::Catalog(objects.into_records()),
        Records::Other(forks.overflow_records(&more.bad)),
        Records::Other(values.records),
    ];
    let trees = specs.into_iter().zip(records).collect();
    let overlay = Arc::new(CowDevice::spilling(device.clone(), spill.clone()));
    let pending = NewTrees {
        overlay,
        header: &grown,
        taken: forks.taken,
        old: forks.reserved,
        has_reserve: old_trees != OldTrees::OverwriteTightly,
        progress,
    }
    .run(raw, trees, counts, forks.copies, &mut steps)?;
    Ok(Rebuilt {
        pending,
        steps,
        losses,
    })
}

/// Makes the volume one without a journal: blocks of a journal that belong to no file would overwrite the
/// files that get them.
fn drop_journal(raw: &mut VolumeHeaderRaw, objects: &mut AllObjects, steps: &mut Steps) {
    objects.drop_journal(steps);
    raw.attributes = (raw.attributes.get() & !volume_attributes::JOURNALED).into();
    raw.journal_info_block = 0.into();
}

/// Counts the used blocks that neither the repaired files, nor records that are left out, nor the volume's
/// own files (`own`, and those that the alternate header states) refer to. `None` if the bitmap cannot
/// be read.
fn count_ownerless(
    salvage: &Salvage<'_>,
    of_records: impl Iterator<Item = Extent>,
    own: &[Extent],
    forks: &RepairedForks,
) -> Result<Option<u64>> {
    let special = salvage
        .alternate
        .iter()
        .flat_map(|raw| special_extents(raw, salvage.header));
    let stated = of_records
        .chain(special)
        .chain(own.iter().chain(&forks.reserved).copied());
    let mut all = forks.taken.clone();
    stated.for_each(|extent| all.insert(extent));
    salvage.ownerless(&all)
}

/// Cuts the startup file to the contents of its extents, and claims their blocks.
fn repair_startup(
    fork: &mut ForkRaw,
    header: &VolumeHeader,
    taken: &mut UsedBlocks,
    steps: &mut Steps,
) {
    let mut extents = Vec::new();
    for extent in extents_of(&fork.extents) {
        if extent.start.0 == 0
            || extent.end() > u64::from(header.total_blocks)
            || taken.overlaps(extent)
        {
            break;
        }
        taken.insert(extent);
        extents.push(extent);
    }
    let blocks: u32 = extents.iter().map(|extent| extent.count).sum();
    let capacity = u64::from(blocks) * u64::from(header.block_size);
    let size = fork.logical_size.get().min(capacity);
    let repaired = ForkRaw {
        logical_size: size.into(),
        total_blocks: blocks.into(),
        extents: forks::raw(&extents),
        ..*fork
    };
    if repaired != *fork {
        steps.add("truncate the startup file to the blocks that it still has");
        *fork = repaired;
    }
}

/// Returns the extents of the trees and of the bitmap in a volume header that are within the volume.
fn special_extents(raw: &VolumeHeaderRaw, header: &VolumeHeader) -> Vec<Extent> {
    let files = [
        raw.extents_file,
        raw.catalog_file,
        raw.attributes_file,
        raw.allocation_file,
    ];
    let each = |fork: &ForkRaw| in_place(fork, header);
    files.iter().flat_map(each).collect()
}

/// Returns the extents of one of the volume's own files that are within the volume.
fn in_place(fork: &ForkRaw, header: &VolumeHeader) -> Vec<Extent> {
    extents_of(&fork.extents)
        .filter(|extent| extent.end() <= u64::from(header.total_blocks))
        .collect()
}
