//! Checks that no list or fork of resources makes its parser panic, loop or allocate memory by an
//! unchecked number; and that serialized resources parse again.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::udif_resources(input));
