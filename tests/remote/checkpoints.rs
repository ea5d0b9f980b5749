//! Checkpoints, concurrent readers, and snapshots.

use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::container::sparsebundle::Bundle;
use bandsaw::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw::store::{Objects, ObjectsExt, Open, Put, Remote, RemoteOptions, Store};
use bandsaw::testing::Random;
use bandsaw::testing::object_faults::{FaultyObjects, Request, Slip};

use super::{BUNDLE, MIB, count, load, memory, options, reader, store, thief, writer};

fn names(objects: &Arc<dyn Objects>) -> Vec<String> {
    let mut names = Vec::new();
    objects
        .list("", &mut |key, _| {
            names.extend((!key.starts_with(".bandsaw/")).then(|| key.to_owned()));
            Ok(())
        })
        .unwrap();
    names
}

/// Copies the objects under plain names to another store.
fn synced(objects: &Arc<dyn Objects>) -> Arc<dyn Objects> {
    let copy = memory();
    for name in names(objects) {
        let mut bytes = vec![0; objects.stat(&name).unwrap().unwrap().len as usize];
        objects.read_at(&name, 0, &mut bytes).unwrap();
        copy.put(&name, &bytes, Put::Replace).unwrap();
    }
    copy
}

#[test]
fn after_a_checkpoint_plain_names_are_the_bundle() {
    let objects = memory();
    let remote = writer(&objects).unwrap();
    let bundle = Bundle::create(remote.clone(), &BUNDLE).unwrap();
    let mut model = Random::new(2).bytes(BUNDLE.len as usize);
    bundle.write_at(0, &model).unwrap();
    bundle.flush().unwrap();
    assert!(names(&objects).is_empty() && remote.status().lagging > 6);
    assert_eq!(remote.checkpoint(&|_| Ok(())).unwrap().copied, 10);
    assert_eq!(
        (
            remote.status().lagging,
            count(&objects, ".bandsaw/objects/")
        ),
        (0, 0)
    );
    // Half of it is changed, truncated and grown again, over plain objects.
    for (at, value) in [(100, 1), (MIB - 5, 2), (3 * MIB + 70_000, 3)] {
        bundle.write_at(at, &[value; 3000]).unwrap();
        model[at as usize..][..3000].fill(value);
    }
    bundle
        .discard(4 * MIB..5 * MIB + 512, AfterDiscard::Zeros)
        .unwrap();
    bundle
        .discard(2 * MIB + 1000..2 * MIB + 300_000, AfterDiscard::Zeros)
        .unwrap();
    model[4 * MIB as usize..].fill(0);
    model[2 * MIB as usize + 1000..2 * MIB as usize + 300_000].fill(0);
    bundle.flush().unwrap();
    let report = remote.checkpoint(&|_| Ok(())).unwrap();
    assert!(report.copied == 4 && report.removed == 2, "{report:?}");
    assert_eq!(bundle.read_vec(0, model.len()).unwrap(), model);
    let plain = synced(&objects);
    for place in [&plain, &objects] {
        let seen = Bundle::open(reader(place).unwrap(), Access::ReadOnly).unwrap();
        assert_eq!(seen.read_vec(0, model.len()).unwrap(), model);
    }
    assert_eq!(
        names(&objects),
        [
            "Info.bckup",
            "Info.plist",
            "bands/0",
            "bands/1",
            "bands/2",
            "bands/3",
            "lock",
            "token"
        ]
    );
    // An interrupted checkpoint is completed by the next one.
    drop((bundle, remote));
    for n in 1..60 {
        let faulty = FaultyObjects::new(objects.clone());
        let broken: Arc<dyn Objects> = faulty.clone();
        let remote = thief(&broken).unwrap();
        let bundle = Bundle::open(remote.clone(), Access::ReadWrite).unwrap();
        for band in 0..5 {
            bundle
                .write_at(band * MIB + n * 900, &[n as u8; 800])
                .unwrap();
            model[(band * MIB + n * 900) as usize..][..800].fill(n as u8);
        }
        bundle.flush().unwrap();
        let request = [Request::Put, Request::Copy, Request::Remove, Request::Stat][n as usize % 4];
        for later in n / 4 + 1..n + 100 {
            faulty.plan(
                request,
                later,
                if n % 3 == 0 {
                    Slip::Lost
                } else {
                    Slip::AnswerLost
                },
            );
        }
        let _broken_off = remote.checkpoint(&|_| Ok(()));
        drop((bundle, remote));
        faulty.clear();
        let seen = Bundle::open(reader(&objects).unwrap(), Access::ReadOnly).unwrap();
        assert_eq!(seen.read_vec(0, model.len()).unwrap(), model, "{n}");
    }
    let remote = thief(&objects).unwrap();
    remote.checkpoint(&|_| Ok(())).unwrap();
    let seen = Bundle::open(reader(&synced(&objects)).unwrap(), Access::ReadOnly).unwrap();
    assert_eq!(seen.read_vec(0, model.len()).unwrap(), model);
    assert_eq!(count(&objects, ".bandsaw/objects/"), 0);
}

/// Files that consist of several objects and are too large to be assembled in memory.
#[test]
fn large_files_have_plain_names_too() {
    const LEN: u64 = 70 * MIB + 700;
    let objects = memory();
    let faulty = FaultyObjects::new(objects.clone());
    let broken: Arc<dyn Objects> = faulty.clone();
    let open = || {
        let options = RemoteOptions {
            part: 8 * MIB,
            memory: 64 * MIB,
            steal: true,
            ..options(Access::ReadWrite)
        };
        Remote::open(broken.clone(), &options).unwrap()
    };
    let plain = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        objects.read_at("bands/0", at, &mut bytes).unwrap();
        bytes
    };
    let mut remote = open();
    let mut model = vec![0; LEN as usize];
    for round in 0..7_u8 {
        let file = remote.open("bands/0", Open::Create).unwrap().unwrap();
        if round == 0 {
            file.set_len(LEN, AfterDiscard::Zeros).unwrap();
        }
        for (at, len) in [
            (3 * MIB - 7, 90_000),
            (u64::from(round) * 9 * MIB, 3 * MIB),
            (LEN - 800, 800),
        ] {
            model[at as usize..][..len as usize].fill(round + 1);
            file.write_at(at, &vec![round + 1; len as usize]).unwrap();
        }
        file.flush().unwrap();
        drop(file);
        // Every second time it is first interrupted at another request.
        if round % 2 == 1 {
            let (request, first) =
                [(Request::Put, 4), (Request::Stat, 2), (Request::Copy, 1)][usize::from(round / 2)];
            (first..60).for_each(|later| faulty.plan(request, later, Slip::Lost));
            let _broken_off = remote.checkpoint(&|_| Ok(()));
            drop(remote);
            faulty.clear();
            remote = open();
            assert!(remote.status().lagging > 0, "{round}");
            let seen = remote.open("bands/0", Open::Read).unwrap().unwrap();
            assert!(seen.read_vec(0, model.len()).unwrap() == model, "{round}");
        }
        let copied = std::sync::atomic::AtomicU64::new(0);
        remote
            .checkpoint(&|bytes| {
                copied.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
        assert_eq!(
            (remote.status().lagging, copied.into_inner()),
            (0, LEN),
            "{round}"
        );
        assert!(
            plain(0, model.len()) == model && count(&objects, ".bandsaw/objects/") == 0,
            "{round}"
        );
    }
}

#[test]
fn plain_files_that_others_changed_are_refused() {
    let objects = memory();
    objects.put("bands/0", b"from a Mac", Put::Replace).unwrap();
    let remote = writer(&objects).unwrap();
    assert_eq!(load(&remote, "bands/0").unwrap(), b"from a Mac");
    store(&remote, "bands/0", b"ours").unwrap();
    remote.close().unwrap();
    let seen = reader(&objects).unwrap();
    let open = seen.open("bands/0", Open::Read).unwrap().unwrap();
    objects
        .put("bands/0", b"synced again", Put::Replace)
        .unwrap();
    let error = open.read_vec(0, 4).unwrap_err();
    assert!(
        error.kind() == Kind::Conflict && error.to_string().contains("open the image again"),
        "{error}"
    );
    let error = writer(&objects)
        .unwrap()
        .open("bands/0", Open::Read)
        .unwrap_err();
    assert!(
        error.kind() == Kind::Conflict && error.to_string().contains(".bandsaw/"),
        "{error}"
    );
}

#[test]
fn a_reader_keeps_its_state_or_fails() {
    let objects = memory();
    let remote = writer(&objects).unwrap();
    store(&remote, "a", &[1; 200_000]).unwrap();
    let seen = reader(&objects).unwrap();
    let file = seen.open("a", Open::Read).unwrap().unwrap();
    store(&remote, "a", &[2; 200_000]).unwrap();
    assert_eq!(
        file.read_vec(0, 1000).unwrap(),
        [1; 1000],
        "the state that it was opened with"
    );
    remote.checkpoint(&|_| Ok(())).unwrap();
    let error = file.read_vec(150_000, 50_000).unwrap_err();
    assert!(
        error.kind() == Kind::Conflict && error.to_string().contains("since it was opened"),
        "{error}"
    );
}

#[test]
fn snapshots_keep_what_was() {
    let objects = memory();
    let remote = writer(&objects).unwrap();
    for n in 0..20 {
        remote
            .put(&format!("bands/{n:x}"), &[n; 100_000], Put::Replace)
            .unwrap();
    }
    remote.sync().unwrap();
    remote.checkpoint(&|_| Ok(())).unwrap();
    remote.create_snapshot("plain").unwrap();
    assert_eq!(
        remote.create_snapshot("plain").unwrap_err().kind(),
        Kind::Conflict
    );
    for n in 0..3 {
        remote
            .put(&format!("bands/{n:x}"), &[100 + n; 50_000], Put::Replace)
            .unwrap();
    }
    remote.remove("bands/13").unwrap();
    remote.create_snapshot("changed").unwrap();
    store(&remote, "bands/1", b"last").unwrap();
    remote.checkpoint(&|_| Ok(())).unwrap();
    assert!(
        count(&objects, ".bandsaw/objects/") < 16,
        "only what has changed is stored twice"
    );
    assert_eq!(load(&remote, "bands/1").unwrap(), b"last");
    remote.close().unwrap();
    let look = |name: &str| {
        Remote::open(
            objects.clone(),
            &RemoteOptions {
                snapshot: Some(name.into()),
                ..options(Access::ReadOnly)
            },
        )
        .unwrap()
    };
    let check = |remote: &Remote, which: &str| {
        for n in 0..20 {
            let expected = match (which, n) {
                ("changed", 0..3) => Some(vec![100 + n; 50_000]),
                ("changed", 19) => None,
                _ => Some(vec![n; 100_000]),
            };
            assert_eq!(
                load(remote, &format!("bands/{n:x}")),
                expected,
                "{which} {n}"
            );
        }
    };
    check(&look("plain"), "plain");
    check(&look("changed"), "changed");
    let remote = writer(&objects).unwrap();
    assert_eq!(
        remote
            .snapshots()
            .iter()
            .map(|one| one.name.as_str())
            .collect::<Vec<_>>(),
        ["changed", "plain"]
    );
    for which in ["plain", "changed", "plain"] {
        remote.restore_snapshot(which).unwrap();
        check(&remote, which);
        remote.checkpoint(&|_| Ok(())).unwrap();
        check(&reader(&synced(&objects)).unwrap(), which);
        check(&look("changed"), "changed");
        check(&look("plain"), "plain");
    }
    remote.delete_snapshot("plain").unwrap();
    remote.delete_snapshot("changed").unwrap();
    assert_eq!(
        remote.delete_snapshot("changed").unwrap_err().kind(),
        Kind::NotFound
    );
    check(&remote, "plain");
    assert_eq!(count(&objects, ".bandsaw/objects/"), 0);
}
