//! Proves: no volume, however broken, makes opening, listing, looking up, reading of forks, links
//! or attributes panic, loop or take memory by an unchecked number, and reading writes nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::hfsplus_volume(input));
