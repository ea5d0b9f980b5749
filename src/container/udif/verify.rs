//! Verification of the stored checksums: of each table, of all tables, and of the data fork.
//! Source: docs/formats/udif.md §5.

use std::ops::Range;

use crc32fast::Hasher;
use rayon::prelude::*;

use super::contents::ChunkReader;
use super::layout::{Checksum, RunKind, Table};
use super::resources::BLOCK_TABLE;
use super::set::FilePart;
use super::{BlockDevice, BlockDeviceExt, LAYER, Udif};
use crate::container::SECTOR;
use crate::device;
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Kind, Result};

/// A stored checksum and the computed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksumResult {
    /// Subject of the checksum: a table's name, `tables` or `data fork`.
    pub of: String,
    /// The stored checksum.
    pub stored: Checksum,
    /// The computed checksum, if its type is known.
    pub computed: Option<u32>,
    /// The bytes of the disk that it covers, if it is that of an area.
    pub area: Option<Range<u64>>,
}

impl ChecksumResult {
    /// Returns true if both are equal; `None` if none is stored, or its type is not verified.
    pub fn agrees(&self) -> Option<bool> {
        match (self.stored, self.computed) {
            (Checksum::Crc32(stored), Some(computed)) => Some(stored == computed),
            _ => None,
        }
    }

    /// Returns the error about a checksum that differs.
    pub fn mismatch(&self) -> Option<Error> {
        let (Checksum::Crc32(stored), Some(computed)) = (self.stored, self.computed) else {
            return None;
        };
        let of = match &self.area {
            Some(area) => described(&self.of, area),
            None => format!("the {}", self.of),
        };
        let message = format!(
            "checksum mismatch of {of}: computed {computed:08x}, stored \
                               {stored:08x}"
        );
        let error = Error::new(Kind::Corrupt, LAYER, message);
        (stored != computed).then_some(error)
    }
}

/// Returns the name of an area with its range.
fn described(name: &str, area: &Range<u64>) -> String {
    format!(
        "{name:?} (bytes {} to {} of the disk)",
        area.start, area.end
    )
}

fn is_known(checksum: Checksum) -> bool {
    matches!(checksum, Checksum::Crc32(_))
}

impl Udif {
    /// Verifies every stored checksum, decoding the whole image on all cores. Fails if a chunk does
    /// not decode.
    pub fn verify(&self, progress: &dyn Progress) -> Result<Vec<ChecksumResult>> {
        self.check_coverage()?;
        let mut verdicts = vec![self.verify_tables_sum()];
        verdicts.extend(self.verify_stored(progress)?);
        verdicts.extend(self.verify_areas(progress)?);
        Ok(verdicts)
    }

    /// Verifies the checksums that cover the contents of the disk: those of the areas and of the
    /// tables, and those of the stored data if an area has none. Data that was read while checksums
    /// were [recorded](Self::begin_sums) is not decoded again.
    pub fn verify_contents(&self, progress: &dyn Progress) -> Result<Vec<ChecksumResult>> {
        let mut verdicts = vec![self.verify_tables_sum()];
        if self.tables.iter().any(|table| !is_known(table.checksum)) {
            verdicts.extend(self.verify_stored(progress)?);
        }
        verdicts.extend(self.verify_areas(progress)?);
        Ok(verdicts)
    }

    /// Returns true if the image stores a checksum of a type that is verified.
    pub(crate) fn has_sums(&self) -> bool {
        let tables = self.tables.iter().map(|table| table.checksum);
        let pieces = self.contents.fork.pieces().iter();
        tables
            .chain([self.koly.master_checksum])
            .chain(pieces.map(|piece| piece.checksum))
            .any(is_known)
    }

    /// Begins to record the checksums of all data that is read.
    pub fn begin_sums(&self) {
        self.contents.sums.record(true);
    }

    /// Ends the recording of checksums.
    pub fn end_sums(&self) {
        self.contents.sums.record(false);
    }

    fn verify_areas(&self, progress: &dyn Progress) -> Result<Vec<ChecksumResult>> {
        progress.stage("verify", self.info().len);
        let names = self
            .resources
            .iter()
            .filter(|resource| resource.kind == BLOCK_TABLE)
            .map(|resource| &resource.name);
        let verdict = |(table, name): (&Table, &String)| {
            let start = table.first_sector * SECTOR;
            let area = start..start + table.sector_count * SECTOR;
            let computed = self.contents.table_sum(table, progress);
            let computed = computed.map_err(|error| match error.kind() {
                Kind::Corrupt => {
                    let message = format!("{} is damaged", described(name, &area));
                    Error::corrupt(LAYER, start, message).caused_by(error)
                }
                _ => error,
            })?;
            Ok(ChecksumResult {
                of: name.clone(),
                stored: table.checksum,
                computed: Some(computed),
                area: Some(area),
            })
        };
        self.tables.iter().zip(names).map(verdict).collect()
    }

    /// Checks that the tables cover the disk from the first sector to the last. Gaps read as zeros,
    /// and no checksum would detect them.
    pub(super) fn check_coverage(&self) -> Result<()> {
        let mut areas: Vec<_> = self
            .tables
            .iter()
            .map(|table| (table.first_sector, table.first_sector + table.sector_count))
            .collect();
        areas.sort_unstable();
        areas.push((self.contents.len / SECTOR, u64::MAX));
        let mut covered = 0;
        for (start, end) in areas {
            if start > covered {
                let message = format!(
                    "sectors {covered} to {} of the disk are not in any block table",
                    start - 1
                );
                return Err(Error::corrupt("udif chunk map", covered * SECTOR, message));
            }
            covered = covered.max(end);
        }
        Ok(())
    }

    /// Verifies the checksum of the tables' checksums, which needs no decoding.
    pub(super) fn verify_tables_sum(&self) -> ChecksumResult {
        let mut sum = Hasher::new();
        for table in &self.tables {
            match table.checksum {
                Checksum::Crc32(stored) => sum.update(&stored.to_be_bytes()),
                Checksum::None | Checksum::Other(_) => {}
            }
        }
        ChecksumResult {
            of: "tables".into(),
            stored: self.koly.master_checksum,
            computed: Some(sum.finalize()),
            area: None,
        }
    }

    /// Verifies the checksums of the stored data, one for each file; newer images have none.
    pub fn verify_stored(&self, progress: &dyn Progress) -> Result<Vec<ChecksumResult>> {
        let pieces = (1..).zip(self.contents.fork.pieces());
        pieces
            .map(|(number, piece)| self.verify_piece(number, piece, progress))
            .collect()
    }

    fn verify_piece(
        &self,
        number: u32,
        piece: &FilePart,
        progress: &dyn Progress,
    ) -> Result<ChecksumResult> {
        let of = if piece.name.is_some() {
            format!("data fork of part {number}")
        } else {
            "data fork".into()
        };
        let stored = piece.checksum;
        if !is_known(stored) {
            return Ok(ChecksumResult {
                of,
                stored,
                computed: None,
                area: None,
            });
        }
        let mut sum = Hasher::new();
        let len = piece.data.info().len;
        for at in (0..len).step_by(PIECE) {
            progress.check()?;
            sum.update(&piece.data.read_vec(at, PIECE.min(to_usize(len - at)))?);
        }
        Ok(ChecksumResult {
            of,
            stored,
            computed: Some(sum.finalize()),
            area: None,
        })
    }
}

const PIECE: usize = 1 << 20;
/// Number of runs decoded in parallel before their checksums are combined.
const BATCH: usize = 64;

impl ChunkReader {
    /// Computes the checksum of a table's contents: includes zeros, omits space not allocated by
    /// the file system.
    pub(super) fn table_sum(&self, table: &Table, progress: &dyn Progress) -> Result<u32> {
        let mut runs: Vec<_> = table
            .runs
            .iter()
            .filter(|run| run.sector_count > 0 && run.kind != RunKind::Ignore)
            .collect();
        runs.sort_unstable_by_key(|run| run.first_sector);
        let mut sum = Hasher::new();
        for batch in runs.chunks(BATCH) {
            progress.check()?;
            let sums = batch.par_iter().with_max_len(1).map(|run| {
                let len = run.sector_count * SECTOR;
                let sum = match run.kind {
                    RunKind::Zero => zeros(len),
                    _ => self.run_sum((table.first_sector + run.first_sector) * SECTOR, len)?,
                };
                progress.advance(len);
                Ok(sum)
            });
            sums.collect::<Result<Vec<_>>>()?
                .iter()
                .for_each(|part| sum.combine(part));
        }
        Ok(sum.finalize())
    }

    /// Computes the checksum of one stored run.
    fn run_sum(&self, start: u64, len: u64) -> Result<Hasher> {
        let (_, chunk) = self.chunks.at(start).map_err(|_| {
            Error::corrupt(LAYER, start, "this byte of the disk is not in any chunk")
        })?;
        if let Some(sum) = self.sums.of(start..start + len) {
            return Ok(sum);
        }
        let mut sum = Hasher::new();
        if chunk.kind == RunKind::Raw {
            // Raw runs may be long.
            for at in (0..len).step_by(PIECE) {
                sum.update(
                    &self
                        .fork
                        .read_vec(chunk.offset + at, PIECE.min(to_usize(len - at)))?,
                );
            }
        } else {
            let _turn = self.lock_for_large_chunk(chunk);
            let mut plain = device::zeros(to_usize(chunk.len))?;
            self.decode(chunk, &mut plain)?;
            sum.update(&plain);
        }
        Ok(sum)
    }
}

/// Returns the checksum of `len` zeros, by doubling: runs of zeros may be terabytes long.
pub(super) fn zeros(mut len: u64) -> Hasher {
    let mut sum = Hasher::new();
    let mut power = Hasher::new();
    power.update(&[0]);
    while len > 0 {
        if len & 1 == 1 {
            sum.combine(&power);
        }
        power.combine(&power.clone());
        len >>= 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_zeros() {
        for len in [0u64, 1, 2, 3, 511, 4096, 1_000_001] {
            assert_eq!(
                zeros(len).finalize(),
                crc32fast::hash(&vec![0; len as usize]),
                "{len}"
            );
        }
    }
}
