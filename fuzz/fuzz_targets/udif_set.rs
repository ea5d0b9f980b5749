//! Proves: no files that pretend to be the parts of one image make it panic or read beyond them;
//! and what is read does not depend on where the files are cut.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::udif_set(input));
