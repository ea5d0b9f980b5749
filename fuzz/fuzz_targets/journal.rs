//! Proves: no journal of an HFS+ volume makes replaying it panic, loop or take memory by an
//! unchecked number, and whatever its changes do to the volume, that is read or refused, and
//! nothing is written. Every second input has its checksums made right, so that the numbers behind
//! them are met.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::journal(input));
