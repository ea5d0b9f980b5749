//! Proves: no stream of any codec makes its decoder panic, loop, write past the room it was given,
//! or leave a part of that room as it was and call it decoded.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::codec(input));
