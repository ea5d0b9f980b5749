//! Decoder of streams. About twice as fast as the reference implementation and its relatives, which
//! mostly wait for memory: see [`sorted`](super::sorted).
//!
//! The format has no specification except its implementations: a stream is `BZh`, a digit for the
//! maximum block size, blocks, and a checksum. A block is run-length encoded, sorted, moved to
//! front, run-length encoded again, and written in up to six Huffman codes that may change every
//! fifty symbols.

use std::sync::{Mutex, PoisonError};

use super::bits::BitReader;
use super::huffman::{Code, MOST_SYMBOLS};
use super::recency::Recency;
use super::sorted::Sorted;
use crate::codec::{BROKEN, Fault, TOO_LONG, TOO_SHORT};

const BLOCK: u64 = 0x3141_5926_5359;
const END: u64 = 0x1772_4538_5090;
/// Number of symbols between changes of the code.
const GROUP: usize = 50;
/// Maximum number of groups in a block of 900,000 symbols; further ones are ignored.
const MOST_GROUPS: usize = 18_002;
/// Length of a run that is followed by the number of further repetitions.
const RUN: u32 = 4;

/// Result of decoding a stream.
pub(super) enum Decoded {
    Whole,
    /// The stream has a block of a kind that only versions before 0.9.5 wrote.
    Randomised,
}

/// Decodes `packed` into `plain`.
pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<Decoded, Fault> {
    let mut sorted = borrow();
    let decoded = decode_blocks(packed, plain, &mut sorted);
    give_back(sorted);
    decoded
}

fn decode_blocks(packed: &[u8], plain: &mut [u8], sorted: &mut Sorted) -> Result<Decoded, Fault> {
    let mut bits = BitReader::new(packed);
    let magic = bits.take(32).to_be_bytes();
    let longest = match magic {
        [b'B', b'Z', b'h', digit @ b'1'..=b'9'] => usize::from(digit - b'0') * 100_000,
        _ => {
            return Err(Fault::new(if bits.is_beyond() {
                TOO_SHORT
            } else {
                BROKEN
            }));
        }
    };
    let (mut done, mut sums) = (0, 0u32);
    loop {
        let kind = u64::from(bits.take(24)) << 24 | u64::from(bits.take(24));
        let sum = bits.take(32);
        match kind {
            _ if bits.is_beyond() => return Err(Fault::new(TOO_SHORT)),
            END if sum != sums => return Err(Fault::new(BROKEN)),
            END if done < plain.len() => return Err(Fault::new(TOO_SHORT)),
            END => return Ok(Decoded::Whole),
            BLOCK => {}
            _ => return Err(Fault::new(BROKEN)),
        }
        if bits.flag() {
            return Ok(Decoded::Randomised);
        }
        let first = bits.take(24) as usize;
        read_block(&mut bits, longest, sorted)?;
        if first >= sorted.len() {
            return Err(Fault::new(BROKEN));
        }
        let mut out = Runs {
            out: &mut plain[done..],
            done: 0,
            last: 0,
            count: 0,
        };
        sorted.spell(first, |piece| out.take(piece))?;
        let block = done..done + out.done;
        done = block.end;
        if crc(&plain[block]) != sum {
            return Err(Fault::new(BROKEN));
        }
        sums = sums.rotate_left(1) ^ sum;
    }
}

/// Reads a block, except its checksum and its first row.
fn read_block(bits: &mut BitReader<'_>, longest: usize, sorted: &mut Sorted) -> Result<(), Fault> {
    sorted.clear();
    let mut used = Vec::with_capacity(256);
    let sixteens = bits.take(16);
    for sixteen in (0..16u8).filter(|n| sixteens << n & 0x8000 != 0) {
        let bytes = bits.take(16);
        used.extend(
            (0..16u8)
                .filter(|n| bytes << n & 0x8000 != 0)
                .map(|n| sixteen * 16 + n),
        );
    }
    let code_count = bits.take(3) as usize;
    let group_count = bits.take(15) as usize;
    if used.is_empty() || !(2..=6).contains(&code_count) || group_count == 0 {
        return Err(Fault::new(BROKEN));
    }
    let mut recent = Recency::new(&[0, 1, 2, 3, 4, 5]);
    let mut groups = Vec::with_capacity(group_count.min(MOST_GROUPS));
    for _ in 0..group_count {
        let mut place = 0;
        while bits.flag() {
            place += 1;
            if place >= code_count {
                return Err(Fault::new(BROKEN));
            }
        }
        if groups.len() < MOST_GROUPS {
            groups.push(recent.take(place));
        }
    }
    let symbols = used.len() + 2;
    debug_assert!(symbols <= MOST_SYMBOLS);
    let codes = (0..code_count)
        .map(|_| Code::read(bits, symbols))
        .collect::<Result<Vec<_>, _>>()?;
    read_symbols(bits, &codes, &groups, &used, longest, sorted)
}

fn read_symbols(
    bits: &mut BitReader<'_>,
    codes: &[Code],
    groups: &[u8],
    used: &[u8],
    longest: usize,
    sorted: &mut Sorted,
) -> Result<(), Fault> {
    let end = used.len() as u16 + 1;
    let mut recent = Recency::new(used);
    // A number in digits of 1 and 2, the lowest first: the repetitions of the byte at the front.
    let (mut run, mut digit) = (0usize, 0u32);
    for &group in groups {
        let code = codes
            .get(usize::from(group))
            .ok_or_else(|| Fault::new(BROKEN))?;
        if bits.is_beyond() {
            return Err(Fault::new(TOO_SHORT));
        }
        for _ in 0..GROUP {
            bits.fill();
            let symbol = code.take(bits).ok_or_else(|| Fault::new(BROKEN))?;
            if symbol < 2 {
                if digit > 20 {
                    return Err(Fault::new(BROKEN));
                }
                run += usize::from(symbol + 1) << digit;
                digit += 1;
                continue;
            }
            if run > 0 {
                if run > longest - sorted.len() {
                    return Err(Fault::new(BROKEN));
                }
                sorted.push(recent.front(), run);
                (run, digit) = (0, 0);
            }
            if symbol == end {
                return Ok(());
            }
            if sorted.len() >= longest {
                return Err(Fault::new(BROKEN));
            }
            sorted.push(recent.take(usize::from(symbol) - 1), 1);
        }
    }
    Err(Fault::new(if bits.is_beyond() {
        TOO_SHORT
    } else {
        BROKEN
    }))
}

/// Decoder of the outer run-length encoding.
struct Runs<'a> {
    out: &'a mut [u8],
    done: usize,
    last: u8,
    count: u32,
}

impl Runs<'_> {
    fn take(&mut self, bytes: impl Iterator<Item = u8>) -> Result<(), Fault> {
        let Self {
            mut done,
            mut last,
            mut count,
            ..
        } = *self;
        let out = &mut *self.out;
        for byte in bytes {
            if count == RUN {
                let more = out
                    .get_mut(done..done + usize::from(byte))
                    .ok_or_else(|| Fault::new(TOO_LONG))?;
                more.fill(last);
                (done, count) = (done + usize::from(byte), 0);
                continue;
            }
            count = if byte == last { count + 1 } else { 1 };
            last = byte;
            *out.get_mut(done).ok_or_else(|| Fault::new(TOO_LONG))? = byte;
            done += 1;
        }
        (self.done, self.last, self.count) = (done, last, count);
        Ok(())
    }
}

/// Returns the checksum of a block: CRC-32 that processes the highest bit of each byte first, which
/// is the usual one of bit-reversed bytes.
fn crc(plain: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    let mut turned = [0; 4096];
    for piece in plain.chunks(turned.len()) {
        let turned = &mut turned[..piece.len()];
        turned.copy_from_slice(piece);
        turned
            .iter_mut()
            .for_each(|byte| *byte = byte.reverse_bits());
        sum.update(turned);
    }
    sum.finalize().reverse_bits()
}

/// Buffers of blocks that are not in use: as many as were in use at the same time.
static SPARE: Mutex<Vec<Sorted>> = Mutex::new(Vec::new());

fn borrow() -> Sorted {
    SPARE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .pop()
        .unwrap_or_default()
}

fn give_back(sorted: Sorted) {
    SPARE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(sorted);
}

#[cfg(test)]
mod tests {
    use bzip2::{Action, Compress, Compression};

    use super::*;
    use crate::codec::bzip2::decode_old;
    use crate::testing::Random;

    fn encode(plain: &[u8], level: u32) -> Vec<u8> {
        let mut packed = Vec::with_capacity(plain.len() + plain.len() / 50 + 1000);
        Compress::new(Compression::new(level), 0)
            .compress_vec(plain, &mut packed, Action::Finish)
            .unwrap();
        packed
    }

    /// Returns repeated words, runs of all lengths, and noise.
    fn text(len: usize, seed: u64) -> Vec<u8> {
        let mut random = Random::new(seed);
        let mut text = Vec::with_capacity(len + 5000);
        while text.len() < len {
            match random.within(0..4) {
                0 => text.resize(
                    text.len() + 1 + random.within(0..700) as usize,
                    random.within(0..256) as u8,
                ),
                1 => (0..random.within(0..40)).for_each(|_| text.push(random.within(0..256) as u8)),
                _ => {
                    let from = random.within(0..text.len() as u64 + 1) as usize;
                    let word = text[from..]
                        .iter()
                        .copied()
                        .take(random.within(0..90) as usize)
                        .collect::<Vec<_>>();
                    text.extend(word);
                    text.push(b' ');
                }
            }
        }
        text.truncate(len);
        text
    }

    #[test]
    fn several_blocks_come_back() {
        for (len, level) in [
            (1, 1),
            (4, 9),
            (5, 1),
            (260, 1),
            (99_981, 1),
            (350_000, 1),
            (1 << 20, 9),
        ] {
            let plain = text(len, len as u64);
            let mut back = vec![0xAA; len];
            assert!(matches!(
                decode(&encode(&plain, level), &mut back),
                Ok(Decoded::Whole)
            ));
            assert!(back == plain, "{len}");
        }
    }

    /// Asserts that damaged streams give the same bytes, or an error, as with the reference
    /// implementation.
    #[test]
    fn broken_streams_are_judged_as_by_the_reference() {
        let mut random = Random::new(19);
        let plain = text(30_000, 7);
        let packed = encode(&plain, 1);
        let mut whole = 0;
        for _ in 0..400 {
            let mut broken = packed.clone();
            match random.within(0..4) {
                0 => broken.truncate(random.within(0..packed.len() as u64) as usize),
                1 => broken.extend([1, 2, 3]),
                _ => {
                    let at = {
                        let most = if random.one_in(2) {
                            200
                        } else {
                            packed.len() as u64
                        };
                        random.within(0..most)
                    } as usize;
                    broken[at] ^= 1 << random.within(0..8);
                }
            }
            let len = plain.len() - usize::from(random.one_in(9));
            let (mut ours, mut theirs) = (vec![0; len], vec![0; len]);
            let (read, reference) = (decode(&broken, &mut ours), decode_old(&broken, &mut theirs));
            if matches!(read, Ok(Decoded::Randomised)) {
                continue;
            }
            assert_eq!(read.is_ok(), reference.is_ok());
            if read.is_ok() {
                assert!(ours == theirs);
                whole += 1;
            }
        }
        assert!((20..300).contains(&whole), "{whole}");
    }
}
