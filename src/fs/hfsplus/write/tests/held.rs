//! Files that are open without a name, files of the journal, and what an operation that fails leaves.

use super::*;
use crate::device::Leave;
use crate::{Error, Kind};

/// A file that lost its name while it was open goes when it is closed, also after the volume was unmounted.
#[test]
fn what_was_open_goes_after_the_unmounting_too() {
    let device = empty(2 << 20);
    let fs = open(&device);
    let free = fs.volume().free;
    let id = fs.create(fs.root(), "open", &file()).unwrap();
    fs.write_all(id, &bytes(9000, 1)).unwrap();
    let held = fs.open(id, Fork::Data).unwrap();
    fs.remove(fs.root(), "open").unwrap();
    assert_eq!(fs.attributes(id).unwrap().links, 0);
    assert_eq!(fs.link(id, fs.root(), "again").unwrap_err().kind(), Kind::NotFound);
    fs.unmount().unwrap();
    assert_eq!(held.read_vec(0, 9000).unwrap(), bytes(9000, 1));
    drop(fs);
    drop(held);
    sound(device.clone());
    let fs = open(&device);
    assert_eq!(fs.volume().free, free);
}

/// What was written counts at once, and what somebody says of the date afterwards counts more.
#[test]
fn a_date_that_is_set_while_a_file_is_open_stays() {
    let device = empty(2 << 20);
    let fs = open(&device);
    let [old, older] = [1_000_000_000, 900_000_000].map(Timestamp::from_seconds);
    let id = fs.create(fs.root(), "copied", &NewNode { created: Some(old), ..file() }).unwrap();
    let held = fs.open_mut(id, Fork::Data).unwrap();
    held.set_len(9000, Leave::Any).unwrap();
    fs.set_attributes(id, &Change { modified: Some(old), ..Change::default() }).unwrap();
    held.write_at(0, &bytes(9000, 1)).unwrap();
    assert_eq!(fs.attributes(id).unwrap().modified, Some(NOW), "before it is recorded");
    assert_eq!(fs.lookup(fs.root(), "copied").unwrap().unwrap().modified, Some(NOW));
    fs.set_attributes(id, &Change { modified: Some(older), ..Change::default() }).unwrap();
    drop(held);
    fs.unmount().unwrap();
    assert_eq!(fs.attributes(id).unwrap().modified, Some(older));
    drop(fs);
    sound(device);
}

#[test]
fn the_journals_files_are_not_changed() {
    let device = empty(2 << 20);
    let fs = open(&device);
    fs.enable_journal(None).unwrap();
    let root = fs.root();
    let id = fs.resolve("/.journal").unwrap().id;
    fs.create(root, "other", &file()).unwrap();
    let refused = [
        fs.remove(root, ".journal"),
        fs.rename((root, ".journal_info_block"), (root, "moved"), Existing::Keep),
        fs.rename((root, "other"), (root, ".journal"), Existing::Replace),
        fs.link(id, root, "second"),
        fs.set_xattr_bytes(id, "user.x", b"x"),
        fs.open_mut(id, Fork::Data).map(drop),
    ];
    assert!(refused.iter().all(|refused| refused.as_ref().is_err_and(|error| error.kind() == Kind::Unsupported)), "{refused:?}");
    fs.disable_journal().unwrap();
    assert_eq!(names(&fs, "/"), ["other"]);
    drop(fs);
    sound(device);
}

/// An operation that fails on its last step leaves everything as it was.
#[test]
fn an_operation_that_fails_changes_nothing() {
    let device = empty(4 << 20);
    let fs = open(&device);
    for number in 0..60 {
        fs.create(fs.root(), &format!("file {number}"), &file()).unwrap();
    }
    fs.sync().unwrap();
    let volume = &mut *fs.shared.write();
    let before = (volume.read.header.raw, volume.buffer.len_if_kept());
    let failed: Result<()> = volume.change(|volume| {
        let id = volume.next_id()?;
        let units = volume.new_name(Cnid::ROOT, "never")?;
        let object = volume.new_record(id, &file());
        volume.enter(Cnid::ROOT, &units, &object)?;
        volume.take(3, 1, None)?;
        Err(Error::new(Kind::Invalid, "test", "on purpose"))
    });
    assert_eq!(failed.unwrap_err().layer(), "test");
    assert!((volume.read.header.raw, volume.buffer.len_if_kept()) == before);
    assert!(volume.try_entry(Cnid::ROOT, "never").unwrap().is_none());
}
