//! The keys with which archives are opened.

use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::private_key::P256PrivateKey;
use crate::crypt::Secret;
use crate::{Error, Result};

/// Length of a symmetric key in bytes.
const KEY: usize = 32;
/// Length of an uncompressed point of P-256 in bytes.
pub(super) const POINT: usize = 65;
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

    /// Creates a key of 32 bytes.
    #[cfg(feature = "recipients")]
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut key = Zeroizing::new([0; KEY]);
        match bytes.len() {
            KEY => key.copy_from_slice(bytes),
            _ => return Err(Error::invalid("archive key", "expected 32 bytes")),
        }
        Ok(Self(key))
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

/// A public key of P-256: of the signer of an archive, with which its signature is verified, or of its
/// recipient.
#[derive(Clone, PartialEq, Eq)]
pub struct P256PublicKey([u8; POINT]);

impl P256PublicKey {
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
        let binary = match of_pem(text, "PUBLIC KEY") {
            Some(der) => der.to_vec(),
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

    /// Creates a key of an uncompressed point, which is known to be on the curve.
    pub(super) fn from_point(point: [u8; POINT]) -> Self {
        Self(point)
    }

    pub(super) fn point(&self) -> &[u8; POINT] {
        &self.0
    }
}

impl fmt::Debug for P256PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("P256PublicKey(..)")
    }
}

/// Returns the first contents with this label of a PEM file; `None` if there are none.
pub(super) fn of_pem(text: &str, label: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (_, after) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = after.split_once(&format!("-----END {label}-----"))?;
    let digits: Zeroizing<String> = Zeroizing::new(body.split_ascii_whitespace().collect());
    BASE64.decode(&*digits).ok().map(Zeroizing::new)
}

/// Decodes hexadecimal digits or base64 of `len` bytes; `None` if it is neither.
pub(super) fn decode(text: &[u8], len: usize) -> Option<Zeroizing<Vec<u8>>> {
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
    /// A private key: of the recipient for profiles 3 and 4, and for profiles 1 and 2 the one for which the key in
    /// the metadata of system software is wrapped.
    Private(P256PrivateKey),
}

/// The keys that are known of an archive.
#[derive(Debug, Clone, Default)]
pub struct ArchiveKeys {
    /// The key that decrypts it.
    pub key: Option<ArchiveKey>,
    /// The public key of its signer.
    pub signer: Option<P256PublicKey>,
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
            assert_eq!(P256PublicKey::parse(bytes).unwrap().0, point);
        }
        point[0] = 2;
        for bytes in [&point[..], &der[1..], b"-----BEGIN PRIVATE KEY-----", b""] {
            assert!(P256PublicKey::parse(bytes).is_err());
        }
    }
}
