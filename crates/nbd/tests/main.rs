//! Tests of the server crate.

mod common;
mod fuzz_seeds;
mod handshake;
mod hostile;
mod requests;
