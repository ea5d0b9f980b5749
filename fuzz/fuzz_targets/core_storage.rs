//! Checks that no group of Core Storage makes its reader panic, loop or
//! allocate memory by an unchecked number, also behind its checksums and its encryption.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::core_storage(input));
