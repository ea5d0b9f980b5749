//! `check`, and what other verbs report of a damaged image.

use std::fs;

use super::{edit, facts, images};
use crate::common::{Scratch, stderr};

#[test]
fn check_says_what_is_wrong_and_how_bad_it_is() {
    let scratch = images();
    for image in ["x.img", "x.sparsebundle"] {
        assert!(scratch.ok(&["check", image]).contains("no problems found"));
        assert_eq!(scratch.ok(&["check", "-q", image]), "");
    }
    fs::write(scratch.path("x.sparsebundle/bands/notes.txt"), "").unwrap();
    let output = scratch.run(&["check", "x.sparsebundle"]);
    assert_eq!(output.status.code(), Some(8));
    assert!(
        String::from_utf8_lossy(&output.stdout)
            .contains("warning  sparse bundle: bands/notes.txt: ")
    );
    edit(&scratch, "x.img", |disk| disk[520] ^= 1);
    let found = facts(&scratch, 5, &["check", "x.img"]);
    assert_eq!(
        (found["worst"].as_str(), found["damage_count"].as_u64()),
        (Some("damage"), Some(1))
    );
    let problem = &found["problems"][0];
    assert_eq!(
        (problem["layer"].as_str(), problem["offset"].as_u64()),
        (Some("gpt_header"), Some(512))
    );
    let layers: Vec<_> = found["layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|layer| layer["description"].as_str().unwrap())
        .collect();
    assert_eq!(layers, ["raw image", "GPT", "HFS+ on partition 1"]);
    scratch.write("nonsense.bin", b"no image at all ".repeat(64));
    assert_eq!(
        facts(&scratch, 6, &["check", "nonsense.bin"])["layers"][1]["verdict"],
        "unknown"
    );
    scratch.fails(3, &["check", "missing.dmg"]);
}

#[test]
fn a_finding_about_a_file_has_its_path() {
    let scratch = Scratch::new();
    scratch.write("src/c/d.txt", "hello, world\n");
    scratch.ok(&[
        "create", "p.img", "--fs", "hfs+", "--size", "8m", "--from", "src",
    ]);
    edit(&scratch, "p.img", |disk| {
        // The name in the key of the file's record, and the record's type.
        let key = b"\0\x05\0d\0.\0t\0x\0t\0\x02";
        let found = disk.windows(key.len()).position(|bytes| bytes == key);
        let record = found.unwrap() + key.len() - 2;
        let size = record + 88;
        disk[size] = 1;
    });
    let found = facts(&scratch, 5, &["check", "p.img"]);
    let problem = &found["problems"][0];
    assert_eq!(problem["volume_path"], "/c/d.txt", "{found:#}");
    let output = scratch.run(&["check", "p.img"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(": /c/d.txt: fork of file "), "{text}");
    let found = facts(&scratch, 9, &["repair", "p.img"]);
    let message = found["problems"][0]["message"].as_str().unwrap();
    assert!(message.contains("/c/d.txt: "), "{found:#}");
}

/// An APFS volume of a folder: what is found wrong with it, its files in the order of names, and
/// errors that name the image.
#[test]
fn apfs_is_checked_and_listed() {
    let scratch = Scratch::new();
    for name in ["src/b.txt", "src/A.txt", "src/c/d.txt", "src/C.txt"] {
        scratch.write(name, "hello, world\n".repeat(9000));
    }
    scratch.ok(&[
        "create",
        "a.img",
        "--fs",
        "apfs",
        "--size",
        "8m",
        "--from",
        "src",
        "--compress",
        "zlib",
    ]);
    assert_eq!(scratch.ok(&["ls", "a.img"]), "A.txt\nb.txt\nc\nC.txt\n");
    assert!(
        scratch
            .ok(&["check", "a.img"])
            .contains("no problems found")
    );
    let found = facts(&scratch, 0, &["check", "--contents", "a.img"]);
    let layers: Vec<_> = found["layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|layer| layer["description"].as_str().unwrap())
        .collect();
    assert_eq!(
        layers,
        [
            "raw image",
            "GPT",
            "APFS on partition 1",
            "compressed files of volume 1 on partition 1"
        ]
    );

    // Every node of the tree of files.
    edit(&scratch, "a.img", |disk| {
        let first = disk.windows(4).position(|bytes| bytes == b"NXSB").unwrap() - 32;
        disk[first..]
            .chunks_exact_mut(4096)
            .filter(|block| block[0x1C..0x20] == [0xE, 0, 0, 0])
            .for_each(|block| block[99] ^= 1);
    });
    let found = facts(&scratch, 5, &["check", "a.img"]);
    let problem = &found["problems"][0];
    assert_eq!(
        (problem["layer"].as_str(), problem["within"].as_str()),
        (Some("apfs_file_tree"), Some("partition 1"))
    );
    assert!(
        problem["message"]
            .as_str()
            .unwrap()
            .contains("checksum mismatch")
            && problem["offset"].is_u64()
    );
    for verb in ["ls", "tree", "cat"] {
        let address = if verb == "cat" {
            "a.img:/b.txt"
        } else {
            "a.img"
        };
        let error = scratch.fails(5, &[verb, address]);
        assert!(error.starts_with("error: a.img: apfs"), "{error}");
    }
}

/// Damage to snapshots does not concern readers of the present volume.
#[test]
fn a_damaged_tree_of_snapshots_hides_no_files() {
    const SNAPSHOTS: [u8; 8] = [2, 0, 0, 0x40, 0x10, 0, 0, 0];
    let scratch = Scratch::new();
    scratch.write("in/file", "contents");
    scratch.ok(&["create", "x.img", "--fs", "apfs", "--from", "in"]);
    let mut image = std::fs::read(scratch.path("x.img")).unwrap();
    // The root of a tree, physical; and what it is a tree of.
    let at = (0..image.len())
        .step_by(4096)
        .find(|at| image[at + 24..].starts_with(&SNAPSHOTS))
        .expect("the tree's root");
    image[at + 100] ^= 1;
    std::fs::write(scratch.path("x.img"), image).unwrap();
    assert_eq!(scratch.ok(&["cat", "x.img:/file"]), "contents");
    assert_eq!(scratch.ok(&["cat", "x.img:in:/file"]), "contents");
    assert_eq!(scratch.run(&["check", "x.img"]).status.code(), Some(5));
}

#[test]
fn a_damaged_volume_is_copied_whole_and_with_a_warning() {
    let scratch = images();
    // The root of the catalog: the volume does not open, its bytes are as good as any.
    edit(&scratch, "x.img", |disk| {
        let header = disk
            .windows(4)
            .position(|four| four == b"H+\0\x04")
            .unwrap();
        let at = header - 1024
            + u32::from_be_bytes(
                disk[header - 1024 + 1024 + 272 + 16..][..4]
                    .try_into()
                    .unwrap(),
            ) as usize
                * 4096;
        disk[at..at + 4096].fill(0xA5);
    });
    assert_eq!(scratch.run(&["info", "x.img"]).status.code(), Some(5));
    for (target, more) in [
        ("c.sparsebundle", &[][..]),
        ("c.dmg", &["--format", "udzo"]),
        ("c.asif", &["--resume"]),
    ] {
        let copied = scratch.run(&[&["convert", "x.img", target], more].concat());
        assert_eq!(
            copied.status.code(),
            Some(0),
            "{target}: {}",
            stderr(&copied)
        );
        let said = stderr(&copied);
        assert!(
            said.contains("warning") && said.contains("damaged, like the source"),
            "{target}: {said}"
        );
        let sums = scratch.json(&["checksum", "x.img", target]);
        assert_eq!(
            sums["images"][0]["checksum"], sums["images"][1]["checksum"],
            "{target}"
        );
    }
    // Nothing is left to do.
    let again = scratch.ok(&["convert", "--resume", "x.img", "c.asif"]);
    assert!(again.contains("already complete"), "{again}");
    assert_eq!(
        scratch.json(&["convert", "--resume", "x.img", "c.asif"])["was_complete"],
        true
    );
    edit(&scratch, "x.img", |disk| disk[1 << 20] ^= 1);
    scratch.fails(4, &["convert", "--resume", "x.img", "c.asif"]);
}

#[test]
fn a_bundle_opens_by_its_other_list_everywhere() {
    let scratch = images();
    for list in ["Info.plist", "Info.bckup"] {
        let whole = fs::read(scratch.path("x.sparsebundle").join(list)).unwrap();
        scratch.write(&format!("x.sparsebundle/{list}"), "garbage");
        for verb in ["ls", "info", "tree", "diagnose", "du"] {
            let output = scratch.run(&[verb, "x.sparsebundle"]);
            assert_eq!(
                output.status.code(),
                Some(0),
                "{verb} {list}: {}",
                stderr(&output)
            );
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
            let tells = if list == "Info.plist" {
                verb != "du"
            } else {
                verb == "info"
            };
            assert!(said.contains(list) || !tells, "{verb}: {said}");
        }
        let found = facts(&scratch, 0, &["diagnose", "x.sparsebundle"]);
        let code = found["cause"]["code"].as_str();
        let expected = match list {
            "Info.plist" => "list_damaged",
            _ => "warnings",
        };
        assert_eq!(code, Some(expected), "{found}");
        fs::write(scratch.path("x.sparsebundle").join(list), whole).unwrap();
    }
}

/// The verdict on unknown contents is one for all verbs, in every container, and no verb calls such
/// a disk sound.
#[test]
fn unknown_contents_have_one_exit_code() {
    let scratch = Scratch::new();
    let noise: Vec<u8> = (0..1_u32 << 20)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    scratch.write("noise", &noise);
    scratch.write("noise.img", &noise);
    for name in ["a.sparsebundle", "a.sparseimage", "a.asif"] {
        scratch.ok(&["convert", "--image-format", "udrw", "noise", name]);
    }
    let images = ["noise.img", "a.sparsebundle", "a.sparseimage", "a.asif"];
    for image in images {
        for verb in ["check", "diagnose", "repair"] {
            let output = scratch.run(&[verb, image]);
            assert_eq!(output.status.code(), Some(6), "{verb} {image}: {output:?}");
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
            for word in [
                "no problem",
                "no data is lost",
                "nothing to repair",
                "opens, and",
            ] {
                assert!(!said.contains(word), "{verb} {image}: {said}");
            }
        }
        if image != "noise.img" {
            assert!(scratch.ok(&["info", image]).contains("contents"), "{image}");
            assert_eq!(
                scratch.json(&["info", image])["contents"],
                "unknown",
                "{image}"
            );
        }
    }
    // Known, and not checked.
    let mut luks = noise;
    luks[..6].copy_from_slice(b"LUKS\xba\xbe");
    scratch.write("luks.img", luks);
    let said = scratch.ok(&["check", "luks.img"]);
    assert!(
        said.contains("not checked") && !said.contains("no problems"),
        "{said}"
    );
    scratch.write("empty.img", "");
    for verb in ["check", "diagnose", "repair"] {
        let said = scratch.run(&[verb, "empty.img"]);
        assert_eq!(said.status.code(), Some(5), "{verb}: {said:?}");
        let text = String::from_utf8_lossy(&said.stdout).into_owned() + &stderr(&said);
        assert!(text.contains("empty"), "{verb}: {text}");
    }
}

/// One damaged block of the newest state of an APFS container: every verb warns that an older state
/// is read, and says from when.
#[test]
fn an_older_state_of_a_container_is_never_read_silently() {
    let scratch = Scratch::new();
    scratch.write("src/old", "old");
    let create = ["create", "a.img", "--layout", "none", "--size", "24m"];
    scratch.ok(&[&create[..], &["--fs", "apfs", "--from", "src"]].concat());
    scratch.write("thesis.txt", "new");
    scratch.ok(&["cp", "thesis.txt", "a.img:/thesis.txt"]);
    let mut bytes = fs::read(scratch.path("a.img")).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let xid = |at: usize| u64::from_le_bytes(bytes[at + 16..at + 24].try_into().unwrap());
    let reaper = (4096..bytes.len())
        .step_by(4096)
        .filter(|at| word(at + 24) == 0x8000_0011)
        .max_by_key(|at| xid(*at))
        .unwrap();
    bytes[reaper + 100] ^= 1;
    scratch.write("a.img", bytes);
    for args in [
        &["ls", "a.img:/"][..],
        &["cat", "a.img:/old"],
        &["info", "a.img"],
        &["convert", "a.img", "b.dmg", "--format", "udzo"],
    ] {
        let output = scratch.run(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        let said = stderr(&output);
        assert!(
            said.contains("later changes are missing"),
            "{args:?}: {said}"
        );
        assert!(said.contains("the one of 20"), "{args:?}: {said}");
    }
    for args in [
        &["ls", "-q", "a.img:/"][..],
        &["info", "--quiet", "a.img"],
        &["cp", "-q", "a.img:/old", "old"],
        &["convert", "-q", "a.img", "c.dmg", "--format", "udzo"],
    ] {
        let output = scratch.run(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        let said = stderr(&output);
        assert!(
            said.contains("later changes are missing"),
            "{args:?}: {said}"
        );
    }
    let ends = |code: i32, args: &[&str]| {
        let output = scratch.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        stderr(&output)
    };
    let said = ends(8, &["extract", "a.img", "out"]);
    assert!(said.contains("later changes are missing"), "{said}");
    assert!(scratch.path("out/old").exists() && !scratch.path("out/thesis.txt").exists());
    ends(5, &["diagnose", "a.img"]);
    let said = ends(5, &["check", "a.img"]);
    assert!(said.contains("repair --dry-run"), "{said}");
    let output = scratch.run(&["repair", "--dry-run", "a.img"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("--checkpoint"), "{said}");
}

/// A repair cannot bring back the end of a truncated image, so the hint is another one.
#[test]
fn a_truncated_image_is_to_be_copied_again() {
    let scratch = Scratch::new();
    scratch.write("src/a", vec![7; 3 << 20]);
    for (name, kind, layout) in [
        ("a.img", "hfs+", "none"),
        ("b.img", "apfs", "none"),
        ("c.img", "hfs+", "gptspud"),
        ("d.sparseimage", "hfs+", "gptspud"),
    ] {
        let made = [
            "create", name, "--from", "src", "--fs", kind, "--layout", layout,
        ];
        scratch.ok(&made);
        let file = fs::File::options()
            .write(true)
            .open(scratch.path(name))
            .unwrap();
        let len = file.metadata().unwrap().len();
        file.set_len(len / 2 / 4096 * 4096).unwrap();
        let output = scratch.run(&["check", name]);
        assert_eq!(output.status.code(), Some(5), "{name}");
        let error = stderr(&output);
        assert!(
            error.contains("copy the image again") && !error.contains("bandsaw repair"),
            "{name}: {error}"
        );
    }
    // The backup of the map alone is written again.
    scratch.ok(&[
        "create", "e.img", "--from", "src", "--fs", "hfs+", "--layout", "gptspud",
    ]);
    let file = fs::File::options().write(true).open(scratch.path("e.img"));
    let file = file.unwrap();
    file.set_len(file.metadata().unwrap().len() - 512).unwrap();
    let error = stderr(&scratch.run(&["check", "e.img"]));
    assert!(error.contains("bandsaw repair"), "{error}");
}
