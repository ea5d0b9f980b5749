//! The set of nodes visited by a walk.

use std::collections::BTreeMap;

/// A set of node numbers: a bitmap in pages, allocated when a node in them is inserted.
#[derive(Debug, Default)]
pub(super) struct NodeSet {
    pages: BTreeMap<u32, Box<[u64; PAGE_WORDS]>>,
}

const PAGE_WORDS: usize = PAGE_BITS as usize / 64;
const PAGE_BITS: u32 = 128 * 64;

impl NodeSet {
    fn place(number: u32) -> (u32, usize, u64) {
        let within = number % PAGE_BITS;
        (number / PAGE_BITS, within as usize / 64, 1 << (within % 64))
    }

    /// Inserts a node; returns true if it was not in the set.
    pub(super) fn insert(&mut self, number: u32) -> bool {
        let (page, word, bit) = Self::place(number);
        let word = &mut self
            .pages
            .entry(page)
            .or_insert_with(|| Box::new([0; PAGE_WORDS]))[word];
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        let (page, word, bit) = Self::place(number);
        self.pages
            .get(&page)
            .is_some_and(|words| words[word] & bit != 0)
    }
}
