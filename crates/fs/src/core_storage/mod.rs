//! Core Storage, the volume manager of OS X 10.7 to macOS 10.15, read-only: logical volumes on one or
//! more physical ones, encrypted by FileVault 2 or not.
//!
//! The volume inside is HFS+. Fusion drives, whose blocks move between their disks, and volumes that
//! are being encrypted or decrypted are refused. Source: docs/formats/core-storage.md.

mod context;
mod device;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub mod fixture;
mod group;
mod layout;
mod member;
mod metadata;
mod property_list;
#[cfg(test)]
mod tests;

use bandsaw_core::{Error, Kind};

pub use device::LogicalDevice;
pub use group::{Group, LogicalVolume};
pub use member::group_of;

/// The layer in errors.
const LAYER: &str = "core storage";

/// Maximum number of physical volumes of a group, and of logical volumes.
const MAX_SLOTS: usize = 256;

/// Paths, within a Mac's recovery partition, of the file with the keys of its start volume.
pub const KEY_FILES: [&str; 4] = [
    "/com.apple.boot.P/System/Library/Caches/com.apple.corestorage/EncryptedRoot.plist.wipekey",
    "/com.apple.boot.R/System/Library/Caches/com.apple.corestorage/EncryptedRoot.plist.wipekey",
    "/com.apple.boot.S/System/Library/Caches/com.apple.corestorage/EncryptedRoot.plist.wipekey",
    "/System/Library/Caches/com.apple.corestorage/EncryptedRoot.plist.wipekey",
];

/// Parses a property list of the metadata; only must not fail badly.
#[cfg(feature = "testing")]
pub fn read_property_list(bytes: &[u8]) -> bool {
    property_list::Value::parse(bytes).is_ok()
}

fn corrupt(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::Corrupt, LAYER, message)
}
