//! HMAC-SHA-256, and PBKDF2 over it, for the keys of APFS volumes and encrypted archives.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// Size of a SHA-256 block in bytes.
const BLOCK: usize = 64;

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
    let mut mac = Hmac::<Sha256>::new((&*block).into());
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Derives 32 bytes with PBKDF2-HMAC-SHA-256.
pub fn pbkdf2_sha256(password: &[u8], salt: &[u8], iterations: u32) -> Zeroizing<[u8; 32]> {
    let mut derived = Zeroizing::new([0; 32]);
    pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut *derived);
    derived
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
