//! Checksums that images store, compared with what was read.

/// A stored checksum and the computed one, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredChecksum {
    /// Subject of the checksum: a table's name, `tables`, `data fork`, `tags`, ...
    pub of: String,
    /// The algorithm: `crc32`, `disk_copy`, ...; `none` if nothing is stored, `other` if it is not known.
    pub algorithm: &'static str,
    /// The stored checksum.
    pub stored: Option<String>,
    /// The computed checksum, if the algorithm is known.
    pub computed: Option<String>,
    /// True if it covers an area of the disk, and not all of it or other data.
    pub is_of_area: bool,
}

impl StoredChecksum {
    /// Returns the comparison of two sums of 32 bits.
    pub(crate) fn of_words(
        of: impl Into<String>,
        algorithm: &'static str,
        stored: u32,
        computed: u32,
    ) -> Self {
        Self {
            of: of.into(),
            algorithm,
            stored: Some(format!("{stored:08x}")),
            computed: Some(format!("{computed:08x}")),
            is_of_area: false,
        }
    }

    /// Returns true if both are equal; `None` if none is stored, or its algorithm is not known.
    pub fn agrees(&self) -> Option<bool> {
        Some(self.stored.as_ref()? == self.computed.as_ref()?)
    }

    /// Returns the message about a checksum that differs.
    pub(crate) fn mismatch(&self) -> Option<String> {
        let (stored, computed) = (self.stored.as_ref()?, self.computed.as_ref()?);
        (stored != computed).then(|| {
            format!(
                "checksum mismatch of the {}: computed {computed}, stored {stored}",
                self.of
            )
        })
    }
}

/// Adds bytes to a checksum of Disk Copy 4.2: each word of 16 bits is added, and the sum rotated by one bit. An odd byte
/// at the end is not included.
pub(crate) fn disk_copy_sum(sum: u32, bytes: &[u8]) -> u32 {
    bytes.as_chunks::<2>().0.iter().fold(sum, |sum, word| {
        sum.wrapping_add(u16::from_be_bytes(*word).into())
            .rotate_right(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of small sequences, computed by hand from the description in File Type Note $E0/$8005.
    #[test]
    fn sums_are_those_of_the_description() {
        assert_eq!(disk_copy_sum(0, &[]), 0);
        assert_eq!(disk_copy_sum(0, &[0, 1]), 0x8000_0000);
        assert_eq!(disk_copy_sum(0, &[0, 2, 0, 1]), 1);
        assert_eq!(disk_copy_sum(0, &[0, 1, 0x80, 0]), 0x4000_4000);
    }
}
