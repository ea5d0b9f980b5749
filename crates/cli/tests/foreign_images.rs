//! Compressed and encrypted images made by macOS, through the command.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Scratch, stderr};

/// An image of the corpus, or `None` and a word about it.
fn image(test: &str, name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("BANDSAW_CORPUS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
        PathBuf::from,
    );
    let path = folder.join(name);
    if !path.exists() {
        crate::common::skip::skip(test, &format!("no {}", path.display()));
        return None;
    }
    Some(path)
}

const LOCKED: &str = "encrypted/john-RO-openwall.dmg";
const COMPRESSED: &str = "udif/keramics-hfsplus-zlib.dmg";

#[test]
fn a_compressed_image_is_shown_converted_and_verified() {
    let Some(path) = image(
        "a_compressed_image_is_shown_converted_and_verified",
        COMPRESSED,
    ) else {
        return;
    };
    let path = path.to_str().unwrap();
    let scratch = Scratch::new();
    let facts = scratch.json(&["info", path]);
    assert_eq!(
        (facts["format"].as_str(), facts["size"].as_u64()),
        (Some("UDZO"), Some(1_964_032))
    );
    assert!(
        facts["storage"]["chunks"].as_u64() > Some(0) && facts["storage"]["signed"] == false,
        "{facts}"
    );
    assert!(
        scratch
            .ok(&[path])
            .contains("UDZO, disk image compressed by zlib")
    );
    assert!(scratch.ok(&["ls", path]).contains("testdir1\n"));
    let sums = scratch.json(&["verify", path]);
    assert_eq!(sums["intact"], true);
    assert!(
        sums["checksums"]
            .as_array()
            .unwrap()
            .iter()
            .any(|sum| sum["algorithm"] == "crc32" && sum["intact"] == true),
        "{sums}"
    );
    // The copy holds the same disk in a format without sums, which `verify` says.
    scratch.ok(&["convert", path, "copy.sparsebundle"]);
    assert_eq!(
        scratch.ok(&["ls", "-lR", "copy.sparsebundle"]),
        scratch.ok(&["ls", "-lR", path])
    );
    assert!(
        scratch
            .fails(6, &["verify", "copy.sparsebundle"])
            .contains("no checksums")
    );
    // The format is found by the bytes, not by the name.
    fs::copy(path, scratch.path("renamed.img")).unwrap();
    assert_eq!(scratch.json(&["info", "renamed.img"])["format"], "UDZO");
    assert!(
        scratch
            .idle_repair(&["renamed.img"])
            .contains("there is nothing to repair")
    );
}

#[test]
fn verify_finds_damage() {
    let Some(path) = image("verify_finds_damage", "udif/nodeudif-raw.dmg") else {
        return;
    };
    let scratch = Scratch::new();
    let mut bytes = fs::read(path).unwrap();
    bytes[1_000_000] ^= 1;
    scratch.write("damaged.dmg", &bytes);
    let output = scratch.run(&["verify", "--json", "damaged.dmg"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let sums: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(sums["intact"], false);
    let output = scratch.run(&["verify", "damaged.dmg"]);
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("WRONG")
            && stderr(&output).contains("damaged.dmg")
    );
}

#[test]
fn a_locked_image_says_what_it_needs() {
    let Some(path) = image("a_locked_image_says_what_it_needs", LOCKED) else {
        return;
    };
    let path = path.to_str().unwrap();
    let scratch = Scratch::new();
    let output = scratch.run(&["info", path]);
    assert_eq!(output.status.code(), Some(7));
    let sheet = String::from_utf8(output.stdout.clone()).unwrap();
    for fact in [
        "AES-256",
        "blocks of 4096 bytes",
        "version 2",
        "1,000 iterations",
        "a63ade3e",
        "a key is required",
    ] {
        assert!(sheet.contains(fact), "{sheet}");
    }
    assert!(
        stderr(&output).contains("a passphrase is required")
            && stderr(&output).contains("--passfile")
    );
    let output = scratch.run(&["info", "--json", path]);
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (
            facts["encryption"]["locked"].as_bool(),
            facts["encryption"]["key_bits"].as_u64()
        ),
        (Some(true), Some(256))
    );
    assert!(
        scratch
            .fails(7, &["ls", path])
            .contains("a passphrase is required")
    );
    scratch.write("wrong", "openwal");
    assert!(
        scratch
            .fails(7, &["ls", "--passfile", "wrong", path])
            .contains("wrong passphrase")
    );
}

#[test]
fn a_passphrase_comes_from_everywhere_but_the_arguments() {
    let Some(path) = image(
        "a_passphrase_comes_from_everywhere_but_the_arguments",
        LOCKED,
    ) else {
        return;
    };
    let path = path.to_str().unwrap();
    let scratch = Scratch::new();
    scratch.write("key", "openwall\n");
    assert!(
        scratch
            .ok(&["ls", "--passfile", "key", path])
            .contains("openwall.txt")
    );
    let with = |args: &[&str], stdin: &str| {
        let output = scratch
            .command(args)
            .env("KEY", "openwall")
            .write_stdin(stdin)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).contains("openwall.txt"),
        )
    };
    assert_eq!(with(&["ls", "--passenv", "KEY", path], ""), (Some(0), true));
    assert_eq!(
        with(&["ls", "--passfd", "0", path], "openwall\n"),
        (Some(0), true)
    );
    assert_eq!(
        with(&["ls", "--stdinpass", path], "openwall"),
        (Some(0), true)
    );
    assert_eq!(
        with(&["ls", "--stdinpass", path], "openwall\0more"),
        (Some(0), true)
    );
    assert_eq!(
        with(&["ls", "--stdinpass", path], "openwall\n"),
        (Some(7), false),
        "a newline is part of it"
    );
    assert_eq!(
        with(&["ls", "--passenv", "NONE", path], ""),
        (Some(2), false)
    );
    assert_eq!(
        with(&["ls", "--passfile", "missing", path], ""),
        (Some(3), false)
    );
    // One passphrase serves everything that a command opens.
    let both = [
        &*format!("{path}:/openwall.txt"),
        &format!("{path}:/openwall.txt"),
    ]
    .map(str::to_owned);
    assert_eq!(
        with(&["cat", "--stdinpass", &both[0], &both[1]], "openwall").0,
        Some(0)
    );
}

#[test]
fn a_locked_image_is_copied_as_plain_text_on_request_only() {
    let Some(path) = image(
        "a_locked_image_is_copied_as_plain_text_on_request_only",
        LOCKED,
    ) else {
        return;
    };
    let scratch = Scratch::new();
    scratch.write("key", "openwall");
    let convert = [
        "convert",
        "--passfile",
        "key",
        path.to_str().unwrap(),
        "copy.img",
    ];
    let refused = scratch.fails(2, &convert);
    assert!(refused.contains("--decrypt"), "{refused}");
    scratch.ok(&[&convert[..], &["--decrypt"]].concat());
    assert!(scratch.ok(&["ls", "copy.img"]).contains("openwall.txt"));
}

#[test]
fn images_of_macos_take_shadows() {
    let Some(path) = image("images_of_macos_take_shadows", COMPRESSED) else {
        return;
    };
    let scratch = Scratch::new();
    let before = fs::read(&path).unwrap();
    let path = path.to_str().unwrap();
    scratch.idle_repair(&["--shadow", "s.asif", path]);
    assert!(
        scratch
            .ok(&["check", "--shadow", "s.asif", path])
            .contains("layer s.asif")
    );
    assert_eq!(
        scratch.ok(&["ls", "-lR", "--shadow", "s.asif", path]),
        scratch.ok(&["ls", "-lR", path])
    );
    scratch.ok(&["stack", "flatten", path, "s.asif", "flat.img"]);
    scratch.ok(&["convert", path, "copy.img"]);
    assert!(
        fs::read(scratch.path("flat.img")).unwrap() == fs::read(scratch.path("copy.img")).unwrap()
    );
    let error = scratch.fails(1, &["stack", "commit", path, "s.asif"]);
    assert!(
        error.contains("read-only") && error.contains("stack flatten"),
        "{error}"
    );
    assert!(fs::read(path).unwrap() == before, "the image was changed");
}
