//! LZBITMAP, the compression of system files of macOS 12 and later. Decoder only. Source:
//! docs/formats/decmpfs.md §5.4.
//!
//! A stream is a magic number and blocks of at most [`MAX_BLOCK`] bytes. A block is decoded in
//! steps of eight bytes: each bit of a step's bitmap selects whether the next byte is new (1) or
//! repeats the one `period` bytes before (0).

use super::{BROKEN, CodecError, TOO_LONG, TOO_SHORT};

const MAGIC: &[u8; 4] = b"ZBM\x09";
/// Maximum number of bytes that a block decodes to.
const MAX_BLOCK: usize = 0x8000;
/// Length of the header of a block: its length and its decoded length.
const HEAD: usize = 6;
/// Length of the header of a compressed block, with the offsets of its three lists.
const LONG_HEAD: usize = HEAD + 9;
/// Length of the table of numbered bitmaps at the end of a compressed block.
const TABLE: usize = 17;
/// Bits of a table entry: a bitmap, and the number of bytes of a new period.
const ENTRY_BITS: usize = 10;
/// The first number of a table entry; lower numbers are followed by their bitmap, and by that many
/// bytes of a new period.
const FIRST_NUMBERED: u8 = 3;
/// Nibble that repeats the previous number.
const REPEAT: u8 = 15;
/// Minimum number of repetitions that are encoded so.
const MIN_REPEATED: usize = 4;
/// Number of bytes decoded by one step.
const STEP: usize = 8;

/// Decodes into `plain`. Bytes after the end of the stream are ignored; a further block is
/// [`TOO_LONG`].
pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), CodecError> {
    let mut rest = packed.strip_prefix(MAGIC).ok_or(CodecError::new(BROKEN))?;
    let mut done = 0;
    while done < plain.len() {
        let (len, made) = (u24(rest, 0)?, u24(rest, 3)?);
        if made == 0 {
            return Err(CodecError::new(TOO_SHORT));
        }
        if len < HEAD || made > MAX_BLOCK {
            return Err(CodecError::new(BROKEN));
        }
        let (block, behind) = rest
            .split_at_checked(len)
            .ok_or(CodecError::new(TOO_SHORT))?;
        let end = done + made;
        if end > plain.len() {
            return Err(CodecError::new(TOO_LONG));
        }
        if len == made + HEAD {
            plain[done..end].copy_from_slice(&block[HEAD..]);
        } else {
            PackedBlock::parse(block)?.decode(&mut plain[..end], done)?;
        }
        (done, rest) = (end, behind);
    }
    match (u24(rest, 0), u24(rest, 3)) {
        (Ok(len), Ok(made))
            if (HEAD..=rest.len()).contains(&len) && (1..=MAX_BLOCK).contains(&made) =>
        {
            Err(CodecError::new(TOO_LONG))
        }
        _ => Ok(()),
    }
}

fn u24(bytes: &[u8], at: usize) -> Result<usize, CodecError> {
    match bytes.get(at..at + 3) {
        Some(&[low, middle, high]) => {
            Ok(usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16)
        }
        _ => Err(CodecError::new(TOO_SHORT)),
    }
}

/// The bitmap of a step of eight bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Bitmap {
    bits: u8,
    /// Number of bytes of a new period to read first.
    period_bytes: u8,
}

struct PackedBlock<'a> {
    data: List<'a>,
    periods: List<'a>,
    bitmaps: List<'a>,
    numbers: Nibbles<'a>,
    table: [Bitmap; 12],
    period: usize,
}

impl<'a> PackedBlock<'a> {
    fn parse(block: &'a [u8]) -> Result<Self, CodecError> {
        if block.len() < LONG_HEAD + TABLE {
            return Err(CodecError::new(TOO_SHORT));
        }
        let list = |at| {
            Ok(List(
                block
                    .get(u24(block, at)?..)
                    .ok_or(CodecError::new(BROKEN))?,
            ))
        };
        let List(numbers) = list(HEAD + 6)?;
        let table = &block[block.len() - TABLE..];
        let bit = |at: usize| table[at / 8] >> (at % 8) & 1;
        let number =
            |from: usize, bits: usize| (0..bits).fold(0, |number, n| number | bit(from + n) << n);
        Ok(Self {
            data: List(&block[LONG_HEAD..]),
            periods: list(HEAD)?,
            bitmaps: list(HEAD + 3)?,
            numbers: Nibbles {
                bytes: numbers,
                at: 0,
            },
            table: std::array::from_fn(|n| Bitmap {
                bits: number(n * ENTRY_BITS, 8),
                period_bytes: number(n * ENTRY_BITS + 8, 2),
            }),
            period: STEP,
        })
    }

    /// Decodes into `plain` from `at` on.
    fn decode(mut self, plain: &mut [u8], mut at: usize) -> Result<(), CodecError> {
        while at < plain.len() {
            let number = self.numbers.next()?;
            // The last step has no repetition count: the next nibble belongs to something else.
            let times = if plain.len() - at <= STEP {
                1
            } else {
                self.numbers.repetitions()?
            };
            for _ in 0..times {
                if at == plain.len() {
                    break;
                }
                let bitmap = self.bitmap(number)?;
                at = self.step(bitmap, plain, at)?;
            }
        }
        Ok(())
    }

    fn bitmap(&mut self, number: u8) -> Result<Bitmap, CodecError> {
        match number {
            REPEAT => Err(CodecError::new(BROKEN)),
            0..FIRST_NUMBERED => Ok(Bitmap {
                bits: self.bitmaps.next()?,
                period_bytes: number,
            }),
            _ => Ok(self.table[usize::from(number - FIRST_NUMBERED)]),
        }
    }

    fn step(&mut self, bitmap: Bitmap, plain: &mut [u8], at: usize) -> Result<usize, CodecError> {
        if bitmap.period_bytes > 0 {
            let mut period = 0;
            for n in 0..bitmap.period_bytes {
                period |= usize::from(self.periods.next()?) << (8 * n);
            }
            self.period = period;
        }
        let end = plain.len().min(at + STEP);
        for place in at..end {
            plain[place] = if bitmap.bits >> (place - at) & 1 != 0 {
                self.data.next()?
            } else {
                let from = place
                    .checked_sub(self.period)
                    .filter(|from| *from < place)
                    .ok_or(CodecError::new(BROKEN))?;
                plain[from]
            };
        }
        Ok(end)
    }
}

/// A list of bytes, read in order.
struct List<'a>(&'a [u8]);

impl List<'_> {
    fn next(&mut self) -> Result<u8, CodecError> {
        let (first, rest) = self.0.split_first().ok_or(CodecError::new(TOO_SHORT))?;
        self.0 = rest;
        Ok(*first)
    }
}

/// A list of nibbles, the low ones first.
struct Nibbles<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Nibbles<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes
            .get(self.at / 2)
            .map(|byte| byte >> (self.at % 2 * 4) & 0xF)
    }

    fn next(&mut self) -> Result<u8, CodecError> {
        let nibble = self.peek().ok_or(CodecError::new(TOO_SHORT))?;
        self.at += 1;
        Ok(nibble)
    }

    /// Reads the repetition count of the previous number.
    fn repetitions(&mut self) -> Result<usize, CodecError> {
        if self.peek() != Some(REPEAT) {
            return Ok(1);
        }
        self.at += 1;
        let mut times = MIN_REPEATED;
        loop {
            let nibble = self.next()?;
            times += usize::from(nibble);
            if nibble != REPEAT {
                return Ok(times);
            }
            // More than a block can hold; this bounds the loop for any list of nibbles.
            if times > MAX_BLOCK {
                return Err(CodecError::new(BROKEN));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(packed: &[u8], len: usize) -> Result<Vec<u8>, CodecError> {
        let mut plain = vec![0xEE; len];
        decode(packed, &mut plain).map(|()| plain)
    }

    fn number(number: usize) -> [u8; 3] {
        let [low, middle, high, _] = (number as u32).to_le_bytes();
        [low, middle, high]
    }

    /// Returns a block as specified.
    fn block(
        made: usize,
        data: &[u8],
        periods: &[u8],
        bitmaps: &[u8],
        numbers: &[u8],
        table: [u8; TABLE],
    ) -> Vec<u8> {
        let lists = [data, periods, bitmaps, numbers];
        let mut ends = lists.iter().scan(LONG_HEAD, |at, list| {
            *at += list.len();
            Some(*at)
        });
        let [periods_at, bitmaps_at, numbers_at, table_at] =
            std::array::from_fn(|_| ends.next().unwrap_or_default());
        let heads = [table_at + TABLE, made, periods_at, bitmaps_at, numbers_at].map(number);
        [heads.concat(), lists.concat(), table.to_vec()].concat()
    }

    const END_BLOCK: [u8; HEAD] = [HEAD as u8, 0, 0, 0, 0, 0];

    #[test]
    fn blocks_of_both_kinds() {
        // Entry 0 of the table: all bits set, no new period.
        let mut table = [0; TABLE];
        table[0] = 0xFF;
        // Eight new bytes by the table; eight that repeat them, six times; then a new period of
        // three and two bytes, and the rest.
        let numbers = [0x03, 0x2F, 0x01];
        let packed = block(
            8 + 6 * 8 + 8 + 4,
            b"abcdefghXY",
            &[3],
            &[0, 0, 0, 0, 0, 0, 0b11, 0],
            &numbers,
            table,
        );
        let stored = [&number(HEAD + 4)[..], &number(4), b"tail"].concat();
        let stream = [MAGIC, &packed[..], &stored, &END_BLOCK].concat();
        let expected = [&b"abcdefgh".repeat(7)[..], b"XYhXYhXY", b"hXYh", b"tail"].concat();
        assert_eq!(decoded(&stream, expected.len()).unwrap(), expected);
        assert!(
            decoded(&stream, expected.len() + 1).is_err(),
            "an end too early is told"
        );
        assert!(
            decoded(&stream, expected.len() - 1).is_err(),
            "as is one too late"
        );
        for cut in 0..stream.len() - END_BLOCK.len() {
            assert!(
                decoded(&stream[..cut], expected.len()).is_err(),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn invalid_streams_are_refused() {
        // A repetition from before the start; one without a period; one without a number; a list
        // outside the block.
        let before = block(8, b"", &[], &[0], &[0], [0; TABLE]);
        let nowhere = block(8, b"a", &[0], &[1], &[1], [0; TABLE]);
        let nothing = block(8, b"abcdefgh", &[], &[], &[0xF], [0; TABLE]);
        let mut outside = block(8, b"abcdefgh", &[], &[0xFF], &[0], [0; TABLE]);
        outside[6] = 0xFF;
        for block in [before, nowhere, nothing, outside] {
            assert!(decoded(&[MAGIC, &block[..], &END_BLOCK].concat(), 8).is_err());
        }
        assert!(decoded(b"ZBM\x08", 1).is_err());
        assert!(decoded(&[MAGIC, &number(2)[..], &number(9)].concat(), 9).is_err());
    }
}
