//! What programs that we did not write say of the images that we write, and what we say of theirs.
//!
//! A file for each program. One that is not installed is skipped by name and counted, the last line of the run; with
//! `BANDSAW_REQUIRE_PEERS=1`, which `scripts/test` sets after installing them all, it is a failure.

mod corpus;
mod linux_kernel;
mod newc;
mod programs;
mod qemu;
mod suite;

fn main() -> std::process::ExitCode {
    let mut suite = suite::Suite::new();
    linux_kernel::add(&mut suite);
    suite.run()
}
