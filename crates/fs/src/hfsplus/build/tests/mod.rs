//! Tests that parse built volumes with an independent implementation of the rules.

pub(in crate::hfsplus) mod check;
mod sparse;

use std::sync::Arc;

use zerocopy::big_endian::U16;

use self::check::{check, check_tree, read};
use self::sparse::Sparse;
use super::*;
use crate::hfsplus::layout::*;
use crate::hfsplus::{HfsPlusMut, WriteOptions};
use crate::source::{SourceKind, SourceNode, Stream};
use crate::{FileKind, FileSystem, FileSystemMut, NewKind, NewNode};
use bandsaw_core::Kind;
use bandsaw_core::device::{BlockDeviceExt, Memory};
use bandsaw_core::progress::Silent;

fn options() -> Options {
    Options {
        name: "Test".into(),
        case_sensitive: false,
        journaled: false,
        block_size: None,
        created: Timestamp::from_seconds(1_700_000_000),
        latest: None,
        opens: false,
        identifier: 0x0123_4567_89AB_CDEF,
    }
}

/// A tree to which nodes are added one by one.
struct Grown(Tree);

impl Grown {
    fn new() -> Self {
        Self(Tree::empty(Timestamp::from_seconds(1_600_000_000)))
    }

    fn add(&mut self, parent: u32, name: &str, kind: SourceKind) -> u32 {
        let node = self.0.nodes.len() as u32;
        let root = &self.0.nodes[0];
        self.0.nodes.push(SourceNode {
            parent,
            name: name.into(),
            kind,
            mode: 0o644,
            ..root.clone()
        });
        node
    }

    fn file(&mut self, parent: u32, name: &str, len: usize) -> u32 {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 31 % 251) as u8 | 1).collect();
        self.add(parent, name, SourceKind::File(Stream::Bytes(bytes.into())))
    }

    fn folder(&mut self, parent: u32, name: &str) -> u32 {
        self.add(parent, name, SourceKind::Folder)
    }

    fn xattr(&mut self, node: u32, name: &str, len: usize) {
        self.0.nodes[node as usize]
            .xattrs
            .push((name.into(), Stream::Bytes(vec![0x5A; len].into())));
    }
}

fn build(grown: Grown, options: Options, len: Option<u64>) -> Memory {
    let plan = Plan::new(grown.0, options).unwrap();
    let len = len.unwrap_or_else(|| plan.minimum_len().unwrap());
    let device = Memory::zeros(len.try_into().unwrap());
    let built = plan.build(&device, &Silent).unwrap();
    assert_eq!(built.len, len);
    device
}

#[test]
fn empty_volumes_of_many_sizes() {
    for case_sensitive in [false, true] {
        for len in [512 << 10, (512 << 10) + 512, 1 << 20, 5 << 20, 33_333_333] {
            check(&build(
                Grown::new(),
                Options {
                    case_sensitive,
                    ..options()
                },
                Some(len),
            ));
        }
    }
    for shift in 9..=16 {
        check(&build(
            Grown::new(),
            Options {
                block_size: Some(1 << shift),
                ..options()
            },
            None,
        ));
        check(&build(
            Grown::new(),
            Options {
                block_size: Some(1 << shift),
                ..options()
            },
            Some(8 << 20),
        ));
    }
}

#[test]
fn places_are_those_of_apples_formatter() {
    let device = build(Grown::new(), options(), Some(4 << 20));
    let header: VolumeHeaderRaw = read(&device, HEADER_OFFSET);
    let place = |fork: &ForkRaw| {
        (
            fork.extents[0].start_block.get(),
            fork.extents[0].block_count.get(),
        )
    };
    assert_eq!(place(&header.allocation_file), (1, 1));
    assert_eq!(place(&header.extents_file), (2, 8));
    assert_eq!(place(&header.attributes_file), (10, 16));
    assert_eq!(place(&header.catalog_file), (186, 8));
    assert_eq!(header.next_allocation.get(), 274);
}

#[test]
fn journals_lie_where_apples_formatter_puts_them() {
    let device = build(
        Grown::new(),
        Options {
            journaled: true,
            ..options()
        },
        Some(5 << 20),
    );
    let header: VolumeHeaderRaw = read(&device, HEADER_OFFSET);
    let info: JournalInfoBlockRaw = read(&device, 2 * 4096);
    assert_eq!(
        (header.attributes.get(), header.journal_info_block.get()),
        (0x8000_2100, 2)
    );
    assert_eq!(
        (info.flags.get(), info.offset.get(), info.size.get()),
        (5, 3 * 4096, 512 << 10)
    );
    assert_eq!(
        (header.file_count.get(), header.next_catalog_id.get()),
        (2, 18)
    );
    assert_eq!(header.extents_file.extents[0].start_block.get(), 131);
    assert_eq!(
        device.read_vec(3 * 4096, 512 << 10).unwrap(),
        vec![0; 512 << 10],
        "its first user begins it"
    );
}

#[test]
fn journaled_volumes_are_sound_and_used() {
    for (shift, case_sensitive) in [(9, false), (12, false), (12, true), (16, true)] {
        let options = Options {
            journaled: true,
            case_sensitive,
            block_size: Some(1 << shift),
            ..options()
        };
        for (grown, len) in [
            (Grown::new(), None),
            (varied(), None),
            (varied(), Some(200 << 20)),
        ] {
            let device = Arc::new(build(grown, options.clone(), len));
            check(&*device);
            let problems = crate::hfsplus::check(device.clone(), &Silent).unwrap();
            assert!(problems.is_empty(), "{problems:#?}");
            let volume = HfsPlusMut::open(device.clone(), WriteOptions::default()).unwrap();
            volume
                .create(volume.root(), "new", &NewNode::new(NewKind::File))
                .unwrap();
            volume.unmount().unwrap();
            assert!(volume.volume().journaled);
            check(&*device);
        }
    }
}

#[test]
fn a_journal_needs_its_names_and_its_room() {
    let journaled = Options {
        journaled: true,
        ..options()
    };
    let mut grown = Grown::new();
    grown.file(0, ".Journal", 5);
    let error = Plan::new(grown.0, journaled.clone()).unwrap_err();
    assert!(
        error.kind() == Kind::Unsupported && error.to_string().contains(".journal"),
        "{error}"
    );
    let error = Plan::new(Grown::new().0, journaled)
        .unwrap()
        .build(&Memory::zeros(512 << 10), &Silent)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Limit);
}

fn varied() -> Grown {
    let mut grown = Grown::new();
    let sizes = [0, 1, 511, 512, 513, 4095, 4096, 4097, 65536, 1_500_000];
    let folder = grown.folder(0, "Größen");
    let first = sizes.map(|size| grown.file(folder, &format!("{size} bytes"), size))[8];
    for size in [0, 1, 3801, 3802, 3803, 65536, 1 << 20] {
        let file = grown.file(0, &format!("xattr {size}"), 10);
        grown.xattr(file, "value", size);
        grown.xattr(file, "com.apple.metadata:é", size / 2);
        grown.xattr(file, "com.apple.ResourceFork", size);
        grown.xattr(file, "com.apple.FinderInfo", 32);
    }
    grown.xattr(folder, "on a folder", 4000);
    grown.xattr(0, "on the root", 40);
    let mut deep = 0;
    for depth in 0..200 {
        deep = grown.folder(deep, &format!("depth {depth}"));
    }
    grown.file(deep, &"x".repeat(255), 100);
    for link in 0..1000 {
        grown.add(folder, &format!("link {link}"), SourceKind::HardLink(first));
    }
    let symlink = grown.add(0, "symlink", SourceKind::Symlink("/somewhere/else".into()));
    grown.add(0, "second symlink", SourceKind::HardLink(symlink));
    for (name, kind) in [
        ("fifo", FileKind::Fifo),
        ("socket", FileKind::Socket),
        ("disk", FileKind::BlockDevice),
    ] {
        grown.add(0, name, SourceKind::Special(kind, 0x0800_0001));
    }
    grown.file(0, "a:b", 5);
    grown.file(0, "\u{2400}", 1);
    grown.file(0, "\u{2400}\u{2400}\u{2400}\u{2400}\u{2400}", 1);
    grown
}

#[test]
fn a_varied_tree_in_blocks_of_any_size() {
    for shift in 9..=16 {
        for case_sensitive in [false, true] {
            let options = Options {
                case_sensitive,
                block_size: Some(1 << shift),
                ..options()
            };
            check(&build(varied(), options.clone(), None));
            if shift == 12 {
                check(&build(varied(), options, Some(100_000_000)));
            }
        }
    }
}

#[test]
fn trees_of_several_levels() {
    let mut grown = Grown::new();
    for file in 0..30_000 {
        let node = grown.file(0, &format!("{:064}", file * 7919 % 30_000), 0);
        if file % 3 == 0 {
            grown.xattr(node, &format!("{:0127}", file), 700);
        }
    }
    let device = build(grown, options(), None);
    check(&device);
    let header: VolumeHeaderRaw = read(&device, HEADER_OFFSET);
    let catalog = AllocBlock(header.catalog_file.extents[0].start_block.get())
        .offset(header.block_size.get());
    assert!(
        read::<TreeHeaderRaw>(&device, catalog + 14)
            .tree_depth
            .get()
            >= 4
    );
}

#[test]
fn trees_that_need_map_nodes() {
    // A header node of 512 bytes has map bits for 2048 nodes, a map node for 3936.
    for (node_size, records, total_nodes) in [
        (512, 100, 2048),
        (512, 100, 2049),
        (512, 20_000, 12_000),
        (1024, 60_000, 40_000),
    ] {
        let device = Sparse::new(u64::from(total_nodes) * u64::from(node_size));
        let kind = HeaderKind {
            node_size,
            max_key_length: 516,
            attributes: 4,
            key_compare_type: 0,
            total_nodes,
            clump: 4096,
        };
        let mut writer = Writer::new(kind, Output::new(&device, 0)).unwrap();
        let mut shape = Shape::new(node_size);
        for record in 0..records {
            let name: Vec<U16> = format!("{record:06}")
                .bytes()
                .map(|byte| U16::new(byte.into()))
                .collect();
            let mut key = Vec::new();
            CatalogKey {
                parent: Cnid(record),
                name: &name,
            }
            .put(&mut key);
            let data = vec![record as u8; record as usize % 150];
            shape.add(&key, &data);
            writer.add(&key, &data).unwrap();
        }
        let free = writer.finish().unwrap();
        assert_eq!(
            shape.nodes() + tree::map_nodes(node_size, total_nodes),
            total_nodes - free,
            "as counted before"
        );
        let blocks = total_nodes * u32::from(node_size) / 512;
        let fork = geometry::special_fork(
            Extent {
                start: AllocBlock(0),
                count: blocks,
            },
            device.info().len,
            0,
        );
        let found = check_tree(&device, &fork, 512, true);
        assert_eq!(found.len() as u32, records);
        assert!(
            found
                .iter()
                .zip(0..)
                .all(|((_, data), record)| data
                    .iter()
                    .all(|byte| [record as u8, 0].contains(byte)))
        );
    }
}

#[test]
fn volumes_larger_than_any_disk() {
    for (shift, block_size) in [(40, 4096), (44, 32768), (52, 8 << 20), (60, 2 << 30)] {
        let device = Sparse::new(1 << shift);
        let built = Plan::new(Grown::new().0, options())
            .unwrap()
            .build(&device, &Silent)
            .unwrap();
        assert_eq!(built.block_size, block_size);
        let header: VolumeHeaderRaw = read(&device, HEADER_OFFSET);
        check_tree(&device, &header.catalog_file, block_size, true);
        check_tree(&device, &header.attributes_file, block_size, true);
        check_tree(&device, &header.extents_file, block_size, false);
        assert!(
            device.stored() < 1 << 20,
            "{} bytes written",
            device.stored()
        );
    }
}

#[test]
fn lengths_that_are_promised_are_enough() {
    // The trees grow in steps with the volume, and so does the block size, regardless of the
    // contents.
    for shift in [9, 12, 16] {
        for len in (0..4_000_000).step_by(97_003).chain([
            900 << 20,
            1010 << 20,
            (2 << 40) - (1 << 30),
            2 << 40,
        ]) {
            let mut grown = Grown::new();
            grown.add(
                0,
                "file",
                SourceKind::File(Stream::Extern {
                    node: 1,
                    offset: 0,
                    len,
                }),
            );
            let plan = Plan::new(
                grown.0,
                Options {
                    block_size: (shift != 12).then_some(1 << shift),
                    ..options()
                },
            )
            .unwrap();
            let (Ok(least), Ok(comfortable)) = (plan.minimum_len(), plan.comfortable_len()) else {
                assert!(
                    shift == 9 && len >= (2 << 40) - (1 << 30),
                    "2^32 blocks of 512 bytes are less than {len}"
                );
                continue;
            };
            for len in [least, comfortable] {
                let block_size = plan.options.block_size.unwrap_or(recipe::block_size(len));
                Geometry::new(len, block_size, &plan.needs(block_size, 512)).unwrap();
            }
        }
    }
}

#[test]
fn invalid_trees_are_refused() {
    let refused = |grown: Grown, options: Options| Plan::new(grown.0, options).unwrap_err();
    let mut same = Grown::new();
    let folder = same.folder(0, "folder");
    same.file(folder, "Résumé", 1);
    same.file(folder, "RE\u{301}SUME\u{301}", 1);
    let error = refused(same, options());
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(
        error.to_string().contains("/folder/Résumé")
            && error.to_string().contains("/folder/RE\u{301}SUME\u{301}"),
        "{error}"
    );

    let mut long = Grown::new();
    long.file(0, &"é".repeat(128), 0);
    assert_eq!(refused(long, options()).kind(), Kind::Limit);

    let mut ignored = Grown::new();
    ignored.file(0, "\u{200C}", 0);
    assert_eq!(refused(ignored, options()).kind(), Kind::Unsupported);

    let mut private = Grown::new();
    private.folder(0, PRIVATE_FOLDER);
    assert_eq!(refused(private, options()).kind(), Kind::Unsupported);

    let mut info = Grown::new();
    let file = info.file(0, "file", 0);
    info.xattr(file, "com.apple.FinderInfo", 31);
    assert_eq!(refused(info, options()).kind(), Kind::Invalid);

    let mut twice = Grown::new();
    let file = twice.file(0, "file", 0);
    twice.xattr(file, "name", 1);
    twice.xattr(file, "name", 2);
    assert_eq!(refused(twice, options()).kind(), Kind::Conflict);

    assert_eq!(
        refused(
            Grown::new(),
            Options {
                name: "a/b".into(),
                ..options()
            }
        )
        .kind(),
        Kind::Invalid
    );
    assert_eq!(
        refused(
            Grown::new(),
            Options {
                block_size: Some(3000),
                ..options()
            }
        )
        .kind(),
        Kind::Invalid
    );
    let mut orphan = Grown::new();
    orphan.file(7, "file", 0);
    assert_eq!(refused(orphan, options()).kind(), Kind::Invalid);

    let mut large = Grown::new();
    large.file(0, "file", 2 << 20);
    let plan = Plan::new(large.0, options()).unwrap();
    assert_eq!(
        plan.build(&Memory::zeros(2 << 20), &Silent)
            .unwrap_err()
            .kind(),
        Kind::Limit
    );
    assert_eq!(
        plan.build(&Memory::zeros(100 << 10), &Silent)
            .unwrap_err()
            .kind(),
        Kind::Limit
    );
    assert_eq!(
        plan.build(&Memory::read_only(vec![0; 4 << 20]), &Silent)
            .unwrap_err()
            .kind(),
        Kind::ReadOnly
    );
}

#[test]
fn old_contents_are_gone() {
    let device = Memory::from(vec![0xAA; 8 << 20]);
    let mut grown = Grown::new();
    grown.file(0, "file", 100);
    Plan::new(grown.0, options())
        .unwrap()
        .build(&device, &Silent)
        .unwrap();
    check(&device);
    assert!(!device.to_vec().windows(64).any(|bytes| bytes == [0xAA; 64]));
}
