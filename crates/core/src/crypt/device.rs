//! The plain contents of an encrypted file as a device.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::blocks::{CipherBlocks, CipherTextWindow, ZeroBlockMeaning};
use super::check::PADDING;
use super::header::{Description, LockedHeader, Protection};
use super::keys::KeyMaterial;
use super::layout::DATA_SIZE_AT;
use super::sectors::Sectors;
use crate::device::{
    Access, AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info, is_zero,
};
use crate::size::{narrow, to_usize};
use crate::sync::{Mutex, RwLock, RwLockReadGuard};
use crate::{Error, Kind, Result};

const LAYER: &str = "encrypted image";
/// Bytes read at a time past the end of the data.
const PIECE: u64 = 1 << 20;

/// An unlocked `encrcdsa` or `cdsaencr` file. Whole cipher blocks are read and written without a
/// lock and without reading them first; partial blocks under the lock of the block. All extents are
/// `Data`: cipher text has no holes.
#[derive(Debug)]
pub struct Device {
    file: Arc<dyn BlockDevice>,
    header: LockedHeader,
    blocks: CipherBlocks,
    len: AtomicU64,
    /// The length in the header on disk.
    stored_len: Mutex<u64>,
    broken: AtomicBool,
    /// Held shared by every request, and exclusively to change the length.
    in_flight: RwLock<()>,
}

impl Device {
    /// Opens the encrypted contents of `file` with its `header` and the keys it unlocked to.
    pub fn new(
        file: Arc<dyn BlockDevice>,
        header: LockedHeader,
        keys: &KeyMaterial,
    ) -> Result<Self> {
        // A zero block is cipher text here: the header has the length of the data, so no block is
        // unwritten.
        let blocks = CipherBlocks::new(Sectors::new(keys, header.block)?, ZeroBlockMeaning::Noise);
        let needed = header.data_offset + header.data_size.next_multiple_of(blocks.block());
        let there = file.info().len;
        if there < needed {
            let message = format!(
                "the file is truncated: the header records {} bytes of data, which end at \
                 {needed}, and the file ends at {there}",
                header.data_size
            );
            return Err(Error::corrupt(LAYER, there, message));
        }
        let len = header.data_size;
        let (len, stored_len) = (AtomicU64::new(len), Mutex::new(len));
        Ok(Self {
            file,
            header,
            blocks,
            len,
            stored_len,
            broken: AtomicBool::new(false),
            in_flight: RwLock::default(),
        })
    }

    /// Initializes `file`, which must be empty, as an encrypted file without data.
    pub fn create(file: Arc<dyn BlockDevice>, protection: &Protection) -> Result<Self> {
        let keys = KeyMaterial::random(protection.key_bits)?;
        let (header, bytes) = LockedHeader::make(&keys, protection, 0)?;
        file.set_len(header.data_offset, AfterDiscard::Any)?;
        file.write_at(0, &bytes)?;
        Self::new(file, header, &keys)
    }

    /// Returns the description of its encryption.
    pub fn description(&self) -> Description {
        Description {
            data_size: self.len(),
            ..self.header.describe()
        }
    }

    /// Returns the end of the data in the file, in whole blocks.
    pub fn data_end(&self) -> u64 {
        self.file_offset(self.len().next_multiple_of(self.block()))
    }

    /// Returns the end of the stored blocks, as a length of the data, if it is more than 4096 bytes past
    /// the length in use.
    pub fn stored_end(&self) -> Option<u64> {
        let stored = self.file.info().len.saturating_sub(self.file_offset(0));
        let end = stored / self.block() * self.block();
        (end > self.len().saturating_add(PADDING)).then_some(end)
    }

    /// Returns the same if data is stored there, which a growth would overwrite: the recorded length may be
    /// wrong. Zeros and holes are left from an interrupted growth.
    pub fn data_past_end(&self) -> Result<Option<u64>> {
        let Some(end) = self.stored_end() else {
            return Ok(None);
        };
        let is_unused = self.is_unused(self.len().next_multiple_of(self.block())..end)?;
        Ok((!is_unused).then_some(end))
    }

    /// Returns true if all blocks of `range`, which may be past the end, are zeros or were never
    /// written.
    fn is_unused(&self, range: Range<u64>) -> Result<bool> {
        let (block, mut at) = (self.block(), range.start);
        let (mut plain, mut stored) = (Vec::new(), Vec::new());
        while at < range.end {
            let extent = self
                .file
                .extent_at(self.file_offset(at)..self.file_offset(range.end))?;
            let hole = extent.len / block * block;
            if extent.kind != ExtentKind::Data && hole > 0 {
                at += hole;
                continue;
            }
            let len = to_usize(PIECE.min(range.end - at));
            plain.resize(len, 0);
            stored.resize(len, 0);
            self.blocks.read(self.window(), at, &mut plain)?;
            self.file.read_at(self.file_offset(at), &mut stored)?;
            let mut blocks = plain
                .chunks(to_usize(block))
                .zip(stored.chunks(to_usize(block)));
            if !blocks.all(|(plain, stored)| is_zero(plain) || is_zero(stored)) {
                return Ok(false);
            }
            at += PIECE.min(range.end - at);
        }
        Ok(true)
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn block(&self) -> u64 {
        self.blocks.block()
    }

    /// Returns the file offset of the block at plain offset `offset`.
    fn file_offset(&self, offset: u64) -> u64 {
        self.header.data_offset + offset
    }

    /// Begins a request: checks its range and blocks changes of the length.
    fn enter(&self, offset: u64, length: u64) -> Result<RwLockReadGuard<'_, ()>> {
        let guard = self.in_flight.read();
        self.info().check(LAYER, offset, length)?;
        Ok(guard)
    }

    fn check_writable(&self) -> Result<()> {
        self.info().check_writable(LAYER)?;
        if self.broken.load(Ordering::Acquire) {
            return Err(Error::new(
                Kind::Io,
                LAYER,
                "a flush failed and may have lost changes; open the image again to change it",
            ));
        }
        Ok(())
    }

    /// Returns the location of the cipher text.
    fn window(&self) -> CipherTextWindow<'_> {
        CipherTextWindow {
            file: &*self.file,
            at: self.header.data_offset,
            start: 0,
        }
    }

    fn grow(&self, from: u64, to: u64, leave: AfterDiscard) -> Result<()> {
        let block = self.block();
        self.blocks.check_len(LAYER, to)?;
        let end = self.file_offset(to.next_multiple_of(block));
        if self.file.info().len < end {
            self.file.set_len(end, AfterDiscard::Any)?;
        }
        // The tail of the last block, and new blocks, do not read as zeros until zeros are written.
        match leave {
            AfterDiscard::Zeros => self
                .blocks
                .write_zeros(self.window(), from..to.next_multiple_of(block)),
            AfterDiscard::Any => Ok(()),
        }
    }

    fn shrink(&self, to: u64) -> Result<()> {
        self.len.store(to, Ordering::Release);
        self.flush()?;
        self.file.set_len(
            self.file_offset(to.next_multiple_of(self.block())),
            AfterDiscard::Any,
        )
    }
}

impl BlockDevice for Device {
    fn info(&self) -> Info {
        let inner = self.file.info();
        let access = if self.header.writable() {
            inner.access
        } else {
            Access::ReadOnly
        };
        let block = self.block();
        Info {
            len: self.len(),
            block: 512,
            write: narrow(block),
            discard: inner.discard.max(block),
            access,
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let _in_flight = self.enter(offset, buf.len() as u64)?;
        self.blocks.read(self.window(), offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let _in_flight = self.enter(offset, buf.len() as u64)?;
        self.check_writable()?;
        self.blocks.write(self.window(), offset, buf)
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.info().check_range(LAYER, &range)?;
        let _in_flight = self.enter(range.start, range.end - range.start)?;
        self.check_writable()?;
        match leave {
            AfterDiscard::Zeros => self.blocks.write_zeros(self.window(), range),
            AfterDiscard::Any => {
                let (start, end) = (
                    range.start.next_multiple_of(self.block()),
                    range.end / self.block() * self.block(),
                );
                if start < end {
                    self.file.discard(
                        self.file_offset(start)..self.file_offset(end),
                        AfterDiscard::Any,
                    )
                } else {
                    Ok(())
                }
            }
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().data_extent(LAYER, &range)
    }

    /// Flushes the data first, then writes the new length to the header.
    fn flush(&self) -> Result<()> {
        if self.info().access == Access::ReadOnly {
            return Ok(());
        }
        self.check_writable()?;
        let mut stored = self.stored_len.lock();
        let len = self.len();
        let flushed = self.file.flush().and_then(|()| {
            if *stored != len {
                self.file.write_at(DATA_SIZE_AT, &len.to_be_bytes())?;
                self.file.flush()?;
            }
            Ok(())
        });
        match flushed {
            Ok(()) => *stored = len,
            Err(_) => self.broken.store(true, Ordering::Release),
        }
        flushed
    }

    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        self.check_writable()?;
        let _alone = self.in_flight.write();
        let old = self.len();
        if len < old {
            return self.shrink(len);
        }
        self.grow(old, len, leave)?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}
