//! The header block. Source: POSIX `pax`, section "ustar Interchange Format", and GNU tar's manual,
//! "Basic Tar Format".

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Size of a block in bytes. All parts of an archive are whole blocks.
pub(super) const BLOCK: u64 = 512;

/// A member's header.
///
/// Source: POSIX pax, "ustar Interchange Format".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct MemberRaw {
    /*000*/ pub(super) name: [u8; 100],
    /*100*/ pub(super) mode: [u8; 8],
    /*108*/ pub(super) uid: [u8; 8],
    /*116*/ pub(super) gid: [u8; 8],
    /*124*/ pub(super) size: [u8; 12],
    /*136*/ pub(super) mtime: [u8; 12],
    /*148*/ pub(super) checksum: [u8; 8], // sum of all bytes, these being blanks
    /*156*/ pub(super) typeflag: u8, // type_flag
    /*157*/ pub(super) linkname: [u8; 100],
    /*257*/ pub(super) magic: [u8; 6], // USTAR or GNU's, nothing in the oldest
    /*263*/ pub(super) version: [u8; 2],
    /*265*/ pub(super) uname: [u8; 32],
    /*297*/ pub(super) gname: [u8; 32],
    /*329*/ pub(super) dev_major: [u8; 8],
    /*337*/ pub(super) dev_minor: [u8; 8],
    /*345*/ pub(super) prefix: [u8; 155], // of the name, in ustar alone
    /*500*/ pub(super) pad: [u8; 12],
}
const _: () = assert!(size_of::<MemberRaw>() as u64 == BLOCK);

/// Offset of [`GnuTailRaw`] in a header of GNU tar, in bytes.
pub(super) const GNU_TAIL: usize = 345;

/// The fields of GNU tar from [`GNU_TAIL`] on.
///
/// Source: GNU tar manual, "Basic Tar Format", oldgnu_header.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct GnuTailRaw {
    /*345*/ pub(super) atime: [u8; 12],
    /*357*/ pub(super) ctime: [u8; 12],
    /*369*/ pub(super) offset: [u8; 12],
    /*381*/ pub(super) long_names: [u8; 4],
    /*385*/ pub(super) unused: u8,
    /*386*/ pub(super) sparse: [SparseRaw; 4],
    /*482*/ pub(super) is_extended: u8,
    /*483*/ pub(super) real_size: [u8; 12],
    /*495*/ pub(super) pad: [u8; 17],
}
const _: () = assert!(size_of::<GnuTailRaw>() == size_of::<MemberRaw>() - GNU_TAIL);

/// A piece of a sparse file of GNU tar.
///
/// Source: GNU tar manual, "Basic Tar Format", sparse.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SparseRaw {
    /*00*/ pub(super) offset: [u8; 12],
    /*12*/ pub(super) len: [u8; 12],
}

/// Further pieces, in a block of their own.
///
/// Source: GNU tar manual, "Basic Tar Format", sparse_header.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SparseBlockRaw {
    /*000*/ pub(super) sparse: [SparseRaw; 21],
    /*504*/ pub(super) is_extended: u8,
    /*505*/ pub(super) pad: [u8; 7],
}
const _: () = assert!(size_of::<SparseBlockRaw>() as u64 == BLOCK);

/// Magic of POSIX.
pub(super) const USTAR: [u8; 6] = *b"ustar\0";
/// Magic of GNU tar, followed by its version.
pub(super) const GNU: [u8; 6] = *b"ustar ";

/// Types of members.
pub(super) mod type_flag {
    pub(crate) const FILE: u8 = b'0';
    pub(crate) const OLD_FILE: u8 = 0;
    pub(crate) const HARD_LINK: u8 = b'1';
    pub(crate) const SYMLINK: u8 = b'2';
    pub(crate) const CHAR_DEVICE: u8 = b'3';
    pub(crate) const BLOCK_DEVICE: u8 = b'4';
    pub(crate) const FOLDER: u8 = b'5';
    pub(crate) const FIFO: u8 = b'6';
    pub(crate) const CONTIGUOUS: u8 = b'7';
    /// pax records for the next member.
    pub(crate) const PAX: u8 = b'x';
    /// pax records for all following members.
    pub(crate) const PAX_GLOBAL: u8 = b'g';
    pub(crate) const GNU_LONG_NAME: u8 = b'L';
    pub(crate) const GNU_LONG_LINK: u8 = b'K';
    pub(crate) const GNU_SPARSE: u8 = b'S';
    /// A folder with a list of its entries as contents.
    pub(crate) const GNU_DUMP: u8 = b'D';
    pub(crate) const GNU_LABEL: u8 = b'V';
}

impl MemberRaw {
    /// Returns true if the checksum matches. Old programs summed signed bytes.
    pub(super) fn checksum_fits(&self) -> bool {
        let bytes = self.as_bytes();
        let field = 148..156;
        let of = |place: usize, byte: u8| if field.contains(&place) { b' ' } else { byte };
        let unsigned: i64 = bytes
            .iter()
            .enumerate()
            .map(|(place, &byte)| i64::from(of(place, byte)))
            .sum();
        let signed: i64 = bytes
            .iter()
            .enumerate()
            .map(|(place, &byte)| i64::from(of(place, byte).cast_signed()))
            .sum();
        let stored = super::number::parse(&self.checksum);
        stored == Some(unsigned) || stored == Some(signed)
    }

    /// Sets the checksum.
    pub(super) fn seal(&mut self) {
        self.checksum = [b' '; 8];
        let sum: u32 = self.as_bytes().iter().map(|&byte| u32::from(byte)).sum();
        self.checksum
            .copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

/// Returns the text of a field, up to the first zero byte.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}
