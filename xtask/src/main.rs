//! What the project does to itself.
#![forbid(unsafe_code)]

fn main() {}
