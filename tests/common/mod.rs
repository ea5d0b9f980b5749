//! Helpers shared by several suites.
#![allow(dead_code, reason = "each suite uses a part")]

#[cfg(feature = "s3")]
pub(crate) mod ceph;
pub(crate) mod changing;
pub(crate) mod converting;
pub(crate) mod corpus;
pub(crate) mod opened;
#[cfg(feature = "s3")]
pub(crate) mod server;
pub(crate) mod skip;
pub(crate) mod small_asif;
#[cfg(feature = "s3")]
pub(crate) mod versity;

/// Creates a FIFO with the program for it: macOS has the system call by its path only.
pub(crate) fn make_fifo(path: &std::path::Path, mode: u32) {
    let made = std::process::Command::new("mkfifo")
        .args(["-m", &format!("{mode:o}")])
        .arg(path)
        .status();
    assert!(made.expect("running mkfifo").success());
}
