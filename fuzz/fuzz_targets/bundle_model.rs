//! Checks that after any sequence of reads, writes, discards, resizes, flushes and reopens, with
//! any band size and both versions, a sparse bundle has the same contents as a plain vector, and
//! that its extents agree with its contents.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::bundle_model(input));
