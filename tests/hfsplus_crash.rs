//! Power failures while a volume is created: a volume that opens afterwards is complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw::fs::hfsplus::HfsPlus;
use bandsaw::fs::hfsplus::build::{Options, Plan};
use bandsaw::fs::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw::fs::{FileSystem, FileSystemExt, Fork, Timestamp};
use bandsaw::progress::Silent;
use bandsaw::store::{Open, Store};
use bandsaw::testing::PowerCut;

const LEN: u64 = 1 << 20;

fn disk(store: &PowerCut) -> Arc<dyn BlockDevice> {
    store.open("disk", Open::Create).unwrap().unwrap()
}

fn plan(name: &str, files: u8) -> Plan {
    let mut tree = Tree::empty(Timestamp::from_seconds(1_700_000_000));
    for file in 0..files {
        let kind = SourceKind::File(Stream::Bytes(vec![file + 1; 3000].into()));
        let root = tree.nodes[0].clone();
        let xattrs = vec![("name".into(), Stream::Bytes(name.as_bytes().into()))];
        tree.nodes.push(SourceNode {
            name: format!("{name} {file}").into(),
            kind,
            xattrs,
            ..root
        });
    }
    let options = Options {
        name: name.into(),
        case_sensitive: false,
        journaled: false,
        block_size: None,
        created: Timestamp::from_seconds(1_700_000_000),
        latest: None,
        opens: false,
        identifier: 1,
    };
    Plan::new(tree, options).unwrap()
}

/// Returns the name and the files of the volume; `None` if there is none. A volume that opens must
/// be fully readable.
fn read(store: &PowerCut) -> Option<(String, BTreeMap<String, Vec<u8>>)> {
    let volume = HfsPlus::open(disk(store)).ok()?;
    assert!(volume.volume().clean);
    let contents = |entry: &bandsaw::fs::Entry| {
        let name = volume.xattr(entry.attributes.id, "name").unwrap().unwrap();
        assert_eq!(
            name.read_vec(0, name.info().len as usize).unwrap(),
            volume.volume().name.as_bytes()
        );
        let fork = volume.open(entry.attributes.id, Fork::Data).unwrap();
        fork.read_vec(0, fork.info().len as usize).unwrap()
    };
    let files = volume
        .entries(volume.root())
        .unwrap()
        .iter()
        .map(|entry| (entry.name.clone(), contents(entry)))
        .collect();
    Some((volume.volume().name, files))
}

#[test]
fn a_cut_leaves_no_volume_or_a_whole_one() {
    let store = PowerCut::default();
    disk(&store).set_len(LEN, AfterDiscard::Zeros).unwrap();
    plan("old", 20).build(&*disk(&store), &Silent).unwrap();
    store.sync().unwrap();
    let old = read(&store).unwrap();
    let before = store.position();
    plan("new", 30).build(&*disk(&store), &Silent).unwrap();
    let new = read(&store).unwrap();
    assert_eq!((old.1.len(), new.1.len()), (20, 30));

    let mut seen = [0; 3];
    for crash in store.crashes_from(before, 7, 4) {
        match read(&crash.store) {
            None => seen[0] += 1,
            Some(found) if found == old => seen[1] += 1,
            Some(found) => {
                assert!(found == new, "{crash:?}: a mixture of {:?}", found.1.keys());
                seen[2] += 1;
            }
        }
    }
    assert!(
        seen.iter().all(|count| *count > 0),
        "nothing, the old and the new volume were all met: {seen:?}"
    );
}
