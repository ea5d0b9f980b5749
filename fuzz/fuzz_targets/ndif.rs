//! Checks that no NDIF image makes its block table or its compressed runs panic, loop or read past their
//! end, and that a check reports what does not decode.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::ndif(input));
