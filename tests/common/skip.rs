//! Notes of tests that are left out.
#![allow(dead_code, reason = "each suite uses a part")]

use std::env;
use std::fs::File;
use std::io::Write;

/// Notes that a test, or a part of it, is left out. libtest hides what a passing test prints, so
/// the note is also appended to the file `BANDSAW_SKIPPED`, which `scripts/test` prints and counts.
pub(crate) fn skip(test: &str, why: &str) {
    eprintln!("skipped: {test}: {why}");
    if let Some(path) = env::var_os("BANDSAW_SKIPPED") {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(path)
            .expect("the file for notes");
        // One write, so that the lines of several tests do not mix.
        file.write_all(format!("{test}: {}\n", why.trim()).as_bytes())
            .expect("a note");
    }
}

/// Notes that a test is left out because a program is absent. Fails with `BANDSAW_REQUIRE_PEERS=1`,
/// which `scripts/test --full` sets once all programs are installed.
pub(crate) fn without_program(test: &str, why: &str) {
    let required = env::var_os("BANDSAW_REQUIRE_PEERS").is_some_and(|value| value == "1");
    assert!(!required, "{test}: {why}");
    skip(test, why);
}
