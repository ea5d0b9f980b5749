//! HFS+ volumes built from trees: all contents are read back.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandsaw::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw::fs::hfsplus::HfsPlus;
use bandsaw::fs::hfsplus::build::{Options, Plan};
use bandsaw::fs::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw::fs::{
    Attributes, FileKind, FileSystem, FileSystemExt, Fork, NodeId, Timestamp, UF_HIDDEN,
};
use bandsaw::progress::Silent;
use proptest::collection::vec;
use proptest::prelude::*;

const CREATED: Timestamp = Timestamp::from_seconds(1_700_000_000);

fn options() -> Options {
    Options {
        name: "Volume".into(),
        case_sensitive: false,
        journaled: false,
        block_size: None,
        created: CREATED,
        latest: None,
        opens: false,
        identifier: 42,
    }
}

fn build(tree: Tree, options: Options) -> Arc<Memory> {
    let plan = Plan::new(tree, options).unwrap();
    let device = Arc::new(Memory::zeros(
        plan.minimum_len().unwrap().try_into().unwrap(),
    ));
    plan.build(&*device, &Silent).unwrap();
    device
}

fn node(parent: u32, name: &str, kind: SourceKind) -> SourceNode {
    SourceNode {
        parent,
        name: name.into(),
        kind,
        mode: 0o755,
        uid: 501,
        gid: 20,
        flags: 0,
        created: None,
        modified: Timestamp::from_seconds(1_234_567_890),
        changed: None,
        accessed: None,
        xattrs: Vec::new(),
    }
}

fn bytes(len: usize, seed: u8) -> Stream {
    Stream::Bytes((0..len).map(|at| (at % 253) as u8 ^ seed).collect())
}

/// Everything about a path.
#[derive(Debug, PartialEq)]
struct Seen {
    kind: FileKind,
    mode: u16,
    owner: (u32, u32),
    links: u32,
    device: u32,
    flags: u32,
    dates: [Option<Timestamp>; 4],
    contents: Vec<u8>,
    xattrs: BTreeMap<String, Vec<u8>>,
}

/// Reads all paths of a volume.
fn read(volume: &HfsPlus) -> BTreeMap<String, Seen> {
    let mut all = BTreeMap::new();
    let root = volume.attributes(volume.root()).unwrap();
    read_into(volume, "", &root, &mut all);
    all
}

fn read_into(volume: &HfsPlus, path: &str, found: &Attributes, all: &mut BTreeMap<String, Seen>) {
    let whole = |device: Arc<dyn BlockDevice>| {
        device
            .read_vec(0, device.info().len.try_into().unwrap())
            .unwrap()
    };
    let contents = match found.kind {
        FileKind::File => whole(volume.open(found.id, Fork::Data).unwrap()),
        FileKind::Symlink => volume.read_link(found.id).unwrap().into_bytes(),
        _ => Vec::new(),
    };
    let value = |name: String| {
        let value = whole(volume.xattr(found.id, &name).unwrap().unwrap());
        (name, value)
    };
    let seen = Seen {
        kind: found.kind,
        mode: found.mode,
        owner: (found.uid, found.gid),
        links: found.links,
        device: found.device,
        flags: found.flags,
        dates: [found.created, found.modified, found.changed, found.accessed],
        contents,
        xattrs: volume
            .xattrs(found.id)
            .unwrap()
            .into_iter()
            .map(value)
            .collect(),
    };
    assert!(all.insert(path.to_owned(), seen).is_none(), "{path} twice");
    if found.kind == FileKind::Folder {
        for entry in volume.entries(found.id).unwrap() {
            let by_name = volume.lookup(found.id, &entry.name).unwrap().unwrap();
            assert_eq!(by_name, entry.attributes, "{path}/{}", entry.name);
            read_into(
                volume,
                &format!("{path}/{}", entry.name),
                &entry.attributes,
                all,
            );
        }
    }
}

/// Returns the expected result of [`read`] for a tree, with names as macOS shows them.
fn expected(tree: &Tree) -> BTreeMap<String, Seen> {
    let mut paths = vec![String::new()];
    let mut all = BTreeMap::new();
    for (index, source) in tree.nodes.iter().enumerate() {
        if index > 0 {
            paths.push(format!("{}/{}", paths[source.parent as usize], source.name));
        }
        let target = match source.kind {
            SourceKind::HardLink(target) => target as usize,
            _ => index,
        };
        let names = tree
            .nodes
            .iter()
            .filter(|node| node.kind == SourceKind::HardLink(target as u32))
            .count();
        all.insert(
            paths[index].clone(),
            expected_of(&tree.nodes[target], index == 0, names as u32),
        );
    }
    all
}

fn expected_of(source: &SourceNode, root: bool, further_names: u32) -> Seen {
    let in_hand = |stream: &Stream| match stream {
        Stream::Bytes(bytes) => bytes.to_vec(),
        Stream::Extern { .. } => unreachable!("everything is in hand"),
    };
    let (kind, contents, device) = match &source.kind {
        SourceKind::File(stream) => (FileKind::File, in_hand(stream), 0),
        SourceKind::Folder => (FileKind::Folder, Vec::new(), 0),
        SourceKind::Symlink(target) => (FileKind::Symlink, target.as_bytes().to_vec(), 0),
        SourceKind::Special(kind, device) => (*kind, Vec::new(), *device),
        SourceKind::HardLink(_) => unreachable!("already followed"),
    };
    let device = if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
        device
    } else {
        0
    };
    let whole = |date: Timestamp| Some(Timestamp::from_seconds(date.seconds));
    let or_modified = |date: Option<Timestamp>| whole(date.unwrap_or(source.modified));
    let created = if root {
        Some(CREATED)
    } else {
        or_modified(source.created)
    };
    let mut xattrs: BTreeMap<String, Vec<u8>> = source
        .xattrs
        .iter()
        .map(|(name, value)| (name.to_string(), in_hand(value)))
        .collect();
    if source.flags & UF_HIDDEN != 0 {
        // The flag is stored as the Finder's flag "invisible".
        xattrs
            .entry("com.apple.FinderInfo".into())
            .or_insert(vec![0; 32])[8] |= 0x40;
    }
    xattrs.retain(|name, value| match &**name {
        "com.apple.FinderInfo" => value.iter().any(|byte| *byte != 0),
        "com.apple.ResourceFork" => !value.is_empty(),
        _ => true,
    });
    Seen {
        kind,
        mode: source.mode,
        owner: (source.uid, source.gid),
        links: if kind == FileKind::File {
            1 + further_names
        } else {
            1
        },
        device,
        flags: source.flags,
        dates: [
            created,
            whole(source.modified),
            or_modified(source.changed),
            or_modified(source.accessed),
        ],
        contents,
        xattrs,
    }
}

/// Parameters of a random node.
#[derive(Debug, Clone)]
struct Fixture {
    parent: usize,
    name: String,
    what: u8,
    len: usize,
    mode: u16,
    owner: (u32, u32),
    hidden: bool,
    dates: (Option<u32>, u32),
    xattrs: Vec<(String, usize)>,
}

fn fixture() -> impl Strategy<Value = Fixture> {
    let len = prop_oneof![4 => 0..6000_usize, 1 => Just(4096_usize), 1 => 0..200_000_usize];
    // Names that are decomposed and differ by more than case: they get a counter as a prefix.
    let name = "[a-zA-Z0-9:. _\u{301}\u{DF}\u{3B1}\u{4E00}\u{1F600}-]{0,40}";
    let xattr = (
        "[a-z.]{1,30}",
        prop_oneof![0..100_usize, 3790..3810_usize, 0..70_000_usize],
    );
    (
        (any::<usize>(), name, 0..10_u8, len),
        (
            0..0o10000_u16,
            any::<(u32, u32)>(),
            any::<bool>(),
            (proptest::option::of(any::<u32>()), any::<u32>()),
        ),
        vec(xattr, 0..3),
    )
        .prop_map(
            |((parent, name, what, len), (mode, owner, hidden, dates), xattrs)| Fixture {
                parent,
                name,
                what,
                len,
                mode,
                owner,
                hidden,
                dates,
                xattrs,
            },
        )
}

/// Builds the tree described by the sketches.
fn tree(sketches: Vec<Fixture>) -> Tree {
    let mut tree = Tree::empty(CREATED);
    let mut folders = vec![0];
    for (index, fixture) in (1..).zip(sketches) {
        let files: Vec<u32> = (0..)
            .zip(&tree.nodes)
            .filter(|(_, node)| matches!(node.kind, SourceKind::File(_)))
            .map(|(at, _)| at)
            .collect();
        let kind = match fixture.what {
            0 | 1 => SourceKind::Folder,
            2 => SourceKind::Symlink("t".repeat(1 + fixture.len % 1023).into()),
            3 => SourceKind::Special(FileKind::CharDevice, fixture.owner.0),
            4 => SourceKind::Special(FileKind::Fifo, 0),
            5 if !files.is_empty() => SourceKind::HardLink(files[fixture.len % files.len()]),
            _ => SourceKind::File(bytes(fixture.len, index as u8)),
        };
        let mut made = node(
            folders[fixture.parent % folders.len()],
            &format!("{index} {}", fixture.name),
            kind,
        );
        made.mode = fixture.mode;
        (made.uid, made.gid) = fixture.owner;
        made.flags = if fixture.hidden { UF_HIDDEN | 0x02 } else { 0 };
        // 1970 to 2040.
        made.modified = Timestamp::from_seconds(i64::from(fixture.dates.1 / 2));
        made.created = fixture.dates.0.map(|date| Timestamp {
            seconds: i64::from(date / 2),
            nanos: 5,
        });
        let is_link = matches!(made.kind, SourceKind::HardLink(_));
        let xattrs: BTreeMap<_, _> = fixture.xattrs.into_iter().filter(|_| !is_link).collect();
        made.xattrs = xattrs
            .into_iter()
            .map(|(name, len)| (name.into(), bytes(len, 0x55)))
            .collect();
        if matches!(made.kind, SourceKind::File(_)) && fixture.len % 3 == 0 {
            made.xattrs.push((
                "com.apple.ResourceFork".into(),
                bytes(fixture.len / 2, 0x77),
            ));
        }
        if matches!(made.kind, SourceKind::Folder) {
            folders.push(index);
        }
        tree.nodes.push(made);
    }
    tree
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn built_volumes_hold_their_source(
        sketches in vec(fixture(), 0..60),
        case_sensitive in any::<bool>(),
        block_shift in 9..=16_u32,
    ) {
        let tree = tree(sketches);
        let expected = expected(&tree);
        let options = Options { case_sensitive, block_size: Some(1 << block_shift), ..options() };
        let volume = HfsPlus::open(build(tree, options)).unwrap();
        prop_assert!(volume.problems().is_empty());
        let info = volume.volume();
        prop_assert!(info.clean && info.case_sensitive == case_sensitive && info.name == "Volume");
        let seen = read(&volume);
        let paths = |all: &BTreeMap<String, Seen>| all.keys().cloned().collect::<Vec<_>>();
        prop_assert_eq!(paths(&seen), paths(&expected));
        for (path, seen) in &seen {
            prop_assert!(seen == &expected[path], "{}: {:?} instead of {:?}", path, seen, expected[path]);
        }
    }
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    let made = |seed: u8| {
        let mut tree = Tree::empty(CREATED);
        for file in 0..300 {
            tree.nodes.push(node(
                0,
                &format!("file {file}"),
                SourceKind::File(bytes(file * 100, seed)),
            ));
        }
        build(tree, options()).to_vec()
    };
    assert!(made(1) == made(1));
    assert!(made(1) != made(2));
}

#[test]
fn no_date_is_later_than_the_latest() {
    let mut tree = Tree::empty(Timestamp::from_seconds(1_900_000_000));
    let mut file = node(0, "file", SourceKind::File(Stream::empty()));
    file.modified = Timestamp::from_seconds(1_800_000_000);
    file.created = Some(Timestamp::from_seconds(1_000_000_000));
    tree.nodes.push(file);
    let latest = Timestamp::from_seconds(1_500_000_000);
    let volume = HfsPlus::open(build(
        tree,
        Options {
            latest: Some(latest),
            ..options()
        },
    ))
    .unwrap();
    let found = volume.resolve("/file").unwrap();
    assert_eq!(
        (found.created, found.modified),
        (Some(Timestamp::from_seconds(1_000_000_000)), Some(latest))
    );
    let root = volume.attributes(volume.root()).unwrap();
    assert_eq!(
        (root.created, root.modified, volume.volume().created),
        (Some(latest), Some(latest), Some(latest))
    );
}

#[test]
fn dates_beyond_the_disk_are_the_nearest_possible() {
    let mut tree = Tree::empty(CREATED);
    for (name, seconds) in [("early", -5_000_000_000), ("late", 5_000_000_000)] {
        let mut file = node(0, name, SourceKind::File(Stream::empty()));
        file.modified = Timestamp::from_seconds(seconds);
        tree.nodes.push(file);
    }
    let volume = HfsPlus::open(build(tree, options())).unwrap();
    let modified = |path| volume.resolve(path).unwrap().modified.unwrap().seconds;
    assert_eq!(modified("/early"), 0);
    assert_eq!(modified("/late"), i64::from(u32::MAX) - 2_082_844_800);
}

#[test]
fn names_are_those_of_macos() {
    let mut tree = Tree::empty(CREATED);
    let names = [
        "Grüße",
        "a:b",
        "한국어",
        "\u{212B}",
        "Ångström",
        "\u{2400}",
        ".hidden",
        "e\u{302}\u{323}",
    ];
    for name in names {
        tree.nodes
            .push(node(0, name, SourceKind::File(Stream::empty())));
    }
    let volume = HfsPlus::open(build(tree, options())).unwrap();
    let root = volume.root();
    for name in names {
        assert!(volume.lookup(root, name).unwrap().is_some(), "{name}");
    }
    assert!(volume.lookup(root, "grÜSSe").unwrap().is_none());
    assert!(
        volume.lookup(root, "GRÜßE").unwrap().is_some(),
        "case does not count"
    );
    let listed: Vec<String> = volume
        .entries(root)
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert!(listed.contains(&"Gru\u{308}ße".to_owned()), "{listed:?}");
    assert!(listed.contains(&"e\u{323}\u{302}".to_owned()), "{listed:?}");
    assert!(
        listed.contains(&"\u{212B}".to_owned()),
        "the exceptions stay: {listed:?}"
    );
}

#[test]
fn case_makes_names_on_hfsx_only() {
    let tree = || {
        let mut tree = Tree::empty(CREATED);
        for name in ["readme", "README", "Readme"] {
            tree.nodes
                .push(node(0, name, SourceKind::File(bytes(name.len(), 0))));
        }
        tree
    };
    let refused = Plan::new(tree(), options()).unwrap_err();
    assert_eq!(refused.kind(), bandsaw::Kind::Conflict);
    let volume = HfsPlus::open(build(
        tree(),
        Options {
            case_sensitive: true,
            ..options()
        },
    ))
    .unwrap();
    assert_eq!(volume.entries(volume.root()).unwrap().len(), 3);
    assert!(volume.lookup(volume.root(), "rEADME").unwrap().is_none());
}

#[test]
fn a_folder_of_ten_thousand() {
    let mut tree = Tree::empty(CREATED);
    tree.nodes.push(node(0, "folder", SourceKind::Folder));
    for file in 0..10_000 {
        tree.nodes.push(node(
            1,
            &format!("file {:x}", file * 2_654_435_761_u64 % (1 << 32)),
            SourceKind::File(bytes(file as usize % 7, 9)),
        ));
    }
    let volume = HfsPlus::open(build(tree, options())).unwrap();
    let folder = volume.resolve("/folder").unwrap();
    assert_eq!(folder.size, 10_000);
    let mut seen = 0;
    volume
        .list(folder.id, &mut |entry| {
            seen += 1;
            let contents = volume.open(entry.attributes.id, Fork::Data)?;
            assert_eq!(contents.info().len, entry.attributes.size);
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
    assert_eq!(seen, 10_000);
}

#[test]
fn a_failed_build_leaves_no_volume() {
    #[derive(Debug)]
    struct Vanished;
    impl bandsaw::fs::source::Contents for Vanished {
        fn open(
            &self,
            _: &Stream,
        ) -> bandsaw::Result<Box<dyn bandsaw::fs::source::ContentReader + '_>> {
            Err(bandsaw::Error::new(
                bandsaw::Kind::Conflict,
                "test",
                "vanished",
            ))
        }
    }
    let mut tree = Tree::empty(CREATED);
    tree.nodes.push(node(
        0,
        "file",
        SourceKind::File(Stream::Extern {
            node: 1,
            offset: 0,
            len: 10_000,
        }),
    ));
    tree.contents = Box::new(Vanished);
    let plan = Plan::new(tree, options()).unwrap();
    // The previous contents are gone, too: a mixture would result.
    let mut whole = Tree::empty(CREATED);
    whole
        .nodes
        .push(node(0, "other", SourceKind::File(bytes(10_000, 1))));
    let device = build(whole, options());
    assert!(HfsPlus::open(device.clone()).is_ok());
    assert_eq!(
        plan.build(&*device, &Silent).unwrap_err().kind(),
        bandsaw::Kind::Conflict
    );
    assert!(HfsPlus::open(device).is_err());
}

#[test]
fn ids_follow_the_tree() {
    let mut tree = Tree::empty(CREATED);
    tree.nodes
        .push(node(0, "b", SourceKind::File(Stream::empty())));
    tree.nodes
        .push(node(0, "a", SourceKind::File(Stream::empty())));
    let volume = HfsPlus::open(build(tree, options())).unwrap();
    assert_eq!(volume.resolve("/b").unwrap().id, NodeId(16));
    assert_eq!(volume.resolve("/a").unwrap().id, NodeId(17));
}
