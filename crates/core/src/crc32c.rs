//! CRC-32C: the checksum of Core Storage, ext4 and VHDX, and the hash of names in APFS.

/// Reversed polynomial.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// CRC remainders of a byte followed by as many zero bytes as the index of the table, to process
/// four bytes per step.
static SLICES: [[u32; 256]; 4] = {
    let mut slices = [[0; 256]; 4];
    let mut byte = 0_u32;
    while byte < 256 {
        let mut crc = byte;
        let mut slice = 0;
        while slice < 4 {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 0 {
                    crc >> 1
                } else {
                    crc >> 1 ^ POLYNOMIAL
                };
                bit += 1;
            }
            slices[slice][byte as usize] = crc;
            slice += 1;
        }
        byte += 1;
    }
    slices
};

/// Updates the CRC-32C `sum` with `bytes`. It begins with all ones, and is not inverted at the end.
pub fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks();
    let sum = (words.iter()).fold(sum, |sum, word| crc32c_word(sum, u32::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, &byte| {
        sum >> 8 ^ SLICES[0][usize::from(sum.to_le_bytes()[0] ^ byte)]
    })
}

/// Updates the CRC-32C `sum` with a number, stored little-endian.
pub fn crc32c_word(sum: u32, number: u32) -> u32 {
    let [first, second, third, fourth] = (sum ^ number).to_le_bytes().map(usize::from);
    SLICES[3][first] ^ SLICES[2][second] ^ SLICES[1][third] ^ SLICES[0][fourth]
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
