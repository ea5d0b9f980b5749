//! Checks that any contents compressed with zlib, LZVN or LZFSE decompress to themselves, in the
//! attribute and in the resource fork, and that the given bounds are kept.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::decmpfs_pack(input));
