//! Checks that no disk makes the probe of partition maps panic, loop or allocate memory by an
//! unchecked number; that partitions are within the disk; that probing changes nothing; and that a
//! repair that is not refused leaves a consistent map with the same partitions. Every second input
//! has its checksums corrected, so that the fields behind them are reached.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::partition_map(input));
