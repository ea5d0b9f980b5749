//! Checks that no VHDX image makes its headers, its metadata or its table of blocks panic, loop, or
//! allocate memory by an unchecked number, and that a check reports what cannot be found.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::vhdx(input));
