//! Compression levels.

use crate::{Error, Result};

/// Compression level of zlib: 1 (fast) to 9 (small). The other codecs have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u8);

impl Level {
    /// Level 1.
    pub const FASTEST: Self = Self(1);
    /// Level 9.
    pub const SMALLEST: Self = Self(9);

    /// Returns the level `level`, which must be 1 to 9.
    pub fn new(level: u8) -> Result<Self> {
        if (1..=9).contains(&level) {
            return Ok(Self(level));
        }
        Err(Error::invalid(
            "compression level",
            format!("invalid level {level}: expected 1 to 9"),
        ))
    }

    /// Returns the level as a number from 1 to 9.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for Level {
    /// Returns 6, the default of zlib. With level 1, that of hdiutil, an image is 2 % larger and made in
    /// three quarters of the time.
    fn default() -> Self {
        Self(6)
    }
}
