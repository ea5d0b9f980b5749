//! Proves: no space manager, whatever it counts and points to, makes the map of free blocks panic,
//! loop or take memory by an unchecked number, and what it calls free lies in the container.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apfs_spaceman(input));
