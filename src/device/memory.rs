//! A device in memory.

use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Access, BlockDevice, Extent, ExtentKind, Info, Leave, Lent};
use crate::{Error, Kind, Result};

const LAYER: &str = "memory";

/// Bytes in memory, all of them allocated. For tests, for small structures, and as the model of what a device does.
#[derive(Debug)]
pub struct Memory {
    bytes: RwLock<Vec<u8>>,
    access: Access,
}

impl Memory {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        Self::from(vec![0; len])
    }

    /// The same bytes, read-only.
    pub fn read_only(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: RwLock::new(bytes.into()), access: Access::ReadOnly }
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes().clone()
    }

    fn bytes(&self) -> RwLockReadGuard<'_, Vec<u8>> {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes_mut(&self) -> Result<RwLockWriteGuard<'_, Vec<u8>>> {
        self.info().check_writable(LAYER)?;
        Ok(self.bytes.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn range(&self, offset: u64, length: u64) -> Result<Range<usize>> {
        let end = self.info().check(LAYER, offset, length)?;
        Ok(offset as usize..end as usize)
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes: RwLock::new(bytes), access: Access::ReadWrite }
    }
}

impl BlockDevice for Memory {
    fn info(&self) -> Info {
        Info { len: self.bytes().len() as u64, block: 512, write: 1, discard: 1, access: self.access }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let range = self.range(offset, buf.len() as u64)?;
        buf.copy_from_slice(&self.bytes()[range]);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let range = self.range(offset, buf.len() as u64)?;
        self.bytes_mut()?[range].copy_from_slice(buf);
        Ok(())
    }

    fn discard(&self, range: Range<u64>, _leave: Leave) -> Result<()> {
        self.info().check_range(LAYER, &range)?;
        let range = self.range(range.start, range.end - range.start)?;
        self.bytes_mut()?[range].fill(0);
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        Ok(Extent { kind: ExtentKind::Data, len: range.end - range.start })
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64, _leave: Leave) -> Result<()> {
        let len =
            usize::try_from(len).map_err(|_| Error::new(Kind::Limit, LAYER, format!("{len} bytes do not fit in memory")))?;
        self.bytes_mut()?.resize(len, 0);
        Ok(())
    }

    fn lend(&self, range: Range<u64>) -> Result<Option<Lent>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}
