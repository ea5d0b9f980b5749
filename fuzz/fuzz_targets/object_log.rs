//! Checks that any manifest of a bundle on an object store is refused, or names files whose
//! lengths, contents and holes can be queried without a panic or a large allocation; and that a
//! reader changes no objects.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::object_log(input));
