//! A device over ranges fetched from a network: fetched data is cached, and sequential reads are
//! prefetched.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::{BlockDevice, Extent, FileRange, Info, read_only};
use crate::size::to_usize;
use crate::sync::Mutex;
use crate::{Error, Kind, Result};

const LAYER: &str = "remote file";

/// Bytes of a cache entry. A request costs at least as much as this many bytes.
pub(super) const PIECE: u64 = 256 << 10;

/// Bytes of a cache entry for readers that have a cache and a read-ahead of their own, and request what
/// they need: less than a segment header of an encrypted archive and its neighbors would cost in larger
/// ones.
pub(super) const SMALL_PIECE: u64 = 32 << 10;

/// Maximum number of pieces fetched in one request for sequential reads.
const MAX_AHEAD: u64 = 8;

/// Minimum length in bytes of a read that bypasses the cache.
const LARGE: u64 = MAX_AHEAD * PIECE;

/// A source of known length that serves ranges.
pub(super) trait Ranges: fmt::Debug + Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Fills `into` from `offset`, in one request. The range is within the length.
    fn fetch(&self, offset: u64, into: &mut [u8]) -> Result<()>;
}

impl<T: Ranges> Ranges for Arc<T> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn fetch(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        (**self).fetch(offset, into)
    }
}

/// A cache of pieces of any number of files, limited in bytes.
#[derive(Debug)]
pub(super) struct Pieces {
    kept: Mutex<CachedRanges>,
    most: usize,
    /// Bytes of a piece.
    size: u64,
}

#[derive(Default)]
struct CachedRanges {
    /// Pieces by file and number.
    pieces: HashMap<(Arc<str>, u64), CachedPiece>,
    clock: u64,
}

struct CachedPiece {
    bytes: Arc<[u8]>,
    /// The logical time of the last use.
    used: u64,
}

impl fmt::Debug for CachedRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedRanges")
            .field("pieces", &self.pieces.len())
            .finish_non_exhaustive()
    }
}

impl Pieces {
    /// Creates an empty cache of at most `bytes`, in pieces of `size` bytes.
    pub(super) fn new(bytes: u64, size: u64) -> Arc<Self> {
        let most = usize::try_from(bytes / size)
            .unwrap_or(usize::MAX)
            .max(to_usize(MAX_AHEAD));
        Arc::new(Self {
            kept: Mutex::default(),
            most,
            size,
        })
    }

    fn get(&self, file: &Arc<str>, index: u64) -> Option<Arc<[u8]>> {
        let mut kept = self.kept.lock();
        kept.clock += 1;
        let now = kept.clock;
        let piece = kept.pieces.get_mut(&(file.clone(), index))?;
        piece.used = now;
        Some(piece.bytes.clone())
    }

    fn has(&self, file: &Arc<str>, index: u64) -> bool {
        self.kept.lock().pieces.contains_key(&(file.clone(), index))
    }

    fn insert(&self, file: &Arc<str>, index: u64, piece: &[u8]) {
        let mut kept = self.kept.lock();
        kept.clock += 1;
        let now = kept.clock;
        kept.pieces.insert(
            (file.clone(), index),
            CachedPiece {
                bytes: piece.into(),
                used: now,
            },
        );
        while kept.pieces.len() > self.most {
            let Some(oldest) = kept
                .pieces
                .iter()
                .min_by_key(|(_, piece)| piece.used)
                .map(|(key, _)| key.clone())
            else {
                return;
            };
            kept.pieces.remove(&oldest);
        }
    }
}

/// A read-only device over ranges.
#[derive(Debug)]
pub(super) struct Fetched {
    ranges: Box<dyn Ranges>,
    /// A unique name with a version, which identifies the file in the cache.
    name: Arc<str>,
    pieces: Arc<Pieces>,
    /// The piece after the last one read, and the number of pieces to fetch when it is requested.
    next: AtomicU64,
    ahead: AtomicU64,
    /// Maximum number of pieces that are fetched for a sequential read.
    max_ahead: u64,
}

impl Fetched {
    pub(super) fn new(ranges: Box<dyn Ranges>, name: &str, pieces: &Arc<Pieces>) -> Self {
        Self {
            ranges,
            name: name.into(),
            pieces: pieces.clone(),
            next: AtomicU64::new(u64::MAX),
            ahead: AtomicU64::new(1),
            max_ahead: MAX_AHEAD,
        }
    }

    /// Returns the same file without prefetches.
    pub(super) fn without_prefetch(self) -> Self {
        Self {
            max_ahead: 1,
            ..self
        }
    }

    /// Puts a piece that has been fetched already into the cache.
    #[cfg(feature = "s3")]
    pub(super) fn cache_piece(&self, index: u64, piece: &[u8]) {
        if piece.len() as u64 == self.piece(index).end - self.piece(index).start {
            self.pieces.insert(&self.name, index, piece);
        }
    }

    /// Returns the byte range of a piece.
    fn piece(&self, index: u64) -> Range<u64> {
        let len = self.ranges.len();
        let size = self.pieces.size;
        index.saturating_mul(size).min(len)..(index + 1).saturating_mul(size).min(len)
    }

    /// Returns a piece of a read that ends in piece `until`. Fetches the rest of the read with it, and the
    /// following pieces if they are likely to be read.
    fn get(&self, index: u64, until: u64) -> Result<Arc<[u8]>> {
        if let Some(piece) = self.pieces.get(&self.name, index) {
            self.next.store(index + 1, Ordering::Relaxed);
            return Ok(piece);
        }
        let follows = self.next.swap(index + 1, Ordering::Relaxed) == index;
        let ahead = if follows {
            (self.ahead.load(Ordering::Relaxed) * 2).min(self.max_ahead)
        } else {
            1
        };
        self.ahead.store(ahead, Ordering::Relaxed);
        let ahead = ahead.max(until.saturating_sub(index) + 1);
        let (size, last) = (
            self.pieces.size,
            self.ranges.len().div_ceil(self.pieces.size),
        );
        let end =
            (index + 1..(index + ahead).min(last)).find(|&next| self.pieces.has(&self.name, next));
        let end = end.unwrap_or((index + ahead).min(last));
        let range = self.piece(index).start..self.piece(end - 1).end;
        let mut bytes = vec![0; to_usize(range.end - range.start)];
        self.ranges.fetch(range.start, &mut bytes)?;
        for (piece, index) in bytes.chunks(to_usize(size)).zip(index..) {
            self.pieces.insert(&self.name, index, piece);
        }
        bytes.truncate(to_usize(size));
        Ok(bytes.into())
    }
}

impl BlockDevice for Fetched {
    fn info(&self) -> Info {
        Info::read_only(self.ranges.len())
    }

    fn read_at(&self, offset: u64, mut buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        if buf.len() as u64 >= LARGE {
            return self.ranges.fetch(offset, buf);
        }
        let (mut at, size) = (offset, self.pieces.size);
        let until = (offset + buf.len() as u64).saturating_sub(1) / size;
        while !buf.is_empty() {
            let piece = self.get(at / size, until)?;
            let within = to_usize(at % size);
            let found = piece.get(within..).filter(|rest| !rest.is_empty());
            let found = found.ok_or_else(|| {
                Error::new(
                    Kind::Io,
                    LAYER,
                    "the server sent fewer bytes than requested",
                )
                .at(at)
            })?;
            let n = found.len().min(buf.len());
            let (now, rest) = buf.split_at_mut(n);
            now.copy_from_slice(&found[..n]);
            at += n as u64;
            buf = rest;
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().data_extent(LAYER, &range)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range).map(|()| None)
    }

    read_only!(LAYER);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BlockDeviceExt;
    use crate::testing::{Random, conformance};

    type Asked = Arc<Mutex<Vec<Range<u64>>>>;

    #[derive(Debug)]
    struct ByteCount(Vec<u8>, Asked);

    impl Ranges for ByteCount {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn fetch(&self, offset: u64, into: &mut [u8]) -> Result<()> {
            self.1.lock().push(offset..offset + into.len() as u64);
            into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
            Ok(())
        }
    }

    fn fetched(len: usize) -> (Vec<u8>, Asked, Fetched) {
        let (bytes, asked) = (Random::new(len as u64).bytes(len), Asked::default());
        let ranges = Box::new(ByteCount(bytes.clone(), Arc::clone(&asked)));
        (
            bytes,
            asked,
            Fetched::new(ranges, "it", &Pieces::new(4 << 20, PIECE)),
        )
    }

    #[test]
    fn it_is_a_device_that_is_read() {
        conformance::read_only(Arc::new(fetched(700_001).2));
    }

    #[test]
    fn cached_ranges_are_not_requested_again() {
        let (bytes, asked, device) = fetched((PIECE * 40 + 5) as usize);
        for _ in 0..3 {
            assert_eq!(
                device.read_vec(PIECE - 3, 10).unwrap(),
                bytes[PIECE as usize - 3..][..10]
            );
            assert_eq!(
                device.read_vec(PIECE * 40, 5).unwrap(),
                bytes[PIECE as usize * 40..]
            );
        }
        let asked: Vec<_> = std::mem::take(&mut *asked.lock());
        assert_eq!(asked, [0..2 * PIECE, PIECE * 40..PIECE * 40 + 5]);
    }

    #[test]
    fn small_pieces_are_fetched_without_a_prefetch() {
        let (bytes, asked) = (Random::new(9).bytes(1 << 20), Asked::default());
        let ranges = Box::new(ByteCount(bytes.clone(), Arc::clone(&asked)));
        let pieces = Pieces::new(1 << 20, SMALL_PIECE);
        let device = Fetched::new(ranges, "it", &pieces).without_prefetch();
        for at in [0, SMALL_PIECE, 2 * SMALL_PIECE] {
            assert_eq!(
                device.read_vec(at + 1, 100).unwrap(),
                bytes[at as usize + 1..][..100]
            );
        }
        device.read_vec(10 * SMALL_PIECE + 7, 300_000).unwrap();
        let lens: Vec<_> = (asked.lock().iter())
            .map(|range| range.end - range.start)
            .collect();
        let whole = 10 * SMALL_PIECE;
        assert_eq!(lens, [SMALL_PIECE, SMALL_PIECE, SMALL_PIECE, whole]);
    }

    #[test]
    fn reads_in_order_take_few_requests() {
        let (bytes, asked, device) = fetched((PIECE * 64) as usize);
        for at in (0..bytes.len()).step_by(4096) {
            assert_eq!(
                device.read_vec(at as u64, 4096).unwrap(),
                bytes[at..at + 4096]
            );
        }
        assert!(asked.lock().len() <= 12, "{asked:?}");
        assert!(
            device.pieces.kept.lock().pieces.len() <= 16,
            "memory is bounded"
        );
        asked.lock().clear();
        assert_eq!(
            device.read_vec(7, LARGE as usize).unwrap(),
            bytes[7..][..LARGE as usize]
        );
        assert!(matches!(&asked.lock()[..], [range] if *range == (7..7 + LARGE)));
    }
}
