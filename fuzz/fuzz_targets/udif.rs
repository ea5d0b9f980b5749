//! Proves: no compressed image makes its trailer, its property list, its block tables or its chunks
//! panic, loop or take memory by an unchecked number; and what is read does not depend on how the
//! reader cuts it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::udif(input));
