//! Checks that no EWF file makes its sections, its tables or its chunks panic, loop, or
//! allocate memory by an unchecked number, and that a check reports what cannot be found.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::ewf(input));
