//! On-disk structures parsed into validated types. Each file cites its section of
//! `docs/formats/foreign.md`.

pub(crate) mod ext;
pub(crate) mod mfs;
pub(crate) mod ntfs;

/// Returns 2 to the power of `shift`, which comes from a disk; `None` on overflow.
pub(super) fn power(shift: u32) -> Option<u64> {
    1_u64.checked_shl(shift)
}
