//! Checks that any bytes parse as a node of one of APFS's trees (including object maps) whose
//! records are within it, or are refused; and that comparison of keys is antisymmetric, as
//! searching requires.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apfs_node(input));
