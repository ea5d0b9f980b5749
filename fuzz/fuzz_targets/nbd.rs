//! Proves: a client of the NBD server may send anything and leave, and the server neither panics,
//! nor waits for more, nor takes memory without bound. It is the one parser that strangers reach
//! over a network.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw_nbd::testing::session(input));
