//! Volumes in which one structure is damaged.

/// An HFS+ volume for each kind of damage that is known: words of the finding about it, and all
/// bytes of the volume. Each holds 120 files of 5000 bytes `A` with names `file 0` to `file 119` in
/// two folders, and some that are less plain.
pub fn hfsplus() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    crate::fs::hfsplus::damaged()
}

/// An APFS container of `len` bytes for each kind of damage that is known: words of the finding
/// about it, how bad it is, and all bytes of the container.
pub fn apfs(len: usize) -> impl Iterator<Item = (&'static str, crate::problem::Severity, Vec<u8>)> {
    crate::fs::apfs::damaged(len)
}

/// An APFS container with one bit changed in an object, which has the checksum that belongs to it:
/// which block and byte, and all bytes of the container.
pub fn apfs_at_random(len: usize, random: &mut super::Random) -> ((u64, usize), Vec<u8>) {
    crate::fs::apfs::corrupted_at_random(len, &mut |end| random.within(0..end))
}
