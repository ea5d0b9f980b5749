//! Compressors of the stream test.

use std::str::FromStr;

use bandsaw::{Error, Kind};
use serde::{Deserialize, Serialize};

/// A compressor of the stream test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compressor {
    /// LZ4 blocks: faster than most disks.
    #[default]
    Lz4,
    /// LZFSE, the compressor of macOS.
    Lzfse,
}

impl Compressor {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "LZ4",
            Self::Lzfse => "LZFSE",
        }
    }
}

impl FromStr for Compressor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = [Self::Lz4, Self::Lzfse]
            .into_iter()
            .find(|compressor| compressor.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            Error::new(
                Kind::Invalid,
                "stream benchmark",
                format!("unknown compressor {text}: expected lz4 or lzfse"),
            )
        })
    }
}
