//! Objects: the header of nearly every metadata block, and its checksum (§1).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Oid, Xid};

/// The header of an object.
///
/// Source: Apple File System Reference (2020-06-22), obj_phys_t.
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
pub(crate) struct ObjectRaw {
    /*00*/ pub(crate) checksum: U64, // Fletcher-64 of the rest of the object
    /*08*/ pub(crate) oid: U64, // of a physical object its block
    /*10*/ pub(crate) xid: U64, // the transaction that wrote this copy
    /*18*/ pub(crate) kind: U32, // object_type with storage flags
    /*1C*/ pub(crate) subtype: U32, // of a tree's node the tree's type, else 0
}
const _: () = assert!(size_of::<ObjectRaw>() == OBJECT_HEADER);

/// Length of an object's header in bytes.
pub(crate) const OBJECT_HEADER: usize = 0x20;

impl ObjectRaw {
    /// Returns a header without checksum, see [`store_checksum`].
    pub(crate) fn new(oid: Oid, xid: Xid, kind: u32, subtype: u32) -> Self {
        Self {
            checksum: 0.into(),
            oid: oid.into(),
            xid: xid.into(),
            kind: kind.into(),
            subtype: subtype.into(),
        }
    }

    /// Returns true if the header has flags that an object in a block of its own cannot have;
    /// `encrypted` permits the encryption flag. Flags of the storage class are ignored.
    pub(crate) fn has_odd_flags(&self, encrypted: bool) -> bool {
        let allowed =
            object_type::MASK | storage::MASK | if encrypted { storage::ENCRYPTED } else { 0 };
        self.kind.get() & !allowed != 0
    }

    /// Returns the type without flags.
    pub(crate) fn object_type(&self) -> u32 {
        self.kind.get() & object_type::MASK
    }
}

/// Object types, in the low half of [`ObjectRaw::kind`] and in [`ObjectRaw::subtype`].
pub(crate) mod object_type {
    pub(crate) const MASK: u32 = 0xFFFF;
    pub(crate) const CONTAINER: u32 = 0x01;
    pub(crate) const BTREE_ROOT: u32 = 0x02;
    pub(crate) const BTREE_NODE: u32 = 0x03;
    pub(crate) const SPACE_MANAGER: u32 = 0x05;
    pub(crate) const CHUNK_INFO_ADDRESSES: u32 = 0x06; // CAB
    pub(crate) const CHUNK_INFO: u32 = 0x07; // CIB
    pub(crate) const BITMAP: u32 = 0x08;
    pub(crate) const FREE_QUEUE: u32 = 0x09;
    pub(crate) const EXTENT_LIST: u32 = 0x0A;
    pub(crate) const OMAP: u32 = 0x0B;
    pub(crate) const CHECKPOINT_MAP: u32 = 0x0C;
    pub(crate) const VOLUME: u32 = 0x0D;
    pub(crate) const FS_TREE: u32 = 0x0E;
    pub(crate) const EXTENT_REF_TREE: u32 = 0x0F;
    pub(crate) const SNAP_META_TREE: u32 = 0x10;
    pub(crate) const REAPER: u32 = 0x11;
    pub(crate) const REAP_LIST: u32 = 0x12;
    pub(crate) const OMAP_SNAPSHOT: u32 = 0x13;
    pub(crate) const EFI_JUMPSTART: u32 = 0x14;
    pub(crate) const FUSION_MIDDLE_TREE: u32 = 0x15;
    pub(crate) const SNAP_META_EXT: u32 = 0x1D;
    pub(crate) const INTEGRITY: u32 = 0x1E;
    pub(crate) const FEXT_TREE: u32 = 0x1F;
    /// A container's keybag; types of keybags are ASCII letters.
    pub(crate) const CONTAINER_KEYBAG: u32 = u32::from_be_bytes(*b"keys");
    /// A volume's keybag.
    pub(crate) const VOLUME_KEYBAG: u32 = u32::from_be_bytes(*b"recs");
    /// The media keybag.
    pub(crate) const MEDIA_KEYBAG: u32 = u32::from_be_bytes(*b"mkey");
}

/// Storage class and flags, in the high half of [`ObjectRaw::kind`].
pub(crate) mod storage {
    pub(crate) const MASK: u32 = 0xC000_0000;
    /// Located by an object map.
    pub(crate) const VIRTUAL: u32 = 0;
    /// Located by the checkpoint maps.
    pub(crate) const EPHEMERAL: u32 = 0x8000_0000;
    /// Located by block number.
    pub(crate) const PHYSICAL: u32 = 0x4000_0000;
    /// The object has no header.
    pub(crate) const NO_HEADER: u32 = 0x2000_0000;
    /// The object is encrypted.
    pub(crate) const ENCRYPTED: u32 = 0x1000_0000;
}

/// Returns the Fletcher-64 checksum of an object (§1.2), over all of its bytes but the first eight.
/// A tail of fewer than four bytes is ignored.
pub(crate) fn checksum(rest: &[u8]) -> u64 {
    /// Number of words that are summed in parallel, for vector instructions.
    const LANES: usize = 8;
    const M: u64 = 0xFFFF_FFFF;
    // The sums are reduced after this many words: 2^14 words of 32 bits, each added up to 2^14
    // times, stay below 2^61.
    const WORDS: usize = 1 << 14;
    let (mut s1, mut s2) = (0_u64, 0_u64);
    for words in rest.as_chunks::<4>().0.chunks(WORDS) {
        let (rows, left) = words.as_chunks::<LANES>();
        let (mut sums, mut sums_of_sums) = ([0_u64; LANES], [0_u64; LANES]);
        for row in rows {
            for lane in 0..LANES {
                sums[lane] += u64::from(u32::from_le_bytes(row[lane]));
                sums_of_sums[lane] += sums[lane];
            }
        }
        // A word of lane n is counted n times less than LANES times for each row from its own on.
        s2 += (rows.len() * LANES) as u64 * s1;
        for lane in 0..LANES {
            s1 += sums[lane];
            s2 += LANES as u64 * sums_of_sums[lane] - lane as u64 * sums[lane];
        }
        for word in left {
            s1 += u64::from(u32::from_le_bytes(*word));
            s2 += s1;
        }
        (s1, s2) = (s1 % M, s2 % M);
    }
    let c1 = M - (s1 + s2) % M;
    let c2 = M - (s1 + c1) % M;
    c2 << 32 | c1
}

/// Returns true if the checksum of an object is correct; `object` are all of its bytes. A block of
/// zeros has no checksum.
pub(crate) fn verify(object: &[u8]) -> bool {
    object
        .split_first_chunk()
        .is_some_and(|(stored, rest)| u64::from_le_bytes(*stored) == checksum(rest))
}

/// Updates the checksum of an object; `object` are all of its bytes.
pub(crate) fn store_checksum(object: &mut [u8]) {
    if let Some((stored, rest)) = object.split_first_chunk_mut() {
        *stored = checksum(rest).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of §1.2.
    #[test]
    fn known_checksums() {
        assert_eq!(checksum(&[0; 4088]), 0xFFFF_FFFF_FFFF_FFFF);
        let block: Vec<u8> = (0..4096_u32).map(|at| at as u8).collect();
        assert_eq!(checksum(&block[8..]), 0x7A77_9479_8D92_7784);
    }

    #[test]
    fn a_long_object_sums_like_short_ones() {
        let words = vec![0xFF_u8; 1 << 20];
        // All words are 0 modulo 2^32 - 1.
        assert_eq!(checksum(&words), checksum(&[0; 8]));
    }

    #[test]
    fn sealed_objects_verify_and_zeros_do_not() {
        let mut block = [7; 4096];
        store_checksum(&mut block);
        assert!(verify(&block));
        block[4095] ^= 1;
        assert!(!verify(&block));
        assert!(!verify(&[0; 4096]));
        assert!(!verify(&[0; 7]));
    }
}
