//! The undo data of a repair: its place, `repair --undo`, and interrupted repairs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{edit, facts, images};
use crate::common::{Scratch, stderr};
use serde_json::Value;

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
