//! `check`, `diagnose` and `repair`, as a user runs them.

mod check;
mod diagnose;
mod repair;
mod rollback;
mod undo;

use std::fs;

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
