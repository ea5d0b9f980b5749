//! Checks that no header or trailer of an encrypted image makes its parser panic, loop or allocate
//! memory by an unchecked number, and that the data range is within the file.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::crypt_header(input));
