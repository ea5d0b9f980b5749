//! Consistency check of the structures of an image. Checksums are checked by
//! [`verify`](super::verify).

use std::collections::BTreeSet;
use std::ops::Range;

use crc32fast::Hasher;

use super::chunks::{Chunk, chunk};
use super::index::{read_resources, read_trailer};
use super::layout::{Checksum, KOLY_SIZE, Koly, RunKind, Segment, Table, koly_field};
use super::resources::{BLOCK_TABLE, Resource};
use super::set::{Fork, SegmentPart};
use super::{LAYER, Udif};
use crate::container::SECTOR;
use crate::problem::{Findings, Problems, Severity};
use crate::progress::Progress;
use crate::{Error, Result};

const TABLE: &str = "udif block table";
const MAP: &str = "udif chunk map";

/// Reports every problem of the image in these files, one file or all parts of a set in order, and
/// returns the disk as far as it is readable. Fails if the image is damaged so much that nothing
/// else can be checked, or if it cannot be read.
pub fn check(
    parts: Vec<SegmentPart>,
    problems: &mut Problems,
    progress: &dyn Progress,
) -> Result<Udif> {
    progress.stage("check", 0);
    let mut findings = Findings::Check(problems, progress);
    let first = parts
        .first()
        .ok_or_else(|| Error::invalid(LAYER, "an image needs at least one part"))?
        .file
        .clone();
    let (_, koly) = read_trailer(&*first)?;
    let at = first.info().len - KOLY_SIZE;
    if koly.segment.count as usize > parts.len() {
        let Segment { number, count, .. } = koly.segment;
        let part = format!("part {number} of an image in {count} files; all parts are required");
        return Err(Error::invalid(LAYER, part));
    }
    check_regions(&koly, at, &mut findings)?;
    let resources = read_resources(&*first, &koly)?;
    let fork = if koly.segment.count > 1 {
        Fork::joined(parts)?
    } else {
        Fork::of_one_file(first.clone(), &koly)?
    };
    let mut walk = ChunkWalk {
        findings,
        fork: &fork,
        koly: &koly,
        trailer: at,
        tables: Vec::new(),
        chunks: Vec::new(),
    };
    walk.tables(&resources)?;
    walk.disk()?;
    walk.storage()?;
    let mut tables = walk.tables;
    // Invalid chunks are left out, so that the rest is readable.
    for (number, run) in walk
        .chunks
        .iter()
        .filter(|placed| placed.is_bad)
        .map(|placed| placed.from)
        .rev()
    {
        tables[number].runs[run].sector_count = 0;
    }
    Udif::of_tables(first, koly, fork, resources, tables)
}

/// Checks that the regions named in the trailer do not overlap.
fn check_regions(koly: &Koly, trailer: u64, findings: &mut Findings<'_>) -> Result<()> {
    let mut regions = [
        ("data fork", &koly.data_fork, koly_field::DATA_FORK),
        (
            "resource fork",
            &koly.resource_fork,
            koly_field::RESOURCE_FORK,
        ),
        ("property list", &koly.xml, koly_field::XML),
        ("code signature", &koly.signature, koly_field::SIGNATURE),
    ];
    regions.sort_by_key(|(_, range, _)| range.start);
    let mut before: Option<(&str, &Range<u64>)> = None;
    for (name, range, field) in regions
        .into_iter()
        .filter(|(_, range, _)| !range.is_empty())
    {
        if let Some((other, _)) = before.filter(|(_, before)| before.end > range.start) {
            let both = format!("the {name} at {} overlaps the {other}", range.start);
            findings.report(
                Severity::Damage,
                Error::corrupt(LAYER, trailer + field, both),
            )?;
        }
        before = Some((name, range));
    }
    if koly.segment.number > koly.segment.count {
        let odd = format!(
            "the trailer records part {} of {} parts",
            koly.segment.number, koly.segment.count
        );
        findings.report(
            Severity::Warning,
            Error::corrupt(LAYER, trailer + koly_field::SEGMENT_NUMBER, odd),
        )?;
    }
    if koly.sector_count == 0 {
        let none = "the trailer has no disk size; the disk ends with its last chunk";
        findings.report(
            Severity::Note,
            Error::corrupt(LAYER, trailer + koly_field::SECTOR_COUNT, none),
        )?;
    }
    Ok(())
}

/// A chunk with the table and the run that describe it.
struct FoundChunk {
    chunk: Chunk,
    from: (usize, usize),
    is_bad: bool,
}

struct ChunkWalk<'a> {
    findings: Findings<'a>,
    koly: &'a Koly,
    fork: &'a Fork,
    /// File offset of the trailer.
    trailer: u64,
    tables: Vec<Table>,
    chunks: Vec<FoundChunk>,
}

impl ChunkWalk<'_> {
    fn report(
        &mut self,
        severity: Severity,
        layer: &'static str,
        at: u64,
        what: String,
    ) -> Result<()> {
        self.findings
            .report(severity, Error::corrupt(layer, at, what))
    }

    fn tables(&mut self, resources: &[Resource]) -> Result<()> {
        let (mut ids, mut sum, mut all) = (BTreeSet::new(), Hasher::new(), true);
        for resource in resources
            .iter()
            .filter(|resource| resource.kind == BLOCK_TABLE)
        {
            self.findings.advance(1)?;
            if !ids.insert(&resource.id) {
                let twice = format!(
                    "two block tables have the number {}; the second is {}",
                    resource.id, resource.name
                );
                self.report(Severity::Warning, TABLE, self.koly.xml.start, twice)?;
            }
            let Some(table) = self
                .findings
                .value_or_damage(Table::parse(&resource.data, &resource.name))?
            else {
                all = false;
                continue;
            };
            if let Checksum::Crc32(stored) = table.checksum {
                sum.update(&stored.to_be_bytes());
            }
            self.table(table, &resource.name)?;
        }
        if ids.is_empty() {
            let none = "the image has no block table, so no data of its disk can be found";
            return Err(Error::corrupt(LAYER, self.koly.xml.start, none));
        }
        match self.koly.master_checksum {
            Checksum::Crc32(stored) if all && stored != sum.clone().finalize() => {
                let differs = format!(
                    "checksum mismatch of the block tables: computed {:08x}, stored {stored:08x}",
                    sum.finalize()
                );
                self.report(
                    Severity::Damage,
                    LAYER,
                    self.trailer + koly_field::MASTER_CHECKSUM,
                    differs,
                )
            }
            Checksum::Other(kind) => self.report(
                Severity::Note,
                LAYER,
                self.trailer + koly_field::MASTER_CHECKSUM,
                format!("unsupported checksum type {kind}: not verified"),
            ),
            _ => Ok(()),
        }
    }

    fn table(&mut self, mut table: Table, name: &str) -> Result<()> {
        let number = self.tables.len();
        let mut covered = Vec::with_capacity(table.runs.len());
        for at in 0..table.runs.len() {
            let run = table.runs[at];
            if run.sector_count == 0 {
                continue;
            }
            covered.push(run.first_sector..run.first_sector + run.sector_count);
            match chunk(&table, &run, self.fork.len()) {
                Ok(chunk) => self.chunks.push(FoundChunk {
                    chunk,
                    from: (number, at),
                    is_bad: false,
                }),
                Err(error) => {
                    table.runs[at].sector_count = 0;
                    self.findings.report(Severity::Damage, error)?;
                }
            }
        }
        self.gaps(&table, name, covered)?;
        self.tables.push(table);
        Ok(())
    }

    /// Reports sectors of a table that no run covers. They read as zeros.
    fn gaps(&mut self, table: &Table, name: &str, mut covered: Vec<Range<u64>>) -> Result<()> {
        covered.sort_unstable_by_key(|run| run.start);
        let end = table.sector_count..table.sector_count;
        let mut reached = 0;
        for run in covered.into_iter().chain([end]) {
            if run.start > reached {
                let gap = format!(
                    "{name}: no run of the table covers {} sectors from sector {reached} on",
                    run.start - reached
                );
                self.report(
                    Severity::Warning,
                    TABLE,
                    (table.first_sector + reached) * SECTOR,
                    gap,
                )?;
            }
            reached = reached.max(run.end);
        }
        Ok(())
    }

    /// Checks the chunks in disk order.
    fn disk(&mut self) -> Result<()> {
        self.chunks
            .sort_unstable_by_key(|placed| placed.chunk.start);
        let end = match self.koly.sector_count {
            0 => u64::MAX,
            sectors => sectors.saturating_mul(SECTOR),
        };
        let mut reached = 0;
        for at in 0..self.chunks.len() {
            let Chunk { start, len, .. } = self.chunks[at].chunk;
            if start < reached {
                self.chunks[at].is_bad = true;
                let twice = format!(
                    "the chunk of {len} bytes from here overlaps another, which ends at {reached}"
                );
                self.report(Severity::Damage, MAP, start, twice)?;
            } else if start + len > end {
                self.chunks[at].is_bad = true;
                let beyond = format!(
                    "the chunk of {len} bytes from here ends past the end of the disk at \
                             {end}"
                );
                self.report(Severity::Damage, MAP, start, beyond)?;
            } else {
                reached = start + len;
            }
        }
        Ok(())
    }

    /// Checks the chunks in file order. Equal chunks may share their data.
    fn storage(&mut self) -> Result<()> {
        let stored =
            |placed: &&FoundChunk| matches!(placed.chunk.kind, RunKind::Raw | RunKind::Packed(_));
        let mut places: Vec<_> = self
            .chunks
            .iter()
            .filter(stored)
            .map(|placed| placed.chunk)
            .collect();
        places.sort_unstable_by_key(|chunk| (chunk.offset, chunk.stored));
        for one in places.iter().filter(|chunk| chunk.stored == 0) {
            let empty = format!(
                "the chunk at byte {} of the disk has no stored data",
                one.start
            );
            self.report(
                Severity::Damage,
                MAP,
                self.fork.part_and_offset(one.offset).1,
                empty,
            )?;
        }
        for pair in places.windows(2) {
            let (one, other) = (pair[0], pair[1]);
            let same = (one.offset, one.stored) == (other.offset, other.stored);
            if one.offset + one.stored > other.offset && !same {
                let both = format!(
                    "the chunks at bytes {} and {} of the disk share bytes of the file",
                    one.start, other.start
                );
                self.report(
                    Severity::Warning,
                    MAP,
                    self.fork.part_and_offset(other.offset).1,
                    both,
                )?;
            }
        }
        Ok(())
    }
}
