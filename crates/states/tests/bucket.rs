//! States in a bucket.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bandsaw::device::{Access, BlockDeviceExt};
use bandsaw::progress::Silent;
use bandsaw::store::{MemoryObjects, Objects, ObjectsExt, Open, Put, Remote, RemoteOptions, Store};
use bandsaw::testing::object_faults::{FaultyObjects, Request, Slip};
use bandsaw::{Kind, Result};
use bandsaw_states::{Received, Sent, receive_from_bucket, send_to_bucket};

use crate::common::{BAND, BANDS, Fixture, contents, files};

/// Opens the folder of the bundle. A writer that lost its connection is taken over at once.
fn open(objects: &Arc<dyn Objects>, access: Access, snapshot: Option<&str>) -> Result<Arc<Remote>> {
    let options = RemoteOptions {
        access,
        snapshot: snapshot.map(str::to_owned),
        steal: true,
        grace: Duration::ZERO,
        part: 64 << 10,
        ..RemoteOptions::default()
    };
    Remote::open(objects.clone(), &options)
}

fn send(fixture: &Fixture, objects: &Arc<dyn Objects>) -> Result<Sent> {
    let (_, shelf) = fixture.open();
    let open = |access, snapshot: Option<&str>| open(objects, access, snapshot);
    send_to_bucket(&shelf, None, &open, &Silent)
}

fn target(fixture: &Fixture) -> PathBuf {
    fixture.scratch.path().join("received")
}

fn receive(
    fixture: &Fixture,
    objects: &Arc<dyn Objects>,
    state: Option<&str>,
) -> Result<(Sent, Received)> {
    let open = |access, snapshot: Option<&str>| open(objects, access, snapshot);
    receive_from_bucket(&open, state, &target(fixture), &Silent)
}

/// Returns all objects below a prefix.
fn all(objects: &Arc<dyn Objects>, prefix: &str) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let listed = objects.list(prefix, &mut |key, found| {
        all.insert(key.to_owned(), vec![0; found.len as usize]);
        Ok(())
    });
    listed.unwrap();
    for (key, bytes) in &mut all {
        let len = bytes.len();
        assert_eq!(objects.read_at(key, 0, bytes).unwrap(), Some(len));
    }
    all
}

/// Returns the files of the bundle in the bucket, or of a snapshot, without the record.
fn stored(objects: &Arc<dyn Objects>, snapshot: Option<&str>) -> BTreeMap<String, Vec<u8>> {
    let remote = open(objects, Access::ReadOnly, snapshot).unwrap();
    let mut names = Vec::new();
    let listed = remote.list("", &mut |entry| {
        names.push(entry.name.to_owned());
        Ok(())
    });
    listed.unwrap();
    names.retain(|name| name != "bandsaw-state.json");
    let read = |name: String| {
        let file = remote.open(&name, Open::Read).unwrap().unwrap();
        let len = file.info().len as usize;
        (name, file.read_vec(0, len).unwrap())
    };
    names.into_iter().map(read).collect()
}

fn owned(fixture: &Fixture) -> BTreeMap<String, Vec<u8>> {
    let files = fixture.files();
    let files = files.into_iter();
    files.map(|(name, (bytes, ..))| (name, bytes)).collect()
}

fn memory() -> Arc<dyn Objects> {
    Arc::new(MemoryObjects::default())
}

#[test]
fn only_changed_bands_go_to_a_bucket_and_each_state_stays() {
    let (mut fixture, objects) = (Fixture::new(70), memory());
    let first = fixture.keep().id;
    let before = owned(&fixture);
    let sent = send(&fixture, &objects).unwrap();
    assert_eq!(sent.id, first);
    assert!(stored(&objects, None) == before);
    // Nothing is stored twice, and other programs see the bundle.
    let size = |files: &BTreeMap<String, Vec<u8>>| files.values().map(Vec::len).sum::<usize>();
    let objects_now = all(&objects, "");
    assert!(size(&objects_now) < size(&before) + size(&before) / 4);
    assert!(
        before
            .iter()
            .all(|(name, bytes)| objects_now.get(name) == Some(bytes))
    );
    fixture.write_band(3);
    fs::remove_file(fixture.path().join("bands/5")).unwrap();
    // The same contents twice are sent once.
    let band = fs::read(fixture.path().join("bands/3")).unwrap();
    fixture.write("bands/6", &band);
    let second = fixture.keep().id;
    let sent = send(&fixture, &objects).unwrap();
    assert_eq!((&sent.id, sent.files, sent.size), (&second, 1, BAND as u64));
    assert!(stored(&objects, Some(&first)) == before);
    assert!(stored(&objects, Some(&second)) == owned(&fixture));
    assert!(stored(&objects, None) == owned(&fixture));
    // Once more: nothing.
    assert_eq!(send(&fixture, &objects).unwrap().files, 0);

    let (_, received) = receive(&fixture, &objects, None).unwrap();
    assert_eq!(received.id, second);
    assert!(contents(&files(&received.path)) == contents(&fixture.files()));
    let (sent, received) = receive(&fixture, &objects, Some(&first)).unwrap();
    assert_eq!((sent.files, &received.id), (3, &first));
    let found = files(&received.path);
    let found: BTreeMap<_, _> = found
        .into_iter()
        .map(|(name, file)| (name, file.0))
        .collect();
    assert!(found == before);
    let missing = receive(&fixture, &objects, Some("2020")).unwrap_err();
    assert_eq!(missing.kind(), Kind::NotFound);
}

#[test]
fn other_bundles_and_empty_places_are_refused() {
    let (fixture, objects) = (Fixture::new(71), memory());
    fixture.keep();
    let missing = receive(&fixture, &objects, None).unwrap_err();
    assert_eq!(missing.kind(), Kind::NotFound);
    objects
        .put("Info.plist", b"<plist/>", Put::Replace)
        .unwrap();
    objects.put("bands/0", b"not ours", Put::Replace).unwrap();
    let refused = send(&fixture, &objects).unwrap_err();
    assert_eq!(refused.kind(), Kind::Conflict);
    let found = stored(&objects, None);
    assert_eq!(found["bands/0"], b"not ours");
    assert_eq!(found.len(), 2);
}

/// Every request of a transfer fails once, in one of two ways: the states before are as they were, and
/// the next run sends the new one.
#[test]
fn a_lost_request_costs_no_state() {
    let (mut fixture, base) = (Fixture::new(72), memory());
    let first = fixture.keep().id;
    let before = owned(&fixture);
    send(&fixture, &base).unwrap();
    fixture.write_band(1);
    fixture.write_band(2);
    let second = fixture.keep().id;
    let after = owned(&fixture);
    let copy = || {
        let copy = memory();
        for (key, bytes) in all(&base, "") {
            copy.put(&key, &bytes, Put::Replace).unwrap();
        }
        copy
    };
    let mut failed = 0;
    for request in [Request::Put, Request::Copy, Request::Read] {
        for slip in [Slip::Lost, Slip::AnswerLost] {
            for number in 1.. {
                let plain = copy();
                let faulty = FaultyObjects::new(plain.clone());
                faulty.plan(request, number, slip);
                let objects: Arc<dyn Objects> = faulty.clone();
                let done = send(&fixture, &objects);
                if faulty.happened() == 0 {
                    break;
                }
                failed += u32::from(done.is_err());
                let place = format!("{request:?} {slip:?} {number}");
                assert!(stored(&plain, Some(&first)) == before, "{place}");
                send(&fixture, &plain).unwrap();
                assert!(stored(&plain, Some(&first)) == before, "{place}");
                assert!(stored(&plain, Some(&second)) == after, "{place}");
                assert!(stored(&plain, None) == after, "{place}");
            }
        }
    }
    assert!(failed > 5, "{failed}");
}

/// A bucket that returns other bytes than it was given.
#[test]
fn contents_are_read_again_before_they_are_a_state() {
    let (fixture, objects) = (Fixture::new(73), memory());
    fixture.keep();
    let spoiled = std::sync::atomic::AtomicBool::new(false);
    let (_, shelf) = fixture.open();
    let spoil = |access, snapshot: Option<&str>| {
        // Before the contents are read again.
        if access == Access::ReadOnly && !spoiled.swap(true, std::sync::atomic::Ordering::SeqCst) {
            let stored = all(&objects, ".bandsaw/objects/").into_iter();
            let (key, mut bytes) = stored.max_by_key(|(_, bytes)| bytes.len()).unwrap();
            bytes[100] ^= 1;
            objects.put(&key, &bytes, Put::Replace).unwrap();
        }
        open(&objects, access, snapshot)
    };
    let refused = send_to_bucket(&shelf, None, &spoil, &Silent).unwrap_err();
    assert_eq!(refused.kind(), Kind::Corrupt, "{refused}");
    let remote = open(&objects, Access::ReadOnly, None).unwrap();
    assert!(remote.snapshots().is_empty());
    assert!(remote.stat("Info.plist").unwrap().is_none());
    drop(remote);
    // Contents sent before are kept, and the spoiled ones are sent again.
    let sent = send(&fixture, &objects).unwrap();
    assert_eq!(sent.files, 1, "of {BANDS} bands");
    assert!(stored(&objects, None) == owned(&fixture));
}
