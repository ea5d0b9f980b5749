//! Compression of files while a volume is being built.
//!
//! A volume is planned completely before its first byte is written, so all lengths must be known in
//! advance: packed forks are kept in a spool file beside the image, and copied into the volume from
//! there. Memory holds only the file being packed.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::choose::FileTraits;
use super::in_place::compare;
use super::{CompressOptions, FileReport, SkipReason, on_cores};
use crate::Result;
use crate::decmpfs::{self, MAX_LEN, PackedFile, PlainContents, pack};
use crate::device::{AfterDiscard, BlockDevice, Memory, Slice};
use crate::fs::source::{ContentReader, Contents, SourceKind, SourceNode, Stream, Tree};
use crate::fs::{RESOURCE_FORK, UF_COMPRESSED};
use crate::progress::Progress;
use crate::size::{narrow, to_usize};
use crate::sync::Mutex;

/// Allocation properties of the volume to be built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockRounding {
    /// Size of a block, in bytes.
    pub(crate) block: u32,
    /// True if holes take no storage.
    pub(crate) holes: bool,
}

/// Largest fork, in bytes, that is packed in memory.
const SMALL: u64 = 1 << 20;
/// Alignment of forks in the spool, in bytes, so that unused space can be discarded.
const GRAIN: u64 = 4096;
/// Smallest file, in bytes, that is examined for holes.
const MIN_SPARSE: u64 = 64 << 10;
/// Used in place of a node number: the stream is in the spool. No tree has this many nodes.
const SPOOL: u32 = u32::MAX;

/// Returns the length of a spool that can hold all packed forks in any case, in bytes.
pub(crate) fn spool_len(tree: &Tree) -> u64 {
    let lens = tree.nodes.iter().map(|node| {
        if let SourceKind::File(stream) = &node.kind {
            stream.len()
        } else {
            0
        }
    });
    // A packed file is always smaller than the file itself.
    lens.filter(|len| *len <= MAX_LEN)
        .map(|len| len.next_multiple_of(GRAIN))
        .fold(GRAIN, u64::saturating_add)
}

/// Compresses the files of `tree` that `options` select, on all cores. `spool`, an empty disk of
/// [`spool_len`] bytes that lives as long as the tree, holds the packed forks.
pub(crate) fn compress_tree(
    tree: Tree,
    room: BlockRounding,
    spool: Arc<dyn BlockDevice>,
    options: &CompressOptions,
    progress: &dyn Progress,
) -> Result<(Tree, Vec<FileReport>)> {
    let len = |node: &SourceNode| {
        if let SourceKind::File(stream) = &node.kind {
            stream.len()
        } else {
            0
        }
    };
    progress.stage("compress", tree.nodes.iter().map(len).sum());
    let spool = Spool {
        device: spool,
        end: Mutex::new(0),
    };
    let one = |(node, source): (u32, &SourceNode)| match &source.kind {
        SourceKind::File(stream) => {
            let path = tree.path(node);
            let incoming = CompressedTree {
                tree: &tree,
                source,
                stream,
                room,
                spool: &spool,
                options,
                progress,
            };
            incoming.run(&path).map(Some).map_err(|error| {
                if error.file().is_none() {
                    error.named(path)
                } else {
                    error
                }
            })
        }
        _ => Ok(None),
    };
    let nodes = tree.nodes.par_iter().enumerate();
    let all = || {
        nodes
            .map(|(node, source)| one((narrow(node), source)))
            .collect::<Result<Vec<_>>>()
    };
    let done = on_cores(options.jobs, all)??;
    let Tree {
        mut nodes,
        contents,
    } = tree;
    let mut reports = Vec::new();
    for (source, done) in nodes.iter_mut().zip(done) {
        let Some((report, stored)) = done else {
            continue;
        };
        reports.push(report);
        let Some(Spooled { packed, fork }) = stored else {
            continue;
        };
        source.kind = SourceKind::File(Stream::empty());
        source.flags |= UF_COMPRESSED;
        source.xattrs.retain(|(name, _)| &**name != RESOURCE_FORK);
        source.xattrs.push((
            decmpfs::ATTRIBUTE.into(),
            Stream::Bytes(packed.attribute.into()),
        ));
        if packed.fork_len > 0 {
            source.xattrs.push((
                RESOURCE_FORK.into(),
                Stream::Extern {
                    node: SPOOL,
                    offset: fork,
                    len: packed.fork_len,
                },
            ));
        }
    }
    Ok((
        Tree {
            nodes,
            contents: Box::new(SpooledFile {
                below: contents,
                spool: spool.device,
            }),
        },
        reports,
    ))
}

/// A packed file, with the offset of its fork in the spool.
struct Spooled {
    packed: PackedFile,
    fork: u64,
}

struct CompressedTree<'a> {
    tree: &'a Tree,
    source: &'a SourceNode,
    stream: &'a Stream,
    room: BlockRounding,
    spool: &'a Spool,
    options: &'a CompressOptions,
    progress: &'a dyn Progress,
}

impl CompressedTree<'_> {
    fn run(&self, path: &str) -> Result<(FileReport, Option<Spooled>)> {
        let (size, block) = (self.stream.len(), u64::from(self.room.block));
        let report = |before: u64, left| FileReport {
            path: path.to_owned(),
            number: None,
            size,
            before,
            after: before,
            left,
        };
        if let Some(left) = self.why_left(path) {
            self.progress.advance(size);
            return Ok((report(size.next_multiple_of(block), Some(left)), None));
        }
        let before = self.allocated()?;
        match self.pack(before)? {
            Some(stored) => {
                let after = stored.packed.fork_len.next_multiple_of(block)
                    + stored.packed.attribute.len() as u64;
                Ok((
                    FileReport {
                        number: stored.packed.number(),
                        after,
                        ..report(before, None)
                    },
                    Some(stored),
                ))
            }
            None => Ok((report(before, Some(SkipReason::NoGain)), None)),
        }
    }

    fn why_left(&self, path: &str) -> Option<SkipReason> {
        let has = |name: &str| {
            self.source
                .xattrs
                .iter()
                .any(|(found, value)| &**found == name && !value.is_empty())
        };
        let compressed = has(decmpfs::ATTRIBUTE)
            && self.source.flags & UF_COMPRESSED != 0
            && self.stream.is_empty();
        let looks = FileTraits {
            path,
            size: self.stream.len(),
            compressed,
            locked: false,
        };
        match self.options.leaves(&looks) {
            None if has(RESOURCE_FORK) || has(decmpfs::ATTRIBUTE) => Some(SkipReason::ResourceFork),
            left => left,
        }
    }

    /// Returns the bytes of the blocks that the file would take uncompressed.
    fn allocated(&self) -> Result<u64> {
        let (len, block) = (self.stream.len(), u64::from(self.room.block));
        if !self.room.holes || len < MIN_SPARSE || matches!(self.stream, Stream::Bytes(_)) {
            return Ok(len.next_multiple_of(block));
        }
        let reader = self.tree.contents.open(self.stream)?;
        let (mut at, mut taken) = (0, 0);
        while at < len
            && let Some(Range { start, end }) = reader.data_from(at)?
        {
            let first = (start / block * block).max(at);
            at = end.clamp(start + 1, len).next_multiple_of(block);
            taken += at - first;
        }
        // The builder always writes the last block.
        Ok(if at < len { taken + block } else { taken })
    }

    fn pack(&self, allocated: u64) -> Result<Option<Spooled>> {
        let bounds = self
            .options
            .bounds(self.stream.len(), allocated, self.room.block.into());
        if bounds.fork > SMALL {
            return self.pack_large(bounds);
        }
        let mut fork = Vec::new();
        let mut write = |at: u64, bytes: &[u8]| {
            let at = to_usize(at);
            fork.resize(fork.len().max(at + bytes.len()), 0);
            fork[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        let packed = self.packed(bounds, &mut write)?;
        let Some(packed) = packed else {
            return Ok(None);
        };
        let place = self.spool.reserve(fork.len() as u64);
        self.spool.device.write_at(place.start, &fork)?;
        self.compare(&packed, Arc::new(Memory::read_only(fork)))?;
        Ok(Some(Spooled {
            packed,
            fork: place.start,
        }))
    }

    fn pack_large(&self, bounds: decmpfs::Bounds) -> Result<Option<Spooled>> {
        let place = self.spool.reserve(bounds.fork);
        let mut write = |at: u64, bytes: &[u8]| self.spool.device.write_at(place.start + at, bytes);
        let packed = self.packed(bounds, &mut write)?;
        let used = packed.as_ref().map_or(0, |packed| packed.fork_len);
        self.spool.free_range(place.start + used..place.end)?;
        let Some(packed) = packed else {
            return Ok(None);
        };
        let fork = place.start..place.start + packed.fork_len;
        self.compare(
            &packed,
            Arc::new(Slice::new(self.spool.device.clone(), fork)?),
        )?;
        Ok(Some(Spooled {
            packed,
            fork: place.start,
        }))
    }

    fn packed(
        &self,
        bounds: decmpfs::Bounds,
        write: &mut (dyn FnMut(u64, &[u8]) -> Result<()> + Send),
    ) -> Result<Option<PackedFile>> {
        let options = self.options.packing;
        self.with_plain(&mut |plain| pack(plain, options, bounds, self.progress, write))
    }

    /// Refuses a packed form that does not decode to the original contents, if that is requested.
    fn compare(&self, packed: &PackedFile, fork: Arc<dyn BlockDevice>) -> Result<()> {
        if !self.options.verify {
            return Ok(());
        }
        self.with_plain(&mut |plain| compare(plain, packed, fork.clone(), self.progress))
    }

    /// Calls `each` with a reader of the file's contents.
    fn with_plain<T>(&self, each: &mut dyn FnMut(PlainContents<'_>) -> Result<T>) -> Result<T> {
        let len = self.stream.len();
        match self.stream {
            Stream::Bytes(bytes) => {
                let memory = Memory::read_only(&**bytes);
                each(PlainContents {
                    len,
                    read: &mut |at, buf| memory.read_at(at, buf),
                })
            }
            Stream::Extern { .. } => {
                let mut reader = self.tree.contents.open(self.stream)?;
                each(PlainContents {
                    len,
                    read: &mut |at, buf| reader.read_at(at, buf),
                })
            }
        }
    }
}

/// The file that holds packed forks.
#[derive(Debug)]
struct Spool {
    device: Arc<dyn BlockDevice>,
    /// Offset of the next fork.
    end: Mutex<u64>,
}

impl Spool {
    /// Reserves `len` bytes.
    fn reserve(&self, len: u64) -> Range<u64> {
        let mut end = self.end.lock();
        let place = *end..*end + len;
        *end = place.end.next_multiple_of(GRAIN);
        place
    }

    /// Returns reserved space that is not needed, and discards it in the file.
    fn free_range(&self, unused: Range<u64>) -> Result<()> {
        let start = unused.start.next_multiple_of(GRAIN);
        let mut end = self.end.lock();
        if *end == unused.end.next_multiple_of(GRAIN) {
            *end = start.min(*end);
        }
        let until = unused.end.next_multiple_of(GRAIN);
        if start < until {
            self.device.discard(start..until, AfterDiscard::Any)
        } else {
            Ok(())
        }
    }
}

/// The contents of a tree, of which some are in the spool.
struct SpooledFile {
    below: Box<dyn Contents>,
    spool: Arc<dyn BlockDevice>,
}

impl fmt::Debug for SpooledFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpooledFile")
            .field("below", &self.below)
            .finish_non_exhaustive()
    }
}

impl Contents for SpooledFile {
    fn open(&self, stream: &Stream) -> Result<Box<dyn ContentReader + '_>> {
        match *stream {
            Stream::Extern {
                node: SPOOL,
                offset,
                len,
            } => Ok(Box::new(SpoolFork {
                spool: &*self.spool,
                offset,
                len,
            })),
            _ => self.below.open(stream),
        }
    }
}

struct SpoolFork<'a> {
    spool: &'a dyn BlockDevice,
    offset: u64,
    len: u64,
}

impl ContentReader for SpoolFork<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.spool.read_at(self.offset + offset, buf)
    }

    fn data_from(&self, from: u64) -> Result<Option<Range<u64>>> {
        Ok((from < self.len).then_some(from..self.len))
    }
}
