//! Encoder of LZ4: one block without a frame, as segments of encrypted archives have it. Source:
//! docs/formats/aea.md §3, and the block format of LZ4.

use crate::size::narrow;

/// Binary logarithm of the number of places that are remembered.
const LOG_PLACES: u32 = 14;
/// Shortest match; a token stores the length beyond it.
const MIN_MATCH: usize = 4;
/// Longest distance of a match in bytes.
const MAX_DISTANCE: usize = u16::MAX as usize;
/// The last bytes of a block are literals, and no match begins in the last ones of the second length.
const LAST_LITERALS: usize = 5;
const LAST_MATCH: usize = 12;
/// Nibble of a token after which more bytes of the length follow.
const LONG: usize = 15;

/// Compresses independent blocks, and reuses its memory. The output is deterministic.
pub struct Lz4Encoder {
    /// The last place of four bytes by their hash, plus 1.
    places: Box<[u32]>,
}

impl std::fmt::Debug for Lz4Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lz4Encoder").finish_non_exhaustive()
    }
}

impl Default for Lz4Encoder {
    fn default() -> Self {
        Self {
            places: vec![0; 1 << LOG_PLACES].into(),
        }
    }
}

impl Lz4Encoder {
    /// Appends a block of `plain`, which has less than 4 GiB, to `packed`. Returns false if it would not be shorter than
    /// `plain`; `packed` is then unchanged.
    pub fn encode(&mut self, plain: &[u8], packed: &mut Vec<u8>) -> bool {
        let before = packed.len();
        self.places.fill(0);
        let limit = plain.len().saturating_sub(LAST_MATCH);
        let (mut at, mut literals, mut misses) = (0, 0, 0);
        while at < limit && packed.len() - before < plain.len() {
            let Some(word) = word(plain, at) else { break };
            let slot = (word.wrapping_mul(0x9E37_79B1) >> (u32::BITS - LOG_PLACES)) as usize;
            let known = std::mem::replace(&mut self.places[slot], narrow(at + 1)) as usize;
            let earlier = known.checked_sub(1).filter(|earlier| {
                at - earlier <= MAX_DISTANCE && self::word(plain, *earlier) == Some(word)
            });
            let Some(earlier) = earlier else {
                // Contents that do not compress are passed over faster and faster.
                at += 1 + (misses >> 6);
                misses += 1;
                continue;
            };
            let rest = &plain[at + MIN_MATCH..plain.len() - LAST_LITERALS];
            let same = plain[earlier + MIN_MATCH..].iter().zip(rest);
            let more = same.take_while(|(a, b)| a == b).count();
            sequence(packed, &plain[literals..at], Some((at - earlier, more)));
            at += MIN_MATCH + more;
            (literals, misses) = (at, 0);
        }
        sequence(packed, &plain[literals..], None);
        let is_shorter = packed.len() - before < plain.len();
        if !is_shorter {
            packed.truncate(before);
        }
        is_shorter
    }
}

fn word(plain: &[u8], at: usize) -> Option<u32> {
    let bytes = plain.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// Appends literals, and a match by its distance and its length beyond the shortest; the last sequence has
/// none.
fn sequence(packed: &mut Vec<u8>, literals: &[u8], copy: Option<(usize, usize)>) {
    let nibble = |len: usize| narrow::<u8>(len.min(LONG));
    let more = copy.map_or(0, |(_, more)| more);
    packed.push(nibble(literals.len()) << 4 | nibble(more));
    length(packed, literals.len());
    packed.extend_from_slice(literals);
    if let Some((distance, more)) = copy {
        packed.extend_from_slice(&narrow::<u16>(distance).to_le_bytes());
        length(packed, more);
    }
}

/// Appends the bytes of a length that does not fit a nibble.
fn length(packed: &mut Vec<u8>, len: usize) {
    let Some(mut rest) = len.checked_sub(LONG) else {
        return;
    };
    while rest >= 255 {
        packed.push(255);
        rest -= 255;
    }
    packed.push(narrow(rest));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::decode_lz4_framed_or_raw;

    fn again(plain: &[u8]) -> Option<Vec<u8>> {
        let mut packed = vec![7];
        if !Lz4Encoder::default().encode(plain, &mut packed) {
            assert_eq!(packed, [7]);
            return None;
        }
        assert!(packed.len() - 1 < plain.len());
        let mut decoded = vec![0; plain.len()];
        decode_lz4_framed_or_raw(&packed[1..], &mut decoded).unwrap();
        assert!(decoded == plain);
        Some(packed)
    }

    #[test]
    fn contents_decode_to_themselves() {
        assert!(again(b"").is_none() && again(b"short").is_none());
        let zeros = again(&[0; 1 << 20]).unwrap();
        assert!(zeros.len() < 5000, "{}", zeros.len());
        let text: Vec<u8> = (0..30_000_u32)
            .flat_map(|n| (n / 3).to_string().into_bytes())
            .collect();
        assert!(again(&text).unwrap().len() < text.len() / 2);
        let noise: Vec<u8> = (0..70_000_u32)
            .map(|n| (n.wrapping_mul(0x9E37_79B1) >> 13) as u8)
            .collect();
        let twice = [&noise[..], &noise].concat();
        let _ = again(&twice);
    }

    proptest! {
        #[test]
        fn any_contents_decode_to_themselves(
            pieces in prop::collection::vec((any::<u8>(), 0_usize..400, any::<bool>()), 0..40)
        ) {
            let mut plain = Vec::new();
            for (seed, len, repeat) in pieces {
                let from = plain.len().saturating_sub(usize::from(seed) * 7);
                let piece: Vec<u8> = match repeat {
                    true => plain[from..].iter().copied().take(len).collect(),
                    false => (0..len).map(|n| (n * n) as u8 ^ seed).collect(),
                };
                plain.extend(piece);
            }
            again(&plain);
        }
    }
}
