//! A tree of files into a volume that exists.
//!
//! Each file gets its name when it is complete, and one that is replaced is so in the same step:
//! whatever happens meanwhile, no part of a file is left. What is there stays unless overwriting
//! was asked for, and that is looked at before anything is changed.

use std::collections::HashMap;

use crate::device::{AfterDiscard, BlockDevice};
use crate::fs::source::{SourceKind, SourceNode, Stream, Tree};
use crate::fs::{
    Attributes, Change, Existing, FileKind, FileSystemExt, FileSystemMut, FileSystemMutExt, Fork,
    NewKind, NewNode, NodeId, RESOURCE_FORK, UnlinkedFile,
};
use crate::ops::compress::{CompressOptions, compress_one};
use crate::ops::filling::Filling;
use crate::progress::{Progress, Within};
use crate::{Error, Kind, Result};

const LAYER: &str = "put";
/// Bytes of contents copied in one go.
const PIECE: u64 = 1 << 20;

/// How a tree is put into a volume.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    /// Files and links that are in the way are replaced. Folders never are: what they hold stays
    /// beside what comes.
    pub overwrite: bool,
    /// The only entry of the tree gets this name instead of its own.
    pub name: Option<String>,
    /// Files are compressed where these options say so, each before it comes to be where it
    /// belongs.
    pub compress: Option<CompressOptions>,
}

/// What was put into a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Put {
    /// Files, each name of a hard-linked one counted, and everything else that is neither of the
    /// others.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// Files that are compressed.
    pub compressed: u64,
}

/// Puts what is in the root of `tree` into the folder at `path` of the volume, which is made, with
/// all that the root has, if it does not exist but the folder it is in does.
///
/// What was put before an error stays, each object whole; [`Kind::Conflict`] comes before anything
/// is put.
pub fn put(
    tree: &Tree,
    fs: &dyn FileSystemMut,
    path: &str,
    options: &PutOptions,
    progress: &dyn Progress,
) -> Result<Put> {
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
    let mut putting = Putting {
        tree,
        fs,
        options,
        progress,
        holes,
        ids,
        made,
        done: Put::default(),
    };
    let top = match fs.resolve(path) {
        Ok(there) if there.kind == FileKind::Folder => Some(there),
        Ok(_) => return Err(Error::new(Kind::Conflict, LAYER, "is no folder").named(path)),
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

/// The folder that `path` is in, which must exist, and the last part of it.
pub fn parent(fs: &dyn FileSystemMut, path: &str) -> Result<(NodeId, String)> {
    let path = path.trim_end_matches('/');
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if matches!(name, "" | "." | "..") {
        return Err(Error::new(
            Kind::Invalid,
            LAYER,
            "the name of something in the volume expected",
        )
        .named(path));
    }
    let found = fs.resolve(folder)?;
    match found.kind {
        FileKind::Folder => Ok((found.id, name.to_owned())),
        _ => Err(Error::new(Kind::NotFound, LAYER, "is no folder").named(folder)),
    }
}

struct Putting<'a> {
    tree: &'a Tree,
    fs: &'a dyn FileSystemMut,
    options: &'a PutOptions,
    progress: &'a dyn Progress,
    /// Files of the volume may have holes.
    holes: bool,
    /// What nodes of the tree have become.
    ids: HashMap<u32, NodeId>,
    /// Folders that were made, whose attributes come last.
    made: Vec<u32>,
    done: Put,
}

impl Putting<'_> {
    /// Refuses what is in the way, before anything is changed.
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
                    return Err(Error::new(Kind::Conflict, LAYER, "exists already").named(path));
                }
                (true, false) => {
                    return Err(
                        Error::new(Kind::Conflict, LAYER, "is in the way of a folder").named(path),
                    );
                }
                (false, true) => {
                    return Err(Error::new(
                        Kind::Conflict,
                        LAYER,
                        "is a folder, and is not replaced",
                    )
                    .named(path));
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
                Error::new(
                    Kind::Invalid,
                    LAYER,
                    "a node's parent is a folder before it",
                )
            })?;
            let name = self.name_of(node).to_owned();
            self.node(folder, &name, index, node)
                .map_err(|error| match error.place() {
                    crate::error::Place::None => error.named(name.clone()),
                    _ => error,
                })?;
        }
        // From the deepest up, for what is put into a folder changes its dates.
        for index in std::mem::take(&mut self.made).into_iter().rev() {
            self.dress(self.ids[&index], &tree.nodes[index as usize])?;
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
                Some(_) => Err(Error::new(
                    Kind::Conflict,
                    LAYER,
                    "is in the way of a folder",
                )),
                None => self.make_folder(folder, name, index),
            };
        }
        match there {
            Some(there) if !self.options.overwrite || there.kind == FileKind::Folder => {
                Err(Error::new(Kind::Conflict, LAYER, "exists already"))
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

    /// Makes what is no folder, in the place of what may be there.
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
            // A further name of these becomes one more of its kind, as on macOS.
            SourceKind::Symlink(target) => NewKind::Symlink(target.to_string()),
            SourceKind::Special(kind, device) => NewKind::Special(*kind, *device),
            SourceKind::Folder | SourceKind::HardLink(_) => {
                return Err(Error::new(
                    Kind::Invalid,
                    LAYER,
                    "a hard link leads to something that has no contents",
                ));
            }
        };
        let (nameless, id) = UnlinkedFile::new(self.fs, &new_node(source, kind))?;
        self.fill(id, source)?;
        let existing = if self.options.overwrite {
            Existing::Replace
        } else {
            Existing::Error
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
        self.dress(id, node)?;
        match &self.options.compress {
            Some(options) if matches!(node.kind, SourceKind::File(_)) => {
                let found = self.fs.attributes(id)?;
                let report = compress_one(
                    self.fs,
                    node.name.to_string(),
                    &found,
                    options,
                    &Within(self.progress),
                )?;
                self.done.compressed += u64::from(report.left.is_none());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// `holes`: where nothing is stored for the contents there is to be a hole in the file.
    fn copy(&self, stream: &Stream, to: &dyn BlockDevice, holes: bool) -> Result<()> {
        let mut reader = match stream {
            Stream::Bytes(bytes) => {
                to.set_len(stream.len(), AfterDiscard::Any)?;
                return to.write_at(0, bytes);
            }
            Stream::Extern { .. } => self.tree.contents.open(stream)?,
        };
        let len = stream.len();
        let mut filling = Filling::new(to, len, holes)?;
        let mut piece = vec![0; PIECE.min(len) as usize];
        let (mut at, mut data) = (0, 0..0);
        while at < len {
            self.progress.check()?;
            if at >= data.end {
                data = match reader.data_from(at)? {
                    Some(data) => data,
                    None => {
                        // A source that has become shorter has none either, and says so.
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
            let now = PIECE.min(end.min(len) - at) as usize;
            if at < data.start {
                filling.zeros(now as u64)?;
            } else {
                reader.read_at(at, &mut piece[..now])?;
                filling.data(&piece[..now])?;
            }
            at += now as u64;
            self.progress.advance(now as u64);
        }
        filling.finish()
    }

    /// Gives an object what else it has: attributes, flags, dates.
    fn dress(&self, id: NodeId, node: &SourceNode) -> Result<()> {
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
