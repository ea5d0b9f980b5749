//! Copy-on-write devices: their changes stay apart from the device below, so that they can be tried
//! out before anything is written.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    Access, AfterDiscard, BlockDevice, BlockDeviceExt, Extent, ExtentKind, FileRange, Info,
};
use crate::platform::{FileExt, nodes};
use crate::size::to_usize;
use crate::sync::{Mutex, RwLock};
use crate::{Error, Result};

const LAYER: &str = "copy-on-write device";
/// Bytes of a chunk, the unit of changes.
const CHUNK: u64 = 4096;
const CHUNK_LEN: usize = to_usize(CHUNK);
/// Bytes of a sector, of which a chunk records whether it was changed: those beside it may change
/// below before the changes are applied.
const SECTOR: usize = CHUNK_LEN / 8;
/// Maximum number of bytes of changes kept in memory if more can go to a file.
const IN_MEMORY: u64 = 32 << 20;
/// Maximum number of bytes of changes in a file.
const IN_FILE: u64 = 1 << 42;
/// Maximum number of bytes per write when changes are applied.
const PIECE: u64 = 1 << 20;

/// The storage for the changes of any number of devices: memory up to a limit, then an unlinked
/// temporary file.
#[derive(Debug)]
pub struct Spill {
    /// The folder of the temporary file. `None`: there is none.
    folder: Option<PathBuf>,
    /// Maximum number of bytes in memory.
    memory: u64,
    file: Mutex<Option<Arc<File>>>,
    used: AtomicU64,
}

#[derive(Debug)]
struct Chunk {
    bytes: Bytes,
    /// A bit for each changed sector.
    changed: u8,
}

#[derive(Debug)]
enum Bytes {
    Zero,
    Memory(Box<[u8; CHUNK_LEN]>),
    /// At this offset of the temporary file.
    Spilled(u64),
}

impl Spill {
    /// Uses a temporary file in `folder` for changes that do not fit in memory.
    pub fn to(folder: PathBuf) -> Self {
        Self {
            folder: Some(folder),
            ..Self::in_memory(IN_MEMORY)
        }
    }

    /// Uses the temporary file for changes beyond `memory` bytes.
    #[cfg(any(test, feature = "testing"))]
    pub fn limited(folder: PathBuf, memory: u64) -> Self {
        Self {
            memory,
            ..Self::to(folder)
        }
    }

    /// Returns the number of bytes of changes so far.
    #[cfg(any(test, feature = "testing"))]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Fails with [`Kind::Limit`](crate::Kind) beyond `bytes` of changes.
    pub fn in_memory(bytes: u64) -> Self {
        Self {
            folder: None,
            memory: bytes,
            file: Mutex::default(),
            used: AtomicU64::new(0),
        }
    }

    fn file(&self) -> Result<Arc<File>> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        let too_many = || {
            let message = format!(
                "the changes exceed the limit of {} bytes kept in memory",
                self.memory
            );
            Error::limit(LAYER, message)
        };
        let folder = self.folder.as_ref().ok_or_else(too_many)?;
        let made = nodes::unlinked_file(folder).map_err(|error| {
            Error::io(LAYER, "create a file for changes", error).in_file(folder)
        })?;
        let made = Arc::new(made);
        *file = Some(made.clone());
        Ok(made)
    }

    fn store_chunk(&self, bytes: Box<[u8; CHUNK_LEN]>) -> Result<Bytes> {
        let at = self.used.fetch_add(CHUNK, Ordering::Relaxed);
        if at.saturating_add(CHUNK) <= self.memory {
            return Ok(Bytes::Memory(bytes));
        }
        if at >= IN_FILE {
            let message =
                "the changes exceed 4 TiB, the limit of the temporary file that keeps them";
            return Err(Error::limit(LAYER, message));
        }
        self.write(&bytes, at)?;
        Ok(Bytes::Spilled(at))
    }

    fn write(&self, bytes: &[u8; CHUNK_LEN], at: u64) -> Result<()> {
        self.file()?
            .write_all_at(&bytes[..], at)
            .map_err(|error| Error::io(LAYER, "write changes", error))
    }

    fn read(&self, kept: &Bytes) -> Result<Box<[u8; CHUNK_LEN]>> {
        let mut bytes = Box::new([0; CHUNK_LEN]);
        match kept {
            Bytes::Zero => {}
            Bytes::Memory(kept) => bytes.copy_from_slice(&kept[..]),
            Bytes::Spilled(at) => self
                .file()?
                .read_exact_at(&mut bytes[..], *at)
                .map_err(|error| Error::io(LAYER, "read changes", error))?,
        }
        Ok(bytes)
    }
}

/// The changes of a device, shared by everything that opens it.
#[derive(Debug)]
pub struct Changes {
    state: RwLock<State>,
    spill: Arc<Spill>,
    /// Ranges that were read, if they are recorded.
    reads: Option<Mutex<Vec<Range<u64>>>>,
}

#[derive(Debug)]
struct State {
    len: u64,
    /// Bytes from the start of the device below that are still visible, except for changed chunks.
    through: u64,
    chunks: BTreeMap<u64, Chunk>,
    /// Number of changes.
    changes: u64,
}

#[allow(clippy::len_without_is_empty, reason = "the length of a disk")]
impl Changes {
    /// Returns no changes of a device of `len` bytes.
    pub fn new(len: u64, spill: Arc<Spill>) -> Self {
        let state = State {
            len,
            through: len,
            chunks: BTreeMap::new(),
            changes: 0,
        };
        Self {
            state: RwLock::new(state),
            spill,
            reads: None,
        }
    }

    /// Records the ranges that are read.
    pub(crate) fn traced(self) -> Self {
        Self {
            reads: Some(Mutex::default()),
            ..self
        }
    }

    /// Returns the ranges that were read, in order and without overlaps. `None`: they are not
    /// recorded.
    pub(crate) fn reads(&self) -> Option<Vec<Range<u64>>> {
        let reads = self.reads.as_ref()?;
        let mut reads = reads.lock().clone();
        reads.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in reads {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Some(merged)
    }

    /// Returns the length of the device in bytes.
    pub fn len(&self) -> u64 {
        self.state.read().len
    }

    /// Returns the number of changes so far.
    pub(crate) fn count(&self) -> u64 {
        self.state.read().changes
    }

    /// Returns the number of bytes from the start of the device below that were never truncated.
    pub fn through(&self) -> u64 {
        self.state.read().through
    }

    /// Returns the runs of changed sectors within the device, in bytes.
    pub fn runs(&self) -> Vec<Range<u64>> {
        let state = self.state.read();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (&number, chunk) in &state.chunks {
            for sector in (0..8).filter(|sector| chunk.changed >> sector & 1 == 1) {
                let start = number * CHUNK + sector * SECTOR as u64;
                let range = start..(start + SECTOR as u64).min(state.len);
                match runs.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ if range.is_empty() => {}
                    _ => runs.push(range),
                }
            }
        }
        runs
    }

    /// Sets `range`, which is within the device, to `bytes` (`None`: zeros).
    fn change(
        &self,
        below: Option<&dyn BlockDevice>,
        range: Range<u64>,
        bytes: Option<&[u8]>,
    ) -> Result<()> {
        let mut state = self.state.write();
        state.changes += 1;
        let mut at = range.start;
        while at < range.end {
            let (number, within) = (at / CHUNK, (at % CHUNK) as usize);
            let end = range.end.min((number + 1) * CHUNK);
            let length = to_usize(end - at);
            let new =
                bytes.map(|bytes| &bytes[to_usize(at - range.start)..to_usize(end - range.start)]);
            at = end;
            if length == CHUNK_LEN && new.is_none() {
                let (bytes, changed) = (Bytes::Zero, u8::MAX);
                state.chunks.insert(number, Chunk { bytes, changed });
                continue;
            }
            let old = state.chunks.remove(&number);
            let place = match &old {
                Some(chunk) => match chunk.bytes {
                    Bytes::Memory(_) => Some(None),
                    Bytes::Spilled(place) => Some(Some(place)),
                    Bytes::Zero => None,
                },
                None => None,
            };
            let sectors = within / SECTOR..(within + length).div_ceil(SECTOR);
            let changed = sectors
                .fold(old.as_ref().map_or(0, |old| old.changed), |changed, one| {
                    changed | 1 << one
                });
            let mut whole = match old.map(|old| old.bytes) {
                Some(Bytes::Memory(bytes)) => bytes,
                Some(bytes) => self.spill.read(&bytes)?,
                None => {
                    let mut whole = Box::new([0; CHUNK_LEN]);
                    let start = number * CHUNK;
                    let shown = to_usize((start + CHUNK).min(state.through).saturating_sub(start));
                    if let Some(below) = below.filter(|_| length < CHUNK_LEN && shown > 0) {
                        below.read_at(start, &mut whole[..shown])?;
                    }
                    whole
                }
            };
            match new {
                Some(new) => whole[within..within + length].copy_from_slice(new),
                None => whole[within..within + length].fill(0),
            }
            let bytes = match place {
                // Its place in the temporary file is reused.
                Some(None) => Bytes::Memory(whole),
                Some(Some(place)) => {
                    self.spill.write(&whole, place)?;
                    Bytes::Spilled(place)
                }
                None => self.spill.store_chunk(whole)?,
            };
            state.chunks.insert(number, Chunk { bytes, changed });
        }
        Ok(())
    }
}

/// A device that reads from another one, if there is any, and keeps its changes to itself.
#[derive(Debug)]
pub struct CowDevice {
    changes: Arc<Changes>,
    below: Option<Arc<dyn BlockDevice>>,
    access: Access,
}

impl CowDevice {
    /// Creates a device over `below` for at most `bytes` of changes in memory; more fail with
    /// [`Kind::Limit`](crate::Kind).
    pub fn new(below: Arc<dyn BlockDevice>, bytes: u64) -> Self {
        Self::spilling(below, Arc::new(Spill::in_memory(bytes)))
    }

    /// Creates a device over `below` whose changes are stored in `spill`.
    pub fn spilling(below: Arc<dyn BlockDevice>, spill: Arc<Spill>) -> Self {
        let changes = Changes::new(below.info().len, spill);
        Self::with(Arc::new(changes), Some(below), Access::ReadWrite)
    }

    /// Creates a device that shows and adds to these changes.
    pub fn with(
        changes: Arc<Changes>,
        below: Option<Arc<dyn BlockDevice>>,
        access: Access,
    ) -> Self {
        Self {
            changes,
            below,
            access,
        }
    }

    /// Returns the number of bytes of changes that are kept in memory.
    #[cfg(any(test, feature = "testing"))]
    pub fn in_memory(&self) -> u64 {
        let state = self.changes.state.read();
        let kept = |chunk: &&Chunk| matches!(chunk.bytes, Bytes::Memory(_));
        state.chunks.values().filter(kept).count() as u64 * CHUNK
    }

    /// Writes the changes in `range` to `target`, a device like the one below. Does not flush.
    pub fn apply(&self, range: Range<u64>, target: &dyn BlockDevice) -> Result<()> {
        for run in self.changes.runs() {
            let (mut at, end) = (run.start.max(range.start), run.end.min(range.end));
            while at < end {
                let bytes = self.read_vec(at, (end - at).min(PIECE) as usize)?;
                target.write_at(at, &bytes)?;
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }
}

impl BlockDevice for CowDevice {
    fn info(&self) -> Info {
        let len = self.changes.len();
        match &self.below {
            Some(below) => Info {
                len,
                access: self.access,
                ..below.info()
            },
            None => Info {
                len,
                block: 512,
                write: 1,
                discard: CHUNK,
                access: self.access,
            },
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = self.info().check(LAYER, offset, buf.len() as u64)?;
        if let Some(reads) = &self.changes.reads {
            let mut reads = reads.lock();
            reads.push(offset..end);
        }
        let state = self.changes.state.read();
        let shown = to_usize(end.min(state.through).saturating_sub(offset));
        match &self.below {
            Some(below) => {
                buf[shown..].fill(0);
                if shown > 0 {
                    below.read_at(offset, &mut buf[..shown])?;
                }
            }
            None => buf.fill(0),
        }
        for (&number, chunk) in state.chunks.range(offset / CHUNK..end.div_ceil(CHUNK)) {
            let start = number * CHUNK;
            let (from, to) = (start.max(offset), (start + CHUNK).min(end));
            let bytes = self.changes.spill.read(&chunk.bytes)?;
            let place = &mut buf[to_usize(from - offset)..to_usize(to - offset)];
            place.copy_from_slice(&bytes[to_usize(from - start)..to_usize(to - start)]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check_writable(LAYER)?;
        let end = self.info().check(LAYER, offset, buf.len() as u64)?;
        self.changes
            .change(self.below.as_deref(), offset..end, Some(buf))
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.info().check_writable(LAYER)?;
        self.info().check_range(LAYER, &range)?;
        match leave {
            AfterDiscard::Zeros => self.changes.change(self.below.as_deref(), range, None),
            AfterDiscard::Any => Ok(()),
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        let state = self.changes.state.read();
        let next = state
            .chunks
            .range(range.start / CHUNK..range.end.div_ceil(CHUNK))
            .next();
        let until = match next {
            Some((&number, chunk)) if number * CHUNK <= range.start => {
                let kind = if matches!(chunk.bytes, Bytes::Zero) {
                    ExtentKind::Zero
                } else {
                    ExtentKind::Data
                };
                return Ok(Extent {
                    kind,
                    len: ((number + 1) * CHUNK).min(range.end) - range.start,
                });
            }
            Some((&number, _)) => (number * CHUNK).min(range.end),
            None => range.end,
        };
        match &self.below {
            Some(below) if range.start < state.through => {
                below.extent_at(range.start..until.min(state.through))
            }
            _ => Ok(Extent {
                kind: ExtentKind::Hole,
                len: until - range.start,
            }),
        }
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64, _leave: AfterDiscard) -> Result<()> {
        self.info().check_writable(LAYER)?;
        let now = self.changes.len();
        if len == now {
            return Ok(());
        }
        if len < now && !len.is_multiple_of(CHUNK) {
            // Truncated bytes read as zeros if the file grows again.
            let end = now.min(len.next_multiple_of(CHUNK));
            let is_chunk = self
                .changes
                .state
                .read()
                .chunks
                .contains_key(&(len / CHUNK));
            if is_chunk {
                self.changes.change(self.below.as_deref(), len..end, None)?;
            }
        }
        let mut state = self.changes.state.write();
        state.through = state.through.min(len);
        state.chunks.retain(|number, _| number * CHUNK < len);
        state.len = len;
        state.changes += 1;
        Ok(())
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::device::Memory;

    #[test]
    fn changes_are_seen_and_stay_above_until_applied() {
        let below = Arc::new(Memory::from(vec![7; 23_000]));
        let device = CowDevice::new(below.clone(), 1 << 20);
        let mut expected = vec![7; 23_000];
        for (offset, len) in [(0, 3), (4094, 4), (8192, 4096), (22_999, 1), (4600, 9900)] {
            let bytes: Vec<u8> = (0..len).map(|n| (n * 3 + offset) as u8).collect();
            device.write_at(offset as u64, &bytes).unwrap();
            expected[offset..offset + len].copy_from_slice(&bytes);
        }
        device.discard(12_000..20_500, AfterDiscard::Zeros).unwrap();
        expected[12_000..20_500].fill(0);
        assert_eq!(device.read_vec(0, 23_000).unwrap(), expected);
        assert_eq!(device.read_vec(513, 17_000).unwrap(), expected[513..17_513]);
        assert_eq!(below.to_vec(), vec![7; 23_000]);
        // Bytes beside a change may change below.
        below.write_at(512, &[9; 10]).unwrap();
        expected[512..522].fill(9);
        device.apply(0..1024, &*below).unwrap();
        assert_eq!(below.to_vec()[..1024], expected[..1024]);
        assert_eq!(below.to_vec()[1024..], vec![7; 23_000 - 1024]);
        device.apply(512..22_528, &*below).unwrap();
        assert_eq!(below.to_vec()[..22_528], expected[..22_528]);
        assert_eq!(below.to_vec()[22_999], 7, "a change outside of the range");
        assert!(device.write_at(22_999, &[0; 2]).is_err());
    }

    #[test]
    fn a_device_over_nothing_reads_as_zeros() {
        let changes = Arc::new(Changes::new(10_000, Arc::new(Spill::in_memory(1 << 20))));
        let device = CowDevice::with(changes, None, Access::ReadWrite);
        device.write_at(5000, &[1; 10]).unwrap();
        let mut buf = [9; 10_000];
        device.read_at(0, &mut buf).unwrap();
        assert_eq!(buf[..5000], [0; 5000]);
        assert_eq!(buf[5000..5010], [1; 10]);
        assert_eq!(buf[5010..], [0; 4990]);
    }

    #[test]
    fn changes_beyond_the_limit_are_refused() {
        let device = CowDevice::new(Arc::new(Memory::zeros(1 << 20)), 8192);
        device.write_at(100, &[1; 4096]).unwrap();
        let error = device.write_at(9000, &[1]).unwrap_err();
        assert_eq!(error.kind(), Kind::Limit);
        device.write_at(0, &[2; 8192]).unwrap();
        assert_eq!(
            device.read_vec(0, 9001).unwrap()[8191..],
            [&[2][..], &[0; 809]].concat()
        );
    }

    #[test]
    fn more_than_fits_in_memory_goes_to_a_file_without_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let changes = Changes::new(0, Arc::new(Spill::to(folder.path().to_owned())));
        let file = CowDevice::with(Arc::new(changes), None, Access::ReadWrite);
        let len = IN_MEMORY + (1 << 20);
        file.set_len(len, AfterDiscard::Zeros).unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| (at / CHUNK) as u8).collect();
        file.write_at(0, &bytes).unwrap();
        file.write_at(len - 10, &[9; 5]).unwrap();
        assert!(file.read_vec(0, len as usize - 10).unwrap() == bytes[..len as usize - 10]);
        assert_eq!(file.read_vec(len - 10, 5).unwrap(), [9; 5]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
