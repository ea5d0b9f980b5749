//! Checks that no image of Disk Copy 4.2, DART or NDIF, and no file with two forks, makes its header, its block
//! table or its compressed data panic, loop or read past their end, and that a check reports what does not
//! decode.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::classic_image(input));
