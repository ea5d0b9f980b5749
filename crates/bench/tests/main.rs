//! All tests of the benchmarks.

mod files;
mod scipy;
mod space;
