//! Volumes in which one structure is damaged.

/// Returns an HFS+ volume for each known kind of damage: words of the finding about it, and all
/// bytes of the volume. Each contains 120 files of 5000 bytes `A` with names `file 0` to `file 119`
/// in two folders, and some less simple ones.
pub fn hfsplus() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    crate::fs::hfsplus::damaged()
}

/// Returns an APFS container of `len` bytes for each known kind of damage: words of the finding
/// about it, its severity, and all bytes of the container.
pub fn apfs(len: usize) -> impl Iterator<Item = (&'static str, crate::problem::Severity, Vec<u8>)> {
    crate::fs::apfs::damaged(len)
}

/// Returns an APFS container with one bit changed in an object, whose checksum is updated: the
/// block and byte of the change, and all bytes of the container.
pub fn apfs_at_random(len: usize, random: &mut super::Random) -> ((u64, usize), Vec<u8>) {
    crate::fs::apfs::corrupted_at_random(len, &mut |end| random.within(0..end))
}
