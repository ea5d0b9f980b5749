//! Proves: no file of a sparse image makes its index, its bands, its check or its tidying up panic,
//! loop or take memory by an unchecked number; what does not open has damage that the check tells;
//! what was written is read.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::sparse_image(input));
