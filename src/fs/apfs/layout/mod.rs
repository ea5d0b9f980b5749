//! The on-disk structures of APFS: bytes to types and back, no I/O.
//!
//! Everything is little-endian. Structures named `…Raw` are the bytes as they lie; what is parsed
//! from them makes sense. Offsets in the margins are hexadecimal. Source of the facts:
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

use crate::fs::Timestamp;

/// An object's number: of a virtual or an ephemeral object its name, of a physical one its block
/// (§1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Oid(pub(crate) u64);

impl Oid {
    /// No object.
    pub(crate) const NONE: Self = Self(0);
    /// The container superblock.
    pub(crate) const CONTAINER: Self = Self(1);
    /// The first number that a virtual or ephemeral object may have.
    pub(crate) const FIRST_USER: Self = Self(0x400);

    /// Returns whether it names an object.
    pub(crate) fn is_some(self) -> bool {
        self != Self::NONE
    }

    /// The block of a physical object.
    pub(crate) fn into_paddr(self) -> Paddr {
        Paddr(self.0)
    }
}

/// The number of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Xid(pub(crate) u64);

/// A block's number within the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Paddr(pub(crate) u64);

/// The number of an inode, a stream or whatever else records of a volume are about; 60 bits (§8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId(pub(crate) u64);

impl FileId {
    /// The parent of the root folder; no such folder exists.
    pub(crate) const ROOT_PARENT: Self = Self(1);
    /// The root folder.
    pub(crate) const ROOT: Self = Self(2);
    /// The folder `private-dir`, beside the root folder.
    pub(crate) const PRIVATE_DIR: Self = Self(3);
    /// The folder of snapshots.
    pub(crate) const SNAPSHOTS: Self = Self(6);
    /// The first number of ordinary files and folders.
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

/// A run of blocks as it lies on disk.
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
    /// `count` blocks from `start` on.
    pub(crate) fn new(start: Paddr, count: u64) -> Self {
        Self {
            start: start.into(),
            count: count.into(),
        }
    }

    /// The blocks, if they lie within a container of `blocks`.
    pub(crate) fn within(&self, blocks: u64) -> Option<Range<u64>> {
        let start = self.start.get();
        let end = start.checked_add(self.count.get())?;
        (end <= blocks).then_some(start..end)
    }
}

/// A container's block size: a power of two, 4096 to 65536 (§2). Multiplications by it live here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockSize(u32);

impl BlockSize {
    /// What every container known so far has.
    pub(crate) const DEFAULT: Self = Self(4096);

    /// The size `bytes`, if a container may have it.
    pub(crate) fn new(bytes: u32) -> Option<Self> {
        ((4096..=65536).contains(&bytes) && bytes.is_power_of_two()).then_some(Self(bytes))
    }

    /// In bytes.
    pub(crate) fn get(self) -> u32 {
        self.0
    }

    /// In bytes, for slices.
    pub(crate) fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Where block `block` begins, in bytes from the start of the container; `None` past any
    /// container.
    pub(crate) fn offset(self, block: Paddr) -> Option<u64> {
        block.0.checked_mul(self.0.into())
    }

    /// Bytes of `blocks` blocks, `None` if there are too many to count.
    pub(crate) fn of(self, blocks: u64) -> Option<u64> {
        blocks.checked_mul(self.0.into())
    }

    /// Blocks that hold `bytes`.
    pub(crate) fn blocks_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.0.into())
    }
}

/// A date: nanoseconds since 1970, 0 for none. Dates before 1970 are negative.
pub(crate) fn timestamp(nanos: U64) -> Option<Timestamp> {
    const SECOND: i64 = 1_000_000_000;
    let nanos = nanos.get().cast_signed();
    // The remainder is below 10^9 and not negative.
    let date = || Timestamp {
        seconds: nanos.div_euclid(SECOND),
        nanos: nanos.rem_euclid(SECOND) as u32,
    };
    (nanos != 0).then(date)
}

/// The date for a moment, the nearest possible one (1677 to 2262) for moments beyond.
pub(crate) fn nanoseconds(moment: Timestamp) -> U64 {
    let nanos = i128::from(moment.seconds) * 1_000_000_000 + i128::from(moment.nanos);
    // Clamped to 64 bits just before.
    let nanos = nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    U64::new(nanos.cast_unsigned())
}

/// The bytes before the first NUL.
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
