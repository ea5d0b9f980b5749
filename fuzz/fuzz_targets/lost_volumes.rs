//! Checks that no sector of a disk without a partition map makes the search for volumes panic, loop or allocate
//! memory by an unchecked number, and that each volume that it finds is on the disk.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::lost_volumes(input));
