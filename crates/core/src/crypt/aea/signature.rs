//! The signature of the prologue: ECDSA on P-256 with SHA-256. Source: docs/formats/aea.md §5.

use super::derive::KeySchedule;
use super::keys::P256PublicKey;
use super::layout::Header;
use crate::Result;

/// The result of verifying the signature of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureState {
    /// The profile has no signature.
    None,
    /// The signature was made with the private key of the public key that was given.
    Verified,
    /// The signature was not verified, because the public key is not known.
    NoPublicKey,
    /// The signature was not verified, because this build cannot: it lacks the feature `signatures`.
    NotSupported,
    /// The archive was made to be signed later, and was not.
    NotSigned,
}

impl SignatureState {
    /// Returns the name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Verified => "verified",
            Self::NoPublicKey | Self::NotSupported | Self::NotSigned => "unverified",
        }
    }

    /// Returns the warning if a signature was to be verified, and was not.
    pub const fn warning(self) -> Option<&'static str> {
        match self {
            Self::None | Self::Verified => None,
            Self::NoPublicKey => Some(
                "the signature was not verified, and the contents may be anybody's: no public key \
                 was given",
            ),
            Self::NotSupported => {
                Some("the signature was not verified: this build cannot (feature `signatures`)")
            }
            Self::NotSigned => {
                Some("the signature was not verified: the archive has not been signed yet")
            }
        }
    }
}

/// Verifies the signature of a prologue. Fails if it is wrong.
#[cfg(feature = "signatures")]
pub(super) fn verify(
    prologue: &[u8],
    header: &Header,
    keys: &KeySchedule,
    signer: &P256PublicKey,
) -> Result<SignatureState> {
    use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

    use super::LAYER;
    use super::layout::{MAC, SIGNATURE};
    use crate::Error;

    let (from, len) = (header.signature_at(), header.profile.signature_len());
    let damaged = |message: &'static str| Error::corrupt(LAYER, from as u64, message);
    let stored = prologue
        .get(from..from + len)
        .ok_or_else(|| damaged("the signature is missing"))?;
    let mut signature = stored[..SIGNATURE.min(len)].to_vec();
    if let Some(mac) = stored
        .get(SIGNATURE..)
        .and_then(|mac| mac.first_chunk::<MAC>())
        && !keys.signature().open(&[], &mut signature, mac)
    {
        return Err(damaged("the MAC of the signature does not match"));
    }
    if signature.iter().all(|byte| *byte == 0) {
        return Ok(SignatureState::NotSigned);
    }
    // Zeros follow the signature.
    let own = signature.get(1).map_or(0, |len| usize::from(*len) + 2);
    let own = signature
        .get(..own)
        .ok_or_else(|| damaged("the signature is longer than its place"))?;
    let mut message = prologue.to_vec();
    message[from..from + len].fill(0);
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, signer.point());
    key.verify(&message, own)
        .map_err(|_| damaged("the signature does not match the public key"))?;
    Ok(SignatureState::Verified)
}

/// Verifies nothing.
#[cfg(not(feature = "signatures"))]
pub(super) fn verify(
    _prologue: &[u8],
    _header: &Header,
    _keys: &KeySchedule,
    _signer: &P256PublicKey,
) -> Result<SignatureState> {
    Ok(SignatureState::NotSupported)
}
