//! HFS+ volumes and the nodes of their trees.

use std::fmt;
use std::sync::Arc;

use super::{describe, disk};
use crate::device::{BlockDevice, Memory};
use crate::fs::hfsplus::{self, HfsPlus, build};
use crate::fs::source::{ContentReader, Contents, SourceKind, SourceNode, Stream, Tree};
use crate::fs::{FileKind, FileSystem, Timestamp};
use crate::problem::Severity;
use crate::progress::Silent;
use crate::testing::walk;
use crate::{Error, Kind, Result};

/// Maximum number of objects read. Real folders contain more, but the claims of a corrupt one must
/// not cost time.
const MAX_OBJECTS: u64 = 500;

/// Takes an input that describes a disk. The volume on it opens or is refused, everything in it can
/// be queried, and the disk is unchanged: it is read-only, and any write would be an error that the
/// walk counts. Damage that reading reports is found by a check too.
pub fn hfsplus_volume(input: &[u8]) {
    let Some(disk) = disk(input) else { return };
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(disk.to_vec()));
    let findings = hfsplus::check(device.clone(), &Silent);
    let stumbled = read_all(device).filter(|error| error.kind() == Kind::Corrupt);
    if let (Ok(findings), Some(error)) = (findings, stumbled) {
        let damaged = findings
            .iter()
            .any(|problem| problem.severity == Severity::Damage);
        assert!(damaged, "reading found {error}, a check {findings:?}");
    }
}

/// Opens the volume on a read-only device and queries everything; returns the first error.
pub(super) fn read_all(device: Arc<dyn BlockDevice>) -> Option<Error> {
    let probed = hfsplus::probe(&*device);
    let volume = match HfsPlus::open(device) {
        Ok(volume) => volume,
        Err(error) => return Some(error),
    };
    assert!(
        probed.is_ok_and(|found| found.is_some()),
        "a volume is opened that is not found"
    );
    let info = volume.volume();
    assert!(info.free <= info.total, "{info:?}");
    let walked = walk::walk(&volume, MAX_OBJECTS);
    assert!(walked.objects <= MAX_OBJECTS);
    assert!(
        walked
            .first_error
            .as_ref()
            .is_none_or(|error| error.kind() != Kind::ReadOnly)
    );
    walked.first_error
}

/// Takes an input that is a node of a tree. It is refused, or its records are within it, and each
/// is refused or a key with data.
pub fn btree_node(input: &[u8]) {
    hfsplus::read_node(input);
}

pub(super) fn volume_seeds() -> Vec<Vec<u8>> {
    [(false, 512), (true, 4096)]
        .into_iter()
        .map(|(case_sensitive, block_size)| describe(&sample(case_sensitive, block_size)))
        .collect()
}

pub(super) fn node_seeds() -> Vec<Vec<u8>> {
    let volume = sample(false, 4096);
    let nodes = volume
        .chunks(4096)
        .chain(volume.chunks(8192))
        .filter(|node| hfsplus::read_node(node) > 0);
    nodes.map(<[u8]>::to_vec).collect()
}

/// Returns the bytes of a small volume with one of everything: contiguous and empty files, nested
/// folders and one with many entries, links of both kinds, resource forks, attributes, a device.
pub fn sample(case_sensitive: bool, block_size: u32) -> Vec<u8> {
    build_sample(case_sensitive, block_size, 0)
}

/// Returns the bytes of the [`sample`] volume with `room` free bytes at its end.
pub(super) fn sample_with_room(block_size: u32, room: usize) -> Vec<u8> {
    build_sample(false, block_size, room)
}

fn build_sample(case_sensitive: bool, block_size: u32, room: usize) -> Vec<u8> {
    let plan = build::Plan::new(sample_tree(), options(case_sensitive, block_size))
        .expect("the sample can be planned");
    let disk = Memory::zeros(plan.minimum_len().expect("the sample has a length") as usize + room);
    plan.build(&disk, &Silent).expect("the sample can be built");
    disk.to_vec()
}

pub(super) fn options(case_sensitive: bool, block_size: u32) -> build::Options {
    build::Options {
        name: "Sample".to_owned(),
        case_sensitive,
        journaled: false,
        block_size: Some(block_size),
        created: Timestamp::from_seconds(1_700_000_000),
        latest: None,
        opens: false,
        identifier: 0x0123_4567_89ab_cdef,
    }
}

fn sample_tree() -> Tree {
    let mut nodes = vec![node(0, "", SourceKind::Folder)];
    let text = |text: &str| Stream::Bytes(text.as_bytes().into());
    nodes.push(node(0, "docs", SourceKind::Folder));
    nodes.push(node(1, "deep", SourceKind::Folder));
    nodes.push(node(2, "file.txt", SourceKind::File(text("deep down"))));
    nodes.push(node(2, "same.txt", SourceKind::HardLink(3)));
    nodes.push(node(0, "empty", SourceKind::File(Stream::empty())));
    nodes.push(node(
        0,
        "long",
        SourceKind::File(Stream::Bytes(vec![7; 10_000].into())),
    ));
    nodes.push(node(
        0,
        "link",
        SourceKind::Symlink("docs/deep/file.txt".into()),
    ));
    nodes.push(node(
        0,
        "null",
        SourceKind::Special(FileKind::CharDevice, 0x0300_0002),
    ));
    let mut dressed = node(
        1,
        "dressed å é 漢字",
        SourceKind::File(text("with attributes")),
    );
    dressed.xattrs = vec![
        (
            "com.apple.FinderInfo".into(),
            text("TEXTttxt\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        ),
        (
            "com.apple.ResourceFork".into(),
            Stream::Bytes(vec![9; 600].into()),
        ),
        ("user.color".into(), text("blue")),
        ("user.long".into(), Stream::Bytes(vec![3; 5_000].into())),
    ];
    nodes.push(dressed);
    let many = nodes.len() as u32;
    nodes.push(node(0, "many", SourceKind::Folder));
    nodes.extend((0..60).map(|n| {
        node(
            many,
            &format!("entry number {n:03}"),
            SourceKind::File(Stream::empty()),
        )
    }));
    Tree {
        nodes,
        contents: Box::new(AllInHand),
    }
}

fn node(parent: u32, name: &str, kind: SourceKind) -> SourceNode {
    let mode = if kind == SourceKind::Folder {
        0o755
    } else {
        0o644
    };
    let modified = Timestamp::from_seconds(1_600_000_000);
    SourceNode {
        parent,
        name: name.into(),
        kind,
        mode,
        uid: 501,
        gid: 20,
        flags: 0,
        created: None,
        modified,
        changed: None,
        accessed: None,
        xattrs: Vec::new(),
    }
}

/// A source of contents for trees whose files are never opened.
struct AllInHand;

impl fmt::Debug for AllInHand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AllInHand")
    }
}

impl Contents for AllInHand {
    fn open(&self, _stream: &Stream) -> Result<Box<dyn ContentReader + '_>> {
        Err(Error::new(
            Kind::NotFound,
            "sample",
            "there is nothing to open",
        ))
    }
}
