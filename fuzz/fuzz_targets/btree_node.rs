//! Checks that any bytes parse as a node of a B-tree whose records are within it, or are refused;
//! and that comparison of every tree's keys does not panic and is antisymmetric, as searching
//! requires.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::btree_node(input));
