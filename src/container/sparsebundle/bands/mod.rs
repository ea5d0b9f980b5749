//! Reads and writes of the disk through the files in `bands/`. Source: docs/formats/sparsebundle.md
//! §3.
//!
//! A request is split at band boundaries. Each piece looks up the [`Slot`] of its band and holds
//! only that band's lock: shared for reads and writes within the file, exclusive while the file is
//! opened, created, grown or removed.

pub(super) mod band_bitmap;
mod cache;
mod cipher;
mod discard;
mod flush;
mod hole_scan;
mod resize;
mod slot;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLockReadGuard};

use super::plist::{Info as BundleGeometry, Version};
use super::{BANDS, BandIndex, LAYER};
use crate::crypt::CipherBlocks;
use crate::device::{
    Access, AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info, is_zero,
};
use crate::size::{narrow, to_usize};
use crate::store::{Open, Store};
use crate::{Error, Kind, Result, platform};
use band_bitmap::BandBitmap;
use cache::SlotCache;
use flush::Unflushed;
use hole_scan::ConsecutiveMisses;
use slot::{Band, BandState, RunKind, Slot};

pub(super) use cipher::truncated;

/// Unit of the growth of a band file in bytes, as in macOS.
pub(super) const BLOCK: u64 = 4096;

/// Limit of open band files. Apple keeps 64; a larger limit makes random writes over many bands
/// cheap.
const OPEN_BANDS: u64 = 4096;
/// Descriptors reserved for the rest of the process when the limit cannot be raised.
const OTHER_FILES: u64 = 128;
/// Bounds of the growth of a band file, which otherwise doubles, so that a stream of small writes
/// does not change the length for each of them. A flush truncates the unused tail.
const MIN_GROWTH: u64 = 1 << 20;
const MAX_GROWTH: u64 = 16 << 20;

/// The bands of a bundle as one contiguous range of bytes.
#[derive(Debug)]
pub(super) struct Bands {
    store: Arc<dyn Store>,
    /// Prefix of the file names of bands.
    prefix: &'static str,
    /// Second prefix to try if no file has the first.
    or_prefix: Option<&'static str>,
    band_size: u64,
    version: Version,
    access: Access,
    /// The cipher of the band files; `None` if the bundle is not encrypted.
    cipher: Option<Arc<CipherBlocks>>,
    len: AtomicU64,
    cache: SlotCache,
    unflushed: Unflushed,
    missed: ConsecutiveMisses,
}

/// The part of a request within one band.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BandPart {
    index: BandIndex,
    within: Range<u64>,
    /// Offset of the piece in the request, in bytes.
    done: u64,
    /// Offset of its end on the disk.
    disk_end: u64,
}

impl Bands {
    pub(super) fn new(
        store: Arc<dyn Store>,
        info: BundleGeometry,
        access: Access,
        cipher: Option<Arc<CipherBlocks>>,
    ) -> Self {
        let limit = platform::raise_file_limit(OPEN_BANDS + OTHER_FILES);
        let most = limit.saturating_sub(OTHER_FILES).min(OPEN_BANDS) as usize;
        Self {
            store,
            prefix: BANDS,
            or_prefix: None,
            band_size: info.band_size,
            version: info.version,
            access,
            cipher,
            len: AtomicU64::new(info.size),
            cache: SlotCache::new(most),
            unflushed: Unflushed::default(),
            missed: ConsecutiveMisses::default(),
        }
    }

    /// Returns bands in the same store with another geometry and other file name prefixes.
    pub(super) fn named(
        &self,
        info: BundleGeometry,
        prefix: &'static str,
        or_prefix: Option<&'static str>,
    ) -> Self {
        Self {
            prefix,
            or_prefix,
            ..Self::new(self.store.clone(), info, self.access, self.cipher.clone())
        }
    }

    /// Returns the store of the bundle.
    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the band size in bytes.
    pub(super) fn band_size(&self) -> u64 {
        self.band_size
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Returns the size of a cipher block in bytes; `None` if the bundle is not encrypted.
    pub(super) fn cipher_block(&self) -> Option<u64> {
        self.cipher.as_ref().map(|blocks| blocks.block())
    }

    /// Returns the file name of a band.
    fn name(&self, index: BandIndex) -> String {
        index.name_in(self.prefix)
    }

    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::SeqCst)
    }

    pub(super) fn info(&self) -> Info {
        Info {
            len: self.len(),
            block: 512,
            write: narrow(self.grain()),
            discard: BLOCK.max(self.grain()),
            access: self.access,
        }
    }

    /// Returns the number of bands on a disk of `len` bytes.
    pub(super) fn count(&self, len: u64) -> u64 {
        len.div_ceil(self.band_size)
    }

    /// Returns the length of a full band on a disk of `len` bytes; the last band may be shorter.
    fn most(&self, index: BandIndex, len: u64) -> u64 {
        len.saturating_sub(index.0.saturating_mul(self.band_size))
            .min(self.band_size)
    }

    /// Splits `range`, which is within the disk, at band boundaries.
    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = BandPart> + use<> {
        let band_size = self.band_size;
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at == range.end {
                return None;
            }
            let start = at % band_size;
            let len = (band_size - start).min(range.end - at);
            let done = at - range.start;
            let index = BandIndex(at / band_size);
            at += len;
            Some(BandPart {
                index,
                within: start..start + len,
                done,
                disk_end: at,
            })
        })
    }

    /// Checks under the band's lock that the disk was not truncated since the request began.
    fn check_not_cut(&self, piece: &BandPart) -> Result<()> {
        let len = self.len();
        if piece.disk_end <= len {
            return Ok(());
        }
        let length = piece.within.end - piece.within.start;
        Err(Error::out_of_range(
            LAYER,
            piece.disk_end - length,
            length,
            len,
        ))
    }

    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = self.info().check(LAYER, offset, buf.len() as u64)?;
        for piece in self.pieces(offset..end) {
            let slot = self.slot(piece.index)?;
            let state = self.opened(&slot)?;
            self.check_not_cut(&piece)?;
            let (mut at, mut done) = (piece.within.start, to_usize(piece.done));
            while at < piece.within.end {
                let run = state.locate(&(at..piece.within.end));
                let out = &mut buf[done..done + to_usize(run.len)];
                match (run.kind, &*state) {
                    (RunKind::File, BandState::StoredBands(band)) => {
                        self.read_stored(slot.index(), band, at, out)?
                    }
                    (RunKind::Truncated, BandState::StoredBands(band)) => {
                        return Err(self.truncated(slot.index(), band));
                    }
                    _ => out.fill(0),
                }
                at += run.len;
                done += to_usize(run.len);
            }
        }
        Ok(())
    }

    pub(super) fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.check_changeable()?;
        let end = self.info().check(LAYER, offset, buf.len() as u64)?;
        for piece in self.pieces(offset..end) {
            let from = to_usize(piece.done);
            let bytes = &buf[from..from + to_usize(piece.within.end - piece.within.start)];
            self.write_piece(&piece, bytes)?;
        }
        Ok(())
    }

    fn write_piece(&self, piece: &BandPart, bytes: &[u8]) -> Result<()> {
        let slot = self.slot(piece.index)?;
        loop {
            let state = self.opened(&slot)?;
            self.check_not_cut(piece)?;
            let stored = match &*state {
                BandState::StoredBands(band)
                    if band.incomplete > 0 && piece.within.end > band.len =>
                {
                    return Err(self.truncated(slot.index(), band));
                }
                BandState::StoredBands(band) => band.stored(),
                BandState::Unopened | BandState::Missing => 0,
            };
            if piece.within.start >= stored && is_zero(bytes) {
                return Ok(()); // nothing is stored there, which reads as zeros already
            }
            if let BandState::StoredBands(band) = &*state
                && piece.within.end <= band.len
                && band.band_bitmap.is_none()
            {
                let written = self.write_stored(slot.index(), band, piece.within.start, bytes);
                band.fill(piece.within.end);
                self.changed(&slot);
                return written;
            }
            drop(state);
            if self.cipher.is_none() {
                self.make_room(&slot, piece)?;
            } else if self.write_past_end(&slot, piece, bytes)? {
                return Ok(());
            }
        }
    }

    /// Creates or grows the band's file so that `piece` can be written.
    fn make_room(&self, slot: &Slot, piece: &BandPart) -> Result<()> {
        let mut state = slot.exclusive();
        self.check_not_cut(piece)?;
        match &mut *state {
            BandState::Unopened => {}
            BandState::Missing => {
                *state = BandState::StoredBands(self.create(slot.index(), piece.within.end)?)
            }
            BandState::StoredBands(band) => {
                self.apply_map(slot.index(), band)?;
                if band.len < piece.within.end {
                    let len = self.grown(slot.index(), band.len, piece.within.end);
                    band.file.set_len(len, AfterDiscard::Zeros)?;
                    band.len = len;
                }
                // Prevents a concurrent flush from truncating the new space again.
                band.fill(piece.within.end);
            }
        }
        self.changed(slot);
        Ok(())
    }

    /// Returns the new length of a band file of `len` bytes that needs `needed` bytes.
    fn grown(&self, index: BandIndex, len: u64, needed: u64) -> u64 {
        let ahead = len.saturating_add(len.clamp(MIN_GROWTH, MAX_GROWTH));
        ahead
            .max(needed.next_multiple_of(BLOCK))
            .min(self.most(index, self.len()))
            .max(needed)
    }

    fn create(&self, index: BandIndex, needed: u64) -> Result<Band> {
        let file = self.create_file(index)?;
        let len = self.grown(index, 0, needed);
        if let Err(error) = file.set_len(len, AfterDiscard::Zeros) {
            // Best effort: the caller needs the first error, and an empty band is harmless.
            let _ = self.store.remove(&self.name(index));
            return Err(error);
        }
        Ok(Band::new(file, len, needed, None))
    }

    /// Creates the file of a band, which must not exist.
    fn create_file(&self, index: BandIndex) -> Result<Arc<dyn BlockDevice>> {
        if self.version == Version::Two && self.store.remove(&index.mapped_name())? {
            // A stale map of a removed band would hide the new data.
            self.sync_names_now()?;
        }
        let name = self.name(index);
        let Some(file) = self.open_file(&name, Open::CreateNew)? else {
            return Err(Error::new(
                Kind::Conflict,
                LAYER,
                "created by another program while the bundle was open",
            )
            .named(name));
        };
        self.names_changed();
        Ok(file)
    }

    pub(super) fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        let Some(piece) = self.pieces(range.clone()).next() else {
            return Err(Error::new(
                Kind::Invalid,
                LAYER,
                "cannot report an extent: the requested range is empty",
            )
            .at(range.start));
        };
        let slot = self.slot(piece.index)?;
        let state = self.opened(&slot)?;
        self.check_not_cut(&piece)?;
        if matches!(*state, BandState::Missing) {
            drop(state);
            return Ok(Extent {
                kind: ExtentKind::Hole,
                len: self.gap_end(&piece, range.end)? - range.start,
            });
        }
        self.missed.reset();
        let run = state.locate(&piece.within);
        match (run.kind, &*state) {
            // Cipher text has no holes.
            (RunKind::File | RunKind::Truncated, _) if self.cipher.is_some() => Ok(Extent {
                kind: ExtentKind::Data,
                len: run.len,
            }),
            (RunKind::File, BandState::StoredBands(band)) => band
                .file
                .extent_at(piece.within.start..piece.within.start + run.len),
            (RunKind::Unmapped, _) => Ok(Extent {
                kind: ExtentKind::Zero,
                len: run.len,
            }),
            _ => Ok(Extent {
                kind: ExtentKind::Hole,
                len: run.len,
            }),
        }
    }

    pub(super) fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        let Some(piece) = self.pieces(range).next() else {
            return Ok(None);
        };
        let slot = self.slot(piece.index)?;
        let state = self.opened(&slot)?;
        self.check_not_cut(&piece)?;
        let run = state.locate(&piece.within);
        let (RunKind::File, BandState::StoredBands(band), None) = (run.kind, &*state, &self.cipher)
        else {
            return Ok(None);
        };
        let file_range = band
            .file
            .file_range(piece.within.start..piece.within.start + run.len)?;
        // Keeps the slot in the cache, so that a truncation of the band uses the same file object
        // and sees the pin.
        Ok(file_range.map(|file_range| file_range.holding(slot.clone())))
    }

    fn slot(&self, index: BandIndex) -> Result<Arc<Slot>> {
        let found = self.cache.slot(index);
        if found.crowded {
            self.close_some(index)?;
        }
        Ok(found.slot)
    }

    /// Returns the state of a band and opens the band first if necessary.
    fn opened<'s>(&self, slot: &'s Slot) -> Result<RwLockReadGuard<'s, BandState>> {
        loop {
            let state = slot.shared();
            if !matches!(*state, BandState::Unopened) {
                return Ok(state);
            }
            drop(state);
            self.open_band(slot.index(), &mut slot.exclusive())?;
        }
    }

    fn open_band(&self, index: BandIndex, state: &mut BandState) -> Result<()> {
        if !matches!(state, BandState::Unopened) {
            return Ok(());
        }
        let mode = if self.access == Access::ReadOnly {
            Open::Read
        } else {
            Open::Write
        };
        let mut file = self.open_file(&self.name(index), mode)?;
        if let (None, Some(prefix)) = (&file, self.or_prefix) {
            file = self.open_file(&index.name_in(prefix), mode)?;
        }
        let Some(file) = file else {
            *state = BandState::Missing;
            return Ok(());
        };
        let (len, incomplete) = self.split_stored(file.info().len);
        let band_bitmap = match self.version {
            Version::One => None,
            Version::Two => BandBitmap::load(&*self.store, index, self.band_size)?,
        };
        let mut band = Band::new(file, len, len, band_bitmap);
        band.incomplete = incomplete;
        *state = BandState::StoredBands(band);
        Ok(())
    }

    /// Opens a file of the bundle. If the process has too many open files, closes bands and
    /// retries.
    fn open_file(&self, name: &str, mode: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        let mut tries = 0..cache::SHARDS as u64;
        loop {
            match self.store.open(name, mode) {
                Err(error) if is_too_many_files(&error) => match tries.next() {
                    Some(shard) => self.close_some(BandIndex(shard))?,
                    None => return Err(error),
                },
                opened => return opened,
            }
        }
    }
}

/// Returns true if the process, or the host, is out of file descriptors.
fn is_too_many_files(error: &Error) -> bool {
    let cause =
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    cause.is_some_and(platform::is_too_many_files)
}
