//! Open files without a name, files of the journal, and the state after a failed operation.

use super::*;
use bandsaw_core::device::AfterDiscard;
use bandsaw_core::{Error, Kind};

/// A file that lost its name while open is deleted when it is closed, even after the volume was
/// unmounted.
#[test]
fn unlinked_open_files_go_after_unmounting_too() {
    let device = empty(2 << 20);
    let fs = open(&device);
    let free = fs.volume().free;
    let id = fs.create(fs.root(), "open", &file()).unwrap();
    fs.write_all(id, &bytes(9000, 1)).unwrap();
    let held = fs.open(id, Fork::Data).unwrap();
    fs.remove(fs.root(), "open").unwrap();
    assert_eq!(fs.attributes(id).unwrap().links, 0);
    assert_eq!(
        fs.link(id, fs.root(), "again").unwrap_err().kind(),
        Kind::NotFound
    );
    fs.unmount().unwrap();
    assert_eq!(held.read_vec(0, 9000).unwrap(), bytes(9000, 1));
    drop(fs);
    drop(held);
    sound(device.clone());
    let fs = open(&device);
    assert_eq!(fs.volume().free, free);
}

/// A write changes the date immediately, and a date that is set afterwards replaces it.
#[test]
fn a_date_that_is_set_while_a_file_is_open_stays() {
    let device = empty(2 << 20);
    let fs = open(&device);
    let [old, older] = [1_000_000_000, 900_000_000].map(Timestamp::from_seconds);
    let id = fs
        .create(
            fs.root(),
            "copied",
            &NewNode {
                created: Some(old),
                ..file()
            },
        )
        .unwrap();
    let held = fs.open_mut(id, Fork::Data).unwrap();
    held.set_len(9000, AfterDiscard::Any).unwrap();
    fs.set_attributes(
        id,
        &Change {
            modified: Some(old),
            ..Change::default()
        },
    )
    .unwrap();
    held.write_at(0, &bytes(9000, 1)).unwrap();
    assert_eq!(
        fs.attributes(id).unwrap().modified,
        Some(NOW),
        "before it is recorded"
    );
    assert_eq!(
        fs.lookup(fs.root(), "copied").unwrap().unwrap().modified,
        Some(NOW)
    );
    fs.set_attributes(
        id,
        &Change {
            modified: Some(older),
            ..Change::default()
        },
    )
    .unwrap();
    drop(held);
    fs.unmount().unwrap();
    assert_eq!(fs.attributes(id).unwrap().modified, Some(older));
    drop(fs);
    sound(device);
}

/// A fork that is being closed waits for the volume. In the meantime, its date is visible to other
/// threads and when it is opened again, and a date that is set replaces it.
#[test]
fn a_date_is_not_lost_while_a_file_is_being_closed() {
    let device = empty(2 << 20);
    let fs = open(&device);
    let [old, older] = [1_000_000_000, 900_000_000].map(Timestamp::from_seconds);
    let dated = |moment| Change {
        modified: Some(moment),
        ..Change::default()
    };
    for set in [false, true] {
        let id = fs
            .create(fs.root(), &format!("copied {set}"), &file())
            .unwrap();
        let held = fs.open_mut(id, Fork::Data).unwrap();
        held.set_len(9000, AfterDiscard::Any).unwrap();
        fs.set_attributes(id, &dated(old)).unwrap();
        held.write_at(0, &bytes(9000, 1)).unwrap();
        std::thread::scope(|scope| {
            let mut volume = fs.shared.write();
            let closing = scope.spawn(move || drop(held));
            while fs.shared.is_open(Cnid(id.0 as u32)) {
                std::thread::yield_now();
            }
            let mut found = volume.read.attributes(id).unwrap();
            assert_eq!(found.modified, Some(old), "it is not recorded yet");
            super::file::add_due_date(&fs.shared, &volume, &mut found);
            assert_eq!(found.modified, Some(NOW));
            if set {
                super::file::set_attributes(&fs.shared, &mut volume, id, &dated(older)).unwrap();
            }
            drop(volume);
            closing.join().unwrap();
        });
        fs.unmount().unwrap();
        assert_eq!(
            fs.attributes(id).unwrap().modified,
            Some(if set { older } else { NOW })
        );
        let listed = fs.entries(fs.root()).unwrap();
        assert!(
            listed
                .iter()
                .any(|entry| entry.attributes.modified == Some(if set { older } else { NOW }))
        );
    }
    drop(fs);
    sound(device);
}

#[test]
fn the_journals_files_are_not_changed() {
    let device = empty(2 << 20);
    let fs = HfsPlusMut::open(
        device.clone(),
        WriteOptions {
            system_files: true,
            ..options()
        },
    )
    .unwrap();
    fs.enable_journal(None).unwrap();
    let root = fs.root();
    assert_eq!(names(&fs, "/"), [".journal", ".journal_info_block"]);
    let id = fs.resolve("/.journal").unwrap().id;
    fs.create(root, "other", &file()).unwrap();
    let refused = [
        fs.remove(root, ".journal"),
        fs.rename(
            (root, ".journal_info_block"),
            (root, "moved"),
            ExistingTarget::Error,
        ),
        fs.rename((root, "other"), (root, ".journal"), ExistingTarget::Replace),
        fs.link(id, root, "second"),
        fs.set_xattr_bytes(id, "user.x", b"x"),
        fs.open_mut(id, Fork::Data).map(drop),
    ];
    assert!(
        refused.iter().all(|refused| refused
            .as_ref()
            .is_err_and(|error| error.kind() == Kind::Unsupported)),
        "{refused:?}"
    );
    fs.disable_journal().unwrap();
    assert_eq!(names(&fs, "/"), ["other"]);
    drop(fs);
    sound(device);
}

/// An operation that fails in its last step leaves everything unchanged.
#[test]
fn an_operation_that_fails_changes_nothing() {
    let device = empty(4 << 20);
    let fs = open(&device);
    for number in 0..60 {
        fs.create(fs.root(), &format!("file {number}"), &file())
            .unwrap();
    }
    fs.sync().unwrap();
    let volume = &mut *fs.shared.write();
    let before = (volume.read.header.raw, volume.buffer.len_if_kept());
    let failed: Result<()> = volume.change(|volume| {
        let id = volume.next_id()?;
        let units = volume.new_name(Cnid::ROOT, "never")?;
        let object = volume.new_record(id, &file());
        volume.insert_object(Cnid::ROOT, &units, &object)?;
        volume.allocate(3, 1, None)?;
        Err(Error::invalid("test", "on purpose"))
    });
    assert_eq!(failed.unwrap_err().layer(), "test");
    assert!((volume.read.header.raw, volume.buffer.len_if_kept()) == before);
    assert!(volume.try_entry(Cnid::ROOT, "never").unwrap().is_none());
}

/// A volume too full for a transient journal reports a solution, and remains unchanged.
#[test]
fn a_volume_without_room_for_a_journal_says_so() {
    let device = empty(1 << 20);
    let fs = open(&device);
    let id = fs.create(fs.root(), "all", &file()).unwrap();
    fs.write_all(id, &[1; 4096]).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    // Fills the volume with a file, as a writer without a journal would.
    let fs = open(&device);
    let volume = &mut *fs.shared.write();
    let free = volume.read.header.raw.free_blocks.get();
    let (found, mut grown) = super::file::file_of(volume, Cnid(id.0 as u32)).unwrap();
    let mut fork = volume
        .fork_map(&grown.data_fork, Cnid(id.0 as u32), 0)
        .unwrap();
    volume
        .resize_fork(&mut fork, 4096 * u64::from(free + 1), true)
        .unwrap();
    volume.store_fork(&mut fork, &grown.data_fork).unwrap();
    grown.data_fork = fork.raw;
    volume
        .put(
            found.parent,
            &found.name,
            &crate::hfsplus::catalog::Object::File(grown),
        )
        .unwrap();
    volume
        .buffer
        .write_at(1024, zerocopy::IntoBytes::as_bytes(&volume.read.header.raw))
        .unwrap();
    volume.buffer.accept();
    for (offset, bytes) in volume.buffer.runs() {
        device.write_at(offset, &bytes).unwrap();
    }
    let full = Arc::new(Memory::from(device.to_vec()));
    let before = full.to_vec();
    let fs = open(&full);
    let error = fs.remove(fs.root(), "all").unwrap_err();
    assert_eq!(error.kind(), Kind::Limit);
    assert!(
        error.to_string().contains("contiguous free bytes") && error.to_string().contains("cp -R"),
        "{error}"
    );
    drop(fs);
    assert!(full.to_vec() == before);
}
