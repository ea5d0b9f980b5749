//! Checks that no compressed image makes its trailer, its property list, its block tables or its
//! chunks panic, loop or allocate memory by an unchecked number; and that the data does not depend
//! on the sizes of reads.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::udif(input));
