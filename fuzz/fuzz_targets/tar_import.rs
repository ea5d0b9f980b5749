//! Checks that any tar archive is refused, or becomes a consistent tree whose contents can be read;
//! and that this tree is refused for a new volume, or fills one in which every object is found and
//! every query is answered.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::tar_import(input));
