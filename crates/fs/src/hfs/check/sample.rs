//! A valid volume, and access to each structure that can be damaged. For tests.

use zerocopy::FromBytes;

use super::tree::HfsTree;
use crate::btree_node::{NodeDescriptorRaw, TreeHeaderRaw, node_kind, record_offset};
use crate::hfs::fixture::sample_volume;
use crate::hfs::layout::{
    CatalogKey, FileRaw, FolderRaw, MDB_OFFSET, MasterDirectoryBlockRaw, NODE_SIZE, SECTOR,
};

const NODE_DESCRIPTOR: usize = size_of::<NodeDescriptorRaw>();

/// A volume whose trees are in one extent each.
pub(super) struct Sample {
    pub(super) bytes: Vec<u8>,
}

impl Sample {
    pub(super) fn new() -> Self {
        Self {
            bytes: sample_volume().build(),
        }
    }

    pub(super) fn header(&mut self) -> &mut MasterDirectoryBlockRaw {
        let at = MDB_OFFSET as usize;
        MasterDirectoryBlockRaw::mut_from_prefix(&mut self.bytes[at..])
            .unwrap()
            .0
    }

    pub(super) fn alternate(&mut self) -> &mut MasterDirectoryBlockRaw {
        let at = self.bytes.len() - 2 * SECTOR as usize;
        MasterDirectoryBlockRaw::mut_from_prefix(&mut self.bytes[at..])
            .unwrap()
            .0
    }

    /// Returns the byte offset of a block.
    pub(super) fn block(&mut self, block: u16) -> usize {
        let header = self.header();
        usize::from(header.first_block.get()) * SECTOR as usize
            + usize::from(block) * header.block_size.get() as usize
    }

    pub(super) fn node(&mut self, tree: HfsTree, number: u32) -> &mut [u8] {
        let header = self.header();
        let extents = match tree {
            HfsTree::Extents => header.extents_file,
            HfsTree::Catalog => header.catalog_file,
        };
        let at = self.block(extents[0].start_block.get()) + number as usize * NODE_SIZE;
        &mut self.bytes[at..at + NODE_SIZE]
    }

    pub(super) fn descriptor(&mut self, tree: HfsTree, number: u32) -> &mut NodeDescriptorRaw {
        NodeDescriptorRaw::mut_from_bytes(&mut self.node(tree, number)[..NODE_DESCRIPTOR]).unwrap()
    }

    pub(super) fn tree(&mut self, tree: HfsTree) -> &mut TreeHeaderRaw {
        let bytes = &mut self.node(tree, 0)[NODE_DESCRIPTOR..];
        TreeHeaderRaw::mut_from_prefix(bytes).unwrap().0
    }

    /// Flips the bit of a block in the bitmap.
    pub(super) fn flip(&mut self, block: usize) {
        let at = usize::from(self.header().bitmap_start.get()) * SECTOR as usize;
        self.bytes[at + block / 8] ^= 0x80 >> (block % 8);
    }

    /// Changes the first leaf record that `wanted` accepts; both closures receive key and data.
    pub(super) fn record(
        &mut self,
        tree: HfsTree,
        wanted: impl Fn(&[u8]) -> bool,
        change: impl FnOnce(&mut [u8]),
    ) {
        for number in 1..self.tree(tree).total_nodes.get() {
            let head = *self.descriptor(tree, number);
            let node = self.node(tree, number);
            for index in (0..head.record_count.get()).filter(|_| head.kind == node_kind::LEAF) {
                let offset = |index| record_offset(node, index).unwrap();
                let range = offset(index)..offset(index + 1);
                if wanted(&node[range.clone()]) {
                    return change(&mut node[range]);
                }
            }
        }
        panic!("no such record");
    }

    /// Changes the first record with a name.
    pub(super) fn named(&mut self, name: &str, change: impl FnOnce(&mut [u8])) {
        let wanted = |record: &[u8]| CatalogKey::split(record).unwrap().0.name == name.as_bytes();
        self.record(HfsTree::Catalog, wanted, change);
    }

    pub(super) fn folder(&mut self, name: &str, change: impl FnOnce(&mut FolderRaw)) {
        self.named(name, |record| {
            change(FolderRaw::mut_from_suffix(record).unwrap().1)
        });
    }

    pub(super) fn file(&mut self, name: &str, change: impl FnOnce(&mut FileRaw)) {
        self.named(name, |record| {
            change(FileRaw::mut_from_suffix(record).unwrap().1)
        });
    }

    /// Changes the data of the thread of the folder with a name.
    pub(super) fn thread_of(&mut self, name: &str, change: impl FnOnce(&mut [u8])) {
        let mut id = 0;
        self.folder(name, |folder| id = folder.folder_id.get());
        let wanted = |record: &[u8]| {
            let (key, _) = CatalogKey::split(record).unwrap();
            key.parent == id && key.name.is_empty()
        };
        self.record(HfsTree::Catalog, wanted, |record| {
            let len = CatalogKey::split(record).unwrap().1.len();
            let at = record.len() - len;
            change(&mut record[at..]);
        });
    }
}
