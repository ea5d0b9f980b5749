//! The chunks of a disk: the runs of all tables in disk order.

use super::layout::{RunKind, SectorRun, Table};
use crate::container::SECTOR;
use crate::size::narrow;
use crate::{Error, Result};

/// Index of a chunk in disk order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ChunkIndex(pub(super) u32);

/// A stored run with its offsets on the disk and in the file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) kind: RunKind,
    /// Disk offset.
    pub(super) start: u64,
    pub(super) len: u64,
    /// Offset in the joined data fork.
    pub(super) offset: u64,
    pub(super) stored: u64,
}

impl Chunk {
    pub(super) fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// Maximum length of a compressed chunk, which is decoded as a whole in memory; usual ones have 1
/// MiB.
const MAX_CHUNK: u64 = 64 << 20;

/// All chunks of an image: they do not overlap and are within the disk and the data fork.
#[derive(Debug)]
pub(super) struct Chunks {
    all: Vec<Chunk>,
}

impl Chunks {
    /// Collects the chunks of all tables and validates them against each other and a data fork of
    /// `fork_len` bytes.
    pub(super) fn new(tables: &[Table], fork_len: u64) -> Result<Self> {
        let mut all = Vec::with_capacity(tables.iter().map(|table| table.runs.len()).sum());
        for table in tables {
            for run in table.runs.iter().filter(|run| run.sector_count > 0) {
                all.push(chunk(table, run, fork_len)?);
            }
        }
        if u32::try_from(all.len()).is_err() {
            return Err(Error::corrupt(
                LAYER,
                0,
                format!("too many chunks: {} (limit 2^32 - 1)", all.len()),
            ));
        }
        all.sort_unstable_by_key(|chunk| chunk.start);
        if let Some(pair) = all.windows(2).find(|pair| pair[0].end() > pair[1].start) {
            let message = format!(
                "two chunks contain this byte of the disk: from {} and from {}",
                pair[0].start, pair[1].start
            );
            return Err(Error::corrupt(LAYER, pair[1].start, message));
        }
        Ok(Self { all })
    }

    /// Returns the disk offset of the end of the last chunk.
    pub(super) fn end(&self) -> u64 {
        self.all.last().map_or(0, Chunk::end)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.all.iter()
    }

    pub(super) fn get(&self, index: ChunkIndex) -> Option<&Chunk> {
        self.all.get(index.0 as usize)
    }

    /// Returns the chunk that contains byte `offset` of the disk; otherwise the distance to the
    /// next chunk (`None` if there is none).
    pub(super) fn at(&self, offset: u64) -> Result<(ChunkIndex, &Chunk), Option<u64>> {
        let after = self.all.partition_point(|chunk| chunk.start <= offset);
        match after
            .checked_sub(1)
            .map(|n| (ChunkIndex(narrow(n)), &self.all[n]))
        {
            Some((index, chunk)) if offset < chunk.end() => Ok((index, chunk)),
            _ => Err(self.all.get(after).map(|next| next.start - offset)),
        }
    }
}

const LAYER: &str = "udif chunk map";

pub(super) fn chunk(table: &Table, run: &SectorRun, fork_len: u64) -> Result<Chunk> {
    let start = (table.first_sector + run.first_sector) * SECTOR;
    let len = run.sector_count * SECTOR;
    let damaged = |message: String| Err(Error::corrupt(LAYER, start, message));
    if run
        .offset
        .checked_add(run.length)
        .is_none_or(|end| end > fork_len)
    {
        return damaged(format!(
            "a chunk stored in {} bytes from byte {} on reaches past the end of the data fork at \
             {fork_len}",
            run.length, run.offset
        ));
    }
    match run.kind {
        RunKind::Raw if run.length < len => damaged(format!(
            "a raw chunk of {len} bytes is stored in only {} bytes",
            run.length
        )),
        RunKind::Packed(_) if len > MAX_CHUNK => damaged(format!(
            "chunk of {len} bytes is too large: at most {MAX_CHUNK} are supported"
        )),
        kind => Ok(Chunk {
            kind,
            start,
            len,
            offset: run.offset,
            stored: run.length,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::udif::layout::Checksum;

    fn run(kind: RunKind, first_sector: u64, sector_count: u64, length: u64) -> SectorRun {
        SectorRun {
            kind,
            first_sector,
            sector_count,
            offset: 0,
            length,
        }
    }

    fn table(first_sector: u64, runs: Vec<SectorRun>) -> Table {
        Table {
            first_sector,
            sector_count: 100,
            checksum: Checksum::None,
            runs,
        }
    }

    #[test]
    fn chunks_are_found_and_gaps_measured() {
        let tables = [
            table(10, vec![run(RunKind::Raw, 0, 2, 1024)]),
            table(0, vec![run(RunKind::Zero, 0, 4, 0)]),
        ];
        let chunks = Chunks::new(&tables, 1024).unwrap();
        assert_eq!(chunks.at(0).unwrap().0, ChunkIndex(0));
        assert_eq!(chunks.at(4 * 512), Err(Some(6 * 512)));
        assert_eq!(chunks.at(11 * 512).unwrap().1.start, 10 * 512);
        assert_eq!(chunks.at(12 * 512), Err(None));
        assert_eq!(chunks.end(), 12 * 512);
    }

    #[test]
    fn lies_are_refused() {
        let fails = |runs: Vec<SectorRun>| {
            Chunks::new(&[table(0, runs)], 1024)
                .unwrap_err()
                .to_string()
        };
        assert!(
            fails(vec![
                run(RunKind::Raw, 0, 2, 1024),
                run(RunKind::Zero, 1, 2, 0)
            ])
            .contains("two chunks contain")
        );
        assert!(
            fails(vec![run(RunKind::Raw, 0, 3, 1025)]).contains("past the end of the data fork")
        );
        assert!(fails(vec![run(RunKind::Raw, 0, 3, 1024)]).contains("raw chunk of"));
        assert!(
            fails(vec![run(
                RunKind::Packed(crate::codec::Codec::Zlib),
                0,
                1 << 40,
                10
            )])
            .contains("at most")
        );
    }
}
