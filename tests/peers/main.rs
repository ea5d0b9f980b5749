//! What programs that we did not write say of the images that we write, and what we say of theirs.
//!
//! A file for each program. One that is not installed is skipped by name and counted, the last line
//! of the run; with `BANDSAW_REQUIRE_PEERS=1`, which `scripts/test` sets after installing them all,
//! it is a failure.

mod apfs;
mod apfs_encrypted;
mod apfs_readers;
#[path = "../common/mod.rs"]
mod common;
mod compressed;
mod disk;
mod encrypted;
mod finder;
mod foreign;
mod gdisk;
mod guest_listing;
mod libfshfs;
mod linux_apfs;
mod linux_kernel;
mod mended;
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
mod resized_maps;
mod samba;
mod sevenzip;
mod sfdisk;
mod sleuthkit;
mod suite;
mod tar;
mod tree;
mod udif;
mod volume;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use tempfile::TempDir;

fn main() -> ExitCode {
    // A static folder would outlive the run; this one goes with it.
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder");
    SCRATCH.set(home.path().into()).expect("set once");
    let mut suite = suite::Suite::new();
    apfs::add(&mut suite);
    apfs_encrypted::add(&mut suite);
    apfs_readers::add(&mut suite);
    compressed::add(&mut suite);
    encrypted::add(&mut suite);
    finder::add(&mut suite);
    foreign::add(&mut suite);
    gdisk::add(&mut suite);
    libfshfs::add(&mut suite);
    linux_apfs::add(&mut suite);
    linux_kernel::add(&mut suite);
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
    udif::add(&mut suite);
    suite.run()
}

/// Where scratch folders are: on the disk that holds the build. There is room there, and attributes
/// can be set, which is not so of every `/tmp`.
static SCRATCH: OnceLock<PathBuf> = OnceLock::new();

/// A scratch folder.
fn scratch() -> TempDir {
    tempfile::tempdir_in(SCRATCH.get().expect("set by main")).expect("a scratch folder")
}
