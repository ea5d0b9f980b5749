//! Checks that no APFS volume, however corrupt, makes a change panic, loop, write past the end or
//! allocate memory by an unchecked number.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apfs_change(input));
