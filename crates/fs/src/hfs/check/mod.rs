//! Check of a volume: every rule of §8, with severity and place of each finding.
//!
//! [`check`] reads both master directory blocks, every node of both trees and the bitmap, but no
//! contents of files. Memory grows with the number of objects and extents (about 100 bytes each).

/// The layer of findings about the master directory block.
const HEADER: &str = "hfs master directory block";
/// The layer of findings about the bitmap.
const BITMAP: &str = "hfs bitmap";
/// The layer of findings about the check itself.
const CHECK: &str = "hfs check";

mod catalog;
#[cfg(test)]
mod corruptions;
mod forks;
mod header;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
mod tree;

use std::sync::Arc;

use self::catalog::CatalogCheck;
use self::forks::{ForkRecord, Forks};
use self::tree::HfsTree;
use super::btree::RecordTree;
use super::catalog::LAYER as CATALOG_LAYER;
use super::fork::{BlockSpace, ForkOwner};
use super::layout::{ExtentsRaw, MDB_OFFSET, MasterDirectoryBlock, SECTOR, cnid, fork_type};
use super::{EXTENTS_LAYER, extents_from, read_header};
use crate::block_users::{BlockUse, check_bitmap};
use crate::btree_check::{Rules, walk_tree};
use crate::check_report::Report;
use crate::extent_device::ExtentDevice;
use bandsaw_core::device::BlockDevice;
use bandsaw_core::problem::Problem;
use bandsaw_core::progress::Progress;
use bandsaw_core::{Error, Kind, Result};

/// Checks the volume that begins at the first byte of `device`. The alternate master directory block is
/// expected at the end of the device or of the allocation blocks. Nothing is written.
///
/// The findings come in the order of the checks. Fails on read errors and with [`Kind::Cancelled`].
pub fn check(device: Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<Vec<Problem>> {
    let mut report = Report::default();
    match read_header(&*device) {
        Ok(header) => {
            header::check_header(&header, device.info().len, &mut report);
            header::check_alternate(&*device, &header, &mut report)?;
            let space = BlockSpace {
                device,
                start: header.start(),
                block_size: header.block_size,
                total_blocks: header.total_blocks,
            };
            Checker {
                space,
                header: &header,
                report: &mut report,
                progress,
            }
            .run()?;
        }
        Err(error) if error.kind() == Kind::Corrupt => {
            report.damage(error);
            header::note_alternate(&*device, &mut report)?;
        }
        Err(error) => return Err(error),
    }
    Ok(report.into_problems(CHECK))
}

struct Checker<'a> {
    space: BlockSpace,
    header: &'a MasterDirectoryBlock,
    report: &'a mut Report,
    progress: &'a dyn Progress,
}

impl Checker<'_> {
    fn run(mut self) -> Result<()> {
        let (header, progress) = (self.header, self.progress);
        let raw = &header.raw;
        let mut forks = Forks::new(header.block_size, header.total_blocks);
        let overflow = self.check_extents(&mut forks)?;
        for (id, len, extents) in [
            (cnid::EXTENTS, raw.extents_file_size, &raw.extents_file),
            (cnid::CATALOG, raw.catalog_file_size, &raw.catalog_file),
        ] {
            let fork = ForkRecord {
                id,
                purpose: BlockUse::Special,
                logical_size: len.get(),
                physical_size: len.get(),
                extents,
            };
            forks.check(&fork, self.report);
        }
        let catalog_file = self.special(
            &raw.catalog_file,
            raw.catalog_file_size.get(),
            "catalog file",
            &mut |block| match &overflow {
                Some(overflow) => extents_from(overflow, cnid::CATALOG, fork_type::DATA, block),
                None => Ok(None),
            },
        )?;
        let mut catalog = CatalogCheck::default();
        let mut is_whole = false;
        if let Some(file) = catalog_file {
            is_whole = walk_tree(
                &file,
                HfsTree::Catalog,
                RULES,
                self.report,
                progress,
                &mut |record, node, report| {
                    catalog.add(record, node, &mut forks, report);
                    Ok(())
                },
            )?;
        }
        // Without a part of the catalog, all that refers to it would be reported.
        if is_whole {
            forks.check_overflow(self.report);
            catalog.finish(header, self.report);
        }
        let used = forks.blocks.finish(self.report);
        self.compare_bitmap(is_whole.then_some(&used))?;
        catalog.resolve_paths(self.report);
        Ok(())
    }

    /// Checks the extents tree. Returns a reader of it, if it can be opened.
    fn check_extents(&mut self, forks: &mut Forks) -> Result<Option<RecordTree>> {
        let raw = &self.header.raw;
        let len = raw.extents_file_size.get();
        let none = &mut |_| Ok(None);
        let Some(file) = self.special(&raw.extents_file, len, "extents file", none)? else {
            return Ok(None);
        };
        walk_tree(
            &file,
            HfsTree::Extents,
            RULES,
            self.report,
            self.progress,
            &mut |record, node, report| {
                forks.add_overflow(record, node, report);
                Ok(())
            },
        )?;
        forks.sort_overflow();
        match RecordTree::open(file, EXTENTS_LAYER) {
            Ok(overflow) => Ok(Some(overflow)),
            Err(error) if error.kind() == Kind::Io => Err(error),
            // Reported by the walk.
            Err(_) => Ok(None),
        }
    }

    /// Opens one of the volume's own files; `None` if it cannot be read.
    fn special(
        &mut self,
        extents: &ExtentsRaw,
        len: u32,
        name: &'static str,
        more: &mut dyn FnMut(u16) -> Result<Option<ExtentsRaw>>,
    ) -> Result<Option<ExtentDevice>> {
        match self.space.fork(extents, len, ForkOwner::Volume(name), more) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == Kind::Io => Err(error),
            Err(error) => {
                self.report.damage(error);
                Ok(None)
            }
        }
    }

    /// Compares the bitmap with the blocks in use, and its number of free blocks with the header's.
    /// `used` is `None` if not all of them are known.
    fn compare_bitmap(&mut self, used: Option<&Vec<(u64, u64)>>) -> Result<()> {
        let (header, raw) = (self.header, &self.header.raw);
        let start = u64::from(raw.bitmap_start.get()) * SECTOR;
        let len = u64::from(header.total_blocks).div_ceil(8);
        let end = start + len;
        if start < MDB_OFFSET + SECTOR || end > header.start() {
            let message = format!(
                "the bitmap is recorded at bytes {start} to {end}, expected a place between the master \
                 directory block and the allocation blocks, which begin at {}",
                header.start()
            );
            self.report
                .damage(Error::corrupt(HEADER, MDB_OFFSET, message));
            return Ok(());
        }
        let device = self.space.device.clone();
        let available = device.info().len;
        if end > available {
            let message =
                format!("the bitmap ends at byte {end}, but the volume has only {available}");
            self.report.damage(Error::corrupt(BITMAP, start, message));
            return Ok(());
        }
        let Some(used) = used else { return Ok(()) };
        let file = ExtentDevice::new(device, std::iter::once(start..end), len, BITMAP);
        let total = header.total_blocks.into();
        let totals = check_bitmap(BITMAP, &file, total, used, self.report, self.progress)?;
        let claimed = u32::from(raw.free_blocks.get());
        if let Some(totals) = totals.filter(|totals| totals.free != claimed) {
            let message = format!(
                "the header records {claimed} free blocks, but the bitmap has {}",
                totals.free
            );
            self.report
                .warning(Error::corrupt(HEADER, MDB_OFFSET, message));
        }
        Ok(())
    }
}

const RULES: Rules = Rules {
    whole_nodes: false,
    zeroed: false,
};
