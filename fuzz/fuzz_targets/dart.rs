//! Checks that no DART image makes its header, its runs or its LZHUF streams panic, loop or read past
//! their end, and that a check reports what does not decode.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::dart(input));
