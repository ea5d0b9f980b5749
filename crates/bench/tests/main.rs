//! Tests of the benchmark crate.

mod files;
mod scipy;
#[path = "../../../tests/common/skip.rs"]
mod skip;
mod space;
