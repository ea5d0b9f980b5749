//! Proves: any bytes are a node of a B-tree whose records lie within it, or refused; keys of every
//! tree compare without a panic and the same both ways, on which searching stands.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::btree_node(input));
