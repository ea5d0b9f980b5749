//! Apple Encrypted Archives (AEA): a file that is compressed, encrypted and authenticated in
//! segments, which can be read at any place.
//!
//! * [`layout`]: the on-disk structures. [`prologue`]: everything before the data, and unlocking.
//! * [`keys`]: the keys that open archives, [`derive`](mod@derive) those derived from them,
//!   [`scrypt`] that of a passphrase; [`signature`]: the signature of the prologue.
//! * [`clusters`]: the chain of cluster headers; [`segments`]: decoding of one segment.
//! * [`device`]: the contents as a device. [`check`](mod@check): all segments.
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
mod keys;
mod layout;
mod metadata;
mod prologue;
mod scrypt;
mod segments;
mod signature;
#[cfg(test)]
mod tests;

pub use check::{CheckedArchive, check};
pub use device::Archive;
pub use keys::{ArchiveKey, ArchiveKeys, SignerKey, SymmetricKey};
pub use layout::{ChecksumKind, Compression, Profile, RootHeader};
pub use metadata::MetadataEntry;
pub use prologue::{ArchiveDescription, LockedArchive, UnlockedArchive};
pub use signature::SignatureState;

/// The layer name in errors.
const LAYER: &str = "encrypted archive";
