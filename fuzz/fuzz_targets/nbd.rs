//! Checks that an NBD client may send any bytes and disconnect, and that the server neither panics,
//! nor hangs, nor allocates unbounded memory. It is the only parser that is reachable over a
//! network.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw_nbd::testing::session(input));
