//! Checks that no QCOW2, VHD, VHDX, VMDK or EWF file makes its headers, tables or compressed data panic, loop, or
//! allocate memory by an unchecked number, and that a check reports what cannot be found.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::virtual_disk(input));
