//! The plain bytes of one encrypted file, as a device.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::header::{Description, Locked, Protection};
use super::keys::KeyMaterial;
use super::layout::DATA_SIZE_AT;
use super::sectors::Sectors;
use crate::device::{Access, BlockDevice, BlockDeviceExt, Extent, ExtentKind, Info, Leave, Lent};
use crate::{Error, Kind, Result};

const LAYER: &str = "encrypted image";
/// What is encrypted before it is written: as much as the second-level cache holds beside its plain text.
const PIECE: usize = 256 << 10;
/// Locks for blocks that are patched; a block uses the one of its number modulo this.
const STRIPES: u64 = 64;

/// An unlocked `encrcdsa` or `cdsaencr` file. Whole cipher blocks are read and written without a lock and without reading first;
/// parts of one under that block's lock. Everything is `Data`: cipher text has no holes.
#[derive(Debug)]
pub struct Device {
    file: Arc<dyn BlockDevice>,
    header: Locked,
    sectors: Sectors,
    len: AtomicU64,
    /// The length that the header on disk tells.
    stored_len: Mutex<u64>,
    broken: AtomicBool,
    stripes: Vec<RwLock<()>>,
    /// Held shared by every request, alone by what changes the length.
    in_flight: RwLock<()>,
}

thread_local! {
    /// Cipher text on its way to the file.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Device {
    /// The plain bytes behind `header`, which stands in `file`, with the keys it unlocked to.
    pub fn new(file: Arc<dyn BlockDevice>, header: Locked, keys: &KeyMaterial) -> Result<Self> {
        let sectors = Sectors::new(keys, header.block)?;
        let needed = header.data_offset + header.data_size.next_multiple_of(sectors.block());
        let there = file.info().len;
        if there < needed {
            let message = format!(
                "the header tells of {} bytes of data, which end at {needed}; the file ends at {there}",
                header.data_size
            );
            return Err(Error::corrupt(LAYER, there, message));
        }
        let len = header.data_size;
        let stripes = (0..STRIPES).map(|_| RwLock::default()).collect();
        let (len, stored_len) = (AtomicU64::new(len), Mutex::new(len));
        Ok(Self { file, header, sectors, len, stored_len, broken: AtomicBool::new(false), stripes, in_flight: RwLock::default() })
    }

    /// Makes `file`, which is empty, an encrypted one without data.
    pub fn create(file: Arc<dyn BlockDevice>, protection: &Protection) -> Result<Self> {
        let keys = KeyMaterial::random(protection.key_bits)?;
        let (header, bytes) = Locked::make(&keys, protection, 0)?;
        file.set_len(header.data_offset, Leave::Any)?;
        file.write_at(0, &bytes)?;
        Self::new(file, header, &keys)
    }

    /// What protects it.
    pub fn description(&self) -> Description {
        Description { data_size: self.len(), ..self.header.describe() }
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn block(&self) -> u64 {
        self.sectors.block()
    }

    /// The place of plain byte `offset` of a block's start in the file.
    fn place(&self, offset: u64) -> u64 {
        self.header.data_offset + offset
    }

    /// Lets a request in, unless the length is being changed.
    fn enter(&self, offset: u64, length: u64) -> Result<RwLockReadGuard<'_, ()>> {
        let guard = self.in_flight.read().unwrap_or_else(PoisonError::into_inner);
        self.info().check(LAYER, offset, length)?;
        Ok(guard)
    }

    fn check_writable(&self) -> Result<()> {
        self.info().check_writable(LAYER)?;
        if self.broken.load(Ordering::Acquire) {
            return Err(Error::new(Kind::Io, LAYER, "refuses changes after a failed flush; open it again"));
        }
        Ok(())
    }

    fn shared(&self, number: u64) -> RwLockReadGuard<'_, ()> {
        self.stripes[(number % STRIPES) as usize].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self, number: u64) -> RwLockWriteGuard<'_, ()> {
        self.stripes[(number % STRIPES) as usize].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// One block in plain.
    fn read_block(&self, number: u64) -> Result<Vec<u8>> {
        let mut block = self.file.read_vec(self.place(number * self.block()), self.block() as usize)?;
        self.sectors.decrypt(number, &mut block)?;
        Ok(block)
    }

    /// Whole blocks into the caller's buffer, decrypted there piece by piece while the cache still holds them.
    fn read_blocks(&self, mut number: u64, buf: &mut [u8]) -> Result<()> {
        for piece in buf.chunks_mut(PIECE) {
            self.file.read_at(self.place(number * self.block()), piece)?;
            self.sectors.decrypt(number, piece)?;
            number += piece.len() as u64 / self.block();
        }
        Ok(())
    }

    fn write_blocks(&self, mut number: u64, buf: &[u8]) -> Result<()> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(PIECE, 0);
            for piece in buf.chunks(PIECE) {
                let cipher = &mut scratch[..piece.len()];
                self.sectors.encrypt(number, piece, cipher)?;
                self.file.write_at(self.place(number * self.block()), cipher)?;
                number += piece.len() as u64 / self.block();
            }
            Ok(())
        })
    }

    fn patch_block(&self, number: u64, within: usize, bytes: &[u8]) -> Result<()> {
        let _alone = self.exclusive(number);
        let mut block = self.read_block(number)?;
        block[within..within + bytes.len()].copy_from_slice(bytes);
        self.write_blocks(number, &block)
    }

    /// Zeros as cipher text: what a hole cannot be.
    fn write_zeros(&self, range: Range<u64>) -> Result<()> {
        let zeros = vec![0; PIECE.min((range.end - range.start) as usize)];
        let mut at = range.start;
        while at < range.end {
            // Up to a piece's boundary, so that all but the first and the last are of whole blocks.
            let end = (at + 1).next_multiple_of(PIECE as u64).min(range.end);
            self.write_parts(at, &zeros[..(end - at) as usize])?;
            at = end;
        }
        Ok(())
    }

    /// Writes any range within the blocks that the file holds.
    fn write_parts(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let parts = Parts::of(offset, buf.len(), self.block() as usize);
        let (head, rest) = buf.split_at(parts.head);
        let (whole, tail) = rest.split_at(parts.whole);
        if !head.is_empty() {
            self.patch_block(parts.first, parts.within, head)?;
        }
        if !whole.is_empty() {
            self.write_blocks(parts.second, whole)?;
        }
        if !tail.is_empty() {
            self.patch_block(parts.last, 0, tail)?;
        }
        Ok(())
    }

    fn grow(&self, from: u64, to: u64, leave: Leave) -> Result<()> {
        let block = self.block();
        if to > block << 32 {
            let message = format!(
                "{to} bytes pass {}, where the numbers of {block}-byte cipher blocks end; convert the image to one with larger blocks",
                block << 32
            );
            return Err(Error::new(Kind::Limit, LAYER, message));
        }
        let end = self.place(to.next_multiple_of(block));
        if self.file.info().len < end {
            self.file.set_len(end, Leave::Any)?;
        }
        // Old filler of the last block, and whatever the new blocks hold, is not zeros until written as such.
        match leave {
            Leave::Zeros => self.write_zeros(from..to.next_multiple_of(block)),
            Leave::Any => Ok(()),
        }
    }

    fn shrink(&self, to: u64) -> Result<()> {
        self.len.store(to, Ordering::Release);
        self.flush()?;
        self.file.set_len(self.place(to.next_multiple_of(self.block())), Leave::Any)
    }
}

impl BlockDevice for Device {
    fn info(&self) -> Info {
        let inner = self.file.info();
        let access = if self.header.writable() { inner.access } else { Access::ReadOnly };
        let block = self.block();
        Info { len: self.len(), block: 512, write: block as u32, discard: inner.discard.max(block), access }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let _in_flight = self.enter(offset, buf.len() as u64)?;
        let parts = Parts::of(offset, buf.len(), self.block() as usize);
        let (head, rest) = buf.split_at_mut(parts.head);
        let (whole, tail) = rest.split_at_mut(parts.whole);
        if !head.is_empty() {
            let _neighbours = self.shared(parts.first);
            head.copy_from_slice(&self.read_block(parts.first)?[parts.within..parts.within + parts.head]);
        }
        if !whole.is_empty() {
            self.read_blocks(parts.second, whole)?;
        }
        if !tail.is_empty() {
            let _neighbours = self.shared(parts.last);
            let length = tail.len();
            tail.copy_from_slice(&self.read_block(parts.last)?[..length]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let _in_flight = self.enter(offset, buf.len() as u64)?;
        self.check_writable()?;
        self.write_parts(offset, buf)
    }

    fn discard(&self, range: Range<u64>, leave: Leave) -> Result<()> {
        self.info().check_range(LAYER, &range)?;
        let _in_flight = self.enter(range.start, range.end - range.start)?;
        self.check_writable()?;
        match leave {
            Leave::Zeros => self.write_zeros(range),
            Leave::Any => {
                let (start, end) = (range.start.next_multiple_of(self.block()), range.end / self.block() * self.block());
                if start < end { self.file.discard(self.place(start)..self.place(end), Leave::Any) } else { Ok(()) }
            }
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        Ok(Extent { kind: ExtentKind::Data, len: range.end - range.start })
    }

    /// Data first, then the length in the header that makes them count.
    fn flush(&self) -> Result<()> {
        if self.info().access == Access::ReadOnly {
            return Ok(());
        }
        self.check_writable()?;
        let mut stored = self.stored_len.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn set_len(&self, len: u64, leave: Leave) -> Result<()> {
        self.check_writable()?;
        let _alone = self.in_flight.write().unwrap_or_else(PoisonError::into_inner);
        let old = self.len();
        if len < old {
            return self.shrink(len);
        }
        self.grow(old, len, leave)?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn lend(&self, range: Range<u64>) -> Result<Option<Lent>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}

/// A range cut at the borders of blocks: a part of the first, whole ones, a part of the last.
struct Parts {
    /// Number of the block that the head lies in, and where within it.
    first: u64,
    within: usize,
    head: usize,
    /// Number of the first whole block.
    second: u64,
    whole: usize,
    /// Number of the block that the tail begins.
    last: u64,
}

impl Parts {
    fn of(offset: u64, length: usize, block: usize) -> Self {
        let (first, within) = (offset / block as u64, (offset % block as u64) as usize);
        // A request within one block is all head, however it lies.
        let head = if within == 0 { 0 } else { length.min(block - within) };
        let whole = (length - head) / block * block;
        let second = if head == 0 { first } else { first + 1 };
        Self { first, within, head, second, whole, last: second + (whole / block) as u64 }
    }
}
