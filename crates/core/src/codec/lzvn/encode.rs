//! LZVN encoder.
//!
//! Matches are found in chains of positions whose next four bytes have the same hash. Of the
//! matches at two adjacent positions the one that saves more is used.

use crate::size::narrow;

use super::{END, LONG, MIN_MATCH};

/// Maximum distance of any opcode.
const MAX_DISTANCE: usize = 0xFFFF;
/// Distance below which an opcode is two bytes long.
const NEAR: usize = 0x600;
/// Distance below which an opcode of three bytes can hold a match of [`MAX_MIDDLE`].
const MIDDLE: usize = 0x4000;
/// Maximum match length of that opcode.
const MAX_MIDDLE: usize = 34;
/// Maximum length of literals or a match in one opcode.
const MAX_LONG: usize = 255 + LONG;
/// Maximum number of literals that share an opcode with a match.
const MAX_SHARED: usize = 3;

const HASH_BITS: u32 = 14;
const HASHED: usize = 4;
/// No position.
const NONE: u32 = u32::MAX;
/// Maximum number of candidates for a match; more would help little.
const MAX_CANDIDATES: usize = 24;
/// Length at which the search for a longer match stops.
const ENOUGH: usize = 96;

/// An encoder that reuses its tables.
pub(crate) struct LzvnEncoder {
    /// The last position of each hash.
    last: Box<[u32]>,
    /// The previous position with the same hash, for each position.
    before: Vec<u32>,
}

impl std::fmt::Debug for LzvnEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LzvnEncoder").finish_non_exhaustive()
    }
}

impl Default for LzvnEncoder {
    fn default() -> Self {
        Self {
            last: vec![NONE; 1 << HASH_BITS].into(),
            before: Vec::new(),
        }
    }
}

/// A match: length and distance in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Match {
    len: usize,
    distance: usize,
}

impl Match {
    /// Returns the approximate number of bytes saved over literals, depending on the opcodes.
    fn gain(self, previous: usize) -> isize {
        let first = match self.distance {
            distance if distance == previous => 1,
            distance if distance < NEAR => 2,
            _ => 3,
        };
        self.len.cast_signed() - first - (self.len / MAX_LONG).cast_signed()
    }
}

impl LzvnEncoder {
    /// Appends a stream of `plain` (shorter than 2^31). Returns false if it would not be shorter
    /// than `plain`; `packed` is then unchanged.
    pub(crate) fn encode(&mut self, plain: &[u8], packed: &mut Vec<u8>) -> bool {
        let before = packed.len();
        self.last.fill(NONE);
        self.before.clear();
        self.before.resize(plain.len(), NONE);

        let mut out = Output {
            packed,
            distance: 0,
        };
        let (mut at, mut unwritten) = (0, 0);
        while at + HASHED <= plain.len() {
            let Some(found) = self.find(plain, at, out.distance) else {
                self.learn(plain, at);
                at += 1;
                continue;
            };
            self.learn(plain, at);
            let mut chosen = (at, found);
            if found.len < ENOUGH
                && let Some(next) = self.find(plain, at + 1, out.distance)
                && next.gain(out.distance) > found.gain(out.distance) + 1
            {
                chosen = (at + 1, next);
            }
            let (start, found) = chosen;
            out.step(&plain[unwritten..start], found);
            let end = start + found.len;
            (at + 1..end).for_each(|place| self.learn(plain, place));
            (at, unwritten) = (end, end);
            // A stream that has grown will not become short enough.
            if out.packed.len() - before > plain.len() {
                break;
            }
        }
        out.literals(&plain[unwritten..]);
        out.packed.extend([END, 0, 0, 0, 0, 0, 0, 0]);
        let shorter = packed.len() - before < plain.len();
        if !shorter {
            packed.truncate(before);
        }
        shorter
    }

    /// Enters `place` for later searches.
    fn learn(&mut self, plain: &[u8], place: usize) {
        if let Some(hash) = hash(plain, place) {
            self.before[place] = std::mem::replace(&mut self.last[hash], narrow(place));
        }
    }

    /// Returns the match at `at` that saves the most, if any does.
    fn find(&self, plain: &[u8], at: usize, previous: usize) -> Option<Match> {
        let hash = hash(plain, at)?;
        let mut best: Option<Match> = None;
        let mut take = |found: Match| {
            if found.gain(previous) > best.map_or(0, |best| best.gain(previous)) {
                best = Some(found);
            }
            best.is_some_and(|best| best.len >= ENOUGH)
        };
        // The distance of the previous match is the cheapest.
        if (1..=at).contains(&previous) {
            let len = common(plain, at - previous, at);
            if len >= MIN_MATCH
                && take(Match {
                    len,
                    distance: previous,
                })
            {
                return best;
            }
        }
        let mut place = self.last[hash];
        for _ in 0..MAX_CANDIDATES {
            let from = place as usize;
            if place == NONE || at - from > MAX_DISTANCE {
                break;
            }
            let len = common(plain, from, at);
            if len >= HASHED
                && take(Match {
                    len,
                    distance: at - from,
                })
            {
                break;
            }
            place = self.before[from];
        }
        best
    }
}

/// Returns the hash of the four bytes at `at`, or `None` if there are fewer.
fn hash(plain: &[u8], at: usize) -> Option<usize> {
    let bytes: [u8; HASHED] = plain.get(at..at + HASHED)?.try_into().ok()?;
    Some((u32::from_le_bytes(bytes).wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize)
}

/// Returns the number of equal bytes at `from` and at `at`, which is the later position.
fn common(plain: &[u8], from: usize, at: usize) -> usize {
    let (one, other) = (&plain[from..plain.len() - (at - from)], &plain[at..]);
    let (ones, others) = (one.chunks_exact(8), other.chunks_exact(8));
    let whole = ones
        .zip(others)
        .take_while(|(one, other)| one == other)
        .count()
        * 8;
    whole
        + one[whole..]
            .iter()
            .zip(&other[whole..])
            .take_while(|(one, other)| one == other)
            .count()
}

/// The stream under construction.
struct Output<'a> {
    packed: &'a mut Vec<u8>,
    /// Distance of the last match.
    distance: usize,
}

impl Output<'_> {
    /// Appends literals in opcodes of their own.
    fn literals(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(MAX_LONG));
            match now.len() {
                len @ 1..LONG => self.packed.push(0xE0 | narrow::<u8>(len)),
                len => self.packed.extend([0xE0, narrow(len - LONG)]),
            }
            self.packed.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Appends literals and the match after them.
    fn step(&mut self, literals: &[u8], found: Match) {
        // Up to three literals share the opcode of the match; more are written as a long run.
        let alone = if literals.len() > MAX_SHARED {
            literals.len()
        } else {
            0
        };
        self.literals(&literals[..alone]);
        let shared = &literals[alone..];
        let same = found.distance == self.distance;
        let mut left = found.len;
        if !same || !shared.is_empty() {
            left -= self.shared(shared, found, same);
        }
        while left > 0 {
            match left.min(MAX_LONG) {
                len @ 1..LONG => self.packed.push(0xF0 | narrow::<u8>(len)),
                len => self.packed.extend([0xF0, narrow(len - LONG)]),
            }
            left -= left.min(MAX_LONG);
        }
        self.distance = found.distance;
    }

    /// Appends an opcode of at most three literals and the start of a match. Returns the length of
    /// that part of the match.
    fn shared(&mut self, literals: &[u8], found: Match, same: bool) -> usize {
        let count = literals.len();
        // The codes of longer ones have other meanings.
        let short = found.len.min(10 - 2 * count);
        let first = |low: usize| narrow::<u8>(count << 6 | (short - MIN_MATCH) << 3 | low);
        let [x, y] = narrow::<u16>(found.distance).to_le_bytes();
        let held = match found.distance {
            _ if same => {
                self.packed.push(first(6));
                short
            }
            distance if distance < NEAR && found.len - short < LONG => {
                self.packed.extend([first(distance >> 8), x]);
                short
            }
            distance if distance < MIDDLE => {
                let len = found.len.min(MAX_MIDDLE);
                let [x, y] = narrow::<u16>(distance << 2 | (len - MIN_MATCH) & 3).to_le_bytes();
                self.packed.extend([
                    0xA0 | narrow::<u8>(count << 3 | (len - MIN_MATCH) >> 2),
                    x,
                    y,
                ]);
                len
            }
            _ => {
                self.packed.extend([first(7), x, y]);
                short
            }
        };
        self.packed.extend_from_slice(literals);
        held
    }
}
