//! AES key wrap (RFC 3394): encryption of keys with an integrity check.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256, Block};
use zeroize::Zeroizing;

/// Value before an unwrapped key if the outer key is correct.
const INTEGRITY: u64 = 0xA6A6_A6A6_A6A6_A6A6;

/// Wraps a key of 16 or more bytes, a multiple of 8, with a key of 16 or 32 bytes; the result is 8
/// bytes longer. `None` for other lengths.
pub fn wrap_key(outer: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    let aes = Aes::new(outer)?;
    let (parts, rest) = key.as_chunks::<8>();
    if parts.len() < 2 || !rest.is_empty() {
        return None;
    }
    let mut parts: Zeroizing<Vec<u64>> =
        Zeroizing::new(parts.iter().map(|part| u64::from_be_bytes(*part)).collect());
    let mut check = INTEGRITY;
    let mut step = 0;
    for _ in 0..6 {
        for part in parts.iter_mut() {
            step += 1;
            let (high, low) = aes.encrypt(check, *part);
            (check, *part) = (high ^ step, low);
        }
    }
    Some(
        std::iter::once(&check)
            .chain(parts.iter())
            .flat_map(|part| part.to_be_bytes())
            .collect(),
    )
}

/// Unwraps a key; `None` if it was not wrapped with `outer`, of 16 or 32 bytes.
pub fn unwrap_key(outer: &[u8], wrapped: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let aes = Aes::new(outer)?;
    let (parts, rest) = wrapped.as_chunks::<8>();
    let (check, parts) = parts
        .split_first()
        .filter(|(_, parts)| parts.len() >= 2 && rest.is_empty())?;
    let mut check = u64::from_be_bytes(*check);
    let mut parts: Zeroizing<Vec<u64>> =
        Zeroizing::new(parts.iter().map(|part| u64::from_be_bytes(*part)).collect());
    let mut step = 6 * parts.len() as u64;
    for _ in 0..6 {
        for part in parts.iter_mut().rev() {
            (check, *part) = aes.decrypt(check ^ step, *part);
            step -= 1;
        }
    }
    (check == INTEGRITY)
        .then(|| Zeroizing::new(parts.iter().flat_map(|part| part.to_be_bytes()).collect()))
}

enum Aes {
    Short(Box<Aes128>),
    Long(Box<Aes256>),
}

impl Aes {
    fn new(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Some(Self::Short(Box::new(Aes128::new_from_slice(key).ok()?))),
            32 => Some(Self::Long(Box::new(Aes256::new_from_slice(key).ok()?))),
            _ => None,
        }
    }

    fn encrypt(&self, high: u64, low: u64) -> (u64, u64) {
        let mut block = join(high, low);
        match self {
            Self::Short(aes) => aes.encrypt_block(&mut block),
            Self::Long(aes) => aes.encrypt_block(&mut block),
        }
        split(block)
    }

    fn decrypt(&self, high: u64, low: u64) -> (u64, u64) {
        let mut block = join(high, low);
        match self {
            Self::Short(aes) => aes.decrypt_block(&mut block),
            Self::Long(aes) => aes.decrypt_block(&mut block),
        }
        split(block)
    }
}

fn join(high: u64, low: u64) -> Block {
    (u128::from(high) << 64 | u128::from(low))
        .to_be_bytes()
        .into()
}

fn split(block: Block) -> (u64, u64) {
    let both = u128::from_be_bytes(block.into());
    #[expect(clippy::cast_possible_truncation, reason = "the halves of 128 bits")]
    let halves = ((both >> 64) as u64, both as u64);
    halves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(range: std::ops::Range<u8>) -> Vec<u8> {
        range.collect()
    }

    /// RFC 3394, sections 4.1 and 4.6.
    #[test]
    fn known_wrappings() {
        let key: Vec<u8> = (0..16_u8).map(|n| n * 0x11).collect();
        let wrapped = wrap_key(&bytes(0..16), &key).unwrap();
        assert_eq!(
            wrapped[..8],
            [0x1F, 0xA6, 0x8B, 0x0A, 0x81, 0x12, 0xB4, 0x47]
        );
        let long = [key.clone(), bytes(0..16)].concat();
        let wrapped = wrap_key(&bytes(0..32), &long).unwrap();
        assert_eq!(
            wrapped[..8],
            [0x28, 0xC9, 0xF4, 0x04, 0xC4, 0xB8, 0x10, 0xF4]
        );
        assert_eq!(*unwrap_key(&bytes(0..32), &wrapped).unwrap(), long);
    }

    #[test]
    fn another_key_does_not_fit() {
        let wrapped = wrap_key(&[1; 32], &[7; 32]).unwrap();
        assert!(unwrap_key(&[2; 32], &wrapped).is_none());
        for len in [0, 8, 16, 39] {
            assert!(unwrap_key(&[1; 32], &wrapped[..len]).is_none(), "{len}");
        }
        assert!(unwrap_key(&[1; 24], &wrapped).is_none());
        assert!(wrap_key(&[1; 32], &[7; 8]).is_none() && wrap_key(&[1; 32], &[7; 17]).is_none());
    }
}
