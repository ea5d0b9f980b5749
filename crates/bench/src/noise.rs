//! Pseudorandom numbers, reproducible from a seed.

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to 1.
    pub fn share(&mut self) -> f64 {
        self.number() as f64 / u64::MAX as f64
    }

    /// Returns a number less than `count`, which must not be 0.
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.number()) * count as u128) >> 64) as usize
    }

    /// Returns a number from `least` to `most`, log-uniformly distributed.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        let share = self.share();
        (least as f64 * (most as f64 / least.max(1) as f64).powf(share)) as u64
    }

    /// Fills `bytes` with random data.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            let number = self.number().to_le_bytes();
            word.copy_from_slice(&number[..word.len()]);
        }
    }

    /// Shuffles `items`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_random_and_the_same_for_a_seed() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..100).collect();
            SplitMix64::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let mut back = order(1);
        back.sort_unstable();
        assert_eq!(back, (0..100).collect::<Vec<_>>());
        let mut noise = SplitMix64::new(3);
        assert!((0..1000).all(|_| noise.below(7) < 7 && (2..=90).contains(&noise.between(2, 90))));
    }
}
