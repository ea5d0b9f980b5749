//! A source tree for the sample volumes that tests corrupt, with files of every kind.

use crate::Timestamp;
use crate::source::{SourceKind, SourceNode, Stream, Tree};

/// Returns a tree of `files` files in two folders, one with hard links, a symbolic link, and
/// attributes of several sizes. `more_names` are names of the hard-linked file in addition to its
/// first two.
pub(crate) fn tree(files: usize, more_names: &[&str]) -> Tree {
    let mut tree = Tree::empty(Timestamp::from_seconds(1_600_000_000));
    let mut add = |parent: u32, name: &str, kind: SourceKind, mode: u16| {
        let node = tree.nodes.len() as u32;
        let root = tree.nodes[0].clone();
        tree.nodes.push(SourceNode {
            parent,
            name: name.into(),
            kind,
            mode,
            ..root
        });
        node
    };
    let file = |len: usize| SourceKind::File(Stream::Bytes(vec![0x41; len].into()));
    let folder = add(0, "folder", SourceKind::Folder, 0o755);
    let inner = add(folder, "inner", SourceKind::Folder, 0o755);
    for number in 0..files {
        add(
            if number % 2 == 0 { folder } else { inner },
            &format!("file {number}"),
            file(5000),
            0o644,
        );
    }
    let linked = add(0, "first name", file(9000), 0o600);
    add(folder, "second name", SourceKind::HardLink(linked), 0o600);
    for name in more_names {
        add(inner, name, SourceKind::HardLink(linked), 0o600);
    }
    add(
        0,
        "symlink",
        SourceKind::Symlink("folder/inner".into()),
        0o755,
    );
    let with_attributes = add(0, "with attributes", file(100), 0o644);
    let xattrs = &mut tree.nodes[with_attributes as usize].xattrs;
    xattrs.push(("small".into(), Stream::Bytes(vec![1; 20].into())));
    xattrs.push(("large".into(), Stream::Bytes(vec![2; 20_000].into())));
    xattrs.push((
        "com.apple.system.Security".into(),
        Stream::Bytes(vec![3; 44].into()),
    ));
    tree
}
