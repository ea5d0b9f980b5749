//! Power failures while files are put into a volume: each is the old one, the new one, or missing;
//! no other state is visible.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::changing::{World, read_into};
use bandsaw::device::{AfterDiscard, BlockDevice};
use bandsaw::fs::apfs::{self, ApfsMut, Container};
use bandsaw::fs::hfsplus::{self, HfsPlusMut};
use bandsaw::fs::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw::fs::{FileSystemMut, LockedVolume, Timestamp, VolumeKey, VolumePlan};
use bandsaw::ops::put::{PutOptions, put};
use bandsaw::progress::Silent;
use bandsaw::store::{Open, Store};
use bandsaw::testing::PowerCut;

const LEN: u64 = 2 << 20;
const CREATED: Timestamp = Timestamp::from_seconds(1_700_000_000);

fn disk(store: &PowerCut) -> Arc<dyn BlockDevice> {
    store.open("disk", Open::Create).unwrap().unwrap()
}

fn empty(apfs: bool) -> PowerCut {
    let store = PowerCut::default();
    let device = disk(&store);
    device.set_len(LEN, AfterDiscard::Zeros).unwrap();
    let tree = Tree::empty(CREATED);
    if apfs {
        let volumes = vec![apfs::build::NewVolume {
            name: "Cut".into(),
            case_sensitive: false,
            uuid: uuid::Uuid::nil(),
        }];
        let options = apfs::build::Options {
            volumes,
            created: CREATED,
            latest: None,
            uuid: uuid::Uuid::nil(),
        };
        apfs::build::Plan::new(tree, options)
            .unwrap()
            .build(&*device, &Silent)
            .unwrap();
    } else {
        let options = hfsplus::build::Options {
            name: "Cut".into(),
            case_sensitive: false,
            journaled: false,
            block_size: None,
            created: CREATED,
            latest: None,
            opens: false,
            identifier: 1,
        };
        hfsplus::build::Plan::new(tree, options)
            .unwrap()
            .build(&*device, &Silent)
            .unwrap();
    }
    store.sync().unwrap();
    store
}

fn open(store: &PowerCut, apfs: bool) -> Box<dyn FileSystemMut> {
    let now = Some(Timestamp::from_seconds(1_750_000_000));
    if apfs {
        let container = Arc::new(Container::open(disk(store), None).unwrap());
        let key = |_: &LockedVolume| -> bandsaw::Result<VolumeKey> {
            unreachable!("it is not encrypted")
        };
        return Box::new(ApfsMut::open(&container, 1, apfs::WriteOptions { now }, &key).unwrap());
    }
    // Without memory for pending changes, each of them is committed separately.
    Box::new(
        HfsPlusMut::open(
            disk(store),
            hfsplus::WriteOptions {
                now,
                cache: 0,
                system_files: false,
            },
        )
        .unwrap(),
    )
}

/// Returns a tree with long and short files, one with a second name, one with an attribute, and a
/// link; all differ between turns.
fn tree(turn: u8) -> Tree {
    let mut tree = Tree::empty(CREATED);
    let mut add = |name: &str, kind: SourceKind, xattrs: Vec<(Box<str>, Stream)>| {
        let root = tree.nodes[0].clone();
        tree.nodes.push(SourceNode {
            name: name.into(),
            kind,
            xattrs,
            ..root
        });
        tree.nodes.len() as u32 - 1
    };
    let file = |len: usize| SourceKind::File(Stream::Bytes(vec![turn; len].into()));
    add("long", file(120_000), Vec::new());
    let small = add(
        "small",
        file(10),
        vec![("mine".into(), Stream::Bytes(vec![turn; 5000].into()))],
    );
    add("small too", SourceKind::HardLink(small), Vec::new());
    add(
        "link",
        SourceKind::Symlink(format!("turn {turn}").into()),
        Vec::new(),
    );
    add(
        "empty",
        file(0),
        vec![("turn".into(), Stream::Bytes(vec![turn].into()))],
    );
    tree
}

/// Returns the contents of the volume, without the number of names, which changes with each of
/// them.
fn world(fs: &dyn FileSystemMut) -> World {
    let mut world = World::new();
    read_into(fs, fs.root(), "", &mut world);
    world.values_mut().for_each(|(_, links, ..)| *links = 0);
    world
}

#[test]
fn a_cut_leaves_whole_files_under_their_own_names() {
    for apfs in [false, true] {
        let store = empty(apfs);
        let first = store.position();
        let overwrite = PutOptions {
            overwrite: true,
            ..PutOptions::default()
        };
        // Each entry by itself is that of one of these.
        let mut states: Vec<(usize, BTreeMap<_, _>)> = vec![(first, BTreeMap::new())];
        let fs = open(&store, apfs);
        for turn in 1..4 {
            put(&tree(turn), &*fs, "/", &overwrite, &Silent).unwrap();
            fs.sync().unwrap();
            states.push((store.position(), world(&*fs)));
        }
        assert_eq!(states[3].1.len(), 5, "{:?}", states[3].1.keys());
        fs.unmount().unwrap();
        drop(fs);
        let (mut seen, mut mixed) = (0, 0);
        for crash in store.crashes_from(first, 3, 1) {
            let fs = open(&crash.store, apfs);
            let last = states
                .iter()
                .rposition(|(position, _)| *position <= crash.position)
                .unwrap();
            let either = &states[last..(last + 2).min(states.len())];
            let found = world(&*fs);
            for (name, item) in &found {
                assert!(
                    either
                        .iter()
                        .any(|(_, state)| state.get(name) == Some(item)),
                    "{name} after {crash:?}"
                );
            }
            let gone = either[0].1.keys().find(|name| !found.contains_key(*name));
            assert_eq!(gone, None, "after {crash:?}");
            mixed += usize::from(either.iter().all(|(_, state)| *state != found));
            seen += 1;
            if seen % 23 == 0 {
                // Orphaned data without a name is removed by the next change.
                put(&tree(9), &*fs, "/", &overwrite, &Silent).unwrap();
                fs.unmount().unwrap();
                drop(fs);
                let problems = match apfs {
                    false => hfsplus::check(disk(&crash.store), &Silent).unwrap(),
                    true => Vec::new(),
                };
                assert!(problems.is_empty(), "{problems:#?}");
            }
        }
        assert!(seen > 100, "{seen} crashes");
        assert!(
            mixed > 0 || apfs,
            "none of {seen} crashes came between two files"
        );
    }
}
