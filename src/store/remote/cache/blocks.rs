//! A block allocator for blocks of 64 KiB in one file on the local disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::LAYER;
use super::super::buffers::PAGE;
use super::BLOCKS;
use crate::device::{AfterDiscard, BlockDevice};
use crate::size::to_usize;
use crate::store::{Open, Store};
use crate::sync::Mutex;
use crate::{Error, Result};

/// The file, with its free blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    file: Arc<dyn BlockDevice>,
    free: Mutex<Free>,
}

/// Unused blocks.
#[derive(Debug)]
struct Free {
    returned: Vec<u32>,
    /// The first block that was never allocated.
    fresh: u32,
    count: u32,
}

/// An allocated block, freed on drop. It is written once.
#[derive(Debug)]
pub(in super::super) struct Block {
    blocks: Arc<Blocks>,
    number: u32,
    /// CRC-32 of its bytes.
    sum: u32,
    /// The block was written, or its checksum verified, since the file was opened.
    is_right: AtomicBool,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.blocks.free.lock().returned.push(self.number);
    }
}

impl Blocks {
    /// Opens the file for `count` blocks, all of them free. Data beyond is truncated.
    pub(super) fn open(store: &dyn Store, count: u32) -> Result<Arc<Self>> {
        let file = store.open(BLOCKS, Open::Create)?;
        let file = file.ok_or_else(|| Error::not_found(LAYER, BLOCKS))?;
        let len = u64::from(count) * PAGE;
        if file.info().len != len {
            file.set_len(len, AfterDiscard::Any)?;
        }
        Ok(Arc::new(Self {
            file,
            free: Mutex::new(Free {
                returned: Vec::new(),
                fresh: 0,
                count,
            }),
        }))
    }

    /// Allocates the blocks that were in use when the file was last open; the others stay free.
    /// Called once, before any other allocation.
    pub(super) fn known(
        self: &Arc<Self>,
        known: impl Iterator<Item = (u32, u32)>,
    ) -> Vec<Arc<Block>> {
        let used: Vec<_> = known
            .map(|(number, sum)| Arc::new(Block::new(self, number, sum)))
            .collect();
        let mut numbers: Vec<u32> = used.iter().map(|block| block.number).collect();
        numbers.sort_unstable();
        let mut free = self.free.lock();
        free.fresh = numbers.last().map_or(0, |last| last + 1);
        free.returned = (0..free.fresh)
            .filter(|number| numbers.binary_search(number).is_err())
            .collect();
        drop(free);
        used
    }

    /// Writes [`PAGE`] bytes to a free block. `None`: no block is free, or the write failed.
    pub(super) fn write(self: &Arc<Self>, bytes: &[u8]) -> Option<Arc<Block>> {
        let number = {
            let mut free = self.free.lock();
            match free.returned.pop() {
                Some(number) => number,
                None if free.fresh < free.count => {
                    free.fresh += 1;
                    free.fresh - 1
                }
                None => return None,
            }
        };
        let block = Block::new(self, number, crc32fast::hash(bytes));
        self.file.write_at(u64::from(number) * PAGE, bytes).ok()?;
        block.is_right.store(true, Ordering::Relaxed);
        Some(Arc::new(block))
    }

    /// Makes all written blocks durable.
    pub(super) fn flush(&self) -> Result<()> {
        self.file.flush()
    }
}

impl Block {
    fn new(blocks: &Arc<Blocks>, number: u32, sum: u32) -> Self {
        Self {
            blocks: blocks.clone(),
            number,
            sum,
            is_right: AtomicBool::new(false),
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the CRC-32 of its bytes.
    pub(super) fn sum(&self) -> u32 {
        self.sum
    }

    /// Reads from offset `within` into `into`. The first read of a block reads all of it, to verify
    /// its checksum.
    pub(super) fn read_part(&self, within: usize, into: &mut [u8]) -> Result<()> {
        if !self.is_right.load(Ordering::Relaxed) {
            self.read(&mut vec![0; to_usize(PAGE)])?;
            self.is_right.store(true, Ordering::Relaxed);
        }
        self.blocks
            .file
            .read_at(u64::from(self.number) * PAGE + within as u64, into)
    }

    /// Reads the block into `into`, of [`PAGE`] bytes.
    pub(in super::super) fn read(&self, into: &mut [u8]) -> Result<()> {
        let at = u64::from(self.number) * PAGE;
        self.blocks.file.read_at(at, into)?;
        let found = crc32fast::hash(into);
        if found != self.sum {
            let message = format!("expected a checksum of {:08x}, found {found:08x}", self.sum);
            return Err(Error::corrupt(LAYER, at, message).in_part(BLOCKS));
        }
        Ok(())
    }
}
