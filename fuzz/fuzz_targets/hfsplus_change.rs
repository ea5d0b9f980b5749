//! Checks that no volume, however corrupt, makes a change panic, loop or allocate memory by an
//! unchecked number; and that changes of a consistent volume leave everything else unchanged.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::hfsplus_change(input));
