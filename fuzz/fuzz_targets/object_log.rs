//! Proves: any manifest of a bundle on an object store is refused, or names files whose lengths,
//! contents and holes can be asked for without a panic or a large allocation; a reader leaves all
//! objects as they were.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::object_log(input));
