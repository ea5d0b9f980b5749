//! Both trees of HFS for the walk that checks them (§4, §8).

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use super::{CATALOG_LAYER, EXTENTS_LAYER};
use crate::btree_check::{TreeFormat, TreeKeys};
use crate::btree_node::TreeHeaderRaw;
use crate::hfs::layout::{CATALOG_KEY_LENGTHS, CatalogKey, EXTENT_KEY_LENGTH, ExtentKey, child_of};
use crate::hfs::names;
use bandsaw_core::Result;
use bandsaw_core::problem::Severity;

/// One of both trees of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HfsTree {
    Extents,
    Catalog,
}

impl TreeFormat for HfsTree {
    type Keys = Self;
    const NODE_SIZES: RangeInclusive<u16> = 512..=512;
    // machfs links the nodes of all upper levels to one chain, which nothing reads.
    const INDEX_LINKS: Severity = Severity::Warning;

    fn key_lengths(self) -> (u16, u16) {
        match self {
            Self::Extents => (EXTENT_KEY_LENGTH.into(), EXTENT_KEY_LENGTH.into()),
            Self::Catalog => CATALOG_KEY_LENGTHS,
        }
    }

    fn layer(self) -> &'static str {
        match self {
            Self::Extents => EXTENTS_LAYER,
            Self::Catalog => CATALOG_LAYER,
        }
    }

    fn stage(self) -> &'static str {
        match self {
            Self::Extents => "check the extents tree",
            Self::Catalog => "check the catalog",
        }
    }

    fn header_faults(self, _header: &TreeHeaderRaw) -> Vec<String> {
        Vec::new()
    }

    fn keys(self, _header: &TreeHeaderRaw) -> Result<Self> {
        Ok(self)
    }
}

impl TreeKeys for HfsTree {
    fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        match self {
            Self::Extents => Some(ExtentKey::of(a)?.cmp(&ExtentKey::of(b)?)),
            Self::Catalog => {
                let ((a, _), (b, _)) = (CatalogKey::split(a)?, CatalogKey::split(b)?);
                let by_name = || names::compare(a.name, b.name);
                Some(a.parent.cmp(&b.parent).then_with(by_name))
            }
        }
    }

    fn length(&self, record: &[u8]) -> u16 {
        record.first().copied().unwrap_or_default().into()
    }

    fn child_of(&self, record: &[u8]) -> Option<u32> {
        child_of(record)
    }

    /// Names in another order than that of Mac OS are a warning: every reader lists them, and Mac OS
    /// alone searches by that order.
    fn order_fault(&self, before: &[u8], record: &[u8]) -> Option<Severity> {
        if self.compare(before, record) == Some(Ordering::Less) {
            return None;
        }
        let is_misplaced_name = *self == Self::Catalog
            && CatalogKey::split(before)
                .zip(CatalogKey::split(record))
                .is_some_and(|((a, _), (b, _))| {
                    a.parent == b.parent && !b.name.is_empty() && a.name != b.name
                });
        match is_misplaced_name {
            true => Some(Severity::Warning),
            false => Some(Severity::Damage),
        }
    }

    fn index_length(&self) -> Option<u16> {
        Some(self.key_lengths().1)
    }

    fn is_deleted(&self, record: &[u8]) -> bool {
        self.length(record) == 0
    }
}
