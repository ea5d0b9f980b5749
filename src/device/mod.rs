//! The narrow waist: a run of bytes at positions.
//!
//! Everything that holds bytes is a [`BlockDevice`], and most of them wrap another. The trait has
//! no default bodies, so a wrapper cannot forget a method; what can be derived from it is in
//! [`BlockDeviceExt`].

mod ext;
pub(crate) mod failed;
mod memory;
mod overlay;
mod read_only;
pub(crate) mod regions;
mod slice;
pub(crate) mod units;
mod zeros;

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use crate::{Error, Result};

pub use ext::{BlockDeviceExt, Extents};
pub use memory::Memory;
pub(crate) use overlay::Overlay;
pub(crate) use read_only::read_only;
pub use slice::Slice;
pub(crate) use zeros::is_zero;

/// A run of bytes at positions, shared by any number of threads.
///
/// * A range that reaches past `info().len` is refused with
///   [`Kind::OutOfRange`](crate::Kind::OutOfRange) and nothing is then read or written. An empty
///   range within the length succeeds.
/// * Offsets and lengths are in bytes and need no alignment; `info()` tells which are cheap.
/// * Requests that overlap are ordered by the caller; requests that do not are independent, even
///   within one block.
pub trait BlockDevice: fmt::Debug + Send + Sync {
    /// Size and grain. Cheap: it is asked before every request.
    fn info(&self) -> Info;

    /// Fills all of `buf` from `offset`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes all of `buf` at `offset`: visible to every reader at once, durable after
    /// [`flush`](Self::flush).
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;

    /// Gives the storage behind `range` back, by the next flush. What may be read there afterwards
    /// is `leave`.
    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()>;

    /// What stands at `range.start`, and for how many bytes, never past `range.end`. `range` is not
    /// empty.
    fn extent_at(&self, range: Range<u64>) -> Result<Extent>;

    /// Makes every write, discard and length that returned before this call durable, data before
    /// what points to it. A device without changes flushes for free. After a failed flush the
    /// device refuses writes and flushes.
    fn flush(&self) -> Result<()>;

    /// Grows (new bytes read as zeros) or cuts the device. Requests to a range that is cut off are
    /// waited for. `leave` says whether the new bytes must read as zeros.
    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()>;

    /// The host file behind a prefix of `range`, for `sendfile` and kernel copies. `None` is always
    /// right. The bytes stay in place while the [`FileRange`] lives.
    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>>;
}

/// Size and grain of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// Bytes, any number.
    pub len: u64,
    /// The disk's sector: 512 or 4096 bytes.
    pub block: u32,
    /// A write of less than this, or unaligned to it, reads first. 1 where no write does.
    pub write: u32,
    /// The bytes that a discard must cover, aligned, to free storage.
    pub discard: u64,
    /// Whether it may be changed.
    pub access: Access,
}

impl Info {
    /// Refuses a range that reaches past the end; returns its end.
    pub fn check(&self, layer: &'static str, offset: u64, length: u64) -> Result<u64> {
        match offset.checked_add(length) {
            Some(end) if end <= self.len => Ok(end),
            _ => Err(Error::out_of_range(layer, offset, length, self.len)),
        }
    }

    /// Refuses a range that ends before it begins or reaches past the end.
    pub fn check_range(&self, layer: &'static str, range: &Range<u64>) -> Result<()> {
        if range.start > range.end {
            return Err(
                Error::new(crate::Kind::Invalid, layer, "range ends before it begins")
                    .at(range.start),
            );
        }
        self.check(layer, range.start, range.end - range.start)
            .map(drop)
    }

    /// Refuses a change of something read-only.
    pub fn check_writable(&self, layer: &'static str) -> Result<()> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(Error::read_only(layer)),
        }
    }
}

/// Whether a device may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads only; every change is refused with [`Kind::ReadOnly`](crate::Kind::ReadOnly).
    ReadOnly,
    /// Reads and changes.
    ReadWrite,
}

/// What may be read where a discard, or a new length, left bytes behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterDiscard {
    /// Zeros, even if they have to be written.
    Zeros,
    /// Anything, until written again. May do nothing, never costs a data write.
    Any,
}

/// A run of bytes of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// What is stored there.
    pub kind: ExtentKind,
    /// How many bytes, at least 1.
    pub len: u64,
}

/// What a layer stores at a position. On top of a chain `Hole` and `Zero` both read as zeros; in a
/// stack a hole shows the layer below and a zero hides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtentKind {
    /// The format stores nothing here.
    Hole,
    /// The format states zeros here.
    Zero,
    /// Anything else (which may happen to be zeros).
    Data,
}

/// A host file that holds a device's bytes for as long as this lives. It owns what keeps them in
/// place, because the device at the bottom may be one of many that a layer opens and forgets.
pub struct FileRange {
    /// The file.
    pub file: Arc<File>,
    /// Where in the file the range begins.
    pub offset: u64,
    /// How many bytes of it, at least 1.
    pub len: u64,
    pins: Vec<Box<dyn Pin>>,
}

/// Anything that keeps a lent place where it is until it is dropped.
pub trait Pin: Send {}
impl<T: Send> Pin for T {}

impl FileRange {
    /// `len` bytes at `offset` of `file`.
    pub fn new(file: Arc<File>, offset: u64, len: u64) -> Self {
        Self {
            file,
            offset,
            len,
            pins: Vec::new(),
        }
    }

    /// Keeps `guard` until the loan ends.
    #[must_use]
    pub fn holding(mut self, guard: impl Pin + 'static) -> Self {
        self.pins.push(Box::new(guard));
        self
    }
}

impl fmt::Debug for FileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent")
            .field("offset", &self.offset)
            .field("len", &self.len)
            .field("guards", &self.pins.len())
            .finish_non_exhaustive()
    }
}
