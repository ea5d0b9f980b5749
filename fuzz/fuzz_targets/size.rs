//! Proves: any text is a size or refused as one, without overflow, and the exact number that is
//! shown reads back.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::size(input));
