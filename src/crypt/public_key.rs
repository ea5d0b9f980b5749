//! Certificates and private keys: RSA with the padding of PKCS#1 v1.5 around an image's keys.
//! Source: docs/formats/encrypted.md §2.2.

use std::fmt;

use getrandom::SysRng;
use getrandom::rand_core::UnwrapErr;
use rsa::pkcs1::{DecodeRsaPrivateKey, DecodeRsaPublicKey, EncodeRsaPublicKey};
use rsa::pkcs8::DecodePrivateKey;
use rsa::traits::PublicKeyParts;
use rsa::{Pkcs1v15Encrypt, RsaPrivateKey, RsaPublicKey};
use sha1::{Digest, Sha1};
use x509_cert::Certificate as X509;
use x509_cert::der::{Decode, DecodePem};
use zeroize::Zeroizing;

use super::keys::{KeyMaterial, random};
use super::layout::PublicKey;
use crate::{Error, Kind, Result};

/// Supported sizes of RSA keys in bits: shorter ones are insecure, longer ones do not fit an entry.
const KEY_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;
const RSA_ENCRYPTION: &str = "1.2.840.113549.1.1.1";

/// An RSA public key from an X.509 certificate. The validity and the owner of the certificate are
/// not checked.
#[derive(Clone)]
pub struct Certificate {
    key: Box<RsaPublicKey>,
    id: [u8; 20],
}

impl Certificate {
    /// Parses a certificate, PEM or DER.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        const LAYER: &str = "certificate";
        let parsed = if is_pem(bytes) {
            X509::from_pem(bytes)
        } else {
            X509::from_der(bytes)
        };
        let parsed = parsed.map_err(|error| {
            Error::new(Kind::Invalid, LAYER, "is no X.509 certificate, PEM or DER")
                .caused_by(error.to_string())
        })?;
        let info = parsed.tbs_certificate().subject_public_key_info();
        if info.algorithm.oid.to_string() != RSA_ENCRYPTION {
            let message = format!(
                "has a key of the kind {}; images take RSA keys only",
                info.algorithm.oid
            );
            return Err(Error::unsupported(LAYER, message));
        }
        let malformed = || Error::new(Kind::Invalid, LAYER, "its RSA key is malformed");
        let bits = info.subject_public_key.as_bytes().ok_or_else(malformed)?;
        let key = RsaPublicKey::from_pkcs1_der(bits).map_err(|_| malformed())?;
        check_size(LAYER, &key)?;
        Ok(Self {
            id: Sha1::digest(bits).into(),
            key: Box::new(key),
        })
    }

    /// Returns the SHA-1 of the public key, which is the subject key identifier in most
    /// certificates.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// Wraps the keys for the owner of the private key.
    pub(super) fn wrap(&self, keys: &KeyMaterial) -> Result<PublicKey> {
        // The random source below panics on failure; this one returns an error first.
        random(&mut [0; 1])?;
        let blob = self
            .key
            .encrypt(&mut UnwrapErr(SysRng), Pkcs1v15Encrypt, &keys.marked());
        let blob = blob.map_err(|error| {
            Error::new(Kind::Invalid, "certificate", "its key wraps nothing").caused_by(error)
        })?;
        Ok(PublicKey::new(self.id, blob))
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// An RSA private key. Wiped when dropped and never printed.
#[derive(Clone)]
pub struct PrivateKey {
    key: Box<RsaPrivateKey>,
    id: [u8; 20],
}

impl PrivateKey {
    /// Parses a key, PEM: PKCS#8 (`PRIVATE KEY`) or PKCS#1 (`RSA PRIVATE KEY`).
    pub fn parse(pem: &[u8]) -> Result<Self> {
        const LAYER: &str = "private key";
        let invalid = |message: &'static str| Error::new(Kind::Invalid, LAYER, message);
        let text = std::str::from_utf8(pem).map_err(|_| invalid("is no PEM file"))?;
        let begins = |label: &str| text.contains(&format!("-----BEGIN {label}-----"));
        let key = if begins("RSA PRIVATE KEY") && !text.contains("ENCRYPTED") {
            RsaPrivateKey::from_pkcs1_pem(text.trim())
                .map_err(|_| invalid("its RSA PRIVATE KEY is malformed"))?
        } else if begins("PRIVATE KEY") {
            RsaPrivateKey::from_pkcs8_pem(text.trim())
                .map_err(|_| invalid("its PRIVATE KEY is malformed, or no RSA key"))?
        } else if text.contains("ENCRYPTED") {
            return Err(invalid(
                "is locked by a passphrase of its own; `openssl pkey` writes it without",
            ));
        } else {
            return Err(invalid(
                "is no PEM file with a PRIVATE KEY or RSA PRIVATE KEY",
            ));
        };
        let public = key.to_public_key();
        check_size(LAYER, &public)?;
        let bits = public
            .to_pkcs1_der()
            .map_err(|_| invalid("its public half is malformed"))?;
        Ok(Self {
            id: Sha1::digest(bits.as_bytes()).into(),
            key: Box::new(key),
        })
    }

    /// Returns the SHA-1 of its public key, as [`Certificate::id`] does.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// Unwraps the keys of an entry; `None` if it is for another key.
    pub(super) fn unwrap(&self, entry: &PublicKey, bits: u32) -> Result<Option<KeyMaterial>> {
        if entry.blob.len() != self.key.size() {
            return Ok(None);
        }
        let Ok(plain) = self.key.decrypt(Pkcs1v15Encrypt, &entry.blob) else {
            return Ok(None);
        };
        KeyMaterial::from_marked(&Zeroizing::new(plain), bits)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

fn is_pem(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"-----BEGIN")
}

fn check_size(layer: &'static str, key: &RsaPublicKey) -> Result<()> {
    let bits = key.size() * 8;
    if KEY_BITS.contains(&bits) {
        return Ok(());
    }
    Err(Error::new(
        Kind::Limit,
        layer,
        format!(
            "an RSA key of {bits} bits; {} to {} are used",
            KEY_BITS.start(),
            KEY_BITS.end()
        ),
    ))
}
