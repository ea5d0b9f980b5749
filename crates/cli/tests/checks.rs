//! `check`, `diagnose` and `repair`, as a user runs them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::common::{Scratch, stderr};
use serde_json::Value;

/// A raw image and a bundle of the same folder.
fn images() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("src/hello.txt", "hello, world\n");
    scratch.ok(&["create", "x.img", "--fs", "hfs+", "--from", "src"]);
    scratch.ok(&["create", "x.sparsebundle", "--fs", "hfs+", "--from", "src"]);
    scratch
}

fn edit(scratch: &Scratch, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(scratch.path(name)).unwrap();
    change(&mut bytes);
    fs::write(scratch.path(name), bytes).unwrap();
}

/// Standard output of a run with `--json` that ends with `code`.
fn facts(scratch: &Scratch, code: i32, args: &[&str]) -> Value {
    let output = scratch.run(&[args, &["--json"]].concat());
    assert_eq!(
        output.status.code(),
        Some(code),
        "{args:?}: {}",
        stderr(&output)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

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
fn repair_restores_what_check_has_found() {
    let scratch = images();
    let whole = fs::read(scratch.path("x.img")).unwrap();
    let last = whole.len() - 512;
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 6] = [
        ("the copy at the beginning", |disk| disk[512..2048].fill(0)),
        ("the copy at the end", |disk| {
            disk.iter_mut().rev().take(512).for_each(|byte| *byte = 0)
        }),
        ("the last sectors", |disk| {
            disk.truncate(disk.len() - 10 * 512)
        }),
        ("the last sectors and a part", |disk| {
            disk.truncate(disk.len() - 700)
        }),
        ("the protective MBR", |disk| disk[..512].fill(0)),
        ("the size in it", |disk| disk[0x1be + 12] ^= 7),
    ];
    for (what, damage) in damages {
        fs::write(scratch.path("x.img"), &whole).unwrap();
        edit(&scratch, "x.img", damage);
        let damaged = fs::read(scratch.path("x.img")).unwrap();
        let plan = facts(&scratch, 0, &["repair", "--dry-run", "x.img"]);
        assert!(
            !plan["steps"].as_array().unwrap().is_empty()
                && !plan["problems"].as_array().unwrap().is_empty(),
            "{what}: {plan}"
        );
        assert!(
            fs::read(scratch.path("x.img")).unwrap() == damaged,
            "{what}: a dry run changes nothing"
        );
        assert_eq!(
            facts(&scratch, 0, &["repair", "x.img"])["steps"],
            plan["steps"],
            "{what}"
        );
        assert!(fs::read(scratch.path("x.img")).unwrap() == whole, "{what}");
        scratch.ok(&["check", "x.img"]);
        assert_eq!(
            scratch.idle_repair(&["x.img"]),
            "there is nothing to repair\n"
        );
    }
    edit(&scratch, "x.img", |disk| {
        disk.resize(disk.len() + (1 << 20), 0)
    });
    let found = facts(&scratch, 8, &["check", "x.img"]);
    assert!(
        found["problems"]
            .as_array()
            .unwrap()
            .iter()
            .any(|problem| problem["offset"] == last),
        "{found}"
    );
    assert!(
        scratch
            .ok(&["repair", "x.img"])
            .contains("repaired: GPT: copy at the end")
    );
    scratch.ok(&["check", "x.img"]);
    assert!(scratch.ok(&["ls", "x.img"]).contains("hello.txt"));
}

#[test]
fn repair_restores_bundles() {
    let scratch = images();
    let bundle = |name: &str| scratch.path("x.sparsebundle").join(name);
    let list = fs::read(bundle("Info.plist")).unwrap();
    fs::write(bundle("Info.plist"), "garbage").unwrap();
    fs::write(bundle("bands/ffff"), "leftover").unwrap();
    let plan = scratch.ok(&["repair", "-n", "x.sparsebundle"]);
    assert!(
        plan.contains("would repair: sparse bundle: Info.plist is restored from Info.bckup"),
        "{plan}"
    );
    assert!(
        plan.contains("bands/ffff is moved to the quarantine"),
        "{plan}"
    );
    assert_eq!(fs::read(bundle("Info.plist")).unwrap(), b"garbage");
    scratch.ok(&["repair", "x.sparsebundle"]);
    assert_eq!(fs::read(bundle("Info.plist")).unwrap(), list);
    assert!(!bundle("bands/ffff").exists());
    for damage in [None, Some("garbage")] {
        match damage {
            None => fs::remove_file(bundle("Info.bckup")).unwrap(),
            Some(text) => fs::write(bundle("Info.bckup"), text).unwrap(),
        }
        scratch.ok(&["repair", "x.sparsebundle"]);
        assert_eq!(fs::read(bundle("Info.bckup")).unwrap(), list);
        scratch.ok(&["check", "x.sparsebundle"]);
    }
    // What is not certain stays, and is said.
    fs::write(bundle("bands/notes.txt"), "mine").unwrap();
    let output = scratch.run(&["repair", "x.sparsebundle"]);
    assert_eq!(output.status.code(), Some(8));
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("left: sparse bundle: bands/notes.txt: "),
        "{output:?}"
    );
    assert_eq!(fs::read(bundle("bands/notes.txt")).unwrap(), b"mine");
    fs::remove_file(bundle("bands/notes.txt")).unwrap();
    // A list that tells too small a size: what lies past it is not thrown away, because the map
    // reaches there.
    let text = String::from_utf8(list).unwrap();
    let at = text.find("<key>size</key>").unwrap();
    let size: u64 = text[at..]
        .split(['>', '<'])
        .nth(6)
        .unwrap()
        .parse()
        .unwrap();
    let small = format!(
        "{}{}",
        &text[..at],
        text[at..].replace(&size.to_string(), &(size / 1024 * 512).to_string())
    );
    fs::write(bundle("Info.plist"), &small).unwrap();
    fs::write(bundle("Info.bckup"), &small).unwrap();
    let before: Vec<_> = fs::read_dir(bundle("bands"))
        .unwrap()
        .map(|band| band.unwrap().metadata().unwrap().len())
        .collect();
    let output = scratch.run(&["repair", "x.sparsebundle"]);
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains(&format!("alternative: --assume size={size}")),
        "{said}"
    );
    assert!(said.contains("nothing was changed"), "{said}");
    let after: Vec<_> = fs::read_dir(bundle("bands"))
        .unwrap()
        .map(|band| band.unwrap().metadata().unwrap().len())
        .collect();
    assert_eq!(before, after);
}

/// A number of a sparse image's index that became zero hides a band: `check` warns, `compact` keeps
/// the data and tells so, `repair` asks.
#[test]
fn a_hidden_band_is_told_and_kept() {
    let scratch = Scratch::new();
    let bytes = |seed: u8| {
        (0..900_000_u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed)
            .collect::<Vec<u8>>()
    };
    for number in 0..8 {
        scratch.write(&format!("src/file{number}"), bytes(number));
    }
    let create = [
        "create",
        "x.sparseimage",
        "--size",
        "12m",
        "--fs",
        "hfs+",
        "--from",
        "src",
    ];
    scratch.ok(&create);
    let whole = fs::read(scratch.path("x.sparseimage")).unwrap();
    edit(&scratch, "x.sparseimage", |file| {
        file[0x40 + 16..0x40 + 20].fill(0)
    });
    let damaged = fs::read(scratch.path("x.sparseimage")).unwrap();

    let checked = scratch.run(&["check", "x.sparseimage"]);
    assert_eq!(checked.status.code(), Some(8));
    assert!(
        stderr(&checked).contains("files may have lost data"),
        "{}",
        stderr(&checked)
    );
    assert!(!stderr(&checked).contains("no data is lost"));

    let plan = scratch.ok(&["compact", "-n", "x.sparseimage"]);
    assert!(
        plan.contains("not belong to any part of the disk") && plan.contains("kept: "),
        "{plan}"
    );
    let refused = scratch.run(&["repair", "x.sparseimage"]);
    assert_eq!(refused.status.code(), Some(9), "{}", stderr(&refused));
    let said = String::from_utf8_lossy(&refused.stdout);
    assert!(said.contains("--assume orphans=restore"), "{said}");
    assert!(fs::read(scratch.path("x.sparseimage")).unwrap() == damaged);

    scratch.ok(&["repair", "--assume", "orphans=restore", "x.sparseimage"]);
    assert!(fs::read(scratch.path("x.sparseimage")).unwrap() == whole);
    scratch.ok(&["check", "x.sparseimage"]);
}

/// Half the band size: nothing is found on the disk, and `compact` changes nothing.
#[test]
fn compact_keeps_what_a_wrong_header_hides() {
    let scratch = images();
    scratch.ok(&["convert", "x.img", "x.sparseimage"]);
    edit(&scratch, "x.sparseimage", |file| {
        file[8..12].copy_from_slice(&1024_u32.to_be_bytes());
        file.resize(file.len() + (2 << 20), 5);
    });
    let damaged = fs::read(scratch.path("x.sparseimage")).unwrap();
    let output = scratch.run(&["compact", "x.sparseimage"]);
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    assert!(fs::read(scratch.path("x.sparseimage")).unwrap() == damaged);
    scratch.run(&["repair", "x.sparseimage"]);
    assert!(fs::read(scratch.path("x.sparseimage")).unwrap() == damaged);
}

#[test]
fn repair_restores_the_ends_of_sparse_images() {
    let scratch = images();
    for name in ["x.sparseimage", "x.asif"] {
        scratch.ok(&["convert", "x.img", name]);
        let whole = fs::read(scratch.path(name)).unwrap();
        edit(&scratch, name, |file| {
            file.resize(file.len() + (3 << 20), 9)
        });
        // The volume has all its data, so that nothing can refer to the tail.
        assert!(
            scratch.ok(&["repair", "-n", name]).contains("would repair"),
            "{name}"
        );
        scratch.ok(&["repair", name]);
        assert_eq!(
            fs::metadata(scratch.path(name)).unwrap().len(),
            whole.len() as u64,
            "{name}"
        );
        assert!(
            scratch.ok(&["check", name]).contains("no problems found"),
            "{name}"
        );
        assert!(scratch.ok(&["ls", name]).contains("hello.txt"));
        let half = whole.len() / 2;
        edit(&scratch, name, |file| file.truncate(half));
        assert_eq!(
            scratch.run(&["repair", name]).status.code(),
            Some(5),
            "{name}: what is lost cannot be repaired"
        );
        assert_eq!(
            fs::metadata(scratch.path(name)).unwrap().len(),
            half as u64,
            "{name}"
        );
    }
}

/// Everything in a folder but locks.
fn files(scratch: &Scratch, name: &str) -> Vec<String> {
    let all = crate::common::inventory(&scratch.path(name))
        .into_iter()
        .filter(|line| !line.starts_with("lock: "));
    // Times and modes are told by others.
    all.map(|line| {
        line.split(": ").next().unwrap_or_default().to_owned()
            + line.split(" bytes ").last().unwrap_or_default()
    })
    .collect()
}

/// A list that tells another size, or other bands, than everything else: it is corrected, or
/// nothing is changed at all. Undone, the bundle is as it was.
#[test]
fn one_wrong_list_destroys_nothing() {
    let scratch = Scratch::new();
    for name in ["src/a.txt", "src/b/c.bin"] {
        scratch.write(
            name,
            (0..700_000_u32)
                .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
                .collect::<Vec<_>>(),
        );
    }
    const B: &str = "b.sparsebundle";
    for (fs, layout) in [
        ("hfs+", "gptspud"),
        ("apfs", "gptspud"),
        ("hfs+", "none"),
        ("apfs", "none"),
    ] {
        scratch.ok(&[
            "create",
            B,
            "--size",
            "40m",
            "--fs",
            fs,
            "--layout",
            layout,
            "--band-size",
            "1m",
            "--from",
            "src",
            "--overwrite",
        ]);
        let whole = files(&scratch, B);
        let plist = fs::read_to_string(scratch.path(B).join("Info.plist")).unwrap();
        let at = |key: &str| {
            let text = &plist[plist.find(&format!("<key>{key}</key>")).unwrap()..];
            text.split(['>', '<']).nth(6).unwrap().to_owned()
        };
        for (key, value) in [
            ("size", "0"),
            ("size", "1024"),
            ("size", "20971520"),
            ("band-size", "2097152"),
        ] {
            let tag = |value: &str| format!("<integer>{value}</integer>");
            let wrong = plist.replace(&tag(&at(key)), &tag(value));
            fs::write(scratch.path(B).join("Info.plist"), &wrong).unwrap();
            let damaged = files(&scratch, B);
            // What such a container tells is at its beginning, and the same for bands of either
            // size.
            let is_decided = (fs, layout, key) != ("apfs", "none", "band-size");
            let code = if is_decided { 0 } else { 9 };
            let report = facts(&scratch, code, &["repair", "-n", B]);
            assert!(files(&scratch, B) == damaged, "a dry run changes nothing");
            let done = facts(&scratch, code, &["repair", B]);
            assert_eq!(done["steps"], report["steps"], "{fs} {layout} {key}");
            if is_decided {
                assert!(files(&scratch, B) == whole, "{fs} {layout} {key}: {done:#}");
                scratch.ok(&["check", B]);
                scratch.ok(&["repair", "--undo", B]);
            }
            assert!(files(&scratch, B) == damaged && !scratch.path("b.sparsebundle.undo").exists());
            // Both lists against everything else.
            fs::write(scratch.path(B).join("Info.bckup"), &wrong).unwrap();
            let damaged = files(&scratch, B);
            // Of a container without a map little more is known than what is at its beginning,
            // which opens.
            let code = match (fs, layout, key, value) {
                ("apfs", "none", "band-size", _) => 10,
                _ => 9,
            };
            let stopped = facts(&scratch, code, &["repair", B]);
            assert!(
                stopped["outcome"] == "undecided" || code != 9,
                "{fs} {layout} {key}"
            );
            let best = stopped["alternatives"][0]["assume"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            assert!(
                files(&scratch, B) == damaged && !scratch.path("b.sparsebundle.undo").exists(),
                "{fs} {layout} {key}"
            );
            if !best.is_empty() && best == format!("{key}={}", at(key)) {
                scratch.ok(&["repair", "--assume", &best, B]);
                assert!(scratch.ok(&["check", B]).contains("no problems found"));
                assert!(scratch.ok(&["ls", B]).contains("a.txt"));
                scratch.ok(&["repair", "--undo", B]);
                assert!(files(&scratch, B) == damaged);
            } else {
                assert!(layout == "none", "{fs} {layout} {key}: {stopped:#}");
            }
            for name in ["Info.plist", "Info.bckup"] {
                fs::write(scratch.path(B).join(name), &plist).unwrap();
            }
        }
    }
    scratch.fails(2, &["repair", "--assume", "colour=blue", B]);
    scratch.fails(3, &["repair", "--undo", B]);
}

/// The second leaf of the catalog of the HFS+ volume that begins at byte 0.
fn second_leaf(disk: &[u8]) -> std::ops::Range<usize> {
    let number = |at: usize, len: usize| {
        disk[at..at + len]
            .iter()
            .fold(0, |value, byte| value << 8 | usize::from(*byte))
    };
    let catalog = number(1024 + 288, 4) * number(1024 + 40, 4);
    let (first, node_size) = (number(catalog + 24, 4), number(catalog + 32, 2));
    let start = catalog + number(catalog + first * node_size, 4) * node_size;
    start..start + node_size
}

/// A repair that loses files has to be asked for, and names every one of them.
#[test]
fn files_are_given_up_only_when_told_to() {
    let scratch = Scratch::new();
    for number in 0..120 {
        scratch.write(
            &format!("src/a file with a name of some length {number:03}"),
            "hello, world\n",
        );
    }
    scratch.ok(&[
        "create", "x.img", "--fs", "hfs+", "--layout", "none", "--from", "src",
    ]);
    // One leaf is torn; and the first node of the catalog too, by which the volume does not open at
    // all.
    for opens in [true, false] {
        let whole = fs::read(scratch.path("x.img")).unwrap();
        let leaf = second_leaf(&whole);
        edit(&scratch, "x.img", |disk| {
            disk[leaf.clone()].fill(0);
            if !opens {
                let header = disk[1024 + 288..]
                    .first_chunk()
                    .map(|start| u32::from_be_bytes(*start))
                    .unwrap() as usize
                    * 4096;
                disk[header..header + 14].fill(0xAA);
            }
        });
        assert!(!scratch.run(&["ls", "x.img"]).status.success(), "{opens}");
        let damaged = fs::read(scratch.path("x.img")).unwrap();
        let mut named = BTreeSet::new();
        for dry_run in [&["-n"][..], &[]] {
            let stopped = facts(&scratch, 9, &[&["repair", "x.img"], dry_run].concat());
            assert_eq!(stopped["outcome"], "loss_refused", "{opens}");
            named = paths(&stopped);
            assert!(!named.is_empty() && named.len() < 120, "{opens}: {named:?}");
            assert!(
                fs::read(scratch.path("x.img")).unwrap() == damaged
                    && !scratch.path("x.img.undo").exists()
            );
        }
        let refused = stderr(&scratch.run(&["repair", "x.img"]));
        assert!(
            refused.contains("would be lost") && refused.contains("--accept-loss"),
            "{refused}"
        );
        let done = facts(&scratch, 0, &["repair", "--accept-loss", "x.img"]);
        assert_eq!(done["outcome"], "repaired");
        assert_eq!(paths(&done), named, "{opens}");
        let left = scratch.ok(&["ls", "x.img"]);
        let is_left = |number: &usize| left.contains(&format!("length {number:03}"));
        let gone: BTreeSet<String> = (0..120)
            .filter(|number| !is_left(number))
            .map(|number| format!("/a file with a name of some length {number:03}"))
            .collect();
        assert_eq!(gone, named, "{opens}");
        let list = fs::read_to_string(scratch.path("x.img.undo/1/losses.txt")).unwrap();
        assert_eq!(list.lines().count(), named.len());
        assert!(named.iter().all(|path| list.contains(path)), "{list}");
        assert!(
            scratch
                .ok(&["check", "x.img"])
                .contains("no problems found")
        );
        scratch.ok(&["repair", "--undo", "x.img"]);
        assert!(fs::read(scratch.path("x.img")).unwrap() == damaged);
        fs::write(scratch.path("x.img"), whole).unwrap();
    }
}

/// Returns the paths of the losses in the output of `repair --json`.
fn paths(facts: &serde_json::Value) -> BTreeSet<String> {
    let losses = facts["losses"].as_array().unwrap();
    let path = |loss: &serde_json::Value| loss["volume_path"].as_str().unwrap().to_owned();
    losses.iter().map(path).collect()
}

/// Compressed files whose attributes are lost have lost their contents, though they still exist.
#[test]
fn contents_of_compressed_files_are_given_up_only_when_told_to() {
    let scratch = Scratch::new();
    for number in 0..60 {
        let text = format!("content of file {number}\n").repeat(40);
        scratch.write(&format!("src/file{number:02}"), &text);
    }
    scratch.ok(&[
        "create",
        "x.img",
        "--fs",
        "hfs+",
        "--layout",
        "none",
        "--from",
        "src",
        "--compress",
        "zlib",
    ]);
    edit(&scratch, "x.img", |disk| {
        let number = |at: usize| u32::from_be_bytes(*disk[at..].first_chunk().unwrap()) as usize;
        let tree = number(1024 + 352 + 16) * number(1024 + 40);
        let size = usize::from(u16::from_be_bytes(
            *disk[tree + 32..].first_chunk().unwrap(),
        ));
        let leaf = tree + number(tree + 24) * size;
        disk[leaf..leaf + size].fill(0);
    });
    let stopped = facts(&scratch, 9, &["repair", "x.img"]);
    let named = paths(&stopped);
    assert!(named.len() > 10, "{named:?}");
    let done = facts(&scratch, 0, &["repair", "--accept-loss", "x.img"]);
    assert_eq!(paths(&done), named);
    scratch.ok(&["extract", "x.img", "out"]);
    let out = fs::read_dir(scratch.path("out")).unwrap();
    let empty: BTreeSet<String> = out
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.metadata().unwrap().len() == 0)
        .map(|entry| format!("/{}", entry.file_name().to_string_lossy()))
        .collect();
    assert_eq!(empty, named);
    assert!(
        scratch
            .ok(&["check", "x.img"])
            .contains("no problems found")
    );
}

/// A volume without room for its repair says which command helps, and it does; `--undo` takes the
/// growth back.
#[test]
fn a_full_volume_grows_for_its_repair() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("src")).unwrap();
    fs::write(scratch.path("src/big"), vec![0xB1; 9_000_000]).unwrap();
    scratch.write("src/small", "small");
    scratch.ok(&[
        "create", "x.img", "--fs", "hfs+", "--size", "12m", "--from", "src",
    ]);
    // The record of the small file states the blocks of the big one, so that each needs a copy.
    edit(&scratch, "x.img", |disk| {
        let volume = (0..1 << 20)
            .step_by(512)
            .find(|at| disk[at + 1024..].starts_with(b"H+\0\x04"))
            .unwrap();
        let number = |at: usize| u32::from_be_bytes(*disk[at..].first_chunk().unwrap()) as usize;
        let catalog = volume + number(volume + 1024 + 288) * number(volume + 1024 + 40);
        let fork = |disk: &[u8], name: &str| {
            let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_be_bytes).collect();
            let mut key = vec![0, 6 + units.len() as u8, 0, 0, 0, 2, 0, name.len() as u8];
            key.extend(units);
            let at = disk[catalog..]
                .windows(key.len())
                .position(|found| found == key)
                .unwrap();
            catalog + at + key.len() + 88
        };
        let (big, small) = (fork(disk, "big"), fork(disk, "small"));
        disk.copy_within(big..big + 80, small);
        disk[catalog..catalog + 64].fill(0);
    });
    let damaged = fs::read(scratch.path("x.img")).unwrap();
    let refused = scratch.run(&["repair", "--accept-loss", "x.img"]);
    assert_eq!(refused.status.code(), Some(5));
    let refused = String::from_utf8(refused.stdout).unwrap();
    let size = refused.split_once("--grow ").unwrap().1;
    let size = size.split_once('`').unwrap().0;
    let grown = &["repair", "--grow", size, "x.img"];
    assert_eq!(
        paths(&facts(&scratch, 9, grown)),
        ["/big", "/small"].map(str::to_owned).into()
    );
    assert!(fs::read(scratch.path("x.img")).unwrap() == damaged);
    scratch.ok(&[&grown[..], &["--accept-loss"]].concat());
    assert!(
        scratch
            .ok(&["check", "x.img"])
            .contains("no problems found")
    );
    scratch.ok(&["extract", "x.img", "out"]);
    assert!(fs::read(scratch.path("out/big")).unwrap() == vec![0xB1; 9_000_000]);
    scratch.ok(&["repair", "--undo", "x.img"]);
    assert!(fs::read(scratch.path("x.img")).unwrap() == damaged);
}

/// A sparse image whose band has a number past the end of the disk keeps the band until somebody
/// decides.
#[test]
fn bands_past_the_end_of_a_sparse_image_stay() {
    let scratch = images();
    scratch.ok(&["convert", "x.img", "x.sparseimage"]);
    let whole = fs::read(scratch.path("x.sparseimage")).unwrap();
    edit(&scratch, "x.sparseimage", |file| file[0x40] |= 0x40);
    let damaged = fs::read(scratch.path("x.sparseimage")).unwrap();
    let stopped = facts(&scratch, 9, &["repair", "x.sparseimage"]);
    assert_eq!(stopped["outcome"], "undecided");
    let assume = stopped["alternatives"][0]["assume"].as_str().unwrap();
    assert!(fs::read(scratch.path("x.sparseimage")).unwrap() == damaged);
    // Nor does a writer remove it.
    assert!(
        scratch
            .run(&["resize", "--size", "1g", "x.sparseimage"])
            .status
            .code()
            != Some(0)
    );
    edit(&scratch, "x.sparseimage", |file| file[0x40] &= !0x40);
    assert!(fs::read(scratch.path("x.sparseimage")).unwrap() == whole);
    edit(&scratch, "x.sparseimage", |file| file[0x40] |= 0x40);
    scratch.run(&[
        "repair",
        "--assume",
        assume,
        "--accept-loss",
        "x.sparseimage",
    ]);
    // The band is gone, and the map is written anew from its backup.
    let repaired = fs::read(scratch.path("x.sparseimage")).unwrap();
    assert!(repaired[0x40] & 0x40 == 0 && repaired != whole);
    scratch.ok(&["repair", "--undo", "x.sparseimage"]);
    assert!(fs::read(scratch.path("x.sparseimage")).unwrap() == damaged);
}

/// Undo data goes where it is told to, and nothing is repaired where it cannot go.
#[test]
fn undo_data_has_a_place_or_nothing_is_repaired() {
    let scratch = images();
    let whole = fs::read(scratch.path("x.img")).unwrap();
    edit(&scratch, "x.img", |disk| disk[512..1024].fill(9));
    let damaged = fs::read(scratch.path("x.img")).unwrap();
    fs::create_dir(scratch.path("kept")).unwrap();
    scratch.ok(&["repair", "--undo-dir", "kept", "x.img"]);
    assert!(fs::read(scratch.path("x.img")).unwrap() == whole);
    assert!(scratch.path("kept/x.img.undo/1/log").exists() && !scratch.path("x.img.undo").exists());
    scratch.fails(3, &["repair", "--undo", "x.img"]);
    scratch.ok(&["repair", "--undo", "--undo-dir", "kept", "x.img"]);
    assert!(fs::read(scratch.path("x.img")).unwrap() == damaged);
    // A file where the folder belongs: nobody can write there, root neither.
    scratch.write("x.img.undo", "");
    let refused = scratch.fails(1, &["repair", "x.img"]);
    assert!(refused.contains("--undo-dir"), "{refused}");
    assert!(fs::read(scratch.path("x.img")).unwrap() == damaged);
    fs::remove_file(scratch.path("x.img.undo")).unwrap();
    // What was repaired and then changed is not undone; committed it is done with.
    scratch.ok(&["repair", "x.img"]);
    scratch.write("more", "more");
    scratch.ok(&["put", "--from", "more", "x.img:/more"]);
    let refused = scratch.fails(4, &["repair", "--undo", "x.img"]);
    assert!(
        refused.contains("changed since it was repaired"),
        "{refused}"
    );
    assert!(
        scratch
            .ok(&["repair", "--commit", "x.img"])
            .contains("removed the undo data of 1 repair")
    );
    assert!(!scratch.path("x.img.undo").exists() && scratch.ok(&["ls", "x.img"]).contains("more"));
}

/// An image whose repair was cut off is read with a warning; nothing writes to it but `repair`,
/// which rolls back first.
#[test]
fn an_interrupted_repair_is_rolled_back_first() {
    let scratch = images();
    edit(&scratch, "x.img", |disk| disk[512..1024].fill(9));
    let damaged = fs::read(scratch.path("x.img")).unwrap();
    let first = facts(&scratch, 0, &["repair", "x.img"]);
    let repaired = fs::read(scratch.path("x.img")).unwrap();
    // The state `applied` is written last.
    let interrupt = |scratch: &Scratch| {
        edit(scratch, "x.img.undo/1/state", |state| {
            *state = b"bandsaw undo 2\nprepared\nend 95d4e726\n".to_vec();
        });
        edit(scratch, "x.img", |disk| disk[600..800].fill(7));
    };
    interrupt(&scratch);
    let left = fs::read(scratch.path("x.img")).unwrap();
    scratch.write("more", "more");
    for args in [
        &["put", "--from", "more", "x.img:/more"][..],
        &["resize", "--size", "1g", "x.img"],
        &["repair", "--commit", "x.img"],
    ] {
        let refused = scratch.fails(4, args);
        assert!(
            refused.contains("interrupted") && refused.contains("repair --undo"),
            "{args:?}: {refused}"
        );
    }
    let read = scratch.run(&["ls", "x.img"]);
    assert!(
        stderr(&read).contains("a repair of this image was interrupted"),
        "{}",
        stderr(&read)
    );
    let tried = facts(&scratch, 0, &["repair", "-n", "x.img"]);
    assert_eq!(
        (&tried["rolled_back_files"], &tried["steps"]),
        (&1.into(), &first["steps"])
    );
    assert!(fs::read(scratch.path("x.img")).unwrap() == left);
    let again = scratch.ok(&["repair", "x.img"]);
    assert!(
        again.contains("rolled back: an interrupted repair (1 file restored)"),
        "{again}"
    );
    assert!(fs::read(scratch.path("x.img")).unwrap() == repaired);
    interrupt(&scratch);
    scratch.ok(&["repair", "--undo", "x.img"]);
    assert!(fs::read(scratch.path("x.img")).unwrap() == damaged);
}

/// A symbolic link in place of the undo data is not followed; one to the image leads to the undo
/// data of the image itself.
#[test]
fn undo_data_belongs_to_one_image() {
    let scratch = images();
    for image in ["x.img", "x.sparsebundle"] {
        let undo = format!("{image}.undo");
        let disk = if image == "x.img" {
            image.to_owned()
        } else {
            format!("{image}/bands/0")
        };
        let whole = fs::read(scratch.path(&disk)).unwrap();
        edit(&scratch, &disk, |disk| disk[512..1024].fill(9));
        let damaged = fs::read(scratch.path(&disk)).unwrap();
        fs::create_dir_all(scratch.path("elsewhere")).unwrap();
        symlink("elsewhere", scratch.path(&undo)).unwrap();
        let refused = scratch.fails(1, &["repair", image]);
        assert!(refused.contains("--undo-dir"), "{refused}");
        assert!(fs::read(scratch.path(&disk)).unwrap() == damaged);
        assert_eq!(fs::read_dir(scratch.path("elsewhere")).unwrap().count(), 0);
        fs::remove_file(scratch.path(&undo)).unwrap();
        // By either name.
        fs::create_dir_all(scratch.path("links")).unwrap();
        let link = format!("links/{image}");
        symlink(format!("../{image}"), scratch.path(&link)).unwrap();
        for (repair, other) in [(&link[..], image), (image, &link[..])] {
            scratch.ok(&["repair", repair]);
            assert!(scratch.path(&undo).exists());
            assert_eq!(fs::read_dir(scratch.path("links")).unwrap().count(), 1);
            assert!(fs::read(scratch.path(&disk)).unwrap() == whole);
            scratch.ok(&["repair", "--undo", other]);
            assert!(fs::read(scratch.path(&disk)).unwrap() == damaged);
        }
        fs::remove_file(scratch.path(&link)).unwrap();
    }
}

/// A copy, new times and new names of both image and undo data do not stand in the way of an undo;
/// a write to a volume does, even if it hides behind the old times.
#[test]
fn undo_looks_at_contents_rather_than_times() {
    let scratch = images();
    for image in ["x.img", "x.sparsebundle"] {
        let undo = format!("{image}.undo");
        let disk = |name: &str| match name.ends_with(".img") {
            true => scratch.path(name),
            false => scratch.path(name).join("bands/0"),
        };
        let write = |name: &str, at: usize, bytes: &[u8]| {
            let mut disk_bytes = fs::read(disk(name)).unwrap();
            disk_bytes[at..at + bytes.len()].copy_from_slice(bytes);
            fs::write(disk(name), disk_bytes).unwrap();
        };
        write(image, 512, &[9; 512]);
        let damaged = fs::read(disk(image)).unwrap();
        scratch.ok(&["repair", image]);
        let repaired = fs::read(disk(image)).unwrap();
        let copied = format!("copy-{image}");
        let run = |program: &str, args: &[&str]| {
            let status = std::process::Command::new(program)
                .args(args)
                .current_dir(scratch.path(""))
                .status();
            assert!(status.unwrap().success(), "{program} {args:?}");
        };
        run("cp", &["-r", image, &copied]);
        run("cp", &["-r", &undo, &format!("{copied}.undo")]);
        scratch.ok(&["repair", "--undo", &copied]);
        assert!(fs::read(disk(&copied)).unwrap() == damaged, "{image}");
        let renamed = format!("new-{image}");
        fs::rename(scratch.path(image), scratch.path(&renamed)).unwrap();
        fs::rename(
            scratch.path(&undo),
            scratch.path(&format!("{renamed}.undo")),
        )
        .unwrap();
        run("touch", &[disk(&renamed).to_str().unwrap()]);
        // The write count in the volume header, with the time put back.
        let header = (0..repaired.len())
            .step_by(512)
            .find(|at| repaired[*at..].starts_with(b"H+"))
            .unwrap();
        let kept = scratch.write("time", "");
        run(
            "touch",
            &[
                "-r",
                disk(&renamed).to_str().unwrap(),
                kept.to_str().unwrap(),
            ],
        );
        write(&renamed, header + 71, &[repaired[header + 71] ^ 1]);
        run(
            "touch",
            &[
                "-r",
                kept.to_str().unwrap(),
                disk(&renamed).to_str().unwrap(),
            ],
        );
        let refused = scratch.fails(4, &["repair", "--undo", &renamed]);
        assert!(
            refused.contains("changed since it was repaired") && refused.contains("bytes "),
            "{refused}"
        );
        write(&renamed, header + 71, &[repaired[header + 71]]);
        scratch.ok(&["repair", "--undo", &renamed]);
        assert!(fs::read(disk(&renamed)).unwrap() == damaged, "{image}");
    }
}

/// Returns the files of an image except its lock, by their paths below it.
fn bytes_in(image: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut paths = vec![image.to_owned()];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(
                fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if !path.ends_with("lock") {
            let name = path.strip_prefix(image).unwrap().to_owned();
            found.insert(name, fs::read(path).unwrap());
        }
    }
    found
}

/// A repair and an undo that are killed at each of their system calls that write: the image is
/// restored by the undo, and repaired by the next repair.
#[test]
#[ignore = "full: starts the command about 1,000 times"]
fn a_repair_can_be_killed_at_every_write() {
    if std::process::Command::new("strace")
        .arg("-V")
        .output()
        .is_err()
    {
        eprintln!("skipped: a repair that is killed at every write: needs strace");
        return;
    }
    // A call that opens may create.
    const CALLS: [&str; 14] = [
        "openat",
        "write",
        "pwrite64",
        "ftruncate",
        "fallocate",
        "rename",
        "renameat",
        "renameat2",
        "unlink",
        "unlinkat",
        "rmdir",
        "mkdirat",
        "fsync",
        "fdatasync",
    ];
    let scratch = images();
    edit(&scratch, "x.sparsebundle/bands/0", |disk| {
        disk[512..1024].fill(9)
    });
    scratch.write("x.sparsebundle/Info.bckup", "garbage");
    scratch.write("x.sparsebundle/bands/ffff", [5; 5000]);
    edit(&scratch, "x.img", |disk| disk[512..1024].fill(9));
    let contents = |name: &str| bytes_in(&scratch.path(name));
    let copy = |from: &str, to: &str| {
        let command = format!("rm -rf {to} {to}.undo; cp -r {from} {to}");
        let command =
            format!("{command}; if [ -e {from}.undo ]; then cp -r {from}.undo {to}.undo; fi");
        let shell = std::process::Command::new("sh")
            .args(["-c", &command])
            .current_dir(scratch.path(""))
            .status();
        assert!(shell.unwrap().success());
    };
    let mut killed = 0;
    for (image, work) in [("x.sparsebundle", "w.sparsebundle"), ("x.img", "w.img")] {
        copy(image, "repaired");
        scratch.ok(&["repair", "repaired"]);
        let (damaged, repaired) = (contents(image), contents("repaired"));
        for (from, args) in [
            (image, &["repair", work][..]),
            ("repaired", &["repair", "--undo", work][..]),
        ] {
            for call in CALLS {
                for n in 1.. {
                    copy(from, work);
                    let run = std::process::Command::new("strace")
                        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
                        .arg(format!("inject={call}:signal=KILL:when={n}"))
                        .arg(env!("CARGO_BIN_EXE_bandsaw"))
                        .args(args)
                        .current_dir(scratch.path(""))
                        .output()
                        .unwrap();
                    if run.status.success() {
                        break;
                    }
                    let place = format!("{args:?} killed at {call} {n}: {}", stderr(&run));
                    assert_eq!(
                        std::os::unix::process::ExitStatusExt::signal(&run.status),
                        Some(9),
                        "{place}"
                    );
                    killed += 1;
                    if n % 2 == 0 {
                        let next = scratch.run(&["repair", work]);
                        assert!(
                            matches!(next.status.code(), Some(0 | 10)),
                            "{place}: {}",
                            stderr(&next)
                        );
                        assert!(contents(work) == repaired, "{place}");
                    }
                    // Without undo data (exit code 3), the repair had not begun, or the undo had
                    // ended.
                    let undone = scratch.run(&["repair", "--undo", work]);
                    assert!(
                        matches!(undone.status.code(), Some(0 | 3)),
                        "{place}: {}",
                        stderr(&undone)
                    );
                    assert!(contents(work) == damaged, "{place}");
                    let undo = scratch.path(&format!("{work}.undo"));
                    assert!(!undo.exists() || undone.status.code() == Some(3), "{place}");
                }
            }
        }
    }
    assert!(killed > 100, "{killed}");
}

/// Every cause that people meet, by its name, and something of what is printed.
#[test]
fn diagnose_names_the_cause() {
    let scratch = images();
    let zlib = |bytes: &[u8]| {
        // One stored block in a zlib stream.
        let len = bytes.len() as u16;
        let (mut a, mut b) = (1_u32, 0_u32);
        bytes.iter().for_each(|byte| {
            a = (a + u32::from(*byte)) % 65521;
            b = (b + a) % 65521;
        });
        let head = [
            &[0x78, 0x01, 0x01][..],
            &len.to_le_bytes(),
            &(!len).to_le_bytes(),
        ]
        .concat();
        [&head[..], bytes, &(b << 16 | a).to_be_bytes()].concat()
    };
    let disk = fs::read(scratch.path("x.img")).unwrap();
    let lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 12345\n";
    let files: [(&str, Vec<u8>, &str, &str); 23] = [
        ("empty.dmg", vec![], "empty", "no bytes"),
        (
            "page.dmg",
            b"\n<!DOCTYPE html><html><body>Please log in</body></html>".to_vec(),
            "web-page",
            "curl -fL",
        ),
        (
            "page2.dmg",
            b"<?xml version='1.0'?>\n<html xmlns='x'></html>".to_vec(),
            "web-page",
            "browser",
        ),
        ("pointer.dmg", lfs.into(), "lfs-pointer", "12345 bytes"),
        (
            "error.dmg",
            b"{\"message\": \"Not Found\"}".to_vec(),
            "text",
            "Not Found",
        ),
        (
            "a.dmg",
            [b"PK\x03\x04", &[0x81; 2000][..]].concat(),
            "archive",
            "unzip",
        ),
        (
            "b.dmg",
            [b"\x1f\x8b\x08\0", &[0x81; 2000][..]].concat(),
            "archive",
            "gzip -dc",
        ),
        (
            "c.dmg",
            [b"7z\xbc\xaf\x27\x1c", &[0x81; 2000][..]].concat(),
            "archive",
            "7zz x",
        ),
        (
            "d.dmg",
            [b"xar!", &[0x81; 2000][..]].concat(),
            "archive",
            ".pkg",
        ),
        (
            "e.dmg",
            [b"AEA1", &[0x81; 2000][..]].concat(),
            "archive",
            "aea",
        ),
        (
            "f.img",
            [b"QFI\xfb", &[0x81; 2000][..]].concat(),
            "other-system",
            "qemu-img",
        ),
        (
            "g.img",
            [b"LUKS\xba\xbe", &[0x81; 2000][..]].concat(),
            "other-system",
            "cryptsetup",
        ),
        (
            "h.dmg",
            [b"\x89PNG\r\n\x1a\n", &[0x81; 2000][..]].concat(),
            "no-image",
            "picture",
        ),
        (
            "random.dmg",
            (0..65536_u32)
                .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
                .collect(),
            "unknown",
            "udrw",
        ),
        (
            "half.dmg",
            [zlib(&disk[..512]), vec![0x81; 5000]].concat(),
            "cut-short",
            "koly",
        ),
        (
            "begun.dmg.crdownload",
            vec![0x81; 5000],
            "unfinished-download",
            "finish",
        ),
        (
            "room.dmg",
            [vec![0x81; 5000], vec![0; 2 << 20]].concat(),
            "cut-short",
            "zeros",
        ),
        (
            "half.img",
            disk[..20480].to_vec(),
            "cut-short",
            "past the end",
        ),
        ("blank.dmg", vec![0; 1 << 20], "blank", "not formatted"),
        (
            "apfs.img",
            [&[0; 32][..], b"NXSB", &[0; 70000][..]].concat(),
            "volume-damaged",
            "APFS",
        ),
        (
            "iso.iso",
            [&[0; 0x8001][..], b"CD001", &[0; 70000][..]].concat(),
            "file-system-not-read",
            "mount",
        ),
        (
            "map.img",
            disk.iter()
                .enumerate()
                .map(|(n, byte)| {
                    if n == 520 || n + 500 == disk.len() {
                        !byte
                    } else {
                        *byte
                    }
                })
                .collect(),
            "partition-map-damaged",
            "repair",
        ),
        ("x.sparseimage", disk.clone(), "wrong-extension", "rename"),
    ];
    for (name, bytes, code, hint) in files {
        let path = scratch.write(name, bytes);
        let before = fs::read(&path).unwrap();
        let output = scratch.run(&["diagnose", "--json", name]);
        let found: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{name}: {output:?}"));
        assert_eq!(
            found["cause"]["code"],
            code.replace('-', "_"),
            "{name}: {found}"
        );
        assert!(
            found["cause"].to_string().contains(hint),
            "{name}: no {hint} in {found}"
        );
        assert!(
            !found["cause"]["advice"].as_array().unwrap().is_empty(),
            "{name}"
        );
        assert_eq!(output.status.success(), code == "wrong-extension", "{name}");
        assert!(fs::read(&path).unwrap() == before);
        let text = scratch.run(&["diagnose", name]);
        assert!(
            String::from_utf8_lossy(&text.stdout).contains("  * "),
            "{name}: {text:?}"
        );
    }
    for image in ["x.img", "x.sparsebundle"] {
        assert!(
            scratch
                .ok(&["diagnose", image])
                .contains("no problem was found"),
            "{image}"
        );
    }
    assert_eq!(
        facts(&scratch, 3, &["diagnose", "missing.dmg"])["cause"]["code"],
        "missing"
    );
    assert_eq!(
        facts(&scratch, 6, &["diagnose", "src"])["cause"]["code"],
        "no_image"
    );
    fs::write(scratch.path("x.sparsebundle/Info.plist"), "x").unwrap();
    fs::write(scratch.path("x.sparsebundle/Info.bckup"), "x").unwrap();
    assert_eq!(
        facts(&scratch, 5, &["diagnose", "x.sparsebundle"])["cause"]["code"],
        "bundle_damaged"
    );
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

/// A damaged APFS container falls back to an older checkpoint, on request only.
#[test]
fn apfs_falls_back_on_request() {
    let scratch = Scratch::new();
    scratch.write("hello.txt", "hello, world\n");
    scratch.ok(&["create", "a.img", "--fs", "apfs", "--size", "8m"]);
    scratch.ok(&["cp", "hello.txt", "a.img:/one"]);
    scratch.ok(&["cp", "hello.txt", "a.img:/two"]);
    let info = scratch.ok(&["info", "a.img"]);
    let checkpoints = info
        .lines()
        .find_map(|line| line.trim().strip_prefix("checkpoint "))
        .unwrap();
    let (newest, older) = checkpoints.split_once("; older: ").unwrap();
    let (newest, older) = (
        newest.trim().parse::<u64>().unwrap(),
        older.split(", ").next().unwrap(),
    );
    assert!(
        scratch
            .idle_repair(&["--checkpoint", &newest.to_string(), "a.img"])
            .contains("nothing to repair")
    );
    let refused = scratch.fails(
        4,
        &["cp", "--checkpoint", older, "hello.txt", "a.img:/three"],
    );
    assert!(refused.contains("is not the newest"), "{refused}");
    edit(&scratch, "a.img", |disk| {
        let volume = disk
            .chunks_exact_mut(512)
            .find(|sector| sector[32..36] == *b"APSB" && sector[16..24] == newest.to_le_bytes());
        volume.unwrap()[100] ^= 1;
    });
    let refused = facts(&scratch, 5, &["repair", "a.img"]);
    assert!(
        refused["refused"][0]["message"]
            .as_str()
            .unwrap()
            .contains("--checkpoint"),
        "{refused}"
    );
    let report = facts(
        &scratch,
        0,
        &["repair", "--dry-run", "--checkpoint", older, "a.img"],
    );
    assert!(
        report["steps"][0]["message"]
            .as_str()
            .unwrap()
            .contains("roll back"),
        "{report}"
    );
    scratch.fails(5, &["ls", "a.img"]);
    scratch.ok(&["repair", "--checkpoint", older, "a.img"]);
    assert_eq!(scratch.ok(&["ls", "a.img"]), "one\n");
    assert!(
        scratch
            .ok(&["check", "a.img"])
            .contains("no problems found")
    );
}

/// Who reads the volume as it is needs nothing of its snapshots.
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

#[test]
fn an_interrupted_repair_comes_first() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "a.img", "--size", "4m", "--fs", "hfs+"]);
    fs::create_dir_all(scratch.path("a.img.undo/1")).unwrap();
    scratch.write("a.img.undo/1/state", "bandsaw undo 2\nprepared\n");
    let output = scratch.run(&["check", "--json", "a.img"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = found["problems"][0]["message"].as_str().unwrap();
    assert!(first.contains("interrupted"), "{found}");
    let said = stderr(&scratch.run(&["check", "a.img"]));
    assert!(
        said.contains("run `bandsaw repair --undo a.img` first"),
        "{said}"
    );
    let output = scratch.run(&["diagnose", "--json", "a.img"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["cause"]["code"], "repair_interrupted", "{found}");
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
