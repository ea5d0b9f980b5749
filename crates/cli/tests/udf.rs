//! UDF: a volume is read by every reading verb, and changed by none.

use std::fs;

use bandsaw::fs::udf::fixture::{UdfForm, UdfOptions, seal, volume};

use crate::common::{Scratch, stderr};

#[test]
fn a_volume_is_read_by_every_reading_verb() {
    let scratch = Scratch::new();
    for (form, revision) in [
        (UdfForm::Plain, 0x0201),
        (UdfForm::Virtual, 0x0150),
        (UdfForm::Metadata, 0x0250),
    ] {
        let bytes = volume(&UdfOptions {
            form,
            revision,
            ..UdfOptions::default()
        });
        scratch.write("disc.iso", &bytes);
        assert!(scratch.ok(&["ls", "disc.iso"]).contains("a.txt"));
        assert!(scratch.ok(&["tree", "disc.iso"]).contains("deep.txt"));
        assert_eq!(
            scratch.ok(&["cat", "disc.iso:/folder/deep.txt"]),
            "deep down"
        );
        assert_eq!(scratch.ok(&["cat", "disc.iso:Sample:/a.txt"]), "hello");
        scratch.ok(&["check", "disc.iso"]);
        let _ = fs::remove_dir_all(scratch.path("out"));
        scratch.ok(&["extract", "disc.iso:/many", "out"]);
        let extracted = fs::read(scratch.path("out/file 07")).unwrap();
        assert_eq!(extracted, b"file 07");
        let info = scratch.json(&["info", "disc.iso"]);
        let found = &info["volumes"][0];
        assert_eq!(
            (&found["file_system"], &found["name"]),
            (&"UDF".into(), &"Sample".into())
        );
        assert!(found.get("details").is_none(), "{info}");
        let refused = scratch.run(&["mkdir", "disc.iso:/new"]);
        assert!(!refused.status.success());
        assert!(stderr(&refused).contains("UDF"), "{}", stderr(&refused));
        assert!(fs::read(scratch.path("disc.iso")).unwrap() == bytes);
    }
}

#[test]
fn damage_is_reported_by_a_check_and_the_rest_is_extracted() {
    let scratch = Scratch::new();
    let mut bytes = volume(&UdfOptions::default());
    let at = bytes
        .windows(5)
        .position(|window| window == b"hello")
        .unwrap();
    bytes[at] ^= 1;
    scratch.write("damaged.iso", &bytes);
    assert!(!scratch.run(&["check", "damaged.iso"]).status.success());
    let extracted = scratch.run(&["extract", "damaged.iso:/folder", "out"]);
    assert!(
        !extracted.status.success() && stderr(&extracted).contains("again.txt"),
        "{}",
        stderr(&extracted)
    );
    let deep = fs::read(scratch.path("out/deep.txt")).unwrap();
    assert_eq!(deep, b"deep down");
}

#[test]
fn unsupported_structures_are_named() {
    let scratch = Scratch::new();
    let mut bytes = volume(&UdfOptions {
        form: UdfForm::Metadata,
        revision: 0x0250,
        ..UdfOptions::default()
    });
    for at in 0..bytes.len() - 30 {
        if bytes[at..].starts_with(b"*UDF Metadata Partition") {
            bytes[at..at + 13].copy_from_slice(b"*UDF Elephant");
        }
    }
    seal(&mut bytes);
    scratch.write("other.iso", &bytes);
    let refused = scratch.run(&["ls", "other.iso"]);
    assert!(
        !refused.status.success() && stderr(&refused).contains("*UDF Elephant"),
        "{}",
        stderr(&refused)
    );
}
