//! Proves: no compressed file, whatever its attribute and its resource fork say, makes its reader
//! panic, loop or take memory without bound, and each place of it reads the same alone as with
//! those around it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::decmpfs(input));
