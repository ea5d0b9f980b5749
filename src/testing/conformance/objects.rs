//! The conformance suite for object stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::store::{ObjectMeta, Objects, ObjectsExt, Put, SharedBytes};
use crate::testing::Random;
use crate::testing::conformance::Promise;
use crate::{Error, Kind};

/// Runs the suite on the object stores that `make` creates. Each must be empty: a separate prefix
/// suffices.
pub fn objects(make: impl Fn() -> Arc<dyn Objects>) {
    for (promise, check) in CHECKS {
        check(&ObjectsCase {
            promise,
            objects: make(),
        });
    }
}

type Check = fn(&ObjectsCase);

const CHECKS: &[(&str, Check)] = &[
    ("an object is read as it was put", reads_what_was_put),
    ("keys lead nowhere else", keys_lead_nowhere_else),
    ("keys are any text", keys_are_any_text),
    (
        "a put replaces, or leaves what is there",
        put_replaces_or_leaves,
    ),
    (
        "of several that put an absent key one succeeds",
        one_put_wins,
    ),
    ("stat knows length and change", stat_knows),
    ("a copy is independent", copies),
    ("remove leaves nothing", removes),
    (
        "list meets what begins with the prefix, once and in order",
        lists,
    ),
    ("a long listing is whole", lists_many),
    ("large objects arrive whole", large_objects),
    ("an object arrives in pieces, all or nothing", in_pieces),
    ("bytes come from several buffers and go to several", buffers),
    ("requests go side by side", side_by_side),
];

struct ObjectsCase {
    promise: &'static str,
    objects: Arc<dyn Objects>,
}

impl Promise for ObjectsCase {
    fn promise(&self) -> &'static str {
        self.promise
    }
}

impl ObjectsCase {
    #[track_caller]
    fn put(&self, key: &str, bytes: &[u8]) -> ObjectMeta {
        let put = self.must(
            format_args!("put {key}"),
            self.objects.put(key, bytes, Put::Replace),
        );
        self.claim(put, format_args!("put {key}: replacing was refused"));
        let meta = self.stat(key);
        meta.unwrap_or_else(|| panic!("{}: {key} is not there", self.promise))
    }

    #[track_caller]
    fn read(&self, key: &str, offset: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0xa5; len];
        let n = self.must(
            format_args!("read {key} at {offset}"),
            self.objects.read_at(key, offset, &mut bytes),
        )?;
        self.claim(
            bytes[n..].iter().all(|&b| b == 0xa5),
            "wrote past what it said it read",
        );
        bytes.truncate(n);
        Some(bytes)
    }

    #[track_caller]
    fn expect(&self, key: &str, expected: &[u8]) {
        let found = self.read(key, 0, expected.len() + 7);
        self.claim(
            found.as_deref() == Some(expected),
            format_args!("{key} holds other bytes than it should"),
        );
    }

    #[track_caller]
    fn stat(&self, key: &str) -> Option<ObjectMeta> {
        self.must(format_args!("stat {key}"), self.objects.stat(key))
    }

    #[track_caller]
    fn expect_keys(&self, prefix: &str, expected: &[&str]) {
        let mut found = Vec::new();
        let listed = self.objects.list(prefix, &mut |key, _| {
            found.push(key.to_owned());
            Ok(())
        });
        self.must(format_args!("list {prefix:?}"), listed);
        self.claim(
            found == expected,
            format_args!("list {prefix:?}: met {found:?}, expected {expected:?}"),
        );
    }
}

fn reads_what_was_put(case: &ObjectsCase) {
    let bytes = Random::new(1).bytes(100_000);
    case.claim(
        case.read("bands/0", 0, 10).is_none(),
        "read what nobody put",
    );
    let meta = case.put("bands/0", &bytes);
    case.claim(
        meta.len == 100_000,
        format_args!("{meta:?} of 100,000 bytes"),
    );
    case.expect("bands/0", &bytes);
    for (offset, len) in [
        (0, 1),
        (1, 99_999),
        (50_000, 4096),
        (99_999, 1),
        (12_345, 0),
        (0, 0),
    ] {
        let part = case.read("bands/0", offset as u64, len);
        case.claim(
            part.as_deref() == Some(&bytes[offset..offset + len]),
            format_args!("{len} bytes at {offset} are others"),
        );
    }
    let tail = case.read("bands/0", 99_990, 4096);
    case.claim(
        tail.as_deref() == Some(&bytes[99_990..]),
        "a read over the end is not short",
    );
    for offset in [100_000, 100_001, 1 << 40] {
        case.claim(
            case.read("bands/0", offset, 10) == Some(Vec::new()),
            format_args!("read something at {offset}"),
        );
    }
    case.put("empty", b"");
    case.claim(
        case.read("empty", 0, 10) == Some(Vec::new()),
        "an empty object is not empty",
    );
}

fn keys_lead_nowhere_else(case: &ObjectsCase) {
    case.put("file", b"1");
    for key in [
        "",
        "/",
        "/file",
        "..",
        "../file",
        "a/../file",
        "./file",
        "a//b",
        "a/",
        "a\0b",
    ] {
        case.must_refuse(
            format_args!("read {key:?}"),
            Kind::Invalid,
            case.objects.read_at(key, 0, &mut [0]),
        );
        case.must_refuse(
            format_args!("put {key:?}"),
            Kind::Invalid,
            case.objects.put(key, b"", Put::Replace),
        );
        case.must_refuse(
            format_args!("stat {key:?}"),
            Kind::Invalid,
            case.objects.stat(key),
        );
        case.must_refuse(
            format_args!("copy from {key:?}"),
            Kind::Invalid,
            case.objects.copy(key, "x"),
        );
        case.must_refuse(
            format_args!("copy to {key:?}"),
            Kind::Invalid,
            case.objects.copy("file", key),
        );
        case.must_refuse(
            format_args!("remove {key:?}"),
            Kind::Invalid,
            case.objects.remove(key),
        );
    }
    case.expect_keys("", &["file"]);
}

fn keys_are_any_text(case: &ObjectsCase) {
    let mut keys = [
        "Möbel & Töpfe/a b+c",
        "100%/50%25",
        "#1?x=y",
        "'quoted' \"so\"",
        "日本/é",
        "a~b!c(d)*",
        ".bandsaw/log/1",
    ];
    keys.sort();
    keys.iter()
        .for_each(|key| drop(case.put(key, key.as_bytes())));
    case.expect_keys("", &keys);
    for key in keys {
        case.expect(key, key.as_bytes());
        case.must(format_args!("copy {key}"), case.objects.copy(key, "copy"));
        case.expect("copy", key.as_bytes());
        case.must(format_args!("remove {key}"), case.objects.remove(key));
        case.claim(
            case.stat(key).is_none(),
            format_args!("{key} is still there"),
        );
    }
}

fn put_replaces_or_leaves(case: &ObjectsCase) {
    let put = |bytes, cond| case.must("put", case.objects.put("deep/key", bytes, cond));
    case.claim(put(b"one", Put::IfAbsent), "a free key is taken");
    case.claim(!put(b"two", Put::IfAbsent), "a taken key is free");
    case.expect("deep/key", b"one");
    case.claim(put(b"three", Put::Replace), "replacing is refused");
    case.expect("deep/key", b"three");
    case.must("remove", case.objects.remove("deep/key"));
    case.claim(
        put(b"four", Put::IfAbsent),
        "a key that is free again is taken",
    );
    case.expect("deep/key", b"four");
}

fn one_put_wins(case: &ObjectsCase) {
    for round in 0..5 {
        let key = format!("race/{round}");
        let winner = AtomicUsize::new(usize::MAX);
        thread::scope(|scope| {
            for n in 0..8 {
                let (key, winner) = (&key, &winner);
                scope.spawn(move || {
                    let put =
                        case.objects
                            .put(key, format!("writer {n}").as_bytes(), Put::IfAbsent);
                    if case.must("put", put) {
                        let before = winner.swap(n, Ordering::SeqCst);
                        case.claim(
                            before == usize::MAX,
                            format_args!("writers {before} and {n} both put {key}"),
                        );
                    }
                });
            }
        });
        let winner = winner.into_inner();
        case.claim(winner < 8, format_args!("nobody put {key}"));
        case.expect(&key, format!("writer {winner}").as_bytes());
    }
}

fn stat_knows(case: &ObjectsCase) {
    case.claim(case.stat("none").is_none(), "knows what nobody put");
    let put = case.put("folder/file", &[1; 10_000]);
    case.claim(case.stat("folder").is_none(), "a folder is an object");
    let before = case.stat("folder/file").expect("known");
    case.claim(
        before.len == 10_000 && before.tag == put.tag,
        format_args!("{before:?} after {put:?}"),
    );
    case.put("folder/file", &[2; 10_000]);
    let after = case.stat("folder/file").expect("known");
    case.claim(after.tag != before.tag, "other bytes have the same tag");
    case.claim(
        after.modified >= before.modified,
        format_args!("{after:?} is older than {before:?}"),
    );
}

fn copies(case: &ObjectsCase) {
    let bytes = Random::new(4).bytes(70_000);
    case.put("from", &bytes);
    case.put("to", b"old");
    case.must("copy over another", case.objects.copy("from", "to"));
    case.must("copy", case.objects.copy("from", "new/to"));
    case.put("from", b"changed");
    case.expect("to", &bytes);
    case.expect("new/to", &bytes);
    case.must_refuse(
        "copy nothing",
        Kind::NotFound,
        case.objects.copy("none", "there"),
    );
    case.expect_keys("", &["from", "new/to", "to"]);
}

fn removes(case: &ObjectsCase) {
    case.put("x/a", b"1");
    case.put("x/ab", b"2");
    case.must("remove nothing", case.objects.remove("x"));
    case.must("remove nothing", case.objects.remove("y"));
    case.claim(
        case.must("remove", case.objects.remove("x/a")),
        "did not find what was there",
    );
    case.claim(
        case.stat("x/a").is_none() && case.read("x/a", 0, 1).is_none(),
        "a removed object is there",
    );
    case.must("remove it again", case.objects.remove("x/a"));
    case.expect_keys("", &["x/ab"]);
}

fn lists(case: &ObjectsCase) {
    for key in [
        "Info.plist",
        "bands/0",
        "bands/10",
        "bands/1",
        "bands/1f",
        "bands2/1",
        "token",
        "deep/er/still",
    ] {
        case.put(key, key.as_bytes());
    }
    case.expect_keys("bands/", &["bands/0", "bands/1", "bands/10", "bands/1f"]);
    case.expect_keys("bands/1", &["bands/1", "bands/10", "bands/1f"]);
    case.expect_keys(
        "bands",
        &["bands/0", "bands/1", "bands/10", "bands/1f", "bands2/1"],
    );
    case.expect_keys("t", &["token"]);
    case.expect_keys("none/", &[]);
    let listed = case.objects.list("", &mut |key, meta| {
        case.claim(
            Some(meta.len) == case.stat(key).map(|meta| meta.len),
            format_args!("{key}: {meta:?}"),
        );
        case.claim(
            Some(&meta.tag) == case.stat(key).map(|meta| meta.tag).as_ref(),
            format_args!("{key}: {meta:?}"),
        );
        Ok(())
    });
    case.must("list all", listed);
    let mut calls = 0;
    let stopped = case.objects.list("bands/", &mut |_, _| {
        calls += 1;
        Err(Error::new(Kind::Cancelled, "test", "enough"))
    });
    case.must_refuse("list with an error", Kind::Cancelled, stopped);
    case.claim(
        calls == 1,
        format_args!("an error did not stop the listing: {calls} calls"),
    );
}

/// Lists more keys than the 1,000 that one page holds.
fn lists_many(case: &ObjectsCase) {
    let keys: Vec<String> = (0..1_100).map(|n| format!("bands/{n:04x}")).collect();
    thread::scope(|scope| {
        for part in keys.chunks(138) {
            scope.spawn(move || part.iter().for_each(|key| drop(case.put(key, b"."))));
        }
    });
    case.expect_keys(
        "bands/",
        &keys.iter().map(String::as_str).collect::<Vec<_>>(),
    );
}

/// Stores objects that are larger than the maximum of a single upload.
fn large_objects(case: &ObjectsCase) {
    let mut bytes = Random::new(6).bytes(1 << 20).repeat(40);
    bytes.extend(b"and a tail");
    let meta = case.put("large", &bytes);
    case.claim(meta.len == bytes.len() as u64, format_args!("{meta:?}"));
    case.claim(
        case.stat("large")
            .is_some_and(|seen| seen.tag == meta.tag && seen.len == meta.len),
        "stat knows another",
    );
    case.expect("large", &bytes);
    case.must("copy", case.objects.copy("large", "copy"));
    case.claim(
        case.stat("copy").is_some_and(|copy| copy.len == meta.len),
        "the copy is short",
    );
}

/// Checks that a multipart upload becomes visible once all of it is stored and the caller agrees.
fn in_pieces(case: &ObjectsCase) {
    let len = (20 << 20) + 12_345;
    let byte_at = |at: u64| (at / 4096 * 7 + at % 251) as u8;
    let fill = |offset: u64, into: &mut [u8]| {
        (offset..)
            .zip(into)
            .for_each(|(at, byte)| *byte = byte_at(at));
        Ok(())
    };
    let no = || Err(Error::new(Kind::Cancelled, "test", "no"));
    case.put("pieces", b"before");
    let before = case.stat("pieces");
    let mut asked = 0;
    let refused = case.objects.put_large("pieces", len, &fill, &mut || {
        asked += 1;
        case.expect("pieces", b"before");
        no()
    });
    case.must_refuse("put against advice", Kind::Cancelled, refused);
    let cannot = |offset: u64, into: &mut [u8]| {
        if offset + into.len() as u64 == len {
            no()
        } else {
            fill(offset, into)
        }
    };
    let broken = case.objects.put_large("pieces", len, &cannot, &mut || {
        panic!("asked without all pieces")
    });
    case.must_refuse("put without the last piece", Kind::Cancelled, broken);
    case.claim(
        asked == 1 && case.stat("pieces") == before,
        "what was not put has left something",
    );
    case.must(
        "put in pieces",
        case.objects.put_large("pieces", len, &fill, &mut || Ok(())),
    );
    case.expect("pieces", &(0..len).map(byte_at).collect::<Vec<_>>());
    case.must_refuse(
        "put nowhere",
        Kind::Invalid,
        case.objects.put_large("../x", len, &fill, &mut || Ok(())),
    );
    case.expect_keys("", &["pieces"]);
}

fn buffers(case: &ObjectsCase) {
    let all = Random::new(8).bytes(21 << 20);
    // One length that is uploaded in one request, and one that may not be.
    for len in [100_000, all.len()] {
        let (mut pieces, mut expected) = (Vec::new(), Vec::new());
        for (n, bytes) in all[..len].chunks(70_000).enumerate() {
            let used = bytes.len() - n % 3 * 1000;
            pieces.push(SharedBytes::new(Arc::new(bytes.to_vec()), used));
            expected.extend_from_slice(&bytes[..used]);
        }
        case.must(
            "put what buffers hold",
            case.objects.put_gathered("many", pieces, Put::Replace),
        );
        case.expect("many", &expected);
    }
    let meta = case.put("many", &all[..300_000]);
    // The object ends within the third.
    let mut buffers = [vec![0; 100_001], vec![0; 0], vec![0; 150_000], vec![7; 5]];
    let mut into: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
    let found = case.must(
        "read to buffers",
        case.objects.read_scattered("many", 60_000, &mut into),
    );
    case.claim(
        found == Some((240_000, meta.tag)),
        format_args!("{found:?} of 240,000 bytes"),
    );
    case.claim(
        buffers[0] == all[60_000..160_001] && buffers[2][..139_999] == all[160_001..300_000],
        "others were read",
    );
    case.claim(
        buffers[2][139_999..].iter().all(|&b| b == 0) && buffers[3] == [7; 5],
        "wrote past what it said it read",
    );
    let nothing = case.must(
        "read what is not there",
        case.objects.read_scattered("none", 0, &mut [&mut [0; 9]]),
    );
    case.claim(nothing.is_none(), "read what nobody put");
}

fn side_by_side(case: &ObjectsCase) {
    thread::scope(|scope| {
        for n in 0..8_u64 {
            scope.spawn(move || {
                for round in 0..8 {
                    let (key, bytes) =
                        (format!("t/{n}"), Random::new(n * 100 + round).bytes(20_000));
                    case.put(&key, &bytes);
                    case.expect(&key, &bytes);
                }
            });
        }
    });
    case.expect_keys(
        "t/",
        &["t/0", "t/1", "t/2", "t/3", "t/4", "t/5", "t/6", "t/7"],
    );
}
