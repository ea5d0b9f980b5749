//! The streams of a tree and the blocks that they get: contents, and attributes too large for the
//! file-system tree, node after node. A stream is contiguous except for the holes of sparse files.

use std::collections::BTreeMap;
use std::ops::Range;

use super::LAYER;
use super::node::TreeKind;
use crate::apfs::layout::{BlockSize, MAX_EMBEDDED_XATTR, Paddr, xattr_name};
use crate::build::filling::{Content, Piece, Places};
use crate::build::tree::{self, body, path};
use crate::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw_core::progress::Progress;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

/// Maximum length of an attribute name in macOS, in bytes.
const MAX_ATTRIBUTE_NAME: usize = 127;
/// Smaller files are stored without holes: querying the host costs more than it saves.
const MIN_SPARSE: u64 = 64 << 10;

/// A part of a body that has a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Data,
    /// The attribute at this index among those stored in streams.
    Attribute(u64),
}

/// Returns true if an attribute is stored in a stream. Resource forks always are.
pub(super) fn in_stream(name: &str, value: &Stream) -> bool {
    // The head of the key, the name's length and its NUL; the head of the value.
    let record = 8 + 2 + name.len() + 1 + 4;
    let room = TreeKind::longest_record(BlockSize::DEFAULT)
        .saturating_sub(record)
        .min(MAX_EMBEDDED_XATTR);
    name == xattr_name::RESOURCE_FORK || value.len() > room as u64
}

/// Returns the attributes of a body that are stored in streams, in their order.
pub(super) fn in_streams(source: &SourceNode) -> impl Iterator<Item = &Stream> {
    source
        .xattrs
        .iter()
        .filter(|(name, value)| in_stream(name, value))
        .map(|(_, value)| value)
}

/// Returns the parts of a body that are stored in blocks, in the order of their blocks.
fn contents(source: &SourceNode) -> impl Iterator<Item = (Part, Content<'_>)> {
    let data = match &source.kind {
        SourceKind::File(stream) if !stream.is_empty() => Some((Part::Data, Content::of(stream))),
        _ => None,
    };
    let attributes = (0..)
        .map(Part::Attribute)
        .zip(in_streams(source).map(Content::of));
    data.into_iter().chain(attributes)
}

/// The allocated blocks of sparse files: block numbers within the file, ascending and disjoint, by
/// node.
#[derive(Debug, Default)]
pub(super) struct Holes(BTreeMap<u32, Vec<Range<u64>>>);

impl Holes {
    /// Queries the holes of the large files of `tree`.
    pub(super) fn find(
        tree: &Tree,
        block_size: BlockSize,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut sparse = BTreeMap::new();
        for (node, source) in (0..).zip(&tree.nodes) {
            let SourceKind::File(stream @ Stream::Extern { len, .. }) = &source.kind else {
                continue;
            };
            if *len < MIN_SPARSE {
                continue;
            }
            progress.check()?;
            let runs = data_runs(tree, stream, *len, block_size);
            let runs = runs.map_err(|error| {
                if error.file().is_none() {
                    error.in_file(path(tree, node))
                } else {
                    error
                }
            })?;
            if runs.iter().map(|run| run.end - run.start).sum::<u64>() < block_size.blocks_for(*len)
            {
                sparse.insert(node, runs);
            }
        }
        Ok(Self(sparse))
    }
}

fn data_runs(
    tree: &Tree,
    stream: &Stream,
    len: u64,
    block_size: BlockSize,
) -> Result<Vec<Range<u64>>> {
    let reader = tree.contents.open(stream)?;
    let (size, blocks) = (u64::from(block_size.get()), block_size.blocks_for(len));
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut add = |run: Range<u64>| match runs.last_mut() {
        Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
        _ => runs.push(run),
    };
    let mut at = 0;
    while at < len
        && let Some(data) = reader.data_from(at)?
    {
        add(data.start / size..data.end.min(len).div_ceil(size));
        at = data.end.max(at + 1);
    }
    // The last block is always allocated: only reading a file's last byte reveals that the file has
    // changed.
    add(blocks - 1..blocks);
    Ok(runs)
}

/// A run of blocks of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamRun {
    /// First block of the run within the stream.
    pub(super) from: u64,
    pub(super) count: u64,
    /// First block in the container, `None` for a hole.
    pub(super) place: Option<Paddr>,
}

/// The first block of each node's contents.
#[derive(Debug)]
pub(super) struct NodeBlocks<'a> {
    tree: &'a Tree,
    holes: &'a Holes,
    block_size: BlockSize,
    /// True if blocks are encrypted, so that zeros are not stored as zeros.
    encrypted: bool,
    /// First blocks by node, followed by the block after the last.
    first: Vec<u64>,
}

impl<'a> NodeBlocks<'a> {
    /// Assigns blocks to every body, beginning with `start`.
    pub(super) fn allot(
        tree: &'a Tree,
        holes: &'a Holes,
        block_size: BlockSize,
        encrypted: bool,
        start: Paddr,
    ) -> Result<Self> {
        let mut blocks = Self {
            tree,
            holes,
            block_size,
            encrypted,
            first: Vec::with_capacity(tree.nodes.len() + 1),
        };
        let mut next = start.0;
        for node in 0..narrow::<u32>(tree.nodes.len()) {
            blocks.first.push(next);
            for (part, content) in body(tree, node).into_iter().flat_map(contents) {
                next = next.saturating_add(blocks.stored(node, part, content.len()));
            }
        }
        blocks.first.push(next);
        if next > u64::MAX >> 20 {
            return Err(Error::limit(
                LAYER,
                "the files need more blocks than a container can have",
            ));
        }
        Ok(blocks)
    }

    pub(super) fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Returns the number of blocks of all bodies.
    pub(super) fn count(&self) -> u64 {
        self.first
            .last()
            .zip(self.first.first())
            .map_or(0, |(end, start)| end - start)
    }

    /// Calls `each` with the blocks of every part of the body of `node`.
    pub(super) fn parts(
        &self,
        node: u32,
        each: &mut dyn FnMut(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let mut start = self.first[node as usize];
        for (part, content) in body(self.tree, node).into_iter().flat_map(contents) {
            let end = start + self.stored(node, part, content.len());
            each(start..end)?;
            start = end;
        }
        Ok(())
    }

    /// Returns the number of allocated blocks of a part of a body.
    fn stored(&self, node: u32, part: Part, len: u64) -> u64 {
        match self.holes.0.get(&node) {
            Some(runs) if part == Part::Data => runs.iter().map(|run| run.end - run.start).sum(),
            _ => self.block_size.blocks_for(len),
        }
    }

    /// Returns the number of blocks of a part that are holes.
    pub(super) fn holes(&self, node: u32, part: Part, len: u64) -> u64 {
        self.block_size.blocks_for(len) - self.stored(node, part, len)
    }

    /// Calls `each` with the runs of one part of the body of `node`, holes included.
    pub(super) fn runs(
        &self,
        node: u32,
        part: Part,
        each: &mut dyn FnMut(StreamRun) -> Result<()>,
    ) -> Result<()> {
        let mut start = self.first[node as usize];
        for (this, content) in body(self.tree, node).into_iter().flat_map(contents) {
            if this == part {
                return self.runs_at(node, part, content.len(), start, each);
            }
            start += self.stored(node, this, content.len());
        }
        Ok(())
    }

    fn runs_at(
        &self,
        node: u32,
        part: Part,
        len: u64,
        start: u64,
        each: &mut dyn FnMut(StreamRun) -> Result<()>,
    ) -> Result<()> {
        let whole = 0..self.block_size.blocks_for(len);
        let stored = match self.holes.0.get(&node) {
            Some(runs) if part == Part::Data => runs.as_slice(),
            _ => std::slice::from_ref(&whole),
        };
        let (mut from, mut place) = (0, start);
        for run in stored {
            if run.start > from {
                each(StreamRun {
                    from,
                    count: run.start - from,
                    place: None,
                })?;
            }
            each(StreamRun {
                from: run.start,
                count: run.end - run.start,
                place: Some(Paddr(place)),
            })?;
            place += run.end - run.start;
            from = run.end;
        }
        Ok(())
    }

    /// Returns the offset of a block in bytes. `allot` checked that it fits.
    fn offset(&self, block: u64) -> u64 {
        block * u64::from(self.block_size.get())
    }
}

impl Places for NodeBlocks<'_> {
    fn range(&self) -> Range<u64> {
        let offset = |block: Option<&u64>| self.offset(block.copied().unwrap_or(0));
        offset(self.first.first())..offset(self.first.last())
    }

    fn zeroed(&self) -> bool {
        !self.encrypted
    }

    fn pieces(
        &self,
        stretch: Range<u64>,
        each: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let block = stretch.start / u64::from(self.block_size.get());
        // Nodes without blocks have the same first block as the next node; of those with equal
        // first blocks the last one owns them.
        let first = self
            .first
            .partition_point(|&first| first <= block)
            .saturating_sub(1);
        for node in narrow::<u32>(first)..narrow::<u32>(self.tree.nodes.len()) {
            let mut start = self.first[node as usize];
            if self.offset(start) >= stretch.end {
                break;
            }
            for (part, content) in body(self.tree, node).into_iter().flat_map(contents) {
                self.runs_at(node, part, content.len(), start, &mut |run| {
                    let Some(place) = run.place else {
                        return Ok(());
                    };
                    let place = self.offset(place.0)..self.offset(place.0 + run.count);
                    match place.start < stretch.end && place.end > stretch.start {
                        true => each(Piece {
                            node,
                            content,
                            from: self.offset(run.from),
                            place,
                        }),
                        false => Ok(()),
                    }
                })?;
                start += self.stored(node, part, content.len());
            }
        }
        Ok(())
    }
}

/// Checks that records can represent the tree, sorts attributes into the order of the tree, and
/// removes empty resource forks.
pub(super) fn prepare(tree: &mut Tree) -> Result<()> {
    tree::prepare(tree, LAYER, prepare_attributes)
}

fn prepare_attributes(source: &mut SourceNode) -> Result<()> {
    source
        .xattrs
        .retain(|(name, value)| &**name != xattr_name::RESOURCE_FORK || !value.is_empty());
    for (name, value) in &source.xattrs {
        if name.is_empty() || name.len() > MAX_ATTRIBUTE_NAME || name.contains('\0') {
            let message = format!(
                "invalid attribute name {name:?} of {} bytes: expected 1 to {MAX_ATTRIBUTE_NAME}",
                name.len()
            );
            return Err(Error::limit(LAYER, message));
        }
        if &**name == xattr_name::SYMLINK {
            return Err(Error::unsupported(
                LAYER,
                format!("cannot set the attribute {name}, which the volume uses for its own data"),
            ));
        }
        if &**name == xattr_name::FINDER_INFO
            && !matches!(value, Stream::Bytes(bytes) if bytes.len() == 32)
        {
            let message = format!(
                "the attribute {name} has {} bytes: expected 32 bytes in memory",
                value.len()
            );
            return Err(Error::invalid(LAYER, message));
        }
        if &**name == xattr_name::RESOURCE_FORK && !matches!(source.kind, SourceKind::File(_)) {
            return Err(Error::unsupported(
                LAYER,
                "only a file can have a resource fork",
            ));
        }
        if value.len() > u64::from(u32::MAX >> 1) && &**name != xattr_name::RESOURCE_FORK {
            return Err(Error::limit(
                LAYER,
                format!("the attribute {name} is larger than 2 GiB"),
            ));
        }
    }
    source
        .xattrs
        .sort_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
    match source.xattrs.windows(2).find(|two| two[0].0 == two[1].0) {
        Some(same) => Err(Error::conflict(
            LAYER,
            format!("the attribute {} exists twice", same[0].0),
        )),
        None => Ok(()),
    }
}
