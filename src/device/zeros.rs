//! Telling zeros from data.

static ZEROS: [u8; 4096] = [0; 4096];

/// Returns whether all of `bytes` are zero. Stops within 4096 bytes of the first that is not.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // Slices of bytes are compared by the C library's memcmp, the fastest loop at hand.
    bytes
        .chunks(ZEROS.len())
        .all(|chunk| *chunk == ZEROS[..chunk.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_makes_the_difference() {
        for len in [0, 1, 511, 4095, 4096, 4097, 10_000] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes));
            for at in [0, len / 2, len.saturating_sub(1)] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = 1;
                    assert!(!is_zero(&bytes));
                    bytes[at] = 0;
                }
            }
        }
    }
}
