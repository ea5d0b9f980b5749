//! Proves: no list or fork of resources makes its parser panic, loop or take memory by an unchecked
//! number; and what is written of it is read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::udif_resources(input));
