//! `bandsaw tm convert`: folders of dates on HFS+ as snapshots on APFS, judged by other programs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::backups::{listed, walked};
use crate::common::backupd::{self, History, Item};
use crate::common::{Scratch, peer_python, skip, stderr};

/// Compares every file of every date with the history.
fn compare(scratch: &Scratch, image: &str, history: &History) {
    let list = scratch.json(&["tm", "list", image]);
    let backups = list["backups"].as_array().unwrap();
    assert_eq!(backups.len(), history.backups.len(), "{list}");
    assert_eq!(list["problems"].as_array().unwrap().len(), 0, "{list}");
    for (backup, truth) in backups.iter().zip(&history.backups) {
        assert_eq!(backup["state"], "complete");
        assert_eq!(backup["copied_size"], truth.copied);
        let out = format!("{image}-{}", truth.date);
        scratch.ok(&["tm", "restore", image, &truth.date, &out]);
        let folder = scratch.path(&out).join(backupd::VOLUME);
        for (path, item) in &truth.objects {
            let place = folder.join(&path[1..]);
            match item {
                Item::Folder => assert!(place.is_dir(), "{path}"),
                Item::Link(target) => {
                    assert_eq!(fs::read_link(place).unwrap().to_str(), Some(&**target));
                }
                Item::File(bytes, _) => assert!(fs::read(place).unwrap() == *bytes, "{path}"),
            }
        }
    }
    scratch.ok(&["check", image]);
}

/// Writes the container of an image, which begins at its partition, to a file of its own.
fn container(scratch: &Scratch, image: &str) -> PathBuf {
    let bytes = fs::read(scratch.path(image)).unwrap();
    let magic = |block: &[u8]| block[32..36] == *b"NXSB";
    let start = bytes.chunks_exact(4096).position(magic).unwrap() * 4096;
    let blocks = u64::from_le_bytes(bytes[start + 40..start + 48].try_into().unwrap());
    let container = &bytes[start..start + blocks as usize * 4096];
    scratch.write("container.img", container)
}

#[test]
fn a_conversion_has_every_file_and_other_programs_accept_it() {
    let history = History::new(41, 12, 60);
    let scratch = Scratch::new();
    scratch.write("hfs.img", backupd::hfs_plus(&history, |_, _| {}));
    let said = scratch.ok(&["tm", "convert", "hfs.img", "new.img", "--size", "200m"]);
    assert!(said.contains("12 dates"), "{said}");
    assert_eq!(scratch.names(), ["hfs.img", "new.img"]);
    compare(&scratch, "new.img", &history);
    // The new image exists.
    scratch.fails(4, &["tm", "convert", "hfs.img", "new.img"]);
    scratch.fails(2, &["tm", "convert", "new.img", "again.img"]);
    let role = scratch.json(&["info", "new.img"]);
    assert!(role.to_string().contains("Backup"), "{role}");
    let judged = container(&scratch, "new.img");
    accepted_by_apfsck("a_conversion_is_accepted", &judged);
}

/// apfsck finds nothing wrong in a container.
pub(crate) fn accepted_by_apfsck(test: &str, container: &Path) {
    match Command::new("apfsck").arg("-cuw").arg(container).output() {
        Err(_) => skip::without_program(test, "no apfsck"),
        Ok(output) => {
            let said = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                stderr(&output)
            );
            assert!(
                said.trim().is_empty() && output.status.success(),
                "apfsck: {said}"
            );
        }
    }
}

/// libfsapfs reads the files of the last date in the current state of the volume.
#[test]
fn libfsapfs_reads_a_conversion() {
    let Some(python) = peer_python("pyfsapfs") else {
        skip::without_program("libfsapfs_reads_a_conversion", "no Python with pyfsapfs");
        return;
    };
    let history = History::new(43, 6, 30);
    let scratch = Scratch::new();
    scratch.write("hfs.img", backupd::hfs_plus(&history, |_, _| {}));
    scratch.ok(&["tm", "convert", "hfs.img", "new.img", "--size", "64m"]);
    let found = walked(
        &python,
        &container(&scratch, "new.img"),
        &history.backups[5],
    );
    assert_eq!(found, listed(&history.backups[5]));
}

#[test]
fn a_killed_conversion_is_resumed() {
    let history = History::new(42, 20, 200);
    let scratch = Scratch::new();
    scratch.write("hfs.img", backupd::hfs_plus(&history, |_, _| {}));
    let words = [
        "tm",
        "convert",
        "hfs.img",
        "new.sparsebundle",
        "--size",
        "128m",
    ];
    let size = |name: &str| -> u64 {
        let bands = fs::read_dir(scratch.path(name).join("bands"))
            .into_iter()
            .flatten();
        let metas = bands.flatten().filter_map(|band| band.metadata().ok());
        metas.map(|meta| meta.blocks()).sum()
    };
    let (mut killed, mut limit) = (0, 300);
    for _ in 0..6 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bandsaw"));
        command
            .args(words)
            .current_dir(scratch.path(""))
            .stdout(Stdio::null());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let ended = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status.success(),
                None if size("unfinished-new.sparsebundle") > limit => {
                    child.kill().unwrap();
                    break child.wait().unwrap().success();
                }
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        if ended {
            break;
        }
        killed += 1;
        limit = size("unfinished-new.sparsebundle") + 200;
        assert!(!scratch.path("new.sparsebundle").exists());
    }
    assert!(killed > 0);
    if !scratch.path("new.sparsebundle").exists() {
        scratch.ok(&words);
    }
    compare(&scratch, "new.sparsebundle", &history);
}

#[test]
fn a_conversion_is_encrypted_as_wished() {
    let history = History::new(44, 4, 20);
    let scratch = Scratch::new();
    scratch.write("old.img", backupd::hfs_plus(&history, |_, _| {}));
    scratch.write("key", "old secret\n");
    scratch.write("new key", "new secret\n");
    let new = ["--new-passfile", "new key", "--iterations", "150000"];
    fn run<'a>(words: &[&'a str], options: &[&'a str]) -> Vec<&'a str> {
        [&["tm", "convert"], words, options].concat()
    }
    let plain = ["old.img", "new.sparsebundle", "--size", "64m"];
    // An unfinished image without encryption is not taken for an encrypted one, and the reverse.
    let unfinished = ["create", "unfinished-new.sparsebundle", "--size", "64m"];
    scratch.ok(&[&unfinished[..], &["--fs", "apfs-case-sensitive"]].concat());
    let error = scratch.fails(4, &run(&["--encrypt"], &[&plain[..], &new].concat()));
    assert!(error.contains("not encrypted"), "{error}");
    fs::remove_dir_all(scratch.path("unfinished-new.sparsebundle")).unwrap();
    let encrypted = [
        "--encrypt",
        "--passfile",
        "new key",
        "--iterations",
        "150000",
    ];
    scratch.ok(&[
        &unfinished[..],
        &["--fs", "apfs-case-sensitive"],
        &encrypted,
    ]
    .concat());
    let error = scratch.fails(7, &run(&plain, &[]));
    assert!(error.contains("--new-passfile"), "{error}");
    fs::remove_dir_all(scratch.path("unfinished-new.sparsebundle")).unwrap();

    for image in ["new.sparsebundle", "new.img"] {
        let words = ["--encrypt", "old.img", image, "--size", "64m"];
        scratch.ok(&run(&words, &new));
        scratch.fails(7, &["tm", "list", image]);
        let list = scratch.json(&["tm", "list", image, "--passfile", "new key"]);
        assert_eq!(list["backups"].as_array().unwrap().len(), 4);
        let out = format!("out of {image}");
        scratch.ok(&[
            "tm",
            "restore",
            image,
            "latest",
            &out,
            "--passfile",
            "new key",
        ]);
        for (path, item) in &history.backups[3].objects {
            if let Item::File(bytes, _) = item {
                let place = scratch.path(&out).join(backupd::VOLUME).join(&path[1..]);
                assert!(fs::read(place).unwrap() == *bytes, "{path}");
            }
        }
    }
    // The plain text of encrypted backups is not written by mistake.
    let secret = [
        "convert",
        "--encrypt",
        "--new-passfile",
        "key",
        "--iterations",
        "150000",
    ];
    scratch.ok(&[&secret[..], &["old.img", "secret.sparsebundle"]].concat());
    let opened = [
        "secret.sparsebundle",
        "again.sparsebundle",
        "--passfile",
        "key",
        "--size",
        "64m",
    ];
    let error = scratch.fails(2, &run(&opened, &[]));
    assert!(
        error.contains("--decrypt") && error.contains("--re-encrypt"),
        "{error}"
    );
    let other = ["old.img", "other.sparsebundle", "--size", "64m"];
    scratch.fails(2, &run(&["--re-encrypt"], &[&other[..], &new].concat()));
    scratch.ok(&run(&["--re-encrypt"], &[&opened[..], &new].concat()));
    scratch.fails(
        7,
        &["tm", "list", "again.sparsebundle", "--passfile", "key"],
    );
    scratch.ok(&["tm", "list", "again.sparsebundle", "--passfile", "new key"]);
}
