//! A set of blocks in memory, in pages that exist only where a block was added.

use std::collections::HashMap;
use std::ops::Range;

/// Number of blocks in a page of 4096 bytes.
const PAGE: u64 = 1 << 15;
const WORDS: usize = 512;

/// A set of numbers of blocks. Memory: 4 KiB for each group of 32,768 blocks with a member.
#[derive(Debug, Default)]
pub(crate) struct BlockSet {
    pages: HashMap<u64, Box<[u64; WORDS]>>,
}

impl BlockSet {
    /// Adds all blocks of a range.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        let mut block = range.start;
        while block < range.end {
            let end = range.end.min((block / PAGE + 1) * PAGE);
            let page = self
                .pages
                .entry(block / PAGE)
                .or_insert_with(|| Box::new([0; WORDS]));
            while block < end {
                let (word, bit) = (index(block), block % 64);
                let count = (64 - bit).min(end - block);
                page[word] |= mask(bit, count);
                block += count;
            }
        }
    }

    /// Returns true if `block` is a member, and the end of the run of equal blocks within `end`.
    pub(crate) fn run_at(&self, block: u64, end: u64) -> (bool, u64) {
        let is_member = self.has(block);
        let whole = if is_member { u64::MAX } else { 0 };
        let mut at = block + 1;
        while at < end {
            let page = self.pages.get(&(at / PAGE));
            match page.map(|page| page[index(at)]) {
                // A page that does not exist has no members.
                None if is_member => break,
                None => at = (at / PAGE + 1) * PAGE,
                Some(word) if word == whole => at = (at / 64 + 1) * 64,
                Some(word) if (word >> (at % 64) & 1 != 0) == is_member => at += 1,
                Some(_) => break,
            }
        }
        (is_member, at.min(end))
    }

    fn has(&self, block: u64) -> bool {
        self.pages
            .get(&(block / PAGE))
            .is_some_and(|page| page[index(block)] >> (block % 64) & 1 != 0)
    }
}

/// Returns the word of a block in its page.
fn index(block: u64) -> usize {
    bandsaw_core::size::to_usize(block % PAGE / 64)
}

/// Returns `count` bits from `bit` on; together at most 64.
fn mask(bit: u64, count: u64) -> u64 {
    match count {
        64 => u64::MAX,
        count => ((1 << count) - 1) << bit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw_testing::Random;

    #[test]
    fn members_are_those_that_were_added() {
        let mut random = Random::new(5);
        let (mut set, mut model) = (BlockSet::default(), vec![false; 200_000]);
        for _ in 0..60 {
            let start = random.within(0..model.len() as u64 - 1);
            let end = (start + random.within(1..9000)).min(model.len() as u64);
            set.add(start..end);
            model[start as usize..end as usize].fill(true);
        }
        let mut at = 0;
        while at < model.len() {
            let (is_member, end) = set.run_at(at as u64, model.len() as u64);
            assert!(end as usize > at);
            let run = &model[at..end as usize];
            assert!(run.iter().all(|&block| block == is_member), "at {at}");
            at = end as usize;
        }
        assert_eq!(set.run_at(1 << 40, (1 << 40) + 7), (false, (1 << 40) + 7));
    }
}
