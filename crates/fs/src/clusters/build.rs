//! Volumes from a tree of files: every file and folder gets contiguous clusters, the folders first.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use bandsaw_core::device::{BlockDevice, Extent};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

use crate::PlacedContents;
use crate::build::filling::{self, Content, Piece, Places};
use crate::build::tree::{check_source_tree, path};
use crate::source::{SourceKind, SourceNode, Tree};

/// Fails if the tree has something that neither FAT nor exFAT can hold, or a file of more than `max_file`
/// bytes.
pub(crate) fn check_tree(
    tree: &Tree,
    layer: &'static str,
    format: &str,
    max_file: u64,
) -> Result<()> {
    check_source_tree(tree, layer)?;
    for (number, node) in (0..).zip(&tree.nodes) {
        let refused = |what: String| {
            let message = format!("{format} cannot hold {what}");
            Err(Error::unsupported(layer, message).named(path(tree, number)))
        };
        match &node.kind {
            SourceKind::Folder => {}
            SourceKind::File(stream) if stream.len() > max_file => {
                return refused(format!(
                    "a file of {} bytes: the maximum is {max_file}",
                    stream.len()
                ));
            }
            SourceKind::File(_) => {}
            SourceKind::Symlink(_) => return refused("symbolic links".into()),
            SourceKind::HardLink(_) => return refused("hard links".into()),
            SourceKind::Special(kind, _) => return refused(format!("a {}", kind.name())),
        }
        if let Some((name, _)) = node.xattrs.first() {
            return refused(format!("extended attributes, such as {name}"));
        }
    }
    Ok(())
}

/// Fails if a name is empty, too long, or has characters that neither FAT nor exFAT allows.
pub(crate) fn check_name(
    tree: &Tree,
    node: u32,
    layer: &'static str,
    format: &str,
) -> Result<Vec<u16>> {
    name_units(&tree.nodes[node as usize].name, layer, format)
        .map_err(|error| error.named(path(tree, node)))
}

/// Returns the units of a name. Fails if it is empty, too long, or has characters that neither FAT nor exFAT
/// allows.
pub(crate) fn name_units(name: &str, layer: &'static str, format: &str) -> Result<Vec<u16>> {
    const MAX_UNITS: usize = 255;
    let refused = |why: String| Error::unsupported(layer, why);
    let is_forbidden = |char: char| {
        char < ' ' || matches!(char, '"' | '*' | '/' | ':' | '<' | '>' | '?' | '\\' | '|')
    };
    if let Some(char) = name.chars().find(|&char| is_forbidden(char)) {
        // A name has a colon where macOS shows a slash, and the other way around.
        return Err(refused(format!(
            "{format} does not allow {char:?} in a name"
        )));
    }
    if name.ends_with(['.', ' ']) {
        return Err(refused(format!(
            "{format} does not allow a name that ends with a point or a space"
        )));
    }
    let units: Vec<u16> = name.encode_utf16().collect();
    if units.is_empty() || units.len() > MAX_UNITS {
        return Err(refused(format!(
            "the name has {} units of UTF-16, {format} allows 1 to {MAX_UNITS}",
            units.len()
        )));
    }
    Ok(units)
}

/// The names of each folder, by the form in which they are compared.
#[derive(Debug)]
pub(crate) struct NamesByFolder<K>(HashMap<(u32, K), u32>);

impl<K: Hash + Eq> NamesByFolder<K> {
    pub(crate) fn new() -> Self {
        Self(HashMap::new())
    }

    /// Adds the name of a node. Fails if another one of its folder has the same.
    pub(crate) fn add(&mut self, tree: &Tree, node: u32, key: K) -> Result<()> {
        let parent = tree.nodes[node as usize].parent;
        match self.0.insert((parent, key), node) {
            None => Ok(()),
            Some(other) => Err(tree.same_name(node, other)),
        }
    }
}

/// Returns the number of bytes that a node stores in clusters. `folder_lens` has those of the folders.
fn stored_len(node: &SourceNode, folder_len: u64) -> u64 {
    match &node.kind {
        SourceKind::File(stream) => stream.len(),
        _ => folder_len,
    }
}

/// Returns the number of clusters of all nodes.
pub(crate) fn clusters_of(tree: &Tree, folder_lens: &[u64], cluster_size: u64) -> u64 {
    tree.nodes
        .iter()
        .zip(folder_lens)
        .map(|(node, &len)| stored_len(node, len).div_ceil(cluster_size))
        .fold(0, u64::saturating_add)
}

/// The clusters of all nodes.
#[derive(Debug)]
pub(crate) struct Allotment {
    /// First cluster of each node; 0: none.
    pub(crate) first: Vec<u32>,
    /// First cluster of the files, behind the folders.
    pub(crate) files: u64,
    /// First cluster behind all.
    pub(crate) end: u64,
}

impl Allotment {
    /// Places all nodes from cluster `next` on. All of them must fit in 2^32 clusters.
    pub(crate) fn new(tree: &Tree, folder_lens: &[u64], cluster_size: u64, next: u64) -> Self {
        let mut next = next;
        let mut first = vec![0; tree.nodes.len()];
        let mut files = next;
        for wants_folders in [true, false] {
            let nodes = tree.nodes.iter().zip(folder_lens).zip(&mut first);
            for ((node, &len), place) in nodes {
                if (node.kind == SourceKind::Folder) != wants_folders {
                    continue;
                }
                let count = stored_len(node, len).div_ceil(cluster_size);
                if count > 0 {
                    *place = narrow(next);
                    next += count;
                }
            }
            if wants_folders {
                files = next;
            }
        }
        Self {
            first,
            files,
            end: next,
        }
    }

    /// Calls `each` for the clusters of every node that has some, in their order on the volume.
    pub(crate) fn each(
        &self,
        tree: &Tree,
        folder_lens: &[u64],
        cluster_size: u64,
        each: &mut dyn FnMut(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        for wants_folders in [true, false] {
            let nodes = tree.nodes.iter().zip(folder_lens).zip(&self.first);
            for ((node, &len), &first) in nodes {
                if first > 0 && (node.kind == SourceKind::Folder) == wants_folders {
                    let first = u64::from(first);
                    each(first..first + stored_len(node, len).div_ceil(cluster_size))?;
                }
            }
        }
        Ok(())
    }
}

/// The contents of the files in their places.
#[derive(Debug)]
pub(crate) struct PlacedFiles<'a> {
    tree: &'a Tree,
    cluster_size: u64,
    /// The first bytes of files on the volume with their nodes, ascending.
    starts: Vec<(u64, u32)>,
    range: Range<u64>,
}

impl<'a> PlacedFiles<'a> {
    /// Returns the files of a tree. Cluster 2 begins at byte `start` of the volume.
    pub(crate) fn new(
        tree: &'a Tree,
        allotment: &Allotment,
        start: u64,
        cluster_size: u64,
    ) -> Self {
        let offset = |cluster: u64| start + (cluster - super::FIRST) * cluster_size;
        let starts = (0..)
            .zip(tree.nodes.iter().zip(&allotment.first))
            .filter(|(_, (node, first))| matches!(node.kind, SourceKind::File(_)) && **first > 0)
            .map(|(number, (_, &first))| (offset(first.into()), number))
            .collect();
        Self {
            tree,
            cluster_size,
            starts,
            range: offset(allotment.files)..offset(allotment.end),
        }
    }
}

impl Places for PlacedFiles<'_> {
    fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    fn zeroed(&self) -> bool {
        true
    }

    fn pieces(
        &self,
        stretch: Range<u64>,
        each: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let after = self
            .starts
            .partition_point(|(start, _)| *start <= stretch.start);
        for &(start, node) in self.starts.iter().skip(after.saturating_sub(1)) {
            if start >= stretch.end {
                break;
            }
            let SourceKind::File(stream) = &self.tree.nodes[node as usize].kind else {
                continue;
            };
            let end = start + stream.len().next_multiple_of(self.cluster_size);
            if end > stretch.start {
                each(Piece {
                    node,
                    content: Content::of(stream),
                    from: 0,
                    place: start..end,
                })?;
            }
        }
        Ok(())
    }
}

impl PlacedContents for PlacedFiles<'_> {
    fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    fn write(&self, range: Range<u64>, device: &dyn BlockDevice) -> Result<()> {
        filling::fill_range(self.tree, self, device, range)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        filling::extent_at(self.tree, self, range)
    }
}
