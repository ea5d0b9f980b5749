//! Checks that no volume, however corrupt, makes a search for deleted files panic, loop or allocate memory
//! by an unchecked number, and that a search writes nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::recover(input));
