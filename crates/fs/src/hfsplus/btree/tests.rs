//! Random changes of trees with small nodes, compared with a `BTreeMap`, with the whole tree
//! checked by an independent implementation of the rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use zerocopy::IntoBytes;

use super::*;
use crate::hfsplus::build::tests::check::check_tree;
use crate::hfsplus::build::{self};
use crate::hfsplus::extents::{ForkSpace, Owner};
use crate::hfsplus::layout::{
    AllocBlock, CATALOG_MAX_KEY_LENGTH, Cnid, EXTENTS_KEY_LENGTH, Extent, ExtentKeyRaw, ForkRaw,
    VARIABLE_INDEX_KEYS,
};
use bandsaw_core::device::{AfterDiscard, BlockDeviceExt, Memory};
use bandsaw_testing::Random;

/// A device that contains nothing but the tree.
struct Alone {
    device: Arc<Memory>,
    kind: TreeKind,
    tree: Tree,
}

impl Alone {
    fn new(kind: TreeKind, node_size: u16, total_nodes: u32) -> Self {
        let device = Arc::new(Memory::zeros(usize::from(node_size) * total_nodes as usize));
        let variable = kind != TreeKind::Extents;
        let header = build::HeaderKind {
            node_size,
            max_key_length: if variable {
                CATALOG_MAX_KEY_LENGTH
            } else {
                EXTENTS_KEY_LENGTH
            },
            attributes: if variable { VARIABLE_INDEX_KEYS } else { 0 },
            key_compare_type: KEY_COMPARE_BINARY,
            total_nodes,
            clump: node_size.into(),
        };
        build::write_empty_tree(&*device, 0, header).unwrap();
        let tree = Tree::open(file(&device), kind).unwrap();
        Self { device, kind, tree }
    }

    fn fork(&self) -> ForkRaw {
        fork(&self.device)
    }

    fn grow(&mut self, nodes: u64) {
        let len = self.device.info().len + nodes * u64::from(self.tree.node_size());
        self.device.set_len(len, AfterDiscard::Zeros).unwrap();
        self.tree.grow(file(&self.device)).unwrap();
    }

    /// Applies one change, which is committed or undone as a whole.
    fn change<T>(&mut self, keep: bool, change: impl FnOnce(&mut Tree) -> Result<T>) -> Result<T> {
        let (before, saved) = (self.device.to_vec(), self.tree.save());
        let done = change(&mut self.tree);
        if keep && done.is_ok() {
            self.tree.commit_header(&saved).unwrap();
            self.tree.forget_changed();
        } else {
            self.device.write_at(0, &before).unwrap();
            self.tree.rollback(saved);
        }
        done
    }

    fn check(&self, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let records = check_tree(
            &*self.device,
            &self.fork(),
            512,
            self.kind != TreeKind::Extents,
        );
        assert_eq!(records.len(), model.len());
        assert_eq!(&records.iter().cloned().collect::<BTreeMap<_, _>>(), model);
        let opened = Tree::open(file(&self.device), self.kind).unwrap();
        for tree in [&opened, &self.tree] {
            let mut cursor = tree.first().unwrap();
            for (key, data) in &records {
                assert_eq!(
                    cursor.next().unwrap(),
                    Some([&key[..], data].concat().as_slice())
                );
                assert_eq!(
                    tree.get(key, <[u8]>::to_vec).unwrap(),
                    Some([&key[..], data].concat())
                );
            }
            assert_eq!(cursor.next().unwrap(), None);
        }
    }
}

fn fork(device: &Memory) -> ForkRaw {
    let len = device.info().len;
    let extent = Extent {
        start: AllocBlock(0),
        count: (len / 512) as u32,
    };
    let mut fork = ForkRaw {
        logical_size: len.into(),
        total_blocks: extent.count.into(),
        ..Default::default()
    };
    fork.extents[0] = extent.into();
    fork
}

fn file(device: &Arc<Memory>) -> ForkDevice {
    let fork = fork(device);
    let space = ForkSpace {
        device: device.clone(),
        block_size: 512,
        total_blocks: fork.total_blocks.get(),
    };
    space
        .fork(&fork, &Owner::Special("tree"), &mut |_| Ok(None))
        .unwrap()
}

fn extent_key(file: u32, start_block: u32) -> Vec<u8> {
    let key_length = EXTENTS_KEY_LENGTH.into();
    ExtentKeyRaw {
        key_length,
        fork_type: 0,
        pad: 0,
        file_id: file.into(),
        start_block: start_block.into(),
    }
    .as_bytes()
    .to_vec()
}

/// Returns a catalog key whose name is `len` units long and ends with `number`.
fn name_key(parent: u32, number: u64, len: usize) -> Vec<u8> {
    let name: Vec<U16> = format!("{number:0>len$}")
        .encode_utf16()
        .map(U16::new)
        .collect();
    let mut key = Vec::new();
    CatalogKey {
        parent: Cnid(parent),
        name: &name,
    }
    .put(&mut key);
    key
}

/// Grows and shrinks the tree one record at a time, with undone changes in between.
fn model(
    mut alone: Alone,
    seed: u64,
    key: impl Fn(&mut Random) -> Vec<u8>,
    data: impl Fn(&mut Random) -> Vec<u8>,
) {
    let mut random = Random::new(seed);
    let mut model = BTreeMap::new();
    for phase in 0..6 {
        for _ in 0..400 {
            let key = key(&mut random);
            let data = data(&mut random);
            let keep = !random.one_in(8);
            let (free, needed) = alone.tree.free_nodes();
            if free < needed {
                alone.grow(u64::from(needed));
            }
            let removes = random.within(0..10) < if phase % 2 == 0 { 2 } else { 8 };
            // In phases of removal, mostly keys that exist.
            let near = model
                .range(key.clone()..)
                .next()
                .map(|(key, _): (&Vec<u8>, &Vec<u8>)| key.clone());
            let there = model.contains_key(&key);
            if removes {
                let key = near.unwrap_or(key);
                let found = alone.change(keep, |tree| tree.remove(&key)).unwrap();
                assert_eq!(found, model.contains_key(&key));
                if keep {
                    model.remove(&key);
                }
            } else if there {
                assert_eq!(
                    alone
                        .change(true, |tree| tree.insert(&key, &data))
                        .unwrap_err()
                        .kind(),
                    Kind::Conflict
                );
                alone
                    .change(keep, |tree| tree.replace(&key, &data))
                    .unwrap();
                if keep {
                    model.insert(key, data);
                }
            } else {
                alone.change(keep, |tree| tree.insert(&key, &data)).unwrap();
                if keep {
                    model.insert(key, data);
                }
            }
        }
        alone.check(&model);
    }
    for key in model.keys().cloned().collect::<Vec<_>>() {
        assert!(alone.change(true, |tree| tree.remove(&key)).unwrap());
    }
    alone.check(&BTreeMap::new());
}

#[test]
fn a_tree_of_short_records_is_the_model() {
    for seed in 0..3 {
        let alone = Alone::new(TreeKind::Extents, 512, 4);
        model(
            alone,
            seed,
            |random| extent_key(random.within(0..40) as u32, random.within(0..60) as u32),
            |random| random.bytes(64),
        );
    }
}

#[test]
fn a_tree_of_records_of_all_lengths_is_the_model() {
    for seed in 0..3 {
        let alone = Alone::new(TreeKind::Catalog(Variant::Hfsx), 4096, 4);
        let key = |random: &mut Random| {
            let len = if random.one_in(3) {
                random.within(1..256) as usize
            } else {
                12
            };
            name_key(random.within(2..6) as u32, random.within(0..900), len)
        };
        model(alone, seed, key, |random| {
            let len = [10, 88, 248, 520][random.within(0..4) as usize];
            random.bytes(len)
        });
    }
}

#[test]
fn sorted_records_fill_their_nodes() {
    let mut alone = Alone::new(TreeKind::Extents, 512, 400);
    let mut model = BTreeMap::new();
    for number in 0..1500 {
        let (key, data) = (extent_key(number / 3, number % 3), vec![1; 64]);
        alone.change(true, |tree| tree.insert(&key, &data)).unwrap();
        model.insert(key, data);
    }
    alone.check(&model);
    // Six records per node of 512 bytes, and about twenty entries per index node.
    let used = 400 - alone.tree.free_nodes().0;
    assert!((250..300).contains(&used), "{used} nodes");
}

#[test]
fn a_map_of_many_nodes_grows_with_its_tree() {
    let mut alone = Alone::new(TreeKind::Extents, 512, 8);
    let mut model = BTreeMap::new();
    // The header of a tree with such nodes maps 2048 nodes, each map node 3936 more.
    alone.grow(2030);
    for number in 0..13_000 {
        let (free, needed) = alone.tree.free_nodes();
        if free < needed {
            alone.grow(300);
        }
        let key = extent_key(number, 0);
        alone.tree.insert(&key, &[1; 64]).unwrap();
        model.insert(key, vec![1; 64]);
    }
    alone
        .change(true, |tree| tree.remove(&extent_key(7, 0)))
        .unwrap();
    model.remove(&extent_key(7, 0));
    let saved = alone.tree.save();
    alone.tree.take_node().unwrap();
    alone.tree.rollback(saved);
    assert!(alone.tree.head.total_nodes.get() > 2048);
    let header: [u8; 4] = alone.device.read_array(0).unwrap();
    assert_ne!(header, [0; 4], "a map node");
}

#[test]
fn a_record_that_fits_no_node_is_refused() {
    let mut alone = Alone::new(TreeKind::Catalog(Variant::Hfsx), 512, 8);
    let error = alone
        .change(true, |tree| tree.insert(&name_key(2, 1, 200), &[1; 200]))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
    alone
        .change(true, |tree| tree.insert(&name_key(2, 1, 20), &[1; 200]))
        .unwrap();
    let mut number = 2;
    while alone.tree.free_nodes().0 > 0 {
        number += 1;
        if let Err(error) = alone.change(true, |tree| {
            tree.insert(&name_key(2, number, 20), &[1; 200])
        }) {
            assert_eq!(error.kind(), Kind::Limit);
            break;
        }
    }
    check_tree(&*alone.device, &alone.fork(), 512, true);
}

/// The offset hides a record, and changing the one before would overwrite the beginning of it.
#[test]
fn a_node_with_a_wrong_offset_is_not_changed() {
    let mut alone = Alone::new(TreeKind::Extents, 512, 8);
    for file in 5..8 {
        alone
            .change(true, |tree| tree.insert(&extent_key(file, 9), &[0; 64]))
            .unwrap();
    }
    let leaf = u64::from(alone.tree.head.root_node.get());
    let place = leaf * 512 + 512 - 4;
    let offset = u16::from_be_bytes(alone.device.read_array(place).unwrap());
    alone
        .device
        .write_at(place, &(offset + 8).to_be_bytes())
        .unwrap();
    alone.tree = Tree::open(file(&alone.device), alone.kind).unwrap();
    let bytes = alone.device.to_vec();
    let error = alone
        .change(true, |tree| tree.replace(&extent_key(7, 9), &[1; 64]))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.to_string().contains("does not sort after"), "{error}");
    assert_eq!(alone.device.to_vec(), bytes);
}
