//! On-disk structures of a sparse image. Big-endian, no checksums. Source:
//! docs/formats/sparseimage.md.
//!
//! The file is a chain of index nodes, each followed by the bands of its slots. A slot's *position*
//! in the chain is the position of its band in the file; its *value* is the band's number on the
//! disk plus one, or zero.

use std::mem::offset_of;

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{LAYER, SECTOR};
use crate::size::{narrow, to_usize};
use crate::{Error, Result};

pub(super) const MAGIC: [u8; 4] = *b"sprs";
const VERSION: u32 = 3;
/// Of unknown meaning; every image has it.
const FLAGS: u32 = 1;
/// 8 GiB: the maximum that hdiutil accepts.
pub(super) const MAX_SECTORS_PER_BAND: u32 = 1 << 24;

/// Size of a node in bytes; its first band follows.
pub(super) const NODE: u64 = 4096;
/// Number of slots in the first node.
pub(super) const HEAD_SLOTS: u32 = 1008;
/// Number of slots in every further node.
pub(super) const NEXT_SLOTS: u32 = 1010;

/// The first node, at byte 0 of the file.
///
/// Source: john-samples aj_sparse.zip (OS X 10.8; docs/formats/sparseimage.md §1).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct HeadRaw {
    /*000*/ magic: [u8; 4],
    /*004*/ version: U32,
    /*008*/ sectors_per_band: U32,
    /*00C*/ flags: U32,
    /*010*/ size: SizeRaw,
    /*024*/ zero: [u8; 28],
    /*040*/ pub(super) slots: [U32; HEAD_SLOTS as usize],
}
const _: () = assert!(size_of::<HeadRaw>() == to_usize(NODE));

/// The size of the disk, with the link to the next node in between. Written at once, because it is
/// within one sector.
///
/// Source: john-samples aj_sparse.zip (OS X 10.8; docs/formats/sparseimage.md §1).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(super) struct SizeRaw {
    /*010*/ sectors_low: U32,
    /*014*/ next: U64, // byte of the next node, 0: none
    /*01C*/ sectors: U64, // 0: only the low half counts
}
const _: () = assert!(size_of::<SizeRaw>() == 20);

/// Every further node.
///
/// Source: sgan81/apfs-fuse, DeviceSparseImage.cpp (docs/formats/sparseimage.md §3).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct NextRaw {
    /*000*/ magic: [u8; 4],
    /*004*/ number: U32, // 0, 1, ... over the nodes after the first
    /*008*/ flags: U32,
    /*00C*/ pub(super) next: U64,
    /*014*/ zero: [u8; 36],
    /*038*/ pub(super) slots: [U32; NEXT_SLOTS as usize],
}
const _: () = assert!(size_of::<NextRaw>() == to_usize(NODE));

/// Offset of [`SizeRaw`] in the first node.
pub(super) const SIZE_AT: u64 = offset_of!(HeadRaw, size) as u64;
/// Offset of the flags in the first node.
pub(super) const FLAGS_AT: u64 = offset_of!(HeadRaw, flags) as u64;
const HEAD_SLOTS_AT: u64 = offset_of!(HeadRaw, slots) as u64;
const NEXT_SLOTS_AT: u64 = offset_of!(NextRaw, slots) as u64;
const NEXT_LINK_AT: u64 = offset_of!(NextRaw, next) as u64;
const HEAD_LINK_AT: u64 = SIZE_AT + offset_of!(SizeRaw, next) as u64;
const SECTORS_AT: u64 = SIZE_AT + offset_of!(SizeRaw, sectors) as u64;
const VERSION_AT: u64 = offset_of!(HeadRaw, version) as u64;
const BAND_AT: u64 = offset_of!(HeadRaw, sectors_per_band) as u64;

/// The parsed first node, without its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeaderPrefix {
    pub(super) sectors_per_band: u32,
    /// Length of the disk in sectors, at least 1.
    pub(super) sectors: u64,
    pub(super) next: u64,
    /// True if the flags are the known ones.
    pub(super) usual_flags: bool,
    /// The other field of the length, if it differs; it has no room for lengths past 32 bits.
    pub(super) other_sectors: Option<u32>,
}

impl HeaderPrefix {
    pub(super) fn parse(raw: &HeadRaw) -> Result<Self> {
        if raw.magic != MAGIC {
            return Err(Error::corrupt(
                LAYER,
                0,
                "invalid signature: expected \"sprs\"",
            ));
        }
        let version = raw.version.get();
        if version != VERSION {
            return Err(Error::unsupported(
                LAYER,
                format!("unsupported header version {version}: only {VERSION} is supported"),
            )
            .at(VERSION_AT));
        }
        let sectors_per_band = raw.sectors_per_band.get();
        if sectors_per_band == 0 || sectors_per_band > MAX_SECTORS_PER_BAND {
            let expected = format!(
                "invalid band size of {sectors_per_band} sectors: expected 1 to \
                 {MAX_SECTORS_PER_BAND}"
            );
            return Err(Error::corrupt(LAYER, BAND_AT, expected));
        }
        let sectors = match raw.size.sectors.get() {
            0 => u64::from(raw.size.sectors_low.get()),
            sectors => sectors,
        };
        // The maximum file offset, which is the limit of hdiutil, too.
        if sectors == 0 || sectors > i64::MAX as u64 / SECTOR {
            return Err(Error::corrupt(
                LAYER,
                SECTORS_AT,
                format!("invalid disk size of {sectors} sectors"),
            ));
        }
        if sectors.div_ceil(sectors_per_band.into()) > MAX_BANDS_OF_DISK {
            let limit = format!(
                "disk of {sectors} sectors has too many bands of {sectors_per_band} sectors"
            );
            return Err(Error::limit(LAYER, limit).at(SECTORS_AT));
        }
        let usual_flags = raw.flags.get() == FLAGS;
        Ok(Self {
            sectors_per_band,
            sectors,
            next: raw.size.next.get(),
            usual_flags,
            other_sectors: Some(raw.size.sectors_low.get())
                .filter(|&low| u32::try_from(sectors).is_ok_and(|sectors| sectors != low)),
        })
    }

    /// Returns the first node of an image without bands.
    pub(super) fn blank(sectors_per_band: u32, sectors: u64) -> HeadRaw {
        HeadRaw {
            magic: MAGIC,
            version: VERSION.into(),
            sectors_per_band: sectors_per_band.into(),
            flags: FLAGS.into(),
            size: SizeRaw::new(sectors, 0),
            zero: [0; 28],
            slots: [U32::ZERO; HEAD_SLOTS as usize],
        }
    }
}

impl SizeRaw {
    pub(super) fn new(sectors: u64, next: u64) -> Self {
        let low = sectors & u64::from(u32::MAX);
        Self {
            sectors_low: U32::new(narrow(low)),
            next: next.into(),
            sectors: sectors.into(),
        }
    }
}

impl NextRaw {
    /// Returns the link of a further node that was read at byte `at`.
    pub(super) fn parse(&self, at: u64) -> Result<u64> {
        if self.magic != MAGIC {
            return Err(Error::corrupt(
                LAYER,
                at,
                "the previous node points here, but no node begins here",
            ));
        }
        Ok(self.next.get())
    }

    /// Returns the `number`th node after the first, without slots or link.
    pub(super) fn blank(number: u32) -> Self {
        Self {
            magic: MAGIC,
            number: number.into(),
            flags: FLAGS.into(),
            next: U64::ZERO,
            zero: [0; 36],
            slots: [U32::ZERO; NEXT_SLOTS as usize],
        }
    }
}

/// Number of a band on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BandIndex(pub(super) u32);

/// Index of a band's position in the file, counted over all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(pub(super) u32);

/// Value of a slot: the band stored there. On disk its number plus one, 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(u32);

impl Label {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn of(band: BandIndex) -> Self {
        Self(band.0 + 1)
    }

    pub(super) fn band(self) -> Option<BandIndex> {
        self.0.checked_sub(1).map(BandIndex)
    }
}

impl From<U32> for Label {
    fn from(raw: U32) -> Self {
        Self(raw.get())
    }
}

impl From<Label> for U32 {
    fn from(label: Label) -> Self {
        Self::new(label.0)
    }
}

/// Maximum number of bands of a disk: a label is 32 bits wide and one more than the number.
pub(super) const MAX_BANDS_OF_DISK: u64 = u32::MAX as u64;

impl Slot {
    /// Returns its node, and its index in that node.
    pub(super) fn in_node(self) -> (usize, u32) {
        match self.0.checked_sub(HEAD_SLOTS) {
            None => (0, self.0),
            Some(further) => (1 + (further / NEXT_SLOTS) as usize, further % NEXT_SLOTS),
        }
    }
}

/// Returns the number of slots in node `node`.
pub(super) fn slots_of(node: usize) -> u32 {
    if node == 0 { HEAD_SLOTS } else { NEXT_SLOTS }
}

/// Returns the offset of slot `within` in node `node`, in bytes.
pub(super) fn slot_at(node: usize, within: u32) -> u64 {
    u64::from(within) * 4
        + if node == 0 {
            HEAD_SLOTS_AT
        } else {
            NEXT_SLOTS_AT
        }
}

/// Returns the offset of the link in node `node`, in bytes.
pub(super) fn link_at(node: usize) -> u64 {
    if node == 0 {
        HEAD_LINK_AT
    } else {
        NEXT_LINK_AT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    /// The vector of §7: a disk of 64 KiB with one band.
    #[test]
    fn a_header_by_macos() {
        let mut raw = HeaderPrefix::blank(2048, 128);
        raw.slots[0] = Label::of(BandIndex(0)).into();
        let expected = [
            "73707273 00000003 00000800 00000001 00000080 0000000000000000 0000000000000080",
            "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000001 00000000",
        ];
        let expected = expected.concat().replace(' ', "");
        let found: String = raw.as_bytes()[..0x48]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(found, expected);
        let head = HeaderPrefix::parse(&raw).unwrap();
        assert_eq!(
            head,
            HeaderPrefix {
                sectors_per_band: 2048,
                sectors: 128,
                next: 0,
                usual_flags: true,
                other_sectors: None,
            }
        );
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |change: fn(&mut HeadRaw)| {
            let mut raw = HeaderPrefix::blank(2048, 128);
            change(&mut raw);
            HeaderPrefix::parse(&raw).unwrap_err().kind()
        };
        use crate::Kind::{Corrupt, Unsupported};
        assert_eq!(refused(|raw| raw.magic = *b"sprz"), Corrupt);
        assert_eq!(refused(|raw| raw.version = 4.into()), Unsupported);
        assert_eq!(refused(|raw| raw.sectors_per_band = 0.into()), Corrupt);
        assert_eq!(
            refused(|raw| raw.sectors_per_band = (MAX_SECTORS_PER_BAND + 1).into()),
            Corrupt
        );
        assert_eq!(refused(|raw| raw.size = SizeRaw::new(0, 0)), Corrupt);
        assert_eq!(refused(|raw| raw.size = SizeRaw::new(u64::MAX, 0)), Corrupt);
    }

    #[test]
    fn only_the_low_half_of_an_old_size() {
        let mut raw = HeaderPrefix::blank(2048, 128);
        raw.size.sectors = U64::ZERO;
        assert_eq!(HeaderPrefix::parse(&raw).unwrap().sectors, 128);
        assert_eq!(
            HeaderPrefix::parse(&HeaderPrefix::blank(2048, 1 << 40))
                .unwrap()
                .sectors,
            1 << 40
        );
        assert_eq!(
            HeaderPrefix::parse(&HeaderPrefix::blank(1, 1 << 40))
                .unwrap_err()
                .kind(),
            Kind::Limit
        );
    }

    #[test]
    fn slots_are_counted_over_the_nodes() {
        assert_eq!(Slot(1007).in_node(), (0, 1007));
        assert_eq!(Slot(1008).in_node(), (1, 0));
        assert_eq!(Slot(1008 + 1010).in_node(), (2, 0));
    }
}
