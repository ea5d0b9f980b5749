//! A tree of files for tests of FAT and exFAT.

#[cfg(test)]
use std::collections::BTreeMap;

use crate::source::{InMemory, SourceKind, SourceNode, Stream, Tree};
use crate::{Timestamp, UF_HIDDEN, UF_IMMUTABLE};

/// Time of everything.
pub(crate) const MOMENT: Timestamp = Timestamp::from_seconds(1_700_000_000);
/// A name of several entries.
pub(crate) const LONG: &str =
    "a long name with spaces, \u{fc}nd \u{1F600} and more than 26 units.text";

/// Returns bytes that differ from place to place.
fn contents(len: usize, seed: usize) -> Box<[u8]> {
    (0..len)
        .map(|at| u8::try_from((at * 7 + at / 251 + seed) % 251).unwrap_or_default())
        .collect()
}

/// Returns a tree with files and folders in some depth.
pub(crate) fn tree() -> Tree {
    let mut tree = Tree::empty(MOMENT);
    tree.contents = Box::new(InMemory);
    let mut add = |parent: u32, name: &str, kind: SourceKind| {
        tree.nodes
            .push(SourceNode::made(parent, name, kind, 0o644, MOMENT));
        u32::try_from(tree.nodes.len() - 1).unwrap_or_default()
    };
    let file = |len, seed| SourceKind::File(Stream::Bytes(contents(len, seed)));
    add(0, "SHORT.TXT", file(5, 1));
    add(0, "empty", file(0, 0));
    add(0, LONG, file(70_000, 2));
    let folder = add(0, "folder", SourceKind::Folder);
    let inner = add(folder, "inner", SourceKind::Folder);
    add(inner, "deep.bin", file(9_001, 3));
    add(inner, "bare", SourceKind::Folder);
    let many = add(0, "Many Files", SourceKind::Folder);
    for number in 0..70 {
        add(
            many,
            &format!("file number {number:03}.txt"),
            file(number * 37, number),
        );
    }
    let hidden = add(0, ".hidden", file(512, 4));
    tree.nodes[hidden as usize].flags = UF_HIDDEN | UF_IMMUTABLE;
    tree
}

/// Returns the contents of all files of the tree by their paths; `None` for folders.
#[cfg(test)]
pub(crate) fn expected(tree: &Tree) -> BTreeMap<String, Option<Vec<u8>>> {
    (0..)
        .zip(&tree.nodes)
        .skip(1)
        .map(|(number, node)| {
            let bytes = match &node.kind {
                SourceKind::File(Stream::Bytes(bytes)) => Some(bytes.to_vec()),
                _ => None,
            };
            (tree.path(number), bytes)
        })
        .collect()
}

/// Returns the contents of all files of a volume by their paths, as [`expected`] does. Folders that cannot
/// be read are not entered.
#[cfg(test)]
pub(crate) fn found(volume: &dyn crate::FileSystem) -> BTreeMap<String, Option<Vec<u8>>> {
    use crate::{Ancestors, FileKind, FileSystemExt, Fork};
    use bandsaw_core::device::BlockDeviceExt;

    let mut found = BTreeMap::new();
    let (mut ahead, mut ancestors) = (
        vec![(String::new(), volume.root(), 0)],
        Ancestors::default(),
    );
    while let Some((path, folder, depth)) = ahead.pop() {
        if ancestors.enter(folder, depth).is_err() || found.len() > 5000 {
            continue;
        }
        for entry in volume.entries(folder).unwrap_or_default() {
            let path = format!("{path}/{}", entry.name);
            let id = entry.attributes.id;
            assert_eq!(volume.attributes(id).map(|again| again.id).ok(), Some(id));
            if entry.attributes.kind == FileKind::Folder {
                ahead.push((path.clone(), id, depth + 1));
                found.insert(path, None);
                continue;
            }
            let bytes = volume.open(id, Fork::Data).and_then(|file| {
                let len = file.info().len.min(1 << 20);
                file.read_vec(0, usize::try_from(len).unwrap_or_default())
            });
            found.insert(path, Some(bytes.unwrap_or_default()));
        }
    }
    found
}
