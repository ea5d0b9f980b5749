//! Tar archives: ustar, with the required extensions of POSIX (pax), GNU tar and libarchive.
//!
//! Archives are read from a file, so that contents are referenced by offset and not copied
//! ([`read`]), and written as a stream ([`write`]). Users and groups are identified by number, not
//! by name.

mod extended_headers;
mod layout;
mod number;
mod pax;
pub(super) mod read;
pub(super) mod write;

/// Layer of the errors of this module.
pub(super) const LAYER: &str = "tar archive";

/// Prefix of extended attributes in pax headers; the host's name follows.
const SCHILY_XATTR: &str = "SCHILY.xattr.";
/// Prefix of libarchive's own form: the name is percent-encoded, the value in base 64.
const LIBARCHIVE_XATTR: &str = "LIBARCHIVE.xattr.";
/// Creation date, as stored by libarchive.
const CREATION_TIME: &str = "LIBARCHIVE.creationtime";
/// BSD flags by name.
const FILE_FLAGS: &str = "SCHILY.fflags";

/// BSD flags that HFS+ can store, by the names used by `chflags` and libarchive.
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
