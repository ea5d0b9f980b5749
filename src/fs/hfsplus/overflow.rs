//! The extents-overflow tree: where forks go on that lie in more than eight pieces (§4).

use zerocopy::{FromBytes, IntoBytes};

use super::btree::{Tree, TreeKind};
use super::extents::{Owner, Space};
use super::layout::{Cnid, EXTENTS_KEY_LENGTH, ExtentKeyRaw, ExtentRecordRaw, ExtentsRaw, ForkRaw};
use crate::Result;

/// The extents-overflow tree; small volumes have none.
#[derive(Debug)]
pub(super) struct Overflow {
    tree: Option<Tree>,
}

impl Overflow {
    /// Opens the tree in the volume's extents file.
    pub(super) fn open(space: &Space, fork: &ForkRaw) -> Result<Self> {
        if fork.total_blocks.get() == 0 {
            return Ok(Self { tree: None });
        }
        // Its own extents all stand in the volume header.
        let file = space.fork(fork, &Owner::Special("extents file"), &mut |_| Ok(None))?;
        Ok(Self { tree: Some(Tree::open(file, TreeKind::Extents)?) })
    }

    /// The extents of a fork from `start_block` on, if there is a record of them.
    pub(super) fn get(&self, file: Cnid, fork_type: u8, start_block: u32) -> Result<Option<ExtentsRaw>> {
        let Some(tree) = &self.tree else { return Ok(None) };
        let key_length = EXTENTS_KEY_LENGTH.into();
        let key = ExtentKeyRaw { key_length, fork_type, pad: 0, file_id: file.0.into(), start_block: start_block.into() };
        let extents = |record: &[u8]| Some(ExtentRecordRaw::read_from_prefix(record).ok()?.0.extents);
        Ok(tree.get(key.as_bytes(), extents)?.flatten())
    }
}
