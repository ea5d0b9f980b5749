//! Tar archives: ustar, with the extensions of POSIX (pax), of GNU tar and of libarchive that
//! matter here.
//!
//! Read from a file, so that contents are a place in it and need no copy ([`read`]); written as a
//! stream ([`write`]). Numbers of users and groups count, their names do not.

mod extended;
mod layout;
mod number;
mod pax;
pub(super) mod read;
pub(super) mod write;

/// The layer of the errors from here.
pub(super) const LAYER: &str = "tar archive";

/// How extended attributes are called in pax headers: the host's name follows.
const SCHILY_XATTR: &str = "SCHILY.xattr.";
/// libarchive's own way: the name in percent signs, the value in base 64.
const LIBARCHIVE_XATTR: &str = "LIBARCHIVE.xattr.";
/// When a file was made, by libarchive.
const CREATION_TIME: &str = "LIBARCHIVE.creationtime";
/// BSD flags by name.
const FILE_FLAGS: &str = "SCHILY.fflags";

/// BSD flags that HFS+ can store, by the names that `chflags` and libarchive know.
const FLAG_NAMES: [(&str, u32); 8] = [
    ("nodump", 0x1),
    ("uchg", 0x2),
    ("uappnd", 0x4),
    ("opaque", 0x8),
    ("hidden", 0x8000),
    ("arch", 0x1_0000),
    ("schg", 0x2_0000),
    ("sappnd", 0x4_0000),
];
