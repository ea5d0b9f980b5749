//! Checks that no space manager, whatever its counts and pointers, makes the map of free blocks
//! panic, loop or allocate memory by an unchecked number, and that free blocks are within the
//! container.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apfs_spaceman(input));
