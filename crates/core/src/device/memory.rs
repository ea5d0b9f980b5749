//! A device in memory.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{Access, AfterDiscard, BlockDevice, Extent, FileRange, Info};
use crate::size::to_usize;
use crate::sync::RwLock;
use crate::{Error, Result};

const LAYER: &str = "memory";

/// A device of bytes in memory, all of them allocated: for tests, for small structures, and as a
/// reference model of a device.
pub struct Memory {
    bytes: Arc<RwLock<Vec<u8>>>,
    access: Access,
}

impl Memory {
    /// Creates a device of `len` zeros.
    pub fn zeros(len: usize) -> Self {
        Self::from(vec![0; len])
    }

    /// Creates a read-only device of `bytes`.
    pub fn read_only(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            access: Access::ReadOnly,
            ..Self::from(bytes.into())
        }
    }

    /// Returns another device that shares the same bytes.
    pub(crate) fn view(&self, access: Access) -> Self {
        Self {
            bytes: self.bytes.clone(),
            access,
        }
    }

    /// Returns a copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }

    fn check_writable(&self) -> Result<()> {
        self.info().check_writable(LAYER)
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            bytes: Arc::new(RwLock::new(bytes)),
            access: Access::ReadWrite,
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("info", &self.info())
            .finish_non_exhaustive()
    }
}

impl BlockDevice for Memory {
    fn info(&self) -> Info {
        info(&self.bytes.read(), self.access)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = self.bytes.read();
        let range = index_range(&bytes, offset, buf.len() as u64)?;
        buf.copy_from_slice(&bytes[range]);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.check_writable()?;
        let mut bytes = self.bytes.write();
        let range = index_range(&bytes, offset, buf.len() as u64)?;
        bytes[range].copy_from_slice(buf);
        Ok(())
    }

    fn discard(&self, range: Range<u64>, _leave: AfterDiscard) -> Result<()> {
        self.check_writable()?;
        let mut bytes = self.bytes.write();
        info(&bytes, self.access).check_range(LAYER, &range)?;
        bytes[to_usize(range.start)..to_usize(range.end)].fill(0);
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().data_extent(LAYER, &range)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64, _leave: AfterDiscard) -> Result<()> {
        let len = usize::try_from(len)
            .map_err(|_| Error::limit(LAYER, format!("{len} bytes do not fit in memory")))?;
        self.check_writable()?;
        let mut bytes = self.bytes.write();
        let more = len.saturating_sub(bytes.len());
        bytes
            .try_reserve(more)
            .map_err(|_| Error::limit(LAYER, format!("{len} bytes do not fit in memory")))?;
        bytes.resize(len, 0);
        Ok(())
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}

fn info(bytes: &[u8], access: Access) -> Info {
    Info {
        len: bytes.len() as u64,
        block: 512,
        write: 1,
        discard: 1,
        access,
    }
}

/// Converts the range to indices. Must be called under the lock of the bytes: another thread may
/// truncate them.
fn index_range(bytes: &[u8], offset: u64, length: u64) -> Result<Range<usize>> {
    let end = info(bytes, Access::ReadOnly).check(LAYER, offset, length)?;
    Ok(to_usize(offset)..to_usize(end))
}
