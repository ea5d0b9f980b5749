//! Successive and racing writers.

use std::thread;
use std::time::Duration;

use bandsaw::Kind;
use bandsaw::device::{Access, AfterDiscard, BlockDeviceExt};
use bandsaw::store::{Open, Put, Remote, RemoteOptions, Store};

use super::{count, load, memory, options, reader, store, thief, writer};

#[test]
fn the_log_is_compacted_and_old_entries_go() {
    let objects = memory();
    for session in 0..3_u64 {
        let remote = writer(&objects).unwrap();
        for n in 0..300_u64 {
            store(
                &remote,
                &format!("bands/{:x}", n % 7),
                &(1000 * session + n).to_le_bytes(),
            )
            .unwrap();
        }
        assert_eq!(
            load(&reader(&objects).unwrap(), "bands/5").unwrap(),
            (1000 * session + 299).to_le_bytes()
        );
        remote.close().unwrap();
        assert_eq!(
            store(&remote, "late", b"1").unwrap_err().kind(),
            Kind::Conflict
        );
    }
    let left = count(&objects, ".bandsaw/log/");
    assert!((3..600).contains(&left), "{left} entries");
    assert!(count(&objects, ".bandsaw/manifest/") <= 2);
}

#[test]
fn the_holder_of_a_lease_is_named_and_a_stale_writer_fails() {
    let objects = memory();
    let first = writer(&objects).unwrap();
    store(&first, "a", b"first").unwrap();
    let error = writer(&objects).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    let said = error.to_string();
    let host = bandsaw::store::LeaseHolder::here().host;
    for part in [
        host.as_str(),
        &std::process::id().to_string(),
        " UTC",
        "--steal-lease",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    first.put("a", b"second", Put::Replace).unwrap();
    let second = thief(&objects).unwrap();
    assert_eq!(load(&second, "a").unwrap(), b"first");
    let held = first.open("a", Open::Write).unwrap().unwrap();
    for _ in 0..2 {
        let error = first.sync().unwrap_err();
        assert!(
            error.kind() == Kind::Conflict && error.to_string().contains("taken over by process"),
            "{error}"
        );
    }
    assert_eq!(held.write_at(0, b"x").unwrap_err().kind(), Kind::Conflict);
    assert_eq!(
        held.set_len(9, AfterDiscard::Zeros).unwrap_err().kind(),
        Kind::Conflict
    );
    assert_eq!(held.read_vec(0, 6).unwrap(), b"second", "reads go on");
    drop((held, first));
    store(&second, "a", b"third").unwrap();
    drop(second);
    assert_eq!(load(&writer(&objects).unwrap(), "a").unwrap(), b"third");
}

#[test]
fn a_silent_writer_is_gone() {
    let objects = memory();
    let first = Remote::open(
        objects.clone(),
        &RemoteOptions {
            expiry: Duration::from_secs(3600),
            ..options(Access::ReadWrite)
        },
    );
    let first = first.unwrap();
    store(&first, "a", b"1").unwrap();
    let second = writer(&objects).unwrap();
    assert_eq!(store(&first, "a", b"2").unwrap_err().kind(), Kind::Conflict);
    store(&second, "a", b"3").unwrap();
}

/// Two writers take over the bundle from each other a thousand times. In each generation only one
/// of them gets a flush acknowledged.
#[test]
fn two_writers_race() {
    let objects = memory();
    let race = |me: u8| {
        let (mut done, mut last) = (Vec::new(), None);
        let mut tried = Vec::new();
        for round in 0..500_u64 {
            let Ok(remote) = thief(&objects) else {
                continue;
            };
            for step in 0..3 {
                let value = [&[me][..], &round.to_le_bytes(), &[step]].concat();
                tried.push(value.clone());
                match store(&remote, &format!("bands/{me}"), &value) {
                    Ok(()) => {
                        done.push((remote.generation(), me));
                        (last, tried) = (Some(value), Vec::new());
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Conflict, "{error}");
                        break;
                    }
                }
            }
        }
        (me, done, last, tried)
    };
    let race = &race;
    let results: Vec<_> = thread::scope(|scope| {
        let others: Vec<_> = (0..2).map(|me| scope.spawn(move || race(me))).collect();
        others
            .into_iter()
            .map(|other| other.join().unwrap())
            .collect()
    });
    let mut done: Vec<_> = results
        .iter()
        .flat_map(|(_, done, ..)| done.clone())
        .collect();
    done.sort();
    assert!(done.len() > 100, "{} flushes", done.len());
    for pair in done.windows(2) {
        assert!(
            pair[0].0 < pair[1].0 || pair[0].1 == pair[1].1,
            "two writers in generation {}",
            pair[0].0
        );
    }
    let read = reader(&objects).unwrap();
    for (me, _, last, tried) in results {
        let found = load(&read, &format!("bands/{me}"));
        assert!(
            found == last || tried.iter().any(|tried| Some(tried) == found.as_ref()),
            "{found:?} of {me}, not {last:?}"
        );
    }
}
