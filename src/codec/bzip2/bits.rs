//! Reader of bits, the highest of each byte first.

/// A bit reader. Past the end it returns zeros, which [`BitReader::is_beyond`] reports.
#[derive(Debug)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// Offset of the byte after those in `bits`.
    at: usize,
    /// Bits not consumed yet, the next one highest.
    bits: u64,
    /// Number of valid bits in `bits`.
    count: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            bits: 0,
            count: 0,
        }
    }

    /// Ensures that at least 56 bits can be peeked.
    #[inline]
    pub(super) fn fill(&mut self) {
        let next = match self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk())
        {
            Some(next) => u64::from_be_bytes(*next),
            None => self.last(),
        };
        self.bits |= next >> self.count;
        self.at += ((63 - self.count) / 8) as usize;
        self.count |= 56;
    }

    #[cold]
    fn last(&self) -> u64 {
        let mut next = [0; 8];
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        next[..rest.len()].copy_from_slice(rest);
        u64::from_be_bytes(next)
    }

    /// Returns the next `count` bits, of 1 to 56. Call [`fill`](Self::fill) before.
    #[inline]
    pub(super) fn peek(&self, count: u32) -> u32 {
        (self.bits >> (64 - count)) as u32
    }

    /// Skips `count` bits, of up to 56 since the last [`fill`](Self::fill).
    #[inline]
    pub(super) fn skip(&mut self, count: u32) {
        self.bits <<= count;
        self.count -= count;
    }

    /// Reads `count` bits, of 1 to 32.
    #[inline]
    pub(super) fn take(&mut self, count: u32) -> u32 {
        self.fill();
        let bits = self.peek(count);
        self.skip(count);
        bits
    }

    /// Reads one bit.
    pub(super) fn flag(&mut self) -> bool {
        self.take(1) == 1
    }

    /// Returns true if bits past the end were read.
    pub(super) fn is_beyond(&self) -> bool {
        self.at * 8 - self.count as usize > self.bytes.len() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_in_order_and_end() {
        let bytes: Vec<u8> = (0..23u8).map(|n| n.wrapping_mul(41)).collect();
        let whole: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
        for count in [1, 3, 7, 20, 24, 32] {
            let mut bits = BitReader::new(&bytes);
            let mut seen = String::new();
            while seen.len() + count as usize <= whole.len() {
                seen += &format!("{:01$b}", bits.take(count), count as usize);
                assert!(!bits.is_beyond());
            }
            assert!(whole.starts_with(&seen));
            let left = (whole.len() - seen.len()) as u32;
            assert_eq!(bits.take(32) << left, 0, "zeros follow");
            assert!(bits.is_beyond());
        }
    }
}
