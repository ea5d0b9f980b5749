//! Proves: no disk makes the probe of partition maps panic, loop or take memory by an unchecked
//! number; partitions lie within the disk; probing changes nothing; and a repair that is not
//! refused leaves a whole map with the same partitions. Every second input has its checksums made
//! right, so that the numbers behind them are met.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::partition_map(input));
