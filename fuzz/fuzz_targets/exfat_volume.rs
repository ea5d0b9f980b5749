//! Checks that no exFAT volume makes its readers panic, loop or allocate memory by an unchecked number.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::exfat_volume(input));
