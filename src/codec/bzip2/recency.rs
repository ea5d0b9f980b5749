//! Move-to-front list of bytes.

/// A list of up to 256 bytes, any of which can be moved to the front.
#[derive(Debug)]
pub(super) struct Recency {
    /// The first 16, the front one lowest: most moves are within these and need no memory access.
    near: u128,
    far: [u8; 240],
}

impl Recency {
    /// Creates a list of `bytes` in their order.
    pub(super) fn new(bytes: &[u8]) -> Self {
        let (mut near, mut far) = ([0; 16], [0; 240]);
        let (first, rest) = bytes.split_at(bytes.len().min(16));
        near[..first.len()].copy_from_slice(first);
        far[..rest.len()].copy_from_slice(rest);
        Self {
            near: u128::from_le_bytes(near),
            far,
        }
    }

    #[inline]
    pub(super) fn front(&self) -> u8 {
        self.near as u8
    }

    /// Returns the byte at index `place`, below 256, and moves it to the front.
    #[inline]
    pub(super) fn take(&mut self, place: usize) -> u8 {
        if place < 16 {
            let shift = 8 * place as u32;
            let byte = (self.near >> shift) as u8;
            // Mask of the bytes up to and including the one that moves to the front.
            let moved = (2u128 << (shift + 7)).wrapping_sub(1);
            self.near = self.near & !moved | self.near << 8 & moved | u128::from(byte);
            return byte;
        }
        let place = (place - 16).min(self.far.len() - 1);
        let byte = self.far[place];
        self.far.copy_within(..place, 1);
        self.far[0] = (self.near >> 120) as u8;
        self.near = self.near << 8 | u128::from(byte);
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_those_of_a_list() {
        let mut list: Vec<u8> = (0..=255).rev().collect();
        let mut recency = Recency::new(&list);
        for n in 0..5000usize {
            let place = (n * n + n / 7) % 256 / (1 + n % 3 * 10);
            let byte = list.remove(place);
            list.insert(0, byte);
            assert_eq!((recency.take(place), recency.front()), (byte, byte));
        }
    }
}
