//! Checks that no property list of a Time Machine bundle or volume makes its reader panic, loop or
//! return more than the list itself holds.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw_backups::testing::time_machine_lists(input));
