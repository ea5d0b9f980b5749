//! Checks that the forks of MacBinary, AppleSingle and AppleDouble files are within the file.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::fork_file(input));
