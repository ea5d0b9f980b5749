//! Distinguishable and incompressible contents.

/// Returns pseudorandom bytes, different for each length.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ len as u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let mut bytes: Vec<u8> = words.take(len.div_ceil(8)).flatten().collect();
    bytes.truncate(len);
    bytes
}
