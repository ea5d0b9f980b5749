//! Private keys of P-256: of the recipients of archives, and of signers. The arithmetic is that of the
//! crate `p256`, which the feature `recipients` adds.

use std::fmt;

use zeroize::Zeroizing;

use super::keys::{P256PublicKey, POINT, decode, of_pem};
use crate::crypt::random;
use crate::{Error, Result};

/// Length of a private key in bytes.
const SCALAR: usize = 32;
/// Length of a private key after its public key (ANSI X9.63) in bytes.
const X963: usize = POINT + SCALAR;
/// The algorithm of a key in PKCS#8: an elliptic curve, P-256. Source: RFC 5480.
const ALGORITHM: [u8; 19] = [
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d,
    0x03, 0x01, 0x07,
];
/// The identifier of P-256. Source: RFC 5480.
const CURVE: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

const LAYER: &str = "private key";

/// A private key of P-256. Wiped when dropped and never printed.
#[derive(Clone)]
pub struct P256PrivateKey {
    scalar: Zeroizing<[u8; SCALAR]>,
    public: P256PublicKey,
}

impl P256PrivateKey {
    /// Parses a private key: PEM or DER (PKCS#8 or SEC1), the 97 bytes of its public and private
    /// numbers (ANSI X9.63), or the 32 bytes of the private one; the last two also as base64 or hexadecimal
    /// digits.
    ///
    /// [`Kind::Invalid`](crate::Kind::Invalid) for anything else, [`Kind::Unsupported`](crate::Kind::Unsupported)
    /// without the feature `recipients`.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let invalid = |message: &'static str| Error::invalid(LAYER, message);
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        if text.contains("-----BEGIN PUBLIC KEY-----") {
            return Err(invalid("a public key, expected the private one"));
        }
        if text.contains("ENCRYPTED") {
            let message =
                "the key is encrypted; `openssl pkey` decrypts it, and may write to a pipe";
            return Err(invalid(message));
        }
        let der = of_pem(text, "PRIVATE KEY").or_else(|| of_pem(text, "EC PRIVATE KEY"));
        let numbers = match der {
            Some(der) => of_der(&der),
            None => of_der(bytes)
                .or_else(|| numbers(bytes))
                .or_else(|| numbers(&decode(bytes, X963)?))
                .or_else(|| numbers(&decode(bytes, SCALAR)?)),
        };
        let (scalar, stated) = numbers.ok_or_else(|| {
            invalid(
                "not a private key: expected one of P-256 as PEM or DER (PKCS#8 or SEC1), or its 97 \
                 or 32 bytes",
            )
        })?;
        let public = curve::public(&scalar)?;
        match stated {
            Some(stated) if stated != public => Err(invalid(
                "the public key in the file is not that of the private key",
            )),
            _ => Ok(Self {
                scalar,
                public: P256PublicKey::from_point(public),
            }),
        }
    }

    /// Creates a random key.
    pub fn generate() -> Result<Self> {
        let mut scalar = Zeroizing::new([0; SCALAR]);
        random(&mut *scalar)?;
        // One number in 2^32 is none of the curve.
        let public = curve::public(&scalar).or_else(|_| {
            random(&mut *scalar)?;
            curve::public(&scalar)
        });
        Ok(Self {
            public: P256PublicKey::from_point(public?),
            scalar,
        })
    }

    /// Returns the public key.
    pub fn public(&self) -> &P256PublicKey {
        &self.public
    }

    /// Returns the secret that the owners of this key and of the private key of `other` share (ECDH).
    pub(super) fn agree(&self, other: &[u8; POINT]) -> Result<Zeroizing<[u8; SCALAR]>> {
        curve::agree(&self.scalar, other)
    }

    /// Returns the signature of a message: ECDSA with SHA-256, in DER.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        curve::sign(&self.scalar, self.public.point(), message)
    }
}

impl fmt::Debug for P256PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("P256PrivateKey(..)")
    }
}

/// The private number, and the public key if it is stated.
type Numbers = (Zeroizing<[u8; SCALAR]>, Option<[u8; POINT]>);

/// Returns the numbers of a key without a frame.
fn numbers(bytes: &[u8]) -> Option<Numbers> {
    let (scalar, public) = match bytes.len() {
        SCALAR => (bytes, None),
        X963 => {
            let (public, scalar) = bytes.split_first_chunk::<POINT>()?;
            (scalar, Some(*public))
        }
        _ => return None,
    };
    Some((Zeroizing::new(*scalar.first_chunk()?), public))
}

/// Returns the numbers of a key in DER: PKCS#8 (RFC 5208), or what that contains, SEC1 (RFC 5915).
fn of_der(bytes: &[u8]) -> Option<Numbers> {
    let (sequence, rest) = element(bytes, SEQUENCE)?;
    let (version, sequence) = element(sequence, INTEGER)?;
    if !rest.is_empty() || version.len() != 1 {
        return None;
    }
    if let Some((algorithm, sequence)) = element(sequence, SEQUENCE) {
        let (key, _) = element(sequence, OCTETS)?;
        return match algorithm == ALGORITHM {
            true => of_sec1(key),
            false => None,
        };
    }
    of_sec1(bytes)
}

fn of_sec1(bytes: &[u8]) -> Option<Numbers> {
    let (sequence, _) = element(bytes, SEQUENCE)?;
    let (_, sequence) = element(sequence, INTEGER)?;
    let (scalar, mut rest) = element(sequence, OCTETS)?;
    if let Some((curve, after)) = element(rest, PARAMETERS) {
        if curve != CURVE {
            return None;
        }
        rest = after;
    }
    let public = element(rest, PUBLIC).and_then(|(bits, _)| element(bits, BITS));
    let public = public.and_then(|(bits, _)| bits.split_first()?.1.first_chunk().copied());
    let scalar = scalar.first_chunk().filter(|_| scalar.len() == SCALAR)?;
    Some((Zeroizing::new(*scalar), public))
}

// Tags of DER. Source: ITU-T X.690.
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
const OCTETS: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const PARAMETERS: u8 = 0xA0;
const PUBLIC: u8 = 0xA1;

/// Returns the contents of the first element of DER, which has this tag, and all after it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<2>()?;
    let (len, rest) = match header[1] {
        len @ 0..=0x7F => (len, rest),
        0x81 => rest.split_first().map(|(len, rest)| (*len, rest))?,
        // No key of P-256 is longer.
        _ => return None,
    };
    match header[0] == tag {
        true => rest.split_at_checked(len.into()),
        false => None,
    }
}

#[cfg(feature = "recipients")]
mod curve {
    use p256::elliptic_curve::point::AffineCoordinates;
    use p256::elliptic_curve::sec1::ToSec1Point;
    use p256::{ProjectivePoint, PublicKey, SecretKey};

    use super::{Error, LAYER, POINT, Result, SCALAR, Zeroizing};

    fn secret(scalar: &[u8; SCALAR]) -> Result<SecretKey> {
        let message = "the private key is no number of P-256";
        SecretKey::from_slice(scalar).map_err(|_| Error::invalid(LAYER, message))
    }

    /// Returns the public key of a private one.
    pub(super) fn public(scalar: &[u8; SCALAR]) -> Result<[u8; POINT]> {
        let point = secret(scalar)?.public_key().to_sec1_point(false);
        let bytes = point.as_bytes().first_chunk::<POINT>();
        bytes.copied().ok_or_else(|| {
            Error::invalid(
                LAYER,
                "malformed public key: expected a point of the curve P-256",
            )
        })
    }

    /// Returns the shared secret of two keys: the X coordinate of their product.
    pub(super) fn agree(
        scalar: &[u8; SCALAR],
        other: &[u8; POINT],
    ) -> Result<Zeroizing<[u8; SCALAR]>> {
        let message = "the public key is not a point of P-256";
        // Refuses points that are not on the curve, and the point at infinity.
        let other =
            PublicKey::from_sec1_bytes(other).map_err(|_| Error::invalid("public key", message))?;
        let product = (ProjectivePoint::from(*other.as_affine())
            * *secret(scalar)?.to_nonzero_scalar())
        .to_affine();
        Ok(Zeroizing::new(product.x().into()))
    }

    /// Returns the signature of a message by a key.
    pub(super) fn sign(
        scalar: &[u8; SCALAR],
        public: &[u8; POINT],
        message: &[u8],
    ) -> Result<Vec<u8>> {
        use ring::rand::SystemRandom;
        use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};

        let failed = || Error::invalid(LAYER, "the key cannot sign");
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let pair =
            EcdsaKeyPair::from_private_key_and_public_key(algorithm, scalar, public, &random);
        let signature = pair.map_err(|_| failed())?.sign(&random, message);
        Ok(signature.map_err(|_| failed())?.as_ref().to_vec())
    }
}

#[cfg(not(feature = "recipients"))]
mod curve {
    use super::{Error, LAYER, POINT, Result, SCALAR, Zeroizing};

    fn without<T>() -> Result<T> {
        let message = "this build cannot use private keys of archives (feature `recipients`)";
        Err(Error::unsupported(LAYER, message))
    }

    pub(super) fn public(_scalar: &[u8; SCALAR]) -> Result<[u8; POINT]> {
        without()
    }

    pub(super) fn agree(
        _scalar: &[u8; SCALAR],
        _other: &[u8; POINT],
    ) -> Result<Zeroizing<[u8; SCALAR]>> {
        without()
    }

    pub(super) fn sign(
        _scalar: &[u8; SCALAR],
        _public: &[u8; POINT],
        _message: &[u8],
    ) -> Result<Vec<u8>> {
        without()
    }
}

#[cfg(all(test, feature = "recipients"))]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        let digits = pairs.map(|pair| std::str::from_utf8(pair).unwrap());
        digits
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect()
    }

    /// RFC 5903, section 8.1.
    #[test]
    fn known_shared_secret() {
        let own = P256PrivateKey::parse(
            b"c88f01f510d9ac3f70a292daa2316de544e9aab8afe84049c62a9c57862d1433",
        )
        .unwrap();
        let other = bytes(
            "04d12dfb5289c8d4f81208b70270398c342296970a0bccb74c736fc7554494bf6356fbf3ca366cc23e8157854c13c58d6aac23f046ada30f8353e74f33039872ab",
        );
        let shared = own.agree(other.first_chunk().unwrap()).unwrap();
        let expected = "d6840f6b42f6edafd13116e0e12565202fef8e9ece7dce03812464d04b9442de";
        assert_eq!(shared[..], bytes(expected)[..]);
        assert_eq!(
            own.public().point()[..],
            bytes(
                "04dad0b65394221cf9b051e1feca5787d098dfe637fc90b9ef945d0c37725811805271a0461cdb8252d61f1c456fa3e59ab1f45b33accf5f58389e0577b8990bb3"
            )[..]
        );
        let mut off = other;
        off[64] ^= 1;
        assert!(own.agree(off.first_chunk().unwrap()).is_err());
        assert!(own.agree(&[4; POINT]).is_err());
        assert_eq!(format!("{own:?}"), "P256PrivateKey(..)");
    }

    /// The same key as `openssl ecparam -genkey`, `openssl pkey` and X9.63 write it.
    #[test]
    fn keys_are_pem_der_or_numbers() {
        let sec1 = "30770201010420SCALARa00a06082a8648ce3d030107a14403420004POINT";
        let scalar = "c88f01f510d9ac3f70a292daa2316de544e9aab8afe84049c62a9c57862d1433";
        let point = "dad0b65394221cf9b051e1feca5787d098dfe637fc90b9ef945d0c37725811805271a0461cdb8252d61f1c456fa3e59ab1f45b33accf5f58389e0577b8990bb3";
        let with = |text: &str| bytes(&text.replace("SCALAR", scalar).replace("POINT", point));
        let pkcs8 = with(
            "308187020100301306072a8648ce3d020106082a8648ce3d030107046d306b0201010420SCALARa14403420004POINT",
        );
        let pem = |label: &str, der: &[u8]| {
            use base64::Engine;
            let base64 = base64::engine::general_purpose::STANDARD.encode(der);
            let lines = base64.as_bytes().chunks(64);
            let lines: Vec<_> = lines
                .map(|line| std::str::from_utf8(line).unwrap())
                .collect();
            let lines = lines.join("\n");
            format!("-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
        };
        let ec = pem("EC PRIVATE KEY", &with(sec1));
        let parameters = pem("EC PARAMETERS", &bytes("06082a8648ce3d030107"));
        for key in [
            bytes(scalar),
            scalar.as_bytes().to_vec(),
            with("04POINTSCALAR"),
            format!("04{point}{scalar}\n").into_bytes(),
            with(sec1),
            pkcs8.clone(),
            pem("PRIVATE KEY", &pkcs8).into_bytes(),
            ec.clone().into_bytes(),
            (parameters + &ec).into_bytes(),
        ] {
            let key = P256PrivateKey::parse(&key).unwrap();
            assert_eq!(key.scalar[..], bytes(scalar)[..]);
        }
        let mut of_another = with("04POINTSCALAR");
        of_another[96] ^= 1;
        for wrong in [
            of_another,
            vec![0; SCALAR],
            vec![0xFF; SCALAR],
            pkcs8[..100].to_vec(),
            // Of the curve P-384.
            with(
                "308187020100301306072a8648ce3d020106082a8648ce3d030108046d306b0201010420SCALARa14403420004POINT",
            ),
            pem("PUBLIC KEY", &pkcs8).into_bytes(),
            pem("ENCRYPTED PRIVATE KEY", &pkcs8).into_bytes(),
            Vec::new(),
            b"no key".to_vec(),
        ] {
            assert!(P256PrivateKey::parse(&wrong).is_err(), "{wrong:x?}");
        }
        for len in 0..pkcs8.len() {
            assert!(len == SCALAR || P256PrivateKey::parse(&pkcs8[..len]).is_err());
        }
    }

    #[test]
    fn generated_keys_agree_and_differ() {
        let (a, b) = (
            P256PrivateKey::generate().unwrap(),
            P256PrivateKey::generate().unwrap(),
        );
        assert!(a.public() != b.public());
        let shared = a.agree(b.public().point()).unwrap();
        assert_eq!(*shared, *b.agree(a.public().point()).unwrap());
    }
}
