//! The contents of an archive as a read-only device.

use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use super::LAYER;
use super::clusters::{Cluster, Clusters, place_of};
use super::derive::KeySchedule;
use super::layout::RootHeader;
use super::prologue::{ArchiveDescription, UnlockedArchive};
use super::segments;
use crate::crypt::parallel;
use crate::device::{
    self, Access, ActiveRequest, BlockDevice, ChunkCache, Extent, FileRange, Info, Readahead,
    read_only,
};
use crate::size::{narrow, to_usize};
use crate::{Error, Result};

/// Size of the cache of decoded segments in bytes: enough for a few readers and for read-ahead.
const CACHE: usize = 32 << 20;
/// Length above which segments are decoded one at a time, and never ahead, in bytes; those of macOS
/// have 1 MiB.
const LONG_SEGMENT: u32 = 4 << 20;
/// Minimum length of segments that are decoded directly into the caller's buffer if read as a whole.
const DIRECT: usize = 64 << 10;

/// The state needed to decode segments, shared with the read-ahead.
#[derive(Debug)]
pub(super) struct SegmentReader {
    pub(super) file: Arc<dyn BlockDevice>,
    pub(super) root: RootHeader,
    keys: KeySchedule,
    clusters: Clusters,
    cache: ChunkCache<u32>,
}

impl SegmentReader {
    /// Returns the header of cluster `number`.
    pub(super) fn cluster(&self, number: u32) -> Result<Arc<Cluster>> {
        (self.clusters).get(number, &*self.file, &self.root, &self.keys)
    }

    /// Decodes a segment of a cluster into `out`, which has its length.
    pub(super) fn decode(&self, cluster: &Cluster, place: usize, out: &mut [u8]) -> Result<()> {
        segments::decode(cluster, place, &*self.file, &self.root, &self.keys, out)
    }

    /// Returns the contents of a segment, through the cache.
    fn decoded(&self, number: u32) -> Result<Arc<Vec<u8>>> {
        let (cluster, place) = place_of(number, &self.root);
        let cluster = self.cluster(cluster)?;
        self.cache.get(number, || {
            let turn = self.lock_for_long_segment();
            if turn.is_some() {
                self.cache.clear();
            }
            let mut plain = device::zeros(self.root.segment_len(number.into()) as usize)?;
            self.decode(&cluster, place, &mut plain)?;
            Ok(Arc::new(plain))
        })
    }

    /// Waits for the right to decode a long segment. Called before its memory is allocated.
    fn lock_for_long_segment(&self) -> Option<MutexGuard<'_, ()>> {
        (self.root.segment_size > LONG_SEGMENT).then(|| self.cache.lock_for_large_chunk())
    }
}

/// A segment that is decoded into the caller's buffer.
struct DirectPart<'a> {
    cluster: Arc<Cluster>,
    place: usize,
    out: &'a mut [u8],
}

/// The contents of an unlocked archive, read-only. Segments are authenticated and decoded as they
/// are read; whole ones on all cores. A segment that is damaged is [`Kind::Corrupt`](crate::Kind::Corrupt)
/// at its offset in the file.
#[derive(Debug)]
pub struct Archive {
    pub(super) contents: Arc<SegmentReader>,
    description: ArchiveDescription,
    is_authenticated: bool,
    ahead: Arc<Readahead>,
}

impl Drop for Archive {
    fn drop(&mut self) {
        // Releases the file before the next open of it.
        self.ahead.close();
    }
}

impl Archive {
    /// Opens the contents of an archive in `file`.
    pub fn new(file: Arc<dyn BlockDevice>, archive: UnlockedArchive) -> Self {
        let clusters = Clusters::new(&archive);
        let UnlockedArchive {
            description,
            root,
            keys,
            ..
        } = archive;
        let is_authenticated = keys.is_authenticated();
        let contents = SegmentReader {
            file,
            root,
            keys,
            clusters,
            cache: ChunkCache::new(CACHE),
        };
        Self {
            contents: Arc::new(contents),
            description,
            is_authenticated,
            ahead: Arc::default(),
        }
    }

    /// Returns the properties of the archive.
    pub fn description(&self) -> &ArchiveDescription {
        &self.description
    }

    /// Returns false if the MACs of an archive that is not encrypted are not compared, because the
    /// public key of its signer is not known.
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Splits `range` into the parts in each segment.
    fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (u32, Range<u64>)> {
        let size = u64::from(self.contents.root.segment_size);
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let number = at / size;
            let end = (number + 1).saturating_mul(size).min(range.end);
            let part = at..end;
            at = end;
            Some((narrow(number), part))
        })
    }

    /// Starts decoding the segments after `range` on other cores if the reader is sequential.
    fn begin_ahead(&self, reader: &ActiveRequest<'_>, range: Range<u64>) {
        let root = &self.contents.root;
        if range.is_empty() || root.segment_size > LONG_SEGMENT {
            return;
        }
        let size = u64::from(root.segment_size);
        let (first, last) = (range.start / size, (range.end - 1) / size);
        // Lazy, because asking for the number of threads starts them. At most half of what was read already, so
        // that a small file in an image elsewhere does not cost several times its size.
        let most = |walked: u64| {
            let most = (CACHE as u64 / 2 / size).min(2 * parallel::threads() as u64);
            narrow::<u32>(most.min(walked / 2 / size))
        };
        let count = narrow::<u32>(root.segments());
        let bytes = range.end - range.start;
        for number in reader.passes(narrow(first), narrow(last), bytes, most) {
            if number >= count || self.contents.cache.expects(number) {
                continue;
            }
            // Weak, so that a waiting task does not keep the file open.
            let (contents, ahead) = (Arc::downgrade(&self.contents), self.ahead.clone());
            parallel::spawn(move || {
                ahead.run(number, || {
                    if let Some(contents) = contents.upgrade() {
                        // Ignored: a read of the segment fails again and reports the error.
                        drop(contents.decoded(number));
                    }
                });
            });
        }
    }
}

impl BlockDevice for Archive {
    fn info(&self) -> Info {
        Info {
            len: self.contents.root.size,
            block: 512,
            write: 1,
            discard: 512,
            access: Access::ReadOnly,
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = self.info().check(LAYER, offset, buf.len() as u64)?;
        let reader = self.ahead.reader();
        self.begin_ahead(&reader, offset..end);
        let contents = &self.contents;
        let (mut whole, mut rest) = (Vec::new(), buf);
        for (number, part) in self.parts(offset..end) {
            let (out, after) = rest.split_at_mut(to_usize(part.end - part.start));
            rest = after;
            let len = contents.root.segment_len(number.into()) as usize;
            if out.len() == len && len >= DIRECT && !contents.cache.expects(number) {
                let (cluster, place) = place_of(number, &contents.root);
                whole.push(DirectPart {
                    cluster: contents.cluster(cluster)?,
                    place,
                    out,
                });
                continue;
            }
            let plain = contents.decoded(number)?;
            let size = u64::from(contents.root.segment_size);
            let from = to_usize(part.start - u64::from(number) * size);
            let plain = plain.get(from..from + out.len()).ok_or_else(|| {
                Error::out_of_range(LAYER, part.start, out.len() as u64, contents.root.size)
            })?;
            out.copy_from_slice(plain);
        }
        let bytes = whole.iter().map(|part| part.out.len()).sum();
        parallel::each_job(bytes, whole, |part| {
            let _turn = contents.lock_for_long_segment();
            contents.decode(&part.cluster, part.place, part.out)
        })
    }

    read_only!(LAYER);

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().data_extent(LAYER, &range)
    }

    /// Returns no range: bytes of the file are not authenticated.
    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}
