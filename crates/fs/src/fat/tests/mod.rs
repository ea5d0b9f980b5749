//! Volumes of every type: what is built is read, checked, and damaged.

mod free;

use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, Memory};
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Silent;
use bandsaw_core::{Error, Kind};
use bandsaw_testing::{Random, mutate};

use super::build::{FatOptions, FatPlan};
use super::fixture::{self, Width};
use super::layout::BootRaw;
use super::{FatVolume, check, free_map, read_boot, stated_len};
use crate::clusters::fixture::{LONG, MOMENT, expected, found, tree};
use crate::source::{SourceKind, SourceNode, Stream, Tree};
use crate::{
    BlockFreeMap, FileSystem, FileSystemExt, Fork, FreeMap, NodeId, UF_HIDDEN, UF_IMMUTABLE,
    VolumePlan,
};

const WIDTHS: [Width; 3] = [Width::Fat12, Width::Fat16, Width::Fat32];

fn device(bytes: Vec<u8>) -> Arc<dyn BlockDevice> {
    Arc::new(Memory::read_only(bytes))
}

fn problems(bytes: &[u8]) -> Vec<Problem> {
    check(device(bytes.to_vec()), &Silent).unwrap()
}

fn options(width: Option<Width>, block_size: Option<u32>) -> FatOptions {
    FatOptions {
        name: "My disk".into(),
        width,
        block_size,
        created: MOMENT,
        latest: None,
        serial: 7,
    }
}

#[test]
fn volumes_of_every_type_hold_their_files() {
    for (width, block_size, len) in [
        (Width::Fat12, None, 400 << 10),
        (Width::Fat12, Some(4096), 2 << 20),
        (Width::Fat16, None, 6 << 20),
        (Width::Fat16, Some(2048), 12 << 20),
        (Width::Fat32, None, 36 << 20),
    ] {
        let what = format!("{width:?} {block_size:?}");
        let plan = FatPlan::new(tree(), options(Some(width), block_size)).unwrap();
        let disk = Memory::zeros(len);
        let built = plan.build(&disk, &Silent).unwrap();
        let bytes = disk.to_vec();
        assert_eq!(problems(&bytes).len(), 0, "{what}: {:?}", problems(&bytes));
        let volume = FatVolume::open(device(bytes.clone())).unwrap();
        assert_eq!(found(&volume), expected(&tree()), "{what}");
        let info = volume.volume();
        assert_eq!((info.format, &*info.name), (width.name(), "MY DISK"));
        assert_eq!((info.free, info.block_size), (built.free, built.block_size));
        assert!(info.clean && info.total <= len as u64, "{what}");
        let map = free_map(device(bytes.clone())).and_then(BlockFreeMap::trusted);
        assert!(map.unwrap().is_in_order());
        assert_eq!(stated_len(&Memory::from(bytes)).unwrap(), Some(len as u64));
        let long = volume
            .resolve(&format!("/{}", LONG.to_uppercase()))
            .unwrap();
        assert_eq!((long.size, long.modified), (70_000, Some(MOMENT)));
        let hidden = volume.resolve("/.hidden").unwrap();
        assert_eq!(hidden.flags, UF_HIDDEN | UF_IMMUTABLE);
        assert_eq!(volume.attributes(volume.root()).unwrap().size, 6);
        assert_eq!(volume.resolve("/many files").unwrap().size, 70);
        assert!(volume.lookup(volume.root(), "none").unwrap().is_none());
    }
}

#[test]
fn a_disk_that_is_read_is_the_disk_that_is_built() {
    let plan = FatPlan::new(tree(), options(Some(Width::Fat16), None)).unwrap();
    let len = plan.comfortable_len().unwrap();
    assert!(plan.minimum_len().unwrap() <= len && len.is_multiple_of(4096));
    let (built, read) = (Memory::zeros(len as usize), Memory::zeros(len as usize));
    let result = plan.build(&built, &Silent).unwrap();
    let (info, contents) = plan.build_metadata(&read).unwrap();
    assert_eq!(info, result);
    contents.write(contents.range(), &read).unwrap();
    assert!(built.to_vec() == read.to_vec());
    for width in [None, Some(Width::Fat12), Some(Width::Fat32)] {
        let plan = FatPlan::new(tree(), options(width, None)).unwrap();
        let least = plan.minimum_len().unwrap() as usize;
        plan.build(&Memory::zeros(least), &Silent).unwrap();
    }
}

#[test]
fn contents_that_fat_cannot_hold_are_refused_by_name() {
    let refused = |name: &str, kind: SourceKind| {
        let mut tree = Tree::empty(MOMENT);
        tree.nodes
            .push(SourceNode::made(0, name, kind, 0o644, MOMENT));
        FatPlan::new(tree, options(None, None)).unwrap_err()
    };
    let empty = || SourceKind::File(Stream::empty());
    let errors: [(Error, &str); 7] = [
        (refused("link", SourceKind::Symlink("a".into())), "symbolic"),
        (refused("a:b", empty()), "':'"),
        (refused("what?", empty()), "'?'"),
        (refused("point.", empty()), "ends with"),
        (refused(&"x".repeat(256), empty()), "256 units"),
        (
            refused(
                "large",
                SourceKind::File(Stream::Extern {
                    node: 1,
                    offset: 0,
                    len: 4 << 30,
                }),
            ),
            "4294967296",
        ),
        (refused("a\tb", empty()), "'\\t'"),
    ];
    for (error, expected) in errors {
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let mut twice = Tree::empty(MOMENT);
    for name in ["Name", "NAME"] {
        let node = SourceNode::made(0, name, empty(), 0o644, MOMENT);
        twice.nodes.push(node);
    }
    let error = FatPlan::new(twice, options(None, None)).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    for name in ["longer than eleven", "a*b", "\u{20ac}"] {
        let options = FatOptions {
            name: name.into(),
            ..options(None, None)
        };
        let error = FatPlan::new(Tree::empty(MOMENT), options).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    }
    let plan = FatPlan::new(tree(), options(Some(Width::Fat12), None)).unwrap();
    let error = plan.build(&Memory::zeros(100 << 10), &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit);
}

/// Returns the offset of the entry whose short name is this.
fn entry_of(bytes: &[u8], name: &[u8; 11]) -> usize {
    let at = bytes
        .chunks_exact(32)
        .position(|entry| entry.starts_with(name));
    at.unwrap() * 32
}

#[test]
fn damage_is_found_and_described() {
    let whole = fixture::volume(Width::Fat16);
    let boot = read_boot(&Memory::from(whole.clone()), whole.len() as u64).unwrap();
    let (table, second) = (
        boot.tables_at as usize,
        (boot.tables_at + boot.table_len) as usize,
    );
    let long = entry_of(&whole, b"ALONGN~1TEX");
    let first = usize::from(whole[long + 26]) + usize::from(whole[long + 27]) * 256;
    let folder = entry_of(&whole, b"FOLDER~1   ");
    let both = |bytes: &mut Vec<u8>, cluster: usize, entry: u16| {
        for table in [table, second] {
            bytes[table + 2 * cluster..][..2].copy_from_slice(&entry.to_le_bytes());
        }
    };
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let changes: [(Change<'_>, &str, Severity); 14] = [
        (
            &|bytes| bytes[second + 2 * first] ^= 1,
            "copies of the table",
            Severity::Damage,
        ),
        (
            &|bytes| both(bytes, first + 1, 0),
            "free cluster",
            Severity::Damage,
        ),
        (
            &|bytes| both(bytes, first + 1, first as u16),
            "loop",
            Severity::Damage,
        ),
        (
            &|bytes| both(bytes, first + 1, 0xFFF0),
            "outside",
            Severity::Damage,
        ),
        (
            &|bytes| both(bytes, first + 1, 0xFFFF),
            "expected 137",
            Severity::Damage,
        ),
        (
            &|bytes| both(bytes, 7000, 0xFFFF),
            "belong to no file",
            Severity::Warning,
        ),
        (&|bytes| bytes[long + 29] = 0, "expected", Severity::Warning),
        (
            &|bytes| bytes[long + 26] = 2,
            "shares cluster",
            Severity::Damage,
        ),
        (
            &|bytes| bytes[long + 27] = 0xFF,
            "outside the volume",
            Severity::Damage,
        ),
        (
            &|bytes| bytes[folder + 28] = 1,
            "expected 0",
            Severity::Warning,
        ),
        (&|bytes| bytes[folder + 26] += 1, "`..`", Severity::Warning),
        (&|bytes| bytes[long - 31] ^= 0, "", Severity::Note),
        (
            &|bytes| bytes[long + 1] = b'X',
            "long names",
            Severity::Warning,
        ),
        (&|bytes| bytes[0x25] = 1, "unmounted", Severity::Warning),
    ];
    for (number, (change, expected, severity)) in changes.iter().enumerate() {
        let mut bytes = whole.clone();
        change(&mut bytes);
        let problems = problems(&bytes);
        if expected.is_empty() {
            assert!(problems.is_empty(), "{problems:?}");
            continue;
        }
        let is_expected = |problem: &&Problem| problem.error.to_string().contains(expected);
        let found = problems.iter().find(is_expected);
        let found = found.unwrap_or_else(|| panic!("{number}: no {expected:?} in {problems:?}"));
        assert_eq!(found.severity, *severity, "{number}: {found:?}");
    }
    // FSInfo, and the copy of the boot sector.
    for (at, expected) in [
        (512 + 488, "FSInfo counts"),
        (512, "signature"),
        (6 * 512 + 16, "copy"),
    ] {
        let mut bytes = fixture::volume(Width::Fat32);
        bytes[at] ^= 1;
        let problems = problems(&bytes);
        assert!(
            problems[0].error.to_string().contains(expected),
            "{problems:?}"
        );
    }
}

#[test]
fn a_folder_that_contains_itself_ends() {
    let mut bytes = fixture::volume(Width::Fat12);
    let (folder, inner) = (
        entry_of(&bytes, b"FOLDER~1   "),
        entry_of(&bytes, b"INNER~1    "),
    );
    bytes[inner + 26] = bytes[folder + 26];
    let volume = FatVolume::open(device(bytes.clone())).unwrap();
    assert!(found(&volume).len() < 200);
    let text = format!("{:?}", problems(&bytes));
    assert!(text.contains("loop"), "{text}");
}

#[test]
fn numbers_of_no_object_are_refused() {
    let volume = FatVolume::open(device(fixture::volume(Width::Fat16))).unwrap();
    for number in [0, 2, 31, 33, 512, u64::MAX, u64::MAX - 31] {
        assert!(volume.attributes(NodeId(number)).is_err(), "{number}");
        assert!(volume.open(NodeId(number), Fork::Data).is_err(), "{number}");
    }
    let root = volume.root();
    assert!(volume.open(root, Fork::Data).is_err());
    assert!(volume.read_link(root).is_err());
    assert!(volume.xattrs(root).unwrap().is_empty());
    let file = volume.resolve("/short.txt").unwrap();
    assert!(volume.list(file.id, &mut |_| unreachable!()).is_err());
    assert_eq!(volume.open(file.id, Fork::Resource).unwrap().info().len, 0);
}

#[test]
fn changed_bytes_never_cause_a_panic() {
    for width in WIDTHS {
        let bytes = match width {
            Width::Fat32 => fixture::fat(width, 2..30),
            _ => fixture::volume(width),
        };
        assert!(bytes.len() > size_of::<BootRaw>());
        for copy in 0..30 {
            let mut random = Random::new(copy);
            let changed = mutate::mutated(&bytes, &mut random);
            let _ = check(device(changed.clone()), &Silent);
            if let Ok(volume) = FatVolume::open(device(changed)) {
                let _ = (found(&volume), volume.volume());
            }
        }
    }
}
