//! Chunks and their bitmaps: their counts, and the marked blocks against the used ones.

use std::ops::Range;

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::{CheckedSpace, LAYER};
use crate::apfs::check::blocks::User;
use crate::apfs::check::report::{Report, wrong};
use crate::apfs::layout::{
    CHUNK_COUNT_MASK, ChunkInfoRaw, ChunkRaw, Oid, Paddr, blocks_per_chunk, chunks_per_cib,
    cibs_per_cab, object_type, storage,
};
use crate::bitmap::{count_clear, run_at, set_bits};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Result};

/// Maximum number of differing runs that are reported individually.
const MAX_REPORTED: u64 = 100;

/// The state of the walk along the chunks.
struct Chunks<'r> {
    /// Used runs, beginning with the next chunk.
    runs: &'r [(Range<u64>, User)],
    free: u64,
    reported: u64,
    lost: u64,
    first_lost: u64,
}

impl CheckedSpace<'_> {
    /// Compares every chunk with the used runs, which are ascending and disjoint.
    pub(super) fn bitmaps(
        &mut self,
        runs: &[(Range<u64>, User)],
        incomplete: bool,
        report: &mut Report<'_>,
    ) -> Result<()> {
        let (cibs, cabs) = (
            u64::from(self.main().cibs.get()),
            u64::from(self.main().cabs.get()),
        );
        self.progress.stage(
            "check the bitmaps",
            self.store.blocks.div_ceil(self.per_chunk()),
        );
        let mut chunks = Chunks {
            runs,
            free: 0,
            reported: 0,
            lost: 0,
            first_lost: 0,
        };
        let offset = self.main().addresses.get();
        let per_cab = u64::from(cibs_per_cab(self.store.block_size));
        let mut whole = true;
        if cabs == 0 {
            for cib in 0..cibs {
                let address = self.array64(offset, cib);
                whole &= self.cib(cib, address, &mut chunks, report)?;
            }
        }
        for cab in 0..cabs {
            let count = (cibs - cab * per_cab).min(per_cab);
            let address = self.array64(offset, cab);
            let Some(block) = self.info(
                object_type::CHUNK_INFO_ADDRESSES,
                address,
                cab,
                count,
                report,
            )?
            else {
                whole = false;
                continue;
            };
            for place in 0..count {
                let at = size_of::<ChunkInfoRaw>() + to_usize(place) * size_of::<U64>();
                let address = block
                    .get(at..)
                    .and_then(|rest| U64::read_from_prefix(rest).ok())
                    .map(|(at, _)| at.get());
                whole &= self.cib(cab * per_cab + place, address, &mut chunks, report)?;
            }
        }
        if chunks.reported > MAX_REPORTED {
            report.damage(wrong(
                LAYER,
                format!(
                    "{} more runs of blocks are in use, but marked as free",
                    chunks.reported - MAX_REPORTED
                ),
            ));
        }
        if chunks.lost > 0 {
            let (lost, first) = (chunks.lost, chunks.first_lost);
            let message = format!(
                "{lost} blocks are marked as used, but nothing uses them; the first is block \
                 {first}"
            );
            if incomplete {
                report.note(wrong(LAYER, message + " that could be read"));
            } else {
                report.warning(wrong(LAYER, message));
            }
        }
        let recorded = self.main().free.get();
        if whole && chunks.free != recorded {
            report.damage(wrong(
                LAYER,
                format!(
                    "records {recorded} free blocks, but its chunks have {}",
                    chunks.free
                ),
            ));
        }
        Ok(())
    }

    fn per_chunk(&self) -> u64 {
        blocks_per_chunk(self.store.block_size).into()
    }

    /// Reads a CIB or CAB; `None` if it is not of the expected kind, which has been reported.
    fn info(
        &mut self,
        kind: u32,
        address: Option<u64>,
        index: u64,
        count: u64,
        report: &mut Report<'_>,
    ) -> Result<Option<Box<[u8]>>> {
        let Some(address) = address.filter(|&address| self.pool.mark_used(address, report)) else {
            let message =
                format!("block {index} of type {kind:#x} is not in the pool, but in {address:?}");
            report.damage(wrong(LAYER, message));
            return Ok(None);
        };
        let paddr = Paddr(address);
        let Some(block) = report.value_or_damage(self.store.object(LAYER, paddr, kind))? else {
            return Ok(None);
        };
        let Ok((head, _)) = ChunkInfoRaw::ref_from_prefix(&block) else {
            return Ok(None);
        };
        let corrupt = |message: String| self.store.corrupt(LAYER, Oid(address), paddr, message);
        let found = (u64::from(head.index.get()), u64::from(head.count.get()));
        if found != (index, count) {
            let message = format!(
                "expected the block of chunk records with number {index} and {count} entries, \
                 found number {} with {} entries",
                found.0, found.1
            );
            report.damage(corrupt(message));
            return Ok(None);
        }
        let xid = head.object.xid.get();
        if xid == 0 || xid > self.xid.0 {
            report.damage(corrupt(format!(
                "the transaction number {xid} is too large: expected at most {}",
                self.xid
            )));
        }
        if head.object.kind.get() & storage::MASK != storage::PHYSICAL
            || head.object.has_odd_flags(false)
        {
            report.warning(corrupt(format!(
                "expected a physical object, found type {:#x}",
                head.object.kind
            )));
        }
        Ok(Some(block))
    }

    /// Checks the chunks of a CIB. Returns false if the CIB or a record in it is unusable, so that
    /// counts are incomplete.
    fn cib(
        &mut self,
        cib: u64,
        address: Option<u64>,
        chunks: &mut Chunks<'_>,
        report: &mut Report<'_>,
    ) -> Result<bool> {
        let per_cib = u64::from(chunks_per_cib(self.store.block_size));
        let all = self.store.blocks.div_ceil(self.per_chunk());
        let count = (all - (cib * per_cib).min(all)).min(per_cib);
        let end = ((cib * per_cib + count) * self.per_chunk()).min(self.store.blocks);
        let Some(block) = self.info(object_type::CHUNK_INFO, address, cib, count, report)? else {
            chunks.skip(end);
            return Ok(false);
        };
        let (mut whole, mut newest) = (true, 0);
        for place in 0..count {
            self.progress.check()?;
            self.progress.advance(1);
            let at = size_of::<ChunkInfoRaw>() + to_usize(place) * size_of::<ChunkRaw>();
            let Some((raw, _)) = block
                .get(at..)
                .and_then(|rest| ChunkRaw::read_from_prefix(rest).ok())
            else {
                continue;
            };
            newest = newest.max(raw.xid.get());
            whole &= self.chunk(cib * per_cib + place, &raw, chunks, report)?;
        }
        let recorded =
            ChunkInfoRaw::ref_from_prefix(&block).map_or(0, |(head, _)| head.object.xid.get());
        if newest != recorded {
            let message = format!("is of transaction {recorded}, but its newest chunk of {newest}");
            let address = address.unwrap_or(0);
            report.warning(
                self.store
                    .corrupt(LAYER, Oid(address), Paddr(address), message),
            );
        }
        Ok(whole)
    }

    fn chunk(
        &mut self,
        index: u64,
        raw: &ChunkRaw,
        chunks: &mut Chunks<'_>,
        report: &mut Report<'_>,
    ) -> Result<bool> {
        let first = index * self.per_chunk();
        let blocks = (self.store.blocks - first).min(self.per_chunk());
        let count = |raw: u32| u64::from(raw & CHUNK_COUNT_MASK);
        let (found, free) = (count(raw.blocks.get()), count(raw.free.get()));
        let place = Paddr(raw.bitmap.get());
        chunks.free += free;
        if raw.first.get() != first
            || found != blocks
            || free > blocks
            || (place.0 == 0 && free != blocks)
        {
            let message = format!(
                "the record of chunk {index} has block {} as its first, {found} blocks and {free} \
                 free ones; expected {blocks} blocks from block {first}",
                raw.first
            );
            report.damage(wrong(LAYER, message));
            chunks.skip(first + blocks);
            return Ok(false);
        }
        let size = self.store.block_size.bytes();
        let bits = if place.0 == 0 {
            vec![0; size].into_boxed_slice()
        } else if self.pool.mark_used(place.0, report) {
            self.store.read(LAYER, place, 1)?
        } else {
            report.damage(wrong(
                LAYER,
                format!(
                    "the bitmap of chunk {index} is in block {place}, which is not in the pool"
                ),
            ));
            chunks.skip(first + blocks);
            return Ok(true);
        };
        let clear = count_clear(&bits, to_usize(blocks)) as u64;
        if clear != free {
            let at = self.store.offset(place);
            let message = format!(
                "the bitmap of chunk {index} has {clear} free blocks, but its record has {free}"
            );
            report.damage(Error::corrupt(LAYER, at, message));
        }
        let past = count_clear(&bits, size * 8) as u64 - clear;
        if past != self.per_chunk() - blocks {
            report.warning(wrong(
                LAYER,
                format!("the bitmap of chunk {index} marks blocks past the end of the container"),
            ));
        }
        chunks.compare(first..first + blocks, &bits, report);
        Ok(true)
    }
}

impl Chunks<'_> {
    /// Skips the used runs before `end`, whose bits are unknown.
    fn skip(&mut self, end: u64) {
        while self.runs.first().is_some_and(|(run, _)| run.end <= end) {
            self.runs = &self.runs[1..];
        }
    }

    /// Compares the bits of `range` with the used runs.
    fn compare(&mut self, range: Range<u64>, bits: &[u8], report: &mut Report<'_>) {
        let mut expected = vec![0; bits.len()];
        let within = |block: u64| to_usize(block.clamp(range.start, range.end) - range.start);
        self.skip(range.start);
        for (run, user) in self.runs {
            if run.start >= range.end {
                break;
            }
            let (start, end) = (within(run.start), within(run.end));
            set_bits(&mut expected, start..end);
            let mut at = start;
            while at < end {
                let (marked, until) = run_at(bits, at, end);
                if !marked {
                    self.reported += 1;
                    if self.reported <= MAX_REPORTED {
                        let (first, last) =
                            (range.start + at as u64, range.start + until as u64 - 1);
                        let message = format!(
                            "blocks {first} to {last} are in use, but marked as free: {user}"
                        );
                        report.damage(wrong(LAYER, message));
                    }
                }
                at = until;
            }
        }
        let all = within(range.end);
        for (at, (marked, used)) in bits.iter().zip(&expected).enumerate().take(all.div_ceil(8)) {
            // Bits past the end of the container are reported separately.
            let valid = if at * 8 + 8 > all {
                (1_u8 << (all % 8)) - 1
            } else {
                0xFF
            };
            let lost = marked & !used & valid;
            if lost != 0 {
                if self.lost == 0 {
                    self.first_lost =
                        range.start + at as u64 * 8 + u64::from(lost.trailing_zeros());
                }
                self.lost += u64::from(lost.count_ones());
            }
        }
        self.skip(range.end);
    }
}
