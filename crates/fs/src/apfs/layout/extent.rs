//! File extents and extent references (§8.5, §9).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Paddr;

/// An extent of a stream: the value of [`super::record_type::FILE_EXTENT`].
///
/// Source: Apple File System Reference (2020-06-22), j_file_extent_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct FileExtentRaw {
    /*00*/ pub(crate) len_and_flags: U64, // flags << 56 | bytes, whole blocks
    /*08*/ pub(crate) paddr: U64, // 0 for a hole
    /*10*/
    pub(crate) crypto_id: U64, // encrypted: the first block's number for the cipher
}
const _: () = assert!(size_of::<FileExtentRaw>() == 24);

/// Bits above the length in [`FileExtentRaw`].
pub(crate) mod extent_flags {
    pub(crate) const CRYPTO_ID_IS_TWEAK: u8 = 1;
    /// The extent has allocated blocks, but reads as zeros.
    pub(crate) const UNWRITTEN: u8 = 2;
}

const LEN_MASK: u64 = (1 << 56) - 1;

impl FileExtentRaw {
    /// Returns an extent of `len` bytes.
    pub(crate) fn new(len: u64, paddr: Paddr, crypto_id: u64, flags: u8) -> Self {
        let len_and_flags = (u64::from(flags) << 56 | len & LEN_MASK).into();
        Self {
            len_and_flags,
            paddr: paddr.into(),
            crypto_id: crypto_id.into(),
        }
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len_and_flags.get() & LEN_MASK
    }

    /// Returns the flags, of [`extent_flags`].
    pub(crate) fn flags(&self) -> u8 {
        // No truncation: eight bits are left.
        (self.len_and_flags.get() >> 56) as u8
    }
}

/// The owner and the reference count of a run of blocks: the value of
/// [`super::record_type::EXTENT_REF`], whose key's object is the first block.
///
/// Source: Apple File System Reference (2020-06-22), j_phys_ext_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct ExtentRefRaw {
    /*00*/ pub(crate) len_and_kind: U64, // kind << 60 | blocks
    /*08*/ pub(crate) owner: U64, // UPDATE_OWNER in an update
    /*10*/ pub(crate) references: U32, // signed in an update
}
const _: () = assert!(size_of::<ExtentRefRaw>() == 20);

/// Kinds of extent references, in [`ExtentRefRaw`].
pub(crate) mod extent_ref_kind {
    /// Blocks allocated since the last snapshot.
    pub(crate) const NEW: u8 = 1;
    /// A change of the reference count of a snapshot's blocks.
    pub(crate) const UPDATE: u8 = 2;
}

/// In [`ExtentRefRaw::owner`]: the owner is in a record of a snapshot's tree.
pub(crate) const UPDATE_OWNER: u64 = u64::MAX;

impl ExtentRefRaw {
    /// Returns a reference to `blocks` blocks.
    pub(crate) fn new(kind: u8, blocks: u64, owner: u64, references: u32) -> Self {
        let len_and_kind = (u64::from(kind) << 60 | blocks & super::FILE_ID_MASK).into();
        Self {
            len_and_kind,
            owner: owner.into(),
            references: references.into(),
        }
    }

    /// Returns the number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.len_and_kind.get() & super::FILE_ID_MASK
    }

    /// Returns the kind, of [`extent_ref_kind`].
    pub(crate) fn kind(&self) -> u8 {
        // No truncation: four bits are left.
        (self.len_and_kind.get() >> 60) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_share_their_words() {
        let extent = FileExtentRaw::new(8192, Paddr(7), 9, extent_flags::CRYPTO_ID_IS_TWEAK);
        assert_eq!(
            (extent.len(), extent.flags(), extent.len_and_flags.get()),
            (8192, 1, 0x0100_0000_0000_2000)
        );
        let reference = ExtentRefRaw::new(extent_ref_kind::NEW, 2, 20, 1);
        assert_eq!((reference.blocks(), reference.kind()), (2, 1));
    }
}
