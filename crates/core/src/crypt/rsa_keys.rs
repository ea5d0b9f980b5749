//! RSA with the padding of PKCS#1 v1.5 around an image's keys, for the feature `certificates`.
//! Source: docs/formats/encrypted.md §2.2.

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
use crate::{Error, Result};

/// Supported sizes of RSA keys in bits: shorter ones are insecure, longer ones do not fit an entry.
const KEY_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;
const RSA_ENCRYPTION: &str = "1.2.840.113549.1.1.1";

/// A public key.
#[derive(Clone)]
pub(super) struct PublicHalf(Box<RsaPublicKey>);

impl PublicHalf {
    /// Parses a certificate, PEM or DER; returns its key and the SHA-1 of that.
    pub(super) fn of_certificate(bytes: &[u8]) -> Result<(Self, [u8; 20])> {
        const LAYER: &str = "certificate";
        let parsed = if is_pem(bytes) {
            X509::from_pem(bytes)
        } else {
            X509::from_der(bytes)
        };
        let parsed = parsed.map_err(|error| {
            Error::invalid(LAYER, "not an X.509 certificate (PEM or DER)")
                .caused_by(error.to_string())
        })?;
        let info = parsed.tbs_certificate().subject_public_key_info();
        if info.algorithm.oid.to_string() != RSA_ENCRYPTION {
            let message = format!(
                "unsupported key type {}: images use RSA keys only",
                info.algorithm.oid
            );
            return Err(Error::unsupported(LAYER, message));
        }
        let malformed = || Error::invalid(LAYER, "malformed RSA key");
        let bits = info.subject_public_key.as_bytes().ok_or_else(malformed)?;
        let key = RsaPublicKey::from_pkcs1_der(bits).map_err(|_| malformed())?;
        check_size(LAYER, &key)?;
        Ok((Self(Box::new(key)), Sha1::digest(bits).into()))
    }

    /// Encrypts the keys of an image.
    pub(super) fn encrypt(&self, keys: &KeyMaterial) -> Result<Vec<u8>> {
        // The random source below panics on failure; this one returns an error first.
        random(&mut [0; 1])?;
        let blob = self
            .0
            .encrypt(&mut UnwrapErr(SysRng), Pkcs1v15Encrypt, &keys.marked());
        blob.map_err(|error| {
            Error::invalid("certificate", "the key of the certificate cannot encrypt")
                .caused_by(error)
        })
    }
}

/// A private key.
#[derive(Clone)]
pub(super) struct PrivateHalf(Box<RsaPrivateKey>);

impl PrivateHalf {
    /// Parses a key, PEM: PKCS#8 (`PRIVATE KEY`) or PKCS#1 (`RSA PRIVATE KEY`). Returns it
    /// and the SHA-1 of its public half.
    pub(super) fn of_pem(pem: &[u8]) -> Result<(Self, [u8; 20])> {
        const LAYER: &str = "private key";
        let invalid = |message: &'static str| Error::invalid(LAYER, message);
        let text = std::str::from_utf8(pem).map_err(|_| invalid("not a PEM file"))?;
        let begins = |label: &str| text.contains(&format!("-----BEGIN {label}-----"));
        let key = if begins("RSA PRIVATE KEY") && !text.contains("ENCRYPTED") {
            RsaPrivateKey::from_pkcs1_pem(text.trim())
                .map_err(|_| invalid("malformed RSA PRIVATE KEY"))?
        } else if begins("PRIVATE KEY") {
            RsaPrivateKey::from_pkcs8_pem(text.trim())
                .map_err(|_| invalid("malformed PRIVATE KEY, or not an RSA key"))?
        } else if text.contains("ENCRYPTED") {
            return Err(invalid(
                "the private key is encrypted; decrypt it with `openssl pkey`",
            ));
        } else {
            return Err(invalid(
                "not a PEM file with a PRIVATE KEY or RSA PRIVATE KEY",
            ));
        };
        let public = key.to_public_key();
        check_size(LAYER, &public)?;
        let bits = public
            .to_pkcs1_der()
            .map_err(|_| invalid("malformed public part of the private key"))?;
        Ok((Self(Box::new(key)), Sha1::digest(bits.as_bytes()).into()))
    }

    /// Decrypts the keys of an image, which have `bits`; `None` if they are for another key.
    pub(super) fn decrypt(&self, blob: &[u8], bits: u32) -> Result<Option<KeyMaterial>> {
        if blob.len() != self.0.size() {
            return Ok(None);
        }
        let Ok(plain) = self.0.decrypt(Pkcs1v15Encrypt, blob) else {
            return Ok(None);
        };
        KeyMaterial::from_marked(&Zeroizing::new(plain), bits)
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
    Err(Error::limit(
        layer,
        format!(
            "unsupported RSA key of {bits} bits: expected {} to {}",
            KEY_BITS.start(),
            KEY_BITS.end()
        ),
    ))
}
