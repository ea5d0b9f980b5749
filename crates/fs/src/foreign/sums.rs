//! The checksums of ext4: CRC-32C and CRC-16, neither inverted at the end.

/// Reversed polynomials.
const CRC32C: u32 = 0x82F6_3B78;
const CRC16: u16 = 0xA001;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0_u32;
    while at < 256 {
        let (mut sum, mut bit) = (at, 0);
        while bit < 8 {
            sum = if sum & 1 == 0 {
                sum >> 1
            } else {
                sum >> 1 ^ CRC32C
            };
            bit += 1;
        }
        table[at as usize] = sum;
        at += 1;
    }
    table
};

/// Updates the CRC-32C `sum` with `bytes`.
pub(super) fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(sum, |sum, &byte| {
        sum >> 8 ^ TABLE[usize::from(sum.to_le_bytes()[0] ^ byte)]
    })
}

/// Updates the CRC-16 `sum` with `bytes`.
pub(super) fn crc16(sum: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(sum, |sum, &byte| {
        (0..8).fold(sum ^ u16::from(byte), |sum, _| {
            if sum & 1 == 0 {
                sum >> 1
            } else {
                sum >> 1 ^ CRC16
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_catalogues() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(crc16(!0, b"123456789"), 0x4B37);
        assert_eq!(
            crc32c(crc32c(!0, b"1234"), b"56789"),
            crc32c(!0, b"123456789")
        );
    }
}
