//! Checks that no QCOW2 image makes its header, its tables or its compressed clusters panic, loop, or
//! allocate memory by an unchecked number, and that a check reports what cannot be found.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::qcow2(input));
