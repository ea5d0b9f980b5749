//! Checks that any text parses as a size or is refused, without overflow, and that the exact number
//! displayed parses to the same size.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::size(input));
