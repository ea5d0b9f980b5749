//! Bytes on disk as types that make sense, or an error. The section of `docs/formats/foreign.md`
//! stands with each file.

pub(super) mod exfat;
pub(super) mod ext;
pub(super) mod fat;
pub(super) mod ntfs;

/// 2 to the power of `shift`, which was read from a disk.
pub(super) fn power(shift: u32) -> Option<u64> {
    1_u64.checked_shl(shift)
}
