//! The contents of a tree of files that are stored in blocks of their own: data forks, resource
//! forks and large attributes, node by node, each in one extent.

use std::ops::Range;

use crate::build::filling::{self, Content, Piece, Places};
use crate::build::tree::{self, body};
use crate::hfsplus::layout::{AllocBlock, Extent, ForkRaw, max_inline_value};
use crate::source::{SourceKind, SourceNode, Stream, Tree};
use crate::{FINDER_INFO, PlacedContents, RESOURCE_FORK};
use bandsaw_core::device::{self, BlockDevice};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

use super::LAYER;
use super::recipe::ATTRIBUTES_NODE_SIZE;

/// A stream of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForkPart {
    Data,
    Resource,
    /// The attribute at this index among those of the node.
    Attribute(usize),
}

/// Returns the attributes that are stored under their own name in the attributes tree.
pub(super) fn attributes(source: &SourceNode) -> impl Iterator<Item = (usize, &str, &Stream)> {
    let all = source
        .xattrs
        .iter()
        .enumerate()
        .map(|(place, (name, value))| (place, &**name, value));
    all.filter(|(_, name, _)| !matches!(*name, FINDER_INFO | RESOURCE_FORK))
}

/// Returns true if an attribute's value is too large to be stored inline.
pub(super) fn is_large(value: &Stream) -> bool {
    value.len() > u64::from(max_inline_value(ATTRIBUTES_NODE_SIZE))
}

/// Returns the parts of a body that are stored in blocks, in the order of their blocks.
pub(super) fn contents(source: &SourceNode) -> impl Iterator<Item = (ForkPart, Content<'_>)> {
    let data = match &source.kind {
        SourceKind::File(stream) => Some(Content::of(stream)),
        SourceKind::Symlink(target) => Some(Content::InMemory(target.as_bytes())),
        _ => None,
    };
    let resource = source
        .xattrs
        .iter()
        .find(|(name, _)| &**name == RESOURCE_FORK);
    let resource = resource.map(|(_, value)| (ForkPart::Resource, Content::of(value)));
    let large = attributes(source).filter(|(.., value)| is_large(value));
    let large = large.map(|(place, _, value)| (ForkPart::Attribute(place), Content::of(value)));
    data.map(|content| (ForkPart::Data, content))
        .into_iter()
        .chain(resource)
        .chain(large)
        .filter(|(_, content)| content.len() > 0)
}

/// The first block of each node.
#[derive(Debug)]
pub(super) struct NodeBlocks {
    block_size: u32,
    /// First block by node number; the last element is the end of the last node.
    first: Vec<u32>,
}

/// Returns the number of blocks that all bodies take; saturates at 2^64 - 1.
pub(super) fn blocks_of(tree: &Tree, block_size: u32) -> u64 {
    let bodies = (0..narrow::<u32>(tree.nodes.len())).filter_map(|node| body(tree, node));
    bodies
        .map(|source| blocks_of_body(source, block_size))
        .fold(0, u64::saturating_add)
}

fn blocks_of_body(source: &SourceNode, block_size: u32) -> u64 {
    contents(source)
        .map(|(_, content)| content.len().div_ceil(block_size.into()))
        .fold(0, u64::saturating_add)
}

impl NodeBlocks {
    /// Creates a table without blocks, for records of which only the length matters.
    pub(super) fn nowhere(tree: &Tree) -> Self {
        Self {
            block_size: u32::MAX,
            first: vec![0; tree.nodes.len() + 1],
        }
    }

    /// Assigns consecutive blocks from `start` on to all bodies.
    pub(super) fn allot(tree: &Tree, start: u32, block_size: u32) -> Result<Self> {
        let mut next = u64::from(start);
        let mut first = Vec::with_capacity(tree.nodes.len() + 1);
        for node in 0..narrow::<u32>(tree.nodes.len()) {
            first.push(fits(next)?);
            if let Some(source) = body(tree, node) {
                next = next.saturating_add(blocks_of_body(source, block_size));
            }
        }
        first.push(fits(next)?);
        Ok(Self { block_size, first })
    }

    /// Returns the byte range of the volume that all bodies take.
    pub(super) fn range(&self) -> Range<u64> {
        let offset =
            |block: Option<&u32>| AllocBlock(block.copied().unwrap_or(0)).offset(self.block_size);
        offset(self.first.first())..offset(self.first.last())
    }

    pub(super) fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Returns the first block of the body of `node`.
    pub(super) fn first(&self, node: u32) -> AllocBlock {
        AllocBlock(self.first[node as usize])
    }

    /// Returns the last node whose body begins at or before volume offset `offset`, or the first
    /// node.
    pub(super) fn node_at(&self, offset: u64) -> u32 {
        let block = offset / u64::from(self.block_size);
        let after = self
            .first
            .partition_point(|&first| u64::from(first) <= block);
        // Nodes without blocks begin where the next one does; the index is limited to the last
        // node.
        narrow::<u32>(after.saturating_sub(1).min(self.first.len() - 2))
    }

    /// Returns one part of the body of `source`, which begins at `first`, as a fork of the catalog
    /// or of the attributes tree.
    pub(super) fn fork(&self, source: &SourceNode, first: AllocBlock, part: ForkPart) -> ForkRaw {
        let mut start = first.0;
        for (this, content) in contents(source) {
            let count = narrow::<u32>(content.len().div_ceil(self.block_size.into())); // allotted, so it fits
            if this == part {
                let mut fork = ForkRaw {
                    logical_size: content.len().into(),
                    total_blocks: count.into(),
                    ..Default::default()
                };
                fork.extents[0] = Extent {
                    start: AllocBlock(start),
                    count,
                }
                .into();
                return fork;
            }
            start += count;
        }
        ForkRaw::default()
    }
}

/// The bodies of a tree with their assigned blocks.
#[derive(Debug)]
pub(super) struct PlacedBodies<'a> {
    pub(super) tree: &'a Tree,
    pub(super) blocks: NodeBlocks,
}

impl PlacedContents for PlacedBodies<'_> {
    fn range(&self) -> Range<u64> {
        self.blocks.range()
    }

    fn write(&self, range: Range<u64>, device: &dyn BlockDevice) -> Result<()> {
        filling::fill_range(self.tree, self, device, range)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<device::Extent> {
        filling::extent_at(self.tree, self, range)
    }
}

impl Places for PlacedBodies<'_> {
    fn range(&self) -> Range<u64> {
        self.blocks.range()
    }

    fn zeroed(&self) -> bool {
        true
    }

    fn pieces(
        &self,
        stretch: Range<u64>,
        each: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let block_size = self.blocks.block_size;
        for node in self.blocks.node_at(stretch.start)..narrow::<u32>(self.tree.nodes.len()) {
            let mut at = self.blocks.first(node).offset(block_size);
            if at >= stretch.end {
                break;
            }
            for (_, content) in body(self.tree, node).into_iter().flat_map(contents) {
                let after = at + content.len().next_multiple_of(block_size.into());
                if at < stretch.end && after > stretch.start {
                    each(Piece {
                        node,
                        content,
                        from: 0,
                        place: at..after,
                    })?;
                }
                at = after;
            }
        }
        Ok(())
    }
}

fn fits(block: u64) -> Result<u32> {
    u32::try_from(block)
        .map_err(|_| Error::limit(LAYER, "the files need more than 2^32 allocation blocks"))
}

/// Refuses values that a record cannot express, and sorts attributes in the order of the tree.
pub(super) fn prepare(tree: &mut Tree) -> Result<()> {
    tree::prepare(tree, LAYER, prepare_attributes)
}

fn prepare_attributes(source: &mut SourceNode) -> Result<()> {
    use crate::hfsplus::unicode::encode_attribute_name;
    let has_resource_fork = matches!(source.kind, SourceKind::File(_));
    for (name, value) in &source.xattrs {
        if &**name == FINDER_INFO && !matches!(value, Stream::Bytes(bytes) if bytes.len() == 32) {
            let message = format!(
                "the attribute {FINDER_INFO} has {} bytes: expected 32 bytes in memory",
                value.len()
            );
            return Err(Error::invalid(LAYER, message));
        }
        if &**name == RESOURCE_FORK && !has_resource_fork && !value.is_empty() {
            return Err(Error::unsupported(
                LAYER,
                "only a file can have a resource fork",
            ));
        }
        if value.len() > u64::from(u32::MAX >> 1) && &**name != RESOURCE_FORK {
            return Err(Error::limit(
                LAYER,
                format!("the attribute {name} is larger than 2 GiB"),
            ));
        }
    }
    let mut sorted = Vec::with_capacity(source.xattrs.len());
    for (name, value) in std::mem::take(&mut source.xattrs) {
        let mut units = Vec::new();
        encode_attribute_name(&name, &mut units)?;
        sorted.push((units, name, value));
    }
    sorted.sort_by(|a, b| crate::hfsplus::unicode::compare_binary(&a.0, &b.0));
    if let Some(same) = sorted.windows(2).find(|two| two[0].0 == two[1].0) {
        return Err(Error::conflict(
            LAYER,
            format!("the attribute {} exists twice", same[0].1),
        ));
    }
    source.xattrs = sorted
        .into_iter()
        .map(|(_, name, value)| (name, value))
        .collect();
    Ok(())
}
