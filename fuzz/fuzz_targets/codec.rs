//! Checks that no stream of any codec makes its decoder panic, loop, write past the output buffer,
//! or report success with a part of the buffer not written.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::codec(input));
