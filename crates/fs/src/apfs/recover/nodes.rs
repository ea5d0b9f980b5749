//! Nodes of file-system trees in any block, recognized by their header and checksum.

use std::sync::Arc;

use zerocopy::FromBytes;

use crate::apfs::btree::Node;
use crate::apfs::cipher::VolumeCipher;
use crate::apfs::layout::{OBJECT_HEADER, ObjectRaw, Oid, Paddr, object_type, verify};
use crate::apfs::store::Store;
use bandsaw_core::crypt::Xts;

/// A leaf of a file-system tree.
#[derive(Debug)]
pub(super) struct FoundNode {
    pub(super) node: Arc<Node>,
    /// The transaction that wrote it.
    pub(super) xid: u64,
}

/// Returns true if a block begins as a node of a file-system tree does.
fn begins_as_node(head: &[u8]) -> bool {
    ObjectRaw::read_from_prefix(head).is_ok_and(|(object, _)| {
        matches!(
            object.object_type(),
            object_type::BTREE_NODE | object_type::BTREE_ROOT
        ) && object.subtype.get() == object_type::FS_TREE
    })
}

/// Returns the leaf in a block, decrypted if a cipher is given.
pub(super) fn leaf(block: &[u8], paddr: Paddr, cipher: Option<&VolumeCipher>) -> Option<FoundNode> {
    let bytes = match cipher {
        None => begins_as_node(block).then(|| block.to_vec())?,
        Some(cipher) => {
            let mut head = [0; Xts::UNIT];
            head.copy_from_slice(block.get(..Xts::UNIT)?);
            cipher.decrypt_units(paddr.0, 0, &mut head);
            if !begins_as_node(&head[..OBJECT_HEADER]) {
                return None;
            }
            let mut bytes = block.to_vec();
            cipher.decrypt_blocks(paddr.0, &mut bytes);
            bytes
        }
    };
    if !verify(&bytes) {
        return None;
    }
    let (object, _) = ObjectRaw::read_from_prefix(&bytes).ok()?;
    let (oid, xid) = (Oid(object.oid.get()), object.xid.get());
    let node = Node::parse(oid, paddr, bytes.into_boxed_slice(), None).ok()?;
    (node.level == 0).then(|| FoundNode {
        node: Arc::new(node),
        xid,
    })
}

/// Reads leaves again.
#[derive(Debug)]
pub(super) struct NodeReader<'a> {
    pub(super) store: &'a Store,
    pub(super) cipher: Option<&'a VolumeCipher>,
    /// The leaf read last.
    pub(super) last: Option<Arc<Node>>,
}

impl NodeReader<'_> {
    /// Returns the leaf in a block, if it is still one.
    pub(super) fn read(&mut self, paddr: Paddr) -> Option<Arc<Node>> {
        if let Some(node) = self.last.as_ref().filter(|node| node.paddr == paddr) {
            return Some(node.clone());
        }
        let block = self.store.read("apfs file tree", paddr, 1).ok()?;
        let found =
            leaf(&block, paddr, None).or_else(|| leaf(&block, paddr, Some(self.cipher?)))?;
        self.last = Some(found.node.clone());
        Some(found.node)
    }
}
