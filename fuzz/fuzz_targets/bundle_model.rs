//! Proves: whatever is read, written, discarded, resized, flushed and opened again in whatever
//! order, with bands of any size and both versions, a sparse bundle holds what a plain vector
//! holds, and its extents agree with its contents.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::bundle_model(input));
