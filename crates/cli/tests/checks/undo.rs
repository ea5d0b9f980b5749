//! The undo data of a repair: its place, `repair --undo`, and interrupted repairs.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::{edit, facts, images};
use crate::common::{Scratch, stderr};
use bandsaw::platform::nodes;
use serde_json::Value;

/// The state of a repair without a record of the image.
const NO_RECORD: &[u8] = b"bandsaw undo 4\n\nend 00000000\n";

/// Makes the last repair of an image one that was interrupted: the mark that it is complete is
/// written last.
fn interrupt(scratch: &Scratch, image: &str) {
    fs::remove_file(scratch.path(&format!("{image}.undo/1/applied"))).unwrap();
}

/// Changes between two repairs stay: only the later repair is undone.
#[test]
fn an_undo_ends_at_a_change_between_two_repairs() {
    let scratch = images();
    scratch.write("more", "more");
    let damage = || edit(&scratch, "x.img", |disk| disk[512..1024].fill(9));
    damage();
    scratch.ok(&["repair", "x.img"]);
    scratch.ok(&["put", "--from", "more", "x.img:/more"]);
    scratch.fails(4, &["repair", "--undo", "x.img"]);
    for _ in 0..2 {
        damage();
        let damaged = fs::read(scratch.path("x.img")).unwrap();
        scratch.ok(&["repair", "x.img"]);
        let undone = facts(&scratch, 8, &["repair", "--undo", "x.img"]);
        assert_eq!(
            (&undone["repairs"], &undone["kept"]),
            (&1.into(), &1.into())
        );
        let why = undone["kept_because"].as_str().unwrap();
        assert!(why.contains("changed since it was repaired"), "{why}");
        assert!(fs::read(scratch.path("x.img")).unwrap() == damaged);
        assert!(scratch.path("x.img.undo/1").exists() && !scratch.path("x.img.undo/2").exists());
        let refused = scratch.fails(4, &["repair", "--undo", "x.img"]);
        assert!(
            refused.contains("changed since it was repaired"),
            "{refused}"
        );
        assert!(fs::read(scratch.path("x.img")).unwrap() == damaged);
    }
    scratch.ok(&["repair", "x.img"]);
    assert_eq!(scratch.ok(&["cat", "x.img:/more"]), "more");
}

/// Repairs between which nothing was written but what the last one repaired are undone together.
#[test]
fn repairs_are_undone_together() {
    let scratch = images();
    edit(&scratch, "x.img", |disk| disk[512..1024].fill(9));
    let damaged = fs::read(scratch.path("x.img")).unwrap();
    scratch.ok(&["repair", "x.img"]);
    // In the bitmap, which nothing reads in order to open the volume.
    let number =
        |disk: &[u8], at: usize| u32::from_be_bytes(disk[at..at + 4].try_into().unwrap()) as usize;
    let mut bitmap = 0;
    edit(&scratch, "x.img", |disk| {
        let start = (0..disk.len()).step_by(512);
        let header = start
            .into_iter()
            .find(|at| disk[*at..].starts_with(b"H+"))
            .unwrap();
        bitmap = header - 1024 + number(disk, header + 128) * number(disk, header + 40);
        let len = number(disk, header + 44) / 8;
        bitmap += len / 2;
        assert_eq!(disk[bitmap], 0);
        disk[bitmap] = 255;
    });
    scratch.ok(&["repair", "x.img"]);
    assert!(scratch.path("x.img.undo/2").exists());
    let undone = facts(&scratch, 0, &["repair", "--undo", "x.img"]);
    assert_eq!(
        (&undone["repairs"], &undone["kept"]),
        (&2.into(), &0.into())
    );
    let mut expected = damaged;
    expected[bitmap] = 255;
    assert!(fs::read(scratch.path("x.img")).unwrap() == expected);
    assert!(!scratch.path("x.img.undo").exists());
}

/// An image that was replaced after its repair was interrupted stays as it is; no verb replaces it
/// while the undo data is there. That of a complete repair is not applied to another image.
#[test]
fn a_replaced_image_is_not_rolled_back() {
    let scratch = images();
    scratch.ok(&[
        "create",
        "other.img",
        "--fs",
        "hfs+",
        "--from",
        "src",
        "--size",
        "20m",
    ]);
    edit(&scratch, "x.img", |disk| disk[512..1536].fill(9));
    scratch.ok(&["repair", "x.img"]);
    let overwrite = [
        "create",
        "x.img",
        "--overwrite",
        "--fs",
        "hfs+",
        "--size",
        "20m",
    ];
    scratch.write("x.img.undo/1/state", NO_RECORD);
    interrupt(&scratch, "x.img");
    let refused = scratch.fails(4, &overwrite);
    assert!(refused.contains("interrupted"), "{refused}");
    for other in ["other.img", "zeros"] {
        let bytes = match other {
            "zeros" => vec![0; fs::metadata(scratch.path("x.img")).unwrap().len() as usize],
            _ => fs::read(scratch.path(other)).unwrap(),
        };
        scratch.write("x.img", &bytes);
        for args in [
            &["repair", "x.img"][..],
            &["repair", "-n", "x.img"],
            &["repair", "--undo", "x.img"],
        ] {
            let refused = scratch.fails(4, args);
            assert!(
                refused.contains("replaced or changed since") && refused.contains("--commit"),
                "{args:?}: {refused}"
            );
        }
        assert!(fs::read(scratch.path("x.img")).unwrap() == bytes);
    }
    scratch.ok(&["repair", "--commit", "x.img"]);
    assert!(!scratch.path("x.img.undo").exists());
    scratch.ok(&overwrite);
    edit(&scratch, "x.img", |disk| disk[512..1536].fill(9));
    scratch.ok(&["repair", "x.img"]);
    scratch.ok(&overwrite);
    let new = fs::read(scratch.path("x.img")).unwrap();
    let refused = scratch.fails(4, &["repair", "--undo", "x.img"]);
    assert!(
        refused.contains("changed since it was repaired"),
        "{refused}"
    );
    assert!(fs::read(scratch.path("x.img")).unwrap() == new);
}

/// An interrupted repair is found by every name of the image, and its folder is no symbolic link.
#[test]
fn a_hard_link_has_the_undo_data_of_its_image() {
    let scratch = images();
    edit(&scratch, "x.img", |disk| disk[512..1536].fill(9));
    let damaged = fs::read(scratch.path("x.img")).unwrap();
    fs::hard_link(scratch.path("x.img"), scratch.path("h.img")).unwrap();
    scratch.ok(&["repair", "x.img"]);
    interrupt(&scratch, "x.img");
    scratch.write("more", "more");
    let refused = scratch.fails(4, &["put", "--from", "more", "h.img:/more"]);
    assert!(refused.contains("interrupted"), "{refused}");
    scratch.write("x.img.undo/1/applied", "");
    scratch.ok(&["repair", "--undo", "h.img"]);
    assert!(fs::read(scratch.path("x.img")).unwrap() == damaged);
    scratch.ok(&["repair", "h.img"]);
    assert!(scratch.path("h.img.undo/1").exists());
    fs::rename(scratch.path("h.img.undo/1"), scratch.path("elsewhere")).unwrap();
    symlink("../elsewhere", scratch.path("h.img.undo/1")).unwrap();
    interrupt(&scratch, "h.img");
    for args in [
        &["repair", "--undo", "h.img"][..],
        &["repair", "h.img"],
        &["put", "--from", "more", "h.img:/more"],
    ] {
        let refused = scratch.fails(4, args);
        assert!(refused.contains("symbolic link"), "{args:?}: {refused}");
    }
}

/// A list that is a link, a pipe or a folder is found by the dry run as by the repair, and by a
/// resize before its first write.
#[test]
fn a_list_that_is_no_file_stops_the_dry_run_too() {
    let scratch = images();
    let list = scratch.path("x.sparsebundle/Info.plist");
    fs::rename(&list, scratch.path("list")).unwrap();
    for kind in ["link", "pipe", "folder"] {
        match kind {
            "link" => symlink("../list", &list).unwrap(),
            "folder" => fs::create_dir(&list).unwrap(),
            _ => {
                let made = std::process::Command::new("mkfifo").arg(&list).status();
                assert!(made.unwrap().success());
            }
        }
        let copy = fs::read(scratch.path("x.sparsebundle/Info.bckup")).unwrap();
        let tried = scratch.run(&["repair", "--dry-run", "x.sparsebundle"]);
        let done = scratch.run(&["repair", "x.sparsebundle"]);
        assert!(
            !done.status.success() && tried.status.code() == done.status.code(),
            "{kind}"
        );
        let text = stderr(&done);
        assert!(
            text.contains("Info.plist") && !text.contains("--undo-dir"),
            "{kind}: {text}"
        );
        assert_eq!(stderr(&tried), text, "{kind}");
        assert!(!scratch.path("x.sparsebundle.undo").exists(), "{kind}");
        let resized = scratch.run(&["resize", "x.sparsebundle", "--size", "60m"]);
        assert!(!resized.status.success(), "{kind}");
        assert!(
            fs::read(scratch.path("x.sparsebundle/Info.bckup")).unwrap() == copy,
            "{kind}"
        );
        match kind {
            "folder" => fs::remove_dir(&list).unwrap(),
            _ => fs::remove_file(&list).unwrap(),
        }
    }
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
    // A repair after which the image changed is not undone; a commit ends it.
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
    edit(&scratch, "x.img", |disk| disk[512..1536].fill(9));
    let damaged = fs::read(scratch.path("x.img")).unwrap();
    let first = facts(&scratch, 0, &["repair", "x.img"]);
    let repaired = fs::read(scratch.path("x.img")).unwrap();
    let interrupt = |scratch: &Scratch| {
        interrupt(scratch, "x.img");
        // Each sector is old or new.
        edit(scratch, "x.img", |disk| disk[1024..1536].fill(9));
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
    let whole = images();
    let shell = std::process::Command::new("sh")
        .args(["-c", "mkdir before; cp -r x.img x.sparsebundle before"])
        .current_dir(scratch.path(""))
        .status();
    assert!(shell.unwrap().success());
    edit(&scratch, "x.sparsebundle/bands/0", |disk| {
        disk[512..1024].fill(9)
    });
    scratch.write("x.sparsebundle/Info.bckup", "garbage");
    scratch.write("x.sparsebundle/bands/ffff", [5; 5000]);
    // The repair makes the file longer: it lacks the sectors after the partition.
    edit(&scratch, "x.img", |disk| {
        disk.truncate(disk.len() - 33 * 512)
    });
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
        // In the bundle and in the file, the byte is at the end of the disk's first file.
        let disk_of = |name: &str| match image.ends_with(".img") {
            true => scratch.path(name),
            false => scratch.path(name).join("bands/0"),
        };
        let shell = std::process::Command::new("sh")
            .args([
                "-c",
                "rm -rf other whole; cp -r $0/$1 other; cp -r before/$1 whole",
            ])
            .arg(whole.path(""))
            .arg(image)
            .current_dir(scratch.path(""))
            .status();
        assert!(shell.unwrap().success());
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
                    let left = contents(work);
                    let undo = scratch.path(&format!("{work}.undo"));
                    let undo_left = undo.exists().then(|| bytes_in(&undo));
                    let kill = |from: &str| {
                        // The same state again, with another image.
                        let command = format!("rm -rf {work}; cp -r {from} {work}");
                        let shell = std::process::Command::new("sh")
                            .args(["-c", &command])
                            .current_dir(scratch.path(""))
                            .status();
                        assert!(shell.unwrap().success());
                    };
                    if n % 3 == 0 {
                        copy(work, "kept");
                        // Replaced by a healthy image, which differs in more than the damage.
                        kill("other");
                        let next = scratch.run(&["repair", work]);
                        assert!(
                            matches!(next.status.code(), Some(4 | 10)),
                            "{place}: {}",
                            stderr(&next)
                        );
                        assert!(contents(work) == contents("other"), "{place}");
                        let undone = scratch.run(&["repair", "--undo", work]);
                        assert!(
                            matches!(undone.status.code(), Some(3 | 4)),
                            "{place}: {}",
                            stderr(&undone)
                        );
                        assert!(contents(work) == contents("other"), "{place}");
                        // Replaced by what it was before the damage.
                        copy("kept", work);
                        kill("whole");
                        let next = scratch.run(&["repair", work]);
                        assert!(
                            matches!(next.status.code(), Some(0 | 4 | 10)),
                            "{place}: {}",
                            stderr(&next)
                        );
                        assert!(contents(work) == contents("whole"), "{place}");
                        // A byte that the repair does not write: it stays, or nothing changes.
                        copy("kept", work);
                        let disk = disk_of(work);
                        let mut bytes = fs::read(&disk).unwrap();
                        let far = bytes.len() - 1;
                        bytes[far] ^= 1;
                        fs::write(&disk, bytes).unwrap();
                        let changed = contents(work);
                        let undone = scratch.run(&["repair", "--undo", work]);
                        let with_byte = |mut files: BTreeMap<PathBuf, Vec<u8>>| {
                            let name = disk.strip_prefix(scratch.path(work)).unwrap();
                            files.get_mut(name).unwrap()[far] ^= 1;
                            files
                        };
                        match undone.status.code() {
                            Some(0) => assert!(
                                contents(work) == with_byte(damaged.clone()),
                                "{place}: mixed"
                            ),
                            Some(3 | 4) => assert!(contents(work) == changed, "{place}: changed"),
                            code => panic!("{place}: {code:?} {}", stderr(&undone)),
                        }
                        copy("kept", work);
                        assert!(contents(work) == left, "{place}");
                        assert!(
                            undo_left == undo.exists().then(|| bytes_in(&undo)),
                            "{place}"
                        );
                    } else if n % 2 == 0 {
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
                    assert!(!undo.exists() || undone.status.code() == Some(3), "{place}");
                }
            }
        }
    }
    assert!(killed > 100, "{killed}");
}

#[test]
fn an_interrupted_repair_comes_first() {
    let scratch = Scratch::new();
    scratch.ok(&["create", "a.img", "--size", "4m", "--fs", "hfs+"]);
    fs::create_dir_all(scratch.path("a.img.undo/1")).unwrap();
    scratch.write("a.img.undo/1/state", "bandsaw undo 4\n");
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

/// Whatever opens a bundle without a token creates one, without bytes: that is no change.
#[test]
fn an_empty_token_is_no_change() {
    let scratch = images();
    let token = scratch.path("x.sparsebundle/token");
    let stray = scratch.path("x.sparsebundle/bands/fff");
    let (_, created) = (fs::remove_file(&token), [&b""[..], b"x"]);
    for bytes in created {
        fs::write(&stray, [0; 512]).unwrap();
        scratch.ok(&["repair", "x.sparsebundle"]);
        assert!(!stray.exists());
        fs::write(&token, bytes).unwrap();
        if bytes.is_empty() {
            scratch.ok(&["repair", "--undo", "x.sparsebundle"]);
        } else {
            scratch.fails(4, &["repair", "--undo", "x.sparsebundle"]);
            fs::remove_file(&token).unwrap();
            scratch.ok(&["repair", "--undo", "x.sparsebundle"]);
        }
        assert_eq!(fs::read(&stray).unwrap(), [0; 512]);
    }
}

/// Files that are copied to undo data elsewhere come back with their permissions and attributes.
#[test]
fn files_from_another_folder_keep_their_attributes() {
    let scratch = images();
    let stray = scratch.path("x.sparsebundle/bands/fff");
    fs::write(&stray, [0; 512]).unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let attributes = || {
        let file = fs::File::open(&stray).unwrap();
        let meta = file.metadata().unwrap();
        let xattrs = nodes::xattrs(file.as_fd()).unwrap();
        let mode = meta.permissions().mode() & 0o7777;
        (mode, meta.modified().unwrap(), meta.uid(), xattrs)
    };
    let file = fs::File::options().write(true).open(&stray).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o640))
        .unwrap();
    file.set_modified(time).unwrap();
    // Not every file system has attributes.
    let _ = nodes::set_xattr(file.as_fd(), "org.example.test", b"value");
    drop(file);
    let before = attributes();
    assert_eq!((before.0, before.1), (0o640, time));
    fs::create_dir(scratch.path("elsewhere")).unwrap();
    scratch.ok(&["repair", "x.sparsebundle", "--undo-dir", "elsewhere"]);
    assert!(!stray.exists());
    scratch.ok(&[
        "repair",
        "--undo",
        "x.sparsebundle",
        "--undo-dir",
        "elsewhere",
    ]);
    assert_eq!(attributes(), before);
}
