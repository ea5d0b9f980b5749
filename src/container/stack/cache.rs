//! The cache layer, which stores copies of data read from the layers below.

use std::sync::OnceLock;

use super::Stack;
use crate::device::{Access, BlockDevice};
use crate::size::to_usize;
use crate::{Error, Result};

/// The cache of a stack and its state.
#[derive(Debug)]
pub(super) struct Cache {
    /// Its level; the base is level 0.
    level: usize,
    is_filled: bool,
    problem: OnceLock<Error>,
}

impl Cache {
    /// Creates the state of the cache at `level`. With read-only access it is not filled.
    pub(super) fn new(level: usize, access: Access) -> Self {
        Self {
            level,
            is_filled: access == Access::ReadWrite,
            problem: OnceLock::new(),
        }
    }

    /// Returns its level.
    pub(super) fn level(&self) -> usize {
        self.level
    }

    /// Returns true if data of `level`, read from level `from`, is to be cached.
    pub(super) fn is_asked(&self, level: usize, from: usize) -> bool {
        level < self.level && from >= self.level && self.is_filled && self.problem.get().is_none()
    }

    pub(super) fn problem(&self) -> Option<&Error> {
        self.problem.get()
    }

    /// Records an error of the cache. Reads continue without it.
    fn record_failure(&self, result: Result<()>) {
        if let Err(error) = result {
            let _first = self.problem.set(error);
        }
    }

    pub(super) fn flush(&self, device: &dyn BlockDevice) {
        if self.is_filled && self.problem.get().is_none() {
            self.record_failure(device.flush());
        }
    }
}

impl Stack {
    /// Reads data from below the cache and stores the blocks that contain it in the cache. The
    /// layers below never change, so concurrent readers of a block store the same bytes.
    pub(super) fn read_through(&self, cache: &Cache, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Some(layer) = cache
            .level
            .checked_sub(1)
            .and_then(|index| self.layers.get(index))
        else {
            return Ok(());
        };
        let (grain, below) = (layer.grain(), cache.level - 1);
        let keep = |at: u64, bytes: &[u8]| {
            if cache.problem().is_none() {
                cache.record_failure(layer.write_at(at, bytes));
            }
        };
        let pieces = super::write::BlockSplit::of(offset..offset + buf.len() as u64, grain);
        let mut rest = buf;
        for (range, is_whole) in pieces {
            let (part, tail) = rest.split_at_mut(to_usize(range.end - range.start));
            if is_whole {
                self.read(below, range.start, part)?;
                keep(range.start, part);
            } else {
                let start = range.start / grain * grain;
                let mut block = vec![0; to_usize(grain)];
                self.read(below, start, &mut block)?;
                let at = to_usize(range.start - start);
                part.copy_from_slice(&block[at..at + part.len()]);
                keep(start, &block);
            }
            rest = tail;
        }
        Ok(())
    }
}
