//! Pseudorandom numbers that depend only on the seed, on every machine and in every version.

use std::ops::Range;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `range`, which must not be empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        assert!(!range.is_empty(), "no number is in {range:?}");
        range.start + self.number() % (range.end - range.start)
    }

    /// Returns `true` with a probability of 1 in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.within(0..n) == 0
    }

    /// Returns `len` bytes, none of them zero, so that they differ from unwritten bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend((self.number() | 0x0101_0101_0101_0101).to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence() {
        // The reference implementation's first numbers for seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(
            [random.number(), random.number()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
    }

    #[test]
    fn no_byte_is_zero() {
        let bytes = Random::new(1).bytes(10_001);
        assert!(bytes.len() == 10_001 && bytes.iter().all(|byte| *byte != 0));
    }
}
