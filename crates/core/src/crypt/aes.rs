//! AES-CBC of many blocks of an image in parallel.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256, Block};

use super::back_end::BackEnd;
use crate::{Error, Result};
#[cfg(target_arch = "x86_64")]
use bandsaw_cpu::{NativeAes, Width};

/// An initialization vector, or any AES block.
pub(super) type AesBlock = [u8; 16];

/// An AES key, expanded for the fastest implementation that this processor supports.
pub(super) enum Cipher {
    /// Processor instructions, many chains in parallel.
    #[cfg(target_arch = "x86_64")]
    Native(Box<NativeAes>),
    /// The `aes` crate.
    Aes128(Box<Aes128>),
    /// The `aes` crate.
    Aes256(Box<Aes256>),
}

impl Cipher {
    /// Expands a key of 16 or 32 bytes. Fails for other lengths.
    pub(super) fn new(key: &[u8], back_end: BackEnd) -> Result<Self> {
        #[cfg(target_arch = "x86_64")]
        let native = match back_end {
            BackEnd::Best => NativeAes::new(key, Width::Quadruple),
            BackEnd::Narrow => NativeAes::new(key, Width::Double),
            BackEnd::AesNi => NativeAes::new(key, Width::Single),
            BackEnd::Portable => None,
        };
        #[cfg(target_arch = "x86_64")]
        if let Some(native) = native {
            return Ok(Self::Native(Box::new(native)));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = back_end;
        Self::portable(key)
    }

    /// Expands a key with the `aes` crate.
    fn portable(key: &[u8]) -> Result<Self> {
        match key.len() {
            16 => Ok(Self::Aes128(Box::new(
                Aes128::new_from_slice(key).map_err(|_| bad_key(key))?,
            ))),
            32 => Ok(Self::Aes256(Box::new(
                Aes256::new_from_slice(key).map_err(|_| bad_key(key))?,
            ))),
            _ => Err(bad_key(key)),
        }
    }

    /// Encrypts `ivs.len()` blocks of `block` bytes (a multiple of 64) from `plain` to `cipher`.
    /// Each block is a CBC chain with its own initialization vector.
    pub(super) fn encrypt(&self, ivs: &[AesBlock], plain: &[u8], cipher: &mut [u8], block: usize) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Native(native) => native.encrypt(ivs, plain, cipher, block),
            Self::Aes128(aes) => encrypt_portable(&**aes, ivs, plain, cipher, block),
            Self::Aes256(aes) => encrypt_portable(&**aes, ivs, plain, cipher, block),
        }
    }

    /// Decrypts `ivs.len()` blocks of `block` bytes (a multiple of 64) in place. Each block is a
    /// CBC chain with its own initialization vector.
    pub(super) fn decrypt(&self, ivs: &[AesBlock], data: &mut [u8], block: usize) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Native(native) => native.decrypt(ivs, data, block),
            Self::Aes128(aes) => decrypt_portable(&**aes, ivs, data, block),
            Self::Aes256(aes) => decrypt_portable(&**aes, ivs, data, block),
        }
    }
}

fn bad_key(key: &[u8]) -> Error {
    Error::unsupported(
        "aes",
        format!(
            "unsupported key of {} bits: expected 128 or 256",
            key.len() * 8
        ),
    )
}

/// Number of chains processed in parallel: the overlap of the crate's narrow back ends, limited by
/// the first-level cache at a stride of 4096.
const LANES: usize = 8;

type Bytes16 = aes::cipher::consts::U16;

fn encrypt_portable(
    aes: &impl BlockCipherEncrypt<BlockSize = Bytes16>,
    ivs: &[AesBlock],
    plain: &[u8],
    data: &mut [u8],
    block: usize,
) {
    data.copy_from_slice(plain);
    for (ivs, data) in ivs.chunks(LANES).zip(data.chunks_mut(LANES * block)) {
        let mut cells = [Block::default(); LANES];
        let cells = &mut cells[..ivs.len()];
        for (cell, iv) in cells.iter_mut().zip(ivs) {
            *cell = Block::from(*iv);
        }
        for at in (0..block).step_by(16) {
            for (cell, chain) in cells.iter_mut().zip(data.chunks_exact(block)) {
                xor(cell, &chain[at..at + 16]);
            }
            aes.encrypt_blocks(cells);
            for (cell, chain) in cells.iter().zip(data.chunks_exact_mut(block)) {
                chain[at..at + 16].copy_from_slice(cell);
            }
        }
    }
}

fn decrypt_portable(
    aes: &impl BlockCipherDecrypt<BlockSize = Bytes16>,
    ivs: &[AesBlock],
    data: &mut [u8],
    block: usize,
) {
    for (iv, chain) in ivs.iter().zip(data.chunks_exact_mut(block)) {
        let mut previous = *iv;
        for part in chain.chunks_mut(512) {
            let mut cells = [Block::default(); 32];
            let cells = &mut cells[..part.len() / 16];
            for (cell, cipher) in cells.iter_mut().zip(part.chunks_exact(16)) {
                cell.copy_from_slice(cipher);
            }
            aes.decrypt_blocks(cells);
            for (cell, cipher) in cells.iter_mut().zip(part.chunks_exact_mut(16)) {
                xor(cell, &previous);
                previous.copy_from_slice(cipher);
                cipher.copy_from_slice(cell);
            }
        }
    }
}

fn xor(cell: &mut Block, other: &[u8]) {
    for (a, b) in cell.iter_mut().zip(other) {
        *a ^= b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [BackEnd; 4] = [
        BackEnd::Best,
        BackEnd::Narrow,
        BackEnd::AesNi,
        BackEnd::Portable,
    ];

    /// FIPS 197, appendix C: one block, so CBC with a zero vector.
    #[test]
    fn known_answers() {
        let plain: AesBlock = std::array::from_fn(|n| n as u8 * 0x11);
        for (len, first) in [
            (16u8, [0x69, 0xC4, 0xE0, 0xD8]),
            (32, [0x8E, 0xA2, 0xB7, 0xCA]),
        ] {
            let key: Vec<u8> = (0..len).collect();
            for back_end in ALL {
                let cipher = Cipher::new(&key, back_end).unwrap();
                let (mut padded, mut data) = ([0; 64], [0; 64]);
                padded[..16].copy_from_slice(&plain);
                cipher.encrypt(&[[0; 16]], &padded, &mut data, 64);
                assert_eq!(data[..4], first);
            }
        }
    }

    #[test]
    fn refuses_other_key_lengths() {
        assert!(
            ALL.iter()
                .all(|&back_end| Cipher::new(&[0; 24], back_end).is_err())
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Asserts that every back end gives the results of the plain crate for every number of
        /// chains, and that decryption inverts encryption.
        #[test]
        fn back_ends_agree(
            seed in any::<u64>(),
            long in any::<bool>(),
            chains in 1usize..40,
            block in prop::sample::select(vec![64usize, 512, 1024, 4096]),
        ) {
            let mut state = seed | 1;
            let mut bytes = |len: usize| -> Vec<u8> {
                (0..len).map(|_| { state ^= state << 13; state ^= state >> 7; state ^= state << 17; state as u8 }).collect()
            };
            let key = bytes(if long { 32 } else { 16 });
            let ivs: Vec<AesBlock> = (0..chains).map(|_| bytes(16).try_into().unwrap()).collect();
            let plain = bytes(chains * block);
            let mut expected = vec![0; plain.len()];
            Cipher::portable(&key).unwrap().encrypt(&ivs, &plain, &mut expected, block);
            for back_end in ALL {
                let cipher = Cipher::new(&key, back_end).unwrap();
                let mut data = vec![0; plain.len()];
                cipher.encrypt(&ivs, &plain, &mut data, block);
                prop_assert!(data == expected);
                cipher.decrypt(&ivs, &mut data, block);
                prop_assert!(data == plain);
            }
            Cipher::portable(&key).unwrap().decrypt(&ivs, &mut expected, block);
            prop_assert!(expected == plain);
        }
    }
}
