//! Proves: no file of an ASIF image makes its header, directories, tables, bitmaps, metadata or
//! check panic, loop or take memory by an unchecked number; what does not open has damage that the
//! check tells; what was written is read.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::asif(input));
