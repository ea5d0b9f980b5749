//! Zeros, and their detection.

/// Zeros to write from.
pub static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Bytes compared at a time: they stay in the first cache.
const STEP: usize = 4096;

/// Returns true if all of `bytes` are zero. Reads at most 4096 bytes past the first nonzero one.
pub fn is_zero(bytes: &[u8]) -> bool {
    // The comparison of slices is the C library's memcmp, the fastest loop available.
    bytes
        .chunks(STEP)
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
