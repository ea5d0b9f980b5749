//! Import of several files and folders of the host as one tree.

use std::path::PathBuf;

use super::FOLDER_LAYER;
use super::{FolderOptions, folder, single};
use crate::fs::Timestamp;
use crate::fs::source::{ContentReader, Contents, SourceKind, SourceNode, Stream, Tree};
use crate::progress::Progress;
use crate::size::narrow;
use crate::{Error, Result};

/// An item to add to a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// The contents of a folder of the host, added to the root.
    Contents(PathBuf),
    /// A file or folder of the host, added at a path of the tree. Missing folders are created.
    At {
        /// Path on the host.
        from: PathBuf,
        /// Path in the tree.
        to: String,
    },
    /// A symbolic link at a path of the tree.
    Link {
        /// Path in the tree.
        at: String,
        /// Target of the link.
        target: String,
    },
}

/// Returns a tree of these items in order. Folders that come from no item are created with the date
/// `created`, as is the root unless the first item is [`Item::Contents`].
pub fn items(
    items: &[Item],
    created: Timestamp,
    options: &FolderOptions,
    progress: &dyn Progress,
) -> Result<Tree> {
    let mut joined = JoinedTrees {
        nodes: Tree::empty(created).nodes,
        parts: Vec::new(),
    };
    for (number, item) in items.iter().enumerate() {
        match item {
            Item::Contents(path) => {
                let tree = folder(path, options, progress)?;
                if number == 0 {
                    joined.nodes[0] = tree.nodes[0].clone();
                }
                joined.append(tree, 0, None)?;
            }
            Item::At { from, to } => {
                let (parent, name) = joined.make_parent(to, created)?;
                if from.is_dir() && !from.is_symlink() {
                    joined.append(folder(from, options, progress)?, parent, Some(name))?;
                } else {
                    let mut tree = single(from)?;
                    if let Some(only) = tree.nodes.get_mut(1) {
                        only.name = name.into();
                    }
                    joined.append(tree, parent, None)?;
                }
            }
            Item::Link { at, target } => {
                let (parent, name) = joined.make_parent(at, created)?;
                let link = SourceKind::Symlink(target.as_str().into());
                joined
                    .nodes
                    .push(SourceNode::made(parent, name, link, 0o755, created));
            }
        }
    }
    Ok(Tree {
        nodes: joined.nodes,
        contents: Box::new(TreeParts(joined.parts)),
    })
}

struct JoinedTrees {
    nodes: Vec<SourceNode>,
    parts: Vec<TreePart>,
}

/// The contents of one of several joined trees.
#[derive(Debug)]
struct TreePart {
    /// Index of its first node in the joined tree.
    first: u32,
    /// Offset added to its own node numbers.
    shift: u32,
    contents: Box<dyn Contents>,
}

impl JoinedTrees {
    /// Adds `tree` below `parent`: with its root under the name `root`, or without its root.
    fn append(&mut self, tree: Tree, parent: u32, root: Option<&str>) -> Result<()> {
        let skipped = u32::from(root.is_none());
        let first = u32::try_from(self.nodes.len()).ok();
        let too_many = || Error::limit(FOLDER_LAYER, "too many files and folders (limit 2^32)");
        let first = first
            .filter(|first| first.checked_add(narrow(tree.nodes.len())).is_some())
            .ok_or_else(too_many)?;
        // Cannot underflow: the joined tree has a root already.
        let shift = first - skipped;
        for (number, mut node) in (0..).zip(tree.nodes).skip(skipped as usize) {
            node.parent = if number == 0 || (skipped == 1 && node.parent == 0) {
                parent
            } else {
                node.parent + shift
            };
            if let (0, Some(name)) = (number, root) {
                node.name = name.into();
            }
            match &mut node.kind {
                SourceKind::File(stream) => moved(stream, shift),
                SourceKind::HardLink(target) => *target += shift,
                SourceKind::Folder | SourceKind::Symlink(_) | SourceKind::Special(..) => {}
            }
            node.xattrs
                .iter_mut()
                .for_each(|(_, stream)| moved(stream, shift));
            self.nodes.push(node);
        }
        self.parts.push(TreePart {
            first,
            shift,
            contents: tree.contents,
        });
        Ok(())
    }

    /// Returns the folder of the last component of `path`, created if missing, and that component.
    fn make_parent<'p>(&mut self, path: &'p str, created: Timestamp) -> Result<(u32, &'p str)> {
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let name = parts
            .pop()
            .filter(|_| !path.split('/').any(|part| matches!(part, "." | "..")));
        let name = name.ok_or_else(|| {
            Error::invalid(FOLDER_LAYER, "not a path within a volume").named(path)
        })?;
        let mut parent = 0;
        for part in parts {
            let is_it = |(number, node): &(u32, &SourceNode)| {
                *number > 0 && node.parent == parent && *node.name == *part
            };
            let found = (0..)
                .zip(&self.nodes)
                .find(is_it)
                .map(|(number, node)| (number, node.kind == SourceKind::Folder));
            parent = match found {
                Some((folder, true)) => folder,
                Some(_) => {
                    return Err(Error::conflict(
                        FOLDER_LAYER,
                        "a part of the path is a file, expected a folder",
                    )
                    .named(path));
                }
                None => {
                    self.nodes.push(SourceNode::made(
                        parent,
                        part,
                        SourceKind::Folder,
                        0o755,
                        created,
                    ));
                    narrow::<u32>(self.nodes.len()) - 1
                }
            };
        }
        Ok((parent, name))
    }
}

fn moved(stream: &mut Stream, shift: u32) {
    if let Stream::Extern { node, .. } = stream {
        *node += shift;
    }
}

/// The parts in the order of their nodes.
#[derive(Debug)]
struct TreeParts(Vec<TreePart>);

impl Contents for TreeParts {
    fn open(&self, stream: &Stream) -> Result<Box<dyn ContentReader + '_>> {
        let &Stream::Extern { node, offset, len } = stream else {
            return Err(Error::invalid(
                FOLDER_LAYER,
                "internal: contents in memory cannot be opened",
            ));
        };
        let part = self.0.iter().rev().find(|part| part.first <= node);
        let part =
            part.ok_or_else(|| Error::invalid(FOLDER_LAYER, "internal: the file has no contents"))?;
        part.contents.open(&Stream::Extern {
            node: node - part.shift,
            offset,
            len,
        })
    }
}
