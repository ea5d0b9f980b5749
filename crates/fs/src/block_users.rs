//! The users of allocation blocks of HFS and HFS+: overlaps, and comparison with the bitmap in both
//! directions.

use std::fmt;

use crate::bitmap::set_high_bits;
use crate::check_report::{Report, wrong};
use crate::extent_device::ExtentDevice;
use bandsaw_core::device::BlockDevice;
use bandsaw_core::error::Subject;
use bandsaw_core::progress::Progress;
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Result};

/// Bytes of the bitmap read at a time.
const PIECE: usize = 1 << 20;

/// The use of a run of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockUse {
    /// The volume headers.
    Header,
    /// One of the volume's own files.
    Special,
    /// The data fork of an object.
    Data,
    /// The resource fork of an object.
    Resource,
    /// An extended attribute of an object.
    Attribute,
}

/// A run of blocks and its user.
#[derive(Debug, Clone, Copy)]
struct BlockClaim {
    start: u32,
    count: u32,
    /// Number of the object.
    id: u32,
    purpose: BlockUse,
}

impl BlockClaim {
    fn end(&self) -> u64 {
        u64::from(self.start) + u64::from(self.count)
    }

    /// Returns the object in the catalog that uses the blocks; `None` for the volume's own files.
    fn object(&self) -> Option<Subject> {
        let is_own = matches!(self.purpose, BlockUse::Header | BlockUse::Special);
        (!is_own).then(|| Subject::Number(self.id.into()))
    }
}

impl fmt::Display for BlockClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.purpose {
            BlockUse::Header => f.write_str("the volume header"),
            BlockUse::Special => write!(f, "the volume's file {}", self.id),
            BlockUse::Data => write!(f, "the data fork of file {}", self.id),
            BlockUse::Resource => write!(f, "the resource fork of file {}", self.id),
            BlockUse::Attribute => write!(f, "an attribute of object {}", self.id),
        }
    }
}

/// All used blocks.
#[derive(Debug)]
pub(crate) struct BlockUsers {
    /// The layer in findings.
    layer: &'static str,
    claims: Vec<BlockClaim>,
}

impl BlockUsers {
    pub(crate) fn new(layer: &'static str) -> Self {
        Self {
            layer,
            claims: Vec::new(),
        }
    }

    /// Records that an object uses `count` blocks from `start` on, which must be within the volume.
    pub(crate) fn claim(&mut self, (start, count): (u32, u32), id: u32, purpose: BlockUse) {
        if count > 0 {
            self.claims.push(BlockClaim {
                start,
                count,
                id,
                purpose,
            });
        }
    }

    /// Reports blocks with two users; returns the used runs in ascending order, adjacent ones
    /// merged.
    pub(crate) fn finish(mut self, report: &mut Report) -> Vec<(u64, u64)> {
        self.claims
            .sort_unstable_by_key(|claim| (claim.start, claim.count));
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut furthest: Option<BlockClaim> = None;
        for claim in self.claims {
            let start = u64::from(claim.start);
            if let Some(before) = furthest.filter(|before| before.end() > start) {
                let last = before.end().min(claim.end()) - 1;
                let message =
                    format!("blocks {start} to {last} are used by {before} and by {claim}");
                let users = [before, claim].into_iter().filter_map(|user| user.object());
                report.damage(users.fold(wrong(self.layer, message), Error::about));
            }
            if furthest.is_none_or(|before| claim.end() > before.end()) {
                furthest = Some(claim);
            }
            match runs.last_mut() {
                Some((_, end)) if *end >= start => *end = claim.end().max(*end),
                _ => runs.push((start, claim.end())),
            }
        }
        runs
    }
}

/// Numbers of blocks in a bitmap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BitmapTotals {
    /// Blocks that it marks free.
    pub(crate) free: u32,
    /// Blocks that it marks used, and that nothing uses.
    pub(crate) unowned: u64,
}

/// Compares the bitmap in `file` with the used runs; `None` if it is too short. `layer` is that of the
/// findings.
pub(crate) fn check_bitmap(
    layer: &'static str,
    file: &ExtentDevice,
    total_blocks: u32,
    runs: &[(u64, u64)],
    report: &mut Report,
    progress: &dyn Progress,
) -> Result<Option<BitmapTotals>> {
    let needed = u64::from(total_blocks).div_ceil(8);
    if file.len() < needed {
        let message = format!(
            "the bitmap needs {needed} bytes for {total_blocks} blocks, but has {}",
            file.len()
        );
        report.damage(wrong(layer, message));
        return Ok(None);
    }
    progress.stage("check the bitmap", needed);
    let mut differences = BitmapDifferences::new(layer);
    let (mut at, mut used, mut runs) = (0, 0_u64, runs);
    let mut found = vec![0; PIECE.min(to_usize(needed))];
    let mut expected = vec![0; found.len()];
    while at < needed {
        progress.check()?;
        let len = found.len().min(to_usize(needed - at));
        let blocks = at * 8..((at + len as u64) * 8).min(total_blocks.into());
        file.read_at(at, &mut found[..len])?;
        // Bits past the last block are ignored.
        if blocks.end < (at + len as u64) * 8 {
            found[len - 1] &= !(0xFF_u8.checked_shr(narrow(blocks.end % 8)).unwrap_or(0));
        }
        expected[..len].fill(0);
        while let Some((&(start, end), rest)) = runs.split_first() {
            let within =
                |block: u64| to_usize(block.clamp(blocks.start, blocks.end) - blocks.start);
            set_high_bits(&mut expected[..len], within(start)..within(end));
            if end > blocks.end {
                break;
            }
            runs = rest;
        }
        used += found[..len]
            .iter()
            .map(|byte| u64::from(byte.count_ones()))
            .sum::<u64>();
        differences.compare(at * 8, &found[..len], &expected[..len], report);
        at += len as u64;
        progress.advance(len as u64);
    }
    let unowned = differences.leaked_total;
    differences.end(report);
    let free = narrow(u64::from(total_blocks).saturating_sub(used));
    Ok(Some(BitmapTotals { free, unowned }))
}

/// Runs of blocks whose bit is wrong.
#[derive(Debug)]
struct BitmapDifferences {
    layer: &'static str,
    /// The present run of blocks that are used, but free in the bitmap.
    lost: Option<(u64, u64)>,
    /// Number of blocks that are free, but used in the bitmap.
    leaked_total: u64,
    leaked_first: Option<u64>,
}

impl BitmapDifferences {
    fn new(layer: &'static str) -> Self {
        Self {
            layer,
            lost: None,
            leaked_total: 0,
            leaked_first: None,
        }
    }

    fn compare(&mut self, base: u64, found: &[u8], expected: &[u8], report: &mut Report) {
        if found == expected {
            return;
        }
        let layer = self.layer;
        for (index, (found, expected)) in found
            .iter()
            .zip(expected)
            .enumerate()
            .filter(|(_, (found, expected))| found != expected)
        {
            for bit in 0..8 {
                let (found, expected) = (found & (0x80 >> bit) != 0, expected & (0x80 >> bit) != 0);
                let block = base + index as u64 * 8 + bit;
                match (found, expected) {
                    (false, true) => extend(&mut self.lost, block, report, |run, report| {
                        report.damage(lost(layer, run))
                    }),
                    (true, false) => {
                        self.leaked_first.get_or_insert(block);
                        self.leaked_total += 1;
                    }
                    _ => {}
                }
            }
        }
    }

    fn end(self, report: &mut Report) {
        if let Some(run) = self.lost {
            report.damage(lost(self.layer, run));
        }
        if let Some(first) = self.leaked_first {
            let message = format!(
                "{} blocks are marked as used, but nothing uses them; the first is block {first}",
                self.leaked_total
            );
            report.warning(wrong(self.layer, message));
        }
    }
}

fn lost(layer: &'static str, (start, end): (u64, u64)) -> Error {
    wrong(
        layer,
        format!(
            "blocks {start} to {} are in use, but marked as free",
            end - 1
        ),
    )
}

/// Extends `run` by `block`, or passes it to `done` and begins another.
fn extend(
    run: &mut Option<(u64, u64)>,
    block: u64,
    report: &mut Report,
    done: impl Fn((u64, u64), &mut Report),
) {
    match run {
        Some((_, end)) if *end == block => *end += 1,
        _ => {
            if let Some(before) = run.replace((block, block + 1)) {
                done(before, report);
            }
        }
    }
}
