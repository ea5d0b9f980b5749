//! Broken volumes: each results in one clear error, in bounded time and memory.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use proptest::prelude::*;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::super::HfsPlus;
use super::super::layout::{
    AllocBlock, Cnid, Extent, FILE_LINK_TYPE, HEADER_OFFSET, NodeDescriptorRaw, TreeHeaderRaw,
    Variant, VolumeHeaderRaw, fork_type, node_kind, volume_attributes,
};
use super::super::links::FILES_FOLDER;
use super::super::unicode::NameOrder;
use super::fixture::{BLOCK, Drawn, Fixture, fork};
use crate::{FileKind, FileSystem, FileSystemExt, Fork, NodeId};
use bandsaw_core::device::{BlockDeviceExt, Memory};
use bandsaw_core::{Error, Kind, Result};

/// Reads every object once; returns their number.
fn read_all(volume: &HfsPlus) -> Result<usize> {
    let mut seen = HashSet::new();
    let mut waiting = vec![volume.root()];
    while let Some(dir) = waiting.pop() {
        volume.list(dir, &mut |entry| {
            let attributes = entry.attributes;
            if !seen.insert(attributes.id) {
                return Ok(ControlFlow::Continue(()));
            }
            match attributes.kind {
                FileKind::Folder => waiting.push(attributes.id),
                FileKind::Symlink => drop(volume.read_link(attributes.id)?),
                _ => {
                    for fork in [Fork::Data, Fork::Resource] {
                        let device = volume.open(attributes.id, fork)?;
                        device.read_vec(0, device.info().len as usize)?;
                    }
                }
            }
            for name in volume.xattrs(attributes.id)? {
                let value = volume.xattr(attributes.id, &name)?;
                value
                    .map(|value| value.read_vec(0, value.info().len as usize))
                    .transpose()?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(seen.len())
}

/// Returns a volume with a catalog of several levels.
fn forest() -> Fixture {
    let mut fixture = Fixture::plain();
    for index in 0..60 {
        let folder = fixture.folder(Cnid::ROOT, &format!("folder {index:02}"), |_| {});
        fixture.file(folder, "file", b"contents", |_| {});
    }
    fixture
}

/// Checks that opening and reading everything fails with an error that contains these words.
fn expect(drawn: Drawn, words: &[&str]) {
    let error = drawn
        .open()
        .and_then(|volume| read_all(&volume))
        .expect_err("the damage must be noticed");
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    for word in words {
        assert!(
            error.to_string().contains(word),
            "{word:?} expected in: {error}"
        );
    }
}

fn head(node: &mut [u8]) -> &mut NodeDescriptorRaw {
    NodeDescriptorRaw::mut_from_prefix(node).unwrap().0
}

/// Returns a volume with a modified catalog header.
fn with_header(change: impl FnOnce(&mut TreeHeaderRaw)) -> Drawn {
    let mut drawn = forest().draw();
    change(
        TreeHeaderRaw::mut_from_prefix(&mut drawn.node(0)[14..])
            .unwrap()
            .0,
    );
    drawn
}

/// Returns a volume with both volume headers modified.
fn with_volume_header(change: impl FnOnce(&mut VolumeHeaderRaw)) -> Drawn {
    let mut drawn = forest().draw();
    let (at, alternate) = (
        HEADER_OFFSET as usize,
        drawn.bytes.len() - HEADER_OFFSET as usize,
    );
    change(
        VolumeHeaderRaw::mut_from_prefix(&mut drawn.bytes[at..])
            .unwrap()
            .0,
    );
    drawn.bytes.copy_within(at..at + 512, alternate);
    drawn
}

#[test]
fn a_sound_forest_is_read_whole() {
    assert_eq!(read_all(&forest().open().unwrap()).unwrap(), 120);
}

#[test]
fn chains_of_leaves_that_go_round_are_noticed() {
    let mut drawn = forest().draw();
    let leaf = drawn.nodes_of(node_kind::LEAF)[3];
    head(drawn.node(leaf)).forward_link = u32::try_from(leaf).unwrap().into();
    expect(
        drawn,
        &[
            "hfs+ catalog: at byte",
            &format!("node {leaf}: the next leaf is the node itself"),
        ],
    );

    // A forward link to an earlier leaf, whose backward link agrees.
    let mut drawn = forest().draw();
    let leaves = drawn.nodes_of(node_kind::LEAF);
    head(drawn.node(leaves[5])).forward_link = u32::try_from(leaves[2]).unwrap().into();
    head(drawn.node(leaves[2])).backward_link = u32::try_from(leaves[5]).unwrap().into();
    expect(drawn, &[&format!("node {}", leaves[2])]);

    let mut drawn = forest().draw();
    head(drawn.node(leaves[5])).forward_link = u32::try_from(leaves[7]).unwrap().into();
    expect(drawn, &[&format!("follows leaf {}", leaves[5])]);
}

#[test]
fn nodes_that_lead_nowhere_are_noticed() {
    let mut drawn = forest().draw();
    let index = drawn.nodes_of(node_kind::INDEX)[0];
    let children = drawn.nodes_of(node_kind::LEAF);
    for (child, words) in [
        (index, "expected a node of kind -1 and height 1"),
        (0, "the tree points to node 0"),
        (900_000, "to node 900000"),
    ] {
        let mut drawn = forest().draw();
        let node = drawn.node(index);
        let second = usize::from(U16::read_from_bytes(&node[508..510]).unwrap().get());
        node[second - 4..second]
            .copy_from_slice(U32::new(u32::try_from(child).unwrap()).as_bytes());
        expect(drawn, &["hfs+ catalog", words]);
    }
    head(drawn.node(children[0])).height = 2;
    expect(
        drawn,
        &["expected a node of kind -1 and height 1, found kind -1 and height 2"],
    );
}

#[test]
fn tree_headers_that_claim_too_much_are_refused() {
    expect(
        with_header(|header| header.total_nodes = u32::MAX.into()),
        &["node 0 (header)", "4294967295 nodes of 512 bytes exceed"],
    );
    for size in [0, 3, 256, 65535] {
        expect(
            with_header(|header| header.node_size = size.into()),
            &["invalid node size", "a power of two"],
        );
    }
    expect(
        with_header(|header| header.tree_depth = 17.into()),
        &["invalid depth 17: the maximum is 16"],
    );
    expect(
        with_header(|header| header.tree_depth = 0.into()),
        &["invalid root: node"],
    );
    expect(
        with_header(|header| header.tree_depth = 9.into()),
        &["height 9, found"],
    );
    expect(
        with_header(|header| header.root_node = 1_000_000.into()),
        &["invalid root: node 1000000"],
    );
    expect(
        with_header(|header| header.attributes = 0.into()),
        &["lack the flag of 16-bit key lengths"],
    );
    let mut drawn = forest().draw();
    head(drawn.node(0)).kind = 0;
    expect(
        drawn,
        &["node 0: expected a header node (kind 1), found kind 0"],
    );
    let mut fixture = Fixture::new(Variant::Hfsx, NameOrder::Binary);
    fixture.file(Cnid::ROOT, "x", b"", |_| {});
    let mut drawn = fixture.draw();
    drawn.node(0)[14 + 37] = 0;
    assert_eq!(drawn.open().unwrap_err().kind(), Kind::Unsupported);
}

#[test]
fn records_out_of_their_node_are_noticed() {
    type Damage = fn(&mut [u8]);
    let damages: [(Damage, &str); 6] = [
        (
            |node| head(node).record_count = 300.into(),
            "300 records exceed the 512 bytes",
        ),
        (
            |node| head(node).record_count = u16::MAX.into(),
            "65535 records exceed",
        ),
        (|node| head(node).record_count = 0.into(), "has no records"),
        (
            |node| node[508..510].copy_from_slice(&[0xFF, 0xFF]),
            "invalid offset 1 of a record: 65535",
        ),
        (
            |node| node[510..512].copy_from_slice(&[0, 12]),
            "invalid offset 0 of a record: 12",
        ),
        (
            |node| node[14..16].copy_from_slice(&[0x7F, 0xFF]),
            "malformed key",
        ),
    ];
    for (damage, words) in damages {
        let mut drawn = forest().draw();
        let leaf = drawn.nodes_of(node_kind::LEAF)[4];
        damage(drawn.node(leaf));
        expect(drawn, &[&format!("node {leaf}:"), words]);
    }
}

#[test]
fn truncated_volumes_are_refused() {
    let whole = forest().draw().bytes;
    let blocks = whole.len() / BLOCK as usize;
    for len in [whole.len() - 512, whole.len() / 2, 3072] {
        let error = HfsPlus::open(Arc::new(Memory::read_only(whole[..len].to_vec()))).unwrap_err();
        let expected = format!("{blocks} blocks of 512 bytes do not fit a volume of {len} bytes");
        assert!(
            error.kind() == Kind::Corrupt && error.to_string().contains(&expected),
            "{error}"
        );
    }
    let error = HfsPlus::open(Arc::new(Memory::read_only(whole[..1024].to_vec()))).unwrap_err();
    assert!(error.to_string().contains("is too small"), "{error}");
}

#[test]
fn volume_headers_that_make_no_sense_are_refused() {
    expect(
        with_volume_header(|header| header.block_size = 1000.into()),
        &["at byte 1024: invalid block size 1000"],
    );
    expect(
        with_volume_header(|header| header.block_size = 256.into()),
        &["invalid block size 256"],
    );
    expect(
        with_volume_header(|header| header.total_blocks = 0.into()),
        &["0 blocks"],
    );
    expect(
        with_volume_header(|header| header.total_blocks = u32::MAX.into()),
        &["4294967295 blocks of 512 bytes do not fit"],
    );
    expect(
        with_volume_header(|header| header.catalog_file.extents[0].start_block = u32::MAX.into()),
        &["catalog file", "reaches past"],
    );
    expect(
        with_volume_header(|header| header.catalog_file.logical_size = u64::MAX.into()),
        &["catalog file", "exceeds its blocks"],
    );
    expect(
        with_volume_header(|header| header.catalog_file.total_blocks = u32::MAX.into()),
        &["catalog file", "missing extents"],
    );
    expect(
        with_volume_header(|header| header.catalog_file = Default::default()),
        &["hfs+ catalog", "a file of 0 bytes"],
    );
    expect(
        with_volume_header(|header| header.extents_file.total_blocks = 7_000_000.into()),
        &["extents file"],
    );
    let other_version = with_volume_header(|header| header.version = 6.into());
    assert_eq!(other_version.open().unwrap_err().kind(), Kind::Unsupported);
}

#[test]
fn threads_and_records_must_agree() {
    // A thread whose record is missing.
    let mut fixture = forest();
    let orphan = fixture.new_id();
    fixture.thread(orphan, Cnid::ROOT, "gone", false);
    let error = fixture
        .open()
        .unwrap()
        .attributes(NodeId(orphan.0.into()))
        .unwrap_err();
    assert!(
        error.to_string().contains(&format!(
            "the thread record of object {orphan} refers to \"gone\" in folder 2"
        )),
        "{error}"
    );

    // A record whose thread is missing.
    let mut fixture = forest();
    let folder = fixture.folder(Cnid::ROOT, "threadless", |_| {});
    fixture
        .catalog
        .retain(|record| record[..6] != [&[0, 6], &folder.0.to_be_bytes()[..]].concat());
    expect(
        fixture.draw(),
        &[&format!("folder {folder} is in folder 2, but its thread")],
    );

    // A folder with the number of the root: following it would never end.
    let mut fixture = forest();
    fixture.folder(Cnid::ROOT, "loop", |folder| folder.folder_id = 2.into());
    expect(
        fixture.draw(),
        &["folder 2 is in folder 2, but its thread points elsewhere"],
    );

    // A folder within itself.
    let mut fixture = forest();
    let outer = fixture.folder(Cnid::ROOT, "outer", |_| {});
    fixture.folder(outer, "inner", |folder| folder.folder_id = outer.0.into());
    expect(
        fixture.draw(),
        &[&format!(
            "folder {outer} is in folder {outer}, but its thread"
        )],
    );

    // No root folder.
    let mut fixture = Fixture::plain();
    fixture.catalog.clear();
    expect(fixture.draw(), &["no root folder"]);
}

#[test]
fn records_of_no_known_kind_are_noticed() {
    for data in [
        &[0, 9, 0, 0][..],
        &[0, 1, 0, 0],
        &[0, 2],
        &[0, 3, 0, 0, 0, 0, 0, 2, 0, 0],
    ] {
        let mut fixture = forest();
        fixture.record(Cnid::ROOT, "strange", data);
        expect(
            fixture.draw(),
            &["unexpected record for the name \"strange\" in folder 2"],
        );
    }
    let mut fixture = forest();
    let file = fixture.file(Cnid::ROOT, "file", b"", |_| {});
    fixture.attribute(file, "strange", 0, &[0, 0, 0, 0x40]);
    expect(
        fixture.draw(),
        &[&format!("unexpected record of strange of file {file}")],
    );
}

#[test]
fn forks_that_make_no_sense_are_noticed_when_opened() {
    let extent = |start, count| Extent {
        start: AllocBlock(start),
        count,
    };
    let table = [
        (fork(512, 1, &[extent(900_000, 1)]), "reaches past"),
        (fork(512, 2, &[extent(4, 1)]), "missing extents"),
        (
            fork(1 << 40, 1, &[extent(4, 1)]),
            "its blocks, which have 512 bytes",
        ),
        (
            fork(512, 2, &[extent(4, 1), extent(4, 1)]),
            "block 4 is in two extents of the fork",
        ),
    ];
    for (fork, words) in table {
        let mut fixture = forest();
        let file = fixture.file(Cnid::ROOT, "file", b"", |file| file.data_fork = fork);
        expect(
            fixture.draw(),
            &[&format!("data fork of file {file}"), words],
        );
    }
    let mut fixture = forest();
    let file = fixture.file(Cnid::ROOT, "file", b"", |file| {
        file.data_fork = fork(512, 2, &[extent(4, 1)])
    });
    fixture.more_extents(file, fork_type::DATA, 1, &[]);
    expect(fixture.draw(), &["extents from block 1 on is empty"]);
}

#[test]
fn a_symbolic_link_of_a_gigabyte_is_not_read() {
    let mut fixture = Fixture::plain();
    let link = fixture.file(Cnid::ROOT, "link", b"x", |file| {
        file.bsd.file_mode = 0o120_755.into();
        file.data_fork.logical_size = (1 << 30).into();
    });
    let error = fixture
        .open()
        .unwrap()
        .read_link(NodeId(link.0.into()))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
}

#[test]
fn a_malformed_journal_is_only_a_problem() {
    for (info_block, words) in [
        (0, "info block 0"),
        (800_000, "info block 800000"),
        (1, "another device"),
    ] {
        let mut fixture = forest();
        fixture.header.attributes = volume_attributes::JOURNALED.into();
        fixture.header.journal_info_block = info_block.into();
        let volume = fixture.open().unwrap();
        assert!(!volume.volume().clean);
        let problems: Vec<String> = volume.problems().iter().map(Error::to_string).collect();
        assert!(
            problems.len() == 1 && problems[0].contains(words),
            "{problems:?}"
        );
    }
}

/// Returns a volume with all kinds of objects.
fn menagerie() -> Vec<u8> {
    let mut fixture = Fixture::plain();
    let private = fixture.folder(Cnid::ROOT, FILES_FOLDER, |_| {});
    fixture.file(private, "iNode9", b"shared", |file| {
        file.bsd.special = 1.into()
    });
    fixture.file(Cnid::ROOT, "hard", b"", |file| {
        (file.user_info.file_type, file.user_info.creator) = FILE_LINK_TYPE;
        file.bsd.special = 9.into();
        file.dates.create = 3_000_000_000.into();
    });
    fixture.file(Cnid::ROOT, "soft", b"hard", |file| {
        file.bsd.file_mode = 0o120_755.into()
    });
    let pieces = fixture.scatter(&[7; 11 * BLOCK as usize]);
    let file = fixture.file(Cnid::ROOT, "pieces", b"", |file| {
        file.data_fork = fork(11 * u64::from(BLOCK), 11, &pieces[..8])
    });
    fixture.more_extents(file, fork_type::DATA, 8, &pieces[8..]);
    fixture.inline_attribute(file, "attribute", b"value");
    for index in 0..12 {
        let folder = fixture.folder(Cnid::ROOT, &format!("folder {index}"), |_| {});
        fixture.file(folder, "e\u{301}", b"contents", |_| {});
    }
    fixture.draw().bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Random damage may result in an error or remain undetected, but must not cause a panic, an
    /// endless loop or unbounded memory use.
    #[test]
    fn damage_anywhere_is_survived(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut bytes = menagerie();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(volume) = HfsPlus::open(Arc::new(Memory::read_only(bytes))) {
            let _ = read_all(&volume);
            let _ = (volume.volume(), volume.resolve("/hard"), volume.attributes(NodeId(17)));
        }
    }
}
