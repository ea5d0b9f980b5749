//! The on-disk structures of APFS: conversion between bytes and types, without I/O.
//!
//! All integers are little-endian. Structures named `…Raw` are the on-disk bytes; types parsed from
//! them are validated. Offsets in the margins are hexadecimal. Source of the facts:
//! `docs/formats/apfs.md`, whose sections are cited as §n.
#![allow(
    dead_code,
    unused_imports,
    reason = "the whole format is written down; reader, builder and checker each use a part"
)]

mod btree;
mod checkpoint;
mod container;
mod directory;
mod extent;
mod inode;
mod keybag;
mod object;
mod omap;
mod reaper;
mod record;
mod sealed;
mod snapshot;
mod spaceman;
mod volume;
mod xattr;
mod xfields;

use std::fmt;
use std::ops::Range;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) use btree::*;
pub(crate) use checkpoint::*;
pub(crate) use container::*;
pub(crate) use directory::*;
pub(crate) use extent::*;
pub(crate) use inode::*;
pub(crate) use keybag::*;
pub(crate) use object::*;
pub(crate) use omap::*;
pub(crate) use reaper::*;
pub(crate) use record::*;
pub(crate) use sealed::*;
pub(crate) use snapshot::*;
pub(crate) use spaceman::*;
pub(crate) use volume::*;
pub(crate) use xattr::*;
pub(crate) use xfields::*;

use crate::Timestamp;
pub(crate) use crate::mode_type;
use bandsaw_core::size::narrow;

/// An object number: the identifier of a virtual or an ephemeral object, the block of a physical
/// one (§1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Oid(pub(crate) u64);

impl Oid {
    /// No object.
    pub(crate) const NONE: Self = Self(0);
    /// The container superblock.
    pub(crate) const CONTAINER: Self = Self(1);
    /// First number available to virtual and ephemeral objects.
    pub(crate) const FIRST_USER: Self = Self(0x400);

    /// Returns true unless it is [`NONE`](Self::NONE).
    pub(crate) fn is_some(self) -> bool {
        self != Self::NONE
    }

    /// Returns the block of a physical object.
    pub(crate) fn into_paddr(self) -> Paddr {
        Paddr(self.0)
    }
}

/// A transaction number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Xid(pub(crate) u64);

/// A block number in the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Paddr(pub(crate) u64);

/// The number of an inode, a stream or another subject of a volume's records; 60 bits (§8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId(pub(crate) u64);

impl FileId {
    /// Parent of the root folder; no such folder exists.
    pub(crate) const ROOT_PARENT: Self = Self(1);
    /// The root folder.
    pub(crate) const ROOT: Self = Self(2);
    /// The folder `private-dir`, next to the root folder.
    pub(crate) const PRIVATE_DIR: Self = Self(3);
    /// The folder of snapshots.
    pub(crate) const SNAPSHOTS: Self = Self(6);
    /// First number of ordinary files and folders.
    pub(crate) const FIRST_USER: Self = Self(0x10);
}

macro_rules! number {
    ($($name:ident)*) => { $(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }

        impl From<U64> for $name {
            fn from(raw: U64) -> Self {
                Self(raw.get())
            }
        }

        impl From<$name> for U64 {
            fn from(number: $name) -> Self {
                Self::new(number.0)
            }
        }
    )* };
}

number! { Oid Xid Paddr FileId }

/// A run of blocks as on disk.
///
/// Source: Apple File System Reference (2020-06-22), prange_t.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(crate) struct PrangeRaw {
    /*00*/ pub(crate) start: U64, // Paddr
    /*08*/ pub(crate) count: U64, // blocks
}
const _: () = assert!(size_of::<PrangeRaw>() == 16);

impl PrangeRaw {
    /// Returns the run of `count` blocks at `start`.
    pub(crate) fn new(start: Paddr, count: u64) -> Self {
        Self {
            start: start.into(),
            count: count.into(),
        }
    }

    /// Returns the blocks if they are within a container of `blocks` blocks.
    pub(crate) fn within(&self, blocks: u64) -> Option<Range<u64>> {
        let start = self.start.get();
        let end = start.checked_add(self.count.get())?;
        (end <= blocks).then_some(start..end)
    }
}

/// A container's block size in bytes: a power of two, 4096 to 65536 (§2). Conversions between
/// blocks and bytes are its methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockSize(u32);

impl BlockSize {
    /// Block size of every container observed so far.
    pub(crate) const DEFAULT: Self = Self(4096);

    /// Returns the block size, `None` if a container cannot have it.
    pub(crate) fn new(bytes: u32) -> Option<Self> {
        ((4096..=65536).contains(&bytes) && bytes.is_power_of_two()).then_some(Self(bytes))
    }

    /// Returns the size in bytes.
    pub(crate) fn get(self) -> u32 {
        self.0
    }

    /// Returns the size in bytes as `usize`.
    pub(crate) fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Returns the offset of block `block` in the container, in bytes; `None` on overflow.
    pub(crate) fn offset(self, block: Paddr) -> Option<u64> {
        block.0.checked_mul(self.0.into())
    }

    /// Returns the length of `blocks` blocks in bytes, `None` on overflow.
    pub(crate) fn of(self, blocks: u64) -> Option<u64> {
        blocks.checked_mul(self.0.into())
    }

    /// Returns the number of blocks that hold `bytes` bytes.
    pub(crate) fn blocks_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.0.into())
    }
}

/// Converts a date in nanoseconds since 1970, 0 for none. Dates before 1970 are negative.
pub(crate) fn timestamp(nanos: U64) -> Option<Timestamp> {
    const SECOND: i64 = 1_000_000_000;
    let nanos = nanos.get().cast_signed();
    let date = || Timestamp {
        seconds: nanos.div_euclid(SECOND),
        nanos: narrow(nanos.rem_euclid(SECOND)),
    };
    (nanos != 0).then(date)
}

/// Converts a timestamp to nanoseconds; timestamps out of range (1677 to 2262) are clamped.
pub(crate) fn nanoseconds(moment: Timestamp) -> U64 {
    let nanos = i128::from(moment.seconds) * 1_000_000_000 + i128::from(moment.nanos);
    let out_of_range = if nanos < 0 { i64::MIN } else { i64::MAX };
    U64::new(i64::try_from(nanos).unwrap_or(out_of_range).cast_unsigned())
}

/// Returns the bytes before the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_nanoseconds() {
        assert_eq!(timestamp(0.into()), None);
        for moment in [(1_700_000_000, 123_456_789), (-1, 999_999_999), (0, 1)] {
            let moment = Timestamp {
                seconds: moment.0,
                nanos: moment.1,
            };
            assert_eq!(timestamp(nanoseconds(moment)), Some(moment));
        }
        assert_eq!(
            nanoseconds(Timestamp::from_seconds(i64::MAX)).get(),
            i64::MAX.cast_unsigned()
        );
        assert_eq!(
            nanoseconds(Timestamp::from_seconds(i64::MIN)).get(),
            i64::MIN.cast_unsigned()
        );
    }

    #[test]
    fn block_sizes_are_powers_of_two_in_bounds() {
        for bytes in [0, 512, 2048, 4095, 6144, 131_072, u32::MAX] {
            assert_eq!(BlockSize::new(bytes), None);
        }
        let size = BlockSize::new(8192).unwrap();
        assert_eq!(
            (
                size.offset(Paddr(3)),
                size.of(u64::MAX),
                size.blocks_for(8193)
            ),
            (Some(24576), None, 2)
        );
    }

    #[test]
    fn runs_end_within_the_container() {
        let run = |start, count| PrangeRaw::new(Paddr(start), count).within(10);
        assert_eq!(run(4, 6), Some(4..10));
        assert_eq!(run(5, 6), None);
        assert_eq!(run(u64::MAX, 2), None);
    }
}
