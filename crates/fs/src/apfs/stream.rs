//! Data streams composed of extents: contents of files and long attributes (§8.5).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;

use super::btree::{Key, Tree};
use super::cipher::VolumeCipher;
use super::layout::{
    FextValueRaw, FileExtentRaw, FileId, KeyRest, Paddr, RecordKey, extent_flags, record_type,
};
use super::store::Store;
use bandsaw_core::crypt::Xts;
use bandsaw_core::device::{Access, BlockDevice, Extent, ExtentKind, FileRange, Info, read_only};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "apfs stream";

/// The storage of a run of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoredRun {
    /// Blocks that begin at this offset of the container; the tweak number of the first.
    Data { at: u64, crypto_id: u64 },
    /// Allocated blocks that were never written.
    Unwritten,
}

/// A run of a stream, in whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamRun {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) stored: StoredRun,
}

impl StreamRun {
    fn end(&self) -> u64 {
        // Checked for overflow when the run was made.
        self.start + self.len
    }

    /// Returns the part within `range`, which must be whole blocks of it.
    fn within(&self, range: Range<u64>, block: u64) -> Self {
        let before = range.start - self.start;
        let stored = match self.stored {
            StoredRun::Data { at, crypto_id } => StoredRun::Data {
                at: at + before,
                crypto_id: crypto_id.wrapping_add(before / block),
            },
            StoredRun::Unwritten => StoredRun::Unwritten,
        };
        Self {
            start: range.start,
            len: range.end - range.start,
            stored,
        }
    }
}

/// The source of extents: a volume's records, or the extent tree of a sealed volume.
#[derive(Debug, Clone, Copy)]
pub(super) enum Extents<'t> {
    Records(&'t Tree),
    Sealed(&'t Tree),
}

/// A stream as a read-only device.
#[derive(Debug)]
pub(super) struct Stream {
    store: Store,
    cipher: Option<Arc<VolumeCipher>>,
    /// Runs by their start; the gaps between them read as zeros.
    runs: BTreeMap<u64, StreamRun>,
    len: u64,
}

impl Stream {
    /// Opens the first `len` bytes of stream `id`.
    pub(super) fn open(
        store: &Store,
        cipher: Option<&Arc<VolumeCipher>>,
        extents: Extents<'_>,
        id: FileId,
        len: u64,
    ) -> Result<Self> {
        let runs = Collector {
            store,
            id,
            runs: BTreeMap::new(),
        }
        .collect(extents, len)?;
        Ok(Self {
            runs,
            len,
            ..Self::empty(store, cipher)
        })
    }

    pub(super) fn empty(store: &Store, cipher: Option<&Arc<VolumeCipher>>) -> Self {
        Self {
            store: store.clone(),
            cipher: cipher.cloned(),
            runs: BTreeMap::new(),
            len: 0,
        }
    }

    /// Sets the length to `len` bytes, and the runs of `range`, whole blocks, to `runs`, which may
    /// exceed it.
    pub(super) fn change(&mut self, range: Range<u64>, runs: &[StreamRun], len: u64) {
        let start = runs
            .first()
            .map_or(range.start, |first| first.start.min(range.start));
        let end = runs
            .last()
            .map_or(range.end, |last| last.end().max(range.end));
        self.remove_runs(start..end);
        self.runs.extend(runs.iter().map(|run| (run.start, *run)));
        self.len = len;
        self.remove_runs(len.next_multiple_of(self.block())..u64::MAX);
    }

    fn block(&self) -> u64 {
        self.store.block_size.get().into()
    }

    /// Removes the runs of `range`, whole blocks.
    fn remove_runs(&mut self, range: Range<u64>) {
        let before = self
            .runs
            .range(..range.start)
            .next_back()
            .filter(|(_, run)| run.end() > range.start);
        let from = before.map_or(range.start, |(start, _)| *start);
        let within: Vec<_> = self
            .runs
            .range(from..range.end)
            .map(|(_, run)| *run)
            .collect();
        for run in within {
            self.runs.remove(&run.start);
            let rest = [
                run.start..run.end().min(range.start),
                run.start.max(range.end)..run.end(),
            ];
            for rest in rest.into_iter().filter(|rest| rest.start < rest.end) {
                self.runs.insert(rest.start, run.within(rest, self.block()));
            }
        }
    }

    /// Returns the run at `offset`, which is below the length, and its remaining length limited to
    /// `length` bytes. The run is `None` in a gap, which reads as zeros.
    fn locate(&self, offset: u64, length: u64) -> (u64, Option<&StreamRun>) {
        if let Some((_, run)) = self
            .runs
            .range(..=offset)
            .next_back()
            .filter(|(_, run)| run.end() > offset)
        {
            return (length.min(run.end() - offset), Some(run));
        }
        let next = self.runs.range(offset..).next();
        (
            next.map_or(length, |(start, _)| length.min(start - offset)),
            None,
        )
    }

    fn read_run(&self, run: &StreamRun, offset: u64, buf: &mut [u8]) -> Result<()> {
        let StoredRun::Data { at, crypto_id } = run.stored else {
            buf.fill(0);
            return Ok(());
        };
        let within = offset - run.start;
        let Some(cipher) = &self.cipher else {
            return self.store.device.read_at(at + within, buf);
        };
        let unit = Xts::UNIT as u64;
        if within.is_multiple_of(unit) && buf.len().is_multiple_of(Xts::UNIT) {
            let read = |after: u64, piece: &mut [u8]| {
                self.store.device.read_at(at + within + after, piece)
            };
            return cipher.read_units(crypto_id, within / unit, buf, read);
        }
        // A run consists of whole blocks, so the units around a piece are within it.
        let start = within - within % unit;
        let skipped = to_usize(within - start);
        let mut units = vec![0; (skipped + buf.len()).next_multiple_of(Xts::UNIT)];
        self.store.device.read_at(at + start, &mut units)?;
        cipher.decrypt_units(crypto_id, start / unit, &mut units);
        buf.copy_from_slice(&units[skipped..skipped + buf.len()]);
        Ok(())
    }
}

/// A collector of the runs of a stream.
struct Collector<'a> {
    store: &'a Store,
    id: FileId,
    runs: BTreeMap<u64, StreamRun>,
}

impl Collector<'_> {
    fn collect(mut self, extents: Extents<'_>, len: u64) -> Result<BTreeMap<u64, StreamRun>> {
        match extents {
            Extents::Records(tree) => {
                let mut cursor = tree.seek(&Key::Record(RecordKey::numbered(
                    self.id,
                    record_type::FILE_EXTENT,
                    0,
                )))?;
                while let Some(record) = cursor.next()? {
                    let Key::Record(RecordKey {
                        id,
                        kind: record_type::FILE_EXTENT,
                        rest: KeyRest::Number(start),
                    }) = record.key
                    else {
                        break;
                    };
                    if id != self.id || start >= len {
                        break;
                    }
                    let (extent, _) = FileExtentRaw::read_from_prefix(record.value)
                        .map_err(|_| self.corrupt("is truncated"))?;
                    self.push(start, &extent)?;
                }
            }
            Extents::Sealed(tree) => {
                let mut cursor = tree.seek(&Key::Pair(self.id.0, 0))?;
                while let Some(record) = cursor.next()? {
                    let Key::Pair(id, start) = record.key else {
                        break;
                    };
                    if id != self.id.0 || start >= len {
                        break;
                    }
                    let (extent, _) = FextValueRaw::read_from_prefix(record.value)
                        .map_err(|_| self.corrupt("is truncated"))?;
                    let FextValueRaw {
                        len_and_flags,
                        paddr,
                    } = extent;
                    self.push(
                        start,
                        &FileExtentRaw {
                            len_and_flags,
                            paddr,
                            crypto_id: 0.into(),
                        },
                    )?;
                }
            }
        }
        Ok(self.runs)
    }

    fn push(&mut self, start: u64, extent: &FileExtentRaw) -> Result<()> {
        let (len, paddr) = (extent.len(), Paddr::from(extent.paddr));
        let block = u64::from(self.store.block_size.get());
        if len == 0
            || !len.is_multiple_of(block)
            || !start.is_multiple_of(block)
            || start.checked_add(len).is_none()
        {
            return Err(self.corrupt(&format!(
                "the extent at byte {start} has {len} bytes: both must be multiples of the block \
                 size"
            )));
        }
        if let Some((_, before)) = self
            .runs
            .last_key_value()
            .filter(|(_, run)| run.end() > start)
        {
            return Err(self.corrupt(&format!(
                "the extent at {start} overlaps the previous one, which ends at {}",
                before.end()
            )));
        }
        if paddr == Paddr(0) {
            return Ok(());
        }
        let end = paddr
            .0
            .checked_add(len / block)
            .filter(|&end| end <= self.store.blocks);
        if end.is_none() {
            let message = format!(
                "the extent from block {paddr} of {} blocks reaches past the end of the container, \
                 which has {} blocks",
                len / block,
                self.store.blocks
            );
            return Err(self.corrupt(&message));
        }
        let stored = match extent.flags() & extent_flags::UNWRITTEN {
            0 => StoredRun::Data {
                at: self.store.offset(paddr),
                crypto_id: extent.crypto_id.get(),
            },
            _ => StoredRun::Unwritten,
        };
        self.runs.insert(start, StreamRun { start, len, stored });
        Ok(())
    }

    fn corrupt(&self, message: &str) -> Error {
        Error::new(Kind::Corrupt, LAYER, message.to_owned()).named(format!("stream {:#x}", self.id))
    }
}

impl BlockDevice for Stream {
    fn info(&self) -> Info {
        Info {
            len: self.len,
            access: Access::ReadOnly,
            ..self.store.device.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (length, run) = self.locate(offset, rest.len() as u64);
            // No truncation: at most the buffer's own length.
            let (now, later) = rest.split_at_mut(to_usize(length));
            match run {
                Some(run) => self.read_run(run, offset, now)?,
                None => now.fill(0),
            }
            (offset, rest) = (offset + length, later);
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        let (len, run) = self.locate(range.start, range.end - range.start);
        match run.map(|run| (run, run.stored)) {
            None => Ok(Extent {
                kind: ExtentKind::Hole,
                len,
            }),
            Some((_, StoredRun::Unwritten)) => Ok(Extent {
                kind: ExtentKind::Zero,
                len,
            }),
            // Zeros on the device do not decrypt to zeros, so the extents of the device do not
            // apply.
            Some(_) if self.cipher.is_some() => Ok(Extent {
                kind: ExtentKind::Data,
                len,
            }),
            Some((run, StoredRun::Data { at, .. })) => {
                let start = at + (range.start - run.start);
                self.store.device.extent_at(start..start + len)
            }
        }
    }

    read_only!(LAYER);

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        if range.is_empty() || self.cipher.is_some() {
            return Ok(None);
        }
        match self.locate(range.start, range.end - range.start) {
            (
                len,
                Some(&StreamRun {
                    start,
                    stored: StoredRun::Data { at, .. },
                    ..
                }),
            ) => {
                let at = at + (range.start - start);
                self.store.device.file_range(at..at + len)
            }
            _ => Ok(None),
        }
    }
}
