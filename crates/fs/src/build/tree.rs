//! The common view of source trees for all builders.

use std::collections::BTreeMap;

use crate::UF_COMPRESSED;
use crate::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw_core::decmpfs::{self, Compression};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

/// Maximum number of hard links in macOS.
const MAX_LINKS: usize = 32767;
/// Maximum length of the target of a symbolic link in macOS, in bytes.
const MAX_TARGET: usize = 1023;

/// Fails if a tree violates the rules of [`Tree`].
pub(crate) fn check_source_tree(tree: &Tree, layer: &'static str) -> Result<()> {
    let nodes = &tree.nodes;
    let wrong = |message| Err(Error::invalid(layer, message));
    if nodes
        .first()
        .is_none_or(|root| root.kind != SourceKind::Folder)
        || u32::try_from(nodes.len()).is_err()
    {
        return wrong("the first object of the list must be the root folder");
    }
    for (index, node) in nodes.iter().enumerate().skip(1) {
        let parent = nodes[..index].get(node.parent as usize);
        if parent.is_none_or(|parent| parent.kind != SourceKind::Folder) {
            return wrong("the parent of an object must be a folder that precedes it in the list");
        }
        if let SourceKind::HardLink(target) = node.kind {
            let target = nodes[..index].get(target as usize);
            if target.is_none_or(|target| {
                matches!(target.kind, SourceKind::Folder | SourceKind::HardLink(_))
            }) {
                return wrong(
                    "the target of a hard link must be a file that precedes it in the list",
                );
            }
        }
    }
    Ok(())
}

/// Fails if the tree contains something that no record can represent. `attributes` does the same
/// for the attributes of each node, and sorts them.
pub(crate) fn prepare(
    tree: &mut Tree,
    layer: &'static str,
    attributes: impl Fn(&mut SourceNode) -> Result<()>,
) -> Result<()> {
    for node in 0..tree.nodes.len() {
        let named = |error: Error, tree: &Tree| error.named(path(tree, narrow(node)));
        if let SourceKind::Symlink(target) = &tree.nodes[node].kind
            && (target.is_empty() || target.len() > MAX_TARGET)
        {
            let message = format!(
                "invalid link target of {} bytes: expected 1 to {MAX_TARGET}",
                target.len()
            );
            return Err(named(Error::limit(layer, message), tree));
        }
        // Attributes of a hard link are ignored: it has those of the node that it refers to.
        if !matches!(tree.nodes[node].kind, SourceKind::HardLink(_)) {
            attributes(&mut tree.nodes[node]).map_err(|error| named(error, tree))?;
        }
    }
    Ok(())
}

/// Returns the node with the contents and attributes of `node`: itself, or the target of a hard
/// link.
pub(crate) fn resolve(tree: &Tree, node: u32) -> (u32, &SourceNode) {
    let source = &tree.nodes[node as usize];
    match source.kind {
        SourceKind::HardLink(target) => (target, &tree.nodes[target as usize]),
        _ => (node, source),
    }
}

/// Returns the node whose body (forks and attributes) is stored under the number of `node`; `None`
/// for an additional name of a hard-linked file, whose body is stored elsewhere.
pub(crate) fn body(tree: &Tree, node: u32) -> Option<&SourceNode> {
    let (owner, source) = resolve(tree, node);
    (owner == node || !matches!(source.kind, SourceKind::File(_))).then_some(source)
}

/// Returns the additional names of each file that has several. As in macOS, only regular files can
/// have hard links; additional names of a symbolic link or a device become copies.
pub(crate) fn links(tree: &Tree, layer: &'static str) -> Result<BTreeMap<u32, Vec<u32>>> {
    let mut links = BTreeMap::<u32, Vec<u32>>::new();
    for (node, source) in (0..).zip(&tree.nodes) {
        if let SourceKind::HardLink(target) = source.kind
            && is_file(tree, target)
        {
            let others = links.entry(target).or_default();
            others.push(node);
            if others.len() >= MAX_LINKS {
                let message = format!("too many hard links: the maximum is {MAX_LINKS}");
                return Err(Error::limit(layer, message).named(path(tree, target)));
            }
        }
    }
    Ok(links)
}

fn is_file(tree: &Tree, node: u32) -> bool {
    matches!(tree.nodes[node as usize].kind, SourceKind::File(_))
}

/// Returns the nodes, without the root, in the order of their parents, and the index of each
/// parent's first child.
pub(crate) fn by_parent(tree: &Tree) -> (Vec<u32>, Vec<u32>) {
    let mut first = vec![0; tree.nodes.len() + 1];
    for node in &tree.nodes[1..] {
        first[node.parent as usize + 1] += 1;
    }
    for folder in 0..tree.nodes.len() {
        first[folder + 1] += first[folder];
    }
    let mut next = first.clone();
    let mut children = vec![0; tree.nodes.len() - 1];
    for (index, node) in (1..).zip(&tree.nodes[1..]) {
        let place = &mut next[node.parent as usize];
        children[*place as usize] = index;
        *place += 1;
    }
    (children, first)
}

/// Returns the path of a node within the tree, for messages.
pub(crate) fn path(tree: &Tree, node: u32) -> String {
    tree.path(node)
}

/// Returns the compression of a file. A file with the flag that has contents of its own, or no
/// compression attribute, is an ordinary file.
pub(crate) fn compression(source: &SourceNode) -> Option<Compression> {
    if source.flags & UF_COMPRESSED == 0
        || !matches!(&source.kind, SourceKind::File(stream) if stream.is_empty())
    {
        return None;
    }
    source.xattrs.iter().find_map(|(name, value)| match value {
        Stream::Bytes(bytes) if &**name == decmpfs::ATTRIBUTE => Compression::parse(bytes),
        _ => None,
    })
}

/// Returns the BSD flags of a node. The compression flag is set exactly if the file is compressed.
pub(crate) fn flags(source: &SourceNode) -> u32 {
    source.flags & !UF_COMPRESSED
        | if compression(source).is_some() {
            UF_COMPRESSED
        } else {
            0
        }
}
