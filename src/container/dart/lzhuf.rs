//! LZHUF: LZSS with an adaptive Huffman code. Source: docs/formats/disk-copy.md §4.2.

use crate::{Error, Result};

/// Number of symbols: 256 bytes, and 58 lengths of matches.
pub(super) const SYMBOLS: usize = 314;
/// Length of the match of the first such symbol, in bytes.
pub(super) const SHORTEST: usize = 3;
/// Maximum distance of a match, in bytes.
#[cfg(any(test, feature = "testing"))]
pub(super) const WINDOW: usize = 4096;
/// Number of nodes of the tree, leaves included.
const NODES: usize = 2 * SYMBOLS - 1;
const ROOT: usize = NODES - 1;
/// Frequency of the root from which all are halved.
const MAX_FREQUENCY: u16 = 0x8000;
/// Bytes that a decoder may read past the end of its input, as zeros.
const LOOKAHEAD: usize = 2;

/// The adaptive tree. Nodes are ordered by frequency; those of a pair of children are adjacent.
pub(super) struct HuffmanTree {
    /// With one more entry than nodes, which is larger than all frequencies.
    frequency: [u16; NODES + 1],
    /// By node, and then by symbol.
    parent: [u16; NODES + SYMBOLS],
    /// The first of two children, or a symbol plus [`NODES`].
    child: [u16; NODES],
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "all numbers are below NODES + SYMBOLS, which is below 2^16"
)]
impl HuffmanTree {
    pub(super) fn new() -> Self {
        let mut tree = Self {
            frequency: [0; NODES + 1],
            parent: [0; NODES + SYMBOLS],
            child: [0; NODES],
        };
        for symbol in 0..SYMBOLS {
            tree.frequency[symbol] = 1;
            tree.child[symbol] = (symbol + NODES) as u16;
            tree.parent[symbol + NODES] = symbol as u16;
        }
        for node in SYMBOLS..NODES {
            tree.join(node, 2 * (node - SYMBOLS));
        }
        tree.frequency[NODES] = u16::MAX;
        tree
    }

    /// Makes `node` the parent of the pair at `first`.
    fn join(&mut self, node: usize, first: usize) {
        self.frequency[node] = self.frequency[first] + self.frequency[first + 1];
        self.child[node] = first as u16;
        self.parent[first] = node as u16;
        self.parent[first + 1] = node as u16;
    }

    /// Halves all frequencies and builds the tree again.
    fn rebuild(&mut self) {
        let mut leaves = 0;
        for node in 0..NODES {
            if usize::from(self.child[node]) >= NODES {
                self.frequency[leaves] = self.frequency[node].div_ceil(2);
                self.child[leaves] = self.child[node];
                leaves += 1;
            }
        }
        for node in SYMBOLS..NODES {
            let first = 2 * (node - SYMBOLS);
            let sum = self.frequency[first] + self.frequency[first + 1];
            let before = self.frequency[..node].iter().rposition(|one| *one <= sum);
            let at = before.map_or(0, |before| before + 1);
            self.frequency.copy_within(at..node, at + 1);
            self.child.copy_within(at..node, at + 1);
            self.frequency[at] = sum;
            self.child[at] = first as u16;
        }
        for node in 0..NODES {
            let child = usize::from(self.child[node]);
            self.parent[child] = node as u16;
            if child < NODES {
                self.parent[child + 1] = node as u16;
            }
        }
    }

    /// Counts a symbol, and exchanges nodes so that their order stays.
    pub(super) fn count(&mut self, symbol: usize) {
        if self.frequency[ROOT] == MAX_FREQUENCY {
            self.rebuild();
        }
        let mut node = usize::from(self.parent[symbol + NODES]);
        loop {
            self.frequency[node] += 1;
            let frequency = self.frequency[node];
            if frequency > self.frequency[node + 1] {
                let mut last = node + 1;
                while frequency > self.frequency[last + 1] {
                    last += 1;
                }
                self.exchange(node, last);
                node = last;
            }
            if node == ROOT {
                return;
            }
            node = usize::from(self.parent[node]);
        }
    }

    fn exchange(&mut self, one: usize, other: usize) {
        self.frequency.swap(one, other);
        self.child.swap(one, other);
        for node in [one, other] {
            let child = usize::from(self.child[node]);
            self.parent[child] = node as u16;
            if child < NODES {
                self.parent[child + 1] = node as u16;
            }
        }
    }

    /// Reads a symbol.
    fn read(&mut self, bits: &mut Bits<'_>) -> Result<usize> {
        let mut node = usize::from(self.child[ROOT]);
        while node < NODES {
            node = usize::from(self.child[node + bits.take(1)?]);
        }
        let symbol = node - NODES;
        self.count(symbol);
        Ok(symbol)
    }

    /// Returns the bits of a symbol from the root on. For tests, which encode.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn code(&self, symbol: usize) -> Vec<bool> {
        let mut bits = Vec::new();
        let mut node = usize::from(self.parent[symbol + NODES]);
        while node != ROOT {
            bits.push(node % 2 == 1);
            node = usize::from(self.parent[node]);
        }
        bits.reverse();
        bits
    }
}

/// Returns the upper six bits of a distance and the length of their code, by the next eight bits.
pub(super) fn distance_code(next: usize) -> (usize, usize) {
    match next {
        0..32 => (0, 3),
        32..80 => ((next - 16) >> 4, 4),
        80..144 => ((next - 48) >> 3, 5),
        144..192 => ((next - 96) >> 2, 6),
        192..240 => ((next - 144) >> 1, 7),
        _ => (next - 192, 8),
    }
}

/// Bits from the most significant of each byte on.
struct Bits<'a> {
    bytes: &'a [u8],
    /// In bits.
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: usize) -> Result<usize> {
        let value = self.peek(count)?;
        self.at += count;
        Ok(value)
    }

    fn peek(&self, count: usize) -> Result<usize> {
        let mut value = 0;
        for at in self.at..self.at + count {
            let byte = match self.bytes.get(at / 8) {
                Some(byte) => *byte,
                None if at / 8 < self.bytes.len() + LOOKAHEAD => 0,
                None => return Err(damaged("the data ends too early")),
            };
            value = value << 1 | usize::from(byte >> (7 - at % 8) & 1);
        }
        Ok(value)
    }
}

fn damaged(message: &'static str) -> Error {
    Error::corrupt("dart", 0, message)
}

/// Decodes `packed` into `plain`. What precedes `plain` is taken for zeros.
pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<()> {
    let mut bits = Bits {
        bytes: packed,
        at: 0,
    };
    let (mut tree, mut at) = (HuffmanTree::new(), 0);
    while at < plain.len() {
        let symbol = tree.read(&mut bits)?;
        if let Ok(byte) = u8::try_from(symbol) {
            plain[at] = byte;
            at += 1;
            continue;
        }
        let (upper, len) = distance_code(bits.peek(8)?);
        bits.take(len)?;
        let distance = (upper << 6 | bits.take(6)?) + 1;
        // A match may reach past the end of the block: the rest is not used.
        let end = (at + symbol - 256 + SHORTEST).min(plain.len());
        for to in at..end {
            plain[to] = to.checked_sub(distance).map_or(0, |from| plain[from]);
        }
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::dart::fixture::lzhuf_encode;
    use crate::testing::Random;

    fn round_trip(plain: &[u8]) -> usize {
        let packed = lzhuf_encode(plain);
        let mut out = vec![0xEE; plain.len()];
        decode(&packed, &mut out).unwrap();
        assert!(out == plain);
        packed.len()
    }

    #[test]
    fn encoding_round_trips() {
        assert_eq!(round_trip(b""), 0);
        round_trip(b"a");
        assert!(round_trip(&[0; 20_960]) < 700);
        let text = b"The quick brown fox jumps over the lazy dog. ".repeat(300);
        assert!(round_trip(&text) < text.len() / 10);
        // So many symbols that frequencies are halved, several times.
        round_trip(&Random::new(1).bytes(100_000));
    }

    /// The beginning of a stream that the crate `retrocompressor` 1.0.1 wrote, with its window of zeros.
    #[test]
    fn data_of_another_encoder_is_decoded() {
        const PACKED: &str = "fc7d7f5f1d66f307f7f2bc01f4c2bdeec5bff7fdf715e065a382dbd980b59c785b7d6416e05885b7f402dc59c16afbc9 \
         09c2aa17e0d60bd8534817a7882f5d082fe1d416b4a4ff1220bc6806754ce177fa07ecd829643742f312d94f22f37049 \
         7d248187131752a40c3899e2c2f12672d9cd38934a2d862a4d5f2952b2b4d96868331378ca698b313769451acf4e16a8 \
         8a75e9c426b3a81e9c2d6aaa3bd3841276449cba48a324e53648a24e5db8839b704ad0b9a70835552a69c1419fac69c2 \
         f1229944e080c6244e0a2b0ff44e3f8c7d02a7068a910c746701dcb1a1200c7f538061c44c9c8063fac6a00520415b91 \
         c90749676d808c55b918a2fadc49ac7bc9c0248ffdcdc7d9a8a39b8fe40c79b88c828ffc6b20c09c9c6c8a139b96cbc3 \
         b9b978eed45ad6f147cdcbd5";
        let packed: Vec<u8> = PACKED
            .replace(' ', "")
            .as_bytes()
            .chunks(2)
            .map(|digits| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap())
            .collect();
        let lines = (0..70).map(|n| format!("line {n} of the block, {}\n", n * n % 97));
        let expected = lines.collect::<String>().into_bytes();
        let mut plain = vec![0; 1300];
        decode(&packed, &mut plain).unwrap();
        assert!(plain == expected[..1300]);
    }

    #[test]
    fn the_code_of_distances_is_complete() {
        let space: usize = (0..256).map(|next| 1 << (8 - distance_code(next).1)).sum();
        let mut uppers: Vec<_> = (0..256).map(|next| distance_code(next).0).collect();
        assert!(uppers.is_sorted());
        uppers.dedup();
        assert_eq!(uppers, (0..64).collect::<Vec<_>>());
        // Each code of length n occurs 2^(8 - n) times among the 256 values.
        let expected: usize = uppers
            .iter()
            .map(|upper| {
                let len = (0..256).map(distance_code).find(|(one, _)| one == upper);
                let count = 1 << (8 - len.unwrap().1);
                count * count
            })
            .sum();
        assert_eq!(space, expected);
    }

    #[test]
    fn broken_data_is_refused() {
        let packed = lzhuf_encode(&Random::new(2).bytes(5000));
        assert!(decode(&packed[..packed.len() / 2], &mut [0; 5000]).is_err());
        assert!(decode(&[], &mut [0; 5000]).is_err());
        for seed in 0..200 {
            let _ = decode(&Random::new(seed).bytes(300), &mut [0; 20_960]);
        }
    }
}
