//! Checks that any text parses as an address or is refused, whatever exists on the host, and that
//! an address that parses is displayed as text that parses to the same address. A wrong split would
//! act on a file other than the one named.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::address(input));
