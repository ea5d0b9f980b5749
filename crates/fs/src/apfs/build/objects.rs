//! Object numbers, names and order of all files of a new volume: everything that does not depend on
//! the layout.

use std::collections::BTreeMap;

use super::LAYER;
use super::streams;
use crate::FileKind;
use crate::apfs::layout::{Counts, FileId};
use crate::apfs::names::NameRules;
use crate::build::tree::{by_parent, links, path, resolve};
use crate::source::{SourceKind, Tree};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

/// Maximum length of a name in macOS, in bytes.
const MAX_NAME: usize = 255;

/// The objects of a tree, numbered in the tree's order and sorted in the volume's.
#[derive(Debug)]
pub(super) struct Objects {
    /// Object numbers by node. For an additional name of a file: the number of the file.
    ids: Vec<FileId>,
    /// Name hashes by node.
    hashes: Vec<u32>,
    /// The children of node 0, sorted, then those of node 1, and so on.
    children: Vec<u32>,
    /// Index into `children` of the first child, by node.
    first_child: Vec<u32>,
    /// The additional names of each file with hard links.
    links: BTreeMap<u32, Vec<u32>>,
    /// Sibling numbers of the names, by node, of files with several names.
    siblings: BTreeMap<u32, FileId>,
    pub(super) next_id: FileId,
    pub(super) counts: Counts,
}

impl Objects {
    /// Numbers and sorts `tree`, which has been checked and has its attributes in order. Fails if a
    /// volume with these rules cannot represent it.
    pub(super) fn new(tree: &Tree, rules: NameRules) -> Result<Self> {
        let links = links(tree, LAYER)?;
        let (children, first_child) = by_parent(tree);
        let mut objects = Self {
            ids: Vec::with_capacity(tree.nodes.len()),
            hashes: Vec::with_capacity(tree.nodes.len()),
            children,
            first_child,
            links,
            siblings: BTreeMap::new(),
            next_id: FileId::FIRST_USER,
            counts: Counts::default(),
        };
        objects.hash(tree, rules)?;
        objects.number(tree);
        objects.sort(tree, rules)?;
        Ok(objects)
    }

    /// Returns the number of the object; all names of a file share its number.
    pub(super) fn id(&self, node: u32) -> FileId {
        self.ids[node as usize]
    }

    pub(super) fn name_hash(&self, node: u32) -> u32 {
        self.hashes[node as usize]
    }

    /// Returns the children of a folder in the volume's order.
    pub(super) fn children(&self, folder: u32) -> &[u32] {
        let folder = folder as usize;
        &self.children[self.first_child[folder] as usize..self.first_child[folder + 1] as usize]
    }

    /// Returns all names of a file with several, in the order of their numbers; nothing for any
    /// other node.
    pub(super) fn names(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let others = self.links.get(&node);
        others
            .into_iter()
            .flat_map(move |others| std::iter::once(node).chain(others.iter().copied()))
    }

    /// Returns the sibling number of a name if the file has several.
    pub(super) fn sibling(&self, node: u32) -> Option<FileId> {
        self.siblings.get(&node).copied()
    }

    /// Returns the number of the stream of the attribute at index `place` among those of `node`
    /// that are stored in streams. The root's own number is not taken from the counter.
    pub(super) fn stream(&self, node: u32, place: u64) -> FileId {
        let before = if node == 0 {
            FileId::FIRST_USER.0
        } else {
            self.id(node).0 + 1
        };
        FileId(before + place)
    }

    fn hash(&mut self, tree: &Tree, rules: NameRules) -> Result<()> {
        self.hashes.push(0);
        for (node, source) in (1..).zip(&tree.nodes[1..]) {
            let name = &*source.name;
            if name.is_empty() || name.len() > MAX_NAME || name.contains(['/', '\0']) {
                let message = format!(
                    "invalid name of {} bytes: expected 1 to {MAX_NAME} bytes without slash and \
                     NUL",
                    name.len()
                );
                return Err(Error::unsupported(LAYER, message).named(path(tree, node)));
            }
            self.hashes.push(rules.hash(name).unwrap_or(0));
        }
        Ok(())
    }

    /// Assigns the object numbers. A node's number is followed by those of its attributes' streams
    /// and of its names, so that one pass over the tree makes all records in the order of their
    /// keys.
    fn number(&mut self, tree: &Tree) {
        let mut next = FileId::FIRST_USER.0;
        for node in 0..narrow::<u32>(tree.nodes.len()) {
            let (owner, source) = resolve(tree, node);
            if owner != node && self.links.contains_key(&owner) {
                self.ids.push(self.id(owner));
                continue;
            }
            self.ids.push(if node == 0 {
                FileId::ROOT
            } else {
                FileId(next)
            });
            if node > 0 {
                next += 1;
                self.count(&source.kind);
            }
            next += streams::in_streams(source).count() as u64;
            let names: Vec<u32> = self.names(node).collect();
            for name in names {
                self.siblings.insert(name, FileId(next));
                next += 1;
            }
        }
        self.next_id = FileId(next);
    }

    fn count(&mut self, kind: &SourceKind) {
        let counts = &mut self.counts;
        *match kind {
            SourceKind::File(_) => &mut counts.files,
            SourceKind::Folder => &mut counts.folders,
            SourceKind::Symlink(_) => &mut counts.symlinks,
            SourceKind::HardLink(_) | SourceKind::Special(..) => &mut counts.others,
        } += 1;
    }

    fn sort(&mut self, tree: &Tree, rules: NameRules) -> Result<()> {
        for folder in 0..tree.nodes.len() {
            let range = self.first_child[folder] as usize..self.first_child[folder + 1] as usize;
            let hashes = &self.hashes;
            let key = |node: u32| (hashes[node as usize], &*tree.nodes[node as usize].name);
            let children = &mut self.children[range];
            children.sort_unstable_by(|&a, &b| key(a).cmp(&key(b)));
            for alike in children.chunk_by(|&a, &b| key(a).0 == key(b).0) {
                for (place, &a) in alike.iter().enumerate() {
                    if let Some(&b) = alike[place + 1..]
                        .iter()
                        .find(|&&b| rules.same(key(a).1, key(b).1))
                    {
                        return Err(tree.same_name(a.min(b), a.max(b)));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns true if a node of this kind is a device, which has a device number.
pub(super) fn is_device(kind: FileKind) -> bool {
    matches!(kind, FileKind::CharDevice | FileKind::BlockDevice)
}
