//! The key of an archive of system software, wrapped in its metadata for a private key that Apple
//! publishes. Source: docs/formats/aea.md §4.

use super::keys::SymmetricKey;
use super::private_key::P256PrivateKey;
use crate::Result;

/// The name of the entry with the wrapped key: JSON.
pub(super) const RESPONSE: &str = "com.apple.wkms.fcs-response";
/// The name of the entry with the URL of the private key, as PEM.
pub(super) const KEY_URL: &str = "com.apple.wkms.fcs-key-url";

/// Maximum length of the JSON in bytes; that of Apple has about 300.
#[cfg(feature = "recipients")]
const MAX_RESPONSE: usize = 64 << 10;

/// Unwraps the key in `response`. [`Kind::WrongKey`](crate::Kind::WrongKey) for another private key, and
/// if anything was changed.
#[cfg(feature = "recipients")]
pub(super) fn unwrap(response: &[u8], key: &P256PrivateKey) -> Result<SymmetricKey> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use zeroize::Zeroizing;

    use super::LAYER;
    use super::hpke;
    use super::keys::POINT;
    use crate::{Error, Kind, Reason};

    let damaged = || {
        let message = format!(
            "the wrapped key in the metadata is damaged: `{RESPONSE}` is not JSON with \
             `enc-request` and `wrapped-key`"
        );
        Error::new(Kind::Corrupt, LAYER, message)
    };
    if response.len() > MAX_RESPONSE {
        return Err(damaged());
    }
    let json: serde_json::Value = serde_json::from_slice(response).map_err(|_| damaged())?;
    let bytes = |name: &str, len: usize| {
        let text = json.get(name)?.as_str()?;
        STANDARD
            .decode(text)
            .ok()
            .filter(|bytes| bytes.len() == len)
    };
    let encapsulated = bytes("enc-request", POINT).ok_or_else(damaged)?;
    let encapsulated = encapsulated.first_chunk().ok_or_else(damaged)?;
    // With its tag.
    let mut wrapped = Zeroizing::new(bytes("wrapped-key", 32 + 16).ok_or_else(damaged)?);
    let opened = hpke::open(key, encapsulated, &mut wrapped).map_err(|_| damaged())?;
    let opened = opened.ok_or_else(|| {
        let message = "wrong private key, or the wrapped key in the metadata was changed";
        Error::new(Kind::WrongKey, LAYER, message).because(Reason::WrongArchiveKey)
    })?;
    SymmetricKey::from_bytes(opened)
}

/// Unwraps nothing.
#[cfg(not(feature = "recipients"))]
pub(super) fn unwrap(_response: &[u8], _key: &P256PrivateKey) -> Result<SymmetricKey> {
    let message = "this build cannot unwrap keys of system software (feature `recipients`)";
    Err(crate::Error::unsupported(super::LAYER, message))
}
