//! The conformance suite for folders of a host.

use std::path::Path;
use std::sync::Arc;

use bandsaw_core::Kind;
use bandsaw_core::device::BlockDeviceExt;
use bandsaw_core::store::{HostStore, NodeKind, Open, Put, names_in};

/// Runs the suite on the folders that `make` creates: what [`HostStore`] adds to a store. Each must
/// be new and empty.
pub fn host_store(make: impl Fn() -> Arc<dyn HostStore>) {
    attributes(&*make());
    copies(&*make());
    folders(&*make());
    trees(&*make());
    elsewhere(&*make());
}

fn put(store: &dyn HostStore, name: &str, bytes: &[u8]) {
    assert!(store.put(name, bytes, Put::Replace).unwrap(), "put {name}");
}

fn read(store: &dyn HostStore, name: &str) -> Option<Vec<u8>> {
    let file = store.open(name, Open::Read).unwrap()?;
    Some(file.read_vec(0, file.info().len as usize).unwrap())
}

fn names(store: &dyn HostStore, folder: &str) -> Option<Vec<String>> {
    let names = names_in(store, folder).unwrap()?.into_iter();
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    Some(names)
}

fn attributes(store: &dyn HostStore) {
    put(store, "a/one", b"x");
    put(store, "like", b"");
    let kind = |name| store.attributes(name).unwrap().map(|found| found.kind);
    assert_eq!(kind(""), Some(NodeKind::Folder), "the folder itself");
    assert_eq!(kind("a"), Some(NodeKind::Folder));
    assert_eq!(kind("a/one"), Some(NodeKind::File));
    assert_eq!((kind("a/two"), kind("b/two")), (None, None));
    let identity = |name| {
        let found = store.attributes(name).unwrap().unwrap();
        (found.inode, found.len, found.links)
    };
    let (inode, ..) = identity("a/one");
    for nanos in [0, 1_700_000_000_123_456_789, -1_500_000_000] {
        store.set_modified("a/one", nanos).unwrap();
        let found = store.attributes("a/one").unwrap().unwrap();
        assert_eq!(found.modified, nanos, "the time that was set");
    }
    store.set_owner_of("a/one", "like").unwrap();
    assert_eq!(identity("a/one"), (inode, 1, 1));
    assert!(store.link("a/one", "b/two").unwrap());
    assert_eq!(identity("b/two"), (inode, 1, 2), "a second name");
    assert!(!store.link("a/none", "b/three").unwrap());
    assert!(store.link("like", "b/two").is_err(), "a name that is taken");
    store.rename("a/one", "c").unwrap();
    assert_eq!(identity("c"), (inode, 1, 2), "a renamed file");
    assert!(store.remove("b/two").unwrap());
    assert_eq!(identity("c"), (inode, 1, 1));
    let missing = [store.set_modified("d", 0), store.set_owner_of("d", "like")];
    for refused in missing {
        assert_eq!(refused.unwrap_err().kind(), Kind::NotFound);
    }
    for bad in ["../x", "/x", "a/../x"] {
        assert!(store.attributes(bad).is_err(), "{bad}");
        assert!(names_in(store, bad).is_err(), "{bad}");
        assert!(store.set_modified(bad, 0).is_err(), "{bad}");
        assert!(store.remove_tree(bad).is_err(), "{bad}");
        assert!(store.rename_folder(bad, "x").is_err(), "{bad}");
        assert!(
            store.copy_from(&store.host_path("c"), bad).is_err(),
            "{bad}"
        );
    }
}

fn copies(store: &dyn HostStore) {
    put(store, "a", b"contents");
    store.copy_from(&store.host_path("a"), "new/b").unwrap();
    if !store.clone_of("a", "new/c").unwrap() {
        store.copy("a", "new/c").unwrap();
    }
    put(store, "a", b"other");
    for copy in ["new/b", "new/c"] {
        assert_eq!(read(store, copy).unwrap(), b"contents", "{copy}");
    }
    let missing = store.copy_from(&store.host_path("none"), "d");
    assert_eq!(missing.unwrap_err().kind(), Kind::NotFound);
}

fn folders(store: &dyn HostStore) {
    put(store, "new/bands/0", b"x");
    assert!(store.rename_folder("new", "state").unwrap());
    put(store, "new/bands/1", b"y");
    assert_eq!(read(store, "state/bands/0").unwrap(), b"x");
    assert_eq!(
        read(store, "state/bands/1"),
        None,
        "a write to a renamed folder"
    );
    assert_eq!(read(store, "new/bands/1").unwrap(), b"y");
    assert!(
        !store.rename_folder("new", "state").unwrap(),
        "a folder is in use"
    );
    assert_eq!(names(store, "").unwrap(), ["new", "state"]);
    assert!(store.rename_folder("none", "other").is_err());
}

fn trees(store: &dyn HostStore) {
    put(store, "a/b/c/d", b"x");
    put(store, "a/e", b"x");
    put(store, "f", b"x");
    store.sync().unwrap();
    store.sync_tree("a").unwrap();
    store.sync_tree("").unwrap();
    assert!(store.sync_tree("none").is_err());
    assert_eq!(names(store, "a").unwrap(), ["b", "e"]);
    assert_eq!(names(store, "none"), None);
    store.remove_tree("a").unwrap();
    store.remove_tree("a").unwrap();
    assert_eq!(names(store, "").unwrap(), ["f"]);
    put(store, "a/b/g", b"y");
    assert_eq!(names(store, "a/b").unwrap(), ["g"]);
    store.remove_leftovers("a", "b");
    store.remove_leftovers("none", "b");
    assert_eq!(
        read(store, "a/b/g").unwrap(),
        b"y",
        "no process has left it"
    );
    store.sync().unwrap();
}

fn elsewhere(store: &dyn HostStore) {
    put(store, "a/b", b"x");
    let other = store.elsewhere(&store.host_path("a"));
    assert_eq!(other.host_path(""), store.host_path("a"));
    assert_eq!(other.host_path("b"), store.host_path("a/b"));
    assert!(other.host_path("").starts_with(Path::new("/")));
    assert_eq!(read(&*other, "b").unwrap(), b"x");
    put(&*other, "c", b"y");
    assert_eq!(read(store, "a/c").unwrap(), b"y");
    let none = store.elsewhere(&store.host_path("none/deep"));
    assert_eq!(
        none.attributes("").unwrap(),
        None,
        "a folder that does not exist"
    );
    put(&*none, "d", b"z");
    none.sync().unwrap();
    assert_eq!(read(store, "none/deep/d").unwrap(), b"z");
}
