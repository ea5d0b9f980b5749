//! Benchmarks of disk images and folders with realistic workloads, and statistics of their results.
//!
//! | topic | module |
//! | --- | --- |
//! | files that are written, and their order | [`plan`] |
//! | timing of each file | [`files`]; in a folder, from announcement to report, [`folder`] |
//! | published protocols on images of any kind | [`images`] |
//! | destination: a folder, a volume in an image | [`place`] |
//! | statistics of samples | [`stats`] |
//! | reports: JSON, tables and plots | [`report`] |
//! | comparison of two runs | [`compare`] |
//! | published results | [`mod@reference`], data in `data/references.json` |
//! | experiments of all articles in one run | [`articles`] |
//! | storage of an image that is filled, emptied and refilled | [`images::space`] |
//!
//! Nothing here prints: the command is `bandsaw bench`.
#![forbid(unsafe_code)]

pub mod articles;
pub mod clock;
pub mod compare;
mod compressor;
pub mod contents;
pub mod files;
pub mod folder;
pub mod images;
pub mod machine;
pub mod noise;
pub mod place;
pub mod plan;
pub mod reference;
pub mod report;
pub mod sample;
pub mod stats;
pub mod units;
