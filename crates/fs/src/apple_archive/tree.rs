//! The tree of an archive, built from its entries in one pass. Contents stay in the stream.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;

use bandsaw_core::device::BlockDevice;
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Result};

use super::LAYER;
use super::entry::{Blob, EntryFields, StoredHash};
use super::layout::entry_type;
use super::xattrs;
use crate::{Attributes, FINDER_INFO, FileKind, NodeId, RESOURCE_FORK, UF_COMPRESSED};

/// Maximum number of objects: about 300 MB of memory.
const MAX_NODES: usize = 1 << 20;
/// Maximum number of folders in each other.
const MAX_DEPTH: usize = 512;
/// Maximum length of a name in bytes: 255 characters.
const MAX_NAME: usize = 1024;
/// The number of the root.
pub(super) const ROOT: u32 = 0;
/// The number of the root as others see it, as on Apple's file systems: servers of files have a use of their
/// own for smaller ones.
const FIRST_ID: u64 = 2;

/// The contents of an object.
#[derive(Debug)]
pub(super) enum NodeContents {
    Folder {
        children: BTreeMap<Box<str>, u32>,
        /// True if an entry describes it; it may be known by those in it only.
        is_described: bool,
    },
    File(Blob),
    /// A file whose contents cannot be read, and why.
    Unreadable(&'static str),
    Symlink(Box<str>),
    Special,
}

/// An object.
#[derive(Debug)]
pub(super) struct ArchiveNode {
    pub(super) parent: u32,
    pub(super) name: Box<str>,
    pub(super) attributes: Attributes,
    pub(super) contents: NodeContents,
    pub(super) xattrs: Option<Blob>,
    pub(super) hash: Option<StoredHash>,
}

/// A file without contents of its own.
struct Borrower {
    node: u32,
    hard_links: Option<u64>,
    same_data: Option<u64>,
    size: u64,
}

/// All objects; the first is the root.
#[derive(Debug)]
pub(super) struct ArchiveTree {
    pub(super) nodes: Vec<ArchiveNode>,
    pub(super) files: u64,
    pub(super) folders: u64,
}

struct TreeBuilder<'a> {
    stream: &'a dyn BlockDevice,
    nodes: Vec<ArchiveNode>,
    borrowers: Vec<Borrower>,
    /// Files with contents, by their cluster.
    hard_links: HashMap<u64, u32>,
    same_data: HashMap<u64, u32>,
}

impl ArchiveTree {
    /// Reads all entries of a stream.
    pub(super) fn read(stream: &dyn BlockDevice) -> Result<Self> {
        let root = ArchiveNode {
            parent: ROOT,
            name: Box::default(),
            attributes: Attributes::plain(id_of(ROOT), FileKind::Folder),
            contents: NodeContents::Folder {
                children: BTreeMap::new(),
                is_described: false,
            },
            xattrs: None,
            hash: None,
        };
        let mut builder = TreeBuilder {
            stream,
            nodes: vec![root],
            borrowers: Vec::new(),
            hard_links: HashMap::new(),
            same_data: HashMap::new(),
        };
        let (mut at, len) = (0, stream.info().len);
        while at < len {
            let entry = EntryFields::read(stream, at)?;
            let end = entry.end;
            builder.add(entry, at)?;
            at = end;
        }
        Ok(builder.finish())
    }

    /// Returns an object by its number.
    pub(super) fn node(&self, id: NodeId) -> Result<&ArchiveNode> {
        let index = id.0.checked_sub(FIRST_ID).map(to_usize);
        index
            .and_then(|index| self.nodes.get(index))
            .ok_or_else(|| Error::not_found(LAYER, format!("object {}", id.0)))
    }

    /// Returns the path of an object; of a hard link its first.
    pub(super) fn path(&self, index: u32) -> String {
        let mut names = Vec::new();
        let mut at = index;
        while at != ROOT
            && let Some(node) = self.nodes.get(at as usize)
        {
            names.push(&*node.name);
            at = node.parent;
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }
}

impl TreeBuilder<'_> {
    /// Adds the object that the entry at a byte of the stream describes.
    fn add(&mut self, entry: EntryFields, at: u64) -> Result<()> {
        let damaged = |message: &'static str| Error::corrupt(LAYER, at, message);
        if entry.is_instruction {
            let message =
                "an update of system software: its entries are instructions (YOP), not files";
            return Err(Error::unsupported(LAYER, message).at(at));
        }
        let kind = match entry.kind {
            Some(entry_type::FILE) => FileKind::File,
            Some(entry_type::FOLDER) => FileKind::Folder,
            Some(entry_type::SYMLINK) => FileKind::Symlink,
            Some(entry_type::FIFO) => FileKind::Fifo,
            Some(entry_type::CHAR_DEVICE) => FileKind::CharDevice,
            Some(entry_type::BLOCK_DEVICE) => FileKind::BlockDevice,
            Some(entry_type::SOCKET) => FileKind::Socket,
            Some(entry_type::METADATA) => return Ok(()),
            Some(other) => {
                let message = format!("an entry of the type {:?}", char::from(other));
                return Err(Error::unsupported(LAYER, message).at(at));
            }
            None => return Err(damaged("an entry has no type (TYP)")),
        };
        let Some(path) = &entry.path else {
            return Err(damaged("an entry has no path (PAT)"));
        };
        let index = self.place(path, kind, at)?;
        let contents = match kind {
            FileKind::Folder => None,
            FileKind::File => Some(self.contents(&entry, index)),
            FileKind::Symlink => {
                let target = entry.link.as_deref().unwrap_or_default();
                if target.is_empty() {
                    return Err(damaged("a symbolic link has no target (LNK)"));
                }
                Some(NodeContents::Symlink(target.into()))
            }
            _ => Some(NodeContents::Special),
        };
        let attributes = self.attributes(&entry, index, kind, contents.as_ref(), at)?;
        let Some(node) = self.nodes.get_mut(index as usize) else {
            return Err(damaged("an object is missing"));
        };
        node.attributes = attributes;
        node.xattrs = entry.xattrs.filter(|blob| !blob.is_empty());
        node.hash = entry.hash;
        if let Some(contents) = contents {
            node.contents = contents;
        }
        Ok(())
    }

    /// Returns the object at a path, which is new or a folder that was known by what is in it.
    fn place(&mut self, path: &str, kind: FileKind, at: u64) -> Result<u32> {
        let damaged = |message: String| Err(Error::corrupt(LAYER, at, message));
        if path.is_empty() {
            return match kind {
                FileKind::Folder => self.describe(ROOT, path, at),
                _ => damaged("an object that is no folder has no name".to_owned()),
            };
        }
        let mut names: Vec<&str> = path.split('/').collect();
        if let Some(name) = names
            .iter()
            .find(|name| matches!(**name, "" | "." | "..") || name.len() > MAX_NAME)
        {
            let shown: String = name.chars().take(16).collect();
            return damaged(format!("a path has the name {shown:?}"));
        }
        if names.len() > MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} folders in each other");
            return Err(Error::limit(LAYER, message).at(at));
        }
        let last = names.pop().unwrap_or_default();
        let mut folder = ROOT;
        for name in names {
            folder = match self.child(folder, name) {
                Some(found) if self.is_folder(found) => found,
                Some(_) => {
                    return damaged(format!("{path:?} is in an object that is no folder"));
                }
                None => self.insert(folder, name, FileKind::Folder, false)?,
            };
        }
        match self.child(folder, last) {
            Some(found) if kind == FileKind::Folder && self.is_folder(found) => {
                self.describe(found, path, at)
            }
            Some(_) => damaged(format!("two entries have the path {path:?}")),
            None => self.insert(folder, last, kind, true),
        }
    }

    /// Marks a folder as described by an entry.
    fn describe(&mut self, index: u32, path: &str, at: u64) -> Result<u32> {
        match self
            .nodes
            .get_mut(index as usize)
            .map(|node| &mut node.contents)
        {
            Some(NodeContents::Folder { is_described, .. }) if !*is_described => {
                *is_described = true;
                Ok(index)
            }
            _ => {
                let message = format!("two entries have the path {path:?}");
                Err(Error::corrupt(LAYER, at, message))
            }
        }
    }

    fn child(&self, folder: u32, name: &str) -> Option<u32> {
        match &self.nodes.get(folder as usize)?.contents {
            NodeContents::Folder { children, .. } => children.get(name).copied(),
            _ => None,
        }
    }

    fn is_folder(&self, index: u32) -> bool {
        let node = self.nodes.get(index as usize);
        node.is_some_and(|node| node.attributes.kind == FileKind::Folder)
    }

    fn insert(
        &mut self,
        folder: u32,
        name: &str,
        kind: FileKind,
        is_described: bool,
    ) -> Result<u32> {
        if self.nodes.len() >= MAX_NODES {
            let message = format!("more than {MAX_NODES} objects");
            return Err(Error::limit(LAYER, message));
        }
        let index = narrow::<u32>(self.nodes.len());
        let contents = match kind {
            FileKind::Folder => NodeContents::Folder {
                children: BTreeMap::new(),
                is_described,
            },
            _ => NodeContents::Special,
        };
        self.nodes.push(ArchiveNode {
            parent: folder,
            name: name.into(),
            attributes: Attributes::plain(id_of(index), kind),
            contents,
            xattrs: None,
            hash: None,
        });
        if let Some(parent) = self.nodes.get_mut(folder as usize)
            && let NodeContents::Folder { children, .. } = &mut parent.contents
        {
            children.insert(name.into(), index);
            parent.attributes.size += 1;
        }
        Ok(index)
    }

    /// Returns the contents of a file. Those of one without them are found when all entries are known.
    fn contents(&mut self, entry: &EntryFields, index: u32) -> NodeContents {
        let hard_links = entry.hard_links.filter(|cluster| *cluster != 0);
        let same_data = entry.same_data.filter(|cluster| *cluster != 0);
        let Some(data) = entry.data.clone() else {
            let size = entry.size.unwrap_or(0);
            if hard_links.is_some() || same_data.is_some() {
                self.borrowers.push(Borrower {
                    node: index,
                    hard_links,
                    same_data,
                    size,
                });
            }
            return match size {
                0 => NodeContents::File(0..0),
                _ => NodeContents::Unreadable("the archive does not have the contents of the file"),
            };
        };
        for (cluster, holders) in [
            (hard_links, &mut self.hard_links),
            (same_data, &mut self.same_data),
        ] {
            if let Some(cluster) = cluster {
                holders.entry(cluster).or_insert(index);
            }
        }
        match entry.size {
            Some(size) if size != data.end - data.start => {
                NodeContents::Unreadable("the length of the file and of its contents differ")
            }
            _ => NodeContents::File(data),
        }
    }

    fn attributes(
        &self,
        entry: &EntryFields,
        index: u32,
        kind: FileKind,
        contents: Option<&NodeContents>,
        at: u64,
    ) -> Result<Attributes> {
        let large = |_| Error::corrupt(LAYER, at, "a number of an entry is too large");
        let narrow = |number: Option<u64>, or: u32| number.map_or(Ok(or), u32::try_from);
        let plain = Attributes::plain(id_of(index), kind);
        let (mut has_xattrs, mut resource_size) = (false, 0);
        let (mut names, mut is_twice) = (HashSet::new(), false);
        if let Some(blob) = &entry.xattrs {
            xattrs::walk(self.stream, blob, &mut |found| {
                match &*found.name {
                    RESOURCE_FORK => resource_size = found.value.end - found.value.start,
                    FINDER_INFO => {}
                    _ => has_xattrs = true,
                }
                is_twice |= !names.insert(found.name);
                ControlFlow::Continue(())
            })?;
        }
        if is_twice {
            let message = "an entry has an extended attribute twice";
            return Err(Error::corrupt(LAYER, at, message));
        }
        let size = match contents {
            // Of a folder, the number of its entries.
            None => self
                .nodes
                .get(index as usize)
                .map_or(0, |node| node.attributes.size),
            Some(NodeContents::File(data)) => data.end - data.start,
            Some(NodeContents::Unreadable(_)) => entry.size.unwrap_or(0),
            Some(NodeContents::Symlink(target)) => target.len() as u64,
            Some(_) => 0,
        };
        let mode = narrow(entry.mode, plain.mode.into()).map_err(large)? & 0o7777;
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        Ok(Attributes {
            size,
            allocated: if kind == FileKind::File { size } else { 0 },
            resource_size,
            mode: u16::try_from(mode).unwrap_or(plain.mode),
            uid: narrow(entry.uid, plain.uid).map_err(large)?,
            gid: narrow(entry.gid, plain.gid).map_err(large)?,
            device: match is_device {
                true => narrow(entry.device, 0).map_err(large)?,
                false => 0,
            },
            // Contents are stored as programs see them.
            flags: narrow(entry.flags, 0).map_err(large)? & !UF_COMPRESSED,
            created: entry.created,
            modified: entry.modified,
            backed_up: entry.backed_up,
            has_xattrs,
            ..plain
        })
    }

    /// Gives files without contents those of their cluster.
    fn finish(mut self) -> ArchiveTree {
        for borrower in std::mem::take(&mut self.borrowers) {
            let of = |cluster: Option<u64>, holders: &HashMap<u64, u32>| {
                cluster.and_then(|cluster| holders.get(&cluster).copied())
            };
            if let Some(holder) = of(borrower.hard_links, &self.hard_links) {
                self.link(borrower.node, holder);
            } else if let Some(holder) = of(borrower.same_data, &self.same_data) {
                self.share(&borrower, holder);
            }
        }
        let count = |kind| {
            let of_kind = |node: &&ArchiveNode| node.attributes.kind == kind;
            self.nodes.iter().filter(of_kind).count() as u64
        };
        let folders = count(FileKind::Folder);
        let linked = self.nodes.iter().filter(|node| node.attributes.links == 0);
        ArchiveTree {
            files: (self.nodes.len() - linked.count()) as u64 - folders,
            folders,
            nodes: self.nodes,
        }
    }

    /// Makes the name of `node` another of `holder`. The object of `node` has no names then.
    fn link(&mut self, node: u32, holder: u32) {
        let Some(found) = self.nodes.get_mut(node as usize) else {
            return;
        };
        found.attributes.links = 0;
        let (parent, name) = (found.parent, found.name.clone());
        if let Some(parent) = self.nodes.get_mut(parent as usize)
            && let NodeContents::Folder { children, .. } = &mut parent.contents
        {
            children.insert(name, holder);
        }
        if let Some(holder) = self.nodes.get_mut(holder as usize) {
            holder.attributes.links += 1;
        }
    }

    /// Gives `borrower` the contents of `holder`.
    fn share(&mut self, borrower: &Borrower, holder: u32) {
        let data = match self.nodes.get(holder as usize).map(|node| &node.contents) {
            Some(NodeContents::File(data)) => data.clone(),
            _ => return,
        };
        let len = data.end - data.start;
        let Some(node) = self.nodes.get_mut(borrower.node as usize) else {
            return;
        };
        if borrower.size == len || borrower.size == 0 {
            (node.attributes.size, node.attributes.allocated) = (len, len);
            node.contents = NodeContents::File(data);
        }
    }
}

/// Returns the number of a node as others see it.
pub(super) fn id_of(index: u32) -> NodeId {
    NodeId(FIRST_ID + u64::from(index))
}

/// Returns the index of a node.
pub(super) fn number_of(node: &ArchiveNode) -> u32 {
    narrow(node.attributes.id.0.saturating_sub(FIRST_ID))
}
