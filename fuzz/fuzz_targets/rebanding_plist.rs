//! Proves: any `rebanding.plist` is refused, or describes a blank disk between two sizes of bands,
//! which can be written, and holds what was written when the change is finished.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::rebanding_plist(input));
