//! Creation of HFS+ and HFSX volumes from a tree of files in one pass.
//!
//! Everything is planned before the first byte is written: numbers and order of all files
//! ([`objects`]), the blocks of their contents ([`forks`]), the sizes of the bitmap and the trees
//! ([`geometry`], after Apple's formatter: [`recipe`]). Then several threads write the contents in
//! place ([`filling`]), the trees are built bottom up from sorted records ([`tree`], [`catalog`],
//! [`attributes`]), then the bitmap, and the header when all of that is durable. Each file is
//! stored in one extent, so there are no records of overflow extents. An empty tree results in a
//! freshly formatted volume.

mod attributes;
mod bitmap;
mod catalog;
mod forks;
mod geometry;
mod header;
mod objects;
mod recipe;
pub(super) mod records;
mod tree;
mod volume_files;

use std::ops::Range;

use zerocopy::IntoBytes;

pub(super) use bitmap::set_bits;
use catalog::Catalog;
use forks::{NodeBlocks, PlacedBodies};
use geometry::{Geometry, JournalPlace, Needs, TreePlace};
use header::Identity;
use objects::Objects;
pub(super) use recipe::journal_len;
use records::RecordStyle;
pub(super) use tree::{HeaderKind, map_nodes};
use tree::{Shape, Writer};

use super::layout::{
    ATTRIBUTES_MAX_KEY_LENGTH, CATALOG_MAX_KEY_LENGTH, EXTENTS_KEY_LENGTH, Extent, HEADER_OFFSET,
    JournalInfoBlockRaw, KEY_COMPARE_BINARY, KEY_COMPARE_FOLD, MIN_BLOCK_SIZE, VARIABLE_INDEX_KEYS,
};
use super::unicode::NameOrder;
use crate::Timestamp;
use crate::build::blank;
use crate::build::filling;
use crate::build::output::Output;
use crate::source::Tree;
use crate::{NewVolumeInfo, PlacedContents, VolumePlan};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::progress::Progress;
use bandsaw_core::{Error, Result};

const LAYER: &str = "hfs+ builder";

/// The folder of hard-linked files, with its name as programs see it.
const PRIVATE_FOLDER: &str = "\u{2400}\u{2400}\u{2400}\u{2400}HFS+ Private Data";

/// Options of a new volume.
#[derive(Debug, Clone)]
pub struct Options {
    /// The volume's name: 1 to 255 UTF-16 units when decomposed, without `/`.
    pub name: String,
    /// True for a case-sensitive volume (HFSX), on which `A` and `a` are different names.
    pub case_sensitive: bool,
    /// True for a volume with a journal, of the length that Apple's formatter chooses.
    pub journaled: bool,
    /// Size of an allocation block in bytes, a power of two from 512. `None` chooses as Apple's
    /// formatter does: 4096 below 2 TiB.
    pub block_size: Option<u32>,
    /// Creation date of the volume.
    pub created: Timestamp,
    /// Upper limit of all dates on the volume, for reproducible volumes.
    pub latest: Option<Timestamp>,
    /// True if the Finder is to open a window of the root folder when the volume is mounted.
    pub opens: bool,
    /// The volume's identifier, from which macOS derives its UUID; should be a random number.
    pub identifier: u64,
}

/// The plan of a volume to be created.
#[derive(Debug)]
pub struct Plan {
    tree: Tree,
    options: Options,
    objects: Objects,
    style: RecordStyle,
    catalog_nodes: (u32, u32),
    attribute_nodes: u32,
}

impl Plan {
    /// Plans a volume that holds `tree`. Fails, naming the file, if the volume cannot hold one.
    pub fn new(mut tree: Tree, options: Options) -> Result<Self> {
        let order = if options.case_sensitive {
            NameOrder::Binary
        } else {
            NameOrder::Folding
        };
        options
            .block_size
            .map_or(Ok(()), geometry::check_block_size)?;
        let objects = Objects::new(&tree, &options.name, order, options.journaled)?;
        forks::prepare(&mut tree)?;
        let style = RecordStyle {
            created: options.created,
            latest: options.latest,
            expanded: false,
            hfsx: options.case_sensitive,
        };
        let mut plan = Self {
            tree,
            options,
            objects,
            style,
            catalog_nodes: (0, 0),
            attribute_nodes: 0,
        };
        plan.measure()?;
        Ok(plan)
    }

    /// Counts the nodes of the trees. The lengths of records do not depend on the layout.
    fn measure(&mut self) -> Result<()> {
        let nowhere = NodeBlocks::nowhere(&self.tree);
        let (mut small, mut large) = (Shape::new(4096), Shape::new(8192));
        self.catalog(&nowhere, JournalPlace::NONE)
            .emit(&mut |key, data| {
                small.add(key, data);
                large.add(key, data);
                Ok(())
            })?;
        let mut shape = Shape::new(recipe::ATTRIBUTES_NODE_SIZE);
        attributes::emit(&self.tree, &self.objects, &nowhere, &mut |key, data| {
            shape.add(key, data);
            Ok(())
        })?;
        self.catalog_nodes = (small.nodes(), large.nodes());
        self.attribute_nodes = shape.nodes();
        Ok(())
    }

    /// Returns the length of all contents in bytes.
    pub fn content_len(&self) -> u64 {
        forks::blocks_of(&self.tree, 1)
    }

    /// Returns the minimum length of the volume in bytes, a multiple of its block size and of 4096.
    pub fn minimum_len(&self) -> Result<u64> {
        self.len_with(|_| 0)
    }

    /// Returns [`minimum_len`](Self::minimum_len) plus free space: a sixteenth more, at least 4
    /// MiB.
    pub fn comfortable_len(&self) -> Result<u64> {
        self.len_with(|least| (least / 16).max(4 << 20))
    }

    /// Returns the length that the volume needs plus `room` of that length, with the block size of
    /// a volume of the resulting length.
    fn len_with(&self, room: impl Fn(u64) -> u64) -> Result<u64> {
        let mut block_size = self.options.block_size.unwrap_or(recipe::block_size(0));
        loop {
            let least = Geometry::minimum_len(block_size, &self.needs(block_size, MIN_BLOCK_SIZE))?;
            let len = (least + room(least)).next_multiple_of(geometry::grain(block_size));
            match recipe::block_size(len) {
                larger if larger > block_size && self.options.block_size.is_none() => {
                    block_size = larger
                }
                _ => return Ok(len),
            }
        }
    }

    /// Writes the volume over all of `device`, whose former contents are lost, and flushes it. On
    /// failure, the device contains no volume.
    pub fn build(
        &self,
        device: &dyn BlockDevice,
        progress: &dyn Progress,
    ) -> Result<NewVolumeInfo> {
        let (geometry, laid) = self.lay_out(device)?;
        blank(device, &[HEADER_OFFSET, device.info().len - HEADER_OFFSET])?;
        let Range { start, end } = laid.blocks.range();
        progress.stage("write", self.content_len().min(end - start));
        // All threads but one write contents, the calling thread writes trees and bitmap and then
        // helps.
        filling::fill(&self.tree, &laid, device, progress, || {
            self.write_metadata(device, &geometry, &laid.blocks)
        })?;
        progress.check()?;
        self.write_header(device, &geometry)
    }

    /// Assigns places on `device`, which is not changed.
    fn lay_out(&self, device: &dyn BlockDevice) -> Result<(Geometry, PlacedBodies<'_>)> {
        let info = device.info();
        info.check_writable(LAYER)?;
        let block_size = self
            .options
            .block_size
            .unwrap_or(recipe::block_size(info.len));
        if block_size < info.block {
            let message = format!(
                "the block size of {block_size} bytes is smaller than that of the disk, {}",
                info.block
            );
            return Err(Error::invalid(LAYER, message));
        }
        let geometry = Geometry::new(info.len, block_size, &self.needs(block_size, info.block))?;
        let blocks = NodeBlocks::allot(&self.tree, geometry.data.start.0, block_size)?;
        let tree = &self.tree;
        Ok((geometry, PlacedBodies { tree, blocks }))
    }

    /// Writes the headers when everything else is durable.
    fn write_header(&self, device: &dyn BlockDevice, geometry: &Geometry) -> Result<NewVolumeInfo> {
        let identity = Identity {
            hfsx: self.options.case_sensitive,
            opens: self.options.opens,
            created: self.style.volume_date(),
            identifier: self.options.identifier,
        };
        header::write(
            device,
            geometry,
            &header::header(geometry, &self.objects, identity),
        )?;
        Ok(NewVolumeInfo {
            len: device.info().len,
            block_size: geometry.block_size,
            files: self.objects.files.into(),
            folders: self.objects.folders.into(),
            free: u64::from(geometry.free_blocks()) * u64::from(geometry.block_size),
        })
    }

    fn needs(&self, block_size: u32, sector: u32) -> Needs {
        Needs {
            catalog_nodes: self.catalog_nodes,
            attribute_nodes: self.attribute_nodes,
            data_blocks: forks::blocks_of(&self.tree, block_size),
            journal: self.options.journaled.then_some(sector),
        }
    }

    fn catalog<'a>(&'a self, blocks: &'a NodeBlocks, journal: JournalPlace) -> Catalog<'a> {
        Catalog {
            tree: &self.tree,
            objects: &self.objects,
            blocks,
            style: self.style,
            journal,
        }
    }

    fn write_metadata(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        blocks: &NodeBlocks,
    ) -> Result<()> {
        let offset = |extent: Extent| extent.start.offset(geometry.block_size);
        let writer = |place: &TreePlace, max_key_length, attributes, key_compare_type| {
            let TreePlace {
                extent,
                node_size,
                total_nodes,
                clump,
            } = *place;
            let kind = HeaderKind {
                node_size,
                max_key_length,
                attributes,
                key_compare_type,
                total_nodes,
                clump,
            };
            Writer::new(kind, Output::new(device, offset(extent)))
        };
        let compare = if self.options.case_sensitive {
            KEY_COMPARE_BINARY
        } else {
            KEY_COMPARE_FOLD
        };
        let mut catalog = writer(
            &geometry.catalog,
            CATALOG_MAX_KEY_LENGTH,
            VARIABLE_INDEX_KEYS,
            compare,
        )?;
        self.catalog(blocks, geometry.journal)
            .emit(&mut |key, data| catalog.add(key, data))?;
        catalog.finish()?;
        let mut attributes = writer(
            &geometry.attributes,
            ATTRIBUTES_MAX_KEY_LENGTH,
            VARIABLE_INDEX_KEYS,
            0,
        )?;
        attributes::emit(&self.tree, &self.objects, blocks, &mut |key, data| {
            attributes.add(key, data)
        })?;
        attributes.finish()?;
        writer(&geometry.extents, EXTENTS_KEY_LENGTH, 0, 0)?.finish()?;
        let JournalPlace { info, body } = geometry.journal;
        if info.count > 0 {
            let place = (
                offset(body),
                u64::from(body.count) * u64::from(geometry.block_size),
            );
            device.write_at(offset(info), JournalInfoBlockRaw::unused(place).as_bytes())?;
        }
        bitmap::write(
            &mut Output::new(device, offset(geometry.bitmap)),
            &geometry.used(),
        )
    }
}

/// Returns the number (CNID) of `node` on the volume that is built from `tree`.
pub fn number_of(tree: &Tree, options: &Options, node: u32) -> Result<u32> {
    let order = if options.case_sensitive {
        NameOrder::Binary
    } else {
        NameOrder::Folding
    };
    Ok(Objects::new(tree, &options.name, order, options.journaled)?
        .cnid(node)
        .0)
}

impl VolumePlan for Plan {
    fn minimum_len(&self) -> Result<u64> {
        self.minimum_len()
    }

    fn comfortable_len(&self) -> Result<u64> {
        self.comfortable_len()
    }

    fn build(&self, device: &dyn BlockDevice, progress: &dyn Progress) -> Result<NewVolumeInfo> {
        self.build(device, progress)
    }

    fn build_metadata<'a>(
        &'a self,
        device: &dyn BlockDevice,
    ) -> Result<(NewVolumeInfo, Box<dyn PlacedContents + 'a>)> {
        let (geometry, laid) = self.lay_out(device)?;
        self.write_metadata(device, &geometry, &laid.blocks)?;
        Ok((self.write_header(device, &geometry)?, Box::new(laid)))
    }
}

/// Writes a tree without records to the `total_nodes * node_size` bytes at `offset`, which must be
/// zero. A new attributes tree begins like this.
pub(super) fn write_empty_tree(
    device: &dyn BlockDevice,
    offset: u64,
    kind: HeaderKind,
) -> Result<()> {
    Writer::new(kind, Output::new(device, offset))?
        .finish()
        .map(drop)
}

/// A function that receives key and data of a record.
pub(super) type RecordSink<'e> = &'e mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// Returns the number of nodes that a tree needs, without map nodes. `records` passes all records
/// on, in order.
pub(super) fn tree_nodes(
    node_size: u16,
    records: impl FnOnce(RecordSink<'_>) -> Result<()>,
) -> Result<u32> {
    let mut shape = Shape::new(node_size);
    records(&mut |key, data| {
        shape.add(key, data);
        Ok(())
    })?;
    Ok(shape.nodes())
}

/// Writes a tree to the `total_nodes * node_size` bytes at `offset`, which must be zero. `records`
/// passes all records on, in order.
pub(super) fn write_tree(
    device: &dyn BlockDevice,
    offset: u64,
    kind: HeaderKind,
    records: impl FnOnce(RecordSink<'_>) -> Result<()>,
) -> Result<()> {
    let mut writer = Writer::new(kind, Output::new(device, offset))?;
    records(&mut |key, data| writer.add(key, data))?;
    writer.finish().map(drop)
}

#[cfg(test)]
pub(super) mod tests;
