//! Volumes assembled record by record, with any errors, for cases without a real image. Nodes have
//! the minimum size of the format, so that few records make deep trees.

use std::sync::Arc;

use zerocopy::big_endian::U16;
use zerocopy::{FromZeros, IntoBytes};

use super::super::HfsPlus;
use super::super::btree::KeyOrder;
use super::super::layout::{
    AllocBlock, AttributeKey, BIG_KEYS, BsdInfoRaw, CatalogKey, Cnid, EXTENTS_KEY_LENGTH, Extent,
    ExtentKeyRaw, ExtentRecordRaw, ExtentsRaw, FileRaw, FolderRaw, ForkRaw, HEADER_OFFSET,
    InlineAttributeHeadRaw, KEY_COMPARE_BINARY, KEY_COMPARE_FOLD, NodeDescriptorRaw,
    SIGNATURE_HFS_PLUS, SIGNATURE_HFSX, Thread, TreeHeaderRaw, VARIABLE_INDEX_KEYS, Variant,
    VolumeHeaderRaw, attribute_type, node_kind, record_flags, record_type, volume_attributes,
};
use super::super::unicode::NameOrder;
use bandsaw_core::Result;
use bandsaw_core::device::Memory;

pub(super) const BLOCK: u32 = 512;
pub(super) const NODE: u16 = 512;
const NODE_LEN: usize = NODE as usize;

/// A volume that is being assembled.
pub(super) struct Fixture {
    pub(super) variant: Variant,
    pub(super) names: NameOrder,
    pub(super) header: VolumeHeaderRaw,
    pub(super) catalog: Vec<Vec<u8>>,
    pub(super) overflow: Vec<Vec<u8>>,
    pub(super) attributes: Vec<Vec<u8>>,
    data: Vec<u8>,
    next_id: u32,
}

/// The assembled volume.
pub(super) struct Drawn {
    pub(super) bytes: Vec<u8>,
    /// Offset of the catalog in bytes.
    pub(super) catalog: usize,
    pub(super) catalog_nodes: usize,
}

impl Fixture {
    /// Creates an empty volume named "Sketch".
    pub(super) fn new(variant: Variant, names: NameOrder) -> Self {
        let header = VolumeHeaderRaw::new_zeroed();
        let first_blocks = vec![0; 3 * BLOCK as usize];
        let (catalog, overflow, attributes) = Default::default();
        let mut fixture = Self {
            variant,
            names,
            header,
            catalog,
            overflow,
            attributes,
            data: first_blocks,
            next_id: 16,
        };
        fixture.add_folder(Cnid::ROOT_PARENT, "Sketch", Cnid::ROOT, |_| {});
        fixture
    }

    /// Creates a volume with case-insensitive names, like most.
    pub(super) fn plain() -> Self {
        Self::new(Variant::HfsPlus, NameOrder::Folding)
    }

    pub(super) fn new_id(&mut self) -> Cnid {
        self.next_id += 1;
        Cnid(self.next_id)
    }

    /// Adds a folder, with its record changed by `change` before it is written.
    pub(super) fn folder(
        &mut self,
        parent: Cnid,
        name: &str,
        change: impl FnOnce(&mut FolderRaw),
    ) -> Cnid {
        let id = self.new_id();
        self.add_folder(parent, name, id, change);
        id
    }

    fn add_folder(
        &mut self,
        parent: Cnid,
        name: &str,
        id: Cnid,
        change: impl FnOnce(&mut FolderRaw),
    ) {
        let bsd = BsdInfoRaw {
            file_mode: 0o040_755.into(),
            ..Default::default()
        };
        let mut folder = FolderRaw {
            record_type: record_type::FOLDER.into(),
            folder_id: id.0.into(),
            bsd,
            ..Default::default()
        };
        folder.dates.create = 3_000_000_000.into();
        change(&mut folder);
        self.record(parent, name, folder.as_bytes());
        self.thread(id, parent, name, true);
    }

    /// Adds a file with these contents, with its record changed by `change` before it is written.
    pub(super) fn file(
        &mut self,
        parent: Cnid,
        name: &str,
        contents: &[u8],
        change: impl FnOnce(&mut FileRaw),
    ) -> Cnid {
        let id = self.new_id();
        let extent = self.store(contents);
        let mut file = FileRaw {
            record_type: record_type::FILE.into(),
            flags: record_flags::THREAD_EXISTS.into(),
            file_id: id.0.into(),
            bsd: BsdInfoRaw {
                file_mode: 0o100_644.into(),
                special: 1.into(),
                ..Default::default()
            },
            data_fork: fork(contents.len() as u64, extent.count, &[extent]),
            ..Default::default()
        };
        file.dates.create = 3_100_000_000.into();
        change(&mut file);
        self.record(parent, name, file.as_bytes());
        self.thread(id, parent, name, false);
        id
    }

    /// Adds a catalog record of any kind.
    pub(super) fn record(&mut self, parent: Cnid, name: &str, data: &[u8]) {
        let mut record = Vec::new();
        CatalogKey {
            parent,
            name: &units(name),
        }
        .put(&mut record);
        record.extend_from_slice(data);
        self.catalog.push(record);
    }

    pub(super) fn thread(&mut self, id: Cnid, parent: Cnid, name: &str, folder: bool) {
        let mut thread = Vec::new();
        Thread {
            parent,
            name: &units(name),
            folder,
        }
        .put(&mut thread);
        self.record(id, "", &thread);
    }

    /// Adds a record of the extents-overflow tree.
    pub(super) fn more_extents(
        &mut self,
        file: Cnid,
        fork_type: u8,
        start_block: u32,
        extents: &[Extent],
    ) {
        let key_length = EXTENTS_KEY_LENGTH.into();
        let key = ExtentKeyRaw {
            key_length,
            fork_type,
            pad: 0,
            file_id: file.0.into(),
            start_block: start_block.into(),
        };
        self.overflow.push(
            ExtentRecordRaw {
                key,
                extents: extents_raw(extents),
            }
            .as_bytes()
            .to_vec(),
        );
    }

    /// Adds a record of the attributes tree.
    pub(super) fn attribute(&mut self, file: Cnid, name: &str, start_block: u32, data: &[u8]) {
        let mut record = Vec::new();
        AttributeKey {
            file,
            name: &units(name),
            start_block,
        }
        .put(&mut record);
        record.extend_from_slice(data);
        self.attributes.push(record);
    }

    pub(super) fn inline_attribute(&mut self, file: Cnid, name: &str, value: &[u8]) {
        let size = u32::try_from(value.len()).unwrap().into();
        let head = InlineAttributeHeadRaw {
            record_type: attribute_type::INLINE.into(),
            size,
            ..Default::default()
        };
        self.attribute(file, name, 0, &[head.as_bytes(), value].concat());
    }

    /// Writes `bytes` to the next free blocks.
    pub(super) fn store(&mut self, bytes: &[u8]) -> Extent {
        if bytes.is_empty() {
            return Extent::NONE;
        }
        let start = AllocBlock(u32::try_from(self.data.len()).unwrap() / BLOCK);
        self.data.extend_from_slice(bytes);
        self.data
            .resize(self.data.len().next_multiple_of(BLOCK as usize), 0);
        Extent {
            start,
            count: u32::try_from(self.data.len()).unwrap() / BLOCK - start.0,
        }
    }

    /// Writes `bytes` one block at a time with gaps in between.
    pub(super) fn scatter(&mut self, bytes: &[u8]) -> Vec<Extent> {
        let mut scattered = Vec::new();
        for block in bytes.chunks(BLOCK as usize) {
            scattered.push(self.store(block));
            self.store(b"a gap");
        }
        scattered
    }

    /// Assembles the volume.
    pub(super) fn draw(mut self) -> Drawn {
        let compare = if self.names == NameOrder::Binary {
            KEY_COMPARE_BINARY
        } else {
            KEY_COMPARE_FOLD
        };
        let overflow = tree(&mut self.overflow, KeyOrder::Extents, 10, BIG_KEYS, 0);
        let attributes = tree(
            &mut self.attributes,
            KeyOrder::Attributes,
            266,
            BIG_KEYS | VARIABLE_INDEX_KEYS,
            0,
        );
        let catalog = tree(
            &mut self.catalog,
            KeyOrder::Catalog(self.names),
            516,
            BIG_KEYS | VARIABLE_INDEX_KEYS,
            compare,
        );
        let special = |extent: Extent| {
            fork(
                u64::from(extent.count) * u64::from(BLOCK),
                extent.count,
                &[extent],
            )
        };

        self.header.extents_file = special(self.store(&overflow));
        self.header.attributes_file = special(self.store(&attributes));
        let catalog_at = self.data.len();
        self.header.catalog_file = special(self.store(&catalog));
        self.store(&[0; 2 * BLOCK as usize]);

        let (signature, version) = match self.variant {
            Variant::HfsPlus => (SIGNATURE_HFS_PLUS, 4),
            Variant::Hfsx => (SIGNATURE_HFSX, 5),
        };
        self.header.signature = signature.into();
        self.header.version = version.into();
        self.header.attributes =
            (self.header.attributes.get() ^ volume_attributes::UNMOUNTED).into();
        self.header.block_size = BLOCK.into();
        self.header.total_blocks = (u32::try_from(self.data.len()).unwrap() / BLOCK).into();
        let mut bytes = self.data;
        let alternate = bytes.len() - HEADER_OFFSET as usize;
        for at in [HEADER_OFFSET as usize, alternate] {
            bytes[at..at + 512].copy_from_slice(self.header.as_bytes());
        }
        Drawn {
            bytes,
            catalog: catalog_at,
            catalog_nodes: catalog.len() / NODE_LEN,
        }
    }

    pub(super) fn open(self) -> Result<HfsPlus> {
        self.draw().open()
    }
}

impl Drawn {
    pub(super) fn open(self) -> Result<HfsPlus> {
        HfsPlus::open(Arc::new(Memory::read_only(self.bytes)))
    }

    /// Returns node `number` of the catalog.
    pub(super) fn node(&mut self, number: usize) -> &mut [u8] {
        &mut self.bytes[self.catalog + number * NODE_LEN..][..NODE_LEN]
    }

    /// Returns the numbers of the catalog's nodes of this kind, in ascending order.
    pub(super) fn nodes_of(&mut self, kind: i8) -> Vec<usize> {
        (1..self.catalog_nodes)
            .filter(|&number| self.node(number)[8].cast_signed() == kind)
            .collect()
    }
}

pub(super) fn fork(len: u64, blocks: u32, extents: &[Extent]) -> ForkRaw {
    ForkRaw {
        logical_size: len.into(),
        clump_size: 0.into(),
        total_blocks: blocks.into(),
        extents: extents_raw(extents),
    }
}

pub(super) fn extents_raw(extents: &[Extent]) -> ExtentsRaw {
    let mut raw = ExtentsRaw::default();
    for (raw, extent) in raw.iter_mut().zip(extents) {
        *raw = (*extent).into();
    }
    raw
}

/// Returns the UTF-16 units of a name, which must be in its on-disk form.
pub(super) fn units(name: &str) -> Vec<U16> {
    name.encode_utf16().map(U16::new).collect()
}

/// Builds a tree of these records, which are sorted first.
fn tree(
    records: &mut [Vec<u8>],
    order: KeyOrder,
    max_key_length: u16,
    attributes: u32,
    key_compare_type: u8,
) -> Vec<u8> {
    records.sort_by(|a, b| order.compare(a, b).unwrap());
    let mut nodes = vec![[0; NODE_LEN]];
    let mut header = TreeHeaderRaw::new_zeroed();
    header.leaf_records = u32::try_from(records.len()).unwrap().into();
    let mut level: Vec<Vec<u8>> = records.to_vec();
    let mut depth = 0_u8;
    while depth == 0 || level.len() > 1 {
        if level.is_empty() {
            break;
        }
        depth += 1;
        let first = nodes.len();
        let kind = if depth == 1 {
            node_kind::LEAF
        } else {
            node_kind::INDEX
        };
        level = pack(&level, &mut nodes, kind, depth);
        if depth == 1 {
            header.first_leaf_node = u32::try_from(first).unwrap().into();
            header.last_leaf_node = u32::try_from(nodes.len() - 1).unwrap().into();
        }
        header.root_node = u32::try_from(nodes.len() - 1).unwrap().into();
    }
    header.tree_depth = u16::from(depth).into();
    header.node_size = NODE.into();
    header.max_key_length = max_key_length.into();
    header.total_nodes = u32::try_from(nodes.len()).unwrap().into();
    header.attributes = attributes.into();
    header.key_compare_type = key_compare_type;
    nodes[0] = node(
        NodeDescriptorRaw {
            kind: node_kind::HEADER,
            ..head(0, 0)
        },
        &[header.as_bytes(), &[0; 128], &[0; 256]],
    );
    nodes.concat()
}

fn head(kind: i8, height: u8) -> NodeDescriptorRaw {
    NodeDescriptorRaw {
        kind,
        height,
        ..NodeDescriptorRaw::new_zeroed()
    }
}

/// Packs records into nodes of one level; returns the records of the level above.
fn pack(
    records: &[Vec<u8>],
    nodes: &mut Vec<[u8; NODE_LEN]>,
    kind: i8,
    height: u8,
) -> Vec<Vec<u8>> {
    let mut groups: Vec<Vec<&[u8]>> = vec![Vec::new()];
    let mut room = NODE_LEN - 14 - 2;
    for record in records {
        assert!(
            record.len() + 2 <= NODE_LEN - 16,
            "records of sketches are short"
        );
        if record.len().next_multiple_of(2) + 2 > room {
            groups.push(Vec::new());
            room = NODE_LEN - 14 - 2;
        }
        room -= record.len().next_multiple_of(2) + 2;
        groups.last_mut().unwrap().push(record);
    }
    let (first, last) = (nodes.len(), nodes.len() + groups.len() - 1);
    let mut above = Vec::new();
    for (group, number) in groups.iter().zip(first..) {
        let link = |number| u32::try_from(number).unwrap().into();
        let next = if number == last { 0 } else { number + 1 };
        let previous = if number == first { 0 } else { number - 1 };
        let links = NodeDescriptorRaw {
            forward_link: link(next),
            backward_link: link(previous),
            ..head(kind, height)
        };
        nodes.push(node(links, group));
        let key = 2 + usize::from(u16::from_be_bytes([group[0][0], group[0][1]]));
        above.push(
            [
                &group[0][..key],
                &u32::try_from(number).unwrap().to_be_bytes(),
            ]
            .concat(),
        );
    }
    above
}

fn node(mut head: NodeDescriptorRaw, records: &[&[u8]]) -> [u8; NODE_LEN] {
    let mut bytes = [0; NODE_LEN];
    head.record_count = u16::try_from(records.len()).unwrap().into();
    bytes[..14].copy_from_slice(head.as_bytes());
    let (mut at, mut entry) = (14, NODE_LEN - 2);
    for record in records {
        // The map record of the header extends to the end of the node here; its tail is replaced by
        // the offsets.
        let len = record.len().min(entry - 2 - at);
        bytes[at..at + len].copy_from_slice(&record[..len]);
        bytes[entry..entry + 2].copy_from_slice(&u16::try_from(at).unwrap().to_be_bytes());
        (at, entry) = (at + len.next_multiple_of(2), entry - 2);
    }
    bytes[entry..entry + 2].copy_from_slice(&u16::try_from(at).unwrap().to_be_bytes());
    bytes
}
