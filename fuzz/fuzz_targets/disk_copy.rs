//! Checks that no image of Disk Copy 4.2 makes its header panic or read past its end.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::disk_copy(input));
