//! Proves: no header or trailer of an encrypted image makes reading it panic, loop or take memory
//! by an unchecked number, and what it tells of the data is within the file.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::crypt_header(input));
