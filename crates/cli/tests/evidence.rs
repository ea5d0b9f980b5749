//! `diff` and `evidence`, judged by sha256sum, and by sleuthkit where it is installed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Scratch, skip, stderr};

fn image(scratch: &Scratch, name: &str, fs: &str) {
    scratch.ok(&["create", name, "--from", "src", "--fs", fs, "--size", "24m"]);
}

fn records(text: &str) -> Vec<serde_json::Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn differences_are_named_and_renamed_files_found() {
    let scratch = Scratch::new();
    scratch.sample();
    for (old, new, system) in [("a.img", "b.img", "hfs+"), ("c.img", "d.img", "apfs")] {
        image(&scratch, old, system);
        fs::copy(scratch.path(old), scratch.path(new)).unwrap();
        assert_eq!(scratch.ok(&["diff", old, new]), "");
        let at = |path: &str| format!("{new}:{path}");
        scratch.ok(&["mv", &at("/Letters"), &at("/Post")]);
        scratch.ok(&["mv", &at("/run.sh"), &at("/Post/old/go.sh")]);
        scratch.ok(&["rm", &at("/empty")]);
        scratch.ok(&["mkdir", &at("/new")]);
        scratch.ok(&["chmod", "600", &at("/big.bin")]);
        scratch.write("other", "HELLO, WORLD\n");
        scratch.ok(&["put", "--from", "other", "--overwrite", &at("/hello.txt")]);
        let output = scratch.run(&[
            "diff",
            old,
            new,
            "--json",
            "--html",
            "page.html",
            "--overwrite",
        ]);
        assert_eq!(output.status.code(), Some(11), "{}", stderr(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut found = BTreeMap::new();
        for one in report["differences"].as_array().unwrap() {
            found.insert(one["relative_path"].as_str().unwrap(), one);
        }
        let kind = |path: &str| found.get(path).map(|one| one["kind"].as_str().unwrap());
        assert_eq!(kind("/Post"), Some("renamed"), "{report:#}");
        assert_eq!(found["/Post"]["source_path"], "/Letters");
        assert_eq!(kind("/Post/old/go.sh"), Some("renamed"), "{report:#}");
        assert_eq!(found["/Post/old/go.sh"]["source_path"], "/run.sh");
        assert_eq!(kind("/Post/old/a b.txt"), None, "{report:#}");
        assert_eq!(kind("/empty"), Some("removed"));
        assert_eq!(kind("/new"), Some("added"));
        assert_eq!(found["/big.bin"]["contents"], serde_json::json!([]));
        let metadata = found["/big.bin"]["metadata"].as_array().unwrap();
        assert!(metadata.contains(&"mode".into()), "{report:#}");
        assert_eq!(
            found["/hello.txt"]["contents"],
            serde_json::json!(["contents"])
        );
        let page = fs::read_to_string(scratch.path("page.html")).unwrap();
        assert!(page.contains("/Post/old/go.sh") && !page.contains("<script"));
    }
    // Other volumes have other numbers.
    scratch.ok(&["mv", "c.img:/big.bin", "c.img:/Letters/large"]);
    let output = scratch.run(&["diff", "a.img", "c.img", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = report["differences"].as_array().unwrap();
    let large = all
        .iter()
        .find(|one| one["relative_path"] == "/Letters/large");
    assert_eq!(large.unwrap()["evidence"], "contents", "{report:#}");
    scratch.fails(3, &["diff", "a.img", "missing.img"]);
    scratch.fails(3, &["diff", "a.img", "a.img:/missing"]);
}

#[test]
fn hashes_are_those_of_sha256sum() {
    let scratch = Scratch::new();
    let source = scratch.sample();
    image(&scratch, "a.img", "apfs");
    let before = fs::read(scratch.path("a.img")).unwrap();
    let manifest = scratch.ok(&["evidence", "manifest", "a.img", "-o", "-"]);
    let mut files = 0;
    for record in records(&manifest) {
        if record["kind"] != "file" {
            continue;
        }
        let path = record["path"].as_str().unwrap();
        let of_host = Path::new(&source).join(&path[1..]);
        let sum = |program: &str| {
            let output = Command::new(program).arg(&of_host).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.trim_start_matches('\\')
                .split(' ')
                .next()
                .unwrap()
                .to_owned()
        };
        assert_eq!(record["sha256"], sum("sha256sum"), "{path}");
        assert_eq!(record["md5"], sum("md5sum"), "{path}");
        files += 1;
    }
    assert!(files > 5);
    assert_eq!(fs::read(scratch.path("a.img")).unwrap(), before);
    scratch.ok(&["evidence", "manifest", "a.img", "-o", "a.jsonl"]);
    assert_eq!(
        fs::read_to_string(scratch.path("a.jsonl")).unwrap(),
        manifest
    );
    scratch.fails(4, &["evidence", "manifest", "a.img", "-o", "a.jsonl"]);
    scratch.ok(&["evidence", "verify", "a.jsonl", "a.img"]);
    scratch.ok(&["touch", "a.img:/hello.txt"]);
    let output = scratch.run(&["evidence", "verify", "a.jsonl", "a.img"]);
    assert_eq!(output.status.code(), Some(11));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("hello.txt  (") && text.contains("modified"),
        "{text}"
    );
    scratch.write("cut.jsonl", &manifest.as_bytes()[..manifest.len() - 9]);
    let cut = scratch.fails(5, &["evidence", "verify", "cut.jsonl", "a.img"]);
    assert!(cut.contains("is cut"), "{cut}");
}

/// Times, sizes, owners, modes and names are compared. sleuthkit lists the special files of HFS+ (`$...`),
/// and private folders of hard links, which are no files for users; it gives a hard link the number of
/// its own record in place of its target's.
#[test]
fn bodyfiles_agree_with_sleuthkit() {
    if Command::new("fls").arg("-V").output().is_err() {
        skip::without_program("bodyfiles_agree_with_sleuthkit", "no fls");
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.sample();
    fs::remove_file(source.join("hello again.txt")).unwrap();
    image(&scratch, "a.img", "hfs+");
    let text = scratch.ok(&["evidence", "manifest", "a.img", "-o", "-"]);
    let volume = records(&text)
        .into_iter()
        .find(|record| record["record"] == "volume")
        .unwrap();
    let sector = volume["disk_offset"].as_u64().unwrap() / 512;
    let ours = scratch.ok(&["evidence", "manifest", "a.img", "--bodyfile", "-o", "-"]);
    let prefix = format!("/{}/", volume["name"].as_str().unwrap());
    let output = Command::new("fls")
        .args([
            "-r",
            "-m",
            prefix.trim_end_matches('/'),
            "-o",
            &sector.to_string(),
            "-f",
            "hfs",
        ])
        .arg(scratch.path("a.img"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let theirs = String::from_utf8(output.stdout).unwrap();
    let parsed = |text: &str| -> BTreeMap<String, Vec<String>> {
        let lines = text.lines().map(|line| {
            let fields: Vec<_> = line.split('|').map(str::to_owned).collect();
            assert_eq!(fields.len(), 11, "{line}");
            (fields[1].clone(), fields[2..].to_vec())
        });
        lines.collect()
    };
    let (ours, theirs) = (parsed(&ours), parsed(&theirs));
    let mut compared = 0;
    for (name, fields) in &ours {
        // sleuthkit does not list the root.
        if *name == prefix {
            continue;
        }
        // It composes no names: decomposed ones are compared by the rest of their line.
        let Some(other) = theirs.get(name) else {
            assert!(!name.is_ascii(), "{name} is missing in {theirs:#?}");
            continue;
        };
        assert_eq!(fields, other, "{name}");
        compared += 1;
    }
    assert!(compared >= 7, "{compared}: {ours:#?} {theirs:#?}");
}
