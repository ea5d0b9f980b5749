//! Hybrid public-key encryption (HPKE, RFC 9180) in base mode, of one message without info or
//! additional data: DHKEM(P-256, HKDF-SHA256), HKDF-SHA256, AES-256-GCM.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::derive::{DerivationKey, hkdf_expand, hkdf_extract};
#[cfg(test)]
use super::keys::P256PublicKey;
use super::keys::POINT;
use super::private_key::P256PrivateKey;
use crate::Result;

/// The suite in the key encapsulation.
const KEM_SUITE: &[u8] = b"KEM\x00\x10";
/// The whole suite.
const SUITE: &[u8] = b"HPKE\x00\x10\x00\x01\x00\x02";

/// Decrypts a message for the owner of a private key in place. Returns its plain text; `None`: it is not
/// authentic. Fails if `encapsulated` is not a public key.
pub(super) fn open<'a>(
    key: &P256PrivateKey,
    encapsulated: &[u8; POINT],
    message: &'a mut [u8],
) -> Result<Option<&'a [u8]>> {
    let agreed = key.agree(encapsulated)?;
    let context = context(&agreed, encapsulated, key.public().point(), b"");
    let Ok(unbound) = UnboundKey::new(&AES_256_GCM, &*context.key) else {
        return Ok(None);
    };
    let nonce = Nonce::assume_unique_for_key(context.nonce);
    let opened = LessSafeKey::new(unbound).open_in_place(nonce, Aad::empty(), message);
    Ok(opened.ok().map(|plain| &*plain))
}

/// Encrypts a message for the owner of a private key. Returns the encapsulated key, and the cipher text with its tag.
#[cfg(test)]
pub(super) fn seal(recipient: &P256PublicKey, plain: &[u8]) -> Result<([u8; POINT], Vec<u8>)> {
    let sender = P256PrivateKey::generate()?;
    let encapsulated = *sender.public().point();
    let agreed = sender.agree(recipient.point())?;
    let context = context(&agreed, &encapsulated, recipient.point(), b"");
    let unbound = UnboundKey::new(&AES_256_GCM, &*context.key).unwrap();
    let nonce = Nonce::assume_unique_for_key(context.nonce);
    let mut message = plain.to_vec();
    LessSafeKey::new(unbound)
        .seal_in_place_append_tag(nonce, Aad::empty(), &mut message)
        .unwrap();
    Ok((encapsulated, message))
}

/// The key and the first nonce of a context.
struct Context {
    key: DerivationKey,
    nonce: [u8; 12],
}

/// Returns the context of a shared secret and the public keys of both sides. Source: RFC 9180, sections 4.1 and 5.1.
fn context(
    agreed: &[u8; 32],
    encapsulated: &[u8; POINT],
    recipient: &[u8; POINT],
    info: &[u8],
) -> Context {
    let extracted = extract(KEM_SUITE, b"", b"eae_prk", agreed);
    let mut shared = DerivationKey::default();
    let both = [&encapsulated[..], recipient];
    expand(KEM_SUITE, &extracted, b"shared_secret", &both, &mut *shared);

    let (no_id, info) = (
        extract(SUITE, b"", b"psk_id_hash", b""),
        extract(SUITE, b"", b"info_hash", info),
    );
    let schedule = [&[0_u8][..], &*no_id, &*info];
    let secret = extract(SUITE, &*shared, b"secret", b"");
    let mut context = Context {
        key: DerivationKey::default(),
        nonce: [0; 12],
    };
    expand(SUITE, &secret, b"key", &schedule, &mut *context.key);
    expand(SUITE, &secret, b"base_nonce", &schedule, &mut context.nonce);
    context
}

/// `LabeledExtract` of RFC 9180.
fn extract(suite: &[u8], salt: &[u8], label: &[u8], key: &[u8]) -> Zeroizing<[u8; 32]> {
    hkdf_extract(salt, &[b"HPKE-v1", suite, label, key])
}

/// `LabeledExpand` of RFC 9180. At most 255 bytes.
fn expand(suite: &[u8], key: &[u8; 32], label: &[u8], context: &[&[u8]], out: &mut [u8]) {
    let len = [0, u8::try_from(out.len()).unwrap_or(u8::MAX)];
    let mut info = vec![&len[..], b"HPKE-v1", suite, label];
    info.extend_from_slice(context);
    hkdf_expand(key, &info, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: &[u8] = b"317f915db7bc629c48fe765587897e01e282d3e8445f79f27f65d031a88082b2";
    const ENCAPSULATED: &str = "04c06b4f6bebc7bb495cb797ab753f911aff80aefb86fd8b6fcc35525f3ab5f03e0b21bd31a86c6048af3cb2d98e0d3bf01da5cc4c39ff5370d331a4f1f7d5a4e0";

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        let digits = pairs.map(|pair| std::str::from_utf8(pair).unwrap());
        digits
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect()
    }

    /// The vector of RFC 9180 for this suite in base mode.
    #[test]
    fn known_context() {
        let key = P256PrivateKey::parse(PRIVATE).unwrap();
        let encapsulated = bytes(ENCAPSULATED);
        let encapsulated = encapsulated.first_chunk().unwrap();
        let agreed = key.agree(encapsulated).unwrap();
        let info = b"Ode on a Grecian Urn";
        let context = context(&agreed, encapsulated, key.public().point(), info);
        let expected = "ee16802a936d5f544771131900ee6973d0551de9e852ece2ef34bf0d5f9e1d1d";
        assert_eq!(context.key[..], bytes(expected)[..]);
        assert_eq!(context.nonce[..], bytes("9bc50980832a7b4b58c40161")[..]);
    }

    /// The numbers 0 to 31, encrypted with the keys of that vector and without info; the HPKE of
    /// cryptography 50 decrypts it.
    #[test]
    fn known_message() {
        let key = P256PrivateKey::parse(PRIVATE).unwrap();
        let encapsulated = bytes(ENCAPSULATED);
        let message = bytes(
            "42be92150f9a02ea453337b8afd724223bfff727da92342419f7d982c22de2d1a0896c3dc65728917009be6528dbe2ce",
        );
        let open = |encapsulated: &[u8], mut message: Vec<u8>| {
            let encapsulated = encapsulated.first_chunk().unwrap();
            open(&key, encapsulated, &mut message).map(|plain| plain.map(<[u8]>::to_vec))
        };
        let plain: Vec<u8> = (0..32).collect();
        assert_eq!(open(&encapsulated, message.clone()).unwrap(), Some(plain));
        for at in [0, 31, 32, 47] {
            let mut changed = message.clone();
            changed[at] ^= 1;
            assert_eq!(open(&encapsulated, changed).unwrap(), None);
        }
        assert_eq!(open(&encapsulated, Vec::new()).unwrap(), None);
        assert!(open(&[4; POINT], message).is_err());
    }
}
