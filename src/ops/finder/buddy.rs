//! The outer structure of a `.DS_Store`: blocks of a buddy allocator, and the list of their
//! addresses.
//!
//! Source: docs/formats/ds_store.md §1.

use std::collections::BTreeSet;

use zerocopy::IntoBytes;

use super::LAYER;
use super::layout::{ALIGNMENT, STORE_MAGIC, STORE_RESERVED, StoreHeaderRaw};
use crate::size::narrow;
use crate::{Error, Result};

/// Size of the smallest block in bytes, as a power of two: the low bits of an address encode the
/// block size.
const MIN_WIDTH: u32 = 5;
/// Maximum size of all blocks together in bytes, as a power of two.
const MAX_WIDTH: u32 = 31;
/// The list of blocks is padded to a multiple of this number of entries.
const ADDRESSES: usize = 256;

/// Address of a block: its offset, with its size as a power of two in the low bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address(u32);

impl Address {
    fn new(offset: u32, width: u32) -> Self {
        Self(offset | width)
    }

    fn offset(self) -> usize {
        (self.0 & !0x1F) as usize
    }

    fn len(self) -> usize {
        1 << (self.0 & 0x1F)
    }
}

/// A file of blocks. Block 0 is the list of the others.
#[derive(Debug)]
pub(super) struct BuddyFile {
    addresses: Vec<Address>,
    bytes: Vec<u8>,
    /// Offsets of free blocks, by width.
    free: Vec<BTreeSet<u32>>,
}

impl BuddyFile {
    pub(super) fn new() -> Self {
        // The header takes the first of the smallest blocks, which leaves one block of each size.
        let free = (0..=MAX_WIDTH).map(|width| {
            (MIN_WIDTH..MAX_WIDTH)
                .contains(&width)
                .then_some(1 << width)
        });
        let free = free.map(BTreeSet::from_iter).collect();
        Self {
            addresses: vec![Address(0)],
            bytes: vec![0; 1 << MIN_WIDTH],
            free,
        }
    }

    /// Stores `bytes` in a block of at least `least` bytes, and returns its number.
    pub(super) fn add(&mut self, bytes: &[u8], least: usize) -> Result<u32> {
        let address = self.allocate(bytes.len().max(least))?;
        self.write(address, bytes);
        self.addresses.push(address);
        Ok(narrow::<u32>(self.addresses.len()) - 1)
    }

    /// Returns the file, whose directory entry `name` refers to block `number`.
    pub(super) fn finish(mut self, name: &str, number: u32) -> Result<Vec<u8>> {
        // Allocating the block for the list adds at most one free block of each size, with 4 bytes
        // in the list.
        let longest = self.list(name, number).len() + 4 * MAX_WIDTH as usize;
        let place = self.allocate(longest)?;
        self.addresses[0] = place;
        let list = self.list(name, number);
        self.write(place, &list);
        let (offset, len) = (narrow::<u32>(place.offset()), narrow::<u32>(place.len()));
        let header = StoreHeaderRaw {
            magic: STORE_MAGIC,
            list_offset: offset.into(),
            list_len: len.into(),
            list_offset_again: offset.into(),
            reserved: STORE_RESERVED,
        };
        self.write(Address::new(0, MIN_WIDTH), header.as_bytes());
        Ok([&ALIGNMENT[..], &self.bytes].concat())
    }

    fn list(&self, name: &str, number: u32) -> Vec<u8> {
        let mut list = Vec::new();
        let mut word = |word: u32| list.extend(word.to_be_bytes());
        word(narrow(self.addresses.len()));
        word(0);
        let padded = self.addresses.len().next_multiple_of(ADDRESSES);
        self.addresses
            .iter()
            .map(|address| address.0)
            .chain(std::iter::repeat(0))
            .take(padded)
            .for_each(&mut word);
        word(1);
        list.push(narrow(name.len()));
        list.extend(name.as_bytes());
        list.extend(number.to_be_bytes());
        for free in &self.free {
            list.extend(narrow::<u32>(free.len()).to_be_bytes());
            free.iter()
                .for_each(|offset| list.extend(offset.to_be_bytes()));
        }
        list
    }

    fn allocate(&mut self, len: usize) -> Result<Address> {
        let width = len.next_power_of_two().ilog2().max(MIN_WIDTH);
        let found = (width..MAX_WIDTH)
            .find_map(|wide| Some((wide, self.free.get_mut(wide as usize)?.pop_first()?)));
        let (wide, offset) = found.ok_or_else(|| Error::limit(LAYER, ".DS_Store exceeds 2 GiB"))?;
        // The upper half of each divided block stays free.
        for half in width..wide {
            self.free[half as usize].insert(offset + (1 << half));
        }
        Ok(Address::new(offset, width))
    }

    fn write(&mut self, place: Address, bytes: &[u8]) {
        let (start, end) = (place.offset(), place.offset() + place.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_large_as_wanted_and_apart() {
        let mut blocks = BuddyFile::new();
        for len in [1, 32, 33, 4096, 20, 4096] {
            blocks.add(&vec![0xAA; len], len).unwrap();
        }
        let mut taken: Vec<_> = blocks.addresses[1..]
            .iter()
            .map(|address| (address.offset(), address.len()))
            .collect();
        taken.push((0, 32));
        for (width, free) in blocks.free.iter().enumerate() {
            taken.extend(free.iter().map(|&offset| (offset as usize, 1 << width)));
        }
        taken.sort();
        assert!(taken.iter().all(|(offset, len)| offset % len == 0));
        assert_eq!(
            taken.iter().fold(0, |end, &(offset, len)| {
                assert_eq!(offset, end);
                end + len
            }),
            1 << MAX_WIDTH
        );
    }
}
