//! Derivation of keys from a passphrase with PBKDF2-HMAC-SHA1, and wrapping of the key material
//! with triple DES or AES. Source: docs/formats/encrypted.md §2.1, §2.3, §6.

use std::fmt;
use std::time::{Duration, Instant};

use aes::{Aes128, Aes192, Aes256};
use des::TdesEde3;
use des::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::hmac::HmacKey;
use crate::size::narrow;
use crate::{Error, Kind, Result};

/// Marker after the keys in a wrapped blob; its presence, with valid padding, proves the
/// passphrase.
const MARK: &[u8; 5] = b"CKIE\0";
/// Minimum number of iterations that is written.
pub const MIN_ITERATIONS: u32 = 150_000;
/// Maximum number of iterations that is accepted: a forged count would cause minutes of
/// computation.
pub const MAX_ITERATIONS: u32 = 100_000_000;

/// The keys of an image: an AES-128 or AES-256 key, and the MAC key for initialization vectors.
/// Wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct KeyMaterial(Vec<u8>);

impl KeyMaterial {
    /// Combines a cipher key of 16 or 32 bytes and a MAC key.
    #[cfg(test)]
    pub(super) fn new(cipher: &[u8], mac: &[u8; 20]) -> Self {
        Self([cipher, mac].concat())
    }

    /// Creates keys for AES of `bits` (128 or 256) from the system's random source.
    pub fn random(bits: u32) -> Result<Self> {
        let mut keys = Self(vec![0; bits as usize / 8 + 20]);
        random(&mut keys.0)?;
        Ok(keys)
    }

    /// Parses unwrapped key material: the cipher key, then 20 bytes of the MAC key.
    fn from_bytes(bytes: &[u8], bits: u32) -> Result<Self> {
        if bytes.len() != bits as usize / 8 + 20 {
            return Err(Error::new(
                Kind::Corrupt,
                "key entry",
                format!(
                    "the wrapped keys have {} bytes, but AES-{bits} needs {}",
                    bytes.len(),
                    bits / 8 + 20
                ),
            ));
        }
        Ok(Self(bytes.to_vec()))
    }

    /// Returns the keys followed by the marker, ready to be wrapped.
    pub(super) fn marked(&self) -> Zeroizing<Vec<u8>> {
        // With capacity for the padding, so that no copy is left behind by a reallocation.
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.0.len() + MARK.len() + 8));
        bytes.extend_from_slice(&self.0);
        bytes.extend_from_slice(MARK);
        bytes
    }

    /// Parses unwrapped bytes; `None` if the marker is missing.
    pub(super) fn from_marked(bytes: &[u8], bits: u32) -> Result<Option<Self>> {
        bytes
            .strip_suffix(MARK)
            .map(|keys| Self::from_bytes(keys, bits))
            .transpose()
    }

    /// Combines the two keys of a version 1 trailer, which are unwrapped separately.
    pub(super) fn from_parts(cipher: &[u8], mac: &[u8], bits: u32) -> Result<Self> {
        Self::from_bytes(&Zeroizing::new([cipher, mac].concat()), bits)
    }

    pub(super) fn cipher(&self) -> &[u8] {
        &self.0[..self.0.len() - 20]
    }

    pub(super) fn mac(&self) -> &[u8] {
        &self.0[self.0.len() - 20..]
    }
}

impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyMaterial(..)")
    }
}

/// Parameters of the derivation of a wrapping key from a passphrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Derivation {
    pub(super) iterations: u32,
    pub(super) salt: Vec<u8>,
}

impl Derivation {
    /// Returns parameters with a random salt.
    pub(crate) fn random(iterations: u32) -> Result<Self> {
        let mut salt = vec![0; 20];
        random(&mut salt)?;
        Ok(Self { iterations, salt })
    }

    pub(super) fn derive(&self, passphrase: &[u8], wrap: KeyWrap) -> Result<WrapKey> {
        check_iterations("key entry", self.iterations)?;
        #[cfg(test)]
        DERIVED.with(|derived| derived.set(derived.get() + u64::from(self.iterations)));
        let mut key = WrapKey {
            wrap,
            bytes: Zeroizing::new(vec![0; wrap.key_bits() as usize / 8]),
        };
        HmacKey::new(passphrase).pbkdf2(&self.salt, self.iterations, &mut key.bytes);
        Ok(key)
    }
}

/// Fails for iteration counts of 0 or above the maximum.
pub(super) fn check_iterations(layer: &'static str, iterations: u32) -> Result<()> {
    if (1..=MAX_ITERATIONS).contains(&iterations) {
        return Ok(());
    }
    let message = format!(
        "invalid number of iterations {iterations}: expected 1 to \
                           {MAX_ITERATIONS}"
    );
    Err(Error::limit(layer, message))
}

/// The cipher that wraps the image's keys with a key derived from a passphrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyWrap {
    /// Triple DES, readable by every system that supports encrypted images.
    #[default]
    TripleDes,
    /// AES with a 128-bit key. Not known to be written by macOS.
    Aes128,
    /// AES with a 192-bit key, as current macOS writes.
    Aes192,
    /// AES with a 256-bit key. Not known to be written by macOS.
    Aes256,
}

impl KeyWrap {
    /// Returns the size of the derived key in bits.
    pub fn key_bits(self) -> u32 {
        match self {
            Self::TripleDes | Self::Aes192 => 192,
            Self::Aes128 => 128,
            Self::Aes256 => 256,
        }
    }

    /// Returns the block size of the cipher in bytes.
    pub(super) fn cell(self) -> usize {
        if self == Self::TripleDes { 8 } else { 16 }
    }
}

impl fmt::Display for KeyWrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TripleDes => f.write_str("3DES"),
            _ => write!(f, "AES-{}", self.key_bits()),
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Sum of the iterations of all derivations in this thread, a measure of the unlocking time.
    pub(super) static DERIVED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A key derived from a passphrase, and its cipher.
pub(super) struct WrapKey {
    wrap: KeyWrap,
    bytes: Zeroizing<Vec<u8>>,
}

impl WrapKey {
    /// Unwraps a v2 blob. Returns `None` if this key does not fit, as shown by padding and marker.
    /// An `iv` shorter than a block of the cipher is extended with zeros.
    pub(super) fn unwrap(&self, iv: &[u8], blob: &[u8], bits: u32) -> Result<Option<KeyMaterial>> {
        let mut plain = Zeroizing::new(blob.to_vec());
        match self.decrypt(iv, &mut plain) {
            Some(plain) => KeyMaterial::from_marked(plain, bits),
            None => Ok(None),
        }
    }

    /// Wraps keys into a v2 blob.
    pub(super) fn wrap(&self, iv: &[u8], keys: &KeyMaterial) -> Vec<u8> {
        let mut data = keys.marked();
        let pad = self.wrap.cell() - data.len() % self.wrap.cell();
        data.extend(std::iter::repeat_n(narrow::<u8>(pad), pad));
        match self.wrap {
            KeyWrap::TripleDes => self.encrypt_by::<TdesEde3>(iv, &mut data),
            KeyWrap::Aes128 => self.encrypt_by::<Aes128>(iv, &mut data),
            KeyWrap::Aes192 => self.encrypt_by::<Aes192>(iv, &mut data),
            KeyWrap::Aes256 => self.encrypt_by::<Aes256>(iv, &mut data),
        }
        data.to_vec()
    }

    /// Unwraps a v1 blob, if this key fits: it is wrapped twice, and the inner result is reversed
    /// and follows four zero bytes.
    pub(super) fn unwrap_v1(&self, blob: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        const IV: [u8; 8] = [0x4A, 0xDD, 0xA2, 0x2C, 0x79, 0xE8, 0x21, 0x05];
        let mut outer = Zeroizing::new(blob.to_vec());
        let outer = self.decrypt(&IV, &mut outer)?;
        let mut inner = Zeroizing::new(outer.iter().rev().copied().collect::<Vec<u8>>());
        let (iv, inner) = inner.split_first_chunk_mut::<8>()?;
        let plain = self.decrypt(iv, inner)?;
        Some(Zeroizing::new(plain.strip_prefix(&[0; 4])?.to_vec()))
    }

    /// Decrypts CBC in place and removes the PKCS#7 padding; `None` if the padding is invalid.
    fn decrypt<'a>(&self, iv: &[u8], data: &'a mut [u8]) -> Option<&'a [u8]> {
        let cell = self.wrap.cell();
        if !data.len().is_multiple_of(cell) {
            return None;
        }
        match self.wrap {
            KeyWrap::TripleDes => self.decrypt_by::<TdesEde3>(iv, data),
            KeyWrap::Aes128 => self.decrypt_by::<Aes128>(iv, data),
            KeyWrap::Aes192 => self.decrypt_by::<Aes192>(iv, data),
            KeyWrap::Aes256 => self.decrypt_by::<Aes256>(iv, data),
        }
        let pad = usize::from(*data.last()?);
        let (plain, padding) = data.split_at_checked(data.len().checked_sub(pad)?)?;
        ((1..=cell).contains(&pad) && padding.iter().all(|&byte| usize::from(byte) == pad))
            .then_some(plain)
    }

    /// Decrypts CBC in place, over whole blocks.
    fn decrypt_by<C: KeyInit + BlockCipherDecrypt>(&self, iv: &[u8], data: &mut [u8]) {
        let Some((cipher, mut previous)) = self.cipher::<C>(iv) else {
            return;
        };
        for cell in data.chunks_exact_mut(previous.len()) {
            let mut block = Array::<u8, C::BlockSize>::from_fn(|n| cell[n]);
            let kept = block.clone();
            cipher.decrypt_block(&mut block);
            cell.iter_mut()
                .enumerate()
                .for_each(|(n, byte)| *byte = block[n] ^ previous[n]);
            previous = kept;
        }
    }

    fn encrypt_by<C: KeyInit + BlockCipherEncrypt>(&self, iv: &[u8], data: &mut [u8]) {
        let Some((cipher, mut previous)) = self.cipher::<C>(iv) else {
            return;
        };
        for cell in data.chunks_exact_mut(previous.len()) {
            let mut block = Array::<u8, C::BlockSize>::from_fn(|n| cell[n] ^ previous[n]);
            cipher.encrypt_block(&mut block);
            cell.copy_from_slice(&block);
            previous = block;
        }
    }

    /// Returns the cipher, and the initialization vector extended with zeros. The length of the key
    /// matches the cipher by construction.
    fn cipher<C: KeyInit + BlockSizeUser>(
        &self,
        iv: &[u8],
    ) -> Option<(C, Array<u8, C::BlockSize>)> {
        let vector = Array::from_fn(|n| iv.get(n).copied().unwrap_or_default());
        C::new_from_slice(&self.bytes)
            .ok()
            .map(|cipher| (cipher, vector))
    }
}

/// Returns the number of iterations that take about a quarter of a second on this machine, at least
/// [`MIN_ITERATIONS`].
pub fn calibrate() -> u32 {
    const TRIAL: u32 = 100_000;
    let start = Instant::now();
    HmacKey::new(b"calibration").pbkdf2(&[0; 20], TRIAL, &mut [0; 24]);
    let each = start.elapsed().max(Duration::from_micros(1)).as_secs_f64() / f64::from(TRIAL);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates"
    )]
    let count = (0.25 / each) as u32;
    count.clamp(MIN_ITERATIONS, MAX_ITERATIONS)
}

/// Fills `bytes` from the system's random source.
pub fn random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|error| {
        Error::new(
            Kind::Io,
            "random source",
            "the system returned no random bytes",
        )
        .caused_by(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        text.as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    struct Vector {
        passphrase: String,
        iterations: u32,
        salt: &'static str,
        iv: &'static str,
        blob: &'static str,
        cipher: &'static str,
        mac: &'static str,
    }

    /// docs/formats/encrypted.md §8: V1 to V5 and V8.
    fn vectors() -> Vec<Vector> {
        let v = |passphrase: &str, iterations, salt, iv, blob, cipher, mac| Vector {
            passphrase: passphrase.to_owned(),
            iterations,
            salt,
            iv,
            blob,
            cipher,
            mac,
        };
        vec![
            v(
                "vilefault",
                1000,
                "839730be2331c69df4f729ffe8a10c26653bea94",
                "1f24e25712c2d70d",
                "3231e20aa642889a7e087cb87c84ba1cd52864007cfea677796a6f52e16b2609696dde9230aeb5603aeb1f70f6701be6",
                "3b85af67326135b305941bfd6fcbec49",
                "daad98e33c0edc021f8e773b4d27665108bfbc62",
            ),
            v(
                "vilefault",
                1000,
                "fd70ac1e078f01fce55a2e56145a2494446db32a",
                "9110b1778f09b1a7",
                "68a32866b0e67515f35dc67c4d6747a8561a9f4f6a6718a894b0a77a47c452471e04ecef9bf56f0d83d1201a509a374e24d9f90a15c9c4797136ee5d19d90a2b",
                "c87306ecc3c676336500c6b13e70b1cc5b75292f5c5270b5f14d3de124dcee0f",
                "d2c19bf05962da080e545caa6c6efdf7f24c2a1f",
            ),
            v(
                "openwall-fixed",
                156_250,
                "cd158c4f80ef9e24d3266138086f4a3f57be9b9f",
                "b609c91134e70e48",
                "dc40184531182e32ec9960ae088d4fc6ecc3dfe884dd39adf512141526247b58329e460e569920c126cc4ce3e37612cf34f2de0dafebe44192fbe33e5a60cee0",
                "3d117d02ebcb46478e97d52832f610d13a98a3ed0483978ecbc6aabaefe040ac",
                "a77726997eaeeda9865f2de7e74a272521ebe1a2",
            ),
            v(
                "openwall",
                156_250,
                "23ad70c1649ba63a7cb514e001fa120bff7418d2",
                "27e2e94a9c2b6e49",
                "e5e0f3e4150bd96c45f3a07e602426980a9dd0be898396af05ecdf70baf7fb171346251b547000a2752ede9e8317064e",
                "24279aee911f64494b36ff690168112a",
                "43526c3d5ad84d644878e512efcf459d08a061f9",
            ),
            v(
                "654321",
                1000,
                "dc39029a22b86bb4f930499578d0dc9eee69398e",
                "bb47bff69b10ae67",
                "c4559cada09552ab075e73dbefa4aea1aa21209011946e423ca707753a91c87f6c4cbed3beae20a244d33568f852068a",
                "b0744bed3d9d7fd54dfbe8b33e6762d9",
                "03051e518a3a8895a9d896acfc285e13df89b3e3",
            ),
            v(
                &"1234567890abcdefghij".repeat(4),
                181_818,
                "2ade7391bd439ecf905265f0277e9bd55e5c1a3b",
                "52ca8f338cc9fbe2",
                "1181ee325254ae8bdeaca3dcf7949adcd850f6a41f90427e947d79d0e3fa1d44db4408c23cd2a197610e650cb2dbf782cd3d1d6ab0686eeb929ddc2bbf3121ec",
                "9f8a6ec7ce3dbb4dac1eab986e5a940b7cef93d85fcce9504427e1616ccce4c1",
                "9901675780a3b7afd977777924e4e199e0e9735a",
            ),
        ]
    }

    #[test]
    fn real_blobs_unwrap_and_wrap_again() {
        for v in vectors() {
            let iv = hex(v.iv);
            let key = Derivation {
                iterations: v.iterations,
                salt: hex(v.salt),
            }
            .derive(v.passphrase.as_bytes(), KeyWrap::TripleDes)
            .unwrap();
            let bits = v.cipher.len() as u32 * 4;
            let keys = key.unwrap(&iv, &hex(v.blob), bits).unwrap().unwrap();
            assert_eq!((keys.cipher(), keys.mac()), (&*hex(v.cipher), &*hex(v.mac)));
            assert_eq!(key.wrap(&iv, &keys), hex(v.blob));
        }
    }

    #[test]
    fn a_wrong_passphrase_does_not_unwrap() {
        let v = &vectors()[0];
        let key = Derivation {
            iterations: v.iterations,
            salt: hex(v.salt),
        }
        .derive(b"wrong", KeyWrap::TripleDes)
        .unwrap();
        assert!(key.unwrap(&hex(v.iv), &hex(v.blob), 128).unwrap().is_none());
    }

    /// §8, V6: the three records of a v1 trailer.
    #[test]
    fn version_1_blobs_unwrap() {
        let salt = hex("9c82b419bdac1b3e6b71f8a6b99a7501f34b6950");
        let key = Derivation {
            iterations: 1000,
            salt,
        }
        .derive(b"vilefault", KeyWrap::TripleDes)
        .unwrap();
        assert_eq!(
            *key.bytes,
            hex("8207377bf2b232c8c548a2741746d1eea1992694f117d240")
        );
        for (blob, plain) in [
            (
                "5da479e292e0acf67a9fa3e24d0a767cae2f645ff63836665068637188f4b80295de79aabdbc2536",
                "e40fe10febc20eabe6c9f8b7a24473f3",
            ),
            (
                "9b136165ee73418631ccf28d5e77073788ae921df596649a7a7789585db0f13f446d5927967e2ede20ce8a4f5389185d",
                "75ff19e7b214e210c90084973d4663227d9b55ba",
            ),
            (
                "564b63711eec4ef3980aea1dad33ec197382465e1ca7b8a927f9b42ad7faa190b90f3271ca2efa57cf475e49a4e9792c",
                "ed2c8c755919a64002d2daf411ec3e409035e2ce",
            ),
        ] {
            assert_eq!(*key.unwrap_v1(&hex(blob)).unwrap(), hex(plain));
        }
        assert!(
            Derivation {
                iterations: 1000,
                salt: vec![0; 20]
            }
            .derive(b"vilefault", KeyWrap::TripleDes)
            .unwrap()
            .unwrap_v1(&[7; 40])
            .is_none()
        );
    }

    /// §8, V6b: two records of a v1 trailer with a long key.
    #[test]
    fn version_1_blobs_of_long_keys_unwrap() {
        let salt = hex("f615ec6c463799eccc6a2dfbedf12c6bdc422a2a");
        let key = Derivation {
            iterations: 1000,
            salt,
        }
        .derive(b"vilefault", KeyWrap::TripleDes)
        .unwrap();
        for (blob, plain) in [
            (
                "a595f4a81a490e7aa6378034661da57a424f922c971d3db3f856f8d54b0784bcc5d7182905c4237153c5d250b8aee1d26410b1dca7b1cb73",
                "3c169719399778612f3c08213a0323ed41617f8b01c6d14c5cc306c1b6dd16c9",
            ),
            (
                "74a060efbaf2c79d5523219d8162c425befbb2094fb46e7ffaedc7cd4f192e6f0c47d8aa91e0a3201346725d3ddadfff",
                "59ce97a59b7af5b990c78597224cbb7441728fb1",
            ),
        ] {
            assert_eq!(*key.unwrap_v1(&hex(blob)).unwrap(), hex(plain));
        }
    }

    /// §8, V7: made for the specification, in the direction of writing.
    #[test]
    fn synthetic_keys_are_wrapped_as_specified() {
        let counting = |from: u8, len: u8| (from..from + len).collect::<Vec<u8>>();
        let key = Derivation {
            iterations: 1000,
            salt: counting(0, 20),
        }
        .derive(b"test", KeyWrap::TripleDes)
        .unwrap();
        assert_eq!(
            *key.bytes,
            hex("c57ffb3dd06a0127baa53f9bd5aa9b2c17fbb9a6f756ba45")
        );
        let keys = KeyMaterial::from_parts(&counting(0x40, 16), &counting(0x50, 20), 128).unwrap();
        let blob = "608d2e77bd020741a0373a0a8dd139193f95f17e27a05dca0b68d8c84888c84ff5ab76b571f87e7a8acac9329620314a";
        assert_eq!(key.wrap(&[1, 2, 3, 4, 5, 6, 7, 8], &keys), hex(blob));
    }

    #[test]
    fn absurd_iteration_counts_are_refused() {
        for iterations in [0, 1 << 31] {
            let refused = Derivation {
                iterations,
                salt: vec![0; 20],
            }
            .derive(b"x", KeyWrap::TripleDes)
            .err()
            .unwrap();
            assert_eq!(refused.kind(), Kind::Limit);
        }
    }
}
