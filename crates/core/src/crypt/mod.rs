//! `encrcdsa` and `cdsaencr`: Apple's encrypted images, which contain a complete image of another
//! format. Encrypted archives, which may contain one, are in [`aea`].
//!
//! [`Device`] decrypts a single encrypted file; the bands of a sparse bundle use `CipherBlocks`
//! themselves, because only they distinguish gaps. Neither detects changes of the cipher text: the
//! format has no integrity check. Source: docs/formats/encrypted.md.

pub mod aea;
mod aes;
mod back_end;
mod blocks;
mod check;
mod device;
mod encryption;
mod entry;
mod header;
mod hmac;
mod hmac256;
mod key_ring;
mod keys;
mod layout;
pub mod parallel;
mod public_key;
mod rewrite;
#[cfg(feature = "certificates")]
mod rsa_keys;
mod secret;
mod sectors;
mod wrap;
mod xts;

pub use back_end::BackEnd;
pub use blocks::{CipherBlocks, CipherTextWindow, ZeroBlockMeaning};
pub use check::check;
pub use device::Device;
pub use encryption::Encryption;
pub use entry::{KeySlot, NewKeySlot};
pub use header::{Description, Key, LockedHeader, Protection};
pub use hmac256::{hmac_sha256, pbkdf2_sha256};
pub use key_ring::{KeyRing, erase_keys};
pub use keys::random;
pub use keys::{KeyMaterial, KeyWrap, MAX_ITERATIONS, MIN_ITERATIONS, calibrate};
pub use public_key::{Certificate, PrivateKey};
pub use secret::Secret;
pub use sectors::Sectors;
pub use wrap::{unwrap_key, wrap_key};
pub use xts::{Xts, decrypt_xts_unit, encrypt_xts_unit};

/// The first bytes of an encrypted image of version 2.
pub const HEADER_MAGIC: [u8; 8] = layout::MAGIC_V2;
/// The last bytes of an encrypted image of version 1.
pub const TRAILER_MAGIC: [u8; 8] = layout::MAGIC_V1;

/// Sources of the layouts, which declare the fields that tests damage one by one.
#[cfg(feature = "testing")]
pub const LAYOUTS: [&str; 2] = [
    include_str!("layout/mod.rs"),
    include_str!("layout/entry.rs"),
];
