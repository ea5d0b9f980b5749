//! A free map of blocks, or clusters, that is read on demand: the common part of the file systems that are
//! not Apple's.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use crate::bitmap::{count_clear, run_at};
use crate::free::{FreeMap, free_blocks};
use bandsaw_core::size::to_usize;
use bandsaw_core::sync::Mutex;
use bandsaw_core::{Error, Kind, Result};

/// The layout of the blocks. The fields were checked against the device: the last block is within
/// it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockMap {
    /// Offset of block 0 of the map on the volume, in bytes.
    pub(crate) start: u64,
    /// Block size in bytes.
    pub(crate) block_size: u64,
    /// Number of blocks of the map.
    pub(crate) blocks: u64,
    /// Number of blocks of a piece of the map, of which the last may have fewer. Not 0, and a
    /// multiple of 8.
    pub(crate) per_piece: u64,
}

/// A piece of a map.
#[derive(Debug)]
pub(crate) enum MapEntry {
    /// All of its blocks are used, or their state is unknown.
    Used,
    /// A bit for each block, set if it is used; the first block is the lowest bit of the first
    /// byte.
    Bits(Vec<u8>),
}

/// The format-specific access to a map.
pub(crate) trait MapReader: fmt::Debug + Send + Sync {
    /// Reads piece `index` of the map, which has `count` blocks. [`MapEntry::Bits`] has at least as
    /// many bits.
    fn piece(&self, index: u64, count: usize) -> Result<MapEntry>;

    /// Checks the plausibility of the map: counts, and the blocks of the volume's own structures,
    /// which must be used.
    fn check(&self, map: &BlockFreeMap) -> Result<()>;
}

/// The free map of a volume.
#[derive(Debug)]
pub struct BlockFreeMap {
    layer: &'static str,
    geometry: BlockMap,
    pieces: Box<dyn MapReader>,
    /// Reason if the volume is not clean.
    disorder: Option<Cow<'static, str>>,
    /// The piece read last.
    kept: Mutex<Option<(u64, MapEntry)>>,
}

impl BlockFreeMap {
    pub(crate) fn new(
        layer: &'static str,
        geometry: BlockMap,
        pieces: impl MapReader + 'static,
        disorder: Option<Cow<'static, str>>,
    ) -> Self {
        Self {
            layer,
            geometry,
            pieces: Box::new(pieces),
            disorder,
            kept: Mutex::default(),
        }
    }

    /// Returns the map after checking that the volume is clean and the map plausible.
    ///
    /// # Errors
    ///
    /// [`Kind::Conflict`] for a volume that is not clean, [`Kind::Corrupt`] for a map that is
    /// wrong.
    pub fn trusted(self) -> Result<Self> {
        if let Some(why) = &self.disorder {
            let message = format!(
                "{why}; free space is skipped: mount and unmount it where it was last used, or \
                 check it there"
            );
            return Err(Error::conflict(self.layer, message));
        }
        self.pieces.check(&self)?;
        Ok(self)
    }

    /// Returns the end of the last block of the map on the volume, in bytes.
    pub fn end(&self) -> u64 {
        let BlockMap {
            start,
            block_size,
            blocks,
            ..
        } = self.geometry;
        start.saturating_add(blocks.saturating_mul(block_size))
    }

    /// Returns the free space in bytes. Reads all of the map.
    pub fn free(&self) -> Result<u64> {
        let mut free = 0;
        for index in 0..self.geometry.blocks.div_ceil(self.geometry.per_piece) {
            let count = self.blocks_in(index);
            if let MapEntry::Bits(bits) = self.pieces.piece(index, count)? {
                free += count_clear(&bits, count) as u64 * self.geometry.block_size;
            }
        }
        Ok(free)
    }

    /// Fails if one of `count` blocks from `first`, which belong to `what`, is free in the map or
    /// outside the volume.
    pub(crate) fn check_used(&self, first: u64, count: u64, what: &str) -> Result<()> {
        let (mut block, end) = (first, first.saturating_add(count));
        if end > self.geometry.blocks {
            let message = format!(
                "the {what} ends with block {end}, past the end of the volume ({})",
                self.geometry.blocks
            );
            return Err(Error::new(Kind::Corrupt, self.layer, message));
        }
        while block < end {
            let (used, until) = self.run_at(block)?;
            if !used {
                let at = self.offset(block);
                return Err(Error::corrupt(
                    self.layer,
                    at,
                    format!("a part of the {what} is marked as free"),
                ));
            }
            block = until;
        }
        Ok(())
    }

    /// Returns the number of blocks of piece `index`. It fits, as the bits are in memory.
    fn blocks_in(&self, index: u64) -> usize {
        to_usize(
            (self.geometry.blocks - index * self.geometry.per_piece).min(self.geometry.per_piece),
        )
    }

    /// Returns true if `block`, which must be in the map, is used, and the first block after it for
    /// which that may differ.
    fn run_at(&self, block: u64) -> Result<(bool, u64)> {
        let index = block / self.geometry.per_piece;
        let (first, count) = (index * self.geometry.per_piece, self.blocks_in(index));
        let mut kept = self.kept.lock();
        let piece = match &mut *kept {
            Some((number, piece)) if *number == index => piece,
            other => &mut other.insert((index, self.pieces.piece(index, count)?)).1,
        };
        let (used, until) = match piece {
            MapEntry::Used => (true, count),
            MapEntry::Bits(bits) => run_at(bits, to_usize(block - first), count),
        };
        Ok((used, first + until as u64))
    }

    fn offset(&self, block: u64) -> u64 {
        self.geometry.start + block * self.geometry.block_size
    }
}

impl FreeMap for BlockFreeMap {
    fn is_in_order(&self) -> bool {
        self.disorder.is_none()
    }

    fn free_from(&self, at: u64) -> Result<Option<Range<u64>>> {
        let first = at.saturating_sub(self.geometry.start) / self.geometry.block_size;
        let found = free_blocks(first, self.geometry.blocks, |block| self.run_at(block))?;
        Ok(found.map(|run| self.offset(run.start).max(at)..self.offset(run.end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FreeMapExt;

    /// Pieces of 16 blocks in turn: all used, every other block free, all free.
    #[derive(Debug)]
    struct Striped;

    impl MapReader for Striped {
        fn piece(&self, index: u64, count: usize) -> Result<MapEntry> {
            assert_eq!(count, if index == 3 { 5 } else { 16 });
            Ok(match index % 3 {
                0 => MapEntry::Used,
                1 => MapEntry::Bits(vec![0x55; 2]),
                _ => MapEntry::Bits(vec![0; 2]),
            })
        }

        fn check(&self, map: &BlockFreeMap) -> Result<()> {
            map.check_used(50, 3, "test")
        }
    }

    fn striped(disorder: Option<&'static str>) -> BlockFreeMap {
        let geometry = BlockMap {
            start: 100,
            block_size: 10,
            blocks: 53,
            per_piece: 16,
        };
        BlockFreeMap::new("test", geometry, Striped, disorder.map(Cow::Borrowed))
    }

    #[test]
    fn runs_go_over_pieces() {
        let map = striped(None).trusted().unwrap();
        let runs: Vec<_> = map.free_runs(0..u64::MAX).map(Result::unwrap).collect();
        let mut expected: Vec<_> = (0..7)
            .map(|pair| 270 + 20 * pair..280 + 20 * pair)
            .collect();
        expected.push(410..580);
        assert_eq!(runs, expected);
        assert_eq!(map.free().unwrap(), 240);
        assert_eq!(map.free_from(415).unwrap(), Some(415..580));
        assert_eq!(map.free_from(630).unwrap(), None);
        assert_eq!(map.free_from(u64::MAX).unwrap(), None);
    }

    #[test]
    fn blocks_that_must_be_in_use_are_checked() {
        let map = striped(None);
        assert!(map.check_used(0, 17, "thing").is_ok());
        assert_eq!(
            map.check_used(0, 18, "thing").unwrap_err().kind(),
            Kind::Corrupt
        );
        assert!(
            map.check_used(52, 2, "thing")
                .unwrap_err()
                .message()
                .contains("53")
        );
        assert!(map.check_used(3, u64::MAX, "thing").is_err());
        let error = striped(Some("was in use")).trusted().unwrap_err();
        assert!(
            error.kind() == Kind::Conflict && error.message().starts_with("was in use; "),
            "{error}"
        );
    }
}
