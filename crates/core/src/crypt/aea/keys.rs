//! The keys with which archives are opened.

use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use crate::crypt::Secret;
use crate::{Error, Result};

/// Length of a symmetric key in bytes.
const KEY: usize = 32;
/// Length of an uncompressed point of P-256 in bytes.
const POINT: usize = 65;
/// The start of a public key of P-256 (SubjectPublicKeyInfo, DER) before its point. Source: RFC 5480.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A symmetric key. Wiped when dropped and never printed.
#[derive(Clone)]
pub struct SymmetricKey(Zeroizing<[u8; KEY]>);

impl SymmetricKey {
    /// Parses a key: 32 bytes, or their base64 or hexadecimal digits, with spaces around them. The text may
    /// begin with `base64:` or `hex:`. [`Kind::Invalid`](crate::Kind::Invalid) for anything else.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let decoded = match bytes.len() {
            KEY => Some(Zeroizing::new(bytes.to_vec())),
            _ => decode(bytes, KEY),
        };
        let key = decoded.as_ref().and_then(|key| key.first_chunk::<KEY>());
        key.map(|key| Self(Zeroizing::new(*key))).ok_or_else(|| {
            let message =
                "not a key: expected 32 bytes, or as text 64 hexadecimal digits or 44 of base64";
            Error::invalid("archive key", message)
        })
    }

    pub(super) fn bytes(&self) -> &[u8; KEY] {
        &self.0
    }
}

impl fmt::Debug for SymmetricKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SymmetricKey(..)")
    }
}

/// The public key with which the signature of an archive is verified.
#[derive(Clone, PartialEq, Eq)]
pub struct SignerKey([u8; POINT]);

impl SignerKey {
    /// Parses a public key of P-256: PEM or DER (SubjectPublicKeyInfo), or the 65 bytes of its
    /// uncompressed point, also as base64 or hexadecimal digits. [`Kind::Invalid`](crate::Kind::Invalid)
    /// for anything else.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let invalid = |message: &'static str| Error::invalid("public key", message);
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        if text.contains("PRIVATE KEY-----") {
            return Err(invalid(
                "a private key, expected the public one; `openssl pkey -pubout` writes it",
            ));
        }
        let binary = match of_pem(text) {
            Some(der) => der,
            None if matches!(bytes.len(), POINT | 91) => bytes.to_vec(),
            None => decode(bytes, POINT).map_or_else(Vec::new, |point| point.to_vec()),
        };
        let point = binary.strip_prefix(&P256).unwrap_or(&binary[..]);
        match point.first_chunk::<POINT>() {
            Some(own @ [4, ..]) if point.len() == POINT => Ok(Self(*own)),
            _ => Err(invalid(
                "not a public key: expected one of P-256 as PEM (`PUBLIC KEY`) or DER, or its 65 \
                 bytes",
            )),
        }
    }

    pub(super) fn point(&self) -> &[u8; POINT] {
        &self.0
    }
}

impl fmt::Debug for SignerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignerKey(..)")
    }
}

/// Returns the contents of a PEM file with a public key; `None` if it is none.
fn of_pem(text: &str) -> Option<Vec<u8>> {
    let (_, after) = text.split_once("-----BEGIN PUBLIC KEY-----")?;
    let (body, _) = after.split_once("-----END PUBLIC KEY-----")?;
    let digits: String = body.split_ascii_whitespace().collect();
    BASE64.decode(digits).ok()
}

/// Decodes hexadecimal digits or base64 of `len` bytes; `None` if it is neither.
fn decode(text: &[u8], len: usize) -> Option<Zeroizing<Vec<u8>>> {
    let text = text.trim_ascii();
    let (hex, base64) = (text.strip_prefix(b"hex:"), text.strip_prefix(b"base64:"));
    let hex = hex.or((base64.is_none() && text.len() == 2 * len).then_some(text));
    let mut decoded = Zeroizing::new(Vec::with_capacity(len + 2));
    if let Some(hex) = hex {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        for pair in hex.chunks(2) {
            let [high, low] = *pair else { return None };
            let byte = (digit(high)? << 4) | digit(low)?;
            decoded.push(u8::try_from(byte).ok()?);
        }
    } else {
        decoded.resize(len + 2, 0);
        let written = BASE64
            .decode_slice(base64.unwrap_or(text), &mut decoded)
            .ok()?;
        decoded.truncate(written);
    }
    (decoded.len() == len).then_some(decoded)
}

/// The key that decrypts an archive.
#[derive(Debug, Clone)]
pub enum ArchiveKey {
    /// A symmetric key, for profiles 1 and 2.
    Symmetric(SymmetricKey),
    /// A passphrase, for profile 5.
    Passphrase(Secret),
}

/// The keys that are known of an archive.
#[derive(Debug, Clone, Default)]
pub struct ArchiveKeys {
    /// The key that decrypts it.
    pub key: Option<ArchiveKey>,
    /// The public key of its signer.
    pub signer: Option<SignerKey>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_bytes_or_text() {
        let bytes: Vec<u8> = (0..32).collect();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        let base64 = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        for text in [
            hex.clone(),
            format!("hex:{hex}\n"),
            format!("  {base64}\r\n"),
            format!("base64:{base64}"),
            base64.trim_end_matches('=').to_owned(),
        ] {
            assert_eq!(
                *SymmetricKey::parse(text.as_bytes()).unwrap().0,
                *bytes,
                "{text}"
            );
        }
        assert_eq!(*SymmetricKey::parse(&bytes).unwrap().0, *bytes);
        for text in [
            "",
            "hex:00",
            &hex[1..],
            &base64[2..],
            "base64:",
            "/a/path/of/44/bytes/that/is/no/key/at/all/!!!",
        ] {
            assert!(SymmetricKey::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(SymmetricKey::parse(&bytes[1..]).is_err());
        assert_eq!(
            format!("{:?}", SymmetricKey::parse(&bytes).unwrap()),
            "SymmetricKey(..)"
        );
    }

    #[test]
    fn public_keys_are_pem_der_or_a_point() {
        let mut point = [7; POINT];
        point[0] = 4;
        let der = [&P256[..], &point].concat();
        let base64 = BASE64.encode(&der);
        let (first, second) = base64.split_at(64);
        let pem =
            format!("-----BEGIN PUBLIC KEY-----\n{first}\n{second}\n-----END PUBLIC KEY-----\n");
        for bytes in [
            pem.as_bytes(),
            &der,
            &point,
            BASE64.encode(point).as_bytes(),
        ] {
            assert_eq!(SignerKey::parse(bytes).unwrap().0, point);
        }
        point[0] = 2;
        for bytes in [&point[..], &der[1..], b"-----BEGIN PRIVATE KEY-----", b""] {
            assert!(SignerKey::parse(bytes).is_err());
        }
    }
}
