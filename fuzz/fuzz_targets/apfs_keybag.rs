//! Proves: any bytes are a keybag, or a wrapped key in one, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apfs_keybag(input));
