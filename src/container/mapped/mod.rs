//! Disks in containers that are only read: a map from bytes of the disk to chunks of files.
//!
//! A format implements [`DiskMap`]; [`MappedDisk`] is the device over it, with a cache of decoded
//! chunks.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::checksum::StoredChecksum;
use super::{Format, SECTOR};
use crate::device::{
    self, BlockDevice, ChunkCache, Extent, ExtentKind, FileRange, Info, read_only,
};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Kind, Result};

/// Size of the cache of decoded chunks in bytes.
const CACHE: usize = 16 << 20;
/// Longest chunk that is decoded, in bytes; it is in memory as a whole.
pub(crate) const MAX_CHUNK: u64 = 4 << 20;
/// Longest disk whose checksums a check compares, in bytes.
const DISKETTE: u64 = 4 << 20;
/// Maximum number of chunks that are joined to one extent.
const MAX_JOINED: usize = 4096;

/// A contiguous range of the disk that is stored in one way.
#[derive(Debug, Clone)]
pub struct MappedChunk {
    /// The bytes of the disk, not empty.
    pub range: Range<u64>,
    /// Their place.
    pub place: ChunkPlace,
}

/// The place of a chunk.
#[derive(Debug, Clone)]
pub enum ChunkPlace {
    /// Not stored.
    Hole,
    /// Stated to be zeros.
    Zero,
    /// Stored as it is, from this byte of the file on.
    Stored(Arc<dyn BlockDevice>, u64),
    /// Stored in another form; [`DiskMap::decode`] returns the contents. At most 4 MiB.
    Coded,
}

/// The map of a container that is only read.
pub trait DiskMap: fmt::Debug + Send + Sync {
    /// Returns the format.
    fn format(&self) -> Format;

    /// Returns the name of the format in errors.
    fn layer(&self) -> &'static str;

    /// Returns the length of the disk in bytes, a multiple of 512 unless it is the stream of an archive.
    fn disk_len(&self) -> u64;

    /// Returns the chunk that contains byte `offset` of the disk, which is below the length.
    fn chunk_at(&self, offset: u64) -> Result<MappedChunk>;

    /// Fills `out` with the contents of a chunk that is [coded](ChunkPlace::Coded). Both have the same
    /// length.
    fn decode(&self, chunk: &Range<u64>, out: &mut [u8]) -> Result<()>;

    /// Reports problems of the structures.
    fn check(&self, problems: &mut Problems, progress: &dyn Progress) -> Result<()>;

    /// Compares every stored checksum of the disk and of data beside it. Empty if there are none.
    fn verify(&self, progress: &dyn Progress) -> Result<Vec<StoredChecksum>>;

    /// Returns facts for users, names and values.
    fn facts(&self) -> Vec<(&'static str, String)>;
}

/// The disk of a container that is only read.
#[derive(Debug)]
pub struct MappedDisk {
    map: Box<dyn DiskMap>,
    cache: ChunkCache<u64>,
}

impl MappedDisk {
    /// Returns the disk of a map.
    pub fn new(map: impl DiskMap + 'static) -> Self {
        Self {
            map: Box::new(map),
            cache: ChunkCache::new(CACHE),
        }
    }

    /// Returns the format.
    pub fn format(&self) -> Format {
        self.map.format()
    }

    /// Returns facts for users, names and values.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        self.map.facts()
    }

    /// Compares every stored checksum. Empty if there are none.
    pub fn verify(&self, progress: &dyn Progress) -> Result<Vec<StoredChecksum>> {
        self.map.verify(progress)
    }

    /// Returns true if the disk is so small that all checksums are compared in a moment.
    pub fn is_diskette(&self) -> bool {
        self.map.disk_len() <= DISKETTE
    }

    /// Fails with [`Kind::Corrupt`] if a checksum differs.
    pub fn check_sums(&self, progress: &dyn Progress) -> Result<()> {
        let sums = self.map.verify(progress)?;
        match sums.iter().find_map(StoredChecksum::mismatch) {
            Some(message) => Err(Error::new(Kind::Corrupt, self.map.layer(), message)),
            None => Ok(()),
        }
    }

    /// Reports problems of the structures, and checksums that differ if the whole disk is a diskette.
    pub fn check(&self, problems: &mut Problems, progress: &dyn Progress) -> Result<()> {
        progress.stage("check", 0);
        self.map.check(problems, progress)?;
        if !self.is_diskette() || problems.count(Severity::Damage) > 0 {
            return Ok(());
        }
        let layer = self.map.layer();
        let verified = match self.map.verify(progress) {
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Limit) => {
                problems.add(Severity::Damage, error);
                return Ok(());
            }
            verified => verified?,
        };
        for message in verified.iter().filter_map(StoredChecksum::mismatch) {
            problems.add(Severity::Damage, Error::new(Kind::Corrupt, layer, message));
        }
        Ok(())
    }

    /// Returns the chunk that contains byte `offset`, checked against the file.
    fn chunk_at(&self, offset: u64) -> Result<MappedChunk> {
        let mut chunk = self.map.chunk_at(offset)?;
        debug_assert!(chunk.range.contains(&offset));
        chunk.range.end = chunk.range.end.min(self.map.disk_len());
        if let ChunkPlace::Stored(file, at) = &chunk.place {
            let len = chunk.range.end - chunk.range.start;
            let file_len = file.info().len;
            if at.checked_add(len).is_none_or(|end| end > file_len) {
                let message = format!(
                    "truncated: bytes {} to {} of the disk are stored from byte {at} on, past the end \
                     of the file at {file_len}",
                    chunk.range.start, chunk.range.end
                );
                return Err(Error::corrupt(self.map.layer(), *at, message));
            }
        }
        Ok(chunk)
    }

    /// Returns the contents of a coded chunk, through the cache.
    fn decoded(&self, range: &Range<u64>) -> Result<Arc<Vec<u8>>> {
        self.cache.get(range.start, || {
            let mut plain = device::zeros(to_usize(range.end - range.start))?;
            self.decode(range, &mut plain)?;
            Ok(Arc::new(plain))
        })
    }

    fn decode(&self, range: &Range<u64>, out: &mut [u8]) -> Result<()> {
        if out.len() as u64 > MAX_CHUNK {
            let message = format!(
                "chunk of {} bytes is too large: at most {MAX_CHUNK} are supported",
                out.len()
            );
            return Err(Error::limit(self.map.layer(), message).at(range.start));
        }
        self.map.decode(range, out)
    }
}

impl BlockDevice for MappedDisk {
    fn info(&self) -> Info {
        Info {
            discard: SECTOR,
            ..Info::read_only(self.map.disk_len())
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info()
            .check(self.map.layer(), offset, buf.len() as u64)?;
        let (mut at, mut rest, mut whole) = (offset, buf, Vec::new());
        while !rest.is_empty() {
            let chunk = self.chunk_at(at)?;
            let len = to_usize((chunk.range.end - at).min(rest.len() as u64));
            let (out, after) = std::mem::take(&mut rest).split_at_mut(len);
            match &chunk.place {
                ChunkPlace::Hole | ChunkPlace::Zero => out.fill(0),
                ChunkPlace::Stored(file, start) => {
                    file.read_at(start + (at - chunk.range.start), out)?;
                }
                ChunkPlace::Coded
                    if out.len() as u64 == chunk.range.end - chunk.range.start
                        && !self.cache.expects(chunk.range.start) =>
                {
                    whole.push((chunk.range.clone(), out));
                }
                ChunkPlace::Coded => {
                    let within = to_usize(at - chunk.range.start);
                    let plain = self.decoded(&chunk.range)?;
                    out.copy_from_slice(&plain[within..within + len]);
                }
            }
            at += len as u64;
            rest = after;
        }
        match <[_; 1]>::try_from(whole) {
            // Cached, because small chunks are read again, such as the nodes of a tree.
            Ok([(range, out)]) => {
                out.copy_from_slice(&self.decoded(&range)?);
                Ok(())
            }
            Err(whole) => whole
                .into_par_iter()
                .with_max_len(1)
                .try_for_each(|(range, out)| self.decode(&range, out)),
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(self.map.layer(), &range)?;
        let kind = |chunk: &MappedChunk| match chunk.place {
            ChunkPlace::Hole => ExtentKind::Hole,
            ChunkPlace::Zero => ExtentKind::Zero,
            ChunkPlace::Stored(..) | ChunkPlace::Coded => ExtentKind::Data,
        };
        if range.is_empty() {
            let message = "cannot report an extent: the requested range is empty";
            return Err(Error::invalid(self.map.layer(), message).at(range.start));
        }
        // Not checked against the file: holes are found in a truncated image, too.
        let first = self.map.chunk_at(range.start)?;
        let (kind_of_first, mut end) = (kind(&first), first.range.end);
        for _ in 0..MAX_JOINED {
            if end >= range.end {
                break;
            }
            match self.map.chunk_at(end) {
                Ok(next) if kind(&next) == kind_of_first => end = next.range.end,
                _ => break,
            }
        }
        Ok(Extent {
            kind: kind_of_first,
            len: end.min(range.end) - range.start,
        })
    }

    read_only!("image");

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(self.map.layer(), &range)?;
        if range.is_empty() {
            return Ok(None);
        }
        let chunk = self.chunk_at(range.start)?;
        match chunk.place {
            ChunkPlace::Stored(file, at) => {
                let from = at + (range.start - chunk.range.start);
                let len = chunk.range.end.min(range.end) - range.start;
                file.file_range(from..from + len)
            }
            _ => Ok(None),
        }
    }
}
