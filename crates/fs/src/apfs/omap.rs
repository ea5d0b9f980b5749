//! Object maps: the locations of virtual objects as of a transaction (§4).

use std::sync::Arc;

use zerocopy::FromBytes;

use super::btree::{Addressing, Key, ObjectLocation, Tree, TreeKind};
use super::layout::{Oid, OmapRaw, OmapValueRaw, Paddr, Xid, object_type, omap_value};
use super::store::Store;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "apfs object map";

/// An open object map.
#[derive(Debug)]
pub(super) struct Omap {
    /// The map as on disk.
    pub(super) raw: OmapRaw,
    pub(super) tree: Tree,
}

impl Omap {
    pub(super) fn open(store: &Store, paddr: Paddr) -> Result<Self> {
        let block = store.object(LAYER, paddr, object_type::OMAP)?;
        let raw = OmapRaw::read_from_prefix(&block)
            .map_err(|_| store.corrupt(LAYER, Oid(paddr.0), paddr, "is truncated"))?
            .0;
        let tree = Tree::open(
            store,
            TreeKind::Omap,
            Addressing::Physical,
            raw.tree_oid.into(),
        )?;
        Ok(Self { raw, tree })
    }

    /// Returns the location of an object as of transaction `limit`; `None` if it does not exist
    /// then.
    pub(super) fn lookup(&self, oid: Oid, limit: Xid) -> Result<Option<ObjectLocation>> {
        let mut limit = limit.0;
        let (revert_min, revert_max) = (
            self.raw.pending_revert_min.get(),
            self.raw.pending_revert_max.get(),
        );
        loop {
            let found = self.tree.floor(&Key::Pair(oid.0, limit), |record| {
                let Key::Pair(found, xid) = record.key else {
                    return None;
                };
                let (value, _) = OmapValueRaw::read_from_prefix(record.value).ok()?;
                (found == oid.0).then_some((xid, value))
            })?;
            match found.flatten() {
                // The changes of these transactions are about to be reverted.
                Some((xid, _)) if revert_min != 0 && (revert_min..=revert_max).contains(&xid) => {
                    limit = revert_min - 1
                }
                Some((xid, value)) if value.flags.get() & omap_value::DELETED == 0 => {
                    return Ok(Some(ObjectLocation {
                        paddr: value.paddr.into(),
                        xid: Xid(xid),
                        flags: value.flags.get(),
                    }));
                }
                _ => return Ok(None),
            }
        }
    }
}

/// An object map as of a transaction.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) omap: Arc<Omap>,
    pub(super) xid: Xid,
}

impl View {
    /// Returns the location of an object, which must exist.
    pub(super) fn locate(&self, oid: Oid) -> Result<ObjectLocation> {
        self.omap.lookup(oid, self.xid)?.ok_or_else(|| {
            let message = format!("has no object {oid:#x} as of transaction {}", self.xid);
            Error::new(Kind::Corrupt, LAYER, message)
                .named(format!("object map in block {}", self.omap.raw.object.oid))
        })
    }
}
