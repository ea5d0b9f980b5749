//! The rules of the format, written down a second time.

use std::collections::{BTreeMap, BTreeSet};

use zerocopy::FromBytes;
use zerocopy::big_endian::U16;

use crate::device::{BlockDevice, BlockDeviceExt};
use crate::fs::hfsplus::layout::*;
use crate::fs::hfsplus::unicode::NameOrder;

/// A record of a leaf: its key and its data.
pub(super) type Record = (Vec<u8>, Vec<u8>);

/// Every rule of §6 for the tree in `fork`; returns its leaf records.
pub(super) fn check_tree(device: &dyn BlockDevice, fork: &ForkRaw, block_size: u32, variable_keys: bool) -> Vec<Record> {
    let base = AllocBlock(fork.extents[0].start_block.get()).offset(block_size);
    let header_node = device.read_vec(base, 512).unwrap();
    let header = TreeHeaderRaw::read_from_prefix(&header_node[14..]).unwrap().0;
    let size = header.node_size.get();
    assert_eq!(u64::from(header.total_nodes.get()) * u64::from(size), fork.logical_size.get());
    assert_eq!(fork.logical_size.get(), u64::from(fork.total_blocks.get()) * u64::from(block_size));
    assert_eq!(header.attributes.get(), if variable_keys { 6 } else { 2 });
    let node = |number: u32| device.read_vec(base + u64::from(number) * u64::from(size), size.into()).unwrap();

    let used = header.total_nodes.get() - header.free_nodes.get();
    let (map, maps) = map_of(&node, header.total_nodes.get());
    assert!(map[..used as usize].iter().all(|bit| *bit) && map[used as usize..].iter().all(|bit| !bit), "used nodes come first");
    if header.free_nodes.get() > 0 {
        assert_eq!(node(used), vec![0; size.into()], "free nodes are zero");
    }

    let mut seen = BTreeSet::from([0]);
    seen.extend(&maps);
    let mut level = vec![header.root_node.get()];
    let mut height = header.tree_depth.get() as u8;
    let mut first_keys: Vec<Vec<u8>> = Vec::new();
    if height == 0 {
        assert_eq!((header.root_node.get(), header.leaf_records.get(), used), (0, 0, 1 + maps.len() as u32));
        return Vec::new();
    }
    loop {
        let mut records = Vec::new();
        for (place, &number) in level.iter().enumerate() {
            assert!(seen.insert(number), "node {number} is reached twice");
            let bytes = node(number);
            let descriptor = NodeDescriptorRaw::read_from_prefix(&bytes).unwrap().0;
            assert_eq!(descriptor.kind, if height == 1 { node_kind::LEAF } else { node_kind::INDEX });
            assert_eq!(descriptor.height, height);
            assert_eq!(descriptor.backward_link.get(), if place == 0 { 0 } else { level[place - 1] });
            assert_eq!(descriptor.forward_link.get(), level.get(place + 1).copied().unwrap_or(0));
            let inside = split_node(&bytes);
            if let Some(expected) = first_keys.get(place) {
                assert_eq!(&inside[0].0, expected, "the key in the parent is the first one");
            }
            records.extend(inside);
        }
        if height == 1 {
            let (first, last) = (header.first_leaf_node.get(), header.last_leaf_node.get());
            assert_eq!((level[0], *level.last().unwrap()), (first, last));
            assert_eq!(records.len() as u32, header.leaf_records.get());
            assert_eq!(seen.len() as u32, used, "every used node is reached");
            return records;
        }
        first_keys = records.iter().map(|(key, _)| key.clone()).collect();
        level = records.iter().map(|(_, data)| u32::from_be_bytes(data[..].try_into().unwrap())).collect();
        height -= 1;
    }
}

/// The bits of all map records, and the numbers of the map nodes.
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
    let mut bits: Vec<bool> = bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte & (0x80 >> bit) != 0)).collect();
    assert!(bits.len() >= total as usize, "the map covers the tree");
    assert!(!bits.split_off(total as usize).contains(&true), "bits past the last node are 0");
    (bits, maps)
}

fn split_node(bytes: &[u8]) -> Vec<Record> {
    let count = usize::from(NodeDescriptorRaw::read_from_prefix(bytes).unwrap().0.record_count.get());
    let offset = |record: usize| {
        let at = bytes.len() - 2 * (record + 1);
        usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
    };
    assert_eq!(offset(0), 14);
    assert!(offset(count) <= bytes.len() - 2 * (count + 1));
    assert!(bytes[offset(count)..bytes.len() - 2 * (count + 1)].iter().all(|byte| *byte == 0), "free space is zero");
    let split = |record: usize| {
        let (start, end) = (offset(record), offset(record + 1));
        assert!(start < end && start % 2 == 0);
        let key_len = 2 + usize::from(u16::from_be_bytes([bytes[start], bytes[start + 1]]));
        (bytes[start..start + key_len].to_vec(), bytes[start + key_len..end].to_vec())
    };
    (0..count).map(split).collect()
}

/// Who takes which blocks.
#[derive(Default)]
struct Blocks {
    used: BTreeSet<u32>,
}

impl Blocks {
    fn take(&mut self, fork: &ForkRaw, block_size: u32, who: &str) {
        let mut total = 0;
        for extent in fork.extents.iter().map(|raw| Extent::from(*raw)) {
            for block in u64::from(extent.start.0)..extent.end() {
                assert!(self.used.insert(block as u32), "{who} overlaps at block {block}");
            }
            total += extent.count;
        }
        assert_eq!(total, fork.total_blocks.get(), "{who}");
        assert!(fork.logical_size.get() <= u64::from(total) * u64::from(block_size), "{who}");
    }
}

/// Every rule of §17 that a volume of ours can break.
pub(super) fn check(device: &dyn BlockDevice) {
    let len = device.info().len;
    let header: VolumeHeaderRaw = read(device, HEADER_OFFSET);
    assert_eq!(header, read::<VolumeHeaderRaw>(device, len - HEADER_OFFSET), "both headers");
    let parsed = VolumeHeader::parse(&header, HEADER_OFFSET, len).unwrap();
    let block_size = parsed.block_size;
    assert_eq!(u64::from(parsed.total_blocks), len / u64::from(block_size));
    assert!(header.next_allocation.get() < parsed.total_blocks);

    let catalog = check_tree(device, &header.catalog_file, block_size, true);
    let attributes = check_tree(device, &header.attributes_file, block_size, true);
    assert!(check_tree(device, &header.extents_file, block_size, false).is_empty());

    let mut blocks = Blocks::default();
    let special = [&header.allocation_file, &header.extents_file, &header.catalog_file, &header.attributes_file];
    special.into_iter().for_each(|fork| blocks.take(fork, block_size, "special file"));
    check_catalog(&catalog, &attributes, &header, parsed.variant, &mut blocks);
    check_bitmap(device, &parsed, &mut blocks.used);
}

fn check_catalog(catalog: &[Record], attributes: &[Record], header: &VolumeHeaderRaw, variant: Variant, blocks: &mut Blocks) {
    let order = if variant == Variant::Hfsx { NameOrder::Binary } else { NameOrder::Folding };
    let keys: Vec<CatalogKey<'_>> = catalog.iter().map(|(key, _)| CatalogKey::split(key).unwrap().0).collect();
    for two in keys.windows(2) {
        let ascending = (two[0].parent).cmp(&two[1].parent).then_with(|| order.compare(two[0].name, two[1].name));
        assert_eq!(ascending, std::cmp::Ordering::Less, "{:?}", two);
    }
    let with_attributes = check_attributes(attributes, blocks, header.block_size.get());
    let (mut files, mut folders, mut valence, mut subfolders) = (0, 0, BTreeMap::new(), BTreeMap::new());
    let mut threads: BTreeMap<Cnid, (Cnid, Vec<U16>)> = BTreeMap::new();
    let mut objects: BTreeMap<Cnid, (Cnid, Vec<U16>, bool)> = BTreeMap::new();
    for (key, (_, data)) in keys.iter().zip(catalog) {
        let (cnid, flags) = match CatalogRecord::parse(data).unwrap() {
            CatalogRecord::Thread(thread) => {
                assert!(key.name.is_empty());
                assert!(threads.insert(key.parent, (thread.parent, thread.name.to_vec())).is_none());
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
                blocks.take(&file.data_fork, header.block_size.get(), "data fork");
                blocks.take(&file.resource_fork, header.block_size.get(), "resource fork");
                assert_ne!(file.flags.get() & record_flags::THREAD_EXISTS, 0);
                (Cnid(file.file_id.get()), file.flags.get())
            }
        };
        *valence.entry(key.parent).or_insert(0) += 1;
        assert!(cnid == Cnid::ROOT || (Cnid::FIRST_USER..Cnid(header.next_catalog_id.get())).contains(&cnid));
        assert_eq!(flags & record_flags::HAS_ATTRIBUTES != 0, with_attributes.contains(&cnid), "attributes of {cnid}");
        let folder = matches!(CatalogRecord::parse(data), Some(CatalogRecord::Folder(_)));
        assert!(objects.insert(cnid, (key.parent, key.name.to_vec(), folder)).is_none(), "{cnid} twice");
    }
    assert_eq!((files, folders - 1), (header.file_count.get(), header.folder_count.get()));
    assert!(with_attributes.iter().all(|cnid| objects.contains_key(cnid)));
    assert!(threads.iter().all(|(cnid, (parent, name))| objects[cnid].0 == *parent && objects[cnid].1 == *name));
    assert_eq!(threads.len(), objects.len(), "a thread for each object");
    for (_, data) in catalog {
        if let Some(CatalogRecord::Folder(folder)) = CatalogRecord::parse(data) {
            let cnid = Cnid(folder.folder_id.get());
            assert_eq!(folder.valence.get(), valence.get(&cnid).copied().unwrap_or(0), "valence of {cnid}");
            if variant == Variant::Hfsx {
                assert_ne!(folder.flags.get() & record_flags::HAS_FOLDER_COUNT, 0);
                assert_eq!(folder.folder_count.get(), subfolders.get(&cnid).copied().unwrap_or(0), "folders in {cnid}");
            }
        }
    }
    check_links(catalog);
}

/// Every hard link leads to a file proper, whose chain and count are right.
fn check_links(catalog: &[Record]) {
    let files = || {
        catalog.iter().filter_map(|(key, data)| match CatalogRecord::parse(data)? {
            CatalogRecord::File(file) => Some((CatalogKey::split(key)?.0, file)),
            _ => None,
        })
    };
    let by_id: BTreeMap<u32, &FileRaw> = files().map(|(_, file)| (file.file_id.get(), file)).collect();
    let is_link = |file: &FileRaw| (file.user_info.file_type, file.user_info.creator) == FILE_LINK_TYPE;
    let mut reached = 0;
    for (key, inode) in files() {
        let name = String::from_utf16_lossy(&key.name.iter().map(|unit| unit.get()).collect::<Vec<_>>());
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
    assert_eq!(reached as usize, files().filter(|(_, file)| is_link(file)).count(), "links in chains");
}

/// The objects that have attributes.
fn check_attributes(records: &[Record], blocks: &mut Blocks, block_size: u32) -> BTreeSet<Cnid> {
    let keys: Vec<AttributeKey<'_>> = records.iter().map(|(key, _)| AttributeKey::split(key).unwrap().0).collect();
    for two in keys.windows(2) {
        let order = |key: &AttributeKey<'_>| (key.file, key.name.iter().map(|unit| unit.get()).collect::<Vec<_>>());
        assert!(order(&two[0]) < order(&two[1]));
    }
    for (_, data) in records {
        if let AttributeRecord::Fork(fork) = AttributeRecord::parse(data).unwrap() {
            blocks.take(fork, block_size, "attribute");
        }
    }
    keys.iter().map(|key| key.file).collect()
}

fn check_bitmap(device: &dyn BlockDevice, header: &VolumeHeader, used: &mut BTreeSet<u32>) {
    let (block, total) = (header.block_size, header.total_blocks);
    let reserved = (0..1536_u32.div_ceil(block)).chain(total - 1024_u32.div_ceil(block)..total);
    reserved.for_each(|block| assert!(used.insert(block), "block {block} is the header's"));
    let fork = &header.raw.allocation_file;
    let start = AllocBlock(fork.extents[0].start_block.get()).offset(block);
    let bytes = device.read_vec(start, fork.logical_size.get() as usize).unwrap();
    for block in 0..bytes.len() as u32 * 8 {
        let bit = bytes[block as usize / 8] & (0x80 >> (block % 8)) != 0;
        assert_eq!(bit, used.contains(&block), "bit of block {block}");
    }
    assert_eq!(header.free_blocks, total - used.len() as u32);
}

pub(super) fn read<T: FromBytes + zerocopy::IntoBytes>(device: &dyn BlockDevice, offset: u64) -> T {
    let mut value = T::new_zeroed();
    device.read_at(offset, value.as_mut_bytes()).unwrap();
    value
}
