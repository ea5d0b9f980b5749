//! Proves: no APFS volume, however broken, makes changing it panic, loop, write past the end or
//! take memory by an unchecked number.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apfs_change(input));
