//! HMAC-SHA-256 with prepared pads of the key, and PBKDF2 over it, for the keys of APFS volumes.

use sha2::block_api::compress256;
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Size of a SHA-256 block in bytes.
const BLOCK: usize = 64;
const START: [u32; 8] = [
    0x6A09_E667,
    0xBB67_AE85,
    0x3C6E_F372,
    0xA54F_F53A,
    0x510E_527F,
    0x9B05_688C,
    0x1F83_D9AB,
    0x5BE0_CD19,
];

/// A key for HMAC-SHA-256: the states after its inner and its outer pad.
#[derive(Zeroize, ZeroizeOnDrop)]
struct HmacKey {
    inner: [u32; 8],
    outer: [u32; 8],
}

impl HmacKey {
    /// Prepares a key of any length; one longer than 64 bytes is hashed first, as HMAC requires.
    fn new(key: &[u8]) -> Self {
        let mut block = Zeroizing::new([0; BLOCK]);
        match block.get_mut(..key.len()) {
            Some(start) => start.copy_from_slice(key),
            None => block[..32].copy_from_slice(&Sha256::digest(key)),
        }
        let state = |pad: u8| {
            let (mut state, padded) = (START, Zeroizing::new(block.map(|byte| byte ^ pad)));
            compress256(&mut state, std::slice::from_ref(&*padded));
            state
        };
        Self {
            inner: state(0x36),
            outer: state(0x5C),
        }
    }

    /// Returns the MAC of a message of the length of a hash, as in all but the first iteration of
    /// PBKDF2.
    fn chain(&self, mac: [u32; 8]) -> [u32; 8] {
        let once = |mut state: [u32; 8], words: [u32; 8]| {
            let mut block = [0; BLOCK];
            block[..32].copy_from_slice(&to_bytes(&words));
            block[32] = 0x80;
            // 64 bytes of pad and 32 of message.
            block[BLOCK - 8..].copy_from_slice(&(96_u64 * 8).to_be_bytes());
            compress256(&mut state, &[block]);
            state
        };
        once(self.outer, once(self.inner, mac))
    }
}

/// Returns the HMAC-SHA-256 of a message.
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    hmac_sha256_of(key, &[message])
}

/// Returns the HMAC-SHA-256 of a message in parts.
pub(super) fn hmac_sha256_of(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = Zeroizing::new([0; BLOCK]);
    match block.get_mut(..key.len()) {
        Some(start) => start.copy_from_slice(key),
        None => block[..32].copy_from_slice(&Sha256::digest(key)),
    }
    let hash = |pad: u8, parts: &[&[u8]]| -> [u8; 32] {
        let padded = Zeroizing::new(block.map(|byte| byte ^ pad));
        let mut hasher = Sha256::new().chain_update(padded.as_slice());
        parts.iter().for_each(|part| hasher.update(part));
        hasher.finalize().into()
    };
    hash(0x5C, &[&hash(0x36, parts)])
}

/// Derives 32 bytes with PBKDF2-HMAC-SHA-256.
pub fn pbkdf2_sha256(password: &[u8], salt: &[u8], iterations: u32) -> Zeroizing<[u8; 32]> {
    let key = HmacKey::new(password);
    let first = Zeroizing::new(hmac_sha256(
        password,
        &[salt, &1_u32.to_be_bytes()].concat(),
    ));
    let mut mac = [0; 8];
    for (word, bytes) in mac.iter_mut().zip(first.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    let mut sum = mac;
    for _ in 1..iterations {
        mac = key.chain(mac);
        for (sum, word) in sum.iter_mut().zip(mac) {
            *sum ^= word;
        }
    }
    mac.zeroize();
    let derived = Zeroizing::new(to_bytes(&sum));
    sum.zeroize();
    derived
}

fn to_bytes(words: &[u32; 8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 4231, cases 1, 2 and 6.
    #[test]
    fn known_macs() {
        let table: [(&[u8], &[u8], &str); 3] = [
            (
                &[0x0B; 20],
                b"Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xAA; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, message, expected) in table {
            assert_eq!(hex(&hmac_sha256(key, message)), expected);
        }
    }

    /// RFC 7914, section 11, the first half; and the key of a volume encrypted by macOS
    /// (docs/formats/apfs.md §11.4).
    #[test]
    fn known_derived_keys() {
        let derived = pbkdf2_sha256(b"passwd", b"salt", 1);
        assert_eq!(
            hex(&*derived),
            "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"
        );
        let derived = pbkdf2_sha256(b"Password", b"NaCl", 80_000);
        assert_eq!(
            hex(&*derived),
            "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56"
        );
    }
}
