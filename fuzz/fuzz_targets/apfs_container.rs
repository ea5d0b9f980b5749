//! Checks that no APFS container, however corrupt its blocks, with every checksum corrected, makes
//! the reader panic, loop or allocate unbounded memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apfs_container(input));
