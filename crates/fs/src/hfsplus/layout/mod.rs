//! The on-disk structures of HFS+ and HFSX: conversion between bytes and types, without I/O.
//!
//! Everything is big-endian except the journal, which is in the byte order of the machine that
//! wrote it. Structures named `…Raw` have the on-disk layout; types parsed from them are validated.
//! Source of the facts: `docs/formats/hfsplus.md`, whose sections are cited as §n.
#![allow(
    dead_code,
    reason = "the whole format is written down; reader, builder and checker each use a part"
)]

mod attributes;
mod btree;
mod catalog;
mod journal;
mod volume;

use std::fmt;

pub(crate) use attributes::*;
pub(crate) use btree::*;
pub(crate) use catalog::*;
pub(crate) use journal::*;
pub(crate) use volume::*;

use crate::Timestamp;
pub(crate) use crate::btree_node::{
    FIRST_RECORD, HEADER_MAP_OFFSET, MAX_DEPTH, NodeDescriptorRaw, TreeHeaderRaw, node_kind,
};
pub(crate) use crate::mode_type;

/// A catalog node ID: the number of a file or folder within its volume (§3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Cnid(pub(crate) u32);

impl Cnid {
    /// The parent of the root folder; no such folder exists.
    pub(crate) const ROOT_PARENT: Self = Self(1);
    /// The root folder.
    pub(crate) const ROOT: Self = Self(2);
    /// The extents-overflow tree.
    pub(crate) const EXTENTS: Self = Self(3);
    /// The catalog tree.
    pub(crate) const CATALOG: Self = Self(4);
    /// The bad-block file, whose extents are stored in the extents tree only.
    pub(crate) const BAD_BLOCKS: Self = Self(5);
    /// The allocation file (bitmap).
    pub(crate) const ALLOCATION: Self = Self(6);
    /// The startup file.
    pub(crate) const STARTUP: Self = Self(7);
    /// The attributes tree.
    pub(crate) const ATTRIBUTES: Self = Self(8);
    /// The first number of user files and folders.
    pub(crate) const FIRST_USER: Self = Self(16);
}

impl fmt::Display for Cnid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an allocation block of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AllocBlock(pub(crate) u32);

impl AllocBlock {
    /// Returns the offset of the block, in bytes from the start of the volume.
    pub(crate) fn offset(self, block_size: u32) -> u64 {
        // A product of two 32-bit numbers always fits in 64 bits.
        u64::from(self.0) * u64::from(block_size)
    }
}

impl fmt::Display for AllocBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A run of allocation blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First block.
    pub(crate) start: AllocBlock,
    /// Number of blocks; 0 ends a list of extents.
    pub(crate) count: u32,
}

impl Extent {
    /// The empty extent.
    pub(crate) const NONE: Self = Self {
        start: AllocBlock(0),
        count: 0,
    };

    /// Returns the block after the last one, which may be 2^32.
    pub(crate) fn end(self) -> u64 {
        u64::from(self.start.0) + u64::from(self.count)
    }
}

/// Seconds from 1904-01-01 to 1970-01-01 (§10).
pub(crate) const MAC_TO_UNIX: i64 = 2_082_844_800;

/// Converts a date of the catalog or the volume header: seconds since 1904, or since 1970 if
/// `expanded` (§10). 0 means no date.
pub(crate) fn timestamp(date: u32, expanded: bool) -> Option<Timestamp> {
    let epoch = if expanded { 0 } else { MAC_TO_UNIX };
    (date != 0).then(|| Timestamp::from_seconds(i64::from(date) - epoch))
}

/// Converts a timestamp to seconds since 1904, or since 1970 if `expanded`, clamped to the valid
/// range (1904 to 2040, or 1970 to 2106).
pub fn mac_date(moment: Timestamp, expanded: bool) -> u32 {
    let epoch = if expanded { 0 } else { MAC_TO_UNIX };
    let seconds = moment.seconds.saturating_add(epoch);
    u32::try_from(seconds.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_count_from_1904() {
        assert_eq!(timestamp(0, false), None);
        assert_eq!(
            timestamp(2_082_844_800, false),
            Some(Timestamp::from_seconds(0))
        );
        assert_eq!(
            timestamp(1, false),
            Some(Timestamp::from_seconds(1 - MAC_TO_UNIX))
        );
        assert_eq!(
            timestamp(1_700_000_000, true),
            Some(Timestamp::from_seconds(1_700_000_000))
        );
        for date in [1, 2_082_844_800, u32::MAX] {
            assert_eq!(
                timestamp(date, false).map(|moment| mac_date(moment, false)),
                Some(date)
            );
            assert_eq!(
                timestamp(date, true).map(|moment| mac_date(moment, true)),
                Some(date)
            );
        }
        assert_eq!(mac_date(Timestamp::from_seconds(i64::MIN), false), 1);
        assert_eq!(mac_date(Timestamp::from_seconds(i64::MAX), false), u32::MAX);
        assert_eq!(mac_date(Timestamp::from_seconds(-1), true), 1);
        assert_eq!(mac_date(Timestamp::from_seconds(i64::MAX), true), u32::MAX);
    }
}
