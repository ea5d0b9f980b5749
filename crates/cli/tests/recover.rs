//! `recover`: files that the command itself deleted before.

use std::fs;
use std::path::Path;

use crate::common::{Scratch, stderr};

/// Bytes that no other file has.
const LETTER: u8 = b'x';

/// Creates an image with two files, and deletes one of them.
fn deleted(scratch: &Scratch, name: &str, system: &str) {
    scratch.ok(&["create", name, "--fs", system, "--size", "24m"]);
    scratch.write("letter", vec![LETTER; 50_000]);
    scratch.write("other", vec![b'o'; 3000]);
    scratch.ok(&["mkdir", &format!("{name}:/Letters")]);
    for file in ["letter", "other"] {
        let place = format!("{name}:/Letters/{file}.txt");
        scratch.ok(&["put", "--from", file, &place]);
    }
    let before = fs::read(scratch.path(name)).unwrap();
    scratch.ok(&["rm", &format!("{name}:/Letters/letter.txt")]);
    // The command punches holes where files were, which macOS does not on a disk.
    let mut after = fs::read(scratch.path(name)).unwrap();
    let blocks = before.chunks(512).zip(after.chunks_mut(512));
    for (before, after) in blocks {
        if before[0] == LETTER && after.iter().all(|&byte| byte == 0) {
            after.copy_from_slice(before);
        }
    }
    fs::write(scratch.path(name), after).unwrap();
}

#[test]
fn deleted_files_are_listed_and_written_with_a_report() {
    let scratch = Scratch::new();
    for (name, system) in [("h.img", "hfs+j"), ("a.img", "apfs")] {
        deleted(&scratch, name, system);
        let image = fs::read(scratch.path(name)).unwrap();
        let report = scratch.json(&["recover", name, "--list"]);
        let found = report["found"].as_array().unwrap();
        let letter = found
            .iter()
            .find(|file| file["volume_path"] == "/Letters/letter.txt")
            .unwrap_or_else(|| panic!("{report:#}"));
        assert_eq!(letter["certainty"], "whole", "{report:#}");
        assert_eq!(letter["size"], 50_000);
        assert!(
            found
                .iter()
                .all(|file| file["volume_path"] != "/Letters/other.txt")
        );
        let text = scratch.ok(&["recover", name, "--list", "--name", "LETTER*"]);
        assert!(text.contains("/Letters/letter.txt"), "{text}");
        let none = scratch.ok(&["recover", name, "--list", "--min-size", "1m"]);
        assert!(!none.contains("letter"), "{none}");

        let out = format!("{name}.out");
        let page = format!("{name}.html");
        scratch.ok(&["recover", name, &out, "--report", &page]);
        let written = scratch.path(&out).join("Letters/letter.txt");
        assert_eq!(fs::read(&written).unwrap(), vec![LETTER; 50_000]);
        assert!(
            fs::read_to_string(scratch.path(&page))
                .unwrap()
                .contains("letter.txt")
        );
        // Again, nothing is written anew, and nothing else is replaced.
        scratch.ok(&["recover", name, &out]);
        fs::write(&written, b"changed").unwrap();
        scratch.fails(4, &["recover", name, &out]);
        assert_eq!(fs::read(&written).unwrap(), b"changed");
        scratch.ok(&["recover", name, &out, "--overwrite"]);
        assert_eq!(fs::read(&written).unwrap(), vec![LETTER; 50_000]);
        for end in ["json", "csv"] {
            let report = format!("{name}.{end}");
            scratch.ok(&["recover", name, "--list", "--report", &report]);
            let text = fs::read_to_string(scratch.path(&report)).unwrap();
            assert!(text.contains("letter.txt"), "{text}");
        }
        let report = fs::read(scratch.path(&format!("{name}.json"))).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(report["volumes"][0]["damaged"], false);
        assert_eq!(
            fs::read(scratch.path(name)).unwrap(),
            image,
            "nothing is written"
        );
    }
}

#[test]
fn volumes_of_a_disk_without_a_map_are_found() {
    let scratch = Scratch::new();
    deleted(&scratch, "h.img", "hfs+j");
    let info = scratch.json(&["info", "h.img"]);
    // Without a partition map, and behind a megabyte of other bytes.
    let whole = fs::read(scratch.path("h.img")).unwrap();
    let start = info["volumes"][0]["offset"].as_u64().unwrap_or(0) as usize;
    let mut disk = vec![0x11; 1 << 20];
    disk.extend(&whole[start..]);
    scratch.write("lost.img", &disk);
    let output = scratch.run(&["recover", "lost.img", "--list", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["volumes"][0]["lost"], true, "{report:#}");
    let found = report["found"].as_array().unwrap();
    assert!(
        found
            .iter()
            .any(|file| file["volume_path"] == "/Letters/letter.txt"),
        "{report:#}"
    );
}

#[test]
fn wrong_arguments_are_refused() {
    let scratch = Scratch::new();
    deleted(&scratch, "a.img", "apfs");
    scratch.fails(2, &["recover", "a.img"]);
    scratch.fails(2, &["recover", "a.img", "out", "--list"]);
    scratch.fails(2, &["recover", "a.img", "--list", "--report", "report.txt"]);
    scratch.fails(2, &["recover", "a.img", "--list", "--after", "2026-02-30"]);
    scratch.fails(3, &["recover", "missing.img", "--list"]);
    assert!(!Path::new(&scratch.path("out")).exists());
}
