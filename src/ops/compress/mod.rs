//! Compression and decompression of files in a volume, in the form of macOS, and compression of
//! files while a new volume is built.

mod choose;
#[cfg(target_os = "macos")]
mod host;
mod in_place;
mod incoming;
mod usage;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use crate::decmpfs::{MAX_LEN, PackOptions};
use crate::{Error, Result};

pub use self::choose::FileTypes;
#[cfg(target_os = "macos")]
pub use self::host::{compress_host, decompress_host, estimate_host};
pub use self::in_place::{compress, compress_one, decompress, decompress_file, estimate};
pub(crate) use self::incoming::{BlockRounding, compress_tree, spool_len};
pub use self::usage::{FileUsage, FolderUsage, content_type};

const LAYER: &str = "compress";
/// Bytes copied or compared at a time.
const PIECE: u64 = 4 << 20;
/// Largest attribute that macOS accepts, in bytes.
const MAX_IN_ATTRIBUTE: usize = 3802;

/// Options of a compression.
#[derive(Debug, Clone)]
pub struct CompressOptions {
    /// The compression method.
    pub packing: PackOptions,
    /// Minimum saving in percent. Files that would save less are skipped.
    pub min_saving: u8,
    /// Largest file to compress, in bytes. Longer files are skipped.
    pub max_size: u64,
    /// The types of files to compress. Others are skipped.
    pub types: FileTypes,
    /// True to decode and compare the packed form of each file before the file is switched to it.
    pub verify: bool,
    /// A folder of the host to which each file is copied, under its path in the volume, before it
    /// is switched over.
    pub backup: Option<PathBuf>,
    /// Number of cores to use. `None`: all.
    pub jobs: Option<NonZeroUsize>,
}

impl CompressOptions {
    /// Returns options for files of any type and length that become any shorter, on all cores.
    pub fn new(packing: PackOptions) -> Self {
        Self {
            packing,
            min_saving: 0,
            max_size: MAX_LEN,
            types: FileTypes::default(),
            verify: false,
            backup: None,
            jobs: None,
        }
    }
}

/// Result for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// Path in the volume.
    pub path: String,
    /// Number of the compression type that the file has now, or would have
    /// (`docs/formats/decmpfs.md` §3). `None`: not compressed.
    pub number: Option<u32>,
    /// Length of the contents, in bytes.
    pub size: u64,
    /// Bytes taken on the volume before: whole blocks, and the attribute.
    pub before: u64,
    /// Bytes taken on the volume now, or after the operation.
    pub after: u64,
    /// The reason why the file was skipped, if it was.
    pub left: Option<SkipReason>,
}

/// The reason why a file is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SkipReason {
    /// Already compressed.
    Compressed,
    /// Not compressed.
    Plain,
    /// Empty.
    Empty,
    /// Longer than the limit requested, or than macOS can read.
    TooLong,
    /// Has a resource fork, or an attribute that looks like that of a compressed file.
    ResourceFork,
    /// Would take no less storage, or not save the minimum requested.
    NoGain,
    /// Immutable (the flags `uchg`, `schg`).
    Locked,
    /// Not of a requested type.
    Type,
    /// Required unchanged by the volume itself, such as its journal.
    Volume,
    /// A file of the host with several hard links.
    Linked,
    /// The contents are not on the host and would have to be downloaded.
    Dataless,
}

impl SkipReason {
    /// Returns the name for programs; it does not change.
    pub fn code(self) -> &'static str {
        match self {
            Self::Compressed => "compressed",
            Self::Plain => "not_compressed",
            Self::Empty => "empty",
            Self::TooLong => "too_long",
            Self::ResourceFork => "resource_fork",
            Self::NoGain => "no_gain",
            Self::Locked => "locked",
            Self::Type => "other_type",
            Self::Volume => "part_of_volume",
            Self::Linked => "hard_links",
            Self::Dataless => "dataless",
        }
    }

    /// Returns the reason in words that follow "left as it is: ".
    pub fn reason(self) -> &'static str {
        match self {
            Self::Compressed => "already compressed",
            Self::Plain => "not compressed",
            Self::Empty => "empty",
            Self::TooLong => "too long",
            Self::ResourceFork => "has a resource fork or compression attribute of its own",
            Self::NoGain => "would not be smaller",
            Self::Locked => "locked",
            Self::Type => "type not selected",
            Self::Volume => "file of the volume",
            Self::Linked => "has hard links",
            Self::Dataless => "its contents are on a server",
        }
    }
}

/// Runs `work` on the requested number of cores.
fn on_cores<T: Send>(jobs: Option<NonZeroUsize>, work: impl FnOnce() -> T + Send) -> Result<T> {
    let Some(jobs) = jobs else { return Ok(work()) };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(jobs.get())
        .build();
    let pool = pool.map_err(|error| {
        Error::limit(LAYER, format!("cannot start {jobs} threads")).caused_by(error)
    })?;
    Ok(pool.install(work))
}
