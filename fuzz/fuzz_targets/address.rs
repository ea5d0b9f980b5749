//! Proves: any text is an address or refused as one, whatever exists on the host, and an address
//! that was read is shown so that it reads back as the same. A wrong split would act on another
//! file than the one that was named.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::address(input));
