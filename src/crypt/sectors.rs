//! The codec: whole cipher blocks by number, in and out. It does no I/O and holds no state but the keys.

use std::fmt;

use super::aes::{Cell, Cipher};
use super::back_end::BackEnd;
use super::hmac::HmacKey;
use super::keys::KeyMaterial;
use crate::{Error, Kind, Result};

/// Chains that run side by side in the widest back end, and so the blocks of one batch.
const BATCH: usize = 16;

/// Encrypts and decrypts blocks of an image: AES-CBC, the vector of block `n` being the first 16 bytes of HMAC-SHA1 of `n` as 32
/// bits, big-endian. Source: docs/formats/encrypted.md §3.
pub struct Sectors {
    cipher: Cipher,
    vectors: HmacKey,
    block: usize,
}

impl Sectors {
    /// For blocks of `block` bytes: 512 or 4096.
    pub fn new(keys: &KeyMaterial, block: u32) -> Result<Self> {
        Self::with(keys, block, BackEnd::Best)
    }

    /// The same, by other means than the fastest.
    pub fn with(keys: &KeyMaterial, block: u32, back_end: BackEnd) -> Result<Self> {
        let cipher = Cipher::new(keys.cipher(), back_end)?;
        Ok(Self { cipher, vectors: HmacKey::with(keys.mac(), back_end), block: block as usize })
    }

    /// Bytes of a block.
    pub fn block(&self) -> u64 {
        self.block as u64
    }

    /// Encrypts the blocks from number `first` on. Both sides are of the same whole number of blocks, or it panics.
    /// [`Kind::Limit`] past block 2^32 - 1.
    pub fn encrypt(&self, first: u64, plain: &[u8], cipher: &mut [u8]) -> Result<()> {
        assert_eq!(plain.len(), cipher.len(), "as much cipher text as plain text");
        let mut number = self.check(first, plain.len())?;
        for (plain, cipher) in plain.chunks(BATCH * self.block).zip(cipher.chunks_mut(BATCH * self.block)) {
            let mut vectors = [Cell::default(); BATCH];
            let vectors = &mut vectors[..plain.len() / self.block];
            self.vectors.vectors(number, vectors);
            self.cipher.encrypt(vectors, plain, cipher, self.block);
            number = number.wrapping_add(vectors.len() as u32);
        }
        Ok(())
    }

    /// Decrypts the blocks from number `first` on in place. `data` is of whole blocks, or it panics. [`Kind::Limit`] past block
    /// 2^32 - 1.
    pub fn decrypt(&self, first: u64, data: &mut [u8]) -> Result<()> {
        let mut number = self.check(first, data.len())?;
        for data in data.chunks_mut(BATCH * self.block) {
            let mut vectors = [Cell::default(); BATCH];
            let vectors = &mut vectors[..data.len() / self.block];
            self.vectors.vectors(number, vectors);
            self.cipher.decrypt(vectors, data, self.block);
            number = number.wrapping_add(vectors.len() as u32);
        }
        Ok(())
    }

    /// Block numbers are 32 bits wide; past them the vectors would repeat.
    fn check(&self, first: u64, length: usize) -> Result<u32> {
        assert!(length.is_multiple_of(self.block), "whole cipher blocks");
        let last = first + (length / self.block).saturating_sub(1) as u64;
        if u32::try_from(last).is_err() {
            let end = self.block() << 32;
            return Err(Error::new(
                Kind::Limit,
                "cipher",
                format!("blocks of {} bytes are numbered up to {end} bytes", self.block),
            ));
        }
        Ok(first as u32)
    }
}

impl fmt::Debug for Sectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sectors").field("block", &self.block).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [BackEnd; 3] = [BackEnd::Best, BackEnd::Narrow, BackEnd::Portable];

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        std::array::from_fn(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).unwrap())
    }

    /// docs/formats/encrypted.md §8, V7.
    #[test]
    fn synthetic_vector() {
        let keys =
            KeyMaterial::new(&std::array::from_fn::<u8, 16, _>(|n| 0x40 + n as u8), &std::array::from_fn(|n| 0x50 + n as u8));
        for back_end in ALL {
            let sectors = Sectors::with(&keys, 512, back_end).unwrap();
            let mut cipher = [0; 512];
            sectors.encrypt(1, &[0; 512], &mut cipher).unwrap();
            assert_eq!(cipher[..32], hex::<32>("2813d4fa5690ff9a5dd935f54ab96c71ecbeb6b039842bdcc8e275c4eabfd0fe"));
            sectors.decrypt(1, &mut cipher).unwrap();
            assert_eq!(cipher, [0; 512]);
        }
    }

    /// §8, V2: a real image's first blocks.
    #[test]
    fn real_vector() {
        let key: [u8; 32] = hex("c87306ecc3c676336500c6b13e70b1cc5b75292f5c5270b5f14d3de124dcee0f");
        let sectors = Sectors::new(&KeyMaterial::new(&key, &hex("d2c19bf05962da080e545caa6c6efdf7f24c2a1f")), 4096).unwrap();
        let mut cipher = [0; 4096];
        sectors.encrypt(0, &[0; 4096], &mut cipher).unwrap();
        assert_eq!(cipher[..32], hex::<32>("9b69b8603e5a486536938df9e9149b5a748937442c740d3562232847201ccffe"));
    }

    #[test]
    fn many_blocks_at_once_are_the_same_as_one_by_one() {
        for (block, back_end) in [512, 4096].into_iter().flat_map(|block| ALL.map(|back_end| (block, back_end))) {
            let sectors = Sectors::with(&KeyMaterial::new(&[7; 32], &[9; 20]), block, back_end).unwrap();
            let plain: Vec<u8> = (0..45 * block).map(|n| (n / 3) as u8).collect();
            let (mut at_once, mut one_by_one) = (vec![0; plain.len()], vec![0; plain.len()]);
            sectors.encrypt(1000, &plain, &mut at_once).unwrap();
            for (n, (plain, cipher)) in plain.chunks(block as usize).zip(one_by_one.chunks_mut(block as usize)).enumerate() {
                sectors.encrypt(1000 + n as u64, plain, cipher).unwrap();
            }
            assert!(at_once == one_by_one);
            sectors.decrypt(1000, &mut at_once).unwrap();
            assert!(at_once == plain);
        }
    }

    #[test]
    fn numbers_end_at_32_bits() {
        let sectors = Sectors::new(&KeyMaterial::new(&[7; 16], &[9; 20]), 512).unwrap();
        let mut data = [0; 1024];
        assert!(sectors.decrypt(u64::from(u32::MAX) - 1, &mut data).is_ok());
        assert_eq!(sectors.decrypt(u64::from(u32::MAX), &mut data).unwrap_err().kind(), Kind::Limit);
        assert!(sectors.decrypt(u64::from(u32::MAX), &mut data[..512]).is_ok());
    }
}
