//! On-disk structures of a resource fork of classic Mac OS: a header, the data of resources, each after its length, and a
//! map with a list of types, lists of references, and names. All integers are big-endian.

use zerocopy::byteorder::big_endian::{I16, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header, at the beginning of the fork and, as a copy, of the map.
///
/// Source: Inside Macintosh: More Macintosh Toolbox, "Resource File Format" (docs/formats/udif.md §10).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::container::udif) struct ForkHeaderRaw {
    /*00*/ pub(in crate::container::udif) data_at: U32,
    /*04*/ pub(in crate::container::udif) map_at: U32,
    /*08*/ pub(in crate::container::udif) data_len: U32,
    /*0c*/ pub(in crate::container::udif) map_len: U32,
}
const _: () = assert!(size_of::<ForkHeaderRaw>() == 16);

/// The map, before the list of types.
///
/// Source: Inside Macintosh: More Macintosh Toolbox, "Resource File Format" (docs/formats/udif.md §10).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::container::udif) struct ForkMapRaw {
    /*00*/ pub(in crate::container::udif) header: ForkHeaderRaw, // a copy, or zero
    /*10*/ pub(in crate::container::udif) next_map: U32, // in memory only
    /*14*/ pub(in crate::container::udif) file: U16, // in memory only
    /*16*/ pub(in crate::container::udif) attributes: U16,
    /*18*/
    pub(in crate::container::udif) types_at: U16, // from the beginning of the map
    /*1a*/
    pub(in crate::container::udif) names_at: U16, // from the beginning of the map
}
const _: () = assert!(size_of::<ForkMapRaw>() == 28);

/// A type. The number of types, minus one, stands before the first.
///
/// Source: Inside Macintosh: More Macintosh Toolbox, "Resource File Format" (docs/formats/udif.md §10).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::container::udif) struct ForkTypeRaw {
    /*00*/ pub(in crate::container::udif) kind: [u8; 4],
    /*04*/
    pub(in crate::container::udif) last: U16, // number of its resources, minus one
    /*06*/
    pub(in crate::container::udif) references_at: U16, // from the number of types
}
const _: () = assert!(size_of::<ForkTypeRaw>() == 8);

/// A reference to a resource.
///
/// Source: Inside Macintosh: More Macintosh Toolbox, "Resource File Format" (docs/formats/udif.md §10).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::container::udif) struct ForkReferenceRaw {
    /*00*/ pub(in crate::container::udif) id: I16,
    /*02*/ pub(in crate::container::udif) name_at: U16, // from the names; NO_NAME: none
    /*04*/
    pub(in crate::container::udif) place: U32, // attributes in the high byte; from the start of the data
    /*08*/ pub(in crate::container::udif) handle: U32, // in memory only
}
const _: () = assert!(size_of::<ForkReferenceRaw>() == 12);

/// Value of [`ForkReferenceRaw::name_at`] of a resource without a name.
pub(in crate::container::udif) const NO_NAME: u16 = 0xFFFF;
