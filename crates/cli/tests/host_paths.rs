//! Images whose path is not UTF-8: on Unix a path is bytes.
#![cfg(target_os = "linux")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Output;

use serde_json::Value;

use crate::common::{Scratch, inventory, stderr};

const RAW: &[u8] = b"b\xff.img";

fn os(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}

fn run(scratch: &Scratch, args: &[&[u8]]) -> Output {
    let args = args.iter().map(|arg| os(arg));
    scratch.command(&[]).args(args).output().unwrap()
}

/// Standard output of a run that succeeds.
fn ok(scratch: &Scratch, args: &[&[u8]]) -> String {
    let output = run(scratch, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn made() -> Scratch {
    let scratch = Scratch::new();
    scratch.sample();
    ok(&scratch, &[b"create", RAW, b"--from", b"src", b"--quiet"]);
    assert!(scratch.path("").join(os(RAW)).is_file());
    scratch
}

#[test]
fn it_is_shown_escaped() {
    let scratch = made();
    assert!(ok(&scratch, &[b"info", RAW]).contains("b\\xFF.img"));
    let facts: Value = serde_json::from_str(&ok(&scratch, &[b"info", b"--json", RAW])).unwrap();
    assert_eq!(facts["path"], "b\\xFF.img");
    let missing = run(&scratch, &[b"info", b"none\xfe.img"]);
    assert_eq!(missing.status.code(), Some(3));
    assert!(
        stderr(&missing).contains("none\\xFE.img"),
        "{}",
        stderr(&missing)
    );
    // Paths inside an image are text.
    let part = run(&scratch, &[b"ls", b"b\xff.img:/\xff"]);
    assert_eq!(part.status.code(), Some(2), "{}", stderr(&part));
}

#[test]
fn its_files_are_read() {
    let scratch = made();
    assert!(ok(&scratch, &[b"ls", RAW]).contains("hello.txt"));
    assert_eq!(
        ok(&scratch, &[b"cat", b"b\xff.img:/hello.txt"]),
        "hello, world\n"
    );
    let renamed = run(&scratch, &[b"cp", b"b\xff.img:/hello.txt", b"copy\xff.txt"]);
    assert_eq!(renamed.status.code(), Some(2), "{}", stderr(&renamed));
    fs::create_dir(scratch.path("").join(os(b"copies\xff"))).unwrap();
    ok(&scratch, &[b"cp", b"b\xff.img:/hello.txt", b"copies\xff"]);
    assert_eq!(
        fs::read(scratch.path("").join(os(b"copies\xff/hello.txt"))).unwrap(),
        b"hello, world\n"
    );
    ok(&scratch, &[b"extract", RAW, b"out\xff"]);
    assert_eq!(
        inventory(&scratch.path("").join(os(b"out\xff"))),
        inventory(&scratch.path("src"))
    );
}

#[test]
fn it_is_converted_checked_and_changed() {
    let scratch = made();
    let disk = fs::read(scratch.path("").join(os(RAW))).unwrap();
    for (target, format) in [
        (&b"c\xfe.sparsebundle"[..], &b"udsb"[..]),
        (b"d\xfe.sparseimage", b"udsp"),
        (b"e\xfe.asif", b"asif"),
        (b"f\xfe.dmg", b"udzo"),
    ] {
        ok(&scratch, &[b"convert", RAW, target, b"--format", format]);
        ok(&scratch, &[b"check", target]);
        ok(
            &scratch,
            &[b"convert", b"--overwrite", target, b"back\xfd.img"],
        );
        assert_eq!(
            fs::read(scratch.path("").join(os(b"back\xfd.img"))).unwrap(),
            disk,
            "{target:?}"
        );
    }
    ok(
        &scratch,
        &[b"put", b"b\xff.img:/new.txt", b"--from", b"src/hello.txt"],
    );
    ok(&scratch, &[b"compact", RAW]);
    ok(&scratch, &[b"check", RAW]);
    assert_eq!(
        ok(&scratch, &[b"cat", b"b\xff.img:/new.txt"]),
        "hello, world\n"
    );
}
