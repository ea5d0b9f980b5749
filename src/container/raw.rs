//! UDRW: byte *n* of the file is byte *n* of the disk.

use std::ops::Range;
use std::sync::Arc;

use super::{SECTOR, check_len};
use crate::device::{AfterDiscard, BlockDevice, Extent, FileRange, Info};
use crate::size::narrow;
use crate::store::{Open, Store};
use crate::{Error, Result};

const LAYER: &str = "raw image";

/// A disk stored as the plain bytes of a file.
#[derive(Debug, Clone)]
pub struct Raw {
    file: Arc<dyn BlockDevice>,
}

impl Raw {
    /// Creates the disk in `file`. The contents are not checked.
    pub fn new(file: Arc<dyn BlockDevice>) -> Self {
        Self { file }
    }

    /// Creates a blank disk of `len` bytes, a multiple of 512, in the new file `name`, which must
    /// not exist.
    pub fn create(store: &dyn Store, name: &str, len: u64) -> Result<Self> {
        check_len(LAYER, len)?;
        let Some(file) = store.open(name, Open::CreateNew)? else {
            return Err(Error::conflict(LAYER, "already exists").named(name));
        };
        Self::blank(file, len).inspect_err(|_| {
            // Best effort: the caller needs the first error.
            let _ = store.remove(name);
        })
    }

    /// Makes `file`, new and empty, a blank disk of `len` bytes, a multiple of 512.
    pub fn blank(file: Arc<dyn BlockDevice>, len: u64) -> Result<Self> {
        check_len(LAYER, len)?;
        file.set_len(len, AfterDiscard::Zeros)?;
        Ok(Self::new(file))
    }

    /// Returns the number of bytes after the last whole sector, which are not part of the disk.
    pub fn trailing(&self) -> u64 {
        self.file.info().len % SECTOR
    }
}

impl BlockDevice for Raw {
    fn info(&self) -> Info {
        let below = self.file.info();
        Info {
            len: below.len - below.len % SECTOR,
            block: narrow::<u32>(SECTOR),
            ..below
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        self.file.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        self.file.write_at(offset, buf)
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.info().check_range(LAYER, &range)?;
        self.file.discard(range, leave)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        self.file.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        self.file.flush()
    }

    /// `len` must be a multiple of 512.
    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        self.info().check_writable(LAYER)?;
        check_len(LAYER, len)?;
        let info = self.info();
        if self.trailing() > 0 && len > info.len {
            // Removes the odd bytes past the end first, which growth would make part of the disk.
            self.file.set_len(info.len, leave)?;
            self.file.flush()?;
        }
        self.file.set_len(len, leave)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        self.file.file_range(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::device::{BlockDeviceExt, Memory};
    use crate::store::MemoryStore;

    #[test]
    fn odd_bytes_at_the_end_are_no_part_of_the_disk() {
        let mut bytes = vec![7; 1024];
        bytes.extend([9; 100]);
        let raw = Raw::new(Arc::new(Memory::from(bytes)));
        assert_eq!((raw.info().len, raw.trailing()), (1024, 100));
        assert_eq!(
            raw.read_at(1000, &mut [0; 25]).unwrap_err().kind(),
            Kind::OutOfRange
        );
        raw.set_len(1536, AfterDiscard::Zeros).unwrap();
        assert_eq!(
            raw.read_vec(1024, 512).unwrap(),
            [0; 512],
            "leftovers are not shown by growth"
        );
        assert_eq!(raw.trailing(), 0);
    }

    #[test]
    fn lengths_are_whole_sectors() {
        let store = MemoryStore::default();
        for (len, kind) in [
            (0, Kind::Invalid),
            (513, Kind::Invalid),
            (1 << 63, Kind::Limit),
        ] {
            assert_eq!(Raw::create(&store, "x", len).unwrap_err().kind(), kind);
            assert!(
                store.stat("x").unwrap().is_none(),
                "a refused image leaves no file"
            );
        }
        let raw = Raw::create(&store, "x", 1024).unwrap();
        assert_eq!(
            raw.set_len(1000, AfterDiscard::Zeros).unwrap_err().kind(),
            Kind::Invalid
        );
        assert_eq!(
            Raw::create(&store, "x", 1024).unwrap_err().kind(),
            Kind::Conflict
        );
        assert_eq!(raw.info().len, 1024);
    }
}
