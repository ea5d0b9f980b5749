//! Apple Data Compression: literal runs and two kinds of matches, byte-aligned. Source:
//! docs/formats/udif.md §6.

use crate::size::narrow;

use super::{CodecError, TOO_LONG, TOO_SHORT};

pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), CodecError> {
    let (mut from, mut to) = (0, 0);
    while to < plain.len() {
        let code = *packed.get(from).ok_or_else(|| CodecError::new(TOO_SHORT))?;
        let byte = |n: usize| {
            packed
                .get(from + n)
                .copied()
                .map(usize::from)
                .ok_or_else(|| CodecError::new(TOO_SHORT))
        };
        if code & 0x80 != 0 {
            let length = usize::from(code & 0x7F) + 1;
            let literal = packed
                .get(from + 1..from + 1 + length)
                .ok_or_else(|| CodecError::new(TOO_SHORT))?;
            plain
                .get_mut(to..to + length)
                .ok_or_else(|| CodecError::new(TOO_LONG))?
                .copy_from_slice(literal);
            (from, to) = (from + 1 + length, to + length);
            continue;
        }
        let (length, distance, size) = if code & 0x40 != 0 {
            (
                usize::from(code & 0x3F) + 4,
                (byte(1)? << 8 | byte(2)?) + 1,
                3,
            )
        } else {
            (
                usize::from(code >> 2 & 0x0F) + 3,
                (usize::from(code & 3) << 8 | byte(1)?) + 1,
                2,
            )
        };
        if to + length > plain.len() {
            return Err(CodecError::new(TOO_LONG));
        }
        let start = to.checked_sub(distance).ok_or_else(|| {
            CodecError::new(
                "invalid match: its distance reaches before the start of \
                                       the data",
            )
        })?;
        // Byte by byte: a match may overlap its own output.
        for n in 0..length {
            plain[to + n] = plain[start + n];
        }
        (from, to) = (from + size, to + length);
    }
    Ok(())
}

/// Memory of an encoder in bytes.
pub(super) const MEMORY: usize = 4 * (HASHES + WINDOW);

/// Maximum distance of a match.
const WINDOW: usize = 1 << 16;
const HASHES: usize = 1 << 15;
/// Maximum number of candidates for a match. More would hardly help, as no match is longer than 67
/// bytes.
const DEPTH: usize = 48;
const MAX_LITERALS: usize = 128;

/// A kind of match: length of its code, minimum and maximum length, maximum distance.
struct Form {
    code: usize,
    least: usize,
    most: usize,
    reach: usize,
}
const SHORT: Form = Form {
    code: 2,
    least: 3,
    most: 18,
    reach: 1 << 10,
};
const LONG: Form = Form {
    code: 3,
    least: 4,
    most: 67,
    reach: WINDOW,
};

/// A match: length and distance in bytes.
#[derive(Debug, Clone, Copy)]
struct Match {
    length: usize,
    distance: usize,
}

impl Match {
    /// Returns the part of a match of `length` bytes, at least 1, that a single code can represent
    /// and that saves the most.
    fn best(length: usize, distance: usize) -> Option<Self> {
        let forms = [SHORT, LONG]
            .into_iter()
            .filter(|form| length >= form.least && distance <= form.reach);
        forms
            .map(|form| Self {
                length: length.min(form.most),
                distance,
            })
            .max_by_key(|found| found.gain())
    }

    fn is_short(self) -> bool {
        self.length <= SHORT.most && self.distance <= SHORT.reach
    }

    /// Returns the number of bytes saved.
    fn gain(self) -> usize {
        self.length
            - if self.is_short() {
                SHORT.code
            } else {
                LONG.code
            }
    }

    fn put(self, packed: &mut Vec<u8>) {
        let [high, low] = narrow::<u16>(self.distance - 1).to_be_bytes();
        if self.is_short() {
            packed.extend([narrow::<u8>((self.length - SHORT.least) << 2) | high, low]);
        } else {
            packed.extend([0x40 | narrow::<u8>(self.length - LONG.least), high, low]);
        }
    }
}

/// An encoder that finds matches in chains of positions with the same hash of three bytes.
pub(super) struct AdcEncoder {
    /// Hash chains: the newest position of each hash, and for each position in the window the one
    /// before it. Stored as position plus 1; 0 means none.
    latest: Vec<u32>,
    before: Vec<u32>,
}

impl Default for AdcEncoder {
    fn default() -> Self {
        Self {
            latest: vec![0; HASHES],
            before: vec![0; WINDOW],
        }
    }
}

impl AdcEncoder {
    /// Appends a stream of `plain`. Returns false if it would not be shorter.
    pub(super) fn encode(&mut self, plain: &[u8], packed: &mut Vec<u8>) -> bool {
        // Positions are 32 bits wide; chunks are much shorter.
        if u32::try_from(plain.len()).is_err() {
            return false;
        }
        self.latest.fill(0);
        let limit = packed.len() + plain.len();
        let (mut at, mut literals) = (0, 0);
        let mut found = self.find(plain, at);
        while at < plain.len() {
            if packed.len() >= limit {
                return false;
            }
            // Lazy matching: a better match one byte later is worth a literal.
            let next = self.find(plain, at + 1);
            let Some(chosen) =
                found.filter(|found| next.is_none_or(|next| found.gain() >= next.gain()))
            else {
                (at, found) = (at + 1, next);
                continue;
            };
            put_literals(&plain[literals..at], packed);
            chosen.put(packed);
            let end = at + chosen.length;
            for skipped in at + 2..end {
                self.enter(plain, skipped);
            }
            (at, literals) = (end, end);
            found = self.find(plain, at);
        }
        put_literals(&plain[literals..], packed);
        true
    }

    /// Returns the best match at `at`, and enters the position for later searches.
    fn find(&mut self, plain: &[u8], at: usize) -> Option<Match> {
        let mut place = self.enter(plain, at)? as usize;
        let ahead = &plain[at..];
        let most = ahead.len().min(LONG.most);
        let (mut best, mut longest) = (None::<Match>, 0);
        for _ in 0..DEPTH {
            let Some(start) = place
                .checked_sub(1)
                .filter(|start| at - start <= LONG.reach)
            else {
                break;
            };
            // Checked first: the byte that a longer match must have is the most likely to differ.
            if plain[start + longest] == ahead[longest] {
                let length = ahead[..most]
                    .iter()
                    .zip(&plain[start..])
                    .take_while(|(one, other)| one == other)
                    .count();
                let found = Match::best(length, at - start)
                    .filter(|found| best.is_none_or(|best| found.gain() > best.gain()));
                best = found.or(best);
                longest = longest.max(length);
            }
            let earlier = self.before[start % WINDOW] as usize;
            // A position that is not earlier is that of a later byte, which replaced this entry in
            // the window.
            if longest == most || earlier >= place {
                break;
            }
            place = earlier;
        }
        best
    }

    /// Enters the position `at`. Returns the previous one with the same hash, plus 1, or `None` if
    /// too few bytes follow.
    fn enter(&mut self, plain: &[u8], at: usize) -> Option<u32> {
        let three = plain.get(at..at + SHORT.least)?;
        let value = u32::from(three[0]) | u32::from(three[1]) << 8 | u32::from(three[2]) << 16;
        let hash = (value.wrapping_mul(0x9E37_79B1) >> (32 - HASHES.trailing_zeros())) as usize;
        let earlier = std::mem::replace(&mut self.latest[hash], narrow::<u32>(at) + 1);
        self.before[at % WINDOW] = earlier;
        Some(earlier)
    }
}

fn put_literals(literals: &[u8], packed: &mut Vec<u8>) {
    for run in literals.chunks(MAX_LITERALS) {
        packed.push(0x7F + narrow::<u8>(run.len()));
        packed.extend_from_slice(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_both_matches() {
        // "abc", then three bytes from three back, then four from one back.
        let packed = [0x82, b'a', b'b', b'c', 0x00, 0x02, 0x40, 0x00, 0x00];
        let mut plain = [0; 10];
        decode(&packed, &mut plain).unwrap();
        assert_eq!(&plain, b"abcabccccc");
        assert_eq!(decode(&packed, &mut [0; 9]).unwrap_err().what, TOO_LONG);
        assert_eq!(decode(&packed, &mut [0; 11]).unwrap_err().what, TOO_SHORT);
        assert!(
            decode(&[0x00, 0x00], &mut [0; 3]).is_err(),
            "nothing to reach back to"
        );
    }

    fn encoded(plain: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        assert!(AdcEncoder::default().encode(plain, &mut packed));
        let mut back = vec![0; plain.len()];
        decode(&packed, &mut back).unwrap();
        assert_eq!(back, plain);
        packed
    }

    #[test]
    fn the_shorter_code_is_taken() {
        assert_eq!(
            encoded(b"abcabcabcabc"),
            [0x82, b'a', b'b', b'c', 6 << 2, 2]
        );
        assert_eq!(
            encoded(&[7; 68]),
            [0x80, 7, 0x40 | 63, 0, 0],
            "67 bytes from one back"
        );
        // A match that starts a byte later is longer: "bcdefgh" over "abc".
        let plain = b"abcXbcdefghYabcdefgh";
        assert_eq!(encoded(plain).len(), 1 + 13 + 2);
    }

    #[test]
    fn matches_reach_as_far_as_they_may() {
        // Bytes without repetitions nearby, then the first ones again.
        let noise: Vec<u8> = (0..WINDOW as u32)
            .flat_map(|n| n.wrapping_mul(0x9E37_79B1).to_be_bytes())
            .collect();
        for (distance, reaches) in [(WINDOW, true), (WINDOW + 1, false)] {
            let plain = [&noise[..distance], &noise[..67]].concat();
            let mut packed = Vec::new();
            AdcEncoder::default().encode(&plain, &mut packed);
            assert_eq!(
                packed.ends_with(&[0x40 | 63, 0xFF, 0xFF]),
                reaches,
                "{distance}"
            );
        }
    }
}
