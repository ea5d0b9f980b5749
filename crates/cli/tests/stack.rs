//! Layers over images, through the command: `--shadow`, and `stack`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::{Scratch, stderr};

/// A disk image called `base.img` or so with a volume on it.
fn base(scratch: &Scratch, name: &str) {
    if !scratch.path("src").exists() {
        scratch.sample();
    }
    scratch.ok(&["create", name, "--from", "src", "--size", "40m"]);
}

/// Contents and date of a file.
fn state(path: &Path) -> (Vec<u8>, i64, i64) {
    let meta = fs::metadata(path).unwrap();
    (fs::read(path).unwrap(), meta.mtime(), meta.mtime_nsec())
}

/// Spoils the GPT at the front of a raw image, which `repair` writes anew.
fn spoil(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[512..520].fill(b'x');
    fs::write(path, bytes).unwrap();
}

#[test]
fn writes_go_to_the_shadow_file() {
    let scratch = Scratch::new();
    base(&scratch, "base.img");
    let good = fs::read(scratch.path("base.img")).unwrap();
    spoil(&scratch.path("base.img"));
    let before = state(&scratch.path("base.img"));
    // A missing shadow is made where something is to be written, and only there.
    assert!(
        scratch
            .fails(3, &["ls", "--shadow", "s.asif", "base.img"])
            .contains("s.asif")
    );
    assert!(!scratch.path("s.asif").exists());
    scratch.ok(&["repair", "--shadow", "s.asif", "base.img"]);
    assert!(
        state(&scratch.path("base.img")) == before,
        "the base was changed"
    );
    let info = scratch.json(&["info", "--shadow", "s.asif", "base.img"]);
    assert_eq!(info["warnings"].as_array().unwrap().len(), 0, "{info:#}");
    assert_eq!(info["layers"][0]["layer_role"], "overlay");
    assert_eq!(info["layers"][0]["size"], 40 << 20);
    let plain = scratch.json(&["info", "base.img"]);
    assert_eq!(plain["warnings"].as_array().unwrap().len(), 1, "{plain:#}");
    assert_eq!(plain["layers"].as_array().unwrap().len(), 0);
    // Every verb that opens an image.
    assert_eq!(
        scratch.ok(&["cat", "--shadow", "s.asif", "base.img:/hello.txt"]),
        "hello, world\n"
    );
    assert!(
        scratch
            .ok(&["tree", "--shadow=s.asif", "base.img"])
            .contains("Letters")
    );
    scratch.ok(&["convert", "--shadow", "s.asif", "base.img", "copy.img"]);
    assert!(fs::read(scratch.path("copy.img")).unwrap() == good);
    scratch.ok(&["extract", "--shadow", "s.asif", "base.img", "out"]);
    assert!(
        state(&scratch.path("base.img")) == before,
        "the base was changed"
    );
}

#[test]
fn any_image_takes_a_shadow() {
    let scratch = Scratch::new();
    base(&scratch, "base.img");
    spoil(&scratch.path("base.img"));
    for name in ["b.sparsebundle", "b.sparseimage", "b.asif"] {
        scratch.ok(&["convert", "base.img", name]);
        let images = || {
            let all = crate::common::inventory(&scratch.path("."));
            all.into_iter()
                .filter(|line| !line.contains(".shadow"))
                .collect::<Vec<_>>()
        };
        let before = images();
        let shadow = format!("{name}.shadow");
        scratch.ok(&["repair", "--shadow", &shadow, name]);
        assert_eq!(images(), before, "{name}");
        assert_eq!(
            scratch.ok(&["cat", "--shadow", &shadow, &format!("{name}:/hello.txt")]),
            "hello, world\n"
        );
        assert!(
            scratch.json(&["info", "--shadow", &shadow, name])["warnings"]
                .as_array()
                .unwrap()
                .is_empty()
        );
    }
}

#[test]
fn a_stack_is_made_shown_flattened_and_committed() {
    let scratch = Scratch::new();
    base(&scratch, "spoilt.img");
    spoil(&scratch.path("spoilt.img"));
    scratch.ok(&["convert", "spoilt.img", "base.asif"]);
    let made = scratch.json(&["stack", "create", "base.asif", "monday.asif"]);
    let uuid = |name: &str| {
        scratch.json(&["info", name])["storage"]["uuid"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let base_uuid = uuid("base.asif");
    assert_eq!(
        (&made["layer_role"], &made["parent"]),
        (&"overlay".into(), &base_uuid.clone().into())
    );
    scratch.ok(&["stack", "create", "--read-cache", "base.asif", "cache.asif"]);
    let bigger = scratch.json(&[
        "stack",
        "create",
        "--size",
        "50m",
        "base.asif",
        "monday.asif",
        "bigger.asif",
    ]);
    assert_eq!(
        (&bigger["parent"], &bigger["size"]),
        (&made["uuid"], &(50 << 20).into())
    );
    scratch.ok(&[
        "stack",
        "create",
        "base.asif",
        "monday.asif",
        "tuesday.asif",
    ]);
    let shown = scratch.json(&[
        "stack",
        "info",
        "base.asif",
        "cache.asif",
        "monday.asif",
        "tuesday.asif",
    ]);
    let kinds: Vec<_> = shown["layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|layer| layer["layer_role"].as_str().unwrap())
        .collect();
    assert_eq!(
        (kinds, &shown["size"]),
        (vec!["cache", "overlay", "overlay"], &(40 << 20).into())
    );
    let text = scratch.ok(&["stack", "info", "base.asif", "cache.asif", "monday.asif"]);
    assert!(
        text.contains("cache.asif") && text.contains(&format!("over {base_uuid}")),
        "{text}"
    );

    // Writes the first copy of the map, so that there is something to commit.
    scratch.ok(&[
        "repair",
        "--shadow",
        "monday.asif",
        "--shadow",
        "tuesday.asif",
        "base.asif",
    ]);
    let before = state(&scratch.path("base.asif"));
    scratch.ok(&[
        "stack",
        "flatten",
        "base.asif",
        "monday.asif",
        "tuesday.asif",
        "flat.img",
    ]);
    let flat = fs::read(scratch.path("flat.img")).unwrap();
    scratch.ok(&[
        "stack",
        "commit",
        "base.asif",
        "monday.asif",
        "tuesday.asif",
    ]);
    assert!(
        state(&scratch.path("base.asif")) == before,
        "the base was changed"
    );
    let again = |name: &str, layers: &[&str]| {
        scratch.ok(&[&["stack", "flatten", "base.asif"], layers, &[name]].concat());
        assert!(fs::read(scratch.path(name)).unwrap() == flat, "{layers:?}");
    };
    again("with the empty layer.img", &["monday.asif", "tuesday.asif"]);
    again("without it.img", &["monday.asif"]);
    let report = scratch.json(&["stack", "commit", "base.asif", "monday.asif"]);
    assert_eq!(
        (
            report["schema"].as_u64(),
            report["path"].as_str(),
            report["resumed_at"].as_u64()
        ),
        (Some(2), Some("base.asif"), Some(0))
    );
    again("committed.img", &[]);
    again("and over it.img", &["monday.asif"]);

    // The layer above knows that its parent was changed, and so does the cache.
    for stale in ["tuesday.asif", "cache.asif"] {
        let error = scratch.fails(4, &["ls", "--shadow", stale, "base.asif"]);
        assert!(
            error.contains(stale)
                && error.contains("base.asif has UUID")
                && error.contains("changed"),
            "{error}"
        );
    }
}

#[test]
fn commits_go_into_raw_images_and_bundles() {
    let scratch = Scratch::new();
    base(&scratch, "base.img");
    let good = fs::read(scratch.path("base.img")).unwrap();
    spoil(&scratch.path("base.img"));
    scratch.ok(&["convert", "base.img", "base.sparsebundle"]);
    for name in ["base.img", "base.sparsebundle"] {
        scratch.ok(&["repair", "--shadow", "s", name]);
        scratch.ok(&["stack", "commit", name, "s"]);
        scratch.ok(&["convert", name, "now.img", "--overwrite"]);
        assert!(fs::read(scratch.path("now.img")).unwrap() == good, "{name}");
        // Nothing is odd about the empty layer.
        assert!(
            scratch.json(&["info", "--shadow", "s", name])["warnings"]
                .as_array()
                .unwrap()
                .is_empty()
        );
        fs::remove_file(scratch.path("s")).unwrap();
    }
}

#[test]
fn a_layer_alone_is_no_image() {
    let scratch = Scratch::new();
    base(&scratch, "base.asif");
    base(&scratch, "base.img");
    for name in ["base.asif", "base.img"] {
        scratch.ok(&["stack", "create", name, "layer.asif"]);
        for verb in ["info", "ls", "tree", "verify"] {
            let output = scratch.run(&[verb, "layer.asif"]);
            assert_eq!(output.status.code(), Some(3), "{verb}: {}", stderr(&output));
            let error = stderr(&output);
            assert!(
                error.contains(&format!("`{name} --shadow"))
                    || error.contains(&format!("`./{name} --shadow")),
                "{error}"
            );
        }
        fs::remove_file(scratch.path("layer.asif")).unwrap();
    }
}

#[test]
fn mismatched_layers_are_refused_by_name() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "one.asif", "--size", "8m"]);
    scratch.ok(&["create", "other.asif", "--size", "8m"]);
    scratch.ok(&["create", "raw.img", "--size", "8m"]);
    scratch.ok(&["create", "longer.img", "--size", "9m"]);
    scratch.ok(&["stack", "create", "one.asif", "layer.asif"]);
    scratch.ok(&["stack", "create", "raw.img", "over raw.asif"]);
    scratch.ok(&["stack", "create", "--read-cache", "one.asif", "cache.asif"]);
    let names = scratch.names();
    for (code, args, report) in [
        (
            4,
            &["info", "--shadow", "layer.asif", "other.asif"][..],
            "layer.asif: stack: the layer was created over an image with UUID",
        ),
        (
            4,
            &["info", "--shadow", "layer.asif", "raw.img"],
            "raw.img has no UUID",
        ),
        (
            4,
            &["info", "--shadow", "over raw.asif", "one.asif"],
            "over an image with no UUID",
        ),
        (
            4,
            &["info", "--shadow", "over raw.asif", "longer.img"],
            "created over raw.img, a disk of 8388608 bytes",
        ),
        (
            3,
            &["stack", "info", "layer.asif", "one.asif"],
            "a layer over the image with UUID",
        ),
        (
            3,
            &["stack", "info", "one.asif", "missing.asif"],
            "missing.asif",
        ),
        (
            3,
            &["stack", "commit", "one.asif", "missing.asif", "layer.asif"],
            "missing.asif",
        ),
        (
            2,
            &["stack", "info", "one.asif", "layer.asif", "layer.asif"],
            "given twice",
        ),
        (2, &["stack", "info", "one.asif", "one.asif"], "given twice"),
        (
            6,
            &["stack", "info", "one.asif", "raw.img"],
            "raw.img: image: not a layer or shadow file",
        ),
        (
            2,
            &["stack", "commit", "one.asif", "cache.asif"],
            "cannot commit a cache",
        ),
        (
            2,
            &["stack", "commit", "one.asif", "cache.asif", "layer.asif"],
            "leave it out",
        ),
        (
            2,
            &[
                "stack",
                "create",
                "--read-cache",
                "one.asif",
                "cache.asif",
                "new.asif",
            ],
            "already has a cache",
        ),
        (
            2,
            &[
                "stack",
                "create",
                "--block-size",
                "1024",
                "one.asif",
                "new.asif",
            ],
            "512 or 4096",
        ),
        (
            4,
            &["stack", "create", "one.asif", "layer.asif"],
            "--overwrite",
        ),
        (
            2,
            &["stack", "info", "--shadow", "layer.asif", "one.asif"],
            "without the option",
        ),
        (2, &["stack", "create", "one.asif"], "stack create"),
    ] {
        // The known properties of the images are told all the same.
        let output = scratch.run(args);
        let error = stderr(&output);
        assert!(
            output.status.code() == Some(code) && error.contains(report),
            "{args:?}: {error}"
        );
        assert_eq!(scratch.names(), names, "{args:?}");
    }
}

#[test]
fn a_raw_base_that_was_changed_is_reported() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "raw.img", "--size", "8m"]);
    scratch.ok(&["stack", "create", "raw.img", "layer.asif"]);
    let file = fs::File::options()
        .write(true)
        .open(scratch.path("raw.img"))
        .unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let output = scratch.run(&["info", "--shadow", "layer.asif", "raw.img"]);
    assert!(
        output.status.success() && stderr(&output).contains("may have changed"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_cache_is_filled_by_what_is_written_beside_it() {
    let scratch = Scratch::new();
    base(&scratch, "base.img");
    spoil(&scratch.path("base.img"));
    scratch.ok(&["stack", "create", "--read-cache", "base.img", "cache.asif"]);
    let empty = fs::metadata(scratch.path("cache.asif")).unwrap().blocks();
    scratch.ok(&["ls", "--shadow", "cache.asif", "base.img"]);
    assert_eq!(
        fs::metadata(scratch.path("cache.asif")).unwrap().blocks(),
        empty,
        "reading changes nothing"
    );
    scratch.ok(&[
        "repair",
        "--shadow",
        "cache.asif",
        "--shadow",
        "s.asif",
        "base.img",
    ]);
    assert!(fs::metadata(scratch.path("cache.asif")).unwrap().blocks() > empty);
    assert_eq!(
        scratch.ok(&[
            "cat",
            "--shadow",
            "cache.asif",
            "--shadow",
            "s.asif",
            "base.img:/hello.txt"
        ]),
        "hello, world\n"
    );
}
