//! Checks that no property list of Core Storage makes its parser panic, loop or
//! allocate more than the list itself holds.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::core_storage_list(input));
