//! Damage of every kind, one structure at a time, for tests.

use super::sample::Sample;
use crate::hfsplus::layout::*;
use crate::testing::corruption::{damage, note, warning};

/// A corruption of a volume.
pub(in crate::hfsplus) type Corruption = crate::testing::corruption::Corruption<Sample>;

pub(in crate::hfsplus) const VOLUME: &[Corruption] = &[
    damage("expected H+ or HX", |v| {
        v.header().signature = 0x1234.into()
    }),
    damage("a power of two", |v| v.header().block_size = 3000.into()),
    damage("do not fit a volume", |v| {
        v.header().total_blocks = u32::MAX.into()
    }),
    warning("expected H+ or HX", |v| v.alternate().signature = 0.into()),
    warning("is of another volume", |v| {
        v.alternate().create_date = 7.into()
    }),
    warning("another location of the catalog file", |v| {
        v.alternate().catalog_file.total_blocks = 7.into()
    }),
    warning("not unmounted cleanly", |v| {
        v.header().attributes = 0x8000_0000.into()
    }),
    warning("marked as damaged", |v| {
        v.header().attributes = 0x8000_4100.into()
    }),
    damage("journal", |v| v.header().attributes = 0x8000_2100.into()),
    warning("could not be replayed", |v| {
        v.header().last_mounted_version = *b"FSK!"
    }),
    warning("records 1 free blocks", |v| {
        v.header().free_blocks = 1.into()
    }),
    warning("free blocks, more than the", |v| {
        v.header().free_blocks = u32::MAX.into()
    }),
    warning("records 3 files", |v| v.header().file_count = 3.into()),
    warning("records 9 folders", |v| v.header().folder_count = 9.into()),
    damage("the next object number is recorded as 20", |v| {
        v.header().next_catalog_id = 20.into()
    }),
    warning("the next block to allocate", |v| {
        v.header().next_allocation = u32::MAX.into()
    }),
    damage("has no catalog file", |v| {
        v.header().catalog_file.total_blocks = 0.into()
    }),
    damage("reaches past the end of the volume", |v| {
        v.header().catalog_file.extents[0].start_block = 0xFFFF_0000.into()
    }),
    damage("the bitmap needs", |v| {
        v.header().allocation_file.logical_size = 1.into()
    }),
    damage(
        "catalog file: the recorded length of 1099511627776 bytes exceeds",
        |v| {
            // Identical in both headers.
            v.header().catalog_file.logical_size = (1 << 40).into();
            v.alternate().catalog_file.logical_size = (1 << 40).into();
        },
    ),
    warning("the clump size of data forks", |v| {
        v.header().data_clump_size = 5.into()
    }),
    warning("the clump size of resource forks", |v| {
        v.header().rsrc_clump_size = (2 << 20).into()
    }),
    warning("the clump size of the catalog file", |v| {
        v.header().catalog_file.clump_size = 5.into()
    }),
    warning("the clump size of the attributes file", |v| {
        v.header().attributes_file.clump_size = 5.into()
    }),
    damage("file 6: empty extent", |v| {
        v.header().allocation_file.extents[1].start_block = 8.into()
    }),
    damage("file 7: empty extent", |v| {
        v.header().startup_file.extents[1].start_block = 8.into()
    }),
    damage("empty extent at block 8", |v| {
        // Identical in both headers.
        v.header().startup_file.extents[1].start_block = 8.into();
        v.alternate().startup_file.extents[1].start_block = 8.into();
        v.header().allocation_file.extents[1].start_block = 8.into();
        v.alternate().allocation_file.extents[1].start_block = 8.into();
    }),
    damage("blocks 0 to 0 are in use, but marked as free", |v| {
        v.flip(0)
    }),
    warning(
        "1 blocks are marked as used, but nothing uses them; the first is block 2000",
        |v| v.flip(2000),
    ),
];

pub(in crate::hfsplus) const TREES: &[Corruption] = &[
    damage("invalid node size 1000", |v| {
        v.tree(Cnid::CATALOG).node_size = 1000.into()
    }),
    damage("in a tree of depth 99", |v| {
        v.tree(Cnid::CATALOG).tree_depth = 99.into()
    }),
    damage("invalid root: node 65535", |v| {
        v.tree(Cnid::CATALOG).root_node = 0xFFFF.into()
    }),
    damage("5 nodes of", |v| {
        v.tree(Cnid::CATALOG).total_nodes = 5.into()
    }),
    damage("records 5 free nodes", |v| {
        v.tree(Cnid::CATALOG).free_nodes = 5.into()
    }),
    damage("leaf records: the header records 5", |v| {
        v.tree(Cnid::CATALOG).leaf_records = 5.into()
    }),
    damage("first leaf: the header records 5", |v| {
        v.tree(Cnid::CATALOG).first_leaf_node = 5.into()
    }),
    damage("last leaf: the header records 1", |v| {
        v.tree(Cnid::CATALOG).last_leaf_node = 1.into()
    }),
    damage("records 10 bytes for the longest key", |v| {
        v.tree(Cnid::CATALOG).max_key_length = 10.into()
    }),
    damage("16-bit key lengths", |v| {
        v.tree(Cnid::EXTENTS).attributes = 0.into()
    }),
    damage("expected tree type 0", |v| {
        v.tree(Cnid::CATALOG).tree_type = 1
    }),
    damage("header node: expected a node of kind 1", |v| {
        v.descriptor(Cnid::CATALOG, 0).kind = 0
    }),
    damage("invalid map node", |v| {
        v.descriptor(Cnid::CATALOG, 0).forward_link = 1.into()
    }),
    damage("expected a node of kind -1 and height 1", |v| {
        v.descriptor(Cnid::CATALOG, 1).kind = node_kind::MAP
    }),
    damage(
        "expected a node of kind -1 and height 1, found kind -1 and height 33",
        |v| v.descriptor(Cnid::CATALOG, 1).height = 33,
    ),
    damage("has no records", |v| {
        v.descriptor(Cnid::CATALOG, 1).record_count = 0.into()
    }),
    damage("9999 records exceed", |v| {
        v.descriptor(Cnid::CATALOG, 1).record_count = 9999.into()
    }),
    damage("the next node is recorded as", |v| {
        v.descriptor(Cnid::CATALOG, 1).forward_link = 1.into()
    }),
    damage("the previous node is recorded as 3", |v| {
        v.descriptor(Cnid::CATALOG, 1).backward_link = 3.into()
    }),
    damage("the next node is recorded as 1", |v| {
        let last = v.last_leaf();
        v.descriptor(Cnid::CATALOG, last).forward_link = 1.into();
    }),
    damage("offset 1 of a record", |v| {
        // The offset of the second record.
        let node = v.node(Cnid::CATALOG, 1);
        let at = node.len() - 4;
        node[at..at + 2].copy_from_slice(&[0xFF, 0xFF]);
    }),
    damage("of a record is odd", |v| {
        // The offset of the free space.
        let last = v.last_leaf();
        let records = usize::from(v.descriptor(Cnid::CATALOG, last).record_count.get());
        let node = v.node(Cnid::CATALOG, last);
        let at = node.len() - 2 * (records + 1);
        node[at + 1] |= 1;
    }),
    warning("has bits set past the last", |v| {
        // The last byte of the map.
        let node = v.node(Cnid::EXTENTS, 0);
        let at = node.len() - 9;
        node[at] = 1;
    }),
    damage("differs from its key in the parent node", |v| {
        // The key of a leaf's first record: its parent's number.
        let last = v.last_leaf();
        v.node(Cnid::CATALOG, last)[16] ^= 0x40;
    }),
    damage("the tree refers to this node twice", |v| {
        // Both children of the root point to the first.
        let root = v.tree(Cnid::CATALOG).root_node.get();
        let node = v.node(Cnid::CATALOG, root);
        let end = |node: &[u8], index: usize| {
            let at = node.len() - 2 * (index + 1);
            usize::from(u16::from_be_bytes([node[at], node[at + 1]]))
        };
        let (first, second) = (end(node, 1), end(node, 2));
        node.copy_within(first - 4..first, second - 4);
    }),
    damage("has a key of 2 bytes", |v| {
        // An invalid key length.
        let node = v.node(Cnid::CATALOG, 1);
        node[14..16].copy_from_slice(&[0, 2]);
    }),
    damage("in use, but marked as free in the map of nodes", |v| {
        v.node(Cnid::CATALOG, 0)[usize::from(HEADER_MAP_OFFSET)] ^= 0x40
    }),
    warning("marked as used in the map of nodes, but", |v| {
        let last = v.tree(Cnid::CATALOG).total_nodes.get() as usize - 1;
        v.node(Cnid::CATALOG, 0)[usize::from(HEADER_MAP_OFFSET) + last / 8] ^= 0x80 >> (last % 8);
    }),
    warning("is free, but not filled with zeros", |v| {
        let last = v.tree(Cnid::CATALOG).total_nodes.get() - 1;
        v.node(Cnid::CATALOG, last)[100] = 1;
    }),
    warning("is free, but not filled with zeros", |v| {
        let last = v.tree(Cnid::ATTRIBUTES).total_nodes.get() - 1;
        v.node(Cnid::ATTRIBUTES, last)[100] = 1;
    }),
];

pub(in crate::hfsplus) const CATALOG: &[Corruption] = &[
    damage("of unknown type", |v| v.named("file 3", |data| data[1] = 9)),
    warning("the flag that locks its name", |v| {
        v.folder("Patient", |raw| {
            raw.user_info.finder_flags = finder_flags::NAME_LOCKED.into()
        })
    }),
    warning("records 9", |v| {
        v.folder("folder", |raw| raw.valence = 9.into())
    }),
    warning("include bits 0 or 1", |v| {
        v.folder("folder", |raw| raw.flags = 2.into())
    }),
    damage("has mode 0o100755", |v| {
        v.folder("folder", |raw| raw.bsd.file_mode = 0o100_755.into())
    }),
    damage("has mode 0o40755", |v| {
        v.file("file 3", |raw| raw.bsd.file_mode = 0o040_755.into())
    }),
    damage("has the reserved number 5", |v| {
        v.file("file 3", |raw| raw.file_id = 5.into())
    }),
    damage("object 17 is in folder", |v| {
        v.file("file 3", |raw| raw.file_id = 17.into())
    }),
    damage("object 9999 in folder", |v| {
        v.folder("inner", |raw| raw.folder_id = 9999.into())
    }),
    warning("not the flag for it (flags 0x0000)", |v| {
        v.file("file 3", |raw| raw.flags = 0.into())
    }),
    note("does not have the type and creator", |v| {
        v.file("symlink", |raw| raw.user_info.file_type = *b"abcd")
    }),
    warning("records 5 names", |v| {
        v.file("file 3", |raw| raw.bsd.special = 5.into())
    }),
    damage("but the object is in folder", |v| {
        v.thread("file 3", |data| data[7] ^= 1)
    }),
    damage("has 248 bytes, expected 88", |v| {
        v.file("file 3", |file| {
            file.record_type = record_type::FOLDER.into()
        })
    }),
    warning("is not the target of a link", |v| {
        v.folder("folder", |folder| {
            folder.flags = (folder.flags.get() | record_flags::HAS_LINK_CHAIN).into()
        })
    }),
    damage("has another name than the object", |v| {
        v.thread("file 3", |data| data[11] ^= 1)
    }),
    damage("has the wrong type", |v| {
        v.thread("file 3", |data| data[1] = 3)
    }),
    damage("refers to folder 200", |v| {
        v.thread("inner", |data| data[7] = 200)
    }),
    damage("records 9 blocks", |v| {
        v.file("file 3", |raw| raw.data_fork.total_blocks = 9.into())
    }),
    damage("length of 18446744073709551615 bytes exceeds", |v| {
        v.file("file 3", |raw| raw.data_fork.logical_size = u64::MAX.into())
    }),
    damage("reaches past the end of the volume", |v| {
        v.file("file 3", |raw| {
            raw.data_fork.extents[0].start_block = 0xFFFF_FF00.into()
        })
    }),
    damage("are used by", |v| {
        v.file("file 3", |raw| {
            raw.data_fork.extents[0].start_block = 1.into()
        })
    }),
    warning("follows an empty one", |v| {
        v.file("file 3", |raw| {
            raw.data_fork.extents[3].block_count = 1.into()
        })
    }),
    damage("empty extent at block 9", |v| {
        v.file("file 3", |raw| {
            raw.data_fork.extents[3].start_block = 9.into()
        })
    }),
    damage("empty extent at block 9", |v| {
        v.file("file 3", |raw| {
            raw.resource_fork.extents[0].start_block = 9.into()
        })
    }),
    warning("of text encodings that are used", |v| {
        v.file("file 3", |raw| raw.text_encoding = 5.into())
    }),
    warning("marked as part of a link chain", |v| {
        v.file("file 3", |raw| raw.flags = 0x22.into())
    }),
    warning("only some of", |v| {
        v.file("second name", |raw| raw.flags = 2.into())
    }),
    damage("points to iNode4242", |v| {
        v.file("second name", |raw| raw.bsd.special = 4242.into())
    }),
    warning("records 4242 as its predecessor", |v| {
        v.file("second name", |raw| raw.bsd.owner_id = 4242.into())
    }),
    warning("points to 4242", |v| {
        v.file("second name", |raw| raw.bsd.group_id = 4242.into())
    }),
    damage("is treated as a file", |v| {
        v.file("second name", |raw| raw.dates.create = 1.into())
    }),
    warning("records 3 links, but 2 exist", |v| {
        v.file("first name", |raw| raw.user_info.file_type = *b"abcd")
    }),
    warning("attributes: present, but its flags say absent", |v| {
        v.file("with attributes", |raw| raw.flags = 2.into())
    }),
    warning(": access rights: present", |v| {
        v.file("with attributes", |raw| raw.flags = 6.into())
    }),
    damage("its compressed contents are missing", |v| {
        v.file("file 3", |raw| {
            raw.bsd.owner_flags |= crate::UF_COMPRESSED as u8;
            raw.data_fork.logical_size = 0.into();
        });
    }),
    warning("attributes: absent, but its flags say present", |v| {
        v.file("file 3", |raw| raw.flags = 6.into())
    }),
];

pub(in crate::hfsplus) const ATTRIBUTES: &[Corruption] = &[
    damage("of unknown type or truncated", |v| {
        v.attribute("small", |record| record[25] ^= 0xFF)
    }),
    damage("which does not exist", |v| {
        v.attribute("small", |record| record[5] ^= 0x01)
    }),
    damage("is for block 1", |v| {
        v.attribute("small", |record| record[11] = 1)
    }),
    damage("expected 99 blocks for large", |v| {
        v.attribute("large", |record| {
            let at = record.len() - 65;
            record[at] = 99;
        })
    }),
    damage("empty extent at block 9", |v| {
        v.attribute("large", |record| {
            let at = record.len() - 5;
            record[at] = 9;
        })
    }),
];

/// Returns the bytes of a volume for each kind of damage, with the words that a check reports.
pub fn damaged() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    [VOLUME, TREES, CATALOG, ATTRIBUTES]
        .into_iter()
        .flatten()
        .map(|(damage, _, words)| {
            let mut sample = Sample::new(false);
            damage(&mut sample);
            (*words, sample.bytes)
        })
}
