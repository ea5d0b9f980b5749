//! Folders and volumes that files are written to and read from.

mod host;
mod volume;

use std::fmt;

use bandsaw::Result;
use serde::{Deserialize, Serialize};

pub use host::HostFolder;
pub(crate) use host::drop_from_cache;
pub use volume::VolumeFolder;

/// A folder of the host, or a volume in an image.
pub trait Place: fmt::Debug {
    /// Creates a file of this name that will have `len` bytes.
    fn create(&self, name: &str, len: u64) -> Result<Box<dyn Sink + '_>>;
    /// Opens a file for reading from its start.
    fn open(&self, name: &str) -> Result<Box<dyn Source + '_>>;
    /// Removes a file.
    fn remove(&self, name: &str) -> Result<()>;
    /// Makes the removal of files durable.
    fn flush(&self) -> Result<()>;
    /// Drops files from the cache, as far as this place can; everything is durable at that time.
    fn cool(&self, names: &[String]) -> Result<CacheState>;
}

/// A file that is being written.
pub trait Sink {
    /// Appends bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes the file durable and closes it.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// A file that is being read; another thread may write a file at the same time.
pub trait Source: Send {
    /// Fills `buf` with the next bytes.
    fn read(&mut self, buf: &mut [u8]) -> Result<()>;
}

/// Treatment of the page cache in a measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caches {
    /// Files are written through the cache, and dropped from it before they are read.
    #[default]
    Drop,
    /// Files are written and read with direct I/O.
    Direct,
    /// The cache is left alone: files may be read from memory.
    Keep,
}

/// State of the cache before files were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheState {
    /// None of the files was found in the cache.
    Dropped,
    /// The system was asked to drop them but still caches some: the speed is that of memory.
    StillInMemory,
    /// The system was asked to drop them; the result is unknown.
    Asked,
    /// Files are read with direct I/O.
    Direct,
    /// No drop was requested.
    Kept,
}

impl CacheState {
    /// The state of all files of which some are in this and others in the other, which were asked
    /// for alike: the one that says least of them.
    pub(crate) fn worse(self, other: Self) -> Self {
        let rank = |cooled: &Self| match cooled {
            Self::Dropped => 0,
            Self::Direct => 1,
            Self::Asked => 2,
            Self::StillInMemory => 3,
            Self::Kept => 4,
        };
        [self, other].into_iter().max_by_key(rank).unwrap_or(self)
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Dropped => {
                "the system dropped the files from its page cache before reading: none of the probed pages was left"
            }
            Self::StillInMemory => {
                "not dropped: the system kept files in its page cache, so they were read from memory"
            }
            Self::Asked => {
                "the system was asked to drop the files from its page cache; whether it did is unknown"
            }
            Self::Direct => "direct I/O, without the page cache",
            Self::Kept => "not dropped: files may have been read from memory",
        }
    }
}
