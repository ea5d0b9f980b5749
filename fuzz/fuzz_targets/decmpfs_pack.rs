//! Proves: whatever contents are packed, by zlib, LZVN or LZFSE, unpack to themselves, in the
//! attribute and in the resource fork, and keep within the bounds that were given.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::decmpfs_pack(input));
