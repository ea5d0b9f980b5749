//! Check of a volume: every rule of §17, with severity and place of each finding.
//!
//! [`check`] reads the headers, every node of every tree and the bitmap, but no contents of files.
//! Transactions pending in the journal are treated as replayed. Memory use grows with the number of
//! objects and extents (about 100 bytes each), not with the size of the volume.

/// The layer of findings about the volume header.
const HEADER: &str = "hfs+ volume header";
/// The layer of findings about the check itself.
const CHECK: &str = "hfs+ check";
/// The layer of findings about the bitmap.
const BITMAP: &str = "hfs+ bitmap";

mod attributes;
mod catalog;
mod forks;
mod links;
mod paths;
mod report;
mod tree;
mod volume;

#[cfg(feature = "testing")]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub(super) mod corruptions;
#[cfg(feature = "testing")]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub(super) mod sample;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::attributes::AttributeCheck;
use self::catalog::Catalog;
use self::forks::Forks;
pub(super) use self::report::Report;
use self::report::{numbered, wrong};
use super::btree::TreeKind;
use super::extents::{ForkDevice, ForkSpace, Owner};
use super::layout::{Cnid, ForkRaw, VolumeHeader, fork_type, volume_attributes};
use super::overflow::Overflow;
use super::write::recover;
use super::{LAYER, header, journal};
use crate::block_users::{BitmapTotals, BlockUse, check_bitmap};
pub(super) use crate::btree_check::{Rules, walk_tree};
use bandsaw_core::device::{BlockDevice, CowDevice};
use bandsaw_core::problem::Problem;
use bandsaw_core::progress::Progress;
use bandsaw_core::{Error, Kind, Result};

/// Maximum number of bytes changed in memory to finish an interrupted mount: blocks of the bitmap.
const REPLAYED: u64 = 64 << 20;
/// Maximum number of empty files that are listed because they may have lost their contents.
const MAX_SUSPECTS: usize = 20;
const MAY_BE_LOST: &str = "contents that were lost may be in the blocks that nothing uses";

/// Checks the volume that begins at the first byte of `device` and ends with its last. Nothing is
/// written.
///
/// The findings come in the order of the checks. Fails on read errors, with [`Kind::Cancelled`],
/// and with [`Kind::Unsupported`] for plain HFS.
pub fn check(device: Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<Vec<Problem>> {
    check_and_count(device, progress).map(|(problems, _)| problems)
}

/// A structure of which a repair derives all contents from the trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Derived {
    Header,
    Bitmap,
}

/// Returns the derived structure that a finding concerns. `None`: it concerns a tree or a file.
pub(super) fn derived_structure(finding: &Problem) -> Option<Derived> {
    match finding.error.layer() {
        // Findings on the whole volume name files of the header.
        HEADER | LAYER => Some(Derived::Header),
        BITMAP => Some(Derived::Bitmap),
        _ => None,
    }
}

/// Totals counted in the trees of a volume that its header and its bitmap repeat.
#[derive(Debug, Clone)]
pub(super) struct TreeTotals {
    pub(super) files: u64,
    /// Number of folders, without the root.
    pub(super) folders: u64,
    pub(super) highest: Cnid,
    /// A bit for each text encoding in use.
    pub(super) encodings: u64,
    /// Number of files in the root folder that have the type of the journal's.
    pub(super) journal_files: u64,
    /// Runs of used blocks in ascending order, adjacent ones merged.
    pub(super) used: Vec<(u64, u64)>,
    /// True if some blocks are used twice.
    pub(super) overlaps: bool,
    /// True if all trees existed and could be walked.
    pub(super) complete: bool,
    /// Contents that a file may have lost without a trace in the catalog.
    pub(super) unowned: Option<UnownedBlocks>,
}

/// Blocks without an owner that bitmap and volume header agree to be in use: left by a crash, or the
/// contents of a file whose record is damaged or of an earlier state.
#[derive(Debug, Clone)]
pub(super) struct UnownedBlocks {
    /// Number of the blocks; not 0.
    pub(super) blocks: u64,
    /// True if the volume was unmounted cleanly, so that no crash has left the blocks.
    pub(super) is_certain: bool,
    /// The paths of the empty files; none if there are more than [`MAX_SUSPECTS`].
    pub(super) suspects: Vec<String>,
}

/// Checks the headers and the bitmap of a volume whose trees are consistent and contain `totals`.
pub(super) fn check_in_place(
    device: Arc<dyn BlockDevice>,
    header: &VolumeHeader,
    totals: &TreeTotals,
    progress: &dyn Progress,
) -> Result<Vec<Problem>> {
    let mut report = Report::default();
    volume::check_header(header, &mut report);
    volume::check_alternate(&*device, header, &mut report)?;
    let space = ForkSpace {
        device,
        block_size: header.block_size,
        total_blocks: header.total_blocks,
    };
    let overflow = Overflow::open(&space, &header.raw.extents_file)?;
    Checker {
        space,
        header,
        report: &mut report,
        progress,
    }
    .compare_bitmap(&totals.used, Some(&overflow))?;
    Ok(report.into_problems(CHECK))
}

/// Runs [`check`] and returns the totals counted as well; `None` if the volume header could not be
/// read.
pub(super) fn check_and_count(
    device: Arc<dyn BlockDevice>,
    progress: &dyn Progress,
) -> Result<(Vec<Problem>, Option<TreeTotals>)> {
    let mut report = Report::default();
    let totals = check_into(device, progress, &mut report)?;
    Ok((report.into_problems(CHECK), totals))
}

/// Runs a check until `budget` stops it, and returns the findings up to then. Fails only on read
/// errors.
pub fn check_within(device: Arc<dyn BlockDevice>, budget: &dyn Progress) -> Result<Vec<Problem>> {
    let mut report = Report::default();
    match check_into(device, budget, &mut report) {
        Err(error) if error.kind() == Kind::Io => Err(error),
        _ => Ok(report.into_problems(CHECK)),
    }
}

fn check_into(
    device: Arc<dyn BlockDevice>,
    progress: &dyn Progress,
    report: &mut Report,
) -> Result<Option<TreeTotals>> {
    let located = match header::locate(device) {
        Ok(located) => located,
        Err(error) if error.kind() == Kind::Corrupt => {
            report.damage(error);
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let (device, header) = replay_journal(located, report)?;
    volume::check_header(&header, report);
    volume::check_alternate(&*device, &header, report)?;
    let space = ForkSpace {
        device,
        block_size: header.block_size,
        total_blocks: header.total_blocks,
    };
    Checker {
        space,
        header: &header,
        report,
        progress,
    }
    .run()
    .map(Some)
}

/// Returns the volume as it will be once its journal is replayed, or an interrupted mount is
/// finished.
fn replay_journal(
    located: header::LocatedHeader,
    report: &mut Report,
) -> Result<(Arc<dyn BlockDevice>, VolumeHeader)> {
    let header::LocatedHeader {
        device,
        header,
        problems,
        ..
    } = located;
    problems
        .into_iter()
        .for_each(|problem| report.damage(problem));
    if recover::is_opening(&*device, &header) {
        let message = "a mount was interrupted while it allocated or freed its journal; the next \
                       mount for writing completes that";
        report.note(wrong(
            LAYER,
            format!("{message}; the volume is checked as if that were complete"),
        ));
        let replayed: Arc<dyn BlockDevice> = Arc::new(CowDevice::new(device.clone(), REPLAYED));
        return match recover::free_leftover_blocks(&replayed, header.clone())
            .and_then(|()| header::unwrapped(replayed.clone()))
        {
            Ok(header::LocatedHeader { device, header, .. }) => Ok((device, header)),
            Err(error) if error.kind() == Kind::Io => Err(error),
            Err(error) => {
                report.damage(error);
                Ok((device, header))
            }
        };
    }
    if !header.has(volume_attributes::JOURNALED) {
        return Ok((device, header));
    }
    match journal::pending(&device, &header) {
        Ok(None) => Ok((device, header)),
        Ok(Some(journal::PendingJournal { device, problem })) => {
            report.note(wrong(
                LAYER,
                "the journal is not empty; the volume is checked as after its replay",
            ));
            problem
                .into_iter()
                .for_each(|problem| report.damage(problem));
            let header::LocatedHeader {
                device,
                header,
                problems,
                ..
            } = header::unwrapped(device)?;
            problems
                .into_iter()
                .for_each(|problem| report.damage(problem));
            Ok((device, header))
        }
        Err(error) if error.kind() == Kind::Io => Err(error),
        Err(error) => {
            report.damage(error);
            Ok((device, header))
        }
    }
}

struct Checker<'a> {
    space: ForkSpace,
    header: &'a VolumeHeader,
    report: &'a mut Report,
    progress: &'a dyn Progress,
}

impl Checker<'_> {
    fn run(mut self) -> Result<TreeTotals> {
        let (header, progress) = (self.header, self.progress);
        let raw = &header.raw;
        let rules = Rules {
            whole_nodes: header.has(volume_attributes::JOURNALED),
            zeroed: true,
        };
        let mut forks = Forks::new(header.block_size, header.total_blocks);
        header.reserved().into_iter().for_each(|extent| {
            let run = (extent.start.0, extent.count);
            forks.blocks.claim(run, 0, BlockUse::Header);
        });

        let (overflow, mut complete) = self.check_extents(&mut forks, rules)?;
        for (fork, id) in [
            (&raw.extents_file, Cnid::EXTENTS),
            (&raw.catalog_file, Cnid::CATALOG),
            (&raw.allocation_file, Cnid::ALLOCATION),
            (&raw.startup_file, Cnid::STARTUP),
            (&raw.attributes_file, Cnid::ATTRIBUTES),
        ] {
            forks.check(fork, id, BlockUse::Special, self.report);
        }

        let mut catalog = Catalog::new(header);
        let catalog_file = self.special(
            &raw.catalog_file,
            "catalog file",
            Cnid::CATALOG,
            overflow.as_ref(),
        )?;
        complete &= catalog_file.is_some();
        if let Some(file) = &catalog_file {
            complete &= walk_tree(
                file,
                TreeKind::Catalog(header.variant),
                rules,
                self.report,
                progress,
                &mut |record, node, report| {
                    catalog.add(record, node, &mut forks, report);
                    Ok(())
                },
            )?;
        }
        let (attributes, is_complete) =
            self.check_attributes(&mut forks, overflow.as_ref(), rules)?;
        complete &= is_complete;
        forks.check_overflow(self.report);
        let counted = TreeTotals {
            files: catalog.files,
            folders: catalog.folders,
            highest: catalog.highest,
            encodings: catalog.encodings,
            journal_files: catalog.journal_files,
            used: Vec::new(),
            overlaps: false,
            complete,
            unowned: None,
        };
        catalog.finish(&attributes.into_owners(), self.report);
        let before = self.report.len();
        let used = forks.blocks.finish(self.report);
        let overlaps = self.report.len() > before;
        let unowned = self.compare_bitmap(&used, overflow.as_ref())?;
        let before = self.report.len();
        if unowned > 0 {
            self.note_empty_files(&catalog);
        }
        if let Some(file) = &catalog_file {
            paths::resolve(&catalog, file, header.variant, self.report, progress)?;
        }
        let suspects = self.report.paths_since(before);
        let is_certain = header.is_clean();
        let unowned = (unowned > 0).then_some(UnownedBlocks {
            blocks: unowned,
            is_certain,
            suspects,
        });
        Ok(TreeTotals {
            used,
            overlaps,
            unowned,
            ..counted
        })
    }

    /// Checks the extents tree. Returns a reader of it, if it can be opened, and true if all of it was
    /// read.
    fn check_extents(
        &mut self,
        forks: &mut Forks,
        rules: Rules,
    ) -> Result<(Option<Overflow>, bool)> {
        let raw = &self.header.raw.extents_file;
        let file = self.special(raw, "extents file", Cnid::EXTENTS, None)?;
        let complete = match &file {
            None => raw.total_blocks.get() == 0,
            Some(file) => walk_tree(
                file,
                TreeKind::Extents,
                rules,
                self.report,
                self.progress,
                &mut |record, node, report| {
                    forks.add_overflow(record, node, report);
                    Ok(())
                },
            )?,
        };
        match Overflow::open(&self.space, raw) {
            Ok(overflow) => Ok((Some(overflow), complete)),
            Err(error) if error.kind() == Kind::Io => Err(error),
            // Reported by the checks above.
            Err(_) => Ok((None, complete)),
        }
    }

    /// Checks the attributes tree. Returns its records, and true if all of it was read.
    fn check_attributes(
        &mut self,
        forks: &mut Forks,
        overflow: Option<&Overflow>,
        rules: Rules,
    ) -> Result<(AttributeCheck, bool)> {
        let raw = &self.header.raw.attributes_file;
        let mut attributes = AttributeCheck::default();
        let file = self.special(raw, "attributes file", Cnid::ATTRIBUTES, overflow)?;
        let Some(file) = &file else {
            return Ok((attributes, raw.total_blocks.get() == 0));
        };
        let complete = walk_tree(
            file,
            TreeKind::Attributes,
            rules,
            self.report,
            self.progress,
            &mut |record, node, report| {
                attributes.add(record, node, forks, report);
                Ok(())
            },
        )?;
        attributes.close(self.report);
        Ok((attributes, complete))
    }

    /// Notes the empty files, which may have lost the blocks that no file owns.
    fn note_empty_files(&mut self, catalog: &Catalog) {
        match catalog.empty_files().count() {
            0 => {}
            1..=MAX_SUSPECTS => {
                for id in catalog.empty_files() {
                    let message = format!("file {id} is empty: {MAY_BE_LOST}");
                    let note = wrong(BITMAP, message).about(numbered(id));
                    self.report.note(note);
                }
            }
            count => {
                let message = format!("{count} files are empty: {MAY_BE_LOST}");
                self.report.note(wrong(BITMAP, message));
            }
        }
    }

    /// Opens one of the volume's own files; `None` if it does not exist or cannot be read.
    fn special(
        &mut self,
        fork: &ForkRaw,
        name: &'static str,
        id: Cnid,
        overflow: Option<&Overflow>,
    ) -> Result<Option<ForkDevice>> {
        if fork.total_blocks.get() == 0 {
            if id == Cnid::CATALOG || id == Cnid::ALLOCATION {
                self.report
                    .damage(wrong(LAYER, format!("the volume has no {name}")));
            }
            return Ok(None);
        }
        let mut more = |block| match overflow {
            Some(overflow) => overflow.get(id, fork_type::DATA, block),
            None => Ok(None),
        };
        match self.space.fork(fork, &Owner::Special(name), &mut more) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == Kind::Io => Err(error),
            Err(error) => {
                self.report.damage(error);
                Ok(None)
            }
        }
    }

    /// Compares the bitmap with the blocks in use. Returns the number of blocks that nothing uses,
    /// if bitmap and header agree on the number of used ones; otherwise 0.
    fn compare_bitmap(&mut self, runs: &[(u64, u64)], overflow: Option<&Overflow>) -> Result<u64> {
        let fork = &self.header.raw.allocation_file;
        let Some(file) = self.special(fork, "allocation file", Cnid::ALLOCATION, overflow)? else {
            return Ok(0);
        };
        let totals = check_bitmap(
            BITMAP,
            &file,
            self.header.total_blocks,
            runs,
            self.report,
            self.progress,
        )?;
        let claimed = self.header.raw.free_blocks.get();
        let Some(BitmapTotals { free, unowned }) = totals else {
            return Ok(0);
        };
        if free == claimed {
            return Ok(unowned);
        }
        let message =
            format!("the header records {claimed} free blocks, but the bitmap has {free}");
        self.report.warning(Error::corrupt(
            HEADER,
            super::layout::HEADER_OFFSET,
            message,
        ));
        Ok(0)
    }
}
