//! The allocation bitmap, and the choice of free blocks (§5, §4.1).

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use super::LAYER;
use super::reserved::{ForkId, Reservations};
use crate::hfsplus::extents::ForkDevice;
use crate::hfsplus::layout::{AllocBlock, Extent};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Kind, Result};

/// Bytes of the bitmap read at a time in the search for free blocks: initially, and at most.
const PIECES: Range<u32> = 128..64 << 10;
/// Maximum number of extents for one request if no single run is large enough.
const MAX_PIECES: usize = 64;
/// Number of blocks searched for a run with room for a growing file.
const AHEAD_WINDOW: u32 = 8 * PIECES.end;

/// The allocation file.
#[derive(Debug)]
pub(super) struct Bitmap {
    file: ForkDevice,
    /// Number of blocks of the volume.
    total: u32,
    /// Blocks from here on are not allocated.
    ceiling: u32,
    /// Blocks freed since the last commit, from start to end. They must not be reused, because a
    /// crash would restore their former contents.
    held: BTreeMap<u32, u32>,
    /// Blocks freed by the current operation.
    freed: Vec<Extent>,
    /// Free blocks reserved for growing forks.
    reserved: Reservations,
}

/// The treatment of blocks that already have the state to be recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeated {
    Refused,
    Accepted,
}

impl Bitmap {
    /// Creates the bitmap in `file` for a volume of `total` blocks.
    pub(super) fn new(file: ForkDevice, total: u32) -> Result<Self> {
        if file.len() * 8 < total.into() {
            let message = format!(
                "the bitmap has {} bytes, too few for the {total} blocks of the volume",
                file.len()
            );
            return Err(Error::new(Kind::Corrupt, LAYER, message).named("allocation file"));
        }
        Ok(Self {
            file,
            total,
            ceiling: total,
            held: BTreeMap::new(),
            freed: Vec::new(),
            reserved: Reservations::default(),
        })
    }

    /// Returns the file that contains the bits.
    pub(super) fn file(&self) -> &ForkDevice {
        &self.file
    }

    /// Switches to `file`, which has the same bits, for a volume of `total` blocks, and removes the
    /// ceiling.
    pub(super) fn go_over(&mut self, file: ForkDevice, total: u32) {
        (self.file, self.total, self.ceiling) = (file, total, total);
    }

    /// Prevents allocation of blocks from `ceiling` on.
    pub(super) fn set_ceiling(&mut self, ceiling: u32) {
        self.ceiling = ceiling.min(self.total);
    }

    /// Returns true if a ceiling is set.
    pub(super) fn has_ceiling(&self) -> bool {
        self.ceiling < self.total
    }

    /// Returns the number of blocks of `range` that are not available.
    pub(super) fn used_in(&self, range: Range<u32>) -> Result<u32> {
        let mut used = range.end.saturating_sub(range.start);
        self.free_runs(range, u32::MAX, &mut |run| {
            used -= run.count;
            ControlFlow::Continue(())
        })?;
        Ok(used)
    }

    /// Commits the blocks freed by the current operation to the list of held blocks.
    pub(super) fn accept(&mut self) {
        for extent in std::mem::take(&mut self.freed) {
            self.hold(extent);
        }
    }

    /// Rolls back the list of blocks freed by the current operation.
    pub(super) fn rollback(&mut self) {
        self.freed.clear();
    }

    /// Releases held blocks after a commit has made it durable that they are free, and returns
    /// them, from start to end. From now on they can be allocated.
    pub(super) fn release(&mut self) -> BTreeMap<u32, u32> {
        std::mem::take(&mut self.held)
    }

    /// Returns true if a commit would make blocks available.
    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Drops the reservation of a fork.
    pub(super) fn give_up(&mut self, owner: ForkId) {
        self.reserved.give_up(owner);
    }

    /// Drops all reservations.
    pub(super) fn give_up_all(&mut self) {
        self.reserved.clear();
    }

    /// Allocates `wanted` contiguous blocks for a fork that grows in small steps, and reserves up
    /// to `ahead` blocks after them. Uses the blocks after `end`, where the fork ends, if they are
    /// free, otherwise a run with room for all that is near that block or `near`. Returns `None` if
    /// there is none.
    pub(super) fn allocate_ahead(
        &mut self,
        owner: ForkId,
        wanted: u32,
        ahead: u32,
        end: u32,
        near: u32,
    ) -> Result<Option<Extent>> {
        let most = wanted.saturating_add(ahead);
        let mut found = None;
        for from in [end, near] {
            let window =
                from.min(self.ceiling)..from.saturating_add(AHEAD_WINDOW).min(self.ceiling);
            self.open_runs(window, most, Some(owner), &mut |run| {
                if run.count >= most || run.start.0 == end && run.count >= wanted {
                    found = Some(run);
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            if found.is_some() {
                break;
            }
        }
        let Some(run) = found else { return Ok(None) };
        let taken = Extent {
            count: wanted,
            ..run
        };
        self.mark(taken, true)?;
        let behind = taken.start.0 + wanted;
        self.reserved
            .reserve(owner, behind..behind + (run.count - wanted).min(ahead));
        Ok(Some(taken))
    }

    /// Allocates `wanted` blocks: the first sufficient run at or after `near`, otherwise few
    /// extents. The length of each is a multiple of `grain` blocks. The total may be less than
    /// `wanted` if the free space is very fragmented.
    pub(super) fn allocate(&mut self, wanted: u32, grain: u32, near: u32) -> Result<Vec<Extent>> {
        let near = if near < self.ceiling { near } else { 0 };
        let (mut whole, mut pieces) = self.find(wanted, grain, near)?;
        if whole.is_none() && !self.reserved.is_empty() {
            // Use the reserved blocks, because this request needs them.
            self.reserved.clear();
            (whole, pieces) = self.find(wanted, grain, near)?;
        }
        let mut taken: Vec<Extent> = Vec::new();
        let mut missing = wanted;
        pieces.sort_unstable_by_key(|extent| std::cmp::Reverse(extent.count));
        for piece in whole
            .into_iter()
            .chain(pieces.into_iter().filter(|_| whole.is_none()))
        {
            let count = piece.count.min(missing);
            if count > 0 {
                taken.push(Extent { count, ..piece });
            }
            missing -= count;
        }
        taken.sort_unstable_by_key(|extent| extent.start);
        taken
            .iter()
            .try_for_each(|extent| self.mark(*extent, true))?;
        Ok(taken)
    }

    /// Returns the first run of `wanted` blocks at or after `near`, and the largest runs in case
    /// there is none.
    fn find(&self, wanted: u32, grain: u32, near: u32) -> Result<(Option<Extent>, Vec<Extent>)> {
        let mut whole = None;
        let mut largest: Vec<Extent> = Vec::new();
        for range in [near..self.ceiling, 0..near] {
            self.open_runs(range, wanted, None, &mut |run| {
                if run.count >= wanted {
                    whole = Some(Extent {
                        count: wanted,
                        ..run
                    });
                    return ControlFlow::Break(());
                }
                keep_largest(
                    &mut largest,
                    Extent {
                        count: run.count - run.count % grain,
                        ..run
                    },
                );
                ControlFlow::Continue(())
            })?;
            if whole.is_some() {
                break;
            }
        }
        Ok((whole, largest))
    }

    /// Returns the last free run of `count` blocks without allocating it.
    pub(super) fn find_last(&self, count: u32) -> Result<Option<Extent>> {
        let mut end = self.ceiling;
        let mut window = count.max(8 * PIECES.end);
        while end > 0 {
            let start = end.saturating_sub(window);
            let mut last = None;
            self.free_runs(start..end, u32::MAX, &mut |run| {
                if run.count >= count {
                    let first = run.start.0 + run.count - count;
                    last = Some(Extent {
                        start: AllocBlock(first),
                        count,
                    });
                }
                ControlFlow::Continue(())
            })?;
            if last.is_some() || start == 0 {
                return Ok(last);
            }
            // The next window overlaps this one, because a run may extend across the boundary.
            (end, window) = ((start + count).min(end - 1), window.saturating_mul(2));
        }
        Ok(None)
    }

    /// Frees blocks. They can be allocated again after the next commit.
    pub(super) fn free(&mut self, extent: Extent) -> Result<()> {
        self.mark(extent, false)?;
        self.freed.push(extent);
        Ok(())
    }

    /// Sets or clears the bits of blocks. Fails if one already has that state.
    pub(super) fn mark(&self, extent: Extent, used: bool) -> Result<()> {
        self.change(extent, used, Repeated::Refused)
    }

    /// Sets or clears the bits of blocks, whatever their state.
    pub(super) fn set(&self, extent: Extent, used: bool) -> Result<()> {
        self.change(extent, used, Repeated::Accepted)
    }

    fn change(&self, extent: Extent, used: bool, repeated: Repeated) -> Result<()> {
        let end = u32::try_from(extent.end())
            .ok()
            .filter(|&end| end <= self.total);
        let end = end.ok_or_else(|| {
            Error::new(
                Kind::Corrupt,
                LAYER,
                format!("block {} is past the end of the volume", extent.start),
            )
        })?;
        let mut at = extent.start.0;
        let mut piece = vec![0; (extent.count / 8 + 2).min(PIECES.end) as usize];
        while at < end {
            let first = at / 8;
            let length = (end.div_ceil(8) - first).min(narrow(piece.len()));
            let piece = &mut piece[..length as usize];
            self.file.read_at(first.into(), piece)?;
            for (byte, bits) in (first..).zip(piece.iter_mut()) {
                let block = 8 * byte;
                let mask = bit_mask(at.max(block) - block, (end - block).min(8));
                let expected = if used { 0 } else { mask };
                if repeated == Repeated::Refused && *bits & mask != expected {
                    let message = format!(
                        "a block from {block} to {} is already {} in the bitmap; the volume needs \
                         repair",
                        block | 7,
                        if used { "used" } else { "free" }
                    );
                    return Err(Error::new(Kind::Corrupt, LAYER, message).named("allocation file"));
                }
                *bits = if used { *bits | mask } else { *bits & !mask };
            }
            self.file.overwrite(first.into(), piece)?;
            at = first_block(first + length);
        }
        Ok(())
    }

    /// Passes the runs of available blocks in `range` to `each` until it breaks. A run of at least
    /// `enough` blocks may be reported in parts, to avoid the search for its end.
    fn free_runs(
        &self,
        range: Range<u32>,
        enough: u32,
        each: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut at = range.start;
        let mut open: Option<u32> = None;
        let mut size = PIECES.start;
        let mut piece = Vec::new();
        while at < range.end {
            let first = at / 8;
            let length = (range.end.div_ceil(8) - first).min(size);
            piece.resize(length as usize, 0);
            self.file.read_at(first.into(), &mut piece)?;
            let end = range.end.min(first_block(first + length));
            while at < end {
                let (used, until) = run_in(&piece, 8 * first, at, end);
                match (used, open) {
                    (false, None) => open = Some(at),
                    (true, Some(start)) => {
                        open = None;
                        if self.each_unreserved(start..at, each).is_break() {
                            return Ok(());
                        }
                    }
                    _ => {}
                }
                at = until;
            }
            if let Some(start) = open.filter(|start| at - start >= enough) {
                open = Some(at);
                if self.each_unreserved(start..at, each).is_break() {
                    return Ok(());
                }
            }
            size = (4 * size).min(PIECES.end);
        }
        if let Some(start) = open.filter(|start| *start < range.end) {
            let _ = self.each_unreserved(start..range.end, each);
        }
        Ok(())
    }

    /// Passes runs of available blocks to `each`, excluding blocks reserved for forks other than
    /// `owner`.
    fn open_runs(
        &self,
        range: Range<u32>,
        enough: u32,
        owner: Option<ForkId>,
        each: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        self.free_runs(range, enough, &mut |run| {
            self.reserved.around(run, owner, each)
        })
    }

    /// Passes the parts of a free run that are not held to `each`.
    fn each_unreserved(
        &self,
        run: Range<u32>,
        each: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut blocked: Vec<Range<u32>> = Vec::new();
        let before = self
            .held
            .range(..run.start)
            .next_back()
            .filter(|(_, end)| **end > run.start);
        blocked.extend(
            before
                .into_iter()
                .chain(self.held.range(run.clone()))
                .map(|(start, end)| *start..*end),
        );
        let freed = self
            .freed
            .iter()
            .map(|extent| extent.start.0..extent.start.0 + extent.count);
        blocked.extend(freed.filter(|freed| freed.start < run.end && freed.end > run.start));
        blocked.sort_unstable_by_key(|range| range.start);
        let mut at = run.start;
        for range in blocked.into_iter().chain(std::iter::once(run.end..run.end)) {
            if range.start > at {
                each(Extent {
                    start: AllocBlock(at),
                    count: range.start - at,
                })?;
            }
            at = at.max(range.end);
        }
        ControlFlow::Continue(())
    }

    fn hold(&mut self, extent: Extent) {
        let (mut start, mut end) = (extent.start.0, extent.start.0 + extent.count);
        if let Some((&before, &until)) = self.held.range(..=start).next_back()
            && until >= start
        {
            (start, end) = (before, end.max(until));
        }
        while let Some((&next, &until)) = self.held.range(start..=end).next() {
            self.held.remove(&next);
            end = end.max(until);
        }
        self.held.insert(start, end);
    }
}

/// Keeps the [`MAX_PIECES`] largest runs.
fn keep_largest(largest: &mut Vec<Extent>, run: Extent) {
    if run.count == 0 {
        return;
    }
    if largest.len() < MAX_PIECES {
        largest.push(run);
    } else if let Some(smallest) = largest.iter_mut().min_by_key(|extent| extent.count)
        && smallest.count < run.count
    {
        *smallest = run;
    }
}

/// Returns the first block of a byte of the bitmap; saturates past the last byte that a volume may
/// have.
fn first_block(byte: u32) -> u32 {
    byte.saturating_mul(8)
}

/// Returns a mask of the bits `from..to` of a byte, counted from the most significant one.
fn bit_mask(from: u32, to: u32) -> u8 {
    let ones = |count: u32| !0xFF_u8.checked_shr(count).unwrap_or(0);
    ones(to) & !ones(from)
}

/// Returns true if the block at `at` is used, and the end (at most `end`) of the run of blocks in
/// the same state. `base` is the first block of `piece`.
pub(in crate::hfsplus) fn run_in(piece: &[u8], base: u32, at: u32, end: u32) -> (bool, u32) {
    let byte = |block: u32| piece[((block - base) / 8) as usize];
    let used = byte(at) & (0x80 >> (at % 8)) != 0;
    let (whole, flip) = if used { (0xFF, 0) } else { (0, 0xFF) };
    let mut next = at;
    while next < end {
        if next.is_multiple_of(8) && byte(next) == whole {
            next = next.saturating_add(8);
            continue;
        }
        let same = ((byte(next) ^ flip) << (next % 8))
            .leading_ones()
            .min(8 - next % 8);
        next = next.saturating_add(same);
        if !next.is_multiple_of(8) || same == 0 {
            break;
        }
    }
    (used, next.min(end))
}

#[cfg(test)]
mod tests;
