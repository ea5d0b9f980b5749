//! Checks that no volume, however corrupt, makes opening, listing, lookup or reading of forks,
//! links or attributes panic, loop or allocate memory by an unchecked number, and that reading
//! writes nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::hfsplus_volume(input));
