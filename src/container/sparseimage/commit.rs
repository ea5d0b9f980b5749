//! Making changes durable, and reusing the space of discarded bands.
//!
//! Bands in place need only a flush of the file. New labels are written after the data they refer
//! to: data and new nodes, flush, labels and links, flush.
//!
//! A discarded band leaves its slot behind, still with its label. The last band of the file moves
//! to that slot, so that the slots have no gaps and the file can be truncated. With neither label
//! could the band be copied into the slot directly: after a power failure its data would appear as
//! that of the discarded band. So the discarded band first gets a second, empty slot later in the
//! file; of two slots with the same label the later one is valid:
//!
//! ```text
//!   slots      ... 5 ... 9      band 5 was discarded, 9 is the last
//!              ... 5 ... 9 5'   5' holds zeros: from now on band 5 is zeros  flush, label, flush
//!              ... 9 ... 9 5'   9 is copied to the slot of 5, then labeled  flush, label, flush
//!              ... 9            last labels are cleared, file truncated      label, flush
//! ```
//!
//! For a reader that uses the earlier slot, at worst the discarded band has other contents. No
//! reader loses data.

use std::collections::BTreeSet;
use std::ops::Range;

use zerocopy::IntoBytes;
use zerocopy::big_endian::{U32, U64};

use super::SparseImage;
use super::layout::{
    BandIndex, Label, NextRaw, SIZE_AT, SizeRaw, Slot, link_at, slot_at, slots_of,
};
use super::table::Table;
use crate::Result;
use crate::device::units::{HeldUnit, UnitLocks};
use crate::device::{AfterDiscard, regions};
use crate::size::narrow;

/// Limits of the data moved between two flushes, because requests to a band wait while it is moved.
const MOVED_AT_ONCE: u64 = 64 << 20;
const MOVES_AT_ONCE: u64 = 256;

/// A move of the last band of the file to a slot.
struct BandMove<'a> {
    band: BandIndex,
    from: Slot,
    to: Slot,
    /// The discarded band whose label is still in `to`, if any.
    discarded: Option<BandIndex>,
    /// Exclusive locks of the band that moves and of the discarded one.
    _alone: [Option<HeldUnit<&'a UnitLocks>>; 2],
}

impl SparseImage {
    /// Makes all changes before this call durable. The caller must serialize calls and record
    /// failures.
    pub(super) fn commit(&self) -> Result<()> {
        let moves = { !self.table().discarded.is_empty() || !self.table().spare.is_empty() };
        if moves {
            self.compact()?;
        }
        self.trim()?;
        self.publish()
    }

    /// Writes data, then the labels that refer to it.
    fn publish(&self) -> Result<()> {
        self.finish_first_writes();
        let Some(fresh) = self.take_fresh() else {
            return self.file.flush();
        };
        for (at, node) in &fresh.nodes {
            self.file.write_at(*at, node.as_bytes())?;
        }
        self.file.flush()?;
        self.write_labels(&fresh.labels)?;
        self.write_links(fresh.links)?;
        self.file.flush()
    }

    /// Waits for first writes in progress: they have lower slots than some completed ones.
    fn finish_first_writes(&self) {
        let pending: Vec<BandIndex> = self.table().pending.values().copied().collect();
        for band in pending {
            drop(self.units.shared(u64::from(band.0)));
        }
    }

    /// Truncates the part that the file was grown ahead.
    fn trim(&self) -> Result<()> {
        let _tail = self.tail.lock();
        let end = { self.table().end().max(self.table().leftover_end) };
        if self.file.info().len > end {
            self.file.set_len(end, AfterDiscard::Any)
        } else {
            Ok(())
        }
    }

    /// Returns the changes that are not in the file yet.
    fn take_fresh(&self) -> Option<PendingChanges> {
        let mut table = self.table_mut();
        let slots = table.on_disk..table.slots_before_pending();
        if slots.is_empty() {
            return None;
        }
        let nodes = table.nodes_on_disk..Table::nodes_for(slots.end);
        let first_new = first_slot_of(nodes.start);
        let fresh = PendingChanges {
            nodes: nodes
                .clone()
                .map(|node| (table.nodes[node], table.whole_node(node, slots.end)))
                .collect(),
            labels: table.labels(slots.start..slots.end.min(first_new.max(slots.start))),
            links: nodes.start - 1..nodes.end - 1,
        };
        table.on_disk = slots.end;
        table.nodes_on_disk = nodes.end.max(nodes.start);
        Some(fresh)
    }

    /// Writes labels into linked nodes; adjacent labels in one write.
    pub(super) fn write_labels(&self, labels: &[(Slot, Label)]) -> Result<()> {
        let follows = |a: &(Slot, Label), b: &(Slot, Label)| {
            b.0.0 == a.0.0 + 1 && a.0.in_node().0 == b.0.in_node().0
        };
        for run in labels.chunk_by(follows) {
            let (node, within) = run[0].0.in_node();
            let at = self.table().nodes[node] + slot_at(node, within);
            let bytes: Vec<U32> = run.iter().map(|(_, label)| U32::from(*label)).collect();
            self.file.write_at(at, bytes.as_bytes())?;
        }
        Ok(())
    }

    /// Links each of `nodes` to the next one, or the last to none.
    fn write_links(&self, nodes: Range<usize>) -> Result<()> {
        for node in nodes {
            let (at, next) = {
                let table = self.table();
                (
                    table.nodes[node] + link_at(node),
                    table.nodes.get(node + 1).copied().unwrap_or(0),
                )
            };
            self.file.write_at(at, U64::new(next).as_bytes())?;
        }
        Ok(())
    }

    /// Writes the label of a band whose data is in the file already.
    pub(super) fn write_restored(&self, band: BandIndex) -> Result<()> {
        let restored = {
            let table = self.table();
            table
                .bands
                .get(&band)
                .copied()
                .filter(|slot| (slot.0 as usize) < table.on_disk)
        };
        if let Some(slot) = restored {
            self.write_labels(&[(slot, Label::of(band))])?;
        }
        self.publish()
    }

    /// Writes the size of the disk to the header.
    pub(super) fn write_size(&self, sectors: u64) -> Result<()> {
        let next = self.table().link_on_disk();
        self.file
            .write_at(SIZE_AT, SizeRaw::new(sectors, next).as_bytes())?;
        self.file.flush()
    }

    /// Moves the last bands of the file to the slots of discarded bands and truncates the file.
    fn compact(&self) -> Result<()> {
        // Prevents the allocation of slots at the end, which is about to be truncated.
        let _tail = self.tail.lock();
        self.finish_first_writes();
        loop {
            self.cut_tail()?;
            let moves = self.plan();
            if moves.is_empty() {
                return self.empty_the_rest();
            }
            self.run(&moves)?;
        }
    }

    /// Pairs the last bands of the file with the first unused slots. Lent bands, and all bands
    /// before them, stay in place.
    fn plan(&self) -> Vec<BandMove<'_>> {
        let most = (MOVED_AT_ONCE / self.band_size).clamp(1, MOVES_AT_ONCE) as usize;
        let (holes, last) = {
            let table = self.table();
            let live = narrow::<u32>(table.bands.len() + table.orphans.len());
            let dead = table.dead();
            let holes: Vec<Slot> = dead.range(..Slot(live)).take(most).copied().collect();
            let slots = (live..narrow::<u32>(table.slots.len())).rev().map(Slot);
            let last: Vec<_> = slots
                .filter(|slot| !dead.contains(slot) && !table.orphans.contains(slot))
                .take(most)
                .collect();
            (holes, last)
        };
        let mut moves = Vec::new();
        let mut last = last.into_iter();
        for to in holes {
            let discarded = self.table().slots[to.0 as usize].band();
            let _alone = discarded.map(|band| self.units.exclusive(u64::from(band.0)));
            if discarded.is_some_and(|band| self.table().discarded.get(&band) != Some(&to)) {
                continue; // it has been written again
            }
            let Some((band, from, alone)) = last.next().and_then(|from| self.hold_last(from))
            else {
                break;
            };
            moves.push(BandMove {
                band,
                from,
                to,
                discarded,
                _alone: [_alone, Some(alone)],
            });
        }
        moves
    }

    /// Locks the band in `from` exclusively, if it is still there and not pinned.
    fn hold_last(&self, from: Slot) -> Option<(BandIndex, Slot, HeldUnit<&UnitLocks>)> {
        let band = self.table().slots[from.0 as usize].band()?;
        let alone = self.units.exclusive_unless_pinned(u64::from(band.0))?;
        (self.table().bands.get(&band) == Some(&from)).then_some((band, from, alone))
    }

    /// Fills discarded bands with zeros if their slots cannot be reused.
    fn empty_the_rest(&self) -> Result<()> {
        let discarded: Vec<BandIndex> = self.table().discarded.keys().copied().collect();
        for band in discarded {
            let _alone = self.units.exclusive(u64::from(band.0));
            let Some(slot) = self.table().discarded.get(&band).copied() else {
                continue;
            };
            let place = self.table().slot_offset(slot);
            regions::blank(&*self.file, place..place + self.band_size)?;
            let mut table = self.table_mut();
            table.discarded.remove(&band);
            table.bands.insert(band, slot);
        }
        Ok(())
    }

    fn run(&self, moves: &[BandMove<'_>]) -> Result<()> {
        let shown: Vec<&BandMove<'_>> = moves.iter().filter(|one| self.is_shown(one)).collect();
        let at_once: Vec<&BandMove<'_>> = moves.iter().filter(|one| !self.is_shown(one)).collect();
        for one in &shown {
            self.add_empty_twin(one)?;
        }
        self.copy(&at_once)?;
        self.publish_moves(&at_once)?;
        if !shown.is_empty() {
            self.copy(&shown)?;
            self.publish_moves(&shown)?;
        }
        let mut table = self.table_mut();
        for one in moves {
            table.spare.remove(&one.to);
            one.discarded.map(|band| table.discarded.remove(&band));
            table.bands.insert(one.band, one.to);
            table.spare.insert(one.from);
        }
        drop(table);
        self.cut_tail()
    }

    /// Returns true if the target slot still holds the label of a visible band on disk.
    fn is_shown(&self, one: &BandMove<'_>) -> bool {
        let table = self.table();
        (one.to.0 as usize) < table.on_disk
            && one.discarded.is_some_and(|band| table.is_visible(band))
    }

    /// Gives the discarded band a second slot of zeros later in the file.
    fn add_empty_twin(&self, one: &BandMove<'_>) -> Result<()> {
        let Some(band) = one.discarded else {
            return Ok(());
        };
        let next = self.table().next_slot()?;
        self.extend_to(next.end)?;
        regions::blank(&*self.file, next.end - self.band_size..next.end)?;
        let mut table = self.table_mut();
        table.push(&next, Label::of(band));
        table.spare.insert(next.slot);
        Ok(())
    }

    fn copy(&self, moves: &[&BandMove<'_>]) -> Result<()> {
        for one in moves {
            let (from, to) = {
                (
                    self.table().slot_offset(one.from),
                    self.table().slot_offset(one.to),
                )
            };
            regions::copy(&*self.file, from, to, self.band_size)?;
        }
        Ok(())
    }

    /// Labels the slots that `moves` were copied to, after the copies and all labels so far are
    /// durable.
    fn publish_moves(&self, moves: &[&BandMove<'_>]) -> Result<()> {
        let relabelled: Vec<_> = moves
            .iter()
            .map(|one| (one.to, Label::of(one.band)))
            .collect();
        let on_disk = self.table().on_disk;
        {
            let mut table = self.table_mut();
            relabelled
                .iter()
                .for_each(|(slot, label)| table.slots[slot.0 as usize] = *label);
        }
        self.publish()?;
        let known: Vec<_> = relabelled
            .into_iter()
            .filter(|(slot, _)| (slot.0 as usize) < on_disk)
            .collect();
        if known.is_empty() {
            return Ok(());
        }
        self.write_labels(&known)?;
        self.file.flush()
    }

    /// Clears the labels of the unused slots at the end, then truncates the file.
    fn cut_tail(&self) -> Result<()> {
        let (kept, labels, unlinked) = {
            let table = self.table();
            let kept = table.live_end();
            let nodes = Table::nodes_for(kept);
            let known = table.on_disk.min(first_slot_of(nodes));
            let labels: Vec<_> = (kept..known)
                .map(|slot| (Slot(narrow(slot)), Label::NONE))
                .collect();
            (kept, labels, (table.nodes_on_disk > nodes).then_some(nodes))
        };
        let was = self.table().slots.len();
        self.write_labels(&labels)?;
        if let Some(nodes) = unlinked {
            let (at, none) = {
                (
                    self.table().nodes[nodes - 1] + link_at(nodes - 1),
                    U64::ZERO,
                )
            };
            self.file.write_at(at, none.as_bytes())?;
        }
        if !labels.is_empty() || unlinked.is_some() {
            self.file.flush()?;
        }
        if kept < was {
            let end = {
                let mut table = self.table_mut();
                table.truncate(kept);
                table.end().max(table.leftover_end)
            };
            self.file.set_len(end, AfterDiscard::Any)?;
        }
        Ok(())
    }
}

/// Changes that are not in the file yet.
struct PendingChanges {
    /// New nodes, complete, not linked yet.
    nodes: Vec<(u64, NextRaw)>,
    /// Labels for linked nodes.
    labels: Vec<(Slot, Label)>,
    /// Nodes whose links changed.
    links: Range<usize>,
}

impl Table {
    fn labels(&self, slots: Range<usize>) -> Vec<(Slot, Label)> {
        slots
            .clone()
            .zip(&self.slots[slots])
            .map(|(slot, label)| (Slot(narrow(slot)), *label))
            .collect()
    }

    /// Returns node `node`, not the first, with its slots up to `end`.
    fn whole_node(&self, node: usize, end: usize) -> NextRaw {
        let mut raw = NextRaw::blank(narrow::<u32>(node) - 1);
        let first = first_slot_of(node);
        for (slot, label) in raw.slots.iter_mut().zip(&self.slots[first..end.max(first)]) {
            *slot = (*label).into();
        }
        if node + 1 < Self::nodes_for(end) {
            raw.next = self.nodes[node + 1].into();
        }
        raw
    }

    /// Returns the link of the first node as it is on disk.
    fn link_on_disk(&self) -> u64 {
        if self.nodes_on_disk > 1 {
            self.nodes[1]
        } else {
            0
        }
    }

    /// Returns the slot after the last used one.
    fn live_end(&self) -> usize {
        let dead: BTreeSet<Slot> = self.dead();
        (0..self.slots.len())
            .rev()
            .find(|slot| !dead.contains(&Slot(narrow(*slot))))
            .map_or(0, |last| last + 1)
    }
}

/// Returns the first slot of node `node`.
fn first_slot_of(node: usize) -> usize {
    (0..node).map(|node| slots_of(node) as usize).sum()
}
