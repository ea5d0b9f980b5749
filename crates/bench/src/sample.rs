//! What is measured of one file.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Into the file.
    Write,
    /// Out of it.
    Read,
    /// Out of one file and, compressed, into another beside it; the size is that of the first.
    Stream,
}

impl Direction {
    /// Each of them.
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

/// One file, written or read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Which way.
    pub direction: Direction,
    /// The set that it belongs to, from 1.
    pub set: u32,
    /// Its place in the order of the run, from 1.
    pub number: u32,
    /// Bytes of it.
    pub size_bytes: u64,
    /// Seconds from opening it to the last byte.
    pub seconds: f64,
    /// The same with the flush that makes a written file durable, and closing it.
    pub flushed_seconds: Option<f64>,
}
