//! The CRC-16 of ext4, not inverted at the end.

/// Reversed polynomial.
const CRC16: u16 = 0xA001;

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
    fn checksums_are_those_of_the_catalog() {
        assert_eq!(crc16(!0, b"123456789"), 0x4B37);
    }
}
