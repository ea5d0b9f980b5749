//! FAT and exFAT: volumes are created from folders, read by every reading verb, and changed by none.

use std::fs;

use crate::common::{Scratch, stderr};

/// Writes a folder of sources.
fn source(scratch: &Scratch) {
    fs::create_dir_all(scratch.path("src/folder/inner")).unwrap();
    scratch.write("src/short.txt", "hello");
    scratch.write("src/folder/inner/a long name.text", "deep down");
}

#[test]
fn volumes_are_created_and_read() {
    let scratch = Scratch::new();
    source(&scratch);
    for (fs_name, format, size, partition) in [
        ("fat12", "FAT", "2m", "DOS_FAT_12"),
        ("MS-DOS FAT16", "FAT", "10m", "DOS_FAT_16_S"),
        ("fat32", "FAT", "40m", "DOS_FAT_32"),
        ("MS-DOS", "FAT", "10m", "DOS_FAT_16_S"),
        ("exfat", "exFAT", "4m", "Windows_NTFS"),
    ] {
        let made = [
            "create",
            "disk.dmg",
            "--format",
            "udzo",
            "--overwrite",
            "--fs",
            fs_name,
        ];
        let rest = ["--size", size, "--volname", "Docs", "--from", "src"];
        scratch.ok(&[&made[..], &rest].concat());
        assert!(
            scratch.ok(&["ls", "disk.dmg"]).contains("short.txt"),
            "{fs_name}"
        );
        let path = "disk.dmg:/folder/inner/a long name.text";
        assert_eq!(scratch.ok(&["cat", path]), "deep down", "{fs_name}");
        scratch.ok(&["check", "disk.dmg"]);
        scratch.ok(&["extract", "disk.dmg", "out"]);
        let extracted = fs::read(scratch.path("out/folder/inner/a long name.text")).unwrap();
        assert_eq!(extracted, b"deep down", "{fs_name}");
        fs::remove_dir_all(scratch.path("out")).unwrap();
        let info = scratch.json(&["info", "disk.dmg"]);
        assert_eq!(info["volumes"][0]["file_system"], format, "{info}");
        assert!(info["volumes"][0].get("files").is_none(), "{info}");
        let found = &info["partition_map"]["partitions"][0]["partition_type"];
        assert_eq!(found, partition, "{info}");
    }
}

#[test]
fn the_same_source_gives_the_same_bytes() {
    let scratch = Scratch::new();
    source(&scratch);
    for fs_name in ["fat", "exfat"] {
        let made = |name: &str| {
            let args = [
                "create",
                name,
                "--fs",
                fs_name,
                "--volname",
                "Docs",
                "--from",
                "src",
            ];
            let output = scratch
                .command(&args)
                .env("SOURCE_DATE_EPOCH", "1700000000")
                .output();
            assert!(output.unwrap().status.success());
            fs::read(scratch.path(name)).unwrap()
        };
        let (one, other) = (format!("{fs_name} 1.img"), format!("{fs_name} 2.img"));
        assert!(made(&one) == made(&other), "{fs_name}");
    }
}

#[test]
fn contents_that_fat_cannot_hold_are_refused_by_name() {
    let scratch = Scratch::new();
    source(&scratch);
    std::os::unix::fs::symlink("short.txt", scratch.path("src/link")).unwrap();
    let refused = scratch.run(&[
        "create",
        "a.img",
        "--fs",
        "fat",
        "--volname",
        "A",
        "--from",
        "src",
    ]);
    let said = stderr(&refused);
    assert!(said.contains("link") && said.contains("symbolic"), "{said}");
    assert!(!scratch.path("a.img").exists());
    let apm = [
        "create", "a.img", "--fs", "exfat", "--layout", "spud", "--size", "4m",
    ];
    assert!(stderr(&scratch.run(&apm)).contains("no partition type"));
    scratch.ok(&["create", "b.img", "--fs", "fat", "--size", "4m"]);
    let refused = scratch.run(&["mkdir", "b.img:/new"]);
    assert!(!refused.status.success());
    assert!(
        stderr(&refused).contains("not changed"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn damage_is_reported_by_a_check() {
    let scratch = Scratch::new();
    source(&scratch);
    let args = [
        "create",
        "a.img",
        "--fs",
        "fat",
        "--layout",
        "none",
        "--volname",
        "A",
    ];
    scratch.ok(&[&args[..], &["--from", "src"]].concat());
    let mut bytes = fs::read(scratch.path("a.img")).unwrap();
    bytes[512 + 8] ^= 0x70;
    scratch.write("b.img", &bytes);
    assert!(!scratch.run(&["check", "b.img"]).status.success());
}

#[test]
fn an_existing_partition_is_formatted() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "a.img", "--size", "50m", "--fs", "hfs+"]);
    for fs_name in ["fat32", "exfat", "hfs+"] {
        let args = [
            "format",
            "a.img",
            "--fs",
            fs_name,
            "--volname",
            "New",
            "--erase",
        ];
        scratch.ok(&args);
        scratch.ok(&["check", "a.img"]);
        let info = scratch.json(&["info", "a.img"]);
        let name = info["volumes"][0]["name"].as_str().unwrap().to_uppercase();
        assert_eq!(name, "NEW", "{info}");
    }
}
