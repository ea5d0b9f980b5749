//! The block cipher of an image: whole cipher blocks by number. It does no I/O and has no state
//! except the keys.

use std::fmt;

use super::aes::{AesBlock, Cipher};
use super::back_end::BackEnd;
use super::hmac::HmacKey;
use super::keys::KeyMaterial;
use crate::size::narrow;
use crate::{Error, Result};

/// Number of blocks in a batch: the parallel chains of the widest back end.
const BATCH: usize = 16;

/// Encrypts and decrypts blocks of an image: AES-CBC, where the initialization vector of block `n`
/// is the first 16 bytes of HMAC-SHA1 of `n` as 32 bits, big-endian. Source:
/// docs/formats/encrypted.md §3.
pub struct Sectors {
    cipher: Cipher,
    vectors: HmacKey,
    block: usize,
}

impl Sectors {
    /// Creates a cipher for blocks of `block` bytes: 512 or 4096.
    pub fn new(keys: &KeyMaterial, block: u32) -> Result<Self> {
        Self::with(keys, block, BackEnd::Best)
    }

    /// Creates a cipher with a specific back end.
    pub fn with(keys: &KeyMaterial, block: u32, back_end: BackEnd) -> Result<Self> {
        let cipher = Cipher::new(keys.cipher(), back_end)?;
        Ok(Self {
            cipher,
            vectors: HmacKey::with(keys.mac(), back_end),
            block: block as usize,
        })
    }

    /// Returns the block size in bytes.
    pub fn block(&self) -> u64 {
        self.block as u64
    }

    /// Encrypts the blocks from number `first` on. Panics if `plain` and `cipher` differ in length
    /// or are not whole blocks. [`Kind::Limit`](crate::Kind) past block 2^32 - 1.
    pub fn encrypt(&self, first: u64, plain: &[u8], cipher: &mut [u8]) -> Result<()> {
        assert_eq!(
            plain.len(),
            cipher.len(),
            "as much cipher text as plain text"
        );
        let mut number = self.check(first, plain.len())?;
        for (plain, cipher) in plain
            .chunks(BATCH * self.block)
            .zip(cipher.chunks_mut(BATCH * self.block))
        {
            let mut vectors = [AesBlock::default(); BATCH];
            let vectors = &mut vectors[..plain.len() / self.block];
            self.vectors.vectors(number, vectors);
            self.cipher.encrypt(vectors, plain, cipher, self.block);
            number = number.wrapping_add(narrow(vectors.len()));
        }
        Ok(())
    }

    /// Decrypts the blocks from number `first` on in place. Panics if `data` is not whole blocks.
    /// [`Kind::Limit`](crate::Kind) past block 2^32 - 1.
    pub fn decrypt(&self, first: u64, data: &mut [u8]) -> Result<()> {
        let mut number = self.check(first, data.len())?;
        for data in data.chunks_mut(BATCH * self.block) {
            let mut vectors = [AesBlock::default(); BATCH];
            let vectors = &mut vectors[..data.len() / self.block];
            self.vectors.vectors(number, vectors);
            self.cipher.decrypt(vectors, data, self.block);
            number = number.wrapping_add(narrow(vectors.len()));
        }
        Ok(())
    }

    /// Checks that block numbers fit 32 bits; past them the vectors would repeat.
    fn check(&self, first: u64, length: usize) -> Result<u32> {
        assert!(length.is_multiple_of(self.block), "whole cipher blocks");
        let last = first + (length / self.block).saturating_sub(1) as u64;
        if u32::try_from(last).is_err() {
            let end = self.block() << 32;
            return Err(Error::limit(
                "cipher",
                format!(
                    "the offset is past the limit of an image with {}-byte cipher blocks, {end} \
                     bytes",
                    self.block
                ),
            ));
        }
        Ok(narrow(first))
    }
}

impl fmt::Debug for Sectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sectors")
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    const ALL: [BackEnd; 4] = [
        BackEnd::Best,
        BackEnd::Narrow,
        BackEnd::AesNi,
        BackEnd::Portable,
    ];

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        std::array::from_fn(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).unwrap())
    }

    /// docs/formats/encrypted.md §8, V7.
    #[test]
    fn synthetic_vector() {
        let keys = KeyMaterial::new(
            &std::array::from_fn::<u8, 16, _>(|n| 0x40 + n as u8),
            &std::array::from_fn(|n| 0x50 + n as u8),
        );
        for back_end in ALL {
            let sectors = Sectors::with(&keys, 512, back_end).unwrap();
            let mut cipher = [0; 512];
            sectors.encrypt(1, &[0; 512], &mut cipher).unwrap();
            assert_eq!(
                cipher[..32],
                hex::<32>("2813d4fa5690ff9a5dd935f54ab96c71ecbeb6b039842bdcc8e275c4eabfd0fe")
            );
            sectors.decrypt(1, &mut cipher).unwrap();
            assert_eq!(cipher, [0; 512]);
        }
    }

    /// §8, V1 to V5 and V7: the vectors of blocks, and the start of some of them.
    #[test]
    fn documented_blocks() {
        let bytes = |text: &str| -> Vec<u8> {
            text.as_bytes()
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect()
        };
        let v1 = (
            "3b85af67326135b305941bfd6fcbec49",
            "daad98e33c0edc021f8e773b4d27665108bfbc62",
            4096,
        );
        let v2 = (
            "c87306ecc3c676336500c6b13e70b1cc5b75292f5c5270b5f14d3de124dcee0f",
            "d2c19bf05962da080e545caa6c6efdf7f24c2a1f",
            4096,
        );
        let v3 = (
            "3d117d02ebcb46478e97d52832f610d13a98a3ed0483978ecbc6aabaefe040ac",
            "a77726997eaeeda9865f2de7e74a272521ebe1a2",
            512,
        );
        let v4 = (
            "24279aee911f64494b36ff690168112a",
            "43526c3d5ad84d644878e512efcf459d08a061f9",
            512,
        );
        let v5 = (
            "b0744bed3d9d7fd54dfbe8b33e6762d9",
            "03051e518a3a8895a9d896acfc285e13df89b3e3",
            4096,
        );
        let v7 = (
            "404142434445464748494a4b4c4d4e4f",
            "505152535455565758595a5b5c5d5e5f60616263",
            512,
        );
        let zeros = "0000000000000000000000000000000000000000000000000000000000000000";
        // Key, number, vector, and the start of cipher text and plain text.
        for ((key, mac, block), number, vector, cipher, plain) in [
            (
                v1,
                0,
                "1f0c8c47e96f8fc5c2f6dc534abcf555",
                "eae5edf08d7e1ea8fcd0099aec567c1f0c49af04da6fc0dbaf750962551946c3",
                zeros,
            ),
            (
                v1,
                1,
                "8a0a7e9442d4e7d7e8b8f6e8fe976444",
                "83989d04f35ea11f696dd319d57f6861",
                &zeros[..32],
            ),
            (v1, 15, "eb7d0ae97cfae9e521e79930f372e863", "", ""),
            (
                v2,
                0,
                "fe6bb0f8b3aec1964501def7b34d8405",
                "9b69b8603e5a486536938df9e9149b5a748937442c740d3562232847201ccffe",
                zeros,
            ),
            (
                v3,
                0,
                "f146ee2830b61472982d5d1ea20b6f2a",
                "c891ca688b2fb84efbcff6ec720694efba06b378713a732a05872ed7a360a4c7",
                "7801edd4cb09c2401000d0a88d58432c207a112f82600121a048d068d01492d2",
            ),
            (
                v4,
                0,
                "7ebae1c4e2ce5817052c7a6d2b50ebb8",
                "666b60e44fa6f710586765cf1c375e7d1d382eb1ecf433c3345f5e46282034d2",
                "7801edd4cb09c2401000d0a8f7d4600f1610bd881741b0801050246834680a48",
            ),
            (
                v5,
                0,
                "23b5d46af3ce6b4094c0abab991ccb3a",
                "09f25b84cb35ee016ef6b7aecbee6c7471755279eb1b59eb596e4e1de15f6e0d",
                "7801730d6262606030ba082446c1080c010032f4019d7801edd4c109c2301400",
            ),
            (v7, 0, "b4f49d3536c6bf3d5e25db64cc3edf29", "", ""),
            (
                v7,
                1,
                "ea9b157fa491745a5b980615ece91b01",
                "2813d4fa5690ff9a5dd935f54ab96c71ecbeb6b039842bdcc8e275c4eabfd0fe",
                zeros,
            ),
        ] {
            let (vector, cipher, plain) = (bytes(vector), bytes(cipher), bytes(plain));
            let keys = KeyMaterial::new(&bytes(key), &hex(mac));
            for back_end in ALL {
                let mut found = [AesBlock::default(); 5];
                HmacKey::with(keys.mac(), back_end).vectors(number, &mut found);
                assert_eq!(found[0][..], vector, "block {number} of {key}");
                // A cell of a chain depends only on the cells before it.
                let mut data = vec![0; block as usize];
                data[..cipher.len()].copy_from_slice(&cipher);
                let sectors = Sectors::with(&keys, block, back_end).unwrap();
                sectors.decrypt(u64::from(number), &mut data).unwrap();
                assert_eq!(data[..plain.len()], plain, "block {number} of {key}");
                let (again, mut made) = (data, vec![0; block as usize]);
                sectors
                    .encrypt(u64::from(number), &again, &mut made)
                    .unwrap();
                assert_eq!(made[..cipher.len()], cipher, "block {number} of {key}");
            }
        }
    }

    #[test]
    fn many_blocks_at_once_are_the_same_as_one_by_one() {
        for (block, back_end) in [512, 4096]
            .into_iter()
            .flat_map(|block| ALL.map(|back_end| (block, back_end)))
        {
            let sectors =
                Sectors::with(&KeyMaterial::new(&[7; 32], &[9; 20]), block, back_end).unwrap();
            let plain: Vec<u8> = (0..45 * block).map(|n| (n / 3) as u8).collect();
            let (mut at_once, mut one_by_one) = (vec![0; plain.len()], vec![0; plain.len()]);
            sectors.encrypt(1000, &plain, &mut at_once).unwrap();
            for (n, (plain, cipher)) in plain
                .chunks(block as usize)
                .zip(one_by_one.chunks_mut(block as usize))
                .enumerate()
            {
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
        assert_eq!(
            sectors
                .decrypt(u64::from(u32::MAX), &mut data)
                .unwrap_err()
                .kind(),
            Kind::Limit
        );
        assert!(
            sectors
                .decrypt(u64::from(u32::MAX), &mut data[..512])
                .is_ok()
        );
    }
}
