//! The block device interface: reads and writes of bytes at offsets.
//!
//! Everything that stores bytes is a [`BlockDevice`], and most of them wrap another. The trait has
//! no default methods, so a wrapper cannot omit one; derived operations are in [`BlockDeviceExt`].

mod chunk_cache;
mod cow;
mod ext;
pub mod failed;
mod memory;
mod read_only;
mod readahead;
pub mod regions;
mod slice;
pub mod units;
mod zeros;

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use crate::{Error, Result};

pub use chunk_cache::ChunkCache;
pub use cow::{Changes, CowDevice, Spill};
pub use ext::{BlockDeviceExt, Extents};
pub use ext::{reserve, zeros};
pub use memory::Memory;
pub use read_only::{ReadOnlyView, read_only};
pub use readahead::{ActiveRequest, Readahead};
pub use slice::Slice;
pub use zeros::{ZEROS, is_zero};

/// An array of bytes, shared by any number of threads.
///
/// * A range that exceeds `info().len` fails with [`Kind::OutOfRange`](crate::Kind::OutOfRange)
///   without reading or writing anything. An empty range within the length succeeds.
/// * Offsets and lengths are in bytes and need no alignment; `info()` has the efficient ones.
/// * The caller must order overlapping requests; other requests are independent, even within one
///   block.
pub trait BlockDevice: fmt::Debug + Send + Sync {
    /// Returns size, alignment and access. Cheap, because it is called for every request.
    fn info(&self) -> Info;

    /// Fills all of `buf` from `offset`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes all of `buf` at `offset`: immediately visible to every reader, durable after
    /// [`flush`](Self::flush).
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;

    /// Deallocates the storage behind `range`, by the next flush. `leave` selects the contents
    /// afterwards.
    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()>;

    /// Returns the kind of data at `range.start` and its length, which does not pass `range.end`.
    /// `range` must not be empty.
    fn extent_at(&self, range: Range<u64>) -> Result<Extent>;

    /// Makes every write, discard and length change that returned before this call durable, data
    /// before its references. Cheap without changes. After a failed flush the device refuses writes
    /// and flushes.
    fn flush(&self) -> Result<()>;

    /// Grows (new bytes read as zeros) or truncates the device. Waits for requests to the removed
    /// range. `leave` selects whether new bytes must read as zeros.
    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()>;

    /// Returns the host file range of a prefix of `range`, for `sendfile` and kernel copies. `None`
    /// is always valid. The bytes stay in place until the [`FileRange`] is dropped.
    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>>;
}

/// Size, alignment and access of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// Length in bytes, of any value.
    pub len: u64,
    /// Sector size of the disk in bytes: 512 or 4096.
    pub block: u32,
    /// Size and alignment of writes in bytes below which a write has to read first. 1 if none has
    /// to.
    pub write: u32,
    /// Size and alignment in bytes of a discard that frees storage.
    pub discard: u64,
    /// Permitted access.
    pub access: Access,
}

impl Info {
    /// Returns the properties of `len` bytes that can be read in pieces of any size, and not changed.
    pub const fn read_only(len: u64) -> Self {
        Self {
            len,
            block: 512,
            write: 1,
            discard: 1,
            access: Access::ReadOnly,
        }
    }

    /// Returns the end of a range. Fails if it exceeds the length.
    pub fn check(&self, layer: &'static str, offset: u64, length: u64) -> Result<u64> {
        match offset.checked_add(length) {
            Some(end) if end <= self.len => Ok(end),
            _ => Err(Error::out_of_range(layer, offset, length, self.len)),
        }
    }

    /// Fails for a range whose end is before its start or exceeds the length.
    pub fn check_range(&self, layer: &'static str, range: &Range<u64>) -> Result<()> {
        if range.start > range.end {
            return Err(
                Error::invalid(layer, "the range begins here, but its end is before that")
                    .at(range.start),
            );
        }
        self.check(layer, range.start, range.end - range.start)
            .map(drop)
    }

    /// Returns the extent of a range of data. Fails like [`check_range`](Self::check_range).
    pub fn data_extent(&self, layer: &'static str, range: &Range<u64>) -> Result<Extent> {
        self.check_range(layer, range)?;
        Ok(Extent {
            kind: ExtentKind::Data,
            len: range.end - range.start,
        })
    }

    /// Fails if the device is read-only.
    pub fn check_writable(&self, layer: &'static str) -> Result<()> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(Error::read_only(layer)),
        }
    }
}

/// Permitted access to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads only; every change fails with [`Kind::ReadOnly`](crate::Kind::ReadOnly).
    ReadOnly,
    /// Reads and changes.
    ReadWrite,
}

/// Contents of a range after a discard, or of new bytes after growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterDiscard {
    /// Zeros, even if they have to be written.
    Zeros,
    /// Undefined until written again. May do nothing, and never writes data.
    Any,
}

/// A contiguous range of one kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The kind of data.
    pub kind: ExtentKind,
    /// Length in bytes, at least 1.
    pub len: u64,
}

/// Kind of the data that a layer stores. On a chain `Hole` and `Zero` both read as zeros; in a
/// stack a hole shows the layer below and a zero hides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtentKind {
    /// Not stored by the format.
    Hole,
    /// Explicit zeros of the format.
    Zero,
    /// Any other data (which may be zeros).
    Data,
}

/// A host file range that holds bytes of a device while this exists. It owns the locks that keep
/// them in place, because the device at the bottom may be one of many that a layer opens and
/// closes.
pub struct FileRange {
    /// The host file.
    pub file: Arc<File>,
    /// File offset of the range in bytes.
    pub offset: u64,
    /// Length of the range in bytes, at least 1.
    pub len: u64,
    pins: Vec<Box<dyn Pin>>,
}

/// A guard that keeps a file range in place until it is dropped.
pub trait Pin: Send {}
impl<T: Send> Pin for T {}

impl FileRange {
    /// Returns `len` bytes at `offset` of `file`.
    pub fn new(file: Arc<File>, offset: u64, len: u64) -> Self {
        Self {
            file,
            offset,
            len,
            pins: Vec::new(),
        }
    }

    /// Keeps `guard` until the file range is dropped.
    #[must_use]
    pub fn holding(mut self, guard: impl Pin + 'static) -> Self {
        self.pins.push(Box::new(guard));
        self
    }
}

impl fmt::Debug for FileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRange")
            .field("offset", &self.offset)
            .field("len", &self.len)
            .field("guards", &self.pins.len())
            .finish_non_exhaustive()
    }
}
