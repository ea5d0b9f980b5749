//! Checks that no volume of ext, FAT, exFAT or NTFS makes the reader of its free map panic, loop or
//! allocate memory by an unchecked number, and that free ranges are on the disk.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::foreign_free(input));
