//! Tests of the benchmark crate.

mod files;
mod scipy;
mod space;
