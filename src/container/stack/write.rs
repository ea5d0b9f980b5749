//! Writes to the topmost layer. It stores whole blocks, so a partial write of a block that it does
//! not have is completed with the data from below (copy-up); all other writes go directly to it.

use std::ops::Range;

use super::Stack;
use crate::Result;
use crate::device::{AfterDiscard, ExtentKind, is_zero};
use crate::size::to_usize;

/// Maximum number of bytes discarded at a time, because a layer keeps the changes in memory until
/// it can write them.
const STRETCH: u64 = 64 << 30;

/// A range split at block boundaries: a part of the first block, whole blocks, a part of the last.
/// Empty pieces are skipped.
#[derive(Debug)]
pub(super) struct BlockSplit {
    rest: Range<u64>,
    grain: u64,
}

impl BlockSplit {
    pub(super) fn of(range: Range<u64>, grain: u64) -> Self {
        Self { rest: range, grain }
    }
}

impl Iterator for BlockSplit {
    /// The piece, and true if it is whole blocks.
    type Item = (Range<u64>, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let Range { start, end } = self.rest;
        if start >= end {
            return None;
        }
        let (block, last) = (start - start % self.grain, end - end % self.grain);
        let is_whole = block == start && last > start;
        let until = if is_whole {
            last
        } else {
            end.min(block + self.grain)
        };
        self.rest.start = until;
        Some((start..until, is_whole))
    }
}

impl Stack {
    pub(super) fn write(&self, range: Range<u64>, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        for (piece, is_whole) in BlockSplit::of(range, self.top().grain()) {
            let (part, tail) = rest.split_at(to_usize(piece.end - piece.start));
            if is_whole || self.has(&piece)? {
                self.top().write_at(piece.start, part)?;
            } else {
                self.write_padded(&piece, part)?;
            }
            rest = tail;
        }
        Ok(())
    }

    /// Returns true if the topmost layer has the block of `part`. A layer never loses a block.
    fn has(&self, part: &Range<u64>) -> Result<bool> {
        Ok(self.top().extent_at(part.clone())?.kind != ExtentKind::Hole)
    }

    /// Writes a part of a block that the topmost layer did not have before.
    fn write_padded(&self, part: &Range<u64>, bytes: &[u8]) -> Result<()> {
        let (top, grain) = (self.top(), self.top().grain());
        let _same_len = self.resizing.read();
        let _alone = self.padding.exclusive(part.start / grain);
        if self.has(part)? {
            return top.write_at(part.start, bytes);
        }
        let start = part.start / grain * grain;
        let mut block = vec![0; to_usize(grain)];
        self.read(self.top_level() - 1, start, &mut block)?;
        let at = to_usize(part.start - start);
        block[at..at + bytes.len()].copy_from_slice(bytes);
        top.write_at(start, &block)
    }

    /// Makes `range` read as zeros. Does nothing where it reads as zeros already.
    pub(super) fn zero(&self, range: Range<u64>) -> Result<()> {
        for (piece, is_whole) in BlockSplit::of(range, self.top().grain()) {
            if is_whole {
                self.zero_blocks(piece)?;
            } else if self.has(&piece)? {
                self.top().discard(piece, AfterDiscard::Zeros)?;
            } else {
                self.zero_padded(&piece)?;
            }
        }
        Ok(())
    }

    /// Zeros a part of a block that the topmost layer did not have before.
    fn zero_padded(&self, part: &Range<u64>) -> Result<()> {
        let (top, grain) = (self.top(), self.top().grain());
        let _same_len = self.resizing.read();
        let _alone = self.padding.exclusive(part.start / grain);
        if self.has(part)? {
            return top.discard(part.clone(), AfterDiscard::Zeros);
        }
        let start = part.start / grain * grain;
        let mut block = vec![0; to_usize(grain)];
        self.read(self.top_level() - 1, start, &mut block)?;
        let zeros = &mut block[to_usize(part.start - start)..to_usize(part.end - start)];
        if is_zero(zeros) {
            return Ok(());
        }
        zeros.fill(0);
        top.write_at(start, &block)
    }

    /// Zeros whole blocks of the topmost layer. Whole chunks are discarded as far as the range
    /// allows, so that they take no space.
    fn zero_blocks(&self, range: Range<u64>) -> Result<()> {
        let top = self.top();
        let unit = top.info().discard.max(1);
        let mut at = range.start;
        while at < range.end {
            let run = self.locate(self.top_level(), at..range.end)?;
            if run.kind != ExtentKind::Data {
                at = run.end;
                continue;
            }
            let start = (at / unit * unit).max(range.start);
            let end = run
                .end
                .checked_next_multiple_of(unit)
                .unwrap_or(range.end)
                .min(range.end)
                .min(start + STRETCH);
            top.discard(start..end, AfterDiscard::Zeros)?;
            at = end;
        }
        Ok(())
    }

    /// Sets the length of the topmost layer. Data from below in new bytes is hidden.
    pub(super) fn resize(&self, len: u64) -> Result<()> {
        let _alone = self.resizing.write();
        let now = self.top().info().len;
        let hidden = now..self.end_of_data_below(now..len)?;
        self.top().set_len_hiding(len, hidden)
    }

    /// Returns the end of the last data in `range` that is visible from below the topmost layer, or
    /// its start if there is none.
    fn end_of_data_below(&self, range: Range<u64>) -> Result<u64> {
        let (mut at, mut end) = (range.start, range.start);
        while at < range.end {
            let run = self.locate(self.top_level() - 1, at..range.end)?;
            if run.kind == ExtentKind::Data {
                end = run.end;
            }
            at = run.end;
        }
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_blocks() {
        let pieces = |range: Range<u64>| BlockSplit::of(range, 512).collect::<Vec<_>>();
        assert_eq!(pieces(0..0), []);
        assert_eq!(pieces(512..2048), [(512..2048, true)]);
        assert_eq!(pieces(5..9), [(5..9, false)]);
        assert_eq!(pieces(512..600), [(512..600, false)]);
        assert_eq!(pieces(600..1024), [(600..1024, false)]);
        assert_eq!(
            pieces(500..1600),
            [(500..512, false), (512..1536, true), (1536..1600, false)]
        );
        assert_eq!(pieces(500..600), [(500..512, false), (512..600, false)]);
    }
}
