//! Checks that no VMDK file makes its header, its description, its tables or its compressed grains panic, loop, or
//! allocate memory by an unchecked number, and that a check reports what cannot be found.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::vmdk(input));
