//! One verdict on the contents of a disk: `check`, `diagnose`, `repair` and `info` agree in every
//! container.

use std::fs;

use serde_json::Value;

use crate::common::{Scratch, stderr};

const LEN: usize = 8 << 20;

/// The verdict that is expected of a disk.
struct Expected {
    /// In the results of `check` and `diagnose`.
    conclusion: &'static str,
    /// In the results of all four verbs.
    contents: &'static str,
    /// Exit code of `check` and `diagnose`.
    code: i32,
    /// Exit code and conclusion of `repair`.
    repair: (i32, &'static str),
    info: i32,
}

const BLANK: Expected = Expected {
    conclusion: "sound",
    contents: "blank",
    code: 0,
    repair: (10, "sound"),
    info: 0,
};

/// Disks, each with its verdict, made from one with an HFS+ volume in `range`.
fn disks(mapped: &[u8], range: std::ops::Range<usize>) -> Vec<(&'static str, Vec<u8>, Expected)> {
    let with = |change: &dyn Fn(&mut [u8])| {
        let mut disk = mapped.to_vec();
        change(&mut disk[range.clone()]);
        disk
    };
    vec![
        ("blank", vec![0; LEN], BLANK),
        ("map", with(&|volume| volume.fill(0)), BLANK),
        (
            "unknown",
            with(&|volume| volume.fill(0x11)),
            Expected {
                conclusion: "unknown",
                contents: "unknown",
                code: 6,
                repair: (6, "unknown"),
                info: 0,
            },
        ),
        (
            "foreign",
            with(&|volume| {
                volume.fill(0);
                volume[3..11].copy_from_slice(b"NTFS    ");
            }),
            Expected {
                conclusion: "unchecked",
                contents: "foreign",
                code: 0,
                repair: (10, "unchecked"),
                info: 0,
            },
        ),
        (
            "header",
            with(&|volume| volume[1024 + 40..1024 + 44].fill(0xa5)),
            Expected {
                conclusion: "damaged",
                contents: "volumes",
                code: 5,
                repair: (0, "sound"),
                info: 0,
            },
        ),
        (
            "headers",
            with(&|volume| {
                volume[1024 + 40..1024 + 44].fill(0xa5);
                let alternate = volume.len() - 1024;
                volume[alternate + 40..alternate + 44].fill(0xa5);
            }),
            Expected {
                conclusion: "damaged",
                contents: "volumes",
                code: 5,
                repair: (5, "damaged"),
                info: 5,
            },
        ),
    ]
}

#[test]
fn every_verb_has_the_same_verdict() {
    let scratch = Scratch::new();
    scratch.write("key", "key");
    scratch.write("src/file", "contents");
    let create = ["create", "disk.img", "--size", "8m"];
    scratch.ok(&[&create[..], &["--fs", "hfs+", "--from", "src"]].concat());
    let facts = scratch.json(&["info", "disk.img"]);
    let partition = &facts["partition_map"]["partitions"][0];
    let number = |name: &str| partition[name].as_u64().unwrap() as usize;
    let range = number("offset")..number("offset") + number("size");
    let mapped = fs::read(scratch.path("disk.img")).unwrap();
    assert_eq!(mapped.len(), LEN);
    let key = ["--passfile", "key"];
    let cheap = ["--iterations", "150000"];
    let encrypt = [&["--encrypt", "--new-passfile", "key"][..], &cheap].concat();
    let containers: [(&str, &[&str], &[&str]); 7] = [
        ("a.img", &["--format", "udrw"], &[]),
        ("a.dmg", &["--format", "udzo"], &[]),
        ("a.sparsebundle", &["--band-size", "1m"], &[]),
        ("a.sparseimage", &[], &[]),
        ("a.asif", &[], &[]),
        ("key.dmg", &encrypt, &key),
        ("key.sparsebundle", &encrypt, &key),
    ];
    for (disk, bytes, expected) in disks(&mapped, range) {
        scratch.write("raw", bytes);
        for (image, making, opening) in containers {
            let make = ["convert", "--overwrite", "--image-format", "udrw", "raw"];
            scratch.ok(&[&make[..], &[image], making].concat());
            let place = format!("{disk} in {image}");
            let run = |verb: &str, code: i32| -> Value {
                let mut args = vec![verb, image, "--json"];
                args.extend(opening);
                let done = scratch.run(&args);
                let text = format!("{verb} of {place}: {}", stderr(&done));
                assert_eq!(done.status.code(), Some(code), "{text}");
                let found: Value = serde_json::from_slice(&done.stdout).expect(&text);
                assert_eq!(found["contents"], expected.contents, "{text}");
                found
            };
            for verb in ["check", "diagnose"] {
                let found = run(verb, expected.code);
                assert_eq!(found["conclusion"], expected.conclusion, "{verb}: {place}");
            }
            run("info", expected.info);
            let (code, conclusion) = match (image, expected.repair) {
                // A compressed image is never changed.
                ("a.dmg", (0, _)) => (5, "damaged"),
                (_, repair) => repair,
            };
            let found = run("repair", code);
            assert_eq!(found["conclusion"], conclusion, "repair: {place}");
        }
    }
}
