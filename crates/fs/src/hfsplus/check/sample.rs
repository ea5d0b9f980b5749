//! A valid volume that contains all kinds of structures, and access to each structure that can be
//! damaged. For tests.

use zerocopy::FromBytes;

use crate::Timestamp;
#[cfg(test)]
use crate::hfsplus::btree::Node;
use crate::hfsplus::build::{Options, Plan};
use crate::hfsplus::layout::*;
use crate::hfsplus::unicode::decode_name;
use crate::testing::sample;
use bandsaw_core::device::{BlockDeviceExt, Memory};
use bandsaw_core::progress::Silent;

/// A volume with every kind of structure that can be damaged.
pub(in crate::hfsplus) struct Sample {
    pub(in crate::hfsplus) bytes: Vec<u8>,
}

const NODE_DESCRIPTOR: usize = size_of::<NodeDescriptorRaw>();

impl Sample {
    pub(in crate::hfsplus) fn new(case_sensitive: bool) -> Self {
        let options = Options {
            name: "Patient".into(),
            case_sensitive,
            journaled: false,
            block_size: None,
            created: Timestamp::from_seconds(1_700_000_000),
            latest: None,
            opens: false,
            identifier: 1,
        };
        let device = Memory::zeros(8 << 20);
        Plan::new(sample::tree(120, &["third name"]), options)
            .unwrap()
            .build(&device, &Silent)
            .unwrap();
        Self {
            bytes: device.read_vec(0, 8 << 20).unwrap(),
        }
    }

    pub(in crate::hfsplus) fn header(&mut self) -> &mut VolumeHeaderRaw {
        let at = HEADER_OFFSET as usize;
        VolumeHeaderRaw::mut_from_bytes(&mut self.bytes[at..at + 512]).unwrap()
    }

    pub(super) fn alternate(&mut self) -> &mut VolumeHeaderRaw {
        let at = self.bytes.len() - HEADER_OFFSET as usize;
        VolumeHeaderRaw::mut_from_bytes(&mut self.bytes[at..at + 512]).unwrap()
    }

    pub(in crate::hfsplus) fn fork(&mut self, tree: Cnid) -> ForkRaw {
        let header = self.header();
        match tree {
            Cnid::CATALOG => header.catalog_file,
            Cnid::ATTRIBUTES => header.attributes_file,
            Cnid::EXTENTS => header.extents_file,
            _ => header.allocation_file,
        }
    }

    /// Returns the byte offset of a file of the volume. The test volumes store each file in one
    /// extent.
    pub(in crate::hfsplus) fn start(&mut self, tree: Cnid) -> usize {
        let block_size = self.header().block_size.get();
        AllocBlock(self.fork(tree).extents[0].start_block.get()).offset(block_size) as usize
    }

    pub(in crate::hfsplus) fn tree(&mut self, tree: Cnid) -> &mut TreeHeaderRaw {
        let at = self.start(tree) + NODE_DESCRIPTOR;
        TreeHeaderRaw::mut_from_bytes(&mut self.bytes[at..at + size_of::<TreeHeaderRaw>()]).unwrap()
    }

    pub(in crate::hfsplus) fn node(&mut self, tree: Cnid, number: u32) -> &mut [u8] {
        let size = usize::from(self.tree(tree).node_size.get());
        let at = self.start(tree) + number as usize * size;
        &mut self.bytes[at..at + size]
    }

    pub(super) fn descriptor(&mut self, tree: Cnid, number: u32) -> &mut NodeDescriptorRaw {
        NodeDescriptorRaw::mut_from_bytes(&mut self.node(tree, number)[..NODE_DESCRIPTOR]).unwrap()
    }

    /// Flips the bit of a block in the bitmap.
    pub(in crate::hfsplus) fn flip(&mut self, block: u32) {
        let at = self.start(Cnid::ALLOCATION) + block as usize / 8;
        self.bytes[at] ^= 0x80 >> (block % 8);
    }

    /// Changes the first leaf record that `wanted` accepts; both closures receive key and data.
    pub(in crate::hfsplus) fn record(
        &mut self,
        tree: Cnid,
        wanted: impl Fn(&[u8]) -> bool,
        change: impl FnOnce(&mut [u8]),
    ) {
        let total = self.tree(tree).total_nodes.get();
        for number in 1..total {
            let (kind, records) = {
                let head = self.descriptor(tree, number);
                (head.kind, usize::from(head.record_count.get()))
            };
            let node = self.node(tree, number);
            let offset = |node: &[u8], index: usize| {
                let at = node.len() - 2 * (index + 1);
                usize::from(u16::from_be_bytes([node[at], node[at + 1]]))
            };
            for index in (0..records).filter(|_| kind == node_kind::LEAF) {
                let range = offset(node, index)..offset(node, index + 1);
                if wanted(&node[range.clone()]) {
                    return change(&mut node[range]);
                }
            }
        }
        panic!("no such record");
    }

    /// Returns the names of the objects whose records are in a leaf of the catalog.
    #[cfg(test)]
    pub(in crate::hfsplus) fn objects_in_leaf(&mut self, number: u32) -> Vec<String> {
        let node = Node::parse(number, self.node(Cnid::CATALOG, number).into()).unwrap();
        let records =
            (0..node.records).map(|index| CatalogKey::split(node.record(index).unwrap()).unwrap());
        let is_object = |data: &[u8]| {
            matches!(
                CatalogRecord::parse(data),
                Some(CatalogRecord::Folder(_) | CatalogRecord::File(_))
            )
        };
        records
            .filter(|(_, data)| is_object(data))
            .map(|(key, _)| decode_name(key.name))
            .collect()
    }

    /// Changes the catalog record of the object with this name.
    pub(super) fn named(&mut self, name: &str, change: impl FnOnce(&mut [u8])) {
        let wanted = |record: &[u8]| {
            let (key, data) = CatalogKey::split(record).unwrap();
            decode_name(key.name) == name
                && !matches!(CatalogRecord::parse(data), Some(CatalogRecord::Thread(_)))
        };
        self.record(Cnid::CATALOG, wanted, |record| {
            let at = record.len() - CatalogKey::split(record).unwrap().1.len();
            change(&mut record[at..]);
        });
    }

    pub(in crate::hfsplus) fn file(&mut self, name: &str, change: impl FnOnce(&mut FileRaw)) {
        self.named(name, |data| {
            change(FileRaw::mut_from_prefix(data).unwrap().0)
        });
    }

    pub(super) fn folder(&mut self, name: &str, change: impl FnOnce(&mut FolderRaw)) {
        self.named(name, |data| {
            change(FolderRaw::mut_from_prefix(data).unwrap().0)
        });
    }

    /// Changes the thread of the object with this name.
    pub(in crate::hfsplus) fn thread(&mut self, name: &str, change: impl FnOnce(&mut [u8])) {
        let wanted =
            |record: &[u8]| match CatalogRecord::parse(CatalogKey::split(record).unwrap().1) {
                Some(CatalogRecord::Thread(thread)) => decode_name(thread.name) == name,
                _ => false,
            };
        self.record(Cnid::CATALOG, wanted, |record| {
            let at = record.len() - CatalogKey::split(record).unwrap().1.len();
            change(&mut record[at..]);
        });
    }

    /// Changes the data of an attribute's record.
    pub(in crate::hfsplus) fn attribute(&mut self, name: &str, change: impl FnOnce(&mut [u8])) {
        let wanted =
            |record: &[u8]| decode_name(AttributeKey::split(record).unwrap().0.name) == name;
        self.record(Cnid::ATTRIBUTES, wanted, change);
    }

    /// Returns the last leaf of the catalog.
    pub(super) fn last_leaf(&mut self) -> u32 {
        self.tree(Cnid::CATALOG).last_leaf_node.get()
    }
}
