//! Checks that no file of an ASIF image makes its header, directories, tables, bitmaps, metadata or
//! check panic, loop or allocate memory by an unchecked number; that the check reports damage in
//! images that do not open; and that written data is read back.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::asif(input));
