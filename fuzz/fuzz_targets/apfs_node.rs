//! Proves: any bytes are a node of one of APFS's trees (object maps among them) whose records lie
//! within it, or refused; keys compare the same both ways, on which searching stands.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::apfs_node(input));
