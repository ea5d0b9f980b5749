//! The input for a new volume: a tree of nodes that is known in full before the first byte is
//! written, and the contents of its files, which several threads read.
//!
//! `ops::import` makes one from a folder or a tar archive; `fs::hfsplus::build` lays it out.

use std::fmt;
use std::fs::File;
use std::ops::Range;

use super::unicode::normalize;
use super::{FileKind, Timestamp};
use bandsaw_core::platform::{self, Next};
use bandsaw_core::{Error, Reason, Result};

/// A tree from which a volume is built. Node 0 is the root folder; the index of a node's parent is
/// smaller than its own.
#[derive(Debug)]
pub struct Tree {
    /// Nodes, the root first.
    pub nodes: Vec<SourceNode>,
    /// Access to the contents of the nodes.
    pub contents: Box<dyn Contents>,
}

impl Tree {
    /// Returns an empty root folder, created at `moment`, for a volume that is only formatted.
    pub fn empty(moment: Timestamp) -> Self {
        let root = SourceNode::made(0, "", SourceKind::Folder, 0o755, moment);
        Self {
            nodes: vec![root],
            contents: Box::new(InMemory),
        }
    }

    /// Returns the path of a node within the tree, for messages.
    pub fn path(&self, mut node: u32) -> String {
        let mut names = Vec::new();
        while node != 0
            && let Some(source) = self.nodes.get(node as usize)
        {
            names.push(&*source.name);
            node = source.parent;
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// Returns the error about two nodes that have one name on a volume, by its rules of case and
    /// composition.
    pub fn same_name(&self, a: u32, b: u32) -> Error {
        let form = |node: u32| {
            let node = self.nodes.get(node as usize);
            normalize(node.map_or("", |node| &node.name), false)
        };
        let differ_in_case = form(a) != form(b);
        let why = match differ_in_case {
            true => "the volume ignores case",
            false => "the volume ignores the composition of characters",
        };
        let message = format!(
            "the name is the same on the volume as {}: {why}",
            self.path(b)
        );
        let reason = match differ_in_case {
            true => Reason::CaseIgnored,
            false => Reason::SameName,
        };
        Error::conflict("names", message)
            .because(reason)
            .named(self.path(a))
    }
}

/// The contents of a tree whose streams are all [`Stream::Bytes`], so that none is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct InMemory;

impl Contents for InMemory {
    fn open(&self, _stream: &Stream) -> Result<Box<dyn ContentReader + '_>> {
        Err(Error::invalid(
            "source",
            "the source can supply contents in memory only",
        ))
    }
}

/// Access to the contents of [`SourceNode`]s, used by several threads.
pub trait Contents: fmt::Debug + Send + Sync {
    /// Opens the contents of a stream for sequential or positional reading.
    fn open(&self, stream: &Stream) -> Result<Box<dyn ContentReader + '_>>;
}

/// The open contents of one stream.
pub trait ContentReader: Send {
    /// Fills all of `buf` from `offset`. Bytes past the end (the file was truncated since it was
    /// listed) are an error of [`Kind::Conflict`](bandsaw_core::Kind) that names the file.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Returns the first range at or after `from` that may contain nonzero bytes; `None` if there
    /// is none before the end.
    fn data_from(&self, from: u64) -> Result<Option<Range<u64>>>;
}

/// Implements [`ContentReader::data_from`] for `len` bytes of a host file, which begin at offset
/// `base`. If the host does not support holes, everything is data.
pub fn data_in_file(file: &File, base: u64, len: u64, from: u64) -> Option<Range<u64>> {
    let end = base.saturating_add(len);
    let start = match platform::next_data(file, base.saturating_add(from)) {
        Ok(Next::At(at)) => at,
        Ok(Next::Nowhere) => end,
        Ok(Next::Unknown) | Err(_) => return (from < len).then_some(from..len),
    };
    let until = match platform::next_hole(file, start) {
        Ok(Next::At(at)) => at.min(end),
        Ok(Next::Nowhere | Next::Unknown) | Err(_) => end,
    };
    (start < until).then(|| start - base..until - base)
}

/// Bytes of known length: in memory, or to be read from [`Contents`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stream {
    /// Small contents in memory.
    Bytes(Box<[u8]>),
    /// Contents to be opened with [`Contents::open`]: node, offset (in a tar archive) and length.
    Extern {
        /// Index of the node with these contents.
        node: u32,
        /// Offset of the first byte (in a tar archive); 0 for a host file.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
}

impl Stream {
    /// Returns an empty stream.
    pub fn empty() -> Self {
        Self::Bytes(Box::default())
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Extern { len, .. } => *len,
        }
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An object of the tree, or an additional name of a previous object.
#[derive(Debug, Clone)]
pub struct SourceNode {
    /// Index of its folder; 0 for the root.
    pub parent: u32,
    /// Name in UTF-8, decomposed or not; empty for the root.
    pub name: Box<str>,
    /// Kind of the node.
    pub kind: SourceKind,
    /// Permission bits, `0o7777`.
    pub mode: u16,
    /// Owner's user ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// BSD flags, as in [`Attributes`](super::Attributes).
    pub flags: u32,
    /// Creation time, if known.
    pub created: Option<Timestamp>,
    /// Modification time of the contents.
    pub modified: Timestamp,
    /// Change time of the attributes, if known.
    pub changed: Option<Timestamp>,
    /// Time of the last access, if known.
    pub accessed: Option<Timestamp>,
    /// Extended attributes under their macOS names, including `com.apple.FinderInfo` and
    /// `com.apple.ResourceFork`.
    pub xattrs: Vec<(Box<str>, Stream)>,
}

impl SourceNode {
    /// Returns a node without a source, with all times set to `moment`.
    pub fn made(parent: u32, name: &str, kind: SourceKind, mode: u16, moment: Timestamp) -> Self {
        Self {
            parent,
            name: name.into(),
            kind,
            mode,
            uid: 0,
            gid: 0,
            flags: 0,
            created: Some(moment),
            modified: moment,
            changed: Some(moment),
            accessed: Some(moment),
            xattrs: Vec::new(),
        }
    }
}

/// The kind of a source node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceKind {
    /// A file with these contents.
    File(Stream),
    /// A folder.
    Folder,
    /// A symbolic link to this target.
    Symlink(Box<str>),
    /// An additional name of the node at this smaller index, which is not a folder.
    HardLink(u32),
    /// A FIFO, socket or device node, with macOS's device number.
    Special(FileKind, u32),
}
