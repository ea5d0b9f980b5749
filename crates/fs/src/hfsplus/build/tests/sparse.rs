//! A sparse device that can be larger than memory.

use std::collections::BTreeMap;
use std::ops::Range;

use bandsaw_core::device::{
    Access, AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info,
};
use bandsaw_core::sync::Mutex;
use bandsaw_core::{Error, Result};

/// A device of any length that stores only written blocks.
#[derive(Debug)]
pub(super) struct Sparse {
    len: u64,
    blocks: Mutex<BTreeMap<u64, [u8; 4096]>>,
}

impl Sparse {
    pub(super) fn new(len: u64) -> Self {
        Self {
            len,
            blocks: Mutex::default(),
        }
    }

    pub(super) fn stored(&self) -> usize {
        self.blocks.lock().len() * 4096
    }

    /// Calls `each` with the blocks of a range and the part of each that is in the range.
    fn each(offset: u64, length: usize, mut each: impl FnMut(u64, Range<usize>, Range<usize>)) {
        let mut done = 0;
        while done < length {
            let (block, inside) = (
                (offset + done as u64) / 4096,
                ((offset + done as u64) % 4096) as usize,
            );
            let now = (4096 - inside).min(length - done);
            each(block, inside..inside + now, done..done + now);
            done += now;
        }
    }
}

impl BlockDevice for Sparse {
    fn info(&self) -> Info {
        Info {
            len: self.len,
            block: 512,
            write: 1,
            discard: 4096,
            access: Access::ReadWrite,
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check("sparse", offset, buf.len() as u64)?;
        let blocks = self.blocks.lock();
        Self::each(offset, buf.len(), |block, inside, part| {
            match blocks.get(&block) {
                Some(bytes) => buf[part].copy_from_slice(&bytes[inside]),
                None => buf[part].fill(0),
            }
        });
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check("sparse", offset, buf.len() as u64)?;
        let mut blocks = self.blocks.lock();
        Self::each(offset, buf.len(), |block, inside, part| {
            blocks.entry(block).or_insert([0; 4096])[inside].copy_from_slice(&buf[part]);
        });
        Ok(())
    }

    fn discard(&self, range: Range<u64>, _leave: AfterDiscard) -> Result<()> {
        self.info().check_range("sparse", &range)?;
        self.blocks.lock().clear();
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        let kind = if self.blocks.lock().is_empty() {
            ExtentKind::Hole
        } else {
            ExtentKind::Data
        };
        Ok(Extent {
            kind,
            len: range.end - range.start,
        })
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _len: u64, _leave: AfterDiscard) -> Result<()> {
        Err(Error::unsupported("sparse", "has one length"))
    }

    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }
}
