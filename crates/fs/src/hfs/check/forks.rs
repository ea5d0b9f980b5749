//! Check of forks against their extents, including those of the overflow tree (§3, §8).

use super::{BITMAP, EXTENTS_LAYER};
use crate::block_users::{BlockUse, BlockUsers};
use crate::check_report::{Report, wrong};
use crate::hfs::layout::{ExtentKey, ExtentsRaw, LAYER, cnid, extents_of, fork_type};
use bandsaw_core::Error;
use bandsaw_core::error::Subject;

/// A fork as it is recorded.
#[derive(Debug)]
pub(super) struct ForkRecord<'a> {
    pub(super) id: u32,
    pub(super) purpose: BlockUse,
    /// Length in bytes.
    pub(super) logical_size: u32,
    /// Length of its blocks in bytes.
    pub(super) physical_size: u32,
    /// The first extents.
    pub(super) extents: &'a ExtentsRaw,
}

impl ForkRecord<'_> {
    fn wrong(&self, message: String) -> Error {
        let name = match self.purpose {
            BlockUse::Special if self.id == cnid::EXTENTS => "extents file".to_owned(),
            BlockUse::Special => "catalog file".to_owned(),
            BlockUse::Resource => format!("resource fork of file {}", self.id),
            _ => format!("data fork of file {}", self.id),
        };
        about(wrong(LAYER, message), self.id, self.purpose).named(name)
    }

    fn key(&self, start_block: u16) -> ExtentKey {
        let fork_type = match self.purpose {
            BlockUse::Resource => fork_type::RESOURCE,
            _ => fork_type::DATA,
        };
        ExtentKey {
            file: self.id,
            fork_type,
            start_block,
        }
    }
}

/// Adds the user of blocks to a finding, unless it is the volume itself.
fn about(error: Error, id: u32, purpose: BlockUse) -> Error {
    match purpose {
        BlockUse::Special => error,
        _ => error.about(Subject::Number(id.into())),
    }
}

/// A record of the overflow tree, and a mark that a fork needed it.
#[derive(Debug)]
struct OverflowExtents {
    key: ExtentKey,
    extents: ExtentsRaw,
    is_used: bool,
}

/// Checks forks against their extents, and records the users of blocks.
#[derive(Debug)]
pub(super) struct Forks {
    pub(super) blocks: BlockUsers,
    block_size: u32,
    total_blocks: u16,
    overflow: Vec<OverflowExtents>,
}

impl Forks {
    pub(super) fn new(block_size: u32, total_blocks: u16) -> Self {
        Self {
            blocks: BlockUsers::new(BITMAP),
            block_size,
            total_blocks,
            overflow: Vec::new(),
        }
    }

    /// Adds a leaf record of the overflow tree.
    pub(super) fn add_overflow(&mut self, record: &[u8], node: u32, report: &mut Report) {
        let (Some(key), Some(extents)) = (ExtentKey::of(record), extents_of(record)) else {
            let message = format!("node {node}: a record is shorter than 20 bytes");
            return report.damage(wrong(EXTENTS_LAYER, message));
        };
        if key.file == cnid::BAD_BLOCKS {
            // Extents of the bad-block file are stored nowhere else.
            self.claim(&extents, key.file, BlockUse::Special, report);
            return;
        }
        self.overflow.push(OverflowExtents {
            key,
            extents,
            is_used: false,
        });
    }

    /// Sorts the records of the overflow tree, which [`check`](Self::check) searches.
    pub(super) fn sort_overflow(&mut self) {
        self.overflow.sort_by_key(|record| record.key);
    }

    /// Checks a fork and claims its blocks. Compares sizes with each other, and extents with the volume.
    pub(super) fn check(&mut self, fork: &ForkRecord<'_>, report: &mut Report) {
        let ForkRecord {
            logical_size,
            physical_size,
            ..
        } = *fork;
        if logical_size > physical_size {
            let message = format!(
                "the recorded length of {logical_size} bytes exceeds its blocks, which have \
                 {physical_size} bytes"
            );
            report.damage(fork.wrong(message));
        }
        let block_size = u64::from(self.block_size);
        let bytes = |blocks: u64| blocks * block_size;
        let mut found = self.claim(fork.extents, fork.id, fork.purpose, report);
        while bytes(found) < physical_size.into() {
            let Some(extents) = u16::try_from(found)
                .ok()
                .and_then(|start| self.take_overflow(fork.key(start)))
            else {
                break;
            };
            let more = self.claim(&extents, fork.id, fork.purpose, report);
            if more == 0 {
                break;
            }
            found += more;
        }
        let found = bytes(found);
        if found != u64::from(physical_size) {
            let message = format!(
                "the fork records {physical_size} bytes in blocks, but its extents have {found}"
            );
            report.damage(fork.wrong(message));
        }
    }

    fn take_overflow(&mut self, key: ExtentKey) -> Option<ExtentsRaw> {
        let at = self
            .overflow
            .binary_search_by_key(&key, |record| record.key)
            .ok()?;
        let record = self.overflow.get_mut(at)?;
        record.is_used = true;
        Some(record.extents)
    }

    /// Claims the extents of one record; returns the number of their blocks.
    fn claim(
        &mut self,
        extents: &ExtentsRaw,
        id: u32,
        purpose: BlockUse,
        report: &mut Report,
    ) -> u64 {
        let wrong =
            |message: String| about(wrong(LAYER, message), id, purpose).named(format!("file {id}"));
        let mut all = extents.iter();
        let mut found = 0;
        for extent in all
            .by_ref()
            .take_while(|extent| extent.block_count.get() != 0)
        {
            let (start, count) = (extent.start_block.get(), extent.block_count.get());
            found += u64::from(count);
            if u32::from(start) + u32::from(count) > self.total_blocks.into() {
                report.damage(wrong(format!(
                    "the extent from block {start} of {count} blocks reaches past the end of the \
                     volume, which has {} blocks",
                    self.total_blocks
                )));
                continue;
            }
            self.blocks.claim((start.into(), count.into()), id, purpose);
        }
        if all.any(|extent| extent.block_count.get() != 0) {
            let message = "an extent follows an empty one, which ends the list";
            report.warning(wrong(message.to_owned()));
        }
        found
    }

    /// Reports the records of the overflow tree that no fork needed.
    pub(super) fn check_overflow(&self, report: &mut Report) {
        for OverflowExtents { key, .. } in self.overflow.iter().filter(|record| !record.is_used) {
            let message = format!(
                "the extents tree has extents from block {} on that no fork of file {} uses",
                key.start_block, key.file
            );
            let finding = wrong(EXTENTS_LAYER, message);
            report.damage(finding.about(Subject::Number(key.file.into())));
        }
    }
}
