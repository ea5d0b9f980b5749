//! Apple Encrypted Archives (AEA): a file that is compressed, encrypted and authenticated in
//! segments, which can be read at any place.
//!
//! * [`layout`]: the on-disk structures. [`prologue`]: everything before the data, and unlocking.
//! * [`keys`] and [`private_key`]: the keys that open archives, [`derive`](mod@derive) those derived from them,
//!   [`scrypt`] that of a passphrase, [`wrapped_key`] that in the metadata of system software;
//!   [`signature`]: the signature of the prologue.
//! * [`clusters`]: the chain of cluster headers; [`segments`]: decoding of one segment.
//! * [`device`]: the contents as a device. [`check`](mod@check): all segments. [`writer`]: new archives.
//!
//! Nothing is returned that was not authenticated, with one exception: an archive that is only signed is
//! read without the public key of its signer, and then says so
//! ([`SignatureState::NoPublicKey`]). Source: docs/formats/aea.md.

mod check;
mod clusters;
mod derive;
mod device;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
#[cfg(feature = "recipients")]
mod hpke;
mod keys;
mod layout;
mod metadata;
mod private_key;
mod prologue;
mod scrypt;
mod segments;
mod signature;
#[cfg(test)]
mod tests;
mod wrapped_key;
mod writer;

pub use check::{CheckedArchive, check};
pub use device::Archive;
pub use keys::{ArchiveKey, ArchiveKeys, P256PublicKey, SymmetricKey};
pub use layout::{ChecksumKind, Compression, Profile, RootHeader};
pub use metadata::MetadataEntry;
pub use private_key::P256PrivateKey;
pub use prologue::{ArchiveDescription, LockedArchive, UnlockedArchive};
pub use signature::SignatureState;
pub use writer::{ArchiveWriter, NewArchive, NewArchiveKey};

/// The layer name in errors.
const LAYER: &str = "encrypted archive";
