//! The index of a sparse image in memory: the slots of bands, and the file offsets of slots.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::LAYER;
use super::layout::{BandIndex, Label, NODE, Slot, slots_of};
use crate::size::narrow;
use crate::{Error, Result};

/// Maximum number of bands in an image, which limits the table to 200 MiB. Enough for 8 TiB in
/// bands of a mebibyte; larger disks need larger bands.
pub(super) const MAX_SLOTS: usize = 1 << 23;

/// The index in memory.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) band_size: u64,
    /// Length of the disk in bytes.
    pub(super) len: u64,
    /// Labels by slot. Those before `on_disk` are in the file, or will be when the current flush is
    /// done; the others are for the next flush.
    pub(super) slots: Vec<Label>,
    pub(super) on_disk: usize,
    /// File offset of each node; those from `nodes_on_disk` on are not linked yet.
    pub(super) nodes: Vec<u64>,
    pub(super) nodes_on_disk: usize,
    /// Slots by band, used by reads and writes. Includes bands past the end of the disk: the size
    /// or their labels may be damaged.
    pub(super) bands: BTreeMap<BandIndex, Slot>,
    /// Slots of bands that were discarded or cut off since the image was opened, by the band that
    /// is still in their label. They are not reused until no label on disk refers to them.
    pub(super) discarded: BTreeMap<BandIndex, Slot>,
    /// Slots without a label before the last labeled one.
    pub(super) spare: BTreeSet<Slot>,
    /// Slots of that kind whose data is not zeros: their labels may be damaged. They stay in place.
    pub(super) orphans: BTreeSet<Slot>,
    /// Length of the file when it was opened for writing, if there was data after the last band;
    /// the file is not truncated below it.
    pub(super) leftover_end: u64,
    /// Allocated slots whose first write is in progress. They are labeled when it is done.
    pub(super) pending: BTreeMap<Slot, BandIndex>,
}

impl Table {
    pub(super) fn blank(band_size: u64, len: u64) -> Self {
        Self {
            band_size,
            len,
            slots: Vec::new(),
            on_disk: 0,
            nodes: vec![0],
            nodes_on_disk: 1,
            bands: BTreeMap::new(),
            discarded: BTreeMap::new(),
            spare: BTreeSet::new(),
            orphans: BTreeSet::new(),
            leftover_end: 0,
            pending: BTreeMap::new(),
        }
    }

    /// Returns the number of bands of a disk of `len` bytes.
    pub(super) fn bands_in(&self, len: u64) -> u64 {
        len.div_ceil(self.band_size)
    }

    /// Returns true if the band starts within the disk, so that its data is readable.
    pub(super) fn is_visible(&self, band: BandIndex) -> bool {
        u64::from(band.0) < self.bands_in(self.len)
    }

    /// Returns the bands stored past the end of the disk.
    pub(super) fn beyond(&self) -> impl Iterator<Item = (BandIndex, Slot)> {
        let beyond =
            |(band, slot): (&BandIndex, &Slot)| (!self.is_visible(*band)).then_some((*band, *slot));
        self.bands.iter().rev().map_while(beyond)
    }

    /// Returns the disk offset of a band, saturated: labels of damaged images may have numbers past
    /// the end of any disk.
    pub(super) fn start_of(&self, band: BandIndex) -> u64 {
        u64::from(band.0).saturating_mul(self.band_size)
    }

    /// Returns the file offset of the band in `slot`, whose node must be known.
    pub(super) fn slot_offset(&self, slot: Slot) -> u64 {
        let (node, within) = slot.in_node();
        self.nodes[node] + NODE + u64::from(within) * self.band_size
    }

    /// Returns the file range of the bytes `within` of the band in `slot`.
    pub(super) fn slot_range(&self, slot: Slot, within: Range<u64>) -> Range<u64> {
        let start = self.slot_offset(slot);
        start + within.start..start + within.end
    }

    /// Returns the file offset of the end of the last node or band.
    pub(super) fn end(&self) -> u64 {
        let last_node = self.nodes.last().map_or(NODE, |node| node + NODE);
        self.slots.len().checked_sub(1).map_or(last_node, |last| {
            last_node.max(self.slot_offset(Slot(narrow(last))) + self.band_size)
        })
    }

    /// Returns the length the file needs to hold every stored byte of the disk: the last band may
    /// extend past the end of the disk.
    pub(super) fn needed(&self) -> u64 {
        let last = self.slots.len().checked_sub(1);
        let visible = last.map(|last| match self.slots[last].band() {
            Some(band) => self
                .len
                .saturating_sub(self.start_of(band))
                .min(self.band_size),
            None => 0,
        });
        let nodes = self.nodes.last().map_or(NODE, |node| node + NODE);
        last.zip(visible).map_or(nodes, |(last, visible)| {
            nodes.max(self.slot_offset(Slot(narrow(last))) + visible)
        })
    }

    /// Returns the next slot, with a new node if it needs one, and the resulting length of the
    /// file.
    pub(super) fn next_slot(&self) -> Result<NextSlot> {
        if self.slots.len() >= MAX_SLOTS {
            let limit =
                format!("the image has the maximum of {MAX_SLOTS} bands; larger bands store more");
            return Err(Error::limit(LAYER, limit));
        }
        let slot = Slot(narrow(self.slots.len()));
        let (node, within) = slot.in_node();
        match self.nodes.get(node) {
            Some(start) => Ok(NextSlot {
                slot,
                node: None,
                end: start + NODE + (u64::from(within) + 1) * self.band_size,
            }),
            None => {
                let start = self.end_of_node(node - 1);
                Ok(NextSlot {
                    slot,
                    node: Some(start),
                    end: start + NODE + self.band_size,
                })
            }
        }
    }

    /// Appends the result of [`next_slot`](Self::next_slot).
    pub(super) fn push(&mut self, next: &NextSlot, label: Label) {
        self.nodes.extend(next.node);
        self.slots.push(label);
    }

    /// Returns the file offset after the last band of a full node, where the next node starts.
    pub(super) fn end_of_node(&self, node: usize) -> u64 {
        self.nodes[node] + NODE + u64::from(slots_of(node)) * self.band_size
    }

    /// Returns the number of nodes that `slots` slots need.
    pub(super) fn nodes_for(slots: usize) -> usize {
        slots
            .checked_sub(1)
            .map_or(1, |last| Slot(narrow(last)).in_node().0 + 1)
    }

    /// Returns the number of slots before the first one whose first write is in progress.
    pub(super) fn slots_before_pending(&self) -> usize {
        self.pending
            .keys()
            .next()
            .map_or(self.slots.len(), |first| first.0 as usize)
    }

    /// Returns the unused slots, without orphans, in ascending order.
    pub(super) fn dead(&self) -> BTreeSet<Slot> {
        self.discarded
            .values()
            .chain(&self.spare)
            .copied()
            .collect()
    }

    /// Removes all slots from `count` on, and the nodes that only they need.
    pub(super) fn truncate(&mut self, count: usize) {
        let kept = |slot: &Slot| (slot.0 as usize) < count;
        self.discarded.retain(|_, slot| kept(slot));
        self.spare.retain(kept);
        self.orphans.retain(kept);
        self.slots.truncate(count);
        self.on_disk = self.on_disk.min(count);
        self.nodes.truncate(Self::nodes_for(count));
        self.nodes_on_disk = self.nodes_on_disk.min(self.nodes.len());
    }
}

/// A slot to be allocated.
#[derive(Debug)]
pub(super) struct NextSlot {
    pub(super) slot: Slot,
    /// File offset of the new node that it needs, if any.
    pub(super) node: Option<u64>,
    /// Length of the file with the slot.
    pub(super) end: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_that_no_disk_reaches() {
        let mut table = Table::blank(8 << 30, 1 << 20);
        table.slots.push(Label::of(BandIndex(u32::MAX - 1)));
        assert_eq!(table.needed(), NODE, "nothing of it can be seen");
    }
}
