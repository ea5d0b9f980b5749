//! Damage of every kind, one structure at a time, for tests.

use super::sample::Sample;
use super::tree::HfsTree::{Catalog, Extents};
use crate::btree_node::node_kind;
use crate::hfs::layout::{ExtentRaw, FILE_HAS_THREAD};
use crate::testing::corruption::{damage, note, warning};

/// A corruption of a volume.
pub(super) type HfsCorruption = crate::testing::corruption::Corruption<Sample>;

pub(super) const VOLUME: &[HfsCorruption] = &[
    damage("invalid signature", |v| v.header().signature = 7.into()),
    note("the alternate master directory block is valid", |v| {
        v.header().signature = 7.into()
    }),
    damage("invalid block size", |v| v.header().block_size = 7.into()),
    damage("no allocation blocks", |v| {
        v.header().total_blocks = 0.into()
    }),
    warning("marked as damaged", |v| {
        v.header().attributes = 0x0900.into()
    }),
    warning("not unmounted cleanly", |v| {
        v.header().attributes = 0.into()
    }),
    warning("a volume of 33555968 bytes", |v| {
        v.header().total_blocks = 0xFFFF.into()
    }),
    warning("a length of 28, expected 1 to 27", |v| {
        v.header().name[0] = 28
    }),
    warning("a length of 0", |v| v.header().name[0] = 0),
    warning("its root folder \"Sample\"", |v| v.header().name[1] = b's'),
    warning("the next block to allocate", |v| {
        v.header().next_allocation = 0xFFFF.into()
    }),
    warning("the clump size of forks", |v| {
        v.header().clump_size = 7.into()
    }),
    warning("the clump size of the extents file", |v| {
        v.header().extents_clump_size = 0.into()
    }),
    warning("the clump size of the catalog file", |v| {
        v.header().catalog_clump_size = 513.into()
    }),
    warning("no valid alternate", |v| v.alternate().signature = 0.into()),
    warning("is of another volume", |v| {
        v.alternate().create_date = 7.into()
    }),
    warning("is of another volume", |v| {
        v.alternate().total_blocks = 7.into()
    }),
    warning("is of another volume", |v| {
        v.alternate().first_block = 9.into()
    }),
    warning("another location of the extents file", |v| {
        v.alternate().extents_file_size = 7.into()
    }),
    warning("another location of the catalog file", |v| {
        v.alternate().catalog_file[0].start_block = 7.into()
    }),
    warning("records 1 free blocks", |v| {
        v.header().free_blocks = 1.into()
    }),
    warning("records 3 files, but the catalog has 63", |v| {
        v.header().file_count = 3.into()
    }),
    warning("records 9 folders, but the catalog has 3", |v| {
        v.header().folder_count = 9.into()
    }),
    note("records 9 files in the root folder, which has 1", |v| {
        v.header().root_files = 9.into()
    }),
    note("records 9 folders in the root folder, which has 2", |v| {
        v.header().root_folders = 9.into()
    }),
    damage("the next object number is recorded as 20", |v| {
        v.header().next_catalog_id = 20.into()
    }),
    damage("the bitmap is recorded at bytes 1024", |v| {
        v.header().bitmap_start = 2.into()
    }),
    damage("the bitmap is recorded at bytes 4608", |v| {
        v.header().bitmap_start = 9.into()
    }),
    damage("in use, but marked as free", |v| v.flip(0)),
    warning(
        "1 blocks are marked as used, but nothing uses them; the first is block",
        |v| {
            let last = usize::from(v.header().total_blocks.get()) - 1;
            v.flip(last);
        },
    ),
    damage("reaches past the end of the volume", |v| {
        v.header().catalog_file[0].start_block = 0xFF00.into()
    }),
    damage("catalog file: the fork records 1024 bytes", |v| {
        v.header().catalog_file_size = 1024.into()
    }),
    damage("extents file: missing extents", |v| {
        v.header().extents_file_size = 0x4000_0000.into()
    }),
    damage("header node: invalid node size 0", |v| {
        v.header().catalog_file[0].start_block = 0.into()
    }),
];

pub(super) const TREES: &[HfsCorruption] = &[
    damage("invalid node size 1024: expected 512", |v| {
        v.tree(Catalog).node_size = 1024.into()
    }),
    damage("in a tree of depth 99", |v| {
        v.tree(Catalog).tree_depth = 99.into()
    }),
    damage("invalid root: node 65535", |v| {
        v.tree(Catalog).root_node = 0xFFFF.into()
    }),
    damage("5 nodes of", |v| v.tree(Catalog).total_nodes = 5.into()),
    damage("records 77 free nodes", |v| {
        v.tree(Catalog).free_nodes = 77.into()
    }),
    damage("leaf records: the header records 5", |v| {
        v.tree(Catalog).leaf_records = 5.into()
    }),
    damage("leaf records: the header records 9", |v| {
        v.tree(Extents).leaf_records = 9.into()
    }),
    damage("first leaf: the header records 5", |v| {
        v.tree(Catalog).first_leaf_node = 5.into()
    }),
    damage("last leaf: the header records 1", |v| {
        v.tree(Catalog).last_leaf_node = 1.into()
    }),
    damage("records 10 bytes for the longest key, expected 37", |v| {
        v.tree(Catalog).max_key_length = 10.into()
    }),
    damage("records 8 bytes for the longest key, expected 7", |v| {
        v.tree(Extents).max_key_length = 8.into()
    }),
    damage("header node: expected a node of kind 1", |v| {
        v.descriptor(Catalog, 0).kind = 0
    }),
    damage("invalid map node", |v| {
        v.descriptor(Catalog, 0).forward_link = 1.into()
    }),
    damage("is in use, but marked as free in the map of nodes", |v| {
        v.node(Catalog, 0)[248] ^= 0x40
    }),
    damage("expected a node of kind -1 and height 1", |v| {
        v.descriptor(Catalog, 1).kind = node_kind::MAP
    }),
    damage("found kind -1 and height 33", |v| {
        v.descriptor(Catalog, 1).height = 33
    }),
    damage("has no records", |v| {
        v.descriptor(Catalog, 1).record_count = 0.into()
    }),
    damage("999 records exceed", |v| {
        v.descriptor(Catalog, 1).record_count = 999.into()
    }),
    damage("the next node is recorded as 1", |v| {
        v.descriptor(Catalog, 1).forward_link = 1.into()
    }),
    damage("the previous node is recorded as 7", |v| {
        v.descriptor(Catalog, 1).backward_link = 7.into()
    }),
    warning("the next node is recorded as 1", |v| {
        let root = v.tree(Catalog).root_node.get();
        v.descriptor(Catalog, root).forward_link = 1.into();
    }),
    damage("offset 1 of a record", |v| {
        v.node(Catalog, 1)[508..510].copy_from_slice(&[0xFF, 0xFF])
    }),
    damage("is odd", |v| {
        // The offset of the free space.
        let records = usize::from(v.descriptor(Extents, 1).record_count.get());
        v.node(Extents, 1)[511 - 2 * records] |= 1;
    }),
    damage("differs from its key in the parent node", |v| {
        // The folder of the first record.
        v.node(Catalog, 2)[19] ^= 0x40;
    }),
    damage("has a key of 3 bytes, expected 7", |v| {
        v.node(Extents, 1)[14] = 3
    }),
    damage("has a key of 36 bytes, expected 37", |v| {
        let root = v.tree(Catalog).root_node.get();
        v.node(Catalog, root)[14] = 36;
    }),
    note("is marked as deleted", |v| {
        v.named("entry number 033", |record| record[0] = 0)
    }),
    damage("the tree refers to this node twice", |v| {
        // The second child of the root becomes the first.
        let root = v.tree(Catalog).root_node.get();
        let node = v.node(Catalog, root);
        node.copy_within(14 + 38..14 + 42, 14 + 42 + 38);
    }),
    warning("the records are out of order", |v| {
        v.named("entry number 031", |record| record[7] = b'z')
    }),
    damage("the records are out of order", |v| {
        v.named("entry number 031", |record| record[5] ^= 1)
    }),
    damage("the records are out of order", |v| {
        // The first block of the fork.
        v.node(Extents, 1)[14 + 6] = 0xFF;
    }),
];

pub(super) const CATALOG: &[HfsCorruption] = &[
    damage("malformed key", |v| {
        v.named("entry number 031", |record| record[6] = 32)
    }),
    damage("is of unknown type", |v| {
        v.file("entry number 031", |raw| raw.record_type = 9)
    }),
    damage("has the reserved number 5", |v| {
        v.file("entry number 031", |raw| raw.file_id = 5.into())
    }),
    damage("is in folder 2 and also in folder", |v| {
        let mut id = 0.into();
        v.file("scattered", |raw| id = raw.file_id);
        v.file("entry number 031", |raw| raw.file_id = id);
    }),
    damage("has no thread record", |v| {
        v.file("entry number 031", |raw| raw.flags = FILE_HAS_THREAD)
    }),
    warning("has a thread record, but not the flag", |v| {
        v.file("Read Me", |raw| raw.flags = 0)
    }),
    damage("but the object is in folder", |v| {
        v.thread_of("deep", |data| data[13] ^= 1)
    }),
    damage("has another name than the object", |v| {
        v.thread_of("deep", |data| data[15] ^= 1)
    }),
    damage("has another name than the object", |v| {
        v.thread_of("deep", |data| data[14] = 200)
    }),
    damage("has the wrong type", |v| {
        v.thread_of("deep", |data| data[0] = 4)
    }),
    damage("a thread record has the name", |v| {
        v.file("entry number 031", |raw| raw.record_type = 4)
    }),
    warning("records 77 entries, but has 60", |v| {
        v.folder("many", |raw| raw.valence = 77.into())
    }),
    damage("which does not exist", |v| {
        v.folder("deep", |raw| raw.folder_id = 9000.into())
    }),
    damage("refers to an object that does not exist", |v| {
        v.file("Read Me", |raw| raw.file_id = 70.into())
    }),
    damage("the root folder is missing", |v| {
        v.folder("Sample", |raw| raw.folder_id = 900.into())
    }),
    damage("expected exactly one root folder", |v| {
        v.folder("Sample", |raw| raw.folder_id = 900.into())
    }),
    damage("exceeds its blocks, which have 5120 bytes", |v| {
        v.file("scattered", |raw| raw.data.logical_size = 6000.into())
    }),
    damage("but its extents have 5120", |v| {
        v.file("scattered", |raw| raw.data.physical_size = 0x1_0000.into())
    }),
    damage("that no fork of file", |v| {
        v.file("scattered", |raw| raw.resource.physical_size = 512.into())
    }),
    damage("reaches past the end of the volume", |v| {
        v.file("scattered", |raw| {
            raw.data_extents[1].start_block = 0xFFFF.into()
        })
    }),
    warning("an extent follows an empty one", |v| {
        v.file("Read Me", |raw| {
            raw.data_extents[2] = ExtentRaw {
                start_block: 1.into(),
                block_count: 1.into(),
            }
        })
    }),
    damage("are used by", |v| {
        let mut extents = None;
        v.file("scattered", |raw| extents = Some(raw.data_extents[0]));
        v.file("Read Me", |raw| raw.data_extents[0] = extents.unwrap());
    }),
    damage("that no fork of file", |v| {
        // The file of an overflow record.
        v.node(Extents, 1)[14 + 2] = 1
    }),
];
