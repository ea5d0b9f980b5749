//! Power cuts while snapshots are created and deleted, at every write, sync and rename.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::folder::Folder;
use super::{PowerCut, Random};
use crate::container::sparsebundle::{Bundle, BundleOptions};
use crate::device::BlockDeviceExt;
use crate::progress::Silent;
use crate::store::{Open, Put, Store};

const BUNDLE: &str = "b.sparsebundle";
/// Random cuts at each point, in addition to the two extremes.
const EACH: u64 = 4;

type Contents = BTreeMap<String, Vec<u8>>;

fn write(cut: &PowerCut, name: &str, bytes: &[u8]) {
    let name = format!("{BUNDLE}/{name}");
    cut.put(&name, bytes, Put::Replace).unwrap();
    cut.sync().unwrap();
}

fn new_bundle() -> PowerCut {
    let cut = PowerCut::default();
    let options = BundleOptions {
        len: 4 << 20,
        band_size: Some(1 << 20),
    };
    drop(Bundle::create(Arc::new(cut.folder(BUNDLE)), &options).unwrap());
    for band in 0..4 {
        write(
            &cut,
            &format!("bands/{band}"),
            &Random::new(band).bytes(700),
        );
    }
    cut
}

fn folder(cut: &PowerCut) -> Folder {
    Folder::in_store(Arc::new(cut.folder(BUNDLE))).unwrap()
}

/// Returns the contents of the bundle, or of a snapshot.
fn contents(cut: &PowerCut, snapshot: Option<&str>) -> Contents {
    let path = match snapshot {
        None => BUNDLE.to_owned(),
        Some(name) => format!("{BUNDLE}/.bandsaw/snapshots/{name}"),
    };
    let store = cut.folder(&path);
    let mut found = Contents::new();
    let listed = store.list("", &mut |entry| {
        if !entry.name.starts_with(".bandsaw/") && entry.name != "lock" {
            let file = store.open(entry.name, Open::Read)?.unwrap();
            let bytes = file.read_vec(0, file.info().len as usize)?;
            found.insert(entry.name.to_owned(), bytes);
        }
        Ok(())
    });
    listed.unwrap();
    found
}

fn names(cut: &PowerCut) -> Vec<String> {
    let snapshots = folder(cut).list().unwrap().into_iter();
    let mut names: Vec<String> = snapshots.map(|snapshot| snapshot.name).collect();
    names.sort();
    names
}

#[test]
fn a_snapshot_is_whole_or_absent() {
    let cut = new_bundle();
    let mut truth = BTreeMap::new();
    for name in ["a", "b", "c"] {
        let live = contents(&cut, None);
        let begun = cut.position();
        folder(&cut).create(name, &Silent).unwrap();
        truth.insert(name, live.clone());
        let (mut present, mut absent) = (0, 0);
        for crash in cut.crashes_from(begun, 3, EACH) {
            let place = format!("{name} after event {}, {:?}", crash.position, crash.keep);
            let found = names(&crash.store);
            for found in &found {
                assert!(
                    contents(&crash.store, Some(found)) == truth[found.as_str()],
                    "{place}"
                );
            }
            assert!(found.len() >= truth.len() - 1, "{place}: {found:?}");
            let is_present = found.iter().any(|found| found == name);
            assert!(
                crash.position < cut.position() || is_present,
                "{place}: not durable"
            );
            assert!(contents(&crash.store, None) == live, "{place}");
            if is_present {
                present += 1;
            } else {
                absent += 1;
                folder(&crash.store).create(name, &Silent).unwrap();
                assert!(contents(&crash.store, Some(name)) == live, "{place}");
            }
        }
        assert!(present > 4 && absent > 50, "{present} {absent}");
        write(&cut, "bands/1", name.as_bytes());
    }
}

#[test]
fn a_snapshot_that_is_deleted_is_whole_or_absent() {
    let cut = new_bundle();
    let mut truth = BTreeMap::new();
    for name in ["a", "b"] {
        folder(&cut).create(name, &Silent).unwrap();
        truth.insert(name, contents(&cut, None));
        write(&cut, "bands/1", name.as_bytes());
    }
    let live = contents(&cut, None);
    let begun = cut.position();
    folder(&cut).delete("a").unwrap();
    let (mut present, mut absent) = (0, 0);
    for crash in cut.crashes_from(begun, 4, EACH) {
        let place = format!("after event {}, {:?}", crash.position, crash.keep);
        let found = names(&crash.store);
        for found in &found {
            assert!(
                contents(&crash.store, Some(found)) == truth[found.as_str()],
                "{place}"
            );
        }
        match found.len() {
            2 => {
                present += 1;
                assert!(crash.position < cut.position(), "{place}: not durable");
                folder(&crash.store).delete("a").unwrap();
            }
            _ => absent += 1,
        }
        assert_eq!(names(&crash.store), ["b"], "{place}");
        assert!(contents(&crash.store, None) == live, "{place}");
    }
    assert!(present > 2 && absent > 20, "{present} {absent}");
}
