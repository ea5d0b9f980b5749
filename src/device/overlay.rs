//! A copy-on-write device with its changes in memory, to test a repair before it is written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::{Access, AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info};
use crate::{Error, Kind, Result};

const LAYER: &str = "overlay";
/// Size of the unit of changes in bytes.
const CHUNK: u64 = 512;
const CHUNK_LEN: usize = CHUNK as usize;
/// Maximum number of bytes per write when changes are applied.
const WRITE: usize = 1 << 20;

/// A changed chunk.
#[derive(Debug, Clone)]
enum OverlayChunk {
    Zero,
    Bytes(Box<[u8; CHUNK_LEN]>),
}

/// A device that reads from another one and keeps its changes in memory, up to a limit.
#[derive(Debug)]
pub(crate) struct Overlay {
    below: Arc<dyn BlockDevice>,
    chunks: RwLock<BTreeMap<u64, OverlayChunk>>,
    /// Maximum number of changed chunks.
    most: usize,
}

impl Overlay {
    /// Creates an overlay for at most `bytes` of changes; more fail with [`Kind::Limit`].
    pub(crate) fn new(below: Arc<dyn BlockDevice>, bytes: u64) -> Self {
        let most = usize::try_from(bytes / CHUNK).unwrap_or(usize::MAX);
        Self {
            below,
            chunks: RwLock::default(),
            most,
        }
    }

    fn chunks(&self) -> RwLockReadGuard<'_, BTreeMap<u64, OverlayChunk>> {
        self.chunks.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the changes in `range` to `target`, a device like the one below. Does not flush.
    pub(crate) fn apply(&self, range: Range<u64>, target: &dyn BlockDevice) -> Result<()> {
        let (first, last) = (range.start / CHUNK, range.end.div_ceil(CHUNK));
        let mut run: Vec<u8> = Vec::new();
        let mut start = 0;
        for (&number, chunk) in self.chunks().range(first..last) {
            let at = number * CHUNK;
            if start + run.len() as u64 != at || run.len() >= WRITE {
                target.write_at(start, &run)?;
                run.clear();
                start = at;
            }
            match chunk {
                OverlayChunk::Zero => run.resize(run.len() + CHUNK_LEN, 0),
                OverlayChunk::Bytes(bytes) => run.extend_from_slice(&bytes[..]),
            }
        }
        if run.is_empty() {
            Ok(())
        } else {
            target.write_at(start, &run)
        }
    }

    /// Changes `length` bytes within the chunk of `offset`; zeros if `bytes` is `None`.
    fn change(
        &self,
        chunks: &mut BTreeMap<u64, OverlayChunk>,
        offset: u64,
        length: usize,
        bytes: Option<&[u8]>,
    ) -> Result<()> {
        let (number, within) = (offset / CHUNK, (offset % CHUNK) as usize);
        if chunks.len() >= self.most && !chunks.contains_key(&number) {
            let bound = self.most as u64 * CHUNK;
            return Err(Error::new(
                Kind::Limit,
                LAYER,
                format!("the changes take more than the {bound} bytes set aside for them"),
            ));
        }
        if length == CHUNK_LEN && bytes.is_none() {
            chunks.insert(number, OverlayChunk::Zero);
            return Ok(());
        }
        let mut whole = match chunks.remove(&number) {
            Some(OverlayChunk::Bytes(bytes)) => bytes,
            Some(OverlayChunk::Zero) => Box::new([0; CHUNK_LEN]),
            None => {
                let mut whole = Box::new([0; CHUNK_LEN]);
                if length < CHUNK_LEN {
                    let end = ((number + 1) * CHUNK).min(self.below.info().len);
                    self.below.read_at(
                        number * CHUNK,
                        &mut whole[..(end - number * CHUNK) as usize],
                    )?;
                }
                whole
            }
        };
        match bytes {
            Some(bytes) => whole[within..within + length].copy_from_slice(bytes),
            None => whole[within..within + length].fill(0),
        }
        chunks.insert(number, OverlayChunk::Bytes(whole));
        Ok(())
    }

    fn change_range(&self, range: Range<u64>, bytes: Option<&[u8]>) -> Result<()> {
        let mut chunks = self.chunks.write().unwrap_or_else(PoisonError::into_inner);
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / CHUNK + 1) * CHUNK);
            let (from, to) = ((at - range.start) as usize, (end - range.start) as usize);
            self.change(
                &mut chunks,
                at,
                to - from,
                bytes.map(|bytes| &bytes[from..to]),
            )?;
            at = end;
        }
        Ok(())
    }
}

impl BlockDevice for Overlay {
    fn info(&self) -> Info {
        Info {
            access: Access::ReadWrite,
            ..self.below.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.below.read_at(offset, buf)?;
        let end = offset + buf.len() as u64;
        for (&number, chunk) in self.chunks().range(offset / CHUNK..end.div_ceil(CHUNK)) {
            let start = number * CHUNK;
            let (from, to) = (start.max(offset), (start + CHUNK).min(end));
            let place = &mut buf[(from - offset) as usize..(to - offset) as usize];
            match chunk {
                OverlayChunk::Zero => place.fill(0),
                OverlayChunk::Bytes(bytes) => {
                    place.copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize])
                }
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        self.change_range(offset..offset + buf.len() as u64, Some(buf))
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.info().check_range(LAYER, &range)?;
        match leave {
            AfterDiscard::Zeros => self.change_range(range, None),
            AfterDiscard::Any => Ok(()),
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        let chunks = self.chunks();
        let mut changed = chunks.range(range.start / CHUNK..range.end.div_ceil(CHUNK));
        match changed.next() {
            Some((&number, _)) if number * CHUNK <= range.start => Ok(Extent {
                kind: ExtentKind::Data,
                len: ((number + 1) * CHUNK).min(range.end) - range.start,
            }),
            Some((&number, _)) => self.below.extent_at(range.start..number * CHUNK),
            None => self.below.extent_at(range),
        }
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _len: u64, _leave: AfterDiscard) -> Result<()> {
        Err(Error::unsupported(
            LAYER,
            "a window on changes keeps its length",
        ))
    }

    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{BlockDeviceExt, Memory};

    #[test]
    fn changes_are_seen_and_stay_above_until_applied() {
        let below = Arc::new(Memory::from(vec![7; 3000]));
        let overlay = Overlay::new(below.clone(), 1 << 20);
        let mut expected = vec![7; 3000];
        for (offset, len) in [(0, 3), (510, 4), (1024, 512), (2999, 1), (600, 1400)] {
            let bytes: Vec<u8> = (0..len).map(|n| (n * 3 + offset) as u8).collect();
            overlay.write_at(offset as u64, &bytes).unwrap();
            expected[offset..offset + len].copy_from_slice(&bytes);
        }
        overlay.discard(1500..2600, AfterDiscard::Zeros).unwrap();
        expected[1500..2600].fill(0);
        assert_eq!(overlay.read_vec(0, 3000).unwrap(), expected);
        assert_eq!(overlay.read_vec(513, 1700).unwrap(), expected[513..2213]);
        assert_eq!(below.to_vec(), vec![7; 3000]);
        overlay.apply(0..1024, &*below).unwrap();
        assert_eq!(
            (&below.to_vec()[..1024], below.to_vec()[1024]),
            (&expected[..1024], 7)
        );
        overlay.apply(0..2560, &*below).unwrap();
        assert_eq!(below.to_vec()[..2560], expected[..2560]);
        assert!(overlay.write_at(2999, &[0; 2]).is_err());
    }

    #[test]
    fn changes_beyond_the_bound_are_refused() {
        let overlay = Overlay::new(Arc::new(Memory::zeros(1 << 20)), 1024);
        overlay.write_at(100, &[1; 512]).unwrap();
        assert_eq!(
            overlay.write_at(9000, &[1]).unwrap_err().kind(),
            Kind::Limit
        );
        overlay.write_at(0, &[2; 1024]).unwrap();
    }
}
