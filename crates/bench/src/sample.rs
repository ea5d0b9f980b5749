//! Measurement of one file.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Writing to a file.
    Write,
    /// Reading from a file.
    Read,
    /// Reading one file and writing it compressed to another; the size is that of the first.
    Stream,
}

impl Direction {
    /// All directions.
    pub const ALL: [Self; 3] = [Self::Write, Self::Read, Self::Stream];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Stream => "stream",
        })
    }
}

/// Measurement of one file, written or read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Direction of the transfer.
    pub direction: Direction,
    /// Number of its set, from 1.
    pub set: u32,
    /// Its position in the order of the run, from 1.
    pub number: u32,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Seconds from opening the file to its last byte.
    pub seconds: f64,
    /// Seconds including the flush that makes a written file durable, and its closing.
    pub flushed_seconds: Option<f64>,
}
