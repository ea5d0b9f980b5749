//! Proves: any tar archive is refused, or becomes a tree in order whose contents can be read; and
//! that tree is refused by the volume to be, or fills one in which every object is found and every
//! question is answered.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::tar_import(input));
