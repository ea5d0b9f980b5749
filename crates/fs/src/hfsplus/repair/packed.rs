//! Records without the bytes that are zero, which most bytes of a catalog record are.

use bandsaw_core::size::narrow;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a word.
const WORD: usize = 8;
/// Bytes whose words share a mask.
const GROUP: usize = 8 * WORD;
/// Bytes that hold any key of a tree.
const KEY: usize = 640;

/// A record: for each group of words a mask of those that are not zero, and for each of these a mask
/// of the bytes that are not zero, and these bytes. Its length precedes the groups.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PackedRecord(Box<[u8]>);

/// Space for the beginning of a record.
#[derive(Debug)]
pub(super) struct RecordPrefix([u8; KEY]);

impl Default for RecordPrefix {
    fn default() -> Self {
        Self([0; KEY])
    }
}

impl PackedRecord {
    /// Packs a record, which is shorter than a node.
    pub(super) fn new(record: &[u8]) -> Self {
        let len = narrow::<u16>(record.len()); // a node has at most 32 KiB
        let mut packed = len.to_le_bytes().to_vec();
        for group in record.chunks(GROUP) {
            let place = packed.len();
            packed.push(0);
            for (at, word) in group.chunks(WORD).enumerate() {
                let present = mask(word);
                if present != 0 {
                    packed[place] |= 1 << at;
                    packed.push(present);
                    packed.extend(word.iter().filter(|byte| **byte != 0));
                }
            }
        }
        Self(packed.into())
    }

    pub(super) fn len(&self) -> usize {
        let (len, _) = self.0.split_first_chunk().unwrap_or((&[0; 2], &[]));
        u16::from_le_bytes(*len).into()
    }

    /// Writes the first bytes of the record to `record`, which is zero.
    fn fill(&self, record: &mut [u8]) {
        let mut packed = self.0.iter().skip(2).copied();
        let mut next = || packed.next().unwrap_or(0);
        for group in record.chunks_mut(GROUP) {
            let words = next();
            for word in places(words, group.chunks_mut(WORD)) {
                let bytes = next();
                places(bytes, word.iter_mut()).for_each(|byte| *byte = next());
            }
        }
    }

    /// Returns the record.
    pub(super) fn bytes(&self) -> Box<[u8]> {
        let mut record = vec![0; self.len()];
        self.fill(&mut record);
        record.into()
    }

    /// Returns the record as a structure of the same length.
    pub(super) fn unpack<T: FromBytes + IntoBytes>(&self) -> T {
        let mut record = T::new_zeroed();
        self.fill(record.as_mut_bytes());
        record
    }

    /// Returns the beginning of the record, with the whole key.
    pub(super) fn start<'s>(&self, space: &'s mut RecordPrefix) -> &'s [u8] {
        let start = &mut space.0[..self.len().min(KEY)];
        self.fill(start);
        start
    }
}

/// Returns a bit for each byte of a word that is not zero.
fn mask(word: &[u8]) -> u8 {
    let bits = word.iter().enumerate();
    bits.fold(0, |mask, (at, byte)| mask | u8::from(*byte != 0) << at)
}

/// Returns the items whose bits are set.
fn places<T>(mask: u8, items: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let places = items.enumerate();
    places.filter_map(move |(at, item)| (mask >> at & 1 == 1).then_some(item))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hfsplus::layout::{FileRaw, FolderRaw};

    #[test]
    fn records_come_back() {
        let bytes: [u8; 2000] = std::array::from_fn(|at| (at % 255) as u8 + 1);
        for zeros in [0..0, 0..2000, 8..16, 100..248, 0..9, 31..57, 300..1999] {
            let mut bytes = bytes;
            bytes[zeros.clone()].fill(0);
            for len in [0, 1, 7, 8, 63, 64, 65, 88, 248, 639, 640, 641, 2000] {
                let packed = PackedRecord::new(&bytes[..len]);
                assert_eq!(*packed.bytes(), bytes[..len], "{len} {zeros:?}");
                let mut space = RecordPrefix::default();
                let start = packed.start(&mut space);
                assert_eq!(*start, bytes[..len.min(KEY)], "{len} {zeros:?}");
            }
            let file: FileRaw = PackedRecord::new(&bytes[..248]).unpack();
            assert_eq!(*file.as_bytes(), bytes[..248], "{zeros:?}");
            let folder: FolderRaw = PackedRecord::new(&bytes[..88]).unpack();
            assert_eq!(*folder.as_bytes(), bytes[..88], "{zeros:?}");
        }
        assert_eq!(PackedRecord::new(&[0; 248]).0.len(), 6);
    }
}
