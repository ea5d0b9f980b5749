//! Files of a volume stored compressed, as macOS stores them, and as they are again; and files on
//! their way into a new volume.

mod choose;
#[cfg(target_os = "macos")]
mod host;
mod in_place;
mod incoming;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use crate::decmpfs::{MAX_LEN, Packing};
use crate::{Error, Kind, Result};

pub use self::choose::Types;
#[cfg(target_os = "macos")]
pub use self::host::{compress_host, decompress_host, estimate_host};
pub use self::in_place::{compress, compress_one, decompress, decompress_file, estimate};
pub(crate) use self::incoming::{Room, compress_tree, spool_len};

const LAYER: &str = "compress";
/// Bytes copied or compared in one go.
const PIECE: u64 = 4 << 20;
/// The longest attribute that macOS takes.
const MOST_IN_ATTRIBUTE: usize = 3802;

/// What is compressed, and how.
#[derive(Debug, Clone)]
pub struct CompressOptions {
    /// How.
    pub packing: Packing,
    /// Files that would take more than this many percent less are compressed; others stay as they
    /// are.
    pub min_saving: u8,
    /// Longer files, in bytes, stay as they are.
    pub max_size: u64,
    /// Files of other types stay as they are.
    pub types: Types,
    /// Everything is decoded and compared before a file is switched over.
    pub verify: bool,
    /// A folder of the host that gets a copy of each file before it is switched over, under its
    /// path in the volume.
    pub backup: Option<PathBuf>,
    /// How many cores are used; `None`: all.
    pub jobs: Option<NonZeroUsize>,
}

impl CompressOptions {
    /// Files of any type and length, if they get any shorter, on all cores.
    pub fn new(packing: Packing) -> Self {
        Self {
            packing,
            min_saving: 0,
            max_size: MAX_LEN,
            types: Types::default(),
            verify: false,
            backup: None,
            jobs: None,
        }
    }
}

/// What came of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// Its path in the volume.
    pub path: String,
    /// The number of the way it is compressed now, or would be (`docs/formats/decmpfs.md` §3);
    /// `None`: it is not.
    pub number: Option<u32>,
    /// Bytes of its contents.
    pub size: u64,
    /// Bytes it took on the volume: whole blocks, and what is in an attribute.
    pub before: u64,
    /// Bytes it takes now, or would.
    pub after: u64,
    /// Why it stays as it is, if it does.
    pub left: Option<Left>,
}

/// Why a file stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Left {
    /// It is compressed already.
    Compressed,
    /// It is not compressed.
    Plain,
    /// It is empty.
    Empty,
    /// It is longer than asked for, or than macOS can read.
    TooLong,
    /// It has a resource fork, or an attribute that looks like that of a compressed file.
    ResourceFork,
    /// It would take no less room, or not as much less as asked for.
    NoGain,
    /// It may not be changed (the flags `uchg`, `schg`).
    Locked,
    /// Its type is none of those asked for.
    Type,
    /// The volume itself needs it as it is: its journal, for one.
    Volume,
    /// It has several names, and is a file of the host.
    Linked,
    /// Its contents are not on the host: they would have to be fetched first.
    Dataless,
}

impl Left {
    /// In words that follow "left as it is: ".
    pub fn reason(self) -> &'static str {
        match self {
            Self::Compressed => "compressed already",
            Self::Plain => "not compressed",
            Self::Empty => "empty",
            Self::TooLong => "too long",
            Self::ResourceFork => {
                "has a resource fork or an attribute of its own that would be in the way"
            }
            Self::NoGain => "would not take less room",
            Self::Locked => "locked",
            Self::Type => "not of a type asked for",
            Self::Volume => "belongs to the volume itself",
            Self::Linked => "has several names",
            Self::Dataless => "its contents are elsewhere",
        }
    }
}

/// Does `work` on as many cores as asked for.
fn on_cores<T: Send>(jobs: Option<NonZeroUsize>, work: impl FnOnce() -> T + Send) -> Result<T> {
    let Some(jobs) = jobs else { return Ok(work()) };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(jobs.get())
        .build();
    let pool = pool.map_err(|error| {
        Error::new(Kind::Limit, LAYER, format!("cannot start {jobs} threads")).caused_by(error)
    })?;
    Ok(pool.install(work))
}
