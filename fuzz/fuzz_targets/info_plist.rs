//! Proves: any `Info.plist` is refused, or describes a blank disk of whole sectors that can be read
//! at both ends; lists that unfold without end (a binary list may name one object many times) are
//! refused in bounded time; the folder is as it was.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::info_plist(input));
