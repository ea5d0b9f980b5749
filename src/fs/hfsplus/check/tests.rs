//! A sound volume, damaged one structure at a time: every kind of damage is found, and told as what it is.

use std::sync::Arc;

use zerocopy::FromBytes;

use super::*;
use crate::device::{BlockDeviceExt, Memory};
use crate::fs::Timestamp;
use crate::fs::hfsplus::build::{Options, Plan};
use crate::fs::hfsplus::layout::*;
use crate::fs::hfsplus::unicode::decode_name;
use crate::fs::source::{SourceKind, SourceNode, Stream, Tree as SourceTree};
use crate::problem::Severity;
use crate::progress::Silent;

/// A volume with everything in it that can be damaged.
pub(in crate::fs::hfsplus) struct Patient {
    pub(in crate::fs::hfsplus) bytes: Vec<u8>,
}

const NODE_DESCRIPTOR: usize = size_of::<NodeDescriptorRaw>();

fn source() -> SourceTree {
    let mut tree = SourceTree::empty(Timestamp::from_seconds(1_600_000_000));
    let mut add = |parent: u32, name: &str, kind: SourceKind, mode: u16| {
        let node = tree.nodes.len() as u32;
        let root = tree.nodes[0].clone();
        tree.nodes.push(SourceNode { parent, name: name.into(), kind, mode, ..root });
        node
    };
    let file = |len: usize| SourceKind::File(Stream::Bytes(vec![0x41; len].into()));
    let folder = add(0, "folder", SourceKind::Folder, 0o755);
    let inner = add(folder, "inner", SourceKind::Folder, 0o755);
    for number in 0..120 {
        add(if number % 2 == 0 { folder } else { inner }, &format!("file {number}"), file(5000), 0o644);
    }
    let linked = add(0, "first name", file(9000), 0o600);
    add(folder, "second name", SourceKind::HardLink(linked), 0o600);
    add(inner, "third name", SourceKind::HardLink(linked), 0o600);
    add(0, "symlink", SourceKind::Symlink("folder/inner".into()), 0o755);
    let with_attributes = add(0, "with attributes", file(100), 0o644);
    let xattrs = &mut tree.nodes[with_attributes as usize].xattrs;
    xattrs.push(("small".into(), Stream::Bytes(vec![1; 20].into())));
    xattrs.push(("large".into(), Stream::Bytes(vec![2; 20_000].into())));
    xattrs.push(("com.apple.system.Security".into(), Stream::Bytes(vec![3; 44].into())));
    tree
}

impl Patient {
    pub(in crate::fs::hfsplus) fn new(case_sensitive: bool) -> Self {
        let options = Options {
            name: "Patient".into(),
            case_sensitive,
            journaled: false,
            block_size: None,
            created: Timestamp::from_seconds(1_700_000_000),
            latest: None,
            identifier: 1,
        };
        let device = Memory::zeros(8 << 20);
        Plan::new(source(), options).unwrap().build(&device, &Silent).unwrap();
        Self { bytes: device.read_vec(0, 8 << 20).unwrap() }
    }

    pub(in crate::fs::hfsplus) fn check(&self) -> Vec<Problem> {
        check(Arc::new(Memory::read_only(self.bytes.clone())), &Silent).unwrap()
    }

    fn header(&mut self) -> &mut VolumeHeaderRaw {
        let at = HEADER_OFFSET as usize;
        VolumeHeaderRaw::mut_from_bytes(&mut self.bytes[at..at + 512]).unwrap()
    }

    fn alternate(&mut self) -> &mut VolumeHeaderRaw {
        let at = self.bytes.len() - HEADER_OFFSET as usize;
        VolumeHeaderRaw::mut_from_bytes(&mut self.bytes[at..at + 512]).unwrap()
    }

    fn fork(&mut self, tree: Cnid) -> ForkRaw {
        let header = self.header();
        match tree {
            Cnid::CATALOG => header.catalog_file,
            Cnid::ATTRIBUTES => header.attributes_file,
            Cnid::EXTENTS => header.extents_file,
            _ => header.allocation_file,
        }
    }

    /// Where a file of the volume begins; ours lie in one piece.
    fn start(&mut self, tree: Cnid) -> usize {
        let block_size = self.header().block_size.get();
        AllocBlock(self.fork(tree).extents[0].start_block.get()).offset(block_size) as usize
    }

    fn tree(&mut self, tree: Cnid) -> &mut TreeHeaderRaw {
        let at = self.start(tree) + NODE_DESCRIPTOR;
        TreeHeaderRaw::mut_from_bytes(&mut self.bytes[at..at + size_of::<TreeHeaderRaw>()]).unwrap()
    }

    fn node(&mut self, tree: Cnid, number: u32) -> &mut [u8] {
        let size = usize::from(self.tree(tree).node_size.get());
        let at = self.start(tree) + number as usize * size;
        &mut self.bytes[at..at + size]
    }

    fn descriptor(&mut self, tree: Cnid, number: u32) -> &mut NodeDescriptorRaw {
        NodeDescriptorRaw::mut_from_bytes(&mut self.node(tree, number)[..NODE_DESCRIPTOR]).unwrap()
    }

    /// Flips the bit of a block in the bitmap.
    pub(in crate::fs::hfsplus) fn flip(&mut self, block: u32) {
        let at = self.start(Cnid::ALLOCATION) + block as usize / 8;
        self.bytes[at] ^= 0x80 >> (block % 8);
    }

    /// Changes the first leaf record that `wanted` picks by its key and data; `change` gets both.
    fn record(&mut self, tree: Cnid, wanted: impl Fn(&[u8]) -> bool, change: impl FnOnce(&mut [u8])) {
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

    /// Changes the catalog record of the object with this name.
    fn named(&mut self, name: &str, change: impl FnOnce(&mut [u8])) {
        let wanted = |record: &[u8]| {
            let (key, data) = CatalogKey::split(record).unwrap();
            decode_name(key.name) == name && !matches!(CatalogRecord::parse(data), Some(CatalogRecord::Thread(_)))
        };
        self.record(Cnid::CATALOG, wanted, |record| {
            let at = record.len() - CatalogKey::split(record).unwrap().1.len();
            change(&mut record[at..]);
        });
    }

    pub(in crate::fs::hfsplus) fn file(&mut self, name: &str, change: impl FnOnce(&mut FileRaw)) {
        self.named(name, |data| change(FileRaw::mut_from_prefix(data).unwrap().0));
    }

    fn folder(&mut self, name: &str, change: impl FnOnce(&mut FolderRaw)) {
        self.named(name, |data| change(FolderRaw::mut_from_prefix(data).unwrap().0));
    }

    /// Changes the thread of the object with this name.
    fn thread(&mut self, name: &str, change: impl FnOnce(&mut [u8])) {
        let wanted = |record: &[u8]| match CatalogRecord::parse(CatalogKey::split(record).unwrap().1) {
            Some(CatalogRecord::Thread(thread)) => decode_name(thread.name) == name,
            _ => false,
        };
        self.record(Cnid::CATALOG, wanted, |record| {
            let at = record.len() - CatalogKey::split(record).unwrap().1.len();
            change(&mut record[at..]);
        });
    }

    /// Changes the data of an attribute's record.
    fn attribute(&mut self, name: &str, change: impl FnOnce(&mut [u8])) {
        let wanted = |record: &[u8]| decode_name(AttributeKey::split(record).unwrap().0.name) == name;
        self.record(Cnid::ATTRIBUTES, wanted, change);
    }

    /// The last leaf of the catalog, and the root above it.
    fn last_leaf(&mut self) -> u32 {
        self.tree(Cnid::CATALOG).last_leaf_node.get()
    }
}

#[test]
fn sound_volumes_are_found_sound() {
    for case_sensitive in [false, true] {
        let mut patient = Patient::new(case_sensitive);
        assert!(patient.tree(Cnid::CATALOG).tree_depth.get() > 1, "more than a root");
        let found = patient.check();
        assert!(found.is_empty(), "{found:?}");
    }
}

/// What to do to a volume, how bad that is, and words of the finding.
pub(in crate::fs::hfsplus) type Case = (fn(&mut Patient), Severity, &'static str);

pub(in crate::fs::hfsplus) const VOLUME: &[Case] = &[
    (|v| v.header().signature = 0x1234.into(), Severity::Damage, "signature H+ or HX expected"),
    (|v| v.header().block_size = 3000.into(), Severity::Damage, "a power of two"),
    (|v| v.header().total_blocks = u32::MAX.into(), Severity::Damage, "do not fit a volume"),
    (|v| v.alternate().signature = 0.into(), Severity::Warning, "signature H+ or HX expected"),
    (|v| v.alternate().create_date = 7.into(), Severity::Warning, "tells of another volume"),
    (|v| v.alternate().catalog_file.total_blocks = 7.into(), Severity::Warning, "another place for the catalog file"),
    (|v| v.header().attributes = 0x8000_0000.into(), Severity::Warning, "not unmounted cleanly"),
    (|v| v.header().attributes = 0x8000_4100.into(), Severity::Warning, "marked damaged"),
    (|v| v.header().attributes = 0x8000_2100.into(), Severity::Damage, "journal"),
    (|v| v.header().last_mounted_version = *b"FSK!", Severity::Warning, "could not be replayed"),
    (|v| v.header().free_blocks = 1.into(), Severity::Warning, "1 free blocks claimed"),
    (|v| v.header().free_blocks = u32::MAX.into(), Severity::Warning, "blocks are free"),
    (|v| v.header().file_count = 3.into(), Severity::Warning, "3 files claimed"),
    (|v| v.header().folder_count = 9.into(), Severity::Warning, "9 folders claimed"),
    (|v| v.header().next_catalog_id = 20.into(), Severity::Damage, "the next number is 20"),
    (|v| v.header().next_allocation = u32::MAX.into(), Severity::Warning, "the next allocation is at block"),
    (|v| v.header().catalog_file.total_blocks = 0.into(), Severity::Damage, "has no catalog file"),
    (|v| v.header().catalog_file.extents[0].start_block = 0xFFFF_0000.into(), Severity::Damage, "reach past the volume"),
    (|v| v.header().allocation_file.logical_size = 1.into(), Severity::Damage, "bytes expected for"),
    (|v| v.flip(0), Severity::Damage, "blocks 0 to 0 are in use but marked free"),
    (|v| v.flip(2000), Severity::Warning, "1 blocks are marked used and used by nothing, the first is 2000"),
];

pub(in crate::fs::hfsplus) const TREES: &[Case] = &[
    (|v| v.tree(Cnid::CATALOG).node_size = 1000.into(), Severity::Damage, "node size is 1000"),
    (|v| v.tree(Cnid::CATALOG).tree_depth = 99.into(), Severity::Damage, "in a tree of depth 99"),
    (|v| v.tree(Cnid::CATALOG).root_node = 0xFFFF.into(), Severity::Damage, "root is node 65535"),
    (|v| v.tree(Cnid::CATALOG).total_nodes = 5.into(), Severity::Damage, "5 nodes of"),
    (|v| v.tree(Cnid::CATALOG).free_nodes = 5.into(), Severity::Damage, "5 free nodes in the header"),
    (|v| v.tree(Cnid::CATALOG).leaf_records = 5.into(), Severity::Damage, "leaf records: 5"),
    (|v| v.tree(Cnid::CATALOG).first_leaf_node = 5.into(), Severity::Damage, "first leaf: 5"),
    (|v| v.tree(Cnid::CATALOG).last_leaf_node = 1.into(), Severity::Damage, "last leaf: 1"),
    (|v| v.tree(Cnid::CATALOG).max_key_length = 10.into(), Severity::Damage, "longest key is 10"),
    (|v| v.tree(Cnid::EXTENTS).attributes = 0.into(), Severity::Damage, "16-bit key lengths"),
    (|v| v.descriptor(Cnid::CATALOG, 0).kind = 0, Severity::Damage, "header node: kind 1"),
    (|v| v.descriptor(Cnid::CATALOG, 0).forward_link = 1.into(), Severity::Damage, "a node of the map"),
    (|v| v.descriptor(Cnid::CATALOG, 1).kind = node_kind::MAP, Severity::Damage, "kind -1 and height 1 expected"),
    (|v| v.descriptor(Cnid::CATALOG, 1).record_count = 0.into(), Severity::Damage, "holds no records"),
    (|v| v.descriptor(Cnid::CATALOG, 1).record_count = 9999.into(), Severity::Damage, "claims 9999 records"),
    (|v| v.descriptor(Cnid::CATALOG, 1).forward_link = 1.into(), Severity::Damage, "next node"),
    (|v| v.descriptor(Cnid::CATALOG, 1).backward_link = 3.into(), Severity::Damage, "no previous node expected, 3"),
    (
        |v| {
            let last = v.last_leaf();
            v.descriptor(Cnid::CATALOG, last).forward_link = 1.into();
        },
        Severity::Damage,
        "no next node expected, 1",
    ),
    (
        |v| {
            // The offset of the second record.
            let node = v.node(Cnid::CATALOG, 1);
            let at = node.len() - 4;
            node[at..at + 2].copy_from_slice(&[0xFF, 0xFF]);
        },
        Severity::Damage,
        "offset 1 of its records",
    ),
    (
        |v| {
            // The key of a leaf's first record: its parent's number.
            let last = v.last_leaf();
            v.node(Cnid::CATALOG, last)[16] ^= 0x40;
        },
        Severity::Damage,
        "not the one in its parent",
    ),
    (
        |v| {
            // Both children of the root lead to the first.
            let root = v.tree(Cnid::CATALOG).root_node.get();
            let node = v.node(Cnid::CATALOG, root);
            let end = |node: &[u8], index: usize| {
                let at = node.len() - 2 * (index + 1);
                usize::from(u16::from_be_bytes([node[at], node[at + 1]]))
            };
            let (first, second) = (end(node, 1), end(node, 2));
            node.copy_within(first - 4..first, second - 4);
        },
        Severity::Damage,
        "is reached twice",
    ),
    (
        |v| {
            // A key with a length that no key has.
            let node = v.node(Cnid::CATALOG, 1);
            node[14..16].copy_from_slice(&[0, 2]);
        },
        Severity::Damage,
        "has a key of 2 bytes",
    ),
    (|v| v.node(Cnid::CATALOG, 0)[usize::from(HEADER_MAP_OFFSET)] ^= 0x40, Severity::Damage, "in use but free in the map"),
    (
        |v| {
            let last = v.tree(Cnid::CATALOG).total_nodes.get() as usize - 1;
            v.node(Cnid::CATALOG, 0)[usize::from(HEADER_MAP_OFFSET) + last / 8] ^= 0x80 >> (last % 8);
        },
        Severity::Warning,
        "used in the map but not in the tree",
    ),
    (
        |v| {
            let last = v.tree(Cnid::CATALOG).total_nodes.get() - 1;
            v.node(Cnid::CATALOG, last)[100] = 1;
        },
        Severity::Warning,
        "is free but not zero",
    ),
];

pub(in crate::fs::hfsplus) const CATALOG: &[Case] = &[
    (|v| v.named("file 3", |data| data[1] = 9), Severity::Damage, "of no known type"),
    (|v| v.folder("folder", |raw| raw.valence = 9.into()), Severity::Warning, "says that it holds 9"),
    (|v| v.folder("folder", |raw| raw.flags = 2.into()), Severity::Warning, "bits 0 and 1 are for files"),
    (|v| v.folder("folder", |raw| raw.bsd.file_mode = 0o100_755.into()), Severity::Damage, "has mode 0o100755"),
    (|v| v.file("file 3", |raw| raw.bsd.file_mode = 0o040_755.into()), Severity::Damage, "has mode 0o40755"),
    (|v| v.file("file 3", |raw| raw.file_id = 5.into()), Severity::Damage, "has the reserved number 5"),
    (|v| v.file("file 3", |raw| raw.file_id = 17.into()), Severity::Damage, "object 17 stands in folder"),
    (|v| v.folder("inner", |raw| raw.folder_id = 9999.into()), Severity::Damage, "object 9999 in folder"),
    (|v| v.file("file 3", |raw| raw.flags = 0.into()), Severity::Warning, "its flags 0x0000 do not say so"),
    (|v| v.file("symlink", |raw| raw.user_info.file_type = *b"abcd"), Severity::Note, "has not the type and creator"),
    (|v| v.file("file 3", |raw| raw.bsd.special = 5.into()), Severity::Warning, "has 5 names"),
    (|v| v.thread("file 3", |data| data[7] ^= 1), Severity::Damage, "its record is in folder"),
    (|v| v.thread("file 3", |data| data[1] = 3), Severity::Damage, "has the wrong type"),
    (|v| v.thread("inner", |data| data[7] = 200), Severity::Damage, "leads to folder 200"),
    (|v| v.file("file 3", |raw| raw.data_fork.total_blocks = 9.into()), Severity::Damage, "9 blocks expected"),
    (|v| v.file("file 3", |raw| raw.data_fork.logical_size = u64::MAX.into()), Severity::Damage, "18446744073709551615 bytes in"),
    (
        |v| v.file("file 3", |raw| raw.data_fork.extents[0].start_block = 0xFFFF_FF00.into()),
        Severity::Damage,
        "reach past the volume",
    ),
    (|v| v.file("file 3", |raw| raw.data_fork.extents[0].start_block = 1.into()), Severity::Damage, "are used by"),
    (
        |v| v.file("file 3", |raw| raw.data_fork.extents[3].block_count = 1.into()),
        Severity::Warning,
        "behind the end of the list",
    ),
    (|v| v.file("second name", |raw| raw.bsd.special = 4242.into()), Severity::Damage, "leads to iNode4242"),
    (|v| v.file("second name", |raw| raw.bsd.owner_id = 4242.into()), Severity::Warning, "names 4242 as the one before"),
    (|v| v.file("second name", |raw| raw.bsd.group_id = 4242.into()), Severity::Warning, "leads to 4242"),
    (|v| v.file("second name", |raw| raw.dates.create = 1.into()), Severity::Damage, "is taken for a file"),
    (|v| v.file("first name", |raw| raw.user_info.file_type = *b"abcd"), Severity::Warning, "counts 3 links, 2 exist"),
    (|v| v.file("with attributes", |raw| raw.flags = 2.into()), Severity::Warning, "has attributes: yes, its flags say: no"),
    (|v| v.file("with attributes", |raw| raw.flags = 6.into()), Severity::Warning, "has access rights: yes"),
    (|v| v.file("file 3", |raw| raw.flags = 6.into()), Severity::Warning, "has attributes: no, its flags say: yes"),
];

pub(in crate::fs::hfsplus) const ATTRIBUTES: &[Case] = &[
    (|v| v.attribute("small", |record| record[25] ^= 0xFF), Severity::Damage, "of no known type or cut short"),
    (|v| v.attribute("small", |record| record[5] ^= 0x01), Severity::Damage, "which does not exist"),
    (|v| v.attribute("small", |record| record[11] = 1), Severity::Damage, "begins at block 1"),
    (
        |v| {
            v.attribute("large", |record| {
                let at = record.len() - 65;
                record[at] = 99;
            })
        },
        Severity::Damage,
        "99 blocks of large",
    ),
];

fn expect_found(cases: &[Case], case_sensitive: bool) {
    for (damage, severity, words) in cases {
        let mut patient = Patient::new(case_sensitive);
        damage(&mut patient);
        let found = patient.check();
        let told = found.iter().any(|problem| problem.severity == *severity && problem.error.to_string().contains(words));
        assert!(told, "{severity:?} {words:?} expected, {found:#?}");
    }
}

#[test]
fn damage_to_the_volume_is_found() {
    expect_found(VOLUME, false);
}

#[test]
fn damage_to_trees_is_found() {
    expect_found(TREES, false);
}

#[test]
fn damage_to_the_catalog_is_found() {
    expect_found(CATALOG, false);
}

#[test]
fn damage_to_attributes_is_found() {
    expect_found(ATTRIBUTES, false);
}

#[test]
fn folders_that_count_folders_wrongly_are_found_where_they_must() {
    let wrong: Case = (|v| v.folder("folder", |raw| raw.folder_count = 9.into()), Severity::Warning, "holds 9 folders");
    let missing: Case = (|v| v.folder("folder", |raw| raw.flags = 0.into()), Severity::Warning, "does not count the folders");
    expect_found(&[wrong, missing], true);
}

#[test]
fn a_folder_in_itself_is_found() {
    // The children of "inner" and its thread stay where they are; only its way up turns back on itself.
    let mut patient = Patient::new(false);
    let mut inner = 0;
    patient.folder("inner", |raw| inner = raw.folder_id.get());
    let wanted = |record: &[u8]| decode_name(CatalogKey::split(record).unwrap().0.name) == "inner";
    patient.record(Cnid::CATALOG, wanted, |record| record[2..6].copy_from_slice(&inner.to_be_bytes()));
    let found = patient.check();
    let told = |words: &str| found.iter().any(|problem| problem.error.to_string().contains(words));
    assert!(told("lies in itself") && told("does not come after"), "{found:#?}");
}

#[test]
fn a_volume_full_of_damage_is_told_within_bounds() {
    let mut patient = Patient::new(false);
    let start = patient.start(Cnid::ALLOCATION);
    patient.bytes[start..start + 250].iter_mut().enumerate().for_each(|(at, byte)| *byte = if at % 2 == 0 { 0x55 } else { 0xAA });
    let found = patient.check();
    assert!(found.len() <= 1001, "{}", found.len());
    assert!(found.iter().any(|problem| problem.severity == Severity::Damage));
}
