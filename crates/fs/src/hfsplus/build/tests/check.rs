//! An independent implementation of the rules of the format.

use std::collections::{BTreeMap, BTreeSet};

use zerocopy::FromBytes;
use zerocopy::big_endian::U16;

use crate::hfsplus::layout::*;
use crate::hfsplus::unicode::NameOrder;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};

/// A record of a leaf: its key and its data.
pub(in crate::hfsplus) type LeafRecord = (Vec<u8>, Vec<u8>);

/// The extents-overflow tree: the extents of a file and fork from a start block on.
type Overflow = BTreeMap<(u32, u8, u32), ExtentsRaw>;

/// Returns all extents of a fork, including overflow extents.
fn extents_of(fork: &ForkRaw, more: &dyn Fn(u32) -> Option<ExtentsRaw>) -> Vec<Extent> {
    let mut extents = Vec::new();
    let (mut found, mut record) = (0, Some(fork.extents));
    while let Some(raw) = record {
        let used: Vec<_> = raw
            .iter()
            .map(|raw| Extent::from(*raw))
            .take_while(|extent| extent.count > 0)
            .collect();
        assert!(
            raw.iter()
                .skip(used.len())
                .all(|raw| Extent::from(*raw) == Extent::NONE),
            "no extents after the last"
        );
        assert!(
            !used.is_empty() || fork.total_blocks.get() == 0,
            "a record has extents"
        );
        found += used.iter().map(|extent| extent.count).sum::<u32>();
        extents.extend(used);
        record = (found < fork.total_blocks.get())
            .then(|| more(found).expect("a record of more extents"));
    }
    assert_eq!(found, fork.total_blocks.get(), "blocks of a fork");
    extents
}

/// Checks every rule of §6 for the tree in `fork`; returns its leaf records.
pub(in crate::hfsplus) fn check_tree(
    device: &dyn BlockDevice,
    fork: &ForkRaw,
    block_size: u32,
    variable_keys: bool,
) -> Vec<LeafRecord> {
    check_tree_at(
        device,
        fork,
        &extents_of(fork, &|_| None),
        block_size,
        variable_keys,
    )
}

fn check_tree_at(
    device: &dyn BlockDevice,
    fork: &ForkRaw,
    extents: &[Extent],
    block_size: u32,
    variable_keys: bool,
) -> Vec<LeafRecord> {
    let mut file = Vec::new();
    for extent in extents {
        let len = extent.count as usize * block_size as usize;
        file.extend(
            device
                .read_vec(extent.start.offset(block_size), len)
                .unwrap(),
        );
    }
    let header = TreeHeaderRaw::read_from_prefix(&file[14..]).unwrap().0;
    let size = header.node_size.get();
    assert_eq!(
        u64::from(header.total_nodes.get()) * u64::from(size),
        fork.logical_size.get()
    );
    assert_eq!(fork.logical_size.get(), file.len() as u64);
    assert_eq!(header.attributes.get(), if variable_keys { 6 } else { 2 });
    let node = |number: u32| file[number as usize * usize::from(size)..][..size.into()].to_vec();

    let used = header.total_nodes.get() - header.free_nodes.get();
    let (map, maps) = map_of(&node, header.total_nodes.get());
    let in_map: BTreeSet<u32> = (0..)
        .zip(&map)
        .filter_map(|(number, used)| used.then_some(number))
        .collect();
    assert_eq!(in_map.len(), used as usize, "free nodes are counted");
    for number in (0..header.total_nodes.get()).filter(|number| !in_map.contains(number)) {
        assert_eq!(
            node(number),
            vec![0; size.into()],
            "free node {number} is zero"
        );
    }

    let mut seen = BTreeSet::from([0]);
    seen.extend(&maps);
    let mut level = vec![header.root_node.get()];
    let mut height = header.tree_depth.get() as u8;
    let mut first_keys: Vec<Vec<u8>> = Vec::new();
    if height == 0 {
        assert_eq!(
            (header.root_node.get(), header.leaf_records.get(), used),
            (0, 0, 1 + maps.len() as u32)
        );
        assert_eq!(
            (header.first_leaf_node.get(), header.last_leaf_node.get()),
            (0, 0)
        );
        return Vec::new();
    }
    loop {
        let mut records = Vec::new();
        for (place, &number) in level.iter().enumerate() {
            assert!(seen.insert(number), "node {number} is reached twice");
            let bytes = node(number);
            let descriptor = NodeDescriptorRaw::read_from_prefix(&bytes).unwrap().0;
            assert_eq!(
                descriptor.kind,
                if height == 1 {
                    node_kind::LEAF
                } else {
                    node_kind::INDEX
                }
            );
            assert_eq!(descriptor.height, height);
            assert_eq!(
                descriptor.backward_link.get(),
                if place == 0 { 0 } else { level[place - 1] }
            );
            assert_eq!(
                descriptor.forward_link.get(),
                level.get(place + 1).copied().unwrap_or(0)
            );
            let inside = split_node(&bytes);
            if let Some(expected) = first_keys.get(place) {
                assert_eq!(
                    &inside[0].0, expected,
                    "the key in the parent is the first one"
                );
            }
            records.extend(inside);
        }
        if height == 1 {
            let (first, last) = (header.first_leaf_node.get(), header.last_leaf_node.get());
            assert_eq!((level[0], *level.last().unwrap()), (first, last));
            assert_eq!(records.len() as u32, header.leaf_records.get());
            assert_eq!(seen, in_map, "every used node is reached");
            return records;
        }
        first_keys = records.iter().map(|(key, _)| key.clone()).collect();
        level = records
            .iter()
            .map(|(_, data)| u32::from_be_bytes(data[..].try_into().unwrap()))
            .collect();
        height -= 1;
    }
}

/// Returns the bits of all map records, and the numbers of the map nodes.
fn map_of(node: &dyn Fn(u32) -> Vec<u8>, total: u32) -> (Vec<bool>, Vec<u32>) {
    let header = node(0);
    let mut bytes = header[248..header.len() - 8].to_vec();
    let mut next = u32::from_be_bytes(header[..4].try_into().unwrap());
    let mut maps = Vec::new();
    while next != 0 {
        maps.push(next);
        let map = node(next);
        assert_eq!(map[4..14], [0, 0, 0, 0, 2, 0, 0, 1, 0, 0], "a map node");
        bytes.extend_from_slice(&map[14..map.len() - 6]);
        next = u32::from_be_bytes(map[..4].try_into().unwrap());
    }
    let mut bits: Vec<bool> = bytes
        .iter()
        .flat_map(|byte| (0..8).map(move |bit| byte & (0x80 >> bit) != 0))
        .collect();
    assert!(bits.len() >= total as usize, "the map covers the tree");
    assert!(
        !bits.split_off(total as usize).contains(&true),
        "bits past the last node are 0"
    );
    (bits, maps)
}

fn split_node(bytes: &[u8]) -> Vec<LeafRecord> {
    let count = usize::from(
        NodeDescriptorRaw::read_from_prefix(bytes)
            .unwrap()
            .0
            .record_count
            .get(),
    );
    let offset = |record: usize| {
        let at = bytes.len() - 2 * (record + 1);
        usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
    };
    assert_eq!(offset(0), 14);
    assert!(offset(count) <= bytes.len() - 2 * (count + 1));
    assert!(
        bytes[offset(count)..bytes.len() - 2 * (count + 1)]
            .iter()
            .all(|byte| *byte == 0),
        "free space is zero"
    );
    let split = |record: usize| {
        let (start, end) = (offset(record), offset(record + 1));
        assert!(start < end && start % 2 == 0);
        let key_len = 2 + usize::from(u16::from_be_bytes([bytes[start], bytes[start + 1]]));
        (
            bytes[start..start + key_len].to_vec(),
            bytes[start + key_len..end].to_vec(),
        )
    };
    (0..count).map(split).collect()
}

/// The blocks claimed so far.
#[derive(Default)]
struct NodeBlocks {
    used: BTreeSet<u32>,
    /// Overflow records that no fork has claimed yet.
    overflow: Overflow,
}

impl NodeBlocks {
    fn special(&mut self, fork: &ForkRaw, id: Cnid, block_size: u32) -> Vec<Extent> {
        self.fork(fork, id, fork_type::DATA, block_size)
    }

    fn fork(&mut self, fork: &ForkRaw, id: Cnid, kind: u8, block_size: u32) -> Vec<Extent> {
        let overflow = std::cell::RefCell::new(std::mem::take(&mut self.overflow));
        let extents = extents_of(fork, &|block| {
            overflow.borrow_mut().remove(&(id.0, kind, block))
        });
        self.overflow = overflow.into_inner();
        self.claim_blocks(fork, &extents, block_size, &format!("fork {kind} of {id}"));
        extents
    }

    fn claim_blocks(&mut self, fork: &ForkRaw, extents: &[Extent], block_size: u32, who: &str) {
        for extent in extents {
            for block in u64::from(extent.start.0)..extent.end() {
                assert!(
                    self.used.insert(block as u32),
                    "{who} overlaps at block {block}"
                );
            }
        }
        assert!(
            fork.logical_size.get() <= u64::from(fork.total_blocks.get()) * u64::from(block_size),
            "{who}"
        );
    }
}

/// Checks every rule of §17 that a volume written by this crate can break.
pub(in crate::hfsplus) fn check(device: &dyn BlockDevice) {
    let len = device.info().len;
    let header: VolumeHeaderRaw = read(device, HEADER_OFFSET);
    assert_eq!(
        header,
        read::<VolumeHeaderRaw>(device, len - HEADER_OFFSET),
        "both headers"
    );
    check_but_alternate(device);
}

/// Checks the same rules, but not the alternate header.
pub(in crate::hfsplus) fn check_but_alternate(device: &dyn BlockDevice) {
    let len = device.info().len;
    let header: VolumeHeaderRaw = read(device, HEADER_OFFSET);
    let parsed = VolumeHeader::parse(&header, HEADER_OFFSET, len).unwrap();
    let block_size = parsed.block_size;
    assert_eq!(u64::from(parsed.total_blocks), len / u64::from(block_size));
    assert!(header.next_allocation.get() < parsed.total_blocks);

    let mut overflow = Overflow::new();
    for (key, data) in check_tree(device, &header.extents_file, block_size, false) {
        let key = ExtentKeyRaw::read_from_bytes(&key).unwrap();
        overflow.insert(
            (key.file_id.get(), key.fork_type, key.start_block.get()),
            ExtentsRaw::read_from_bytes(&data).unwrap(),
        );
    }
    let mut blocks = NodeBlocks {
        overflow,
        ..NodeBlocks::default()
    };
    let allocation = blocks.special(&header.allocation_file, Cnid::ALLOCATION, block_size);
    blocks.special(&header.extents_file, Cnid::EXTENTS, block_size);
    let catalog = blocks.special(&header.catalog_file, Cnid::CATALOG, block_size);
    let catalog = check_tree_at(device, &header.catalog_file, &catalog, block_size, true);
    let attributes = blocks.special(&header.attributes_file, Cnid::ATTRIBUTES, block_size);
    let attributes = match attributes.is_empty() {
        true => Vec::new(),
        false => check_tree_at(
            device,
            &header.attributes_file,
            &attributes,
            block_size,
            true,
        ),
    };
    check_catalog(&catalog, &attributes, &header, parsed.variant, &mut blocks);
    assert!(
        blocks.overflow.is_empty(),
        "overflowing extents of nobody: {:?}",
        blocks.overflow
    );
    check_bitmap(device, &parsed, &allocation, &mut blocks.used);
}

fn check_catalog(
    catalog: &[LeafRecord],
    attributes: &[LeafRecord],
    header: &VolumeHeaderRaw,
    variant: Variant,
    blocks: &mut NodeBlocks,
) {
    let order = if variant == Variant::Hfsx {
        NameOrder::Binary
    } else {
        NameOrder::Folding
    };
    let keys: Vec<CatalogKey<'_>> = catalog
        .iter()
        .map(|(key, _)| CatalogKey::split(key).unwrap().0)
        .collect();
    for two in keys.windows(2) {
        let ascending = (two[0].parent)
            .cmp(&two[1].parent)
            .then_with(|| order.compare(two[0].name, two[1].name));
        assert_eq!(ascending, std::cmp::Ordering::Less, "{:?}", two);
    }
    let with_attributes = check_attributes(attributes, blocks, header.block_size.get());
    let (mut files, mut folders, mut valence, mut subfolders) =
        (0, 0, BTreeMap::new(), BTreeMap::new());
    let mut threads: BTreeMap<Cnid, (Cnid, Vec<U16>)> = BTreeMap::new();
    let mut objects: BTreeMap<Cnid, (Cnid, Vec<U16>, bool)> = BTreeMap::new();
    for (key, (_, data)) in keys.iter().zip(catalog) {
        let (cnid, flags) = match CatalogRecord::parse(data).unwrap() {
            CatalogRecord::Thread(thread) => {
                assert!(key.name.is_empty());
                assert!(
                    threads
                        .insert(key.parent, (thread.parent, thread.name.to_vec()))
                        .is_none()
                );
                continue;
            }
            CatalogRecord::Folder(folder) => {
                folders += 1;
                *subfolders.entry(key.parent).or_insert(0) += 1;
                assert_eq!(folder.bsd.file_mode.get() & 0o170_000, 0o040_000);
                (Cnid(folder.folder_id.get()), folder.flags.get())
            }
            CatalogRecord::File(file) => {
                files += 1;
                let id = Cnid(file.file_id.get());
                blocks.fork(
                    &file.data_fork,
                    id,
                    fork_type::DATA,
                    header.block_size.get(),
                );
                blocks.fork(
                    &file.resource_fork,
                    id,
                    fork_type::RESOURCE,
                    header.block_size.get(),
                );
                assert_ne!(file.flags.get() & record_flags::THREAD_EXISTS, 0);
                (Cnid(file.file_id.get()), file.flags.get())
            }
        };
        *valence.entry(key.parent).or_insert(0) += 1;
        assert!(
            cnid == Cnid::ROOT
                || (Cnid::FIRST_USER..Cnid(header.next_catalog_id.get())).contains(&cnid)
        );
        assert_eq!(
            flags & record_flags::HAS_ATTRIBUTES != 0,
            with_attributes.contains(&cnid),
            "attributes of {cnid}"
        );
        let folder = matches!(CatalogRecord::parse(data), Some(CatalogRecord::Folder(_)));
        assert!(
            objects
                .insert(cnid, (key.parent, key.name.to_vec(), folder))
                .is_none(),
            "{cnid} twice"
        );
    }
    assert_eq!(
        (files, folders - 1),
        (header.file_count.get(), header.folder_count.get())
    );
    assert!(
        with_attributes
            .iter()
            .all(|cnid| objects.contains_key(cnid))
    );
    assert!(
        threads
            .iter()
            .all(|(cnid, (parent, name))| objects[cnid].0 == *parent && objects[cnid].1 == *name)
    );
    assert_eq!(threads.len(), objects.len(), "a thread for each object");
    for (_, data) in catalog {
        if let Some(CatalogRecord::Folder(folder)) = CatalogRecord::parse(data) {
            let cnid = Cnid(folder.folder_id.get());
            assert_eq!(
                folder.valence.get(),
                valence.get(&cnid).copied().unwrap_or(0),
                "valence of {cnid}"
            );
            if variant == Variant::Hfsx {
                assert_ne!(folder.flags.get() & record_flags::HAS_FOLDER_COUNT, 0);
                assert_eq!(
                    folder.folder_count.get(),
                    subfolders.get(&cnid).copied().unwrap_or(0),
                    "folders in {cnid}"
                );
            }
        }
    }
    check_links(catalog);
}

/// Checks that every hard link points to an inode file whose chain and link count are right.
fn check_links(catalog: &[LeafRecord]) {
    let files = || {
        catalog
            .iter()
            .filter_map(|(key, data)| match CatalogRecord::parse(data)? {
                CatalogRecord::File(file) => Some((CatalogKey::split(key)?.0, file)),
                _ => None,
            })
    };
    let by_id: BTreeMap<u32, &FileRaw> = files()
        .map(|(_, file)| (file.file_id.get(), file))
        .collect();
    let is_link =
        |file: &FileRaw| (file.user_info.file_type, file.user_info.creator) == FILE_LINK_TYPE;
    let mut reached = 0;
    for (key, inode) in files() {
        let name =
            String::from_utf16_lossy(&key.name.iter().map(|unit| unit.get()).collect::<Vec<_>>());
        if is_link(inode) || inode.flags.get() & record_flags::HAS_LINK_CHAIN == 0 {
            continue;
        }
        assert_eq!(name, format!("iNode{}", inode.file_id));
        let (mut at, mut previous, mut count) = (inode.first_link.get(), 0, 0);
        while at != 0 {
            let link = by_id[&at];
            assert!(is_link(link));
            assert_eq!(link.bsd.special, inode.file_id);
            assert_eq!(link.bsd.owner_id.get(), previous);
            (previous, at) = (at, link.bsd.group_id.get());
            count += 1;
        }
        assert_eq!(inode.bsd.special.get(), count);
        reached += count;
    }
    assert_eq!(
        reached as usize,
        files().filter(|(_, file)| is_link(file)).count(),
        "links in chains"
    );
}

/// Returns the objects that have attributes.
fn check_attributes(
    records: &[LeafRecord],
    blocks: &mut NodeBlocks,
    block_size: u32,
) -> BTreeSet<Cnid> {
    let keys: Vec<AttributeKey<'_>> = records
        .iter()
        .map(|(key, _)| AttributeKey::split(key).unwrap().0)
        .collect();
    for two in keys.windows(2) {
        let units =
            |key: &AttributeKey<'_>| key.name.iter().map(|unit| unit.get()).collect::<Vec<_>>();
        let order = |key: &AttributeKey<'_>| (key.file, units(key), key.start_block);
        assert!(order(&two[0]) < order(&two[1]));
    }
    let mut more: BTreeMap<(Cnid, &[U16], u32), ExtentsRaw> = BTreeMap::new();
    for (key, (_, data)) in keys.iter().zip(records) {
        match AttributeRecord::parse(data).unwrap() {
            AttributeRecord::Extents(extents) => {
                let _ = more.insert((key.file, key.name, key.start_block), *extents);
            }
            AttributeRecord::Fork(_) | AttributeRecord::Inline(_) => assert_eq!(key.start_block, 0),
        }
    }
    let more = std::cell::RefCell::new(more);
    for (key, (_, data)) in keys.iter().zip(records) {
        if let AttributeRecord::Fork(fork) = AttributeRecord::parse(data).unwrap() {
            let extents = extents_of(fork, &|block| {
                more.borrow_mut().remove(&(key.file, key.name, block))
            });
            blocks.claim_blocks(fork, &extents, block_size, "attribute");
        }
    }
    assert!(more.borrow().is_empty(), "extents of no attribute");
    keys.iter().map(|key| key.file).collect()
}

fn check_bitmap(
    device: &dyn BlockDevice,
    header: &VolumeHeader,
    extents: &[Extent],
    used: &mut BTreeSet<u32>,
) {
    let (block, total) = (header.block_size, header.total_blocks);
    let reserved = (0..1536_u32.div_ceil(block)).chain(total - 1024_u32.div_ceil(block)..total);
    reserved.for_each(|block| assert!(used.insert(block), "block {block} is the header's"));
    let read = |extent: &Extent| {
        device
            .read_vec(
                extent.start.offset(block),
                extent.count as usize * block as usize,
            )
            .unwrap()
    };
    let bytes: Vec<u8> = extents.iter().flat_map(read).collect();
    for block in 0..bytes.len() as u32 * 8 {
        let bit = bytes[block as usize / 8] & (0x80 >> (block % 8)) != 0;
        assert_eq!(bit, used.contains(&block), "bit of block {block}");
    }
    assert_eq!(header.free_blocks, total - used.len() as u32);
}

pub(in crate::hfsplus) fn read<T: FromBytes + zerocopy::IntoBytes>(
    device: &dyn BlockDevice,
    offset: u64,
) -> T {
    let mut value = T::new_zeroed();
    device.read_at(offset, value.as_mut_bytes()).unwrap();
    value
}
