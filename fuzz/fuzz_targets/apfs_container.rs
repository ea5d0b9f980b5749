//! Proves: no APFS container, whatever is in its blocks and with every checksum made right, makes
//! its reader panic, loop or take memory without bound.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apfs_container(input));
