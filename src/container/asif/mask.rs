//! The states of the blocks of a partly written chunk, 2 bits each. Source: docs/formats/asif.md
//! §4.2.

use crate::size::narrow;
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    /// Never written.
    Uninit,
    /// Written: its data is in the chunk.
    Written,
    /// Discarded: explicit zeros.
    Unmapped,
}

impl BlockState {
    const ALL: [Self; 3] = [Self::Uninit, Self::Written, Self::Unmapped];

    fn of_bits(bits: u8) -> Option<Self> {
        Self::ALL.get(usize::from(bits)).copied()
    }

    /// Returns the byte of four blocks in this state.
    fn byte(self) -> u8 {
        self as u8 * 0b0101_0101
    }
}

/// The states of the blocks of one chunk, four per byte, the first in the low bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mask(Box<[u8]>);

impl Mask {
    /// Returns a mask of `bytes` bytes with all blocks in one state.
    pub(super) fn all(bytes: u32, state: BlockState) -> Self {
        Self(vec![state.byte(); bytes as usize].into())
    }

    /// Parses the states from their form on disk. The error is the first block with an invalid
    /// state.
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Self, u32> {
        // State 3, both bits of a pair set, is invalid.
        match bytes
            .iter()
            .position(|byte| byte & (byte >> 1) & 0b0101_0101 != 0)
        {
            None => Ok(Self(bytes.into())),
            Some(at) => {
                let within = (0..4)
                    .find(|pair| bytes[at] >> (2 * pair) & 3 == 3)
                    .unwrap_or(0);
                Err(narrow::<u32>(at) * 4 + within)
            }
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn blocks(&self) -> u32 {
        narrow::<u32>(self.0.len()) * 4
    }

    fn state(&self, block: u32) -> BlockState {
        let bits = self.0[(block / 4) as usize] >> (2 * (block % 4)) & 3;
        BlockState::of_bits(bits).unwrap_or(BlockState::Uninit) // parsed, or set by us: never anything else
    }

    /// Returns the state of the first block of `range`, which must not be empty, and the number of
    /// blocks with the same state.
    pub(super) fn run(&self, range: Range<u32>) -> (BlockState, u32) {
        let state = self.state(range.start);
        let mut at = range.start + 1;
        while at < range.end {
            if at.is_multiple_of(4) && self.0[(at / 4) as usize] == state.byte() {
                at += 4;
            } else if self.state(at) == state {
                at += 1;
            } else {
                break;
            }
        }
        (state, at.min(range.end) - range.start)
    }

    /// Returns true if all blocks of `range` are in `state`.
    pub(super) fn is(&self, range: Range<u32>, state: BlockState) -> bool {
        range.is_empty() || self.run(range.clone()) == (state, range.end - range.start)
    }

    /// Returns true if every block is written, so that the chunk needs no mask.
    pub(super) fn is_full(&self) -> bool {
        self.is(0..self.blocks(), BlockState::Written)
    }

    /// Returns true if no block was ever written. A partly written chunk has no such mask.
    pub(super) fn is_unused(&self) -> bool {
        self.is(0..self.blocks(), BlockState::Uninit)
    }

    pub(super) fn set(&mut self, range: Range<u32>, state: BlockState) {
        let mut at = range.start;
        while at < range.end {
            let byte = &mut self.0[(at / 4) as usize];
            if at.is_multiple_of(4) && at + 4 <= range.end {
                *byte = state.byte();
                at += 4;
            } else {
                let shift = 2 * (at % 4);
                *byte = *byte & !(3 << shift) | (state as u8) << shift;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_a_vector_of_states() {
        let (mut mask, mut vector) = (
            Mask::all(8, BlockState::Unmapped),
            [BlockState::Unmapped; 32],
        );
        for (range, state) in [
            (3..9, BlockState::Written),
            (8..20, BlockState::Uninit),
            (0..1, BlockState::Written),
            (20..32, BlockState::Written),
        ] {
            mask.set(range.clone(), state);
            vector[range.start as usize..range.end as usize].fill(state);
            for start in 0..32_u32 {
                for end in start + 1..33 {
                    let run = vector[start as usize..end as usize]
                        .iter()
                        .take_while(|one| **one == vector[start as usize])
                        .count();
                    assert_eq!(mask.run(start..end), (vector[start as usize], run as u32));
                }
            }
        }
        assert!(
            mask.is(20..32, BlockState::Written)
                && !mask.is(19..32, BlockState::Written)
                && !mask.is_full()
        );
        mask.set(0..32, BlockState::Written);
        assert!(mask.is_full());
        assert_eq!(mask.as_bytes(), [0x55; 8]);
    }

    #[test]
    fn the_fourth_state_is_none() {
        assert_eq!(
            Mask::parse(vec![0x55, 0xAA, 0x64, 0]).map(|mask| mask.state(4)),
            Ok(BlockState::Unmapped)
        );
        assert_eq!(Mask::parse(vec![0x55, 0x20, 0b0000_1100]), Err(9));
        assert_eq!(Mask::parse(vec![0b1100_0110]), Err(3));
    }
}
