//! `bandsaw format`: new volumes in images that exist.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::common::Scratch;
use bandsaw::device::{BlockDevice, Memory};
use bandsaw::partition::gpt::{self, Guids, NewPartition};
use bandsaw::partition::{APPLE_HFS, EFI_SYSTEM};

const MIB: u64 = 1 << 20;

#[test]
fn every_file_system_in_every_container() {
    let scratch = Scratch::new();
    scratch.write("key", "secret\n");
    scratch.write("letter", "dear diary");
    let images: &[(&str, &[&str])] = &[
        ("d.img", &[]),
        ("d.sparsebundle", &["--fs", "hfs+"]),
        ("d.sparseimage", &["--fs", "apfs"]),
        ("d.asif", &["--format", "asif"]),
        (
            "e.sparsebundle",
            &[
                "--encrypt",
                "--passfile",
                "key",
                "--fs",
                "hfsx",
                "--layout",
                "none",
            ],
        ),
        ("e.img", &["--encrypt", "--passfile", "key"]),
    ];
    for (image, how) in images {
        scratch.ok(&[&["create", image, "--size", "32m"], *how].concat());
        let encrypted = how.contains(&"--encrypt");
        let open: &[&str] = if encrypted {
            &["--passfile", "key"]
        } else {
            &[]
        };
        let all = [
            "hfs+j",
            "apfs",
            "hfs+",
            "hfsx",
            "hfsx+j",
            "apfs-case-sensitive",
        ];
        // Every run of the command takes its time to derive the key.
        for fs in &all[..if encrypted { 1 } else { all.len() }] {
            let args = [
                &["format", image, "--erase", "--fs", fs, "--volname", "Mine"],
                open,
            ]
            .concat();
            let made = scratch.json(&args);
            assert_eq!(
                (made["name"].as_str(), made["block_size"].as_u64()),
                (Some("Mine"), Some(4096)),
                "{made}"
            );
            scratch.ok(&[&["check", image], open].concat());
            let info = scratch.ok(&[&["info", image], open].concat());
            let kind = fs.split(['+', '-']).next().unwrap().to_uppercase();
            assert!(
                info.contains(&kind) && info.contains("Mine"),
                "{fs}: {info}"
            );
            if how.contains(&"--fs") && !how.contains(&"none") {
                let partition = if kind == "APFS" {
                    "Apple_APFS"
                } else {
                    "Apple_HFS"
                };
                assert!(info.contains(partition), "{fs}: {info}");
            }
            assert_eq!(
                scratch.ok(&[&["ls", image], open].concat()),
                "",
                "the files of a journal are hidden"
            );
            let own = if fs.ends_with("+j") {
                ".journal\n.journal_info_block\n"
            } else {
                ""
            };
            assert_eq!(
                scratch.ok(&[&["ls", "--system-files", image], open].concat()),
                own
            );
            if kind != "APFS" {
                scratch.ok(&[
                    &["put", "--from", "letter", &format!("{image}:/letter")],
                    open,
                ]
                .concat());
                scratch.ok(&[&["check", image], open].concat());
            }
        }
    }
}

#[test]
fn nothing_goes_unasked() {
    let scratch = Scratch::new();
    let source = scratch.sample();
    scratch.ok(&[
        "create",
        "d.img",
        "--fs",
        "hfs+",
        "--size",
        "16m",
        "--volname",
        "Docs",
        "--from",
        source.to_str().unwrap(),
    ]);
    let before = fs::read(scratch.path("d.img")).unwrap();
    let error = scratch.fails(4, &["format", "d.img"]);
    assert!(
        error.contains("HFS+ volume \"Docs\"") && error.contains("--erase"),
        "{error}"
    );
    // A failed format leaves everything, and does not take the type of the partition along.
    scratch.fails(
        2,
        &[
            "format",
            "d.img",
            "--erase",
            "--fs",
            "apfs",
            "--block-size",
            "8k",
        ],
    );
    scratch.fails(2, &["format", "d.img", "--erase", "--block-size", "1000"]);
    scratch.fails(2, &["format", "d.img", "--erase", "--volname", "a/b"]);
    scratch.fails(2, &["format", "d.img:/hello.txt", "--erase"]);
    scratch.fails(3, &["format", "d.img:#2", "--erase"]);
    scratch.fails(3, &["format", "d.img:Other", "--erase"]);
    assert!(fs::read(scratch.path("d.img")).unwrap() == before);

    scratch.ok(&["create", "small.img", "--size", "400k"]);
    scratch.fails(1, &["format", "small.img"]);
    scratch.ok(&["create", "blank.img", "--size", "16m"]);
    OpenOptions::new()
        .write(true)
        .open(scratch.path("blank.img"))
        .unwrap()
        .write_all_at(b"!", 5 * MIB)
        .unwrap();
    let error = scratch.fails(4, &["format", "blank.img", "--image-format", "udrw"]);
    assert!(error.contains("it has data"), "{error}");
    scratch.ok(&[
        "format",
        "blank.img",
        "--image-format",
        "udrw",
        "--erase",
        "--block-size",
        "512",
    ]);
    scratch.ok(&["check", "blank.img"]);
    assert_eq!(fs::read(scratch.path("blank.img")).unwrap()[5 << 20], 0);

    scratch.ok(&["convert", "d.img", "d.dmg", "--format", "udzo"]);
    let error = scratch.fails(1, &["format", "d.dmg", "--erase"]);
    assert!(error.contains("bandsaw convert"), "{error}");
    scratch.ok(&[
        "format",
        "d.dmg",
        "--erase",
        "--shadow",
        "over.asif",
        "--volname",
        "Over",
    ]);
    assert!(
        scratch
            .ok(&["info", "d.dmg", "--shadow", "over.asif"])
            .contains("Over")
    );
    assert_eq!(scratch.ok(&["cat", "d.dmg:/hello.txt"]), "hello, world\n");
}

#[test]
fn space_of_what_was_there_returns() {
    let scratch = Scratch::new();
    scratch.write("big/file", vec![0x5a; 40 << 20]);
    for image in ["d.sparsebundle", "d.sparseimage", "d.asif", "d.img"] {
        scratch.ok(&["create", image, "--size", "64m", "--from", "big"]);
        let stored = || scratch.json(&["du", image])["allocated"].as_u64().unwrap();
        let before = stored();
        scratch.ok(&["format", image, "--erase", "--fs", "hfs+j"]);
        assert!(
            before > 40 * MIB && stored() < 3 * MIB,
            "{image}: {before}, then {}",
            stored()
        );
        scratch.ok(&["check", image]);
    }
}

/// A disk with a small EFI partition and two others.
fn three_partitions() -> Vec<u8> {
    let disk = Memory::zeros(64 * MIB as usize);
    let partition = |range, type_guid, name: &str| NewPartition {
        range,
        type_guid,
        guid: Guids::random().partition,
        name: name.into(),
    };
    let partitions = [
        partition(MIB..2 * MIB, EFI_SYSTEM, "EFI"),
        partition(2 * MIB..22 * MIB, APPLE_HFS, "one"),
        partition(22 * MIB..60 * MIB, APPLE_HFS, "two"),
    ];
    gpt::create(&disk, 512, Guids::random().disk, &partitions).unwrap();
    disk.flush().unwrap();
    disk.to_vec()
}

#[test]
fn one_of_several_partitions() {
    let scratch = Scratch::new();
    scratch.write("d.img", three_partitions());
    scratch.write("letter", "dear diary");
    let error = scratch.fails(2, &["format", "d.img"]);
    assert!(
        error.contains("partition 2 (Apple_HFS), partition 3 (Apple_HFS)"),
        "{error}"
    );
    scratch.ok(&["format", "d.img:#2", "--volname", "One"]);
    scratch.ok(&["format", "d.img:#3", "--volname", "Two", "--fs", "apfs"]);
    scratch.ok(&["put", "--from", "letter", "d.img:One:/letter"]);
    let error = scratch.fails(2, &["format", "d.img:Two", "--erase"]);
    assert!(error.contains("APFS container"), "{error}");
    scratch.fails(4, &["format", "d.img:#3"]);
    scratch.ok(&["format", "d.img:#3", "--erase", "--volname", "Three"]);
    assert_eq!(scratch.ok(&["cat", "d.img:One:/letter"]), "dear diary");
    let info = scratch.ok(&["info", "d.img"]);
    assert!(
        info.contains("Three") && !info.contains("Apple_APFS"),
        "{info}"
    );
    scratch.ok(&["format", "d.img:Three", "--erase", "--volname", "Four"]);
    scratch.ok(&["check", "d.img"]);
    // A map that is not in order is not relied on.
    let mut disk = fs::read(scratch.path("d.img")).unwrap();
    let end = disk.len();
    disk[end - 512..].fill(0);
    scratch.write("d.img", &disk);
    let error = scratch.fails(5, &["format", "d.img:#3", "--erase"]);
    assert!(error.contains("bandsaw repair"), "{error}");
    assert!(fs::read(scratch.path("d.img")).unwrap() == disk);
}

#[test]
fn types_that_a_map_cannot_change() {
    let scratch = Scratch::new();
    let mut disk = vec![0; 16 * MIB as usize];
    let mut entry = [0; 16];
    entry[4] = 0x0c;
    entry[8..12].copy_from_slice(&2048_u32.to_le_bytes());
    entry[12..].copy_from_slice(&(16_u32 * 2048 - 2048).to_le_bytes());
    disk[446..462].copy_from_slice(&entry);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    scratch.write("d.img", &disk);
    let error = scratch.fails(6, &["format", "d.img:#1"]);
    assert!(
        error.contains("Windows_FAT_32") && error.contains("MBR"),
        "{error}"
    );
    disk[450] = 0xaf;
    scratch.write("d.img", &disk);
    scratch.fails(6, &["format", "d.img", "--fs", "apfs"]);
    scratch.ok(&["format", "d.img", "--fs", "hfsx"]);
    scratch.ok(&["check", "d.img"]);
}

#[test]
fn a_mebibyte_is_enough_for_apfs() {
    let scratch = Scratch::new();
    scratch.write("file", [7; 100_000]);
    scratch.ok(&[
        "create",
        "x.img",
        "--fs",
        "apfs",
        "--volname",
        "Small",
        "--size",
        "1m",
    ]);
    scratch.ok(&["cp", "file", "x.img:/file"]);
    scratch.ok(&["check", "x.img"]);
    scratch.fails(
        1,
        &[
            "create",
            "y.img",
            "--fs",
            "apfs",
            "--volname",
            "Smaller",
            "--size",
            "900k",
        ],
    );
}
