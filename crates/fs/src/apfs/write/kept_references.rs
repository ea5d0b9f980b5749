//! The extent references of snapshots.

use bandsaw_core::Result;

use crate::apfs::btree::{Addressing, Tree, TreeKind};
use crate::apfs::layout::Oid;
use crate::apfs::store::Store;

/// The extent-reference tree of a snapshot, opened when it is needed first.
#[derive(Debug)]
pub(super) struct KeptReferences {
    root: Oid,
    tree: Option<Tree>,
}

impl KeptReferences {
    pub(super) fn new(root: Oid) -> Self {
        Self { root, tree: None }
    }

    pub(super) fn tree(&mut self, store: &Store) -> Result<&Tree> {
        let tree = match self.tree.take() {
            Some(tree) => tree,
            None => {
                let kind = TreeKind::ExtentReferences;
                Tree::open(store, kind, Addressing::Physical, self.root)?
            }
        };
        Ok(self.tree.insert(tree))
    }
}
