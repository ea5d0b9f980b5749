//! Small volumes drawn by hand, for tests and for fuzzing: as little as the readers of free space
//! need.

mod exfat;
mod ext;
mod fat;
mod ntfs;

pub(crate) use super::layout::fat::Width;
pub(crate) use exfat::{exfat, seal_exfat};
#[cfg(test)]
pub(crate) use ext::seal as seal_ext;
pub(crate) use ext::{ExtSums, ext};
pub(crate) use fat::fat;
pub(crate) use ntfs::ntfs;
#[cfg(test)]
pub(crate) use ntfs::protect as protect_page;

/// Bytes of most of them.
pub(crate) const LEN: usize = 1 << 20;

/// Writes `what` at `at`.
fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}
