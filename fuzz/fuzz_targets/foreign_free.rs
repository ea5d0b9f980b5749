//! Proves: no volume of ext, FAT, exFAT or NTFS makes the reader of its free map panic, loop or
//! take memory by an unchecked number, and what it calls free lies on the disk.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::foreign_free(input));
