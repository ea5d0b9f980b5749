//! Writing of new trees to free blocks, the bitmap, and the header that refers to them.

use std::ops::Range;
use std::sync::Arc;

use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use super::forks::{ContentCopy, UsedBlocks, raw};
use super::objects::CatalogRecords;
use super::{PendingWrites, no_room};
use crate::RepairStep;
use crate::hfsplus::btree::TreeKind;
use crate::hfsplus::build::{self, RecordSink, map_nodes};
use crate::hfsplus::extents::{ForkDevice, ForkSpace};
use crate::hfsplus::layout::{
    ATTRIBUTES_MAX_KEY_LENGTH, CATALOG_MAX_KEY_LENGTH, EXTENTS_KEY_LENGTH, Extent, ForkRaw,
    HEADER_OFFSET, VARIABLE_INDEX_KEYS, VolumeHeader, VolumeHeaderRaw, extents_of,
    volume_attributes,
};
use bandsaw_core::Result;
use bandsaw_core::device::{
    Access, AfterDiscard, BlockDevice, BlockDeviceExt, CowDevice, Extent as DeviceExtent,
    FileRange, Info,
};
use bandsaw_core::progress::Progress;
use bandsaw_core::size::to_usize;

/// Bytes copied or compared at a time.
const PIECE: usize = 1 << 20;

/// Properties of a tree other than its records.
#[derive(Debug, Clone, Copy)]
pub(super) struct TreeSpec {
    pub(super) kind: TreeKind,
    pub(super) node_size: u16,
    pub(super) key_compare_type: u8,
    pub(super) clump: u32,
}

/// Counts for the volume header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) files: usize,
    pub(super) folders: usize,
    pub(super) next_id: u32,
}

/// Marks a volume as cleanly unmounted and consistent.
pub(super) fn mark_clean(raw: &mut VolumeHeaderRaw) {
    let attributes = raw.attributes.get()
        & !(volume_attributes::INCONSISTENT | volume_attributes::BOOT_INCONSISTENT);
    raw.attributes = (attributes | volume_attributes::UNMOUNTED).into();
    raw.last_mounted_version = *b"bsaw";
    raw.write_count = raw.write_count.get().wrapping_add(1).into();
}

/// Replaces clump sizes that Apple's checker rejects by those of the alternate header, or by those
/// that the checker would set (§2).
pub(super) fn repair_clumps(
    raw: &mut VolumeHeaderRaw,
    header: &VolumeHeader,
    alternate: Option<&VolumeHeaderRaw>,
) {
    let size = header.block_size;
    let fork_clump = |own: U32, other: Option<U32>| {
        let usual = if header.is_fork_clump(size.saturating_mul(4)) {
            size.saturating_mul(4)
        } else {
            size
        };
        let found = [Some(own), other]
            .into_iter()
            .flatten()
            .find(|clump| header.is_fork_clump(clump.get()));
        found.unwrap_or_else(|| usual.into())
    };
    raw.data_clump_size = fork_clump(
        raw.data_clump_size,
        alternate.map(|raw| raw.data_clump_size),
    );
    raw.rsrc_clump_size = fork_clump(
        raw.rsrc_clump_size,
        alternate.map(|raw| raw.rsrc_clump_size),
    );
    let file_clump = |own: &mut ForkRaw, other: Option<&ForkRaw>, least: u32| {
        let is_right = |clump: u32| clump >= least && header.is_file_clump(clump);
        let found = [Some(own.clump_size), other.map(|other| other.clump_size)];
        let found = found
            .into_iter()
            .flatten()
            .find(|clump| is_right(clump.get()));
        let extent = own.extents[0].block_count.get().saturating_mul(size);
        own.clump_size =
            found.unwrap_or_else(|| if is_right(extent) { extent } else { size }.into());
    };
    file_clump(
        &mut raw.extents_file,
        alternate.map(|raw| &raw.extents_file),
        0,
    );
    file_clump(
        &mut raw.catalog_file,
        alternate.map(|raw| &raw.catalog_file),
        0,
    );
    file_clump(
        &mut raw.allocation_file,
        alternate.map(|raw| &raw.allocation_file),
        0,
    );
    if raw.attributes_file.total_blocks.get() != 0 {
        file_clump(
            &mut raw.attributes_file,
            alternate.map(|raw| &raw.attributes_file),
            1,
        );
    }
}

/// Writes both headers.
pub(super) fn write_headers(device: &dyn BlockDevice, raw: &VolumeHeaderRaw) -> Result<()> {
    let len = device.info().len;
    // The alternate first, because the primary is the one that is used.
    [len - HEADER_OFFSET, HEADER_OFFSET]
        .into_iter()
        .try_for_each(|offset| device.write_at(offset, raw.as_bytes()))
}

/// The records of a new tree, in key order.
pub(super) enum Records {
    Catalog(CatalogRecords),
    Other(Vec<Box<[u8]>>),
}

impl Records {
    /// Returns true if there are no records; a catalog always has some.
    fn is_none(&self) -> bool {
        matches!(self, Self::Other(records) if records.is_empty())
    }

    fn try_each(&self, each: RecordSink<'_>) -> Result<()> {
        match self {
            Self::Catalog(records) => records.try_each(each),
            Self::Other(records) => {
                let mut pairs = records.iter().filter_map(|record| split(record));
                pairs.try_for_each(|(key, data)| each(key, data))
            }
        }
    }
}

/// The volume that is being assembled.
pub(super) struct NewTrees<'a> {
    pub(super) overlay: Arc<CowDevice>,
    pub(super) header: &'a VolumeHeader,
    /// Blocks used by everything but trees and bitmap.
    pub(super) taken: UsedBlocks,
    /// Blocks of the old trees: free afterwards, but needed until then in case of a crash.
    pub(super) old: Vec<Extent>,
    /// True to give the new trees room to grow.
    pub(super) has_reserve: bool,
    pub(super) progress: &'a dyn Progress,
}

impl NewTrees<'_> {
    /// Allocates and writes the trees and the bitmap, then completes the header `raw`, which
    /// already contains the changes of other steps.
    pub(super) fn run(
        mut self,
        mut raw: VolumeHeaderRaw,
        trees: Vec<(TreeSpec, Records)>,
        counts: Counts,
        copies: Vec<ContentCopy>,
        steps: &mut Vec<RepairStep>,
    ) -> Result<PendingWrites> {
        // New structures must not overwrite blocks in use before the header is written.
        let mut avoid = self.taken.clone();
        self.old.iter().for_each(|&extent| avoid.insert(extent));
        let bitmap = self.place_bitmap(&mut raw, &mut avoid, steps)?;
        for (spec, records) in trees {
            self.progress.check()?;
            if spec.kind == TreeKind::Attributes
                && records.is_none()
                && raw.attributes_file.total_blocks.get() == 0
            {
                continue;
            }
            let fork = self.tree(spec, &records, &mut avoid)?;
            let place = match spec.kind {
                TreeKind::Extents => &mut raw.extents_file,
                TreeKind::Catalog(_) => &mut raw.catalog_file,
                TreeKind::Attributes => &mut raw.attributes_file,
            };
            *place = fork;
        }
        let free = self.write_bitmap(&bitmap)?;
        raw.file_count = u32::try_from(counts.files).unwrap_or(u32::MAX).into();
        raw.folder_count = u32::try_from(counts.folders).unwrap_or(u32::MAX).into();
        raw.next_catalog_id = counts.next_id.into();
        raw.free_blocks = free.into();
        if raw.next_allocation.get() >= self.header.total_blocks {
            raw.next_allocation = 0.into();
        }
        mark_clean(&mut raw);
        write_headers(&*self.overlay, &raw)?;
        Ok(PendingWrites {
            overlay: self.overlay,
            copies,
            block_size: self.header.block_size,
            bitmap,
            header: raw,
        })
    }

    /// Keeps the place of the bitmap if it is valid, otherwise allocates another.
    fn place_bitmap(
        &mut self,
        raw: &mut VolumeHeaderRaw,
        avoid: &mut UsedBlocks,
        steps: &mut Vec<RepairStep>,
    ) -> Result<Vec<Extent>> {
        let (size, total) = (self.header.block_size, self.header.total_blocks);
        let fork = &raw.allocation_file;
        let extents: Vec<Extent> = extents_of(&fork.extents).collect();
        let blocks: u64 = extents.iter().map(|extent| u64::from(extent.count)).sum();
        let needed = u64::from(total).div_ceil(8);
        let mut own = UsedBlocks::default();
        let apart = extents.iter().all(|&extent| {
            let free = extent.end() <= u64::from(total)
                && !self.taken.overlaps(extent)
                && !own.overlaps(extent);
            own.insert(extent);
            free
        });
        let whole =
            blocks == u64::from(fork.total_blocks.get()) && fork.logical_size.get() >= needed;
        if apart && whole && fork.logical_size.get() <= blocks * u64::from(size) {
            raw.allocation_file.extents = super::forks::raw(&extents);
            extents.iter().for_each(|&extent| self.taken.insert(extent));
            return Ok(extents);
        }
        steps.push("rebuild the bitmap".into());
        let blocks = u32::try_from(needed.div_ceil(size.into())).unwrap_or(u32::MAX);
        let extents = avoid.allocate(blocks, 1, total)?;
        extents.iter().for_each(|&extent| self.taken.insert(extent));
        raw.allocation_file = fork_over(&extents, size, size);
        Ok(extents)
    }

    /// Writes a tree of `records` to free blocks.
    fn tree(
        &mut self,
        spec: TreeSpec,
        records: &Records,
        avoid: &mut UsedBlocks,
    ) -> Result<ForkRaw> {
        let size = self.header.block_size;
        let node = u32::from(spec.node_size);
        let nodes = build::tree_nodes(spec.node_size, |each| records.try_each(each))?;
        let wanted = match self.has_reserve {
            true => nodes + nodes / 8 + 8 + map_nodes(spec.node_size, 2 * nodes + 16),
            false => nodes + map_nodes(spec.node_size, nodes + 1),
        };
        let unit = (node / size).max(1);
        let bytes = u64::from(wanted) * u64::from(node);
        let blocks = bytes.div_ceil(size.into()).next_multiple_of(unit.into());
        let blocks = u32::try_from(blocks)
            .map_err(|_| no_room("a rebuilt tree would need more than 2^32 - 1 blocks"))?;
        let extents = avoid.allocate(blocks, unit, self.header.total_blocks)?;
        extents.iter().for_each(|&extent| self.taken.insert(extent));
        let bytes = u64::from(blocks) * u64::from(size);
        let (max_key_length, attributes) = match spec.kind {
            TreeKind::Extents => (EXTENTS_KEY_LENGTH, 0),
            TreeKind::Catalog(_) => (CATALOG_MAX_KEY_LENGTH, VARIABLE_INDEX_KEYS),
            TreeKind::Attributes => (ATTRIBUTES_MAX_KEY_LENGTH, VARIABLE_INDEX_KEYS),
        };
        let is_right = |clump: &u32| *clump > 0 && self.header.is_file_clump(*clump);
        let clump = [spec.clump, (unit * size).max(node)]
            .into_iter()
            .find(is_right)
            .unwrap_or(size);
        let kind = build::HeaderKind {
            node_size: spec.node_size,
            max_key_length,
            attributes,
            key_compare_type: spec.key_compare_type,
            total_nodes: u32::try_from(bytes / u64::from(node)).unwrap_or(u32::MAX),
            clump,
        };
        let space = ForkSpace {
            device: self.overlay.clone(),
            block_size: size,
            total_blocks: self.header.total_blocks,
        };
        let file = TreeFile(space.device_over(&extents, bytes));
        file.0.zero(0..bytes)?;
        build::write_tree(&file, 0, kind, |each| records.try_each(each))?;
        Ok(fork_over(&extents, size, clump))
    }

    /// Writes the parts of the bitmap that differ; returns the number of free blocks.
    pub(super) fn write_bitmap(&self, place: &[Extent]) -> Result<u32> {
        let total = u64::from(self.header.total_blocks);
        let mut used = 0;
        let mut first = 0;
        for (offset, len) in pieces(place, self.header.block_size) {
            let blocks = first..(first + len as u64 * 8).min(total.max(first));
            let mut expected = vec![0; len];
            for (start, end) in self.taken.runs() {
                let (start, end) = (start.max(blocks.start), end.min(blocks.end));
                if start < end {
                    build::set_bits(
                        &mut expected,
                        to_usize(start - first)..to_usize(end - first),
                    );
                    used += end - start;
                }
            }
            if self.overlay.read_vec(offset, len)? != expected {
                self.overlay.write_at(offset, &expected)?;
            }
            first += len as u64 * 8;
        }
        Ok(u32::try_from(total - used).unwrap_or(0))
    }
}

/// The file of a new tree, of fixed length.
#[derive(Debug)]
struct TreeFile(ForkDevice);

impl BlockDevice for TreeFile {
    fn info(&self) -> Info {
        Info {
            access: Access::ReadWrite,
            ..self.0.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.0.overwrite(offset, buf)
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        match leave {
            AfterDiscard::Zeros => self.0.zero(range),
            AfterDiscard::Any => Ok(()),
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<DeviceExtent> {
        self.0.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        self.0.set_len(len, leave)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.0.file_range(range)
    }
}

impl PendingWrites {
    /// Writes everything in an order such that after a crash either the old volume or the new one
    /// is found.
    pub(super) fn write(&self, device: &dyn BlockDevice, progress: &dyn Progress) -> Result<()> {
        let len = device.info().len;
        for copy in &self.copies {
            copy_blocks(device, copy, self.block_size, progress)?;
        }
        // Write the new trees, but not the structures that are changed in place.
        let mut keep: Vec<(u64, u64)> = self
            .bitmap
            .iter()
            .map(|extent| {
                (
                    extent.start.offset(self.block_size),
                    extent.end() * u64::from(self.block_size),
                )
            })
            .chain([
                (HEADER_OFFSET, HEADER_OFFSET + 512),
                (len - HEADER_OFFSET, len - HEADER_OFFSET + 512),
            ])
            .collect();
        keep.sort_unstable();
        let mut at = 0;
        for (start, end) in keep {
            self.overlay.apply(at..start.max(at), device)?;
            at = end.max(at);
        }
        self.overlay.apply(at..len, device)?;
        // Old and new blocks are both marked used as long as either header may be found.
        for (offset, piece) in pieces(&self.bitmap, self.block_size) {
            let (old, new) = (
                device.read_vec(offset, piece)?,
                self.overlay.read_vec(offset, piece)?,
            );
            let both: Vec<u8> = old.iter().zip(&new).map(|(old, new)| old | new).collect();
            if both != old {
                device.write_at(offset, &both)?;
            }
        }
        device.flush()?;
        progress.check()?;
        let mut unclean = self.header;
        unclean.attributes = (unclean.attributes.get() & !volume_attributes::UNMOUNTED).into();
        device.write_at(HEADER_OFFSET, unclean.as_bytes())?;
        device.flush()?;
        for (offset, piece) in pieces(&self.bitmap, self.block_size) {
            self.overlay.apply(offset..offset + piece as u64, device)?;
        }
        device.flush()?;
        write_headers(device, &self.header)?;
        device.flush()
    }
}

/// Returns the byte ranges of a file's extents, in pieces.
fn pieces(extents: &[Extent], block_size: u32) -> impl Iterator<Item = (u64, usize)> + '_ {
    extents.iter().flat_map(move |extent| {
        let (start, end) = (
            extent.start.offset(block_size),
            extent.end() * u64::from(block_size),
        );
        (start..end)
            .step_by(PIECE)
            .map(move |at| (at, PIECE.min(to_usize(end - at))))
    })
}

fn copy_blocks(
    device: &dyn BlockDevice,
    copy: &ContentCopy,
    block_size: u32,
    progress: &dyn Progress,
) -> Result<()> {
    let blocks = |extents: &[Extent]| -> Vec<u64> {
        extents
            .iter()
            .flat_map(|extent| u64::from(extent.start.0)..extent.end())
            .collect()
    };
    let mut buf = vec![0; block_size as usize];
    for (from, to) in blocks(&copy.from).into_iter().zip(blocks(&copy.to)) {
        progress.check()?;
        device.read_at(from * u64::from(block_size), &mut buf)?;
        device.write_at(to * u64::from(block_size), &buf)?;
    }
    Ok(())
}

/// Returns the fork of one of the volume's own files that takes all of `extents`.
fn fork_over(extents: &[Extent], block_size: u32, clump: u32) -> ForkRaw {
    let blocks: u32 = extents.iter().map(|extent| extent.count).sum();
    ForkRaw {
        logical_size: (u64::from(blocks) * u64::from(block_size)).into(),
        clump_size: clump.into(),
        total_blocks: blocks.into(),
        extents: raw(extents),
    }
}

/// Splits a record into key and data.
fn split(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u16::from_be_bytes([*record.first()?, *record.get(1)?]);
    record.split_at_checked(2 + usize::from(length))
}
