//! Checks that no compressed file, whatever its attribute and its resource fork contain, makes the
//! reader panic, loop or allocate unbounded memory, and that each part reads the same alone as in a
//! larger read.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::decmpfs(input));
