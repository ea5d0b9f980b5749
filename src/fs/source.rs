//! What a new volume is filled from: a tree of nodes known in full before the first byte is
//! written, and the contents of its files, read from several threads.
//!
//! `ops::import` makes one from a folder or a tar archive; `fs::hfsplus::build` lays it out.

use std::fmt;
use std::fs::File;
use std::ops::Range;

use super::{FileKind, Timestamp};
use crate::platform::{self, Next};
use crate::{Error, Kind, Result};

/// A tree to build a volume from. Node 0 is the root folder; a node's parent has a smaller index
/// than the node.
#[derive(Debug)]
pub struct Tree {
    /// The nodes.
    pub nodes: Vec<SourceNode>,
    /// Where their contents come from.
    pub contents: Box<dyn Contents>,
}

impl Tree {
    /// A root folder with nothing in it, made at `moment`, for a volume that is only formatted.
    pub fn empty(moment: Timestamp) -> Self {
        let root = SourceNode::made(0, "", SourceKind::Folder, 0o755, moment);
        Self {
            nodes: vec![root],
            contents: Box::new(InHand),
        }
    }

    /// The path of a node within the tree, for people.
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
}

/// The contents of a tree all of whose streams are [`Stream::Bytes`]: there is nothing to open.
#[derive(Debug, Clone, Copy, Default)]
pub struct InHand;

impl Contents for InHand {
    fn open(&self, _stream: &Stream) -> Result<Box<dyn ContentReader + '_>> {
        Err(Error::new(
            Kind::Invalid,
            "source",
            "only streams in hand expected",
        ))
    }
}

/// Reads what [`SourceNode`]s name. Called from several threads at once.
pub trait Contents: fmt::Debug + Send + Sync {
    /// Opens the contents of a stream for sequential or positional reading.
    fn open(&self, stream: &Stream) -> Result<Box<dyn ContentReader + '_>>;
}

/// The open contents of one stream.
pub trait ContentReader: Send {
    /// Fills all of `buf` from `offset`. Bytes past the end (the file shrank since it was listed)
    /// are an error of [`Kind::Conflict`] that names the file.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// The first run of bytes at or after `from` that may be other than zeros; `None` if there are
    /// none up to the end.
    fn data_from(&self, from: u64) -> Result<Option<Range<u64>>>;
}

/// [`ContentReader::data_from`] of contents that are `len` bytes of a file of the host from `base`
/// on. A host that cannot tell has data everywhere.
pub(crate) fn data_in_file(file: &File, base: u64, len: u64, from: u64) -> Option<Range<u64>> {
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

/// Bytes of a known length: in hand, or to be read from [`Contents`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stream {
    /// Small and already read.
    Bytes(Box<[u8]>),
    /// To be opened by [`Contents::open`]: the node it belongs to, an offset (in a tar archive) and
    /// its length.
    Extern {
        /// Index of the node whose data this is.
        node: u32,
        /// Where it begins (in a tar archive); 0 for a host file.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

impl Stream {
    /// No bytes.
    pub fn empty() -> Self {
        Self::Bytes(Box::default())
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Extern { len, .. } => *len,
        }
    }

    /// Returns whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One object of the tree, or one more name of an object named before.
#[derive(Debug, Clone)]
pub struct SourceNode {
    /// Index of the folder it is in; the root's is 0.
    pub parent: u32,
    /// UTF-8, decomposed or not; empty for the root.
    pub name: Box<str>,
    /// What it is.
    pub kind: SourceKind,
    /// Permission bits, `0o7777`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// BSD flags, as in [`Attributes`](super::Attributes).
    pub flags: u32,
    /// When it was made, if known.
    pub created: Option<Timestamp>,
    /// When its contents changed.
    pub modified: Timestamp,
    /// When its attributes changed, if known.
    pub changed: Option<Timestamp>,
    /// When it was last read, if known.
    pub accessed: Option<Timestamp>,
    /// Extended attributes under their macOS names; `com.apple.FinderInfo` and
    /// `com.apple.ResourceFork` among them.
    pub xattrs: Vec<(Box<str>, Stream)>,
}

impl SourceNode {
    /// A node that comes from nowhere, made at `moment`.
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

/// What a source node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceKind {
    /// A file with these contents.
    File(Stream),
    /// A folder.
    Folder,
    /// A symbolic link to this target.
    Symlink(Box<str>),
    /// One more name of the node at this smaller index, which is no folder.
    HardLink(u32),
    /// A FIFO, socket or device node, with macOS's device number.
    Special(FileKind, u32),
}
