//! FAT and exFAT: volumes are created from folders, read by every reading verb, and changed.

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
    let refused = scratch.run(&["ln", "-s", "to", "b.img:/new"]);
    assert!(!refused.status.success());
    let said = stderr(&refused);
    assert!(
        said.contains("FAT") && said.contains("symbolic links"),
        "{said}"
    );
}

/// Runs a program of the system; `None` if it is missing.
fn program(name: &str, args: &[&str]) -> Option<String> {
    let output = std::process::Command::new(name)
        .args(args)
        .env(
            "PATH",
            "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin",
        )
        .env("MTOOLS_SKIP_CHECK", "1")
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {args:?}: {said}{errors}");
    Some(said)
}

#[test]
fn volumes_are_changed_in_place() {
    for (fs_name, size, maker, judge) in [
        ("fat32", "40m", &["mkfs.fat", "-F", "32"][..], "fsck.fat"),
        ("exfat", "8m", &["mkfs.exfat"][..], "fsck.exfat"),
    ] {
        for is_theirs in [false, true] {
            let scratch = Scratch::new();
            scratch.ok(&[
                "create", "a.img", "--fs", fs_name, "--layout", "none", "--size", size,
            ]);
            let image = scratch.path("a.img");
            let image = image.to_str().unwrap();
            if is_theirs {
                let args = [&maker[1..], &[image]].concat();
                if program(maker[0], &args).is_none() {
                    continue;
                }
            }
            let at = |path: &str| format!("a.img:{path}");
            scratch.ok(&["mkdir", "-p", &at("/Letters/2026")]);
            scratch.write("new.txt", "new contents");
            scratch.ok(&["put", "--from", "new.txt", &at("/Letters/a long name.text")]);
            scratch.ok(&["put", "--from", "new.txt", &at("/OTHER.TXT")]);
            scratch.fails(4, &["put", "--from", "new.txt", &at("/other.txt")]);
            scratch.ok(&["mv", &at("/OTHER.TXT"), &at("/Letters/2026/moved.txt")]);
            scratch.ok(&["put", "--from", "new.txt", &at("/copied")]);
            scratch.ok(&["rm", &at("/Letters/2026/moved.txt")]);
            scratch.write("new.txt", "newer contents");
            scratch.ok(&["put", "--overwrite", "--from", "new.txt", &at("/copied")]);
            scratch.ok(&["touch", "--date", "1000000000", &at("/copied")]);
            scratch.ok(&["check", "a.img"]);
            assert_eq!(
                scratch.ok(&["cat", &at("/letters/A LONG name.text")]),
                "new contents"
            );
            assert_eq!(scratch.ok(&["cat", &at("/copied")]), "newer contents");
            assert_eq!(scratch.ok(&["ls", &at("/Letters/2026")]), "");
            let Some(_) = program(judge, &["-n", image]) else {
                continue;
            };
            if fs_name == "fat32"
                && let Some(said) = program("mtype", &["-i", image, "::/Letters/a long name.text"])
            {
                assert_eq!(said, "new contents");
                let listed = program("mdir", &["-i", image, "-b", "-/", "::/"]).unwrap();
                assert!(
                    listed.contains("copied") && !listed.contains("moved"),
                    "{listed}"
                );
            }
        }
    }
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
