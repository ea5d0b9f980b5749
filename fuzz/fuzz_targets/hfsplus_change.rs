//! Proves: no volume, however broken, makes changing it panic, loop or take memory by an unchecked
//! number; and in a sound one all that was not changed stays as it was.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::hfsplus_change(input));
