//! Checks that no file of a sparse image makes its index, its bands, its check or its compaction
//! panic, loop or allocate memory by an unchecked number; that the check reports damage in images
//! that do not open; and that written data is read back.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::sparse_image(input));
