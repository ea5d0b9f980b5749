//! HMAC-SHA1 with prepared pads of the key: initialization vectors of blocks, and PBKDF2.

use sha1::block_api::compress;
use sha1::{Digest, Sha1};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::aes::AesBlock;
use super::back_end::BackEnd;
#[cfg(target_arch = "x86_64")]
use bandsaw_cpu::{NativeSha1, WideSha1};

/// Size of a SHA-1 block in bytes.
const BLOCK: usize = 64;
const START: [u32; 5] = [
    0x6745_2301,
    0xEFCD_AB89,
    0x98BA_DCFE,
    0x1032_5476,
    0xC3D2_E1F0,
];

/// A key for HMAC-SHA1: the states after its inner and its outer pad.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct HmacKey {
    inner: [u32; 5],
    outer: [u32; 5],
    #[zeroize(skip)]
    back_end: BackEnd,
}

impl HmacKey {
    /// Prepares a key of any length; one longer than 64 bytes is hashed first, as HMAC requires.
    pub(super) fn new(key: &[u8]) -> Self {
        Self::with(key, BackEnd::Best)
    }

    /// Prepares a key for a specific back end.
    pub(super) fn with(key: &[u8], back_end: BackEnd) -> Self {
        let mut block = [0; BLOCK];
        match block.get_mut(..key.len()) {
            Some(start) => start.copy_from_slice(key),
            None => block[..20].copy_from_slice(&Sha1::digest(key)),
        }
        let state = |pad: u8| {
            let (mut state, mut padded) = (START, block.map(|byte| byte ^ pad));
            compress(&mut state, &[padded]);
            padded.zeroize();
            state
        };
        let key = Self {
            inner: state(0x36),
            outer: state(0x5C),
            back_end,
        };
        block.zeroize();
        key
    }

    pub(super) fn mac(&self, message: &[u8]) -> [u8; 20] {
        to_bytes(&self.mac_words(message))
    }

    fn mac_words(&self, message: &[u8]) -> [u32; 5] {
        let digest = finish(self.inner, message);
        finish(self.outer, &to_bytes(&digest))
    }

    /// Computes the initialization vectors of blocks `first`, `first + 1`, ...: the first 16 bytes
    /// of each number's MAC, the number as 32 bits big-endian.
    pub(super) fn vectors(&self, first: u32, vectors: &mut [AesBlock]) {
        // The wide back ends always compute eight or sixteen; two are faster one by one.
        #[cfg(target_arch = "x86_64")]
        if vectors.len() > 2
            && let Some(wide) = self.wide()
        {
            return wide.number_macs(&self.inner, &self.outer, first, vectors);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(native) = self.native() {
            return native.number_macs(&self.inner, &self.outer, first, vectors);
        }
        for (number, vector) in (first..=u32::MAX).zip(vectors) {
            vector.copy_from_slice(&self.mac(&number.to_be_bytes())[..16]);
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn wide(&self) -> Option<WideSha1> {
        match self.back_end {
            BackEnd::Best => WideSha1::sixteen().or_else(WideSha1::eight),
            BackEnd::Narrow | BackEnd::AesNi => WideSha1::eight(),
            BackEnd::Portable => None,
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn native(&self) -> Option<NativeSha1> {
        if self.back_end == BackEnd::Portable {
            None
        } else {
            NativeSha1::detect()
        }
    }

    /// Computes PBKDF2 with this key as the password: up to 40 bytes, each 20 of them on a core of
    /// their own.
    pub(super) fn pbkdf2(&self, salt: &[u8], iterations: u32, out: &mut [u8]) {
        assert!(
            out.len() <= 40,
            "two blocks of output are enough for every key we derive"
        );
        let block = |number: u32| {
            let mut mac = self.mac_words(&[salt, &number.to_be_bytes()].concat());
            let mut sum = mac;
            self.chain(&mut mac, &mut sum, iterations.saturating_sub(1));
            mac.zeroize();
            sum
        };
        let (first, second) = rayon::join(|| block(1), || block(2));
        let mut bytes = Zeroizing::new([0; 40]);
        bytes[..20].copy_from_slice(&to_bytes(&first));
        bytes[20..].copy_from_slice(&to_bytes(&second));
        out.copy_from_slice(&bytes[..out.len()]);
    }

    fn chain(&self, mac: &mut [u32; 5], sum: &mut [u32; 5], count: u32) {
        #[cfg(target_arch = "x86_64")]
        if let Some(native) = self.native() {
            return native.chain(&self.inner, &self.outer, mac, sum, count);
        }
        for _ in 0..count {
            *mac = self.mac_words(&to_bytes(mac));
            for (sum, word) in sum.iter_mut().zip(*mac) {
                *sum ^= word;
            }
        }
    }
}

/// Finishes a hash that has processed one block (a pad) with `message`.
fn finish(mut state: [u32; 5], message: &[u8]) -> [u32; 5] {
    let bits = 8 * (BLOCK + message.len()) as u64;
    let mut rest = message;
    while let Some((block, after)) = rest.split_first_chunk::<BLOCK>() {
        compress(&mut state, &[*block]);
        rest = after;
    }
    let mut last = [[0; BLOCK]; 2];
    last[0][..rest.len()].copy_from_slice(rest);
    last[0][rest.len()] = 0x80;
    let blocks = if rest.len() < BLOCK - 8 { 1 } else { 2 };
    last[blocks - 1][BLOCK - 8..].copy_from_slice(&bits.to_be_bytes());
    compress(&mut state, &last[..blocks]);
    state
}

fn to_bytes(words: &[u32; 5]) -> [u8; 20] {
    let mut bytes = [0; 20];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 2202, cases 1, 2 and 6.
    #[test]
    fn known_macs() {
        assert_eq!(
            hex(&HmacKey::new(&[0x0B; 20]).mac(b"Hi There")),
            "b617318655057264e28bc0b6fb378c8ef146be00"
        );
        assert_eq!(
            hex(&HmacKey::new(b"Jefe").mac(b"what do ya want for nothing?")),
            "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"
        );
        let long = HmacKey::new(&[0xAA; 80])
            .mac(b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(hex(&long), "aa4ae5e15272d00e95705637ce8a3b55ed402112");
    }

    /// RFC 6070, cases 1, 3 and 5.
    #[test]
    fn known_derived_keys() {
        let derive = |password: &[u8], salt: &[u8], iterations, len| {
            let mut out = vec![0; len];
            HmacKey::new(password).pbkdf2(salt, iterations, &mut out);
            hex(&out)
        };
        assert_eq!(
            derive(b"password", b"salt", 1, 20),
            "0c60c80f961f0e71f3a9b524af6012062fe037a6"
        );
        assert_eq!(
            derive(b"password", b"salt", 4096, 20),
            "4b007901b765489abead49d926f721d065a429c1"
        );
        let long = derive(
            b"passwordPASSWORDpassword",
            b"saltSALTsaltSALTsaltSALTsaltSALTsalt",
            4096,
            25,
        );
        assert_eq!(long, "3d2eec4fe41c849b80c8d83662c0e44a8b291a964cf2f07038");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Asserts that processor instructions give the results of the plain crate.
        #[test]
        fn back_ends_agree(key in prop::collection::vec(any::<u8>(), 0..100), first in any::<u32>(), count in 1usize..50) {
            let first = first.min(u32::MAX - 50);
            let portable = HmacKey::with(&key, BackEnd::Portable);
            let mut vectors = vec![[0; 16]; count];
            portable.vectors(first, &mut vectors);
            let mut chained = ([first; 5], [first; 5]);
            portable.chain(&mut chained.0, &mut chained.1, count as u32);
            for back_end in [BackEnd::Best, BackEnd::Narrow, BackEnd::AesNi] {
                let key = HmacKey::with(&key, back_end);
                let mut fast = vec![[0; 16]; count];
                key.vectors(first, &mut fast);
                prop_assert_eq!(&fast, &vectors);
                let mut fast = ([first; 5], [first; 5]);
                key.chain(&mut fast.0, &mut fast.1, count as u32);
                prop_assert_eq!(fast, chained);
            }
        }
    }
}
