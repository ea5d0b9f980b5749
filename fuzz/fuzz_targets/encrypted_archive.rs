//! Checks that no encrypted archive makes its reader panic, loop or allocate memory by an unchecked
//! number, and that a check finds what a read does.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::encrypted_archive(input));
