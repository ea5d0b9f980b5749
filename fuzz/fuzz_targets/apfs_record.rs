//! Checks that any bytes parse as a key or a value of a record of an APFS volume, or are refused,
//! and that a parsed key is serialized to the same bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apfs_record(input));
