//! Bitmaps of blocks; the first block is the lowest bit of the first byte unless stated.

use std::ops::Range;

use bandsaw_core::size::narrow;

/// Sets the bits of `range`, which must be within `bytes`.
pub(super) fn set_bits(bytes: &mut [u8], range: Range<usize>) {
    let (first, last) = (range.start / 8, range.end / 8);
    if range.is_empty() {
        return;
    }
    let head = 0xFF << (range.start % 8);
    let tail = (1_u8 << (range.end % 8)) - 1;
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

/// Sets the bits of `range`, counted from the highest bit of the first byte, which must be within
/// `bytes`.
pub(super) fn set_high_bits(bytes: &mut [u8], range: Range<usize>) {
    let (first, last) = (range.start / 8, range.end / 8);
    if range.is_empty() {
        return;
    }
    let head = 0xFF >> (range.start % 8);
    let tail = !(0xFF_u8.checked_shr(narrow(range.end % 8)).unwrap_or(0));
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

/// Clears the bits of `range`, which must be within `bytes`.
pub(super) fn clear_bits(bytes: &mut [u8], range: Range<usize>) {
    let flipped = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = !*byte);
    let touched = range.start / 8..range.end.div_ceil(8).max(range.start / 8);
    let Some(part) = bytes.get_mut(touched.clone()) else {
        return;
    };
    flipped(part);
    set_bits(
        part,
        range.start - touched.start * 8..range.end - touched.start * 8,
    );
    flipped(part);
}

/// Returns true if bit `at` is set, and the position of the first bit after it that differs, at
/// most `end`. All of them must be within `bytes`.
pub(super) fn run_at(bytes: &[u8], at: usize, end: usize) -> (bool, usize) {
    let set = bytes[at / 8] & 1 << (at % 8) != 0;
    let mut bit = at;
    while bit < end {
        let byte = if set { !bytes[bit / 8] } else { bytes[bit / 8] };
        // Differing bits, with those before `bit` shifted out.
        match (byte >> (bit % 8)).trailing_zeros() as usize {
            8 => bit = (bit / 8 + 1) * 8,
            same => return (set, (bit + same).min(end)),
        }
    }
    (set, end)
}

/// Returns the number of clear bits among the first `end`.
pub(super) fn count_clear(bytes: &[u8], end: usize) -> usize {
    let whole: usize = bytes[..end / 8]
        .iter()
        .map(|byte| byte.count_zeros() as usize)
        .sum();
    let rest = if end.is_multiple_of(8) {
        0
    } else {
        (!bytes[end / 8] & ((1 << (end % 8)) - 1)).count_ones() as usize
    };
    whole + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_counts_are_those_of_the_bits() {
        let bytes = [0b0000_0001, 0xFF, 0b1000_0011, 0, 0b0101_0000];
        let bit = |at: usize| bytes[at / 8] & 1 << (at % 8) != 0;
        for end in 1..=40 {
            assert_eq!(
                count_clear(&bytes, end),
                (0..end).filter(|&at| !bit(at)).count()
            );
            for at in 0..end {
                let until = (at..end)
                    .find(|&other| bit(other) != bit(at))
                    .unwrap_or(end);
                assert_eq!(run_at(&bytes, at, end), (bit(at), until), "{at} of {end}");
            }
        }
    }

    #[test]
    fn ranges_of_bits() {
        for start in 0..20 {
            for end in start..=24 {
                let mut bytes = [0; 3];
                set_bits(&mut bytes, start..end);
                let bits = (0..24).filter(|bit| bytes[bit / 8] & 1 << (bit % 8) != 0);
                assert!(bits.eq(start..end), "{start}..{end}: {bytes:x?}");
                let mut bytes = [0xFF; 3];
                clear_bits(&mut bytes, start..end);
                let bits = (0..24).filter(|bit| bytes[bit / 8] & 1 << (bit % 8) == 0);
                assert!(bits.eq(start..end), "{start}..{end}: {bytes:x?}");
            }
        }
    }
}
