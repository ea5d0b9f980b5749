//! `repair`, and what it leaves as it was.

use std::collections::BTreeSet;
use std::fs;

use super::{edit, facts, images};
use crate::common::{Scratch, stderr};

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
    // Uncertain data stays, and is reported.
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
fn a_hidden_band_is_reported_and_kept() {
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
            // The beginning of such a container tells the same for bands of either size.
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

/// Returns the paths of the losses in the output of `repair --json`.
fn paths(facts: &serde_json::Value) -> BTreeSet<String> {
    let losses = facts["losses"].as_array().unwrap();
    let path = |loss: &serde_json::Value| loss["volume_path"].as_str().unwrap().to_owned();
    losses.iter().map(path).collect()
}

/// A repair that loses files has to be asked for, and names every one of them.
#[test]
fn files_are_given_up_only_on_request() {
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

/// Compressed files whose attributes are lost have lost their contents, though they still exist.
#[test]
fn contents_of_compressed_files_are_given_up_only_on_request() {
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
