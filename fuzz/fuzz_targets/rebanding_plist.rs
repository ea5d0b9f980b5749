//! Checks that any `rebanding.plist` is refused, or describes a blank disk between two band sizes,
//! which can be written, and keeps the data when the migration is finished.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::rebanding_plist(input));
