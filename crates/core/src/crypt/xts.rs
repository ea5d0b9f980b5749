//! AES-128-XTS as used by APFS (IEEE 1619): units of 512 bytes with arbitrary start numbers.

use std::fmt;

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};

#[cfg(target_arch = "x86_64")]
use bandsaw_cpu::{NativeXts, Width};

/// Size of an AES block in bytes.
const CELL: usize = 16;
/// Number of AES blocks in a unit.
const UNIT_CELLS: usize = Xts::UNIT / CELL;
/// Number of units that are processed at a time: the crate encrypts 30 or 64 blocks side by side, and
/// each that is left over alone.
const BATCH: usize = 16;

/// A key for XTS: one half encrypts the data, the other the unit's number. The halves may be equal.
#[derive(Clone)]
pub struct Xts(Implementation);

/// The fastest implementation that this processor supports.
#[derive(Clone)]
enum Implementation {
    /// Processor instructions, eight or more blocks in parallel.
    #[cfg(target_arch = "x86_64")]
    Native(Box<NativeXts>),
    /// The `aes` crate.
    Portable(Box<Portable>),
}

impl Xts {
    /// Size of a unit in bytes.
    pub const UNIT: usize = 512;

    /// Expands the key: the first half is for the data, the second for the numbers.
    pub fn new(key: &[u8; 32]) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(native) = Self::native(key, Width::Quadruple) {
            return native;
        }
        Self::portable(key)
    }

    /// Expands the key for registers no wider than `most`, if this processor has the instructions.
    #[cfg(target_arch = "x86_64")]
    fn native(key: &[u8; 32], most: Width) -> Option<Self> {
        let ([data, tweak], []) = key.as_chunks::<CELL>() else {
            return None;
        };
        let native = NativeXts::new(data, tweak, most)?;
        Some(Self(Implementation::Native(Box::new(native))))
    }

    /// Expands the key with the `aes` crate.
    fn portable(key: &[u8; 32]) -> Self {
        Self(Implementation::Portable(Box::new(Portable::new(key))))
    }

    /// Decrypts units in place; `first` is the number of the first. A partial unit at the end is
    /// left unchanged.
    pub fn decrypt(&self, first: u64, data: &mut [u8]) {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            Implementation::Native(native) => native.decrypt(first, data),
            Implementation::Portable(key) => {
                key.each_unit(first, data, |cells| key.data.decrypt_blocks(cells))
            }
        }
    }

    /// Encrypts units in place; `first` is the number of the first. A partial unit at the end is
    /// left unchanged.
    pub fn encrypt(&self, first: u64, data: &mut [u8]) {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            Implementation::Native(native) => native.encrypt(first, data),
            Implementation::Portable(key) => {
                key.each_unit(first, data, |cells| key.data.encrypt_blocks(cells))
            }
        }
    }
}

/// Decrypts one unit of any length in place; `number` is the unit's. A partial block at its end is
/// decrypted with the block before it, as IEEE 1619 defines. Less than a block is left unchanged.
///
/// For metadata, which is short: [`Xts`] is faster, but its units have 512 bytes.
pub fn decrypt_xts_unit(key: &[u8; 32], number: u64, data: &mut [u8]) {
    let key = Portable::new(key);
    key.long_unit(number, data, false);
}

/// Encrypts one unit of any length in place, as [`decrypt_xts_unit`] decrypts it.
pub fn encrypt_xts_unit(key: &[u8; 32], number: u64, data: &mut [u8]) {
    let key = Portable::new(key);
    key.long_unit(number, data, true);
}

/// The key schedules of both halves.
#[derive(Clone)]
struct Portable {
    data: Aes128,
    tweak: Aes128,
}

impl Portable {
    fn new(key: &[u8; 32]) -> Self {
        let half = |at: usize| {
            Aes128::new(&std::array::from_fn::<u8, CELL, _>(|byte| key[at + byte]).into())
        };
        Self {
            data: half(0),
            tweak: half(CELL),
        }
    }

    /// Decrypts or encrypts a unit of any length.
    fn long_unit(&self, number: u64, data: &mut [u8], encrypt: bool) {
        let mut start = Block::default();
        start[..8].copy_from_slice(&number.to_le_bytes());
        self.tweak.encrypt_block(&mut start);
        let mut tweak = u128::from_le_bytes(start.into());
        let (cells, rest) = data.as_chunks_mut::<CELL>();
        let plain = match rest.is_empty() {
            true => cells.len(),
            false => cells.len().saturating_sub(1),
        };
        let (plain, last) = cells.split_at_mut(plain);
        for cell in plain {
            self.cell(tweak, cell, encrypt);
            tweak = doubled(tweak);
        }
        let [last] = last else { return };
        // The last whole block is processed with the tweak after its own when decrypting.
        let (first, second) = match encrypt {
            true => (tweak, doubled(tweak)),
            false => (doubled(tweak), tweak),
        };
        self.cell(first, last, encrypt);
        let mut stolen = *last;
        stolen[..rest.len()].copy_from_slice(rest);
        rest.copy_from_slice(&last[..rest.len()]);
        self.cell(second, &mut stolen, encrypt);
        *last = stolen;
    }

    fn cell(&self, tweak: u128, cell: &mut [u8; CELL], encrypt: bool) {
        let mut block = Block::from((u128::from_le_bytes(*cell) ^ tweak).to_le_bytes());
        match encrypt {
            true => self.data.encrypt_block(&mut block),
            false => self.data.decrypt_block(&mut block),
        }
        *cell = (u128::from_le_bytes(block.into()) ^ tweak).to_le_bytes();
    }

    fn each_unit(&self, first: u64, data: &mut [u8], cipher: impl Fn(&mut [Block])) {
        let mut number = first;
        let (units, _) = data.as_chunks_mut::<{ Xts::UNIT }>();
        let mut tweaks = [0_u128; BATCH * UNIT_CELLS];
        let mut cells = [Block::default(); BATCH * UNIT_CELLS];
        for batch in units.chunks_mut(BATCH) {
            let mut starts = [Block::default(); BATCH];
            for start in &mut starts {
                start[..8].copy_from_slice(&number.to_le_bytes());
                number = number.wrapping_add(1);
            }
            // The last batch may be shorter; its surplus numbers are ignored.
            self.tweak.encrypt_blocks(&mut starts);
            for (unit, start) in tweaks
                .as_chunks_mut::<UNIT_CELLS>()
                .0
                .iter_mut()
                .zip(starts)
            {
                let mut tweak = u128::from_le_bytes(start.into());
                for slot in unit {
                    *slot = tweak;
                    tweak = doubled(tweak);
                }
            }
            let (bytes, _) = batch.as_flattened_mut().as_chunks_mut::<CELL>();
            let cells = &mut cells[..bytes.len()];
            for ((cell, bytes), tweak) in cells.iter_mut().zip(&*bytes).zip(&tweaks) {
                *cell = (u128::from_le_bytes(*bytes) ^ tweak).to_le_bytes().into();
            }
            cipher(cells);
            for ((cell, bytes), tweak) in cells.iter().zip(bytes).zip(&tweaks) {
                *bytes = (u128::from_le_bytes((*cell).into()) ^ tweak).to_le_bytes();
            }
        }
    }
}

/// Returns a tweak times x in GF(2^128), modulo x^128 + x^7 + x^2 + x + 1.
fn doubled(tweak: u128) -> u128 {
    (tweak << 1) ^ ((tweak >> 127) * 0x87)
}

impl fmt::Debug for Xts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xts").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns every implementation with processor instructions that this processor supports.
    fn natives(key: &[u8; 32]) -> Vec<Xts> {
        #[cfg(target_arch = "x86_64")]
        return [Width::Single, Width::Quadruple]
            .into_iter()
            .filter_map(|most| Xts::native(key, most))
            .collect();
        #[cfg(not(target_arch = "x86_64"))]
        vec![Xts::new(key)]
    }

    /// IEEE 1619-2007, annex B, vector 4: the data unit of 512 bytes with number 0.
    #[test]
    fn the_standards_vector() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
                .collect()
        };
        let key = hex("2718281828459045235360287471352631415926535897932384626433832795")
            .try_into()
            .unwrap();
        let plain: Vec<u8> = (0..512_u32).map(|at| at as u8).collect();
        let mut data = plain.clone();
        for xts in natives(&key).into_iter().chain([Xts::portable(&key)]) {
            xts.encrypt(0, &mut data);
            assert_eq!(
                data[..32],
                hex("27a7479befa1d476489f308cd4cfa6e2a96e4bbe3208ff25287dd3819616e89c")
            );
            assert_eq!(data[496..], hex("0a282df920147beabe421ee5319d0568"));
            xts.decrypt(0, &mut data);
            assert_eq!(data, plain);
        }
    }

    /// Units of the usual length agree with [`Xts`], others can be decrypted again.
    #[test]
    fn long_units_are_units_too() {
        let key = std::array::from_fn(|at| at as u8);
        let plain: Vec<u8> = (0..8192_u32).map(|at| (at / 7) as u8).collect();
        let (mut one, mut other) = (plain[..512].to_vec(), plain[..512].to_vec());
        Xts::new(&key).encrypt(9, &mut one);
        encrypt_xts_unit(&key, 9, &mut other);
        assert_eq!(one, other);
        for len in [0, 5, 16, 17, 31, 32, 100, 8192] {
            let mut data = plain[..len].to_vec();
            encrypt_xts_unit(&key, 3, &mut data);
            assert_eq!(len >= 16, data != plain[..len], "{len}");
            decrypt_xts_unit(&key, 3, &mut data);
            assert_eq!(data, plain[..len], "{len}");
        }
    }

    /// IEEE 1619-2007, annex B, vector 15: 17 bytes.
    #[test]
    fn the_standards_vector_of_a_partial_block() {
        let key: [u8; 32] = std::array::from_fn(|at| match at {
            0..16 => 0xFF - at as u8,
            _ => 0xBF - (at - 16) as u8,
        });
        let mut data: Vec<u8> = (0..17).collect();
        encrypt_xts_unit(&key, 0x12_3456_789A, &mut data);
        let expected = [
            0x6C, 0x16, 0x25, 0xDB, 0x46, 0x71, 0x52, 0x2D, 0x3D, 0x75, 0x99, 0x60, 0x1D, 0xE7,
            0xCA, 0x09, 0xED,
        ];
        assert_eq!(data, expected);
    }

    #[test]
    fn units_are_numbered_one_by_one() {
        let xts = Xts::new(&std::array::from_fn(|at| at as u8));
        let mut together = vec![7; 20 * Xts::UNIT + 5];
        xts.encrypt(u64::MAX - 3, &mut together);
        for (at, unit) in together.chunks_mut(Xts::UNIT).enumerate() {
            xts.decrypt((u64::MAX - 3).wrapping_add(at as u64), unit);
        }
        assert_eq!(together, vec![7; 20 * Xts::UNIT + 5]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Asserts that processor instructions give the results of the plain crate for any number
        /// of units, and that decryption inverts encryption.
        #[test]
        fn means_agree(key in any::<[u8; 32]>(), first in any::<u64>(), plain in prop::collection::vec(any::<u8>(), 0..40 * 512)) {
            let portable = Xts::portable(&key);
            let mut expected = plain.clone();
            portable.encrypt(first, &mut expected);
            for native in natives(&key) {
                let mut data = plain.clone();
                native.encrypt(first, &mut data);
                prop_assert!(data == expected);
                native.decrypt(first, &mut data);
                prop_assert!(data == plain);
            }
            portable.decrypt(first, &mut expected);
            prop_assert!(expected == plain);
        }
    }
}
