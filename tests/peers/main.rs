//! What programs that we did not write say of the images that we write, and what we say of theirs.
//!
//! A file for each program. One that is not installed is skipped by name and counted, the last line of the run; with
//! `BANDSAW_REQUIRE_PEERS=1`, which `scripts/test` sets after installing them all, it is a failure.

mod corpus;
mod disk;
mod gdisk;
mod linux_kernel;
mod newc;
mod noise;
mod parted;
mod programs;
mod python;
mod qemu;
mod qemu_img;
mod sfdisk;
mod sleuthkit;
mod suite;

fn main() -> std::process::ExitCode {
    let mut suite = suite::Suite::new();
    gdisk::add(&mut suite);
    linux_kernel::add(&mut suite);
    parted::add(&mut suite);
    python::add(&mut suite);
    qemu_img::add(&mut suite);
    sfdisk::add(&mut suite);
    sleuthkit::add(&mut suite);
    suite.run()
}

/// A scratch folder on the disk that holds the build: there is room there, and attributes can be set, which is not so of
/// every `/tmp`.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder")
}
