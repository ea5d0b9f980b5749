//! Corrupted copies of valid bytes.

use super::Random;

/// Numbers at which arithmetic overflows or wraps.
const EXTREME: [u64; 10] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    i64::MAX as u64,
    u64::MAX,
];

/// Returns a copy of `bytes` with one to eight changes: flipped bits, extreme or random words,
/// pieces copied elsewhere, and sometimes a truncation. Half of the changes are close together, as
/// in a maliciously crafted structure, and more often than not they affect nonzero bytes: most of
/// an image is empty and never read.
pub fn mutated(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut copy = bytes.to_vec();
    let mut near = 0;
    for _ in 0..random.within(1..9) {
        if copy.is_empty() {
            break;
        }
        if near == 0 || random.one_in(2) {
            near = somewhere(&copy, random);
        }
        let at = (near + random.within(0..64) as usize).min(copy.len() - 1);
        match random.within(0..32) {
            0..12 => copy[at] ^= 1 << random.within(0..8),
            12..20 => put(
                &mut copy,
                at,
                EXTREME[random.within(0..EXTREME.len() as u64) as usize],
                random,
            ),
            20..27 => {
                let word = random.number();
                put(&mut copy, at, word, random);
            }
            27..31 => {
                let from = somewhere(&copy, random);
                let len = random.within(1..257) as usize;
                let piece = copy[from..copy.len().min(from + len)].to_vec();
                copy[at..]
                    .iter_mut()
                    .zip(piece)
                    .for_each(|(byte, new)| *byte = new);
            }
            _ => copy.truncate(random.within(0..copy.len() as u64) as usize),
        }
    }
    copy
}

/// Returns a nonzero place, if a few attempts find one.
fn somewhere(bytes: &[u8], random: &mut Random) -> usize {
    let mut at = 0;
    for _ in 0..16 {
        at = random.within(0..bytes.len() as u64) as usize;
        let around = &bytes[at..bytes.len().min(at + 16)];
        if around.iter().any(|&byte| byte != 0) {
            break;
        }
    }
    at
}

/// Writes 1, 2, 4 or 8 bytes of `word` in either byte order, aligned to their length.
fn put(bytes: &mut [u8], at: usize, word: u64, random: &mut Random) {
    let len = 1 << random.within(0..4);
    let mut word = word.to_le_bytes();
    let word = &mut word[..len];
    if random.one_in(2) {
        word.reverse();
    }
    let at = at / len * len;
    bytes[at..]
        .iter_mut()
        .zip(word)
        .for_each(|(byte, new)| *byte = *new);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_copy() {
        let bytes = Random::new(1).bytes(5000);
        let copies: Vec<_> = (0..50)
            .map(|seed| mutated(&bytes, &mut Random::new(seed)))
            .collect();
        assert!(copies.iter().all(|copy| copy.len() <= bytes.len()));
        assert!(copies.iter().filter(|copy| **copy != bytes).count() >= 49);
        assert_eq!(
            copies,
            (0..50)
                .map(|seed| mutated(&bytes, &mut Random::new(seed)))
                .collect::<Vec<_>>()
        );
        assert!(mutated(&[], &mut Random::new(1)).is_empty());
    }
}
