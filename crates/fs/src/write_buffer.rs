//! A write buffer over a volume for uncommitted changes of metadata.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::Result;
use bandsaw_core::device::{AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info};
use bandsaw_core::size::to_usize;
use bandsaw_core::sync::RwLock;

const LAYER: &str = "volume buffer";
/// Maximum page size in bytes; larger blocks are buffered in parts.
const MAX_PAGE_SIZE: u32 = 4096;
/// Maximum length of adjacent pages that are written together, in bytes: the maximum node size.
const RUN: usize = 32 << 10;

/// A volume with the metadata written since the last commit.
///
/// Writes belong to the current operation until [`commit`](Self::commit) or
/// [`rollback`](Self::rollback). Changes that are kept remain pending until the caller has written
/// [`runs`](Self::runs) to the volume and calls [`clear_pending`](Self::clear_pending).
#[derive(Debug)]
pub(crate) struct Buffer {
    device: Arc<dyn BlockDevice>,
    /// Size of a page in bytes: a block or a part of one, so that all of a page belongs to the same
    /// file.
    page: u64,
    pages: RwLock<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    current: BTreeMap<u64, Box<[u8]>>,
    waiting: BTreeMap<u64, Box<[u8]>>,
}

/// Volume offset and bytes of a contiguous write.
pub(crate) type PendingWrite = (u64, Vec<u8>);

impl Buffer {
    /// Creates a buffer over the volume on `device` with blocks of `block_size` bytes.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, block_size: u32) -> Self {
        Self {
            device,
            page: block_size.min(MAX_PAGE_SIZE).into(),
            pages: RwLock::default(),
        }
    }

    /// Returns the page size in bytes.
    pub(crate) fn page(&self) -> u64 {
        self.page
    }

    /// Returns the number of bytes in pages that the current operation has written.
    pub(crate) fn current_len(&self) -> u64 {
        self.pages.read().current.len() as u64 * self.page
    }

    /// Makes the writes since the last call pending for the next commit.
    pub(crate) fn accept(&self) {
        let mut pages = self.pages.write();
        let current = std::mem::take(&mut pages.current);
        pages.waiting.extend(current);
    }

    /// Discards the writes since the last [`commit`](Self::commit).
    pub(crate) fn rollback(&self) {
        self.pages.write().current.clear();
    }

    /// Returns the number of pending bytes if the current writes are kept.
    pub(crate) fn len_if_kept(&self) -> u64 {
        let pages = self.pages.read();
        let new = pages
            .current
            .keys()
            .filter(|index| !pages.waiting.contains_key(index))
            .count();
        (pages.waiting.len() + new) as u64 * self.page
    }

    /// Returns all pending writes in the order of their offsets.
    pub(crate) fn runs(&self) -> Vec<PendingWrite> {
        let mut runs: Vec<PendingWrite> = Vec::new();
        for (&index, page) in &self.pages.read().waiting {
            let offset = index * self.page;
            match runs.last_mut() {
                Some((start, bytes))
                    if *start + bytes.len() as u64 == offset && bytes.len() + page.len() <= RUN =>
                {
                    bytes.extend_from_slice(page);
                }
                _ => runs.push((offset, page.to_vec())),
            }
        }
        runs
    }

    /// Returns the offset and the contents of every page with pending writes, in the order of their offsets.
    pub(crate) fn pages(&self) -> Vec<PendingWrite> {
        let pages = self.pages.read();
        let waiting = pages.waiting.iter();
        waiting
            .map(|(index, page)| (index * self.page, page.to_vec()))
            .collect()
    }

    /// Returns true if no write is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.read().waiting.is_empty()
    }

    /// Clears the pending writes, when the caller has written them to the volume.
    pub(crate) fn clear_pending(&self) {
        self.pages.write().waiting.clear();
    }

    /// Returns the pages that a range of bytes overlaps.
    fn touched(&self, offset: u64, length: u64) -> Range<u64> {
        offset / self.page..(offset + length).div_ceil(self.page)
    }
}

impl Pages {
    fn get(&self, index: u64) -> Option<&[u8]> {
        self.current
            .get(&index)
            .or_else(|| self.waiting.get(&index))
            .map(|page| &**page)
    }

    fn any(&self, range: &Range<u64>) -> bool {
        let in_map = |map: &BTreeMap<u64, Box<[u8]>>| map.range(range.clone()).next().is_some();
        in_map(&self.current) || in_map(&self.waiting)
    }
}

impl BlockDevice for Buffer {
    fn info(&self) -> Info {
        self.device.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        let touched = self.touched(offset, buf.len() as u64);
        let pages = self.pages.read();
        if !pages.any(&touched) {
            drop(pages);
            return self.device.read_at(offset, buf);
        }
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let within = at % self.page;
            let length = rest.len().min(to_usize(self.page - within));
            let (now, later) = rest.split_at_mut(length);
            match pages.get(at / self.page) {
                Some(page) => {
                    now.copy_from_slice(&page[to_usize(within)..to_usize(within) + length])
                }
                None => self.device.read_at(at, now)?,
            }
            (at, rest) = (at + length as u64, later);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        let mut pages = self.pages.write();
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (index, within) = (at / self.page, to_usize(at % self.page));
            let (now, later) = rest.split_at(rest.len().min(to_usize(self.page) - within));
            if now.len() as u64 == self.page {
                match pages.current.get_mut(&index) {
                    Some(page) => page.copy_from_slice(now),
                    None => drop(pages.current.insert(index, now.into())),
                }
            } else {
                if !pages.current.contains_key(&index) {
                    let mut page = vec![0; to_usize(self.page)].into_boxed_slice();
                    match pages.waiting.get(&index) {
                        Some(waiting) => page.copy_from_slice(waiting),
                        None => self.device.read_at(index * self.page, &mut page)?,
                    }
                    pages.current.insert(index, page);
                }
                if let Some(page) = pages.current.get_mut(&index) {
                    page[within..within + now.len()].copy_from_slice(now);
                }
            }
            (at, rest) = (at + now.len() as u64, later);
        }
        Ok(())
    }

    /// Fails, because metadata is written, never discarded.
    fn discard(&self, _range: Range<u64>, _leave: AfterDiscard) -> Result<()> {
        Err(bandsaw_core::Error::unsupported(
            LAYER,
            "cannot discard metadata: it must be overwritten",
        ))
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        match self
            .pages
            .read()
            .any(&self.touched(range.start, range.end - range.start))
        {
            true => Ok(Extent {
                kind: ExtentKind::Data,
                len: range.end - range.start,
            }),
            false => self.device.extent_at(range),
        }
    }

    /// Flushes only the device below. Buffered writes become durable by a commit of the volume.
    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn set_len(&self, _len: u64, _leave: AfterDiscard) -> Result<()> {
        Err(bandsaw_core::Error::unsupported(
            LAYER,
            "cannot change the length of a volume here: resize the volume instead",
        ))
    }

    /// Returns `None`, because blocks may be moved.
    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw_core::device::{BlockDeviceExt, Memory};

    #[test]
    fn writes_wait_until_they_are_kept_and_written() {
        let below = Arc::new(Memory::from(vec![1; 8192]));
        let buffer = Buffer::new(below.clone(), 512);
        buffer.write_at(500, &[2; 600]).unwrap();
        assert_eq!(
            buffer.read_vec(499, 602).unwrap(),
            [vec![1], vec![2; 600], vec![1]].concat()
        );
        assert_eq!(buffer.len_if_kept(), 3 * 512);
        buffer.rollback();
        assert_eq!(buffer.read_vec(0, 8192).unwrap(), vec![1; 8192]);

        buffer.write_at(510, &[3; 4]).unwrap();
        buffer.accept();
        buffer.write_at(511, &[4; 2]).unwrap();
        assert_eq!(buffer.read_vec(509, 6).unwrap(), [1, 3, 4, 4, 3, 1]);
        buffer.rollback();
        assert_eq!(buffer.read_vec(509, 6).unwrap(), [1, 3, 3, 3, 3, 1]);
        buffer.write_at(4096, &[5; 1]).unwrap();
        assert_eq!((buffer.current_len(), buffer.len_if_kept()), (512, 3 * 512));
        buffer.accept();
        assert_eq!(
            below.read_vec(0, 8192).unwrap(),
            vec![1; 8192],
            "nothing has reached the volume"
        );
        for (offset, bytes) in buffer.runs() {
            below.write_at(offset, &bytes).unwrap();
        }
        assert_eq!(
            buffer
                .runs()
                .iter()
                .map(|(offset, bytes)| (*offset, bytes.len()))
                .collect::<Vec<_>>(),
            [(0, 1024), (4096, 512)]
        );
        buffer.clear_pending();
        assert_eq!(buffer.read_vec(509, 6).unwrap(), [1, 3, 3, 3, 3, 1]);
        assert!(buffer.runs().is_empty());
    }
}
