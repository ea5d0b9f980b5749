//! `bandsaw`: Apple's disk images from the command line.
#![forbid(unsafe_code)]

fn main() {}
