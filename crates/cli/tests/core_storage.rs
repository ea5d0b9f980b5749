//! Core Storage: a FileVault volume is read by every reading verb, and changed by none.

use std::fs;

use bandsaw::device::{BlockDevice, Memory};
use bandsaw::fs::core_storage::KEY_FILES;
use bandsaw::fs::core_storage::fixture::Options;
use bandsaw::partition::APPLE_HFS;
use bandsaw::partition::gpt::{self, NewPartition};
use bandsaw::testing::fuzz;

use crate::common::{Scratch, stderr};

const KEY: [&str; 2] = ["--volume-passfile", "pass"];

fn options() -> Options {
    Options::new(fuzz::sample(false, 4096), "open sesame")
}

fn scratch(options: &Options) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("pass", "open sesame\n");
    for (number, disk) in options.build().into_iter().enumerate() {
        scratch.write(&format!("{number}.img"), disk);
    }
    scratch
}

fn with<'a>(line: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [line, more].concat()
}

#[test]
fn a_passphrase_opens_the_volume_for_every_reading_verb() {
    let scratch = scratch(&options());
    assert!(scratch.ok(&with(&["ls", "0.img"], &KEY)).contains("docs"));
    let cat = with(&["cat", "0.img:/docs/deep/file.txt"], &KEY);
    assert_eq!(scratch.ok(&cat), "deep down");
    let named = with(&["cat", "0.img:Untitled:/docs/deep/file.txt"], &KEY);
    assert_eq!(scratch.ok(&named), "deep down");
    scratch.ok(&with(&["check", "0.img"], &KEY));
    // The sample has a device node, which is not extracted.
    scratch.run(&with(&["extract", "0.img", "out"], &KEY));
    let extracted = scratch.path("out/docs/deep/file.txt");
    assert_eq!(fs::read(extracted).unwrap(), b"deep down");
    scratch.write("wrong", "open barley");
    let wrong = scratch.run(&["ls", "0.img", "--volume-passfile", "wrong"]);
    assert!(stderr(&wrong).contains("is wrong"), "{}", stderr(&wrong));
    let without = scratch.run(&["ls", "0.img"]);
    assert!(!without.status.success());
    assert!(
        stderr(&without).contains("--volume-passfile"),
        "{}",
        stderr(&without)
    );
    let told = scratch.run(&["diagnose", "0.img"]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned() + &stderr(&told);
    assert!(
        !told.contains("truncated") && !told.contains("cut"),
        "{told}"
    );
    let info = scratch.json(&["info", "0.img"]);
    assert_eq!(info["volumes"][0]["file_system"], "Core Storage", "{info}");
}

#[test]
fn a_logical_volume_is_converted_with_consent_only() {
    let scratch = scratch(&options());
    let convert = [
        "convert",
        "0.img",
        "out.img",
        "--logical-volume",
        "Untitled",
    ];
    let refused = scratch.fails(2, &with(&convert, &KEY));
    assert!(refused.contains("--decrypt"), "{refused}");
    assert!(!scratch.path("out.img").exists());
    scratch.ok(&with(&with(&convert, &["--decrypt"]), &KEY));
    assert_eq!(
        fs::read(scratch.path("out.img")).unwrap(),
        fuzz::sample(false, 4096)
    );
    scratch.ok(&["check", "out.img"]);
    // Without the option the disk is copied as it is.
    scratch.ok(&["convert", "0.img", "same.img"]);
    assert!(fs::read(scratch.path("same.img")).unwrap() == options().build()[0]);
    let other = with(&["ls", "0.img", "--logical-volume", "Other"], &KEY);
    let refused = stderr(&scratch.run(&other));
    assert!(refused.contains("\"Untitled\""), "{refused}");
}

#[test]
fn nothing_is_changed() {
    let scratch = scratch(&options());
    let before = fs::read(scratch.path("0.img")).unwrap();
    for line in [
        &["rm", "0.img:/docs/deep/file.txt"][..],
        &["mkdir", "0.img:/new"],
        &[
            "rm",
            "0.img:/docs/deep/file.txt",
            "--logical-volume",
            "Untitled",
        ],
        &["resize", "0.img", "--size", "20m"],
        &["enable-journal", "0.img"],
    ] {
        let refused = scratch.run(&with(line, &KEY));
        assert!(!refused.status.success(), "{line:?}");
        assert!(
            stderr(&refused).contains("Core Storage"),
            "{line:?}: {}",
            stderr(&refused)
        );
        assert!(
            fs::read(scratch.path("0.img")).unwrap() == before,
            "{line:?}"
        );
    }
}

#[test]
fn several_disks_are_given_together() {
    let scratch = scratch(&Options {
        disks: 2,
        ..options()
    });
    let cat = with(&["cat", "0.img:/docs/deep/file.txt"], &KEY);
    let missing = scratch.run(&cat);
    assert!(
        stderr(&missing).contains("is missing"),
        "{}",
        stderr(&missing)
    );
    let both = with(&cat, &["--physical-volume", "1.img"]);
    assert_eq!(scratch.ok(&both), "deep down");
    scratch.ok(&with(
        &["check", "1.img", "--physical-volume", "0.img"],
        &KEY,
    ));
    let twice = scratch.run(&with(&cat, &["--physical-volume", "0.img"]));
    assert!(stderr(&twice).contains("given twice"), "{}", stderr(&twice));
}

#[test]
fn several_volumes_are_listed() {
    let scratch = scratch(&Options {
        names: vec!["One".to_owned(), "Two".to_owned()],
        ..options()
    });
    let listed = scratch.run(&with(&["ls", "0.img"], &KEY));
    let message = stderr(&listed);
    assert!(
        message.contains("\"One\"") && message.contains("\"Two\""),
        "{message}"
    );
    for image in ["0.img:One:/", "0.img:Two:/"] {
        assert!(
            scratch.ok(&with(&["ls", image], &KEY)).contains("docs"),
            "{image}"
        );
    }
}

#[test]
fn skipped_damage_is_reported() {
    let scratch = scratch(&options());
    let mut disk = fs::read(scratch.path("0.img")).unwrap();
    disk[4096 + 100] ^= 1;
    scratch.write("0.img", disk);
    let listed = scratch.run(&with(&["ls", "0.img"], &KEY));
    assert!(
        stderr(&listed).contains("1 labels are damaged"),
        "{}",
        stderr(&listed)
    );
}

/// The disk of a Mac: its start volume, a recovery partition that is damaged, and the one with the
/// keys.
#[test]
fn a_start_volume_opens_with_the_keys_of_the_recovery_partition() {
    let options = Options {
        keys_in_file: true,
        ..options()
    };
    let scratch = scratch(&options);
    let file = format!("tree{}", KEY_FILES[1]);
    scratch.write(&file, options.key_file());
    let make = ["create", "R.img", "--fs", "hfs+", "--layout", "none"];
    scratch.ok(&with(&make, &["--from", "tree", "--size", "8m"]));
    let recovery = fs::read(scratch.path("R.img")).unwrap();
    let mut damaged = recovery.clone();
    let end = damaged.len() - 2048;
    damaged[2048..end].fill(0);
    let disk = |parts: &[&[u8]]| {
        let mut start = 1 << 20;
        let mut partitions = Vec::new();
        let device = Memory::zeros(64 << 20);
        for (number, part) in parts.iter().enumerate() {
            device.write_at(start, part).unwrap();
            partitions.push(NewPartition {
                range: start..start + part.len() as u64,
                type_guid: APPLE_HFS,
                guid: format!("00000000-0000-4000-8000-00000000000{number}")
                    .parse()
                    .unwrap(),
                name: String::new(),
            });
            start += (part.len() as u64).next_multiple_of(1 << 20);
        }
        let guid = "0d15c0de-1111-4222-8333-444455556666".parse().unwrap();
        gpt::create(&device, 512, guid, &partitions).unwrap();
        device.to_vec()
    };
    let own = &options.build()[0];
    scratch.write("mac.img", disk(&[own, &damaged, &recovery]));
    let cat = with(&["cat", "mac.img:/docs/deep/file.txt"], &KEY);
    assert_eq!(scratch.ok(&cat), "deep down");
    let closed = scratch.run(&["ls", "mac.img"]);
    assert!(
        !closed.status.success() && closed.stdout.is_empty(),
        "the recovery partition is no substitute"
    );
    scratch.write("cut.img", disk(&[own, &damaged]));
    let missing = stderr(&scratch.run(&with(&["ls", "cut.img"], &KEY)));
    assert!(missing.contains("EncryptedRoot.plist.wipekey"), "{missing}");
    let other = with(&["cat", "cut.img:/docs/deep/file.txt"], &KEY);
    assert!(!scratch.run(&other).status.success());
}
