//! Where files are written and read.

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
    /// A new file of this name that is to get `len` bytes.
    fn create(&self, name: &str, len: u64) -> Result<Box<dyn Sink + '_>>;
    /// A file, to be read from its front.
    fn open(&self, name: &str) -> Result<Box<dyn Source + '_>>;
    /// Removes a file.
    fn remove(&self, name: &str) -> Result<()>;
    /// Makes durable that files were removed.
    fn flush(&self) -> Result<()>;
    /// Sees to it that files are read from the disk, as far as that can be done here; everything is
    /// durable.
    fn cool(&self, names: &[String]) -> Result<Cooled>;
}

/// A file that is being written.
pub trait Sink {
    /// Appends bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes all of it durable and closes the file.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// A file that is being read.
pub trait Source {
    /// The next bytes, as many as `buf` has.
    fn read(&mut self, buf: &mut [u8]) -> Result<()>;
}

/// How the system's memory is kept out of a measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caches {
    /// Files are written through the cache, and dropped from it before they are read.
    #[default]
    Drop,
    /// Files are written and read around it.
    Direct,
    /// It is left alone: files are read from memory if they are there.
    Keep,
}

/// What became of the cache before files were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cooled {
    /// Nothing of the files was found in memory any more.
    Dropped,
    /// The system was asked to drop them, and has some or all in memory still: their speed is
    /// memory's.
    StillInMemory,
    /// The system was asked to drop them; whether it did is not known here.
    Asked,
    /// Files are read around the cache.
    Direct,
    /// Nobody asked for it.
    Kept,
}

impl Cooled {
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
            Self::Dropped => "caches dropped between writing and reading",
            Self::StillInMemory => "caches could not be dropped: files were read from memory",
            Self::Asked => {
                "the system was asked to drop its caches; it does not tell whether it did"
            }
            Self::Direct => "direct I/O, around the caches",
            Self::Kept => "caches left as they were: files may have been read from memory",
        }
    }
}
