//! Certificates and private keys that open images. Their cipher is in the module `rsa_keys`, which
//! the feature `certificates` adds.

use std::fmt;

use super::keys::KeyMaterial;
use super::layout::PublicKeyEntry;
#[cfg(feature = "certificates")]
use super::rsa_keys::{PrivateHalf, PublicHalf};
#[cfg(not(feature = "certificates"))]
use crate::Error;
use crate::Result;

/// An RSA public key from an X.509 certificate. The validity and the owner of the certificate are
/// not checked.
#[derive(Clone)]
pub struct Certificate {
    #[cfg(feature = "certificates")]
    key: PublicHalf,
    id: [u8; 20],
}

impl Certificate {
    /// Parses a certificate, PEM or DER. [`Kind::Unsupported`](crate::Kind::Unsupported) without
    /// the feature `certificates`.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        #[cfg(feature = "certificates")]
        return PublicHalf::of_certificate(bytes).map(|(key, id)| Self { key, id });
        #[cfg(not(feature = "certificates"))]
        Err(without(bytes))
    }

    /// Returns the SHA-1 of the public key, which is the subject key identifier in most
    /// certificates.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// Wraps the keys for the owner of the private key.
    pub(super) fn wrap(&self, keys: &KeyMaterial) -> Result<PublicKeyEntry> {
        #[cfg(feature = "certificates")]
        return Ok(PublicKeyEntry::new(self.id, self.key.encrypt(keys)?));
        #[cfg(not(feature = "certificates"))]
        Err(without(keys))
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
    #[cfg(feature = "certificates")]
    key: PrivateHalf,
    id: [u8; 20],
}

impl PrivateKey {
    /// Parses a key, PEM: PKCS#8 (`PRIVATE KEY`) or PKCS#1 (`RSA PRIVATE KEY`).
    /// [`Kind::Unsupported`](crate::Kind::Unsupported) without the feature `certificates`.
    pub fn parse(pem: &[u8]) -> Result<Self> {
        #[cfg(feature = "certificates")]
        return PrivateHalf::of_pem(pem).map(|(key, id)| Self { key, id });
        #[cfg(not(feature = "certificates"))]
        Err(without(pem))
    }

    /// Returns the SHA-1 of its public key, as [`Certificate::id`] does.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// Unwraps the keys of an entry; `None` if it is for another key.
    pub(super) fn unwrap(&self, entry: &PublicKeyEntry, bits: u32) -> Result<Option<KeyMaterial>> {
        #[cfg(feature = "certificates")]
        return self.key.decrypt(&entry.blob, bits);
        #[cfg(not(feature = "certificates"))]
        Err(without((entry, bits)))
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

/// The error of a build that has no RSA.
#[cfg(not(feature = "certificates"))]
fn without<T>(_unused: T) -> Error {
    let message =
        "this build does not support certificates and private keys (feature `certificates`)";
    Error::unsupported("certificate", message)
}
