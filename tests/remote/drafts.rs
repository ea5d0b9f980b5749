//! New bundles: complete or absent.

use std::sync::Arc;

use bandsaw::container::sparsebundle::{Bundle, BundleOptions, is_bundle};
use bandsaw::device::{Access, BlockDevice, BlockDeviceExt};
use bandsaw::store::{Objects, ObjectsExt, Put, Remote};
use bandsaw::testing::Random;
use bandsaw::testing::object_faults::{FaultyObjects, Request, Slip};
use bandsaw::{Error, Kind};

use super::{BUNDLE, MIB, count, memory, options, reader, writer};

fn draft(objects: &Arc<dyn Objects>, overwrite: bool) -> bandsaw::Result<Arc<Remote>> {
    Remote::draft(objects.clone(), &options(Access::ReadWrite), overwrite)
}

/// Fills a draft with a bundle that begins with these bytes, with more data than memory holds.
fn fill(draft: &Arc<Remote>, bytes: &[u8]) -> bandsaw::Result<()> {
    let bundle = Bundle::create(
        draft.clone(),
        &BundleOptions {
            len: 32 * MIB,
            ..BUNDLE
        },
    )?;
    for n in 0..12 {
        bundle.write_at((20 - n) * MIB, &vec![n as u8; 900_000])?;
    }
    bundle.write_at(0, bytes)?;
    bundle.flush()
}

fn is_whole(objects: &Arc<dyn Objects>, bytes: &[u8]) -> bool {
    let bundle = Bundle::open(reader(objects).unwrap(), Access::ReadOnly).unwrap();
    bundle.info().len == 32 * MIB && bundle.read_vec(0, bytes.len()).unwrap() == bytes
}

#[test]
fn nothing_is_seen_of_a_new_bundle_before_all_of_it() {
    let objects = memory();
    let bytes = Random::new(1).bytes(3 * MIB as usize);
    let first = draft(&objects, false).unwrap();
    let second = draft(&objects, false).unwrap();
    fill(&first, &bytes).unwrap();
    assert!(
        count(&objects, ".bandsaw/objects/") > 0,
        "what is in memory is bounded"
    );
    assert!(!is_bundle(&*reader(&objects).unwrap()).unwrap());
    fill(&second, &bytes[1..]).unwrap();
    first.publish(&|| Ok(())).unwrap();
    assert!(is_whole(&objects, &bytes));
    let late = second.publish(&|| Ok(())).unwrap_err();
    assert_eq!(late.kind(), Kind::Conflict, "{late}");
    drop(second);
    // It is now an ordinary open bundle.
    let bundle = Bundle::open(first.clone(), Access::ReadWrite).unwrap();
    bundle.write_at(0, &[7; 512]).unwrap();
    bundle.flush().unwrap();
    assert_eq!(writer(&objects).unwrap_err().kind(), Kind::Conflict);
    drop((bundle, first));
    assert_eq!(
        count(&objects, ".bandsaw/objects/"),
        0,
        "all of it has its plain name"
    );
    assert_eq!(draft(&objects, false).unwrap_err().kind(), Kind::Conflict);
    assert!(is_whole(&objects, &[&[7; 512], &bytes[512..]].concat()));
}

#[test]
fn a_draft_that_is_dropped_leaves_nothing() {
    let objects = memory();
    let given_up = draft(&objects, false).unwrap();
    fill(&given_up, &[1; 100_000]).unwrap();
    let stop = || Err(Error::new(Kind::Cancelled, "test", "stopped"));
    assert_eq!(given_up.publish(&stop).unwrap_err().kind(), Kind::Cancelled);
    drop(given_up);
    assert_eq!(count(&objects, ""), 0);
    // Leftovers of a killed process block nobody, and are removed.
    objects
        .put(
            ".bandsaw/objects/1-0000000000000001-0",
            b"left",
            Put::Replace,
        )
        .unwrap();
    let next = draft(&objects, false).unwrap();
    fill(&next, &[2; 100_000]).unwrap();
    next.publish(&|| Ok(())).unwrap();
    drop(next);
    assert!(is_whole(&objects, &[2; 100_000]));
    assert_eq!(count(&objects, ".bandsaw/objects/"), 0);
}

#[test]
fn a_bundle_is_replaced_in_one_step_and_its_snapshots_stay() {
    let objects = memory();
    let old = writer(&objects).unwrap();
    let bundle = Bundle::create(old.clone(), &BUNDLE).unwrap();
    bundle.write_at(0, &[1; 4096]).unwrap();
    bundle.flush().unwrap();
    drop(bundle);
    old.create_snapshot("before").unwrap();
    drop(old);
    let was_there = |snapshot: Option<&str>| {
        let options = bandsaw::store::RemoteOptions {
            snapshot: snapshot.map(str::to_owned),
            ..options(Access::ReadOnly)
        };
        let seen = Bundle::open(
            Remote::open(objects.clone(), &options).unwrap(),
            Access::ReadOnly,
        )
        .unwrap();
        assert_eq!(
            (seen.info().len, seen.read_vec(0, 4096).unwrap()),
            (BUNDLE.len, vec![1; 4096])
        );
    };
    let kept = count(&objects, ".bandsaw/objects/");
    let given_up = draft(&objects, true).unwrap();
    fill(&given_up, &[2; 4096]).unwrap();
    assert_eq!(
        writer(&objects).unwrap_err().kind(),
        Kind::Conflict,
        "it is held meanwhile"
    );
    was_there(None);
    drop(given_up);
    was_there(None);
    assert_eq!(count(&objects, ".bandsaw/objects/"), kept, "the snapshot");
    let next = draft(&objects, true).unwrap();
    fill(&next, &[3; 4096]).unwrap();
    was_there(None);
    next.publish(&|| Ok(())).unwrap();
    drop(next);
    assert!(is_whole(&objects, &[3; 4096]));
    was_there(Some("before"));
    assert_eq!(count(&objects, "bands/"), 12, "zeros are not stored");
}

#[test]
fn requests_that_fail_leave_all_or_nothing() {
    let bytes = Random::new(3).bytes(500_000);
    let mut published = 0;
    for n in 1..24 {
        let objects = memory();
        let faulty = FaultyObjects::new(objects.clone());
        let slip = if n % 2 == 0 {
            Slip::Lost
        } else {
            Slip::AnswerLost
        };
        for request in [Request::Put, Request::List, Request::Read] {
            faulty.plan(request, n * 9, slip);
        }
        let faulty: Arc<dyn Objects> = faulty;
        let made = draft(&faulty, false).and_then(|draft| {
            fill(&draft, &bytes)
                .and_then(|()| draft.publish(&|| Ok(())))
                .map(|()| draft)
        });
        match made {
            Ok(draft) => {
                published += 1;
                drop(draft);
                assert!(is_whole(&objects, &bytes), "{n}");
            }
            Err(_) => assert!(
                !is_bundle(&*reader(&objects).unwrap()).unwrap() || is_whole(&objects, &bytes),
                "{n}"
            ),
        }
        // Neither blocks a retry.
        let again = draft(&objects, true).unwrap();
        fill(&again, &bytes[9..]).unwrap();
        again.publish(&|| Ok(())).unwrap();
        drop(again);
        assert!(is_whole(&objects, &bytes[9..]), "{n}");
    }
    assert!((1..23).contains(&published), "{published}");
}
