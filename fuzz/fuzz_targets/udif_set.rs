//! Checks that no files that pretend to be the segments of one image make it panic or read beyond
//! them; and that the data does not depend on the segment boundaries.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::udif_set(input));
