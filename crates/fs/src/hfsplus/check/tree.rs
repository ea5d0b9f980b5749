//! The three trees of HFS+ for the walk that checks them (§6, §17).

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use zerocopy::FromBytes;
use zerocopy::big_endian::U16;

use crate::btree_check::{TreeFormat, TreeKeys};
use crate::hfsplus::btree::{KeyOrder, TreeKind, child_of};
use crate::hfsplus::layout::{
    ATTRIBUTES_MAX_KEY_LENGTH, ATTRIBUTES_MIN_KEY_LENGTH, BIG_KEYS, CATALOG_MAX_KEY_LENGTH,
    CATALOG_MIN_KEY_LENGTH, EXTENTS_KEY_LENGTH, NODE_SIZES, TreeHeaderRaw, VARIABLE_INDEX_KEYS,
};
use bandsaw_core::Result;

impl TreeFormat for TreeKind {
    type Keys = PlusKeys;
    const NODE_SIZES: RangeInclusive<u16> = NODE_SIZES;

    fn key_lengths(self) -> (u16, u16) {
        match self {
            Self::Extents => (EXTENTS_KEY_LENGTH, EXTENTS_KEY_LENGTH),
            Self::Catalog(_) => (CATALOG_MIN_KEY_LENGTH, CATALOG_MAX_KEY_LENGTH),
            Self::Attributes => (ATTRIBUTES_MIN_KEY_LENGTH, ATTRIBUTES_MAX_KEY_LENGTH),
        }
    }

    fn layer(self) -> &'static str {
        Self::layer(self)
    }

    fn stage(self) -> &'static str {
        Self::stage(self)
    }

    fn header_faults(self, header: &TreeHeaderRaw) -> Vec<String> {
        let mut found = Vec::new();
        let attributes = header.attributes.get();
        if attributes & BIG_KEYS == 0 {
            found.push(format!(
                "the tree's attributes {attributes:#x} lack the flag of 16-bit key lengths"
            ));
        }
        if header.tree_type != 0 && self != Self::Attributes {
            found.push(format!("expected tree type 0, found {}", header.tree_type));
        }
        found
    }

    fn keys(self, header: &TreeHeaderRaw) -> Result<PlusKeys> {
        let has_fixed = header.attributes.get() & VARIABLE_INDEX_KEYS == 0;
        Ok(PlusKeys {
            order: self.order(header)?,
            index_key: has_fixed.then(|| header.max_key_length.get()),
        })
    }
}

/// The keys of a tree of HFS+.
#[derive(Debug)]
pub(in crate::hfsplus) struct PlusKeys {
    order: KeyOrder,
    /// Size of the key field in index nodes, if all have the same.
    index_key: Option<u16>,
}

impl TreeKeys for PlusKeys {
    fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        self.order.compare(a, b)
    }

    fn length(&self, record: &[u8]) -> u16 {
        U16::read_from_prefix(record).map_or(0, |(length, _)| length.get())
    }

    fn child_of(&self, record: &[u8]) -> Option<u32> {
        child_of(record, self.index_key)
    }
}
