//! The Huffman codes of a block's symbols.

use super::bits::BitReader;
use crate::codec::{BROKEN, Fault};

/// Maximum length of a code in bits.
const LONGEST: u32 = 20;
/// Maximum length of codes that are decoded with one lookup, in bits.
const SHORT: u32 = 10;
/// Maximum number of symbols: 255 of the bytes, two for runs, and the end.
pub(super) const MOST_SYMBOLS: usize = 258;

/// A decoder of one code, from bits to symbols.
#[derive(Debug)]
pub(super) struct Code {
    /// By the next [`SHORT`] bits: the symbol, and below it four bits for the code's length; 0 if
    /// that is longer.
    short: [u16; 1 << SHORT],
    /// For each length, the first longer code, as [`LONGEST`] bits; lengths without codes have that
    /// of the previous one.
    limits: [u32; LONGEST as usize + 1],
    /// For each length, the number to add to a code to get its index in `symbols`.
    places: [i32; LONGEST as usize + 1],
    /// Symbols in the order of their codes.
    symbols: [u16; MOST_SYMBOLS],
}

impl Code {
    /// Reads the code lengths of `count` symbols, each stored as its difference to the previous
    /// one.
    pub(super) fn read(bits: &mut BitReader<'_>, count: usize) -> Result<Self, Fault> {
        let mut lengths = [0; MOST_SYMBOLS];
        let mut length = bits.take(5);
        for place in &mut lengths[..count] {
            loop {
                if !(1..=LONGEST).contains(&length) {
                    return Err(Fault::new(BROKEN));
                }
                if !bits.flag() {
                    break;
                }
                length = if bits.flag() {
                    length.wrapping_sub(1)
                } else {
                    length + 1
                };
            }
            *place = length as u8;
        }
        Self::new(&lengths[..count])
    }

    fn new(lengths: &[u8]) -> Result<Self, Fault> {
        let mut made = Self {
            short: [0; 1 << SHORT],
            limits: [0; 21],
            places: [0; 21],
            symbols: [0; MOST_SYMBOLS],
        };
        let (mut code, mut place) = (0, 0);
        for length in 1..=LONGEST {
            made.places[length as usize] = place as i32 - code as i32;
            for (symbol, _) in lengths
                .iter()
                .enumerate()
                .filter(|(_, other)| u32::from(**other) == length)
            {
                if code >> length != 0 {
                    return Err(Fault::new(BROKEN)); // more codes than there can be
                }
                if length <= SHORT {
                    let first = (code as usize) << (SHORT - length);
                    made.short[first..first + (1 << (SHORT - length))]
                        .fill((symbol as u16) << 4 | length as u16);
                }
                made.symbols[place] = symbol as u16;
                (code, place) = (code + 1, place + 1);
            }
            made.limits[length as usize] = code << (LONGEST - length);
            code <<= 1;
        }
        Ok(made)
    }

    /// Reads a symbol; at least [`LONGEST`] bits must be available. Returns `None` if no symbol has
    /// this code.
    #[inline]
    pub(super) fn take(&self, bits: &mut BitReader<'_>) -> Option<u16> {
        let found = self.short[bits.peek(SHORT) as usize];
        if found == 0 {
            return self.take_long(bits);
        }
        bits.skip(u32::from(found & 15));
        Some(found >> 4)
    }

    fn take_long(&self, bits: &mut BitReader<'_>) -> Option<u16> {
        let code = bits.peek(LONGEST);
        let length = (SHORT + 1..=LONGEST).find(|&length| code < self.limits[length as usize])?;
        bits.skip(length);
        let place = (code >> (LONGEST - length)) as i32 + self.places[length as usize];
        self.symbols.get(usize::try_from(place).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that every code, short and long, decodes to its symbol.
    #[test]
    fn codes_are_found() {
        let lengths: Vec<u8> = (1..=20).chain([20]).collect();
        let code = Code::new(&lengths).unwrap();
        for (symbol, &length) in lengths.iter().enumerate() {
            let ones = if symbol == 20 {
                20
            } else {
                u32::from(length) - 1
            };
            let word = (u64::MAX << (64 - ones.max(1))) * u64::from(ones > 0);
            let stream = word.to_be_bytes();
            let mut bits = BitReader::new(&stream);
            bits.fill();
            assert_eq!(code.take(&mut bits), Some(symbol as u16));
            bits.fill();
            assert_eq!(
                bits.peek(8),
                if symbol == 20 || ones == u32::from(length) - 1 {
                    0
                } else {
                    1
                }
            );
        }
    }

    #[test]
    fn codes_that_cannot_be_are_refused() {
        assert!(Code::new(&[1, 1, 1]).is_err());
        // Half of the codes are unassigned.
        let code = Code::new(&[2, 2]).unwrap();
        let stream = [0xFF; 8];
        let mut bits = BitReader::new(&stream);
        bits.fill();
        assert_eq!(code.take(&mut bits), None);
    }
}
