//! Apple Archive: the files of an archive are read by every reading verb and changed by none, whatever its
//! compression, also in an encrypted archive. Archives are made by neoaa of libNeoAppleArchive, too.

use std::fs;
use std::process::Command;

use bandsaw::container::apple_archive::fixture::packed;
use bandsaw::crypt::aea::fixture::{ArchiveFixture, KEY};
use bandsaw::fs::apple_archive::fixture::{CONTENTS, FixtureEntry, archive};

use crate::common::skip::skip;
use crate::common::{Scratch, inventory, stderr};

fn with<'a>(line: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    line.split(' ').chain(more.iter().copied()).collect()
}

/// Makes the archive in every form: as it is, compressed, and encrypted.
fn archives(scratch: &Scratch) -> Vec<(String, &'static [&'static str])> {
    let plain = archive();
    scratch.write("key", KEY);
    let mut all = Vec::new();
    for (name, bytes) in [("plain.aar", plain.clone()), ("old.yaa", plain.clone())]
        .into_iter()
        .chain(b"-4exz".iter().map(|letter| match letter {
            b'-' => ("raw.aar", packed(*letter, 1 << 20, &plain)),
            b'4' => ("lz4.aar", packed(*letter, 3000, &plain)),
            b'e' => ("lzfse.aar", packed(*letter, 3000, &plain)),
            b'x' => ("lzma.aar", packed(*letter, 3000, &plain)),
            _ => ("zlib.aar", packed(*letter, 3000, &plain)),
        }))
    {
        let bytes = match name {
            "old.yaa" => [&b"YAA1"[..], &bytes[4..]].concat(),
            _ => bytes,
        };
        scratch.write(name, &bytes);
        all.push((name.to_owned(), &[][..]));
    }
    let fixture = ArchiveFixture::default();
    for (name, bytes) in [
        ("plain.aea", &plain),
        ("lzfse.aar.aea", &packed(b'e', 3000, &plain)),
    ] {
        scratch.write(name, fixture.of(bytes));
        all.push((name.to_owned(), &["--aea-key", "key"][..]));
    }
    all
}

#[test]
fn an_archive_is_read_by_every_reading_verb() {
    let scratch = Scratch::new();
    for (number, (name, keys)) in archives(&scratch).into_iter().enumerate() {
        let before = fs::read(scratch.path(&name)).unwrap();
        let cat = scratch.ok(&with(&format!("cat {name}:/folder/again.txt"), keys));
        assert_eq!(cat.as_bytes(), CONTENTS, "{name}");
        let listed = scratch.ok(&with(&format!("ls {name}"), keys));
        assert!(
            listed.contains("clone.txt") && listed.contains("unknown"),
            "{listed}"
        );
        for verb in ["tree", "check", "diagnose", "advise"] {
            scratch.ok(&with(&format!("{verb} {name}"), keys));
        }
        let stat = scratch.json(&with(&format!("stat {name}:/folder/file.txt"), keys));
        assert_eq!(stat["file"]["size"], CONTENTS.len(), "{stat}");
        let out = format!("out{number}");
        scratch.ok(&with(&format!("extract {name} {out}"), keys));
        let read = |path: &str| fs::read(scratch.path(&format!("{out}/{path}"))).unwrap();
        assert_eq!(read("folder/file.txt"), CONTENTS);
        assert_eq!(read("folder/again.txt"), CONTENTS);
        assert_eq!(read("cloned.txt"), b"the same");
        assert_eq!(read("unknown/large"), [7; 70_000]);
        let link = fs::read_link(scratch.path(&format!("{out}/link"))).unwrap();
        assert_eq!(link.to_str(), Some("folder/file.txt"));
        let info = scratch.json(&with(&format!("info {name}"), keys));
        assert_eq!(info["format"], "AAR", "{info}");
        let volume = &info["volumes"][0];
        assert_eq!(volume["file_system"], "Apple Archive", "{info}");
        let text = scratch.ok(&with(&format!("info {name}"), keys));
        assert!(text.contains("Apple Archive"), "{text}");
        for line in [
            "mkdir NAME:/new",
            "rm NAME:/empty",
            "put --from key NAME:/new",
        ] {
            let line = line.replace("NAME", &name);
            let refused = scratch.run(&with(&line, keys));
            assert!(!refused.status.success(), "{line}: {}", stderr(&refused));
        }
        assert!(fs::read(scratch.path(&name)).unwrap() == before, "{name}");
    }
}

#[test]
fn files_of_an_archive_are_copied_to_an_image() {
    let scratch = Scratch::new();
    scratch.write("x.aar", packed(b'e', 3000, &archive()));
    let error = scratch.fails(6, &["convert", "x.aar", "new.img"]);
    assert!(error.contains("create --from"), "{error}");
    scratch.ok(&["extract", "x.aar", "out"]);
    fs::remove_file(scratch.path("out/device")).ok();
    scratch.ok(&["create", "new.img", "--fs", "apfs", "--from", "out"]);
    let cat = scratch.ok(&["cat", "new.img:/folder/file.txt"]);
    assert_eq!(cat.as_bytes(), CONTENTS);
}

#[test]
fn unsafe_and_damaged_archives_are_refused() {
    let scratch = Scratch::new();
    for (path, message) in [
        ("../up", "a path has the name"),
        ("/tmp/up", "a path has the name"),
    ] {
        let entry = FixtureEntry::new(b'F', path).blob("DAT", 2, b"x");
        scratch.write("bad.aar", entry.bytes());
        let output = scratch.run(&["extract", "bad.aar", "out"]);
        assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        assert!(!scratch.path("up").exists());
    }
    let update = FixtureEntry::default()
        .number("TYP", 1, b'M'.into())
        .number("YOP", 1, b'E'.into());
    scratch.write("update.aar", update.bytes());
    let error = scratch.fails(6, &["ls", "update.aar"]);
    assert!(error.contains("an update of system software"), "{error}");
    let bytes = packed(b'z', 3000, &archive());
    scratch.write("cut.aar", &bytes[..bytes.len() / 2]);
    let error = scratch.fails(5, &["ls", "cut.aar"]);
    assert!(error.contains("truncated"), "{error}");
    scratch.write(
        "cpio",
        packed(b'z', 3000, &[&b"070701"[..], &[b'0'; 4000]].concat()),
    );
    let error = scratch.run(&["ls", "cpio"]);
    assert!(!error.status.success());
    // Contents that are not those of the hash.
    let mut bytes = archive();
    let at = bytes
        .windows(CONTENTS.len())
        .position(|found| found == CONTENTS);
    bytes[at.unwrap()] ^= 1;
    scratch.write("rot.aar", bytes);
    let output = scratch.run(&["check", "rot.aar"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
    assert!(
        said.contains("checksum mismatch") && said.contains("file.txt"),
        "{said}"
    );
}

#[test]
fn archives_of_neoaa_are_read_and_ours_by_it() {
    let test = "archives_of_neoaa_are_read_and_ours_by_it";
    if Command::new("neoaa").arg("version").output().is_err() {
        return skip(test, "neoaa of libNeoAppleArchive is not installed");
    }
    let scratch = Scratch::new();
    scratch.write("src/hello.txt", "hello, world\n");
    scratch.write(
        "src/a/b/text",
        "some text that compresses well\n".repeat(200_000),
    );
    let noise: Vec<u8> = (0..3_000_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    scratch.write("src/a/noise", noise);
    let neoaa = |line: &str| {
        let made = Command::new("neoaa")
            .current_dir(scratch.path(""))
            .args(line.split(' '))
            .output()
            .unwrap();
        assert!(made.status.success(), "{line}: {}", stderr(&made));
    };
    for method in ["raw", "lzfse", "zlib", "lzbitmap"] {
        neoaa(&format!("archive -i src -o {method}.aar -a {method}"));
        let (name, out) = (format!("{method}.aar"), format!("{method}-out"));
        scratch.ok(&["check", &name]);
        scratch.ok(&["extract", &name, &out]);
        for path in ["hello.txt", "a/b/text", "a/noise"] {
            let read = |root: &str| fs::read(scratch.path(&format!("{root}/{path}"))).unwrap();
            assert!(read("src") == read(&out), "{method}: {path}");
        }
    }
    // It reads neither devices nor empty files.
    let ours: Vec<u8> = [
        FixtureEntry::new(b'D', "d"),
        FixtureEntry::new(b'F', "d/x")
            .number("MOD", 2, 0o640)
            .time("MTM", 1_700_000_000, 5)
            .blob("DAT", 4, CONTENTS),
    ]
    .iter()
    .flat_map(FixtureEntry::bytes)
    .collect();
    scratch.write("ours.aar", &ours);
    fs::create_dir(scratch.path("theirs")).unwrap();
    neoaa("extract -i ours.aar -o theirs");
    scratch.ok(&["extract", "ours.aar", "mine"]);
    assert_eq!(fs::read(scratch.path("theirs/d/x")).unwrap(), CONTENTS);
    assert!(inventory(&scratch.path("mine")).len() >= 2);
}
