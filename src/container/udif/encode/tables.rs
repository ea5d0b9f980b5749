//! Builder of the block table of an area.

use crc32fast::Hasher;
use zerocopy::IntoBytes;

use super::chunk::ChunkPart;
use super::{Area, CHUNK_SECTORS, LAYER};
use crate::container::udif::layout::{MishRaw, RunKind, RunRaw};
use crate::container::udif::verify;
use crate::container::{Format, SECTOR};
use crate::size::narrow;
use crate::{Error, Result};

/// Zeros of at least this many sectors become one run. Shorter ones are split at chunk boundaries
/// as in hdiutil, which would make the table of a large sparse disk huge.
const LONG: u64 = 64 * CHUNK_SECTORS;
/// Maximum number of runs in a table, which is also the limit of the reader.
const MAX_RUNS: usize = 1 << 20;

/// A block table under construction.
#[derive(Debug)]
pub(super) struct TableBuilder {
    first_sector: u64,
    sector_count: u64,
    /// True if zeros are unused space, which checksums omit.
    is_free: bool,
    /// True if adjacent raw runs are merged, as in uncompressed images.
    joins_raw: bool,
    runs: Vec<RunRaw>,
    /// Number of sectors added; the last `zeros` of them have no run yet.
    at: u64,
    zeros: u64,
    sum: Hasher,
}

impl TableBuilder {
    pub(super) fn new(area: &Area, format: Format) -> Self {
        Self {
            first_sector: area.range.start / SECTOR,
            sector_count: (area.range.end - area.range.start) / SECTOR,
            is_free: area.is_free,
            joins_raw: format.codec().is_none(),
            runs: Vec::new(),
            at: 0,
            zeros: 0,
            sum: Hasher::new(),
        }
    }

    /// Adds a piece that is stored at `offset` of the data fork.
    pub(super) fn piece(&mut self, piece: &ChunkPart, offset: u64) -> Result<()> {
        if piece.kind == RunKind::Zero {
            self.zeros(piece.sectors);
            return Ok(());
        }
        self.put_zeros(offset)?;
        let joined = self.joins_raw
            && piece.kind == RunKind::Raw
            && self
                .runs
                .last_mut()
                .is_some_and(|run| run.join_raw(piece.sectors, piece.stored));
        if !joined {
            self.put(piece.kind, self.at, piece.sectors, offset, piece.stored)?;
        }
        self.at += piece.sectors;
        Ok(())
    }

    /// Adds `sectors` sectors of zeros.
    pub(super) fn zeros(&mut self, sectors: u64) {
        self.at += sectors;
        self.zeros += sectors;
    }

    /// Appends `part` to the checksum.
    pub(super) fn sum(&mut self, part: &Hasher) {
        self.sum.combine(part);
    }

    /// Appends `len` zero bytes to the checksum, unless they are unused space.
    pub(super) fn sum_zeros(&mut self, len: u64) {
        if !self.is_free {
            self.sum.combine(&verify::zeros(len));
        }
    }

    /// Ends the table, where the data fork ends at `offset`.
    pub(super) fn end(&mut self, offset: u64) -> Result<()> {
        self.put_zeros(offset)?;
        self.runs.push(RunRaw::end(self.at, offset));
        Ok(())
    }

    /// Returns the bytes of the table and its checksum.
    pub(super) fn finish(self, buffer_sectors: u32, descriptor: i32) -> (Vec<u8>, u32) {
        let sum = self.sum.finalize();
        let head = MishRaw::new(
            self.first_sector,
            self.sector_count,
            buffer_sectors,
            descriptor,
            sum,
            narrow(self.runs.len()),
        );
        let mut bytes = Vec::with_capacity(size_of::<MishRaw>() + self.runs.as_bytes().len());
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(self.runs.as_bytes());
        (bytes, sum)
    }

    /// Adds runs for the pending zeros.
    fn put_zeros(&mut self, offset: u64) -> Result<()> {
        let (mut at, end) = (self.at - self.zeros, self.at);
        let kind = if self.is_free {
            RunKind::Ignore
        } else {
            RunKind::Zero
        };
        let whole = self.is_free || self.zeros >= LONG;
        while at < end {
            let limit = if whole {
                end
            } else {
                (at / CHUNK_SECTORS + 1) * CHUNK_SECTORS
            };
            let sectors = limit.min(end) - at;
            self.put(kind, at, sectors, offset, 0)?;
            at += sectors;
        }
        self.zeros = 0;
        Ok(())
    }

    fn put(
        &mut self,
        kind: RunKind,
        first_sector: u64,
        sectors: u64,
        offset: u64,
        stored: u64,
    ) -> Result<()> {
        if self.runs.len() == MAX_RUNS {
            let message = format!(
                "the area needs more than {MAX_RUNS} chunks (1 TB), the maximum of a table"
            );
            return Err(
                Error::limit(LAYER, message).at((self.first_sector + first_sector) * SECTOR)
            );
        }
        self.runs
            .push(RunRaw::new(kind, first_sector, sectors, offset, stored));
        Ok(())
    }
}
