//! Checks that any `Info.plist` is refused, or describes a blank disk of whole sectors that can be
//! read at both ends; that lists that expand exponentially (a binary list may reference one object
//! many times) are refused in bounded time; and that the folder is not changed.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::info_plist(input));
