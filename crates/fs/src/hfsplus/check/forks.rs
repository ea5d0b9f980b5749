//! Check of forks against their extents, including those of the overflow tree (§4, §17).

use zerocopy::FromBytes;

use super::BITMAP;
use super::report::{Report, numbered, wrong};
use crate::block_users::{BlockUse, BlockUsers};
use crate::hfsplus::layout::{
    Cnid, Extent, ExtentKeyRaw, ExtentRecordRaw, ExtentsRaw, ForkRaw, fork_type,
};

const LAYER: &str = "hfs+ extents";

/// A record of the overflow tree, and a mark that a fork needed it.
#[derive(Debug)]
struct OverflowRecord {
    file: Cnid,
    fork_type: u8,
    start: u32,
    extents: ExtentsRaw,
    used: bool,
}

/// Checks forks against their extents, and records the users of blocks.
#[derive(Debug)]
pub(super) struct Forks {
    pub(super) blocks: BlockUsers,
    block_size: u32,
    total_blocks: u32,
    /// Records in key order.
    overflow: Vec<OverflowRecord>,
}

impl Forks {
    pub(super) fn new(block_size: u32, total_blocks: u32) -> Self {
        Self {
            blocks: BlockUsers::new(BITMAP),
            block_size,
            total_blocks,
            overflow: Vec::new(),
        }
    }

    /// Adds a leaf record of the overflow tree; must be called in key order.
    pub(super) fn add_overflow(&mut self, record: &[u8], node: u32, report: &mut Report) {
        let Ok((record, _)) = ExtentRecordRaw::read_from_prefix(record) else {
            report.damage(wrong(
                "hfs+ extents tree",
                format!("node {node}: a record is shorter than 76 bytes"),
            ));
            return;
        };
        let ExtentKeyRaw {
            file_id,
            fork_type: kind,
            start_block,
            ..
        } = record.key;
        let file = Cnid(file_id.get());
        if file == Cnid::BAD_BLOCKS {
            // Extents of the bad-block file are stored nowhere else.
            self.claim_extents(&record.extents, file, BlockUse::Special, report);
            return;
        }
        self.overflow.push(OverflowRecord {
            file,
            fork_type: kind,
            start: start_block.get(),
            extents: record.extents,
            used: false,
        });
    }

    /// Checks a fork and claims its blocks. Compares sizes with each other, and extents with the
    /// volume.
    pub(super) fn check(
        &mut self,
        fork: &ForkRaw,
        id: Cnid,
        purpose: BlockUse,
        report: &mut Report,
    ) {
        let wanted = fork.total_blocks.get();
        let name = || match purpose {
            BlockUse::Resource => format!("resource fork of file {id}"),
            BlockUse::Attribute => format!("attribute of object {id}"),
            _ => format!("fork of file {id}"),
        };
        let capacity = u64::from(wanted) * u64::from(self.block_size);
        if fork.logical_size.get() > capacity {
            let message = format!(
                "the recorded length of {} bytes exceeds its {wanted} blocks, which have \
                 {capacity} bytes",
                fork.logical_size
            );
            report.damage(wrong(LAYER, message).about(numbered(id)).named(name()));
        }
        let mut found = self.claim_extents(&fork.extents, id, purpose, report);
        let key = if purpose == BlockUse::Resource {
            fork_type::RESOURCE
        } else {
            fork_type::DATA
        };
        while found < u64::from(wanted) && purpose != BlockUse::Attribute {
            let Some(extents) = self.take_overflow(id, key, found) else {
                break;
            };
            let more = self.claim_extents(&extents, id, purpose, report);
            if more == 0 {
                break;
            }
            found += more;
        }
        if found != u64::from(wanted) && purpose != BlockUse::Attribute {
            report.damage(
                wrong(
                    LAYER,
                    format!("the fork records {wanted} blocks, but its extents have {found}"),
                )
                .about(numbered(id))
                .named(name()),
            );
        }
    }

    /// Claims the extents of one record; returns the number of their blocks.
    pub(super) fn claim_extents(
        &mut self,
        extents: &ExtentsRaw,
        id: Cnid,
        purpose: BlockUse,
        report: &mut Report,
    ) -> u64 {
        let mut all = extents.iter().map(|&raw| Extent::from(raw));
        let mut found = 0;
        if let Some(extent) = extents
            .iter()
            .map(|&raw| Extent::from(raw))
            .find(|extent| extent.count == 0 && extent.start.0 != 0)
        {
            let message = format!("empty extent at block {}", extent.start);
            report.damage(
                wrong(LAYER, message)
                    .about(numbered(id))
                    .named(format!("file {id}")),
            );
        }
        for extent in all.by_ref().take_while(|extent| extent.count != 0) {
            found += u64::from(extent.count);
            if extent.end() > u64::from(self.total_blocks) {
                let message = format!(
                    "the extent from block {} of {} blocks reaches past the end of the volume, \
                     which has {} blocks",
                    extent.start, extent.count, self.total_blocks
                );
                report.damage(
                    wrong(LAYER, message)
                        .about(numbered(id))
                        .named(format!("file {id}")),
                );
                continue;
            }
            self.blocks
                .claim((extent.start.0, extent.count), id.0, purpose);
        }
        if all.any(|extent| extent.count != 0) {
            report.warning(
                wrong(LAYER, "an extent follows an empty one, which ends the list")
                    .about(numbered(id))
                    .named(format!("file {id}")),
            );
        }
        found
    }

    fn take_overflow(&mut self, id: Cnid, kind: u8, start: u64) -> Option<ExtentsRaw> {
        let start = u32::try_from(start).ok()?;
        let key = |record: &OverflowRecord| (record.file, record.fork_type, record.start);
        let at = self
            .overflow
            .binary_search_by_key(&(id, kind, start), key)
            .ok()?;
        let record = self.overflow.get_mut(at)?;
        record.used = true;
        Some(record.extents)
    }

    /// Reports the records of the overflow tree that no fork needed.
    pub(super) fn check_overflow(&self, report: &mut Report) {
        for record in self.overflow.iter().filter(|record| !record.used) {
            let message = format!(
                "the extents tree has extents from block {} on that no fork of file {} uses",
                record.start, record.file
            );
            report.damage(wrong("hfs+ extents tree", message).about(numbered(record.file)));
        }
    }
}
