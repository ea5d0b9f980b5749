//! Sources of the nodes of a tree, which also claim their blocks.

use std::collections::HashMap;

use crate::apfs::check::blocks::{BlockUsers, User};
use crate::apfs::check::omap::CheckedObjects;
use crate::apfs::cipher::VolumeCipher;
use crate::apfs::layout::{Oid, Paddr, Xid, omap_value, storage};
use crate::apfs::store::Store;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "apfs tree";

/// A node's decrypted bytes and the expected properties.
pub(in crate::apfs::check) struct SourceNode {
    pub(super) bytes: Box<[u8]>,
    pub(super) paddr: Paddr,
    /// The transaction that it must have, if an object map records it.
    pub(super) xid: Option<Xid>,
    pub(super) has_header: bool,
    /// True if it was checked before, as a part of another state.
    pub(super) known: bool,
}

/// A source of the nodes of a tree.
pub(in crate::apfs::check) trait Nodes {
    /// Returns the node of a number.
    fn find(&mut self, store: &Store, oid: Oid) -> Result<SourceNode>;
    /// Claims the block of a node.
    fn claim(&mut self, paddr: Paddr);
    /// Returns the expected storage flags, of [`storage`].
    fn storage(&self) -> u32;
}

/// Nodes that are located by block number.
pub(in crate::apfs::check) struct Physical<'a> {
    pub(in crate::apfs::check) blocks: &'a mut BlockUsers,
    pub(in crate::apfs::check) user: User,
}

impl Nodes for Physical<'_> {
    fn find(&mut self, store: &Store, oid: Oid) -> Result<SourceNode> {
        let paddr = Paddr(oid.0);
        Ok(SourceNode {
            bytes: store.block(LAYER, oid, paddr)?,
            paddr,
            xid: None,
            has_header: true,
            known: false,
        })
    }

    fn claim(&mut self, paddr: Paddr) {
        self.blocks.claim(paddr.0..paddr.0 + 1, self.user);
    }

    fn storage(&self) -> u32 {
        storage::PHYSICAL
    }
}

/// Nodes that are located by an object map, as of a transaction. Their blocks are claimed with the
/// map.
pub(in crate::apfs::check) struct Virtual<'a> {
    pub(in crate::apfs::check) objects: &'a mut CheckedObjects,
    pub(in crate::apfs::check) limit: Xid,
    pub(in crate::apfs::check) cipher: Option<&'a VolumeCipher>,
}

impl Nodes for Virtual<'_> {
    fn find(&mut self, store: &Store, oid: Oid) -> Result<SourceNode> {
        let entry = self.objects.use_object(oid, self.limit)?;
        let mut bytes = store.block(LAYER, oid, entry.paddr)?;
        if entry.flags & omap_value::ENCRYPTED != 0 {
            let Some(cipher) = self.cipher else {
                return Err(store.corrupt(
                    LAYER,
                    oid,
                    entry.paddr,
                    "encrypted object on a volume that is not encrypted",
                ));
            };
            cipher.decrypt_blocks(entry.paddr.0, &mut bytes);
        }
        let has_header = entry.flags & omap_value::NO_HEADER == 0;
        Ok(SourceNode {
            bytes,
            paddr: entry.paddr,
            xid: Some(entry.xid),
            has_header,
            known: entry.used,
        })
    }

    fn claim(&mut self, _paddr: Paddr) {}

    fn storage(&self) -> u32 {
        storage::VIRTUAL
    }
}

/// Nodes among a checkpoint's ephemeral objects, each removed when it is found.
pub(in crate::apfs::check) struct Ephemeral<'a> {
    /// Block and contents by number.
    pub(in crate::apfs::check) objects: &'a mut HashMap<Oid, (Paddr, Vec<u8>)>,
    pub(in crate::apfs::check) xid: Xid,
}

impl Nodes for Ephemeral<'_> {
    fn find(&mut self, _store: &Store, oid: Oid) -> Result<SourceNode> {
        let Some((paddr, bytes)) = self.objects.remove(&oid) else {
            let message = format!(
                "object {oid:#x} is not in the checkpoint maps, or the tree points to it \
                         twice"
            );
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        };
        Ok(SourceNode {
            bytes: bytes.into(),
            paddr,
            xid: Some(self.xid),
            has_header: true,
            known: false,
        })
    }

    fn claim(&mut self, _paddr: Paddr) {}

    fn storage(&self) -> u32 {
        storage::EPHEMERAL
    }
}
