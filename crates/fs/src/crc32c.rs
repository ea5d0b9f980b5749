//! CRC-32C, not inverted at the end: the checksum of Core Storage and ext4.

/// Reversed polynomial.
const POLYNOMIAL: u32 = 0x82F6_3B78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0_u32;
    while at < 256 {
        let (mut sum, mut bit) = (at, 0);
        while bit < 8 {
            sum = if sum & 1 == 0 {
                sum >> 1
            } else {
                sum >> 1 ^ POLYNOMIAL
            };
            bit += 1;
        }
        table[at as usize] = sum;
        at += 1;
    }
    table
};

/// Updates the CRC-32C `sum` with `bytes`.
pub(crate) fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(sum, |sum, &byte| {
        sum >> 8 ^ TABLE[usize::from(sum.to_le_bytes()[0] ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_catalog() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(
            crc32c(crc32c(!0, b"1234"), b"56789"),
            crc32c(!0, b"123456789")
        );
    }
}
