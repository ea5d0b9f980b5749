//! A bundle that was copied to a store, without a log: it is read in place.

use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::device::{Access, BlockDevice, BlockDeviceExt};
use bandsaw::store::{MemoryStore, ObjectsExt, Open, Put, Store};

use super::{MIB, memory, reader};

#[test]
fn a_bundle_that_was_copied_there_is_a_disk() {
    let store = Arc::new(MemoryStore::default());
    let bundle = Bundle::create(
        store.clone(),
        &BundleOptions {
            len: 64 * MIB,
            band_size: None,
        },
    )
    .unwrap();
    bundle.write_at(20 * MIB, b"in the third band").unwrap();
    bundle.flush().unwrap();
    drop(bundle);
    let objects = memory();
    let copied = store.list("", &mut |entry| {
        let file = store.open(entry.name, Open::Read)?.expect("a listed file");
        let bytes = file.read_vec(0, file.info().len as usize)?;
        objects.put(entry.name, &bytes, Put::Replace).map(drop)
    });
    copied.unwrap();

    let remote = reader(&objects).unwrap();
    let mut names = Vec::new();
    let listed = remote.list("bands/", &mut |entry| {
        names.push(entry.name.to_owned());
        assert_eq!(entry.meta()?, remote.stat(entry.name)?);
        Ok(())
    });
    listed.unwrap();
    assert_eq!(names, ["bands/2"]);
    assert!(Bundle::open(remote.clone(), Access::ReadWrite).is_err());
    let bundle = Bundle::open(remote, Access::ReadOnly).unwrap();
    assert_eq!(bundle.read_vec(20 * MIB, 17).unwrap(), b"in the third band");
    assert_eq!(bundle.read_vec(0, 4096).unwrap(), [0; 4096]);
    objects.put("bands/2", b"short", Put::Replace).unwrap();
    let again = Bundle::open(reader(&objects).unwrap(), Access::ReadOnly).unwrap();
    assert_eq!(again.read_vec(16 * MIB, 8).unwrap(), *b"short\0\0\0");
    assert_eq!(
        super::count(&objects, ".bandsaw/"),
        0,
        "who only reads leaves nothing behind"
    );
}

/// Data of two versions is never mixed.
#[test]
fn a_file_that_is_replaced_is_an_error() {
    let objects = memory();
    objects.put("bands/0", &[1; 3 << 20], Put::Replace).unwrap();
    let file = reader(&objects)
        .unwrap()
        .open("bands/0", Open::Read)
        .unwrap()
        .unwrap();
    assert_eq!(file.read_vec(0, 2).unwrap(), [1, 1]);
    objects.put("bands/0", &[2; 3 << 20], Put::Replace).unwrap();
    assert_eq!(
        file.read_vec(2 * MIB, 4096).unwrap_err().kind(),
        Kind::Conflict
    );
    objects.remove("bands/0").unwrap();
    assert_eq!(
        file.read_vec(MIB, 2 << 20).unwrap_err().kind(),
        Kind::Conflict
    );
}
