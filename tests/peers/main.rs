//! Comparisons with other programs: they read our images, and we read theirs.
//!
//! There is a file for each program. The tests of one that is not installed are skipped with a
//! message, and counted in the last line of the output; with `BANDSAW_REQUIRE_PEERS=1`, which
//! `scripts/test --full` sets after installing all programs, they fail. Heavy tests run with
//! `--include-ignored`.

mod accepted;
mod apfs;
mod apfs_encrypted;
mod apfs_readers;
#[path = "../common/mod.rs"]
mod common;
mod compressed;
mod core_storage;
mod disk;
mod encrypted;
mod finder;
mod foreign;
mod gdisk;
mod guest_listing;
mod hfsutils;
mod libfshfs;
mod linux_apfs;
mod linux_kernel;
mod machfs;
#[cfg(target_os = "linux")]
mod mount;
mod nbd;
mod nbd_guest;
mod nbd_kernel;
mod newc;
mod noise;
mod ours;
mod parted;
mod programs;
mod python;
mod qemu;
mod qemu_img;
mod readers;
mod repaired_volumes;
mod resized_maps;
mod samba;
mod sevenzip;
mod sfdisk;
mod sleuthkit;
mod suite;
mod tar;
mod tree;
mod udf;
mod udif;
mod virtual_disks;
mod volume;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use tempfile::TempDir;

fn main() -> ExitCode {
    // A static folder would never be removed; this one is removed at the end of `main`.
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    SCRATCH.set(home.path().into()).expect("set once");
    let mut suite = suite::Suite::new();
    accepted::add(&mut suite);
    apfs::add(&mut suite);
    apfs_encrypted::add(&mut suite);
    apfs_readers::add(&mut suite);
    compressed::add(&mut suite);
    core_storage::add(&mut suite);
    encrypted::add(&mut suite);
    finder::add(&mut suite);
    foreign::add(&mut suite);
    gdisk::add(&mut suite);
    hfsutils::add(&mut suite);
    libfshfs::add(&mut suite);
    linux_apfs::add(&mut suite);
    linux_kernel::add(&mut suite);
    machfs::add(&mut suite);
    #[cfg(target_os = "linux")]
    mount::add(&mut suite);
    nbd::add(&mut suite);
    nbd_guest::add(&mut suite);
    nbd_kernel::add(&mut suite);
    parted::add(&mut suite);
    python::add(&mut suite);
    qemu_img::add(&mut suite);
    readers::add(&mut suite);
    resized_maps::add(&mut suite);
    samba::add(&mut suite);
    sevenzip::add(&mut suite);
    sfdisk::add(&mut suite);
    sleuthkit::add(&mut suite);
    tar::add(&mut suite);
    udf::add(&mut suite);
    udif::add(&mut suite);
    virtual_disks::add(&mut suite);
    suite.run()
}

/// Parent of the scratch folders, on the disk of the build: it has enough space and supports
/// attributes, unlike some `/tmp`.
static SCRATCH: OnceLock<PathBuf> = OnceLock::new();

/// Creates a scratch folder.
fn scratch() -> TempDir {
    tempfile::tempdir_in(SCRATCH.get().expect("set by main")).expect("a scratch folder")
}
