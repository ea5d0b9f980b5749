//! The index of a sparse image in memory: which band stands in which slot, and where slots stand in
//! the file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::LAYER;
use super::layout::{BandIndex, Label, NODE, Slot, slots_of};
use crate::{Error, Kind, Result};

/// Bands that one image may store: what keeps this table below 200 MiB. 8 TiB of bands of a
/// mebibyte; whoever needs more takes larger bands.
pub(super) const MAX_SLOTS: usize = 1 << 23;

/// The whole index, as it is in memory.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) band_size: u64,
    /// Bytes of the disk.
    pub(super) len: u64,
    /// Labels by slot. Up to `on_disk` this is what the file says, or will once a flush under way
    /// is done; beyond, what the next flush will say.
    pub(super) slots: Vec<Label>,
    pub(super) on_disk: usize,
    /// Where each node begins; those from `nodes_on_disk` on are not linked yet.
    pub(super) nodes: Vec<u64>,
    pub(super) nodes_on_disk: usize,
    /// Slots by band: what reads and writes go by. Bands past the end of the disk are among them:
    /// the size may be damaged, or their labels.
    pub(super) bands: BTreeMap<BandIndex, Slot>,
    /// Slots by the band they are still labelled with, though it was discarded or cut off since the
    /// image was opened. Their places are not used for anything else until no label tells of them.
    pub(super) gone: BTreeMap<BandIndex, Slot>,
    /// Slots before the last one without a label.
    pub(super) spare: BTreeSet<Slot>,
    /// The length of the file when it was opened for writing: up to there, data behind the last
    /// band are kept.
    pub(super) leftover_end: u64,
    /// Slots handed out whose first write is still under way. They are labelled when it is done.
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
            gone: BTreeMap::new(),
            spare: BTreeSet::new(),
            leftover_end: 0,
            pending: BTreeMap::new(),
        }
    }

    /// Returns how many bands a disk of `len` bytes has.
    pub(super) fn bands_in(&self, len: u64) -> u64 {
        len.div_ceil(self.band_size)
    }

    /// Returns whether the disk has such a band, so that its bytes can be seen.
    pub(super) fn is_visible(&self, band: BandIndex) -> bool {
        u64::from(band.0) < self.bands_in(self.len)
    }

    /// The bands that are stored past the end of the disk.
    pub(super) fn beyond(&self) -> impl Iterator<Item = (BandIndex, Slot)> {
        let beyond =
            |(band, slot): (&BandIndex, &Slot)| (!self.is_visible(*band)).then_some((*band, *slot));
        self.bands.iter().rev().map_while(beyond)
    }

    /// Where a band begins on the disk. Labels of damaged images may number bands that no disk
    /// reaches.
    pub(super) fn start_of(&self, band: BandIndex) -> u64 {
        u64::from(band.0).saturating_mul(self.band_size)
    }

    /// Where the band of `slot` begins in the file. Its node must be known.
    pub(super) fn place(&self, slot: Slot) -> u64 {
        let (node, within) = slot.in_node();
        self.nodes[node] + NODE + u64::from(within) * self.band_size
    }

    /// Where the bytes `within` of the band of `slot` are in the file.
    pub(super) fn place_of(&self, slot: Slot, within: Range<u64>) -> Range<u64> {
        let start = self.place(slot);
        start + within.start..start + within.end
    }

    /// Where the file ends that holds nothing but what is used.
    pub(super) fn end(&self) -> u64 {
        let last_node = self.nodes.last().map_or(NODE, |node| node + NODE);
        self.slots.len().checked_sub(1).map_or(last_node, |last| {
            last_node.max(self.place(Slot(last as u32)) + self.band_size)
        })
    }

    /// Where the file must reach for every byte of the disk that is stored to be there: the last
    /// band may lie partly past the end of the disk.
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
            nodes.max(self.place(Slot(last as u32)) + visible)
        })
    }

    /// The next slot, with the node it needs if that is not there yet, and where the file will end
    /// with it.
    pub(super) fn next_slot(&self) -> Result<Next> {
        if self.slots.len() >= MAX_SLOTS {
            let limit = format!(
                "{MAX_SLOTS} bands are stored, which is the most; larger bands would hold more"
            );
            return Err(Error::new(Kind::Limit, LAYER, limit));
        }
        let slot = Slot(self.slots.len() as u32);
        let (node, within) = slot.in_node();
        match self.nodes.get(node) {
            Some(start) => Ok(Next {
                slot,
                node: None,
                end: start + NODE + (u64::from(within) + 1) * self.band_size,
            }),
            None => {
                let start = self.end_of_node(node - 1);
                Ok(Next {
                    slot,
                    node: Some(start),
                    end: start + NODE + self.band_size,
                })
            }
        }
    }

    /// Appends what [`next_slot`](Self::next_slot) told.
    pub(super) fn push(&mut self, next: &Next, label: Label) {
        self.nodes.extend(next.node);
        self.slots.push(label);
    }

    /// Where the bands of a full node end, and the next node would begin.
    pub(super) fn end_of_node(&self, node: usize) -> u64 {
        self.nodes[node] + NODE + u64::from(slots_of(node)) * self.band_size
    }

    /// Nodes that `slots` slots need.
    pub(super) fn nodes_for(slots: usize) -> usize {
        slots
            .checked_sub(1)
            .map_or(1, |last| Slot(last as u32).in_node().0 + 1)
    }

    /// Returns how many slots from the first on are settled: labelled, or never to be by a write
    /// under way.
    pub(super) fn settled(&self) -> usize {
        self.pending
            .keys()
            .next()
            .map_or(self.slots.len(), |first| first.0 as usize)
    }

    /// Slots whose places hold nothing any more, by their number.
    pub(super) fn dead(&self) -> BTreeSet<Slot> {
        self.gone.values().chain(&self.spare).copied().collect()
    }

    /// Forgets all slots from `count` on, and the nodes that only they needed.
    pub(super) fn truncate(&mut self, count: usize) {
        let kept = |slot: &Slot| (slot.0 as usize) < count;
        self.gone.retain(|_, slot| kept(slot));
        self.spare.retain(kept);
        self.slots.truncate(count);
        self.on_disk = self.on_disk.min(count);
        self.nodes.truncate(Self::nodes_for(count));
        self.nodes_on_disk = self.nodes_on_disk.min(self.nodes.len());
    }
}

/// A slot to be handed out.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) slot: Slot,
    /// Where a node begins that must come before it.
    pub(super) node: Option<u64>,
    /// Where the file ends when it is there.
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
