//! Checks that no journal of an HFS+ volume makes its replay panic, loop or allocate memory by an
//! unchecked number, and that the replayed volume is read or refused, without writes. Every second
//! input has its checksums corrected, so that the fields behind them are reached.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bandsaw::testing::fuzz::journal(input));
