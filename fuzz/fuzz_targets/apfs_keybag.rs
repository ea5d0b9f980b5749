//! Checks that any bytes parse as a keybag, or a wrapped key in one, or are refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apfs_keybag(input));
