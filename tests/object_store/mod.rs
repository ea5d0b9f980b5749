//! Buckets of real stores that are started here: Ceph through its S3 gateway, and versitygw.
#![cfg(feature = "s3")]

mod killed;
mod proxy;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bandsaw::Kind;
use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::device::{Access, BlockDevice, BlockDeviceExt};
use bandsaw::open::{self, NetworkOptions, OpenOptions};
use bandsaw::progress::Silent;
use bandsaw::store::{
    Bucket, BucketOptions, BucketPlace, Credentials, MemoryStore, Objects, ObjectsExt, Open, Put,
    Remote, RemoteOptions, Store,
};
use bandsaw::testing::{Random, conformance};

use crate::common::ceph::Ceph;
use crate::common::versity::Versity;

/// Returns an unused prefix.
fn new_prefix() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    format!(
        "p{}/Some image.sparsebundle",
        COUNTER.fetch_add(1, Ordering::Relaxed)
    )
}

fn options(ceph: &Ceph) -> BucketOptions {
    options_at(ceph.endpoint())
}

fn options_at(endpoint: String) -> BucketOptions {
    let credentials = Some(Credentials::new(Ceph::KEY, Ceph::SECRET));
    BucketOptions {
        endpoint: Some(endpoint),
        credentials,
        ..BucketOptions::default()
    }
}

fn bucket(ceph: &Ceph, name: &str) -> Bucket {
    bucket_at(ceph.endpoint(), name)
}

fn bucket_at(endpoint: String, name: &str) -> Bucket {
    Bucket::new(
        BucketPlace {
            bucket: name.to_owned(),
            prefix: new_prefix(),
        },
        &options_at(endpoint),
    )
    .unwrap()
}

#[test]
#[ignore = "full: a cluster of Ceph, for 90 s"]
fn ceph_does_what_objects_do() {
    let Some(ceph) = Ceph::start_with(2) else {
        return;
    };
    ceph.make_bucket("test");
    conformance::objects(|| Arc::new(bucket(&ceph, "test")));
    a_bundle_that_was_copied_there_opens(&ceph);
    large_bands_are_plain_objects(Arc::new(bucket(&ceph, "test")));
    refusals_say_what_to_do(&ceph);
    limits_are_kept(&ceph);
    a_gateway_that_is_restarted_is_waited_for(&ceph);
    proxy::a_connection_that_loses_and_repeats(&ceph);
    killed::writers_are_killed(&ceph);
    killed::two_processes_race(&ceph);
    // Last, because the OSD is not restarted.
    killed::servers_are_killed(&ceph);
}

#[test]
fn versitygw_does_what_objects_do() {
    let Some(versity) = Versity::start() else {
        return;
    };
    conformance::objects(|| Arc::new(bucket_at(versity.endpoint(), "test")));
    large_bands_are_plain_objects(Arc::new(bucket_at(versity.endpoint(), "test")));
}

/// A bundle that was uploaded file by file, as `aws s3 sync` does.
fn a_bundle_that_was_copied_there_opens(ceph: &Ceph) {
    static VARIABLES: OnceLock<[(&str, String); 4]> = OnceLock::new();
    let made = Arc::new(MemoryStore::default());
    let bundle = Bundle::create(
        made.clone(),
        &BundleOptions {
            len: 1 << 30,
            band_size: Some(1 << 20),
        },
    )
    .unwrap();
    let bytes = Random::new(1).bytes(5 << 20);
    bundle.write_at(700 << 20, &bytes).unwrap();
    bundle.flush().unwrap();
    drop(bundle);
    let place = BucketPlace {
        bucket: "test".to_owned(),
        prefix: "a:b/Copied 100%.sparsebundle".to_owned(),
    };
    let bucket = Bucket::new(place.clone(), &options(ceph)).unwrap();
    let copied = made.list("", &mut |entry| {
        let file = made.open(entry.name, Open::Read)?.expect("a listed file");
        bucket
            .put(
                entry.name,
                &file.read_vec(0, file.info().len as usize)?,
                Put::Replace,
            )
            .map(drop)
    });
    copied.unwrap();

    VARIABLES.set(ceph.variables()).unwrap();
    let variables: fn(&str) -> Option<String> = |name| {
        VARIABLES
            .get()?
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.clone())
    };
    let reading = OpenOptions {
        network: NetworkOptions {
            variables,
            ..NetworkOptions::default()
        },
        ..OpenOptions::default()
    };
    let url = place.to_string();
    let image = open::open(Path::new(&url), &reading).unwrap();
    assert_eq!(image.disk().info().len, 1 << 30);
    assert_eq!(
        image.disk().read_vec(700 << 20, bytes.len()).unwrap(),
        bytes
    );
    assert_eq!(image.disk().read_vec(0, 4096).unwrap(), [0; 4096]);
    assert!(
        open::examine(Path::new(&url), &reading, &Silent)
            .unwrap()
            .problems
            .worst()
            .is_none()
    );
    drop(image);

    // It has a single writer, and is stored under its plain names again after it is closed.
    let writing = OpenOptions {
        access: Access::ReadWrite,
        ..reading
    };
    let image = open::open(Path::new(&url), &writing).unwrap();
    let more = Random::new(2).bytes(3 << 20);
    image.disk().write_at(300 << 20, &more).unwrap();
    image.disk().flush().unwrap();
    let second = open::open(Path::new(&url), &writing).unwrap_err();
    assert_eq!(second.kind(), Kind::Conflict, "{second}");
    // Readers see flushed data although the plain names are outdated.
    let seen = open::open(Path::new(&url), &reading).unwrap();
    assert_eq!(seen.disk().read_vec(300 << 20, more.len()).unwrap(), more);
    drop((seen, image));
    let copy = Arc::new(MemoryStore::default());
    let synced = bucket.list("", &mut |name, meta| {
        let mut bytes = vec![0; meta.len as usize];
        bucket.read_at(name, 0, &mut bytes)?;
        if name.starts_with(".bandsaw/") {
            Ok(())
        } else {
            copy.put(name, &bytes, Put::Replace).map(drop)
        }
    });
    synced.unwrap();
    let plain = Bundle::open(copy, Access::ReadOnly).unwrap();
    assert_eq!(plain.read_vec(300 << 20, more.len()).unwrap(), more);
    assert_eq!(plain.read_vec(700 << 20, bytes.len()).unwrap(), bytes);
    drop(open::open(Path::new(&url), &writing).unwrap());
    let nothing = format!("{url}x");
    assert_eq!(
        open::open(Path::new(&nothing), &writing)
            .unwrap_err()
            .kind(),
        Kind::NotFound
    );
}

/// A band of 128 MiB consists of many objects while it is written, and of one of Apple's once it is
/// closed, even after a small change.
fn large_bands_are_plain_objects(objects: Arc<dyn Objects>) {
    const BAND: u64 = 128 << 20;
    let open = || {
        let options = RemoteOptions {
            access: Access::ReadWrite,
            memory: 32 << 20,
            ..RemoteOptions::default()
        };
        Remote::open(objects.clone(), &options).unwrap()
    };
    let bundle = Bundle::create(
        open(),
        &BundleOptions {
            len: BAND + (70 << 20),
            band_size: Some(BAND),
        },
    )
    .unwrap();
    let piece = |n: u64| Random::new(n).bytes(9 << 20);
    let mut places = vec![(0, 1), (BAND - (4 << 20), 2), (BAND + (61 << 20), 3)];
    places
        .iter()
        .for_each(|(at, n)| bundle.write_at(*at, &piece(*n)).unwrap());
    bundle.flush().unwrap();
    drop(bundle);
    for round in 0..3 {
        let read = |band: &str, at: u64, len: usize| {
            let mut bytes = vec![0; len];
            assert_eq!(
                objects.read_at(band, at, &mut bytes).unwrap(),
                Some(len),
                "{band} at {at}"
            );
            bytes
        };
        // All of the second band exists, and the first up to its last write.
        for (at, n) in &places {
            let expected = piece(*n);
            let in_first = BAND.saturating_sub(*at).min(expected.len() as u64) as usize;
            let (first, second) = expected.split_at(in_first);
            assert!(
                first.is_empty() || read("bands/0", *at, first.len()) == first,
                "round {round}"
            );
            assert!(
                second.is_empty()
                    || read("bands/1", at.saturating_sub(BAND), second.len()) == second,
                "round {round}"
            );
        }
        assert!(!objects_are_left(&*objects), "round {round}");
        let bundle = Bundle::open(open(), Access::ReadWrite).unwrap();
        let (at, n) = (BAND + (30 << 20) + round * 4096, 4 + round);
        bundle.write_at(at, &piece(n)).unwrap();
        places.retain(|(_, n)| *n < 4);
        places.push((at, n));
        bundle.flush().unwrap();
        drop(bundle);
    }
}

/// Returns true if there are objects below `.bandsaw/objects/`.
fn objects_are_left(objects: &dyn Objects) -> bool {
    let mut found = false;
    objects
        .list(".bandsaw/objects/", &mut |_, _| {
            found = true;
            Ok(())
        })
        .unwrap();
    found
}

fn refusals_say_what_to_do(ceph: &Ceph) {
    let read = |bucket: &Bucket| bucket.read_at("Info.plist", 0, &mut [0; 10]);
    let error = read(&bucket(ceph, "nosuchbucket")).unwrap_err();
    assert!(
        error.kind() == Kind::NotFound
            && error
                .to_string()
                .contains("bucket nosuchbucket does not exist"),
        "{error}"
    );
    let place = || BucketPlace {
        bucket: "test".to_owned(),
        prefix: new_prefix(),
    };
    let with = |key: &str, secret: &str| {
        let mut options = options(ceph);
        options.credentials = Some(Credentials::new(key, secret));
        read(&Bucket::new(place(), &options).unwrap())
            .unwrap_err()
            .to_string()
    };
    let wrong_key = with("AKother", Ceph::SECRET);
    assert!(wrong_key.contains("AWS_ACCESS_KEY_ID"), "{wrong_key}");
    let wrong_secret = with(Ceph::KEY, "SKother12345678");
    assert!(
        wrong_secret.contains("AWS_SECRET_ACCESS_KEY") && !wrong_secret.contains("SKother"),
        "{wrong_secret}"
    );
    let mut nobody = options(ceph);
    nobody.endpoint = Some("http://127.0.0.1:1".to_owned());
    let unreachable = read(&Bucket::new(place(), &nobody).unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        unreachable.contains("cannot connect to http://127.0.0.1:1"),
        "{unreachable}"
    );
}

fn limits_are_kept(ceph: &Ceph) {
    let full = bucket(ceph, "test");
    ceph.set_quota("test", 1);
    let error = (0..200).find_map(|n| {
        full.put(&format!("bands/{n:x}"), &[1; 1 << 20], Put::Replace)
            .err()
    });
    ceph.set_quota("test", -1);
    let error = error.expect("a quota is kept").to_string();
    assert!(error.contains("full or over its quota for test"), "{error}");
}

fn a_gateway_that_is_restarted_is_waited_for(ceph: &Ceph) {
    let bucket = bucket(ceph, "test");
    bucket.put("token", b"before", Put::Replace).unwrap();
    ceph.daemon("rgw", "kill");
    std::thread::scope(|scope| {
        let put = scope.spawn(|| bucket.put("token", b"while it is away", Put::Replace));
        ceph.daemon("rgw", "start");
        put.join().unwrap().unwrap();
    });
    let mut bytes = [0; 16];
    assert_eq!(bucket.read_at("token", 0, &mut bytes).unwrap(), Some(16));
    assert_eq!(&bytes, b"while it is away");
}
