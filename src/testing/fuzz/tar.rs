//! Tar archives, from the first byte to a volume.

use std::sync::Arc;

use super::hfsplus::{options, sample};
use crate::device::Memory;
use crate::fs::hfsplus::HfsPlus;
use crate::fs::hfsplus::build::Plan;
use crate::fs::source::{SourceKind, SourceNode, Stream, Tree};
use crate::ops::{export, import};
use crate::progress::Silent;
use crate::testing::walk;

/// Maximum length in bytes of a volume that is created; longer ones are only planned.
const MAX_LEN: u64 = 8 << 20;

/// Takes an input that is a tar archive. It is refused, or it is an ordered tree whose contents can
/// be read; and the tree does not fit the volume, or fills one in which every object is found and
/// every query succeeds.
pub fn tar_import(input: &[u8]) {
    let mut stream = input;
    let Ok(tree) = import::tar_stream(&mut stream, &std::env::temp_dir(), &Silent) else {
        return;
    };
    check(&tree);
    let objects = tree.nodes.len() as u64 - 1;
    let Ok(plan) = Plan::new(tree, options(false, 4096)) else {
        return;
    };
    let Some(len) = plan.minimum_len().ok().filter(|&len| len <= MAX_LEN) else {
        return;
    };
    let disk = Arc::new(Memory::zeros(len as usize));
    let built = plan.build(&*disk, &Silent);
    assert!(built.is_ok(), "{built:?}");
    let volume = HfsPlus::open(disk).expect("what was built can be opened");
    let walked = walk::walk(&volume, objects + 100);
    assert!(
        walked.errors == 0 && walked.objects == objects,
        "{objects} expected, {walked:?}"
    );
}

/// Checks the invariants of a tree: parents come first and are folders, hard links refer to earlier
/// objects that are neither folders nor hard links, contents can be read.
fn check(tree: &Tree) {
    for (index, node) in tree.nodes.iter().enumerate().skip(1) {
        let before = |other: u32| &tree.nodes[..index][other as usize].kind;
        assert_eq!(*before(node.parent), SourceKind::Folder, "{node:?}");
        if let SourceKind::HardLink(target) = node.kind {
            assert!(
                !matches!(before(target), SourceKind::Folder | SourceKind::HardLink(_)),
                "{node:?}"
            );
        }
        streams(node).for_each(|stream| read_ends(tree, stream));
    }
}

fn streams(node: &SourceNode) -> impl Iterator<Item = &Stream> {
    let contents = match &node.kind {
        SourceKind::File(stream) => Some(stream),
        _ => None,
    };
    contents
        .into_iter()
        .chain(node.xattrs.iter().map(|(_, value)| value))
}

fn read_ends(tree: &Tree, stream: &Stream) {
    if matches!(stream, Stream::Bytes(_)) {
        return;
    }
    let mut reader = tree.contents.open(stream).expect("a stream can be opened");
    let mut piece = vec![0; stream.len().min(4096) as usize];
    for offset in [0, stream.len() - piece.len() as u64] {
        let read = reader.read_at(offset, &mut piece);
        assert!(read.is_ok(), "{stream:?}: {read:?}");
    }
    assert!(
        reader.read_at(stream.len(), &mut [0]).is_err(),
        "{stream:?} goes on past its end"
    );
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let volume = HfsPlus::open(Arc::new(Memory::from(sample(true, 4096))))
        .expect("the sample can be opened");
    let archive = |path: &str| {
        let mut archive = Vec::new();
        export::to_tar(&volume, path, &mut archive, &Silent).expect("the sample can be archived");
        archive
    };
    vec![archive("/"), archive("/docs"), archive("/long")]
}
