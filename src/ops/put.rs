//! Copy of a tree of files into an existing volume.
//!
//! Each file is linked under its name when it is complete, which replaces an existing file in the
//! same step: after any interruption, no partial file is left. Existing files are kept unless
//! overwriting was requested; conflicts are detected before anything is changed.

use std::collections::HashMap;

use crate::device::{AfterDiscard, BlockDevice};
use crate::fs::source::{SourceKind, SourceNode, Stream, Tree};
use crate::fs::{
    Attributes, Change, ExistingTarget, FileKind, FileSystemExt, FileSystemMut, FileSystemMutExt,
    Fork, NewKind, NewNode, NodeId, RESOURCE_FORK, UnlinkedFile,
};
use crate::ops::compress::{CompressOptions, compress_one};
use crate::ops::new_file::NewFileWriter;
use crate::progress::{NestedProgress, Progress};
use crate::size::to_usize;
use crate::{Error, Kind, Reason, Result};

const LAYER: &str = "put";
/// Bytes of contents copied at a time.
const PIECE: u64 = 1 << 20;

/// Options for adding a tree to a volume.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    /// True to replace existing files and links. Existing folders are never replaced but merged.
    pub overwrite: bool,
    /// Name to use for the only entry of the tree, instead of its own.
    pub name: Option<String>,
    /// Compression of the files, each before it is linked under its name.
    pub compress: Option<CompressOptions>,
}

/// Counts of objects added to a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PutReport {
    /// Number of files, counting each name of a hard-linked one, and of all other objects not
    /// counted below.
    pub files: u64,
    /// Number of folders.
    pub folders: u64,
    /// Number of symbolic links.
    pub symlinks: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// Number of compressed files.
    pub compressed: u64,
}

/// Adds the entries in the root of `tree` to the folder at `path` of the volume. If that folder
/// does not exist but its parent does, it is created with the attributes of the root.
///
/// After an error, objects that were already added stay, each complete. [`Kind::Conflict`] is
/// returned before anything is added.
pub fn put(
    tree: &Tree,
    fs: &dyn FileSystemMut,
    path: &str,
    options: &PutOptions,
    progress: &dyn Progress,
) -> Result<PutReport> {
    let bytes = tree
        .nodes
        .iter()
        .map(|node| {
            if let SourceKind::File(data) = &node.kind {
                data.len()
            } else {
                0
            }
        })
        .sum();
    let (holes, ids, made) = (fs.volume().holes, HashMap::new(), Vec::new());
    let mut putting = PutState {
        tree,
        fs,
        options,
        progress,
        holes,
        ids,
        made,
        done: PutReport::default(),
    };
    putting.check_sources()?;
    let top = match fs.resolve(path) {
        Ok(there) if there.kind == FileKind::Folder => Some(there),
        Ok(_) => return Err(Error::conflict(LAYER, "not a folder").named(path)),
        Err(error) if error.kind() == Kind::NotFound => None,
        Err(error) => return Err(error),
    };
    if let Some(top) = &top {
        putting.check(top, path)?;
    }
    progress.stage("write", bytes);
    match top {
        Some(top) => drop(putting.ids.insert(0, top.id)),
        None => {
            let (folder, name) = parent(fs, path)?;
            putting.make_folder(folder, &name, 0)?;
        }
    }
    putting.run()?;
    Ok(putting.done)
}

/// Returns the parent folder of `path`, which must exist, and the last component of `path`.
pub fn parent(fs: &dyn FileSystemMut, path: &str) -> Result<(NodeId, String)> {
    let path = path.trim_end_matches('/');
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if matches!(name, "" | "." | "..") {
        return Err(
            Error::invalid(LAYER, "expected the path of an object, not the root").named(path),
        );
    }
    let found = fs.resolve(folder)?;
    match found.kind {
        FileKind::Folder => Ok((found.id, name.to_owned())),
        _ => Err(Error::new(Kind::NotFound, LAYER, "not a folder").named(folder)),
    }
}

/// Returns the parent folder of the object at `path`, and its name. The root of a volume, whose path is empty,
/// has no parent and cannot be changed.
pub fn parent_of_object(fs: &dyn FileSystemMut, path: &str) -> Result<(NodeId, String)> {
    if path.is_empty() {
        return Err(Error::invalid("path", "cannot change the root of a volume").named("/"));
    }
    parent(fs, path)
}

struct PutState<'a> {
    tree: &'a Tree,
    fs: &'a dyn FileSystemMut,
    options: &'a PutOptions,
    progress: &'a dyn Progress,
    /// True if the volume supports holes.
    holes: bool,
    /// Node on the volume of each node of the tree.
    ids: HashMap<u32, NodeId>,
    /// Folders that were created, whose attributes are set last.
    made: Vec<u32>,
    done: PutReport,
}

impl PutState<'_> {
    /// Refuses two sources that have one name on the volume: the second would replace the first,
    /// even if the user wants to replace existing files.
    fn check_sources(&self) -> Result<()> {
        let mut names = HashMap::with_capacity(self.tree.nodes.len());
        for (index, node) in (1..).zip(&self.tree.nodes[1..]) {
            self.progress.check()?;
            let key = self.fs.name_key(self.name_of(node))?;
            if let Some(other) = names.insert((node.parent, key), index) {
                return Err(self.tree.same_name(other, index));
            }
        }
        Ok(())
    }

    /// Refuses existing entries that are in conflict, before anything is changed.
    fn check(&self, top: &Attributes, path: &str) -> Result<()> {
        let mut there: HashMap<u32, (NodeId, String)> =
            HashMap::from([(0, (top.id, path.trim_end_matches('/').to_owned()))]);
        for (index, node) in (1..).zip(&self.tree.nodes[1..]) {
            self.progress.check()?;
            let Some((folder, path)) = there.get(&node.parent) else {
                continue;
            };
            let name = self.name_of(node);
            let Some(found) = self.fs.lookup(*folder, name)? else {
                continue;
            };
            let path = format!("{path}/{name}");
            match (
                node.kind == SourceKind::Folder,
                found.kind == FileKind::Folder,
            ) {
                (true, true) => drop(there.insert(index, (found.id, path))),
                (false, false) if self.options.overwrite => {}
                (false, false) => {
                    let exists = Error::conflict(LAYER, "already exists").because(Reason::Exists);
                    return Err(exists.named(path));
                }
                (true, false) => {
                    return Err(
                        Error::conflict(LAYER, "already exists and is not a folder").named(path)
                    );
                }
                (false, true) => {
                    return Err(Error::conflict(LAYER, "a folder cannot be replaced").named(path));
                }
            }
        }
        Ok(())
    }

    fn name_of<'n>(&'n self, node: &'n SourceNode) -> &'n str {
        self.options.name.as_deref().unwrap_or(&node.name)
    }

    fn run(&mut self) -> Result<()> {
        let tree = self.tree;
        for (index, node) in (1..).zip(&tree.nodes[1..]) {
            self.progress.check()?;
            let folder = self.ids.get(&node.parent).copied();
            let folder = folder.ok_or_else(|| {
                Error::invalid(
                    LAYER,
                    "the parent of an object must be a folder that precedes it in the list",
                )
            })?;
            let name = self.name_of(node).to_owned();
            self.node(folder, &name, index, node)
                .map_err(|error| match error.place() {
                    crate::error::Place::None => error.named(name.clone()),
                    _ => error,
                })?;
        }
        // From the deepest folder up, because adding an entry changes the dates of its folder.
        for index in std::mem::take(&mut self.made).into_iter().rev() {
            self.apply_attributes(self.ids[&index], &tree.nodes[index as usize])?;
        }
        Ok(())
    }

    fn node(&mut self, folder: NodeId, name: &str, index: u32, node: &SourceNode) -> Result<()> {
        let there = self.fs.lookup(folder, name)?;
        if node.kind == SourceKind::Folder {
            return match there {
                Some(there) if there.kind == FileKind::Folder => {
                    self.ids.insert(index, there.id);
                    Ok(())
                }
                Some(_) => Err(Error::conflict(LAYER, "already exists and is not a folder")),
                None => self.make_folder(folder, name, index),
            };
        }
        match there {
            Some(there) if !self.options.overwrite || there.kind == FileKind::Folder => {
                Err(Error::conflict(LAYER, "already exists").because(Reason::Exists))
            }
            _ => self.make(folder, name, index, node),
        }
    }

    fn make_folder(&mut self, folder: NodeId, name: &str, index: u32) -> Result<()> {
        let node = &self.tree.nodes[index as usize];
        let id = self
            .fs
            .create(folder, name, &new_node(node, NewKind::Folder))?;
        self.ids.insert(index, id);
        self.made.push(index);
        self.done.folders += 1;
        Ok(())
    }

    /// Creates an entry that is not a folder, replacing an existing one if requested.
    fn make(&mut self, folder: NodeId, name: &str, index: u32, node: &SourceNode) -> Result<()> {
        let (first, source) = match node.kind {
            SourceKind::HardLink(target) => (target, &self.tree.nodes[target as usize]),
            _ => (index, node),
        };
        let kind = match &source.kind {
            SourceKind::File(_) if first != index => {
                match self.options.overwrite {
                    true => self.fs.link_over(self.ids[&first], folder, name)?,
                    false => self.fs.link(self.ids[&first], folder, name)?,
                }
                self.done.files += 1;
                return Ok(());
            }
            SourceKind::File(_) => NewKind::File,
            // A further hard link to one of these becomes a separate node, as on macOS.
            SourceKind::Symlink(target) => NewKind::Symlink(target.to_string()),
            SourceKind::Special(kind, device) => NewKind::Special(*kind, *device),
            SourceKind::Folder | SourceKind::HardLink(_) => {
                return Err(Error::invalid(
                    LAYER,
                    "the target of a hard link is not a regular file",
                ));
            }
        };
        let (nameless, id) = UnlinkedFile::new(self.fs, &new_node(source, kind))?;
        self.fill(id, source)?;
        let existing = if self.options.overwrite {
            ExistingTarget::Replace
        } else {
            ExistingTarget::Error
        };
        nameless.link_unlinked(folder, name, existing)?;
        self.ids.insert(index, id);
        match source.kind {
            SourceKind::Symlink(_) => self.done.symlinks += 1,
            _ => self.done.files += 1,
        }
        Ok(())
    }

    fn fill(&mut self, id: NodeId, node: &SourceNode) -> Result<()> {
        if let SourceKind::File(data) = &node.kind
            && !data.is_empty()
        {
            self.copy(data, &*self.fs.open_mut(id, Fork::Data)?, self.holes)?;
            self.done.bytes += data.len();
        }
        self.apply_attributes(id, node)?;
        match &self.options.compress {
            Some(options) if matches!(node.kind, SourceKind::File(_)) => {
                let found = self.fs.attributes(id)?;
                let report = compress_one(
                    self.fs,
                    node.name.to_string(),
                    &found,
                    options,
                    &NestedProgress(self.progress),
                )?;
                self.done.compressed += u64::from(report.left.is_none());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Copies a stream to a file. `holes` is true to keep holes of the source as holes.
    fn copy(&self, stream: &Stream, to: &dyn BlockDevice, holes: bool) -> Result<()> {
        let mut reader = match stream {
            Stream::Bytes(bytes) => {
                to.set_len(stream.len(), AfterDiscard::Any)?;
                return to.write_at(0, bytes);
            }
            Stream::Extern { .. } => self.tree.contents.open(stream)?,
        };
        let len = stream.len();
        let mut writer = NewFileWriter::new(to, len, holes)?;
        let mut piece = vec![0; to_usize(PIECE.min(len))];
        let (mut at, mut data) = (0, 0..0);
        while at < len {
            self.progress.check()?;
            if at >= data.end {
                data = match reader.data_from(at)? {
                    Some(data) => data,
                    None => {
                        // A source that was truncated has no data here either, and this read
                        // reports that.
                        reader.read_at(len - 1, &mut [0])?;
                        len..len
                    }
                };
            }
            let end = if at < data.start {
                data.start
            } else {
                data.end
            };
            let now = to_usize(PIECE.min(end.min(len) - at));
            if at < data.start {
                writer.zeros(now as u64)?;
            } else {
                reader.read_at(at, &mut piece[..now])?;
                writer.data(&piece[..now])?;
            }
            at += now as u64;
            self.progress.advance(now as u64);
        }
        writer.finish()
    }

    /// Sets attributes, flags and dates of a node.
    fn apply_attributes(&self, id: NodeId, node: &SourceNode) -> Result<()> {
        for (name, value) in &node.xattrs {
            match value {
                Stream::Bytes(bytes) => self.fs.set_xattr_bytes(id, name, bytes)?,
                Stream::Extern { .. } if &**name == RESOURCE_FORK => {
                    self.copy(value, &*self.fs.open_mut(id, Fork::Resource)?, false)?;
                }
                Stream::Extern { len, .. } => {
                    let mut bytes = vec![0; usize::try_from(*len).unwrap_or(usize::MAX)];
                    self.tree.contents.open(value)?.read_at(0, &mut bytes)?;
                    self.fs.set_xattr_bytes(id, name, &bytes)?;
                }
            }
        }
        let change = Change {
            mode: Some(node.mode),
            flags: Some(node.flags),
            created: Some(node.created.unwrap_or(node.modified)),
            modified: Some(node.modified),
            accessed: node.accessed,
            ..Change::default()
        };
        self.fs.set_attributes(id, &change)
    }
}

fn new_node(node: &SourceNode, kind: NewKind) -> NewNode {
    NewNode {
        kind,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        flags: node.flags,
        created: node.created,
    }
}
