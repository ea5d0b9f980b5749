//! All tests of the server.

mod common;
mod fuzz_seeds;
mod handshake;
mod hostile;
mod requests;
