//! Proves: any bytes are a key or a value of a record of an APFS volume, or refused, and a key that
//! is understood is written back the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apfs_record(input));
