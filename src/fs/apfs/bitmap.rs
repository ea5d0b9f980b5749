//! Bits of blocks, the first one in the lowest bit of the first byte.

use std::ops::Range;

/// Sets the bits of `range`, which lies within `bytes`.
pub(super) fn set_bits(bytes: &mut [u8], range: Range<usize>) {
    let (first, last) = (range.start / 8, range.end / 8);
    if range.is_empty() {
        return;
    }
    let head = 0xFF << (range.start % 8);
    let tail = (1_u16 << (range.end % 8)) as u8 - 1; // at most 2^7
    if first == last {
        bytes[first] |= head & tail;
        return;
    }
    bytes[first] |= head;
    bytes[first + 1..last].fill(0xFF);
    if tail != 0 {
        bytes[last] |= tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bits() {
        for start in 0..20 {
            for end in start..=24 {
                let mut bytes = [0; 3];
                set_bits(&mut bytes, start..end);
                let bits = (0..24).filter(|bit| bytes[bit / 8] & 1 << (bit % 8) != 0);
                assert!(bits.eq(start..end), "{start}..{end}: {bytes:x?}");
            }
        }
    }
}
