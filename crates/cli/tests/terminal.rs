//! Ctrl-C in a terminal, which reaches the command and everything that it has started there. Skipped,
//! by name, without the program `script` or without FUSE.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::skip::skip;
use crate::common::{Scratch, stderr};

const CTRL_C: &[u8] = &[3];

/// Returns true if terminals can be made here.
fn has_terminals(test: &str) -> bool {
    let found = Command::new("script").arg("--version").output().is_ok();
    if !found {
        skip(test, "it needs the program script");
    }
    found
}

fn has_fuse(test: &str) -> bool {
    let found = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    if !found {
        skip(test, "/dev/fuse cannot be opened here");
    }
    found
}

/// Runs the shell commands `line`, in which `bandsaw` is the command, in a terminal, and types Ctrl-C when
/// `when` is true. Returns the exit code, and false if they had ended before that.
fn interrupt(scratch: &Scratch, line: &str, when: impl Fn() -> bool) -> (Option<i32>, bool) {
    let line = line.replace("bandsaw", env!("CARGO_BIN_EXE_bandsaw"));
    let mut child = Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .current_dir(scratch.path(""))
        .env("SHELL", "/bin/sh")
        .env("XDG_RUNTIME_DIR", scratch.path(""))
        .env("XDG_CACHE_HOME", scratch.path("cache"))
        .env("HOME", scratch.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let shown = std::thread::spawn(move || {
        let mut shown = Vec::new();
        let _ = screen.read_to_end(&mut shown);
        shown
    });
    let began = Instant::now();
    let is_late = |began: Instant| began.elapsed() > Duration::from_secs(60);
    while !when() && child.try_wait().unwrap().is_none() && !is_late(began) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let is_in_time = child.try_wait().unwrap().is_none();
    let _ = keyboard.write_all(CTRL_C);
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() && !is_late(began) {
        std::thread::sleep(Duration::from_millis(5));
    }
    if child.try_wait().unwrap().is_none() {
        child.kill().unwrap();
        let shown = shown.join().unwrap();
        panic!("{line} goes on: {}", String::from_utf8_lossy(&shown));
    }
    drop(keyboard);
    (child.wait().unwrap().code(), is_in_time)
}

/// Runs the command with the registry of the terminal.
fn ok(scratch: &Scratch, args: &[&str]) -> String {
    let output = scratch
        .command(args)
        .env("XDG_RUNTIME_DIR", scratch.path(""))
        .env("HOME", scratch.path(""))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "bandsaw {args:?}: {}",
        stderr(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A server in the foreground ends, with the volume clean. One in the background is not part of the
/// terminal's job and goes on.
#[test]
fn a_server_in_the_foreground_ends_and_one_in_the_background_survives() {
    const TEST: &str = "Ctrl-C and servers";
    if !has_terminals(TEST) || !has_fuse(TEST) {
        return;
    }
    let scratch = Scratch::new();
    for format in ["hfs+", "hfs+j", "apfs"] {
        let image = format!("{format}.sparsebundle");
        let create = ["create", &image, "--fs", format, "--size", "32m"];
        scratch.ok(&[&create[..], &["--volname", "Vol"]].concat());
        let write = |name: &str| {
            let folder = scratch.path("mnt");
            is_mounted(&folder) && fs::write(folder.join(name), vec![7; 300_000]).is_ok()
        };
        let line = format!("exec bandsaw mount -f {image} mnt");
        let (code, _) = interrupt(&scratch, &line, || write("foreground"));
        assert_eq!(code, Some(0), "{line}");
        assert!(!scratch.path("mnt").exists(), "{line}");
        scratch.ok(&["check", &image]);
        assert_eq!(read(&scratch, &image, "foreground"), 300_000);

        for (verb, name) in [
            ("mount", "mounted"),
            ("attach --folders --mountroot .", "attached"),
        ] {
            let target = if verb == "mount" { " mnt" } else { "" };
            let line = format!("bandsaw {verb} {image}{target} && touch ready && exec sleep 60");
            let (code, is_in_time) = interrupt(&scratch, &line, || scratch.path("ready").exists());
            fs::remove_file(scratch.path("ready")).unwrap();
            assert!(is_in_time && code != Some(0), "{line}: {code:?}");
            let folder = scratch.path(if verb == "mount" { "mnt" } else { "Vol" });
            fs::write(folder.join(name), vec![7; 300_000]).unwrap();
            ok(&scratch, &["detach", folder.to_str().unwrap()]);
            scratch.ok(&["check", &image]);
            assert_eq!(read(&scratch, &image, name), 300_000);
        }
    }
}

/// Ctrl-C while a server starts: it serves, or leaves nothing.
#[test]
fn a_server_that_is_interrupted_at_its_start_leaves_nothing() {
    const TEST: &str = "Ctrl-C and the start of servers";
    if !has_terminals(TEST) || !has_fuse(TEST) {
        return;
    }
    let scratch = Scratch::new();
    scratch.ok(&["create", "x.img", "--fs", "hfs+j", "--size", "32m"]);
    for moment in MOMENTS {
        let line = "exec bandsaw mount x.img mnt";
        let (code, _) = interrupt(&scratch, line, after(moment));
        // The server is a process of its own: it serves, or ends a moment after the command.
        let (mount_point, began) = (scratch.path("mnt"), Instant::now());
        while code != Some(0) && mount_point.exists() && began.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if is_mounted(&mount_point) {
            ok(&scratch, &["detach", "mnt"]);
        } else {
            assert_eq!(code, Some(130), "{moment} ms");
            assert!(!mount_point.exists(), "{moment} ms");
        }
        scratch.ok(&["check", "x.img"]);
        assert!(!ok(&scratch, &["list"]).contains("x.img"), "{moment} ms");
    }
}

fn is_mounted(folder: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let folder = folder.to_str().unwrap();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(folder))
}

fn read(scratch: &Scratch, image: &str, name: &str) -> usize {
    scratch.ok(&["cat", &format!("{image}:/{name}")]).len()
}

/// Moments of a run at which Ctrl-C is typed, in milliseconds after its start.
const MOMENTS: [u64; 6] = [2, 8, 15, 30, 60, 120];

fn after(moment: u64) -> impl Fn() -> bool {
    let began = Instant::now();
    move || began.elapsed() >= Duration::from_millis(moment)
}

/// An interrupted compaction leaves a sound image with all files, and can be repeated.
#[test]
fn an_interrupted_compaction_loses_nothing() {
    if !has_terminals("Ctrl-C and compact") {
        return;
    }
    let scratch = Scratch::new();
    for number in 0..40_u8 {
        scratch.write(&format!("src/{number}"), vec![number | 1; 1_500_000]);
    }
    for image in ["x.sparsebundle", "x.sparseimage", "x.asif"] {
        let create = ["create", image, "--size", "80m", "--fs", "hfs+j"];
        scratch.ok(&[&create[..], &["--from", "src"]].concat());
        let removed: Vec<_> = (0..40)
            .step_by(2)
            .map(|n| format!("{image}:/{n}"))
            .collect();
        let removed: Vec<_> = removed.iter().map(String::as_str).collect();
        scratch.ok(&[&["rm"], &removed[..]].concat());
        let mut interrupted = 0;
        for moment in MOMENTS {
            let copy = format!("copy-{image}");
            let copied = Command::new("cp")
                .args(["-a", image, &copy])
                .current_dir(scratch.path(""))
                .status();
            assert!(copied.unwrap().success());
            let line = format!("exec bandsaw compact {copy}");
            let (code, _) = interrupt(&scratch, &line, after(moment));
            assert!(
                matches!(code, Some(0 | 130)),
                "{image} {moment} ms: {code:?}"
            );
            interrupted += usize::from(code == Some(130));
            scratch.ok(&["check", &copy]);
            check_files(&scratch, &copy);
            scratch.ok(&["compact", &copy]);
            check_files(&scratch, &copy);
            remove(&scratch.path(&copy));
        }
        if interrupted == 0 {
            skip("Ctrl-C", &format!("it came when {image} was compact"));
        }
    }
}

fn check_files(scratch: &Scratch, image: &str) {
    for number in (1..40_u8).step_by(2) {
        let output = scratch.run(&["cat", &format!("{image}:/{number}")]);
        assert!(
            output.stdout == vec![number | 1; 1_500_000],
            "{image}: {number}"
        );
    }
}

fn remove(path: &Path) {
    match path.is_dir() {
        true => fs::remove_dir_all(path).unwrap(),
        false => fs::remove_file(path).unwrap(),
    }
}

/// An interrupted repair leaves the image as it was, at once or by `repair --undo`.
#[test]
fn an_interrupted_repair_changes_nothing() {
    if !has_terminals("Ctrl-C and repair") {
        return;
    }
    let scratch = Scratch::new();
    for number in 0..3000 {
        scratch.write(&format!("src/file with a long name {number}"), "contents");
    }
    let create = ["create", "whole.img", "--fs", "hfs+", "--layout", "none"];
    scratch.ok(&[&create[..], &["--from", "src"]].concat());
    let mut damaged = fs::read(scratch.path("whole.img")).unwrap();
    let be = |bytes: &[u8], at: usize| {
        u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
    };
    // The first node of the catalog: its header.
    let catalog = be(&damaged, 1024 + 288) * be(&damaged, 1024 + 40);
    damaged[catalog..catalog + 32].fill(0);
    let mut interrupted = 0;
    for moment in MOMENTS {
        scratch.write("x.img", &damaged);
        let (code, _) = interrupt(&scratch, "exec bandsaw repair x.img", after(moment));
        assert!(matches!(code, Some(0 | 130)), "{moment} ms: {code:?}");
        let undo = scratch.path("x.img.undo");
        if code == Some(130) {
            interrupted += 1;
            if undo.exists() {
                scratch.ok(&["repair", "--undo", "x.img"]);
            }
            assert!(
                fs::read(scratch.path("x.img")).unwrap() == damaged,
                "{moment} ms"
            );
            scratch.ok(&["repair", "x.img"]);
        }
        scratch.ok(&["check", "x.img"]);
        assert_eq!(scratch.ok(&["ls", "x.img:/"]).lines().count(), 3000);
        scratch.ok(&["repair", "--undo", "x.img"]);
        assert!(
            fs::read(scratch.path("x.img")).unwrap() == damaged,
            "{moment} ms"
        );
    }
    if interrupted == 0 {
        skip("Ctrl-C", "it came when the repair was done");
    }
}

#[test]
fn a_log_has_lines_of_progress() {
    let scratch = Scratch::new();
    scratch.sample();
    scratch.ok(&["create", "x.img", "--from", "src", "--fs", "hfs+"]);
    let log = |options: &[&str]| {
        let words = [
            "convert",
            "x.img",
            "y.dmg",
            "--format",
            "udzo",
            "--overwrite",
        ];
        let output = scratch.run(&[&words, options].concat());
        assert!(output.status.success());
        stderr(&output)
    };
    let lines = log(&["--progress"]);
    let first = lines.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("progress: ") && first.contains(" of "),
        "{lines}"
    );
    assert_eq!(log(&[]), "");
    assert_eq!(log(&["--progress", "--quiet"]), "");
}

/// Another answer than yes is no interruption: nothing is erased, and the exit code says so.
#[test]
fn an_answer_other_than_yes_erases_nothing() {
    if !has_terminals("an_answer_other_than_yes_erases_nothing") {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("pw", "pw");
    let encrypted = ["--encrypt", "--passfile", "pw", "--fs", "hfs+"];
    scratch.ok(&[&["create", "e.img", "--size", "8m"][..], &encrypted].concat());
    let line = format!("{} erase-keys e.img", env!("CARGO_BIN_EXE_bandsaw"));
    let mut child = Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .current_dir(scratch.path(""))
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"no\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(9), "{shown}");
    assert!(
        shown.contains("e.img") && shown.contains("nothing was erased"),
        "{shown}"
    );
    assert!(!shown.contains("interrupted"), "{shown}");
    scratch.ok(&["ls", "e.img", "--passfile", "pw"]);
}
