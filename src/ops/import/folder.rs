//! Import of a folder of the host as a tree.
//!
//! The walk reads metadata, but no contents: those are read while the volume is written, and a file
//! that changed in between is an error. The tree includes everything below the folder, mounted file
//! systems too. Symbolic links are kept as links. Owners are numeric. Extended attributes get their
//! macOS names: `user.NAME` of Linux is `NAME`; attributes specific to the host (`security.*`,
//! `system.*`, `trusted.*`) are left out.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FileType;

use super::FOLDER_LAYER;
use super::FolderOptions;
use super::host_contents::{HostContents, HostEntry};
use super::host_metadata::{EntryType, ListedEntry, OpenFolder};
use super::walk::{Listing, walk};
use crate::fs::Timestamp;
use crate::fs::source::{SourceKind, SourceNode, Stream, Tree};
use crate::platform::nodes::{HostNode, HostTime};
use crate::progress::Progress;
use crate::{Error, Result};

/// Returns the tree below the folder `path` of the host; `path` itself may be a symbolic link. The
/// result does not depend on the order in which the host lists the folder.
///
/// [`Kind::Unsupported`](crate::Kind) for entries that cannot be stored on an Apple volume, and
/// [`Kind::Conflict`](crate::Kind) for entries that disappear during the walk.
pub fn folder(path: &Path, options: &FolderOptions, progress: &dyn Progress) -> Result<Tree> {
    progress.stage("scan", 0);
    Assembly::new(walk(path, options, progress)?).assemble()
}

/// Assembly of the listed folders: the entries of each folder are contiguous, followed by its
/// subfolders in order.
pub(super) struct Assembly {
    root: Arc<OpenFolder>,
    folders: Vec<Vec<ListedEntry>>,
    nodes: Vec<SourceNode>,
    entries: Vec<HostEntry>,
    /// First index of each node with hard links.
    linked: HashMap<(u64, u64), u32>,
}

impl Assembly {
    pub(super) fn new(listing: Listing) -> Self {
        let Listing {
            root,
            root_node,
            root_xattrs,
            folders,
        } = listing;
        let top = source_node(0, "".into(), &root_node, SourceKind::Folder, root_xattrs);
        let entries = vec![HostEntry {
            parent: 0,
            name: "".into(),
            inode: 0,
            modified: (0, 0),
        }];
        Self {
            root,
            folders,
            nodes: vec![top],
            entries,
            linked: HashMap::new(),
        }
    }

    pub(super) fn assemble(mut self) -> Result<Tree> {
        let mut ahead = vec![(0, 0)];
        while let Some((number, index)) = ahead.pop() {
            let mut folders = Vec::new();
            for found in std::mem::take(&mut self.folders[number]) {
                let child = u32::try_from(self.nodes.len()).map_err(|_| {
                    Error::limit(FOLDER_LAYER, "too many files and folders (limit 2^32)")
                })?;
                if let EntryType::Folder { number } = found.what {
                    folders.push((number, child));
                }
                self.add(index, child, found);
            }
            ahead.extend(folders.into_iter().rev());
        }
        let root = self.root.fd.try_clone().map_err(|error| {
            Error::io(FOLDER_LAYER, "keep the folder open", error).in_file(self.root.path())
        })?;
        let contents = Box::new(HostContents::new(self.root.path(), root, self.entries));
        Ok(Tree {
            nodes: self.nodes,
            contents,
        })
    }

    fn add(&mut self, parent: u32, child: u32, found: ListedEntry) {
        let ListedEntry {
            name,
            node,
            xattrs,
            what,
        } = found;
        let mut kind = match what {
            EntryType::File => SourceKind::File(match node.size {
                0 => Stream::empty(),
                len => Stream::Extern {
                    node: child,
                    offset: 0,
                    len,
                },
            }),
            EntryType::Folder { .. } => SourceKind::Folder,
            EntryType::Symlink(target) => SourceKind::Symlink(target),
            EntryType::Special(kind, device) => SourceKind::Special(kind, device),
        };
        if node.links > 1 && node.kind != FileType::Directory {
            let first = *self.linked.entry(node.identity).or_insert(child);
            if first != child {
                kind = SourceKind::HardLink(first);
            }
        }
        self.entries.push(HostEntry {
            parent,
            name: name.clone(),
            inode: node.identity.1,
            modified: node.modified,
        });
        self.nodes
            .push(source_node(parent, name, &node, kind, xattrs));
    }
}

fn source_node(
    parent: u32,
    name: Box<str>,
    node: &HostNode,
    kind: SourceKind,
    xattrs: Vec<(Box<str>, Stream)>,
) -> SourceNode {
    SourceNode {
        parent,
        name,
        kind,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        flags: node.flags,
        created: node.created.map(timestamp),
        modified: timestamp(node.modified),
        changed: Some(timestamp(node.changed)),
        accessed: Some(timestamp(node.accessed)),
        xattrs,
    }
}

fn timestamp((seconds, nanos): HostTime) -> Timestamp {
    Timestamp { seconds, nanos }
}
