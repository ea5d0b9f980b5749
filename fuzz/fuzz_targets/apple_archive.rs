//! Checks that no Apple Archive makes its reader panic, loop or allocate memory by an unchecked
//! number.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apple_archive(input));
