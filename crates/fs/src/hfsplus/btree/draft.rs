//! A node that is being modified.

use std::ops::Range;

use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use super::node::Node;
use crate::hfsplus::layout::{FIRST_RECORD, NodeDescriptorRaw};
use bandsaw_core::size::narrow;

/// Bytes of a record's entry in the table of offsets.
const OFFSET_LEN: usize = 2;

/// A node unpacked for modification. It may temporarily hold more than fits in a node.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) number: u32,
    pub(super) next: u32,
    pub(super) previous: u32,
    pub(super) kind: i8,
    pub(super) height: u8,
    /// The records, concatenated, each padded to an even length.
    bytes: Vec<u8>,
    /// End of each record in `bytes`.
    ends: Vec<usize>,
}

impl Draft {
    /// Creates an empty node without neighbors.
    pub(super) fn new(number: u32, kind: i8, height: u8) -> Self {
        Self {
            number,
            next: 0,
            previous: 0,
            kind,
            height,
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Unpacks `node`.
    pub(super) fn of(node: &Node) -> Self {
        let (bytes, ends) = node.body();
        Self {
            number: node.number,
            next: node.next,
            previous: node.previous,
            kind: node.kind,
            height: node.height,
            bytes: bytes.to_vec(),
            ends: ends.collect(),
        }
    }

    /// Returns the number of records.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns a record; empty past the last.
    pub(super) fn record(&self, index: usize) -> &[u8] {
        let end = self.ends.get(index).copied().unwrap_or_default();
        self.bytes.get(self.start(index)..end).unwrap_or_default()
    }

    fn start(&self, index: usize) -> usize {
        index
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or_default()
    }

    /// Returns the number of bytes of a node that the records take.
    pub(super) fn used(&self) -> usize {
        room_for(self.bytes.len(), self.len())
    }

    /// Returns the number of bytes of a node that the first `count` records take.
    pub(super) fn used_before(&self, count: usize) -> usize {
        room_for(self.start(count), count)
    }

    /// Returns the number of bytes of a node that the records from `first` on take.
    pub(super) fn used_from(&self, first: usize) -> usize {
        room_for(self.bytes.len() - self.start(first), self.len() - first)
    }

    /// Replaces the records in `range`, which must exist, by `records`.
    pub(super) fn splice(&mut self, range: Range<usize>, records: &[Vec<u8>]) {
        let place = self.start(range.start)..self.start(range.end);
        let mut bytes = Vec::with_capacity(records.iter().map(|record| record.len() + 1).sum());
        let mut ends = Vec::with_capacity(records.len());
        for record in records {
            bytes.extend_from_slice(record);
            bytes.resize(bytes.len().next_multiple_of(2), 0);
            ends.push(place.start + bytes.len());
        }
        let (removed, added) = (place.len(), bytes.len());
        self.bytes.splice(place, bytes);
        for end in &mut self.ends[range.end..] {
            *end = *end - removed + added;
        }
        self.ends.splice(range, ends);
    }

    /// Moves the records from `first` on to the front of `to`.
    pub(super) fn move_tail(&mut self, first: usize, to: &mut Self) {
        let start = self.start(first);
        let moved = self.bytes.len() - start;
        let ends: Vec<usize> = self
            .ends
            .split_off(first)
            .iter()
            .map(|end| end - start)
            .collect();
        to.ends.iter_mut().for_each(|end| *end += moved);
        to.ends.splice(0..0, ends);
        to.bytes.splice(0..0, self.bytes.split_off(start));
    }

    /// Moves the first `count` records to the end of `to`.
    pub(super) fn move_head(&mut self, count: usize, to: &mut Self) {
        let (moved, base) = (self.start(count), to.bytes.len());
        to.bytes.extend(self.bytes.drain(..moved));
        to.ends
            .extend(self.ends.drain(..count).map(|end| base + end));
        self.ends.iter_mut().for_each(|end| *end -= moved);
    }

    /// Encodes the node with its free space zeroed. Its records must fit in `size` bytes.
    pub(super) fn finish(&self, size: u16) -> Box<[u8]> {
        let size = usize::from(size);
        debug_assert!(
            self.used() <= size,
            "a node is divided before it is written"
        );
        let head = NodeDescriptorRaw {
            forward_link: self.next.into(),
            backward_link: self.previous.into(),
            kind: self.kind,
            height: self.height,
            record_count: narrow::<u16>(self.len()).into(), // a node has room for less
            reserved: 0.into(),
        };
        let mut node = vec![0; size];
        let first = usize::from(FIRST_RECORD);
        node[..first].copy_from_slice(head.as_bytes());
        node[first..first + self.bytes.len()].copy_from_slice(&self.bytes);
        let offsets = std::iter::once(first).chain(self.ends.iter().map(|end| first + end));
        for (place, offset) in node.rchunks_exact_mut(OFFSET_LEN).zip(offsets) {
            place.copy_from_slice(U16::new(narrow(offset)).as_bytes()); // within a node of at most 32768 bytes
        }
        node.into_boxed_slice()
    }
}

/// Returns the number of bytes of a node with `count` records of `bytes` in total.
fn room_for(bytes: usize, count: usize) -> usize {
    usize::from(FIRST_RECORD) + bytes + OFFSET_LEN * (count + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw_testing::Random;

    fn records(draft: &Draft) -> Vec<Vec<u8>> {
        (0..draft.len())
            .map(|index| draft.record(index).to_vec())
            .collect()
    }

    #[test]
    fn records_are_put_taken_and_moved() {
        let record = |byte: u8, len: usize| vec![byte; len];
        let mut draft = Draft::new(7, -1, 1);
        draft.splice(0..0, &[record(1, 4), record(2, 6), record(3, 2)]);
        draft.splice(1..2, &[record(4, 2), record(5, 8)]);
        assert_eq!(
            records(&draft),
            [record(1, 4), record(4, 2), record(5, 8), record(3, 2)]
        );
        assert_eq!(draft.used(), 14 + 16 + 2 * 5);
        assert_eq!(
            (draft.used_before(1), draft.used_from(3)),
            (14 + 4 + 4, 14 + 2 + 4)
        );

        let mut right = Draft::new(8, -1, 1);
        right.splice(0..0, &[record(9, 2)]);
        draft.move_tail(2, &mut right);
        assert_eq!(records(&draft), [record(1, 4), record(4, 2)]);
        assert_eq!(records(&right), [record(5, 8), record(3, 2), record(9, 2)]);
        right.move_head(2, &mut draft);
        assert_eq!(
            records(&draft),
            [record(1, 4), record(4, 2), record(5, 8), record(3, 2)]
        );
        assert_eq!(records(&right), [record(9, 2)]);
        draft.splice(0..4, &[]);
        assert!(draft.is_empty());
    }

    /// Editing a node in place and editing it as a draft produce the same bytes.
    #[test]
    fn a_node_is_edited_as_a_draft_is() {
        let mut random = Random::new(3);
        let mut edited = 0;
        for _ in 0..2000 {
            let record = |random: &mut Random| {
                let len = 2 + random.within(0..60) as usize;
                random.bytes(len)
            };
            let mut draft = Draft::new(7, -1, 1);
            (draft.next, draft.previous) = (9, 5);
            let count = 1 + random.within(0..12) as usize;
            let records: Vec<_> = (0..count).map(|_| record(&mut random)).collect();
            draft.splice(0..0, &records);
            if draft.used() > 512 {
                continue;
            }
            let node = Node::parse(7, draft.finish(512)).unwrap();
            let start = random.within(0..count as u64 + 1) as usize;
            let range = start..(start + random.within(0..3) as usize).min(count);
            let new = record(&mut random);
            draft.splice(range.clone(), std::slice::from_ref(&new));
            match node.with(&range, &new) {
                None => assert!(draft.used() > 512),
                Some((bytes, used)) => {
                    edited += 1;
                    assert_eq!((&bytes, used), (&draft.finish(512), draft.used()));
                }
            }
        }
        assert!(edited > 500);
    }

    #[test]
    fn nodes_read_back() {
        let mut draft = Draft::new(7, 0, 2);
        (draft.next, draft.previous) = (9, 5);
        draft.splice(0..0, &[vec![1; 5], vec![2; 6]]);
        let node = Node::parse(7, draft.finish(512)).unwrap();
        assert_eq!(
            (
                node.next,
                node.previous,
                node.kind,
                node.height,
                node.records
            ),
            (9, 5, 0, 2, 2)
        );
        assert_eq!(
            node.record(0),
            Some(&[1, 1, 1, 1, 1, 0][..]),
            "odd records are padded"
        );
        assert_eq!(records(&Draft::of(&node)), records(&draft));
    }
}
