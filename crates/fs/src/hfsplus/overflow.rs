//! The extents-overflow tree: further extents of forks that have more than eight (§4).

use zerocopy::{FromBytes, IntoBytes};

use super::btree::{Tree, TreeKind};
use super::extents::{ForkSpace, Owner};
use super::layout::{Cnid, EXTENTS_KEY_LENGTH, ExtentKeyRaw, ExtentRecordRaw, ExtentsRaw, ForkRaw};
use bandsaw_core::Result;

/// The extents-overflow tree; a volume may have none.
#[derive(Debug)]
pub(super) struct Overflow {
    tree: Option<Tree>,
}

impl Overflow {
    /// Opens the tree in the volume's extents file.
    pub(super) fn open(space: &ForkSpace, fork: &ForkRaw) -> Result<Self> {
        if fork.total_blocks.get() == 0 {
            return Ok(Self { tree: None });
        }
        // All extents of this file are in the volume header.
        let file = space.fork(fork, &Owner::Special("extents file"), &mut |_| Ok(None))?;
        Ok(Self {
            tree: Some(Tree::open(file, TreeKind::Extents)?),
        })
    }

    /// Returns the tree, if the volume has one.
    pub(super) fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }

    /// Returns the tree for modification.
    pub(super) fn tree_mut(&mut self) -> Option<&mut Tree> {
        self.tree.as_mut()
    }

    /// Returns all records of a fork: start block and extents.
    pub(super) fn all(&self, file: Cnid, fork_type: u8) -> Result<Vec<(u32, ExtentsRaw)>> {
        let mut found = Vec::new();
        let Some(tree) = &self.tree else {
            return Ok(found);
        };
        let mut cursor = tree.seek(key(file, fork_type, 0).as_bytes())?;
        while let Some(record) = cursor.next()? {
            let Ok((record, _)) = ExtentRecordRaw::read_from_prefix(record) else {
                return Err(tree.corrupt(cursor.node_number(), "truncated record"));
            };
            if (record.key.file_id.get(), record.key.fork_type) != (file.0, fork_type) {
                break;
            }
            found.push((record.key.start_block.get(), record.extents));
        }
        Ok(found)
    }

    /// Returns the extents of a fork from `start_block` on, if a record for that block exists.
    pub(super) fn get(
        &self,
        file: Cnid,
        fork_type: u8,
        start_block: u32,
    ) -> Result<Option<ExtentsRaw>> {
        let Some(tree) = &self.tree else {
            return Ok(None);
        };
        let key = key(file, fork_type, start_block);
        let extents =
            |record: &[u8]| Some(ExtentRecordRaw::read_from_prefix(record).ok()?.0.extents);
        Ok(tree.get(key.as_bytes(), extents)?.flatten())
    }
}

/// Returns the key of a record.
pub(super) fn key(file: Cnid, fork_type: u8, start_block: u32) -> ExtentKeyRaw {
    let key_length = EXTENTS_KEY_LENGTH.into();
    ExtentKeyRaw {
        key_length,
        fork_type,
        pad: 0,
        file_id: file.0.into(),
        start_block: start_block.into(),
    }
}
