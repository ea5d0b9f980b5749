//! The checks of descriptor tags: checksum, CRC and location.

use std::fmt;

use zerocopy::FromBytes;

use super::layout::TagRaw;

/// Polynomial of the CRC, whose register begins with zero.
const POLYNOMIAL: u16 = 0x1021;

/// CRCs of single bytes.
const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { POLYNOMIAL };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

/// The reason why a descriptor cannot be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TagFault {
    /// There are only zeros.
    Blank,
    /// It ends within the tag, or within the bytes that the CRC covers.
    Truncated,
    Checksum,
    Crc,
    /// It was written for another place.
    Location(u32),
    /// Another descriptor has this identifier.
    Identifier(u16),
}

impl fmt::Display for TagFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("there are only zeros"),
            Self::Truncated => f.write_str("it is truncated"),
            Self::Checksum => f.write_str("checksum mismatch of the tag"),
            Self::Crc => f.write_str("checksum mismatch of the contents"),
            Self::Location(found) => write!(f, "its tag has the location {found}"),
            Self::Identifier(found) => write!(f, "its tag has the identifier {found}"),
        }
    }
}

/// Returns the CRC of a descriptor.
pub(super) fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| {
        let [high, _] = crc.to_be_bytes();
        crc << 8 ^ TABLE[usize::from(high ^ byte)]
    })
}

/// Returns the checksum of a tag.
pub(super) fn checksum(tag: &[u8]) -> u8 {
    let others = tag.iter().enumerate().filter(|(at, _)| *at != 4);
    others.fold(0, |sum: u8, (_, &byte)| sum.wrapping_add(byte))
}

/// Returns the tag of the descriptor at the start of `bytes` after checking its sums.
pub(super) fn check_sums(bytes: &[u8]) -> Result<TagRaw, TagFault> {
    let (tag, rest) = TagRaw::read_from_prefix(bytes).map_err(|_| TagFault::Truncated)?;
    let head = &bytes[..size_of::<TagRaw>()];
    if head.iter().all(|&byte| byte == 0) {
        return Err(TagFault::Blank);
    }
    if checksum(head) != tag.checksum {
        return Err(TagFault::Checksum);
    }
    let covered = rest.get(..tag.crc_len.get().into());
    match covered.ok_or(TagFault::Truncated)? {
        covered if crc(covered) == tag.crc.get() => Ok(tag),
        _ => Err(TagFault::Crc),
    }
}

/// Returns the tag of a descriptor after checking its sums and its location.
pub(super) fn check_tag(bytes: &[u8], location: u32) -> Result<TagRaw, TagFault> {
    let tag = check_sums(bytes)?;
    match tag.location.get() {
        found if found == location => Ok(tag),
        found => Err(TagFault::Location(found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_catalog() {
        // CRC-16/XMODEM.
        assert_eq!(crc(b"123456789"), 0x31C3);
        // The example of ECMA-167 1/7.2.6.
        assert_eq!(crc(&[0x70, 0x6A, 0x77]), 0x3299);
        assert_eq!(checksum(&[1, 2, 3, 4, 99, 255]), 9);
    }
}
