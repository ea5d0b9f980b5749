//! Checks that the output of any codec for any bytes, if it is shorter, decodes to these bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::encode(input));
