//! Small synthetic containers for tests and for fuzzing: one checkpoint and one volume with the
//! records that the test adds.

use std::collections::BTreeMap;

use zerocopy::{FromZeros, IntoBytes};

use super::layout::{
    CHECKPOINT_MAP_LAST, CONTAINER_MAGIC, CheckpointEntryRaw, CheckpointMapRaw, ContainerRaw,
    DataStreamRaw, DirectoryEntryRaw, EntryRaw, FileExtentRaw, FileId, InodeRaw, NODE_HEADER,
    NodeRaw, OBJECT_HEADER, ObjectRaw, Oid, OmapKeyRaw, OmapRaw, OmapValueRaw, Paddr, RecordKey,
    SpanRaw, TREE_INFO, TreeInfoRaw, VOLUME_MAGIC, VolumeRaw, XFields, XattrRaw, Xid,
    container_incompatible, extent_flags, field_flags, inode_field, mode_type, node_flags,
    object_type, record_type, storage, store_checksum, tree_flags, volume_flags,
    volume_incompatible, xattr_flags, xattr_name,
};
use super::names::NameRules;

/// Block size in bytes.
pub(crate) const BLOCK: usize = 4096;
/// Number of blocks of the container.
const BLOCKS: u64 = 96;
/// Blocks of the structures.
pub(crate) mod at {
    pub(crate) const DESCRIPTORS: u64 = 1;
    pub(crate) const DESCRIPTOR_BLOCKS: u32 = 4;
    pub(crate) const DATA: u64 = 5;
    pub(crate) const DATA_BLOCKS: u32 = 4;
    pub(crate) const OMAP: u64 = 10;
    pub(crate) const OMAP_TREE: u64 = 11;
    pub(crate) const VOLUME: u64 = 12;
    pub(crate) const VOLUME_OMAP: u64 = 13;
    pub(crate) const VOLUME_OMAP_TREE: u64 = 14;
    pub(crate) const FILES: u64 = 15;
    pub(crate) const CONTENTS: u64 = 40;
}
/// The transaction of all objects.
const XID: Xid = Xid(7);
const SPACEMAN: Oid = Oid(0x400);
const VOLUME: Oid = Oid(0x402);
/// Root of the file-system tree; its leaves have the numbers that follow.
pub(crate) const FILES: Oid = Oid(0x404);
/// Maximum length of the records in a leaf, in bytes.
const LEAF: usize = 3000;

/// A key and its value, as on disk.
type RawRecord = (Vec<u8>, Vec<u8>);
/// The sort key of a record.
type RecordOrder = (u64, u8, Vec<u8>);

/// A container to be written.
pub(crate) struct Fixture {
    rules: NameRules,
    records: BTreeMap<RecordOrder, RawRecord>,
    contents: Vec<u8>,
    next: u64,
}

impl Fixture {
    /// Returns a volume with nothing but its root.
    pub(crate) fn new(rules: NameRules) -> Self {
        let mut fixture = Self {
            rules,
            records: BTreeMap::new(),
            contents: Vec::new(),
            next: FileId::FIRST_USER.0,
        };
        fixture.inode(
            FileId::ROOT,
            FileId::ROOT_PARENT,
            mode_type::FOLDER | 0o755,
            &[],
            |_| {},
        );
        fixture
    }

    pub(crate) fn record(&mut self, key: &RecordKey<'_>, value: Vec<u8>) {
        let mut bytes = Vec::new();
        key.put(&mut bytes);
        // Sorted as in the tree: numbers and hashes as numbers, names as bytes.
        let rest = match key.rest {
            super::layout::KeyRest::Single => Vec::new(),
            super::layout::KeyRest::Number(number) => number.to_be_bytes().to_vec(),
            super::layout::KeyRest::Name(name) => name.to_vec(),
            super::layout::KeyRest::Hashed(hash, name) => [&hash.to_be_bytes()[..], name].concat(),
        };
        self.records
            .insert((key.id.0, key.kind, rest), (bytes, value));
    }

    fn inode(
        &mut self,
        id: FileId,
        parent: FileId,
        mode: u16,
        fields: &[(u8, u8, &[u8])],
        change: impl FnOnce(&mut InodeRaw),
    ) {
        let mut inode = InodeRaw::new_zeroed();
        (inode.parent_id, inode.private_id) = (parent.into(), id.into());
        (inode.mode, inode.children_or_links) = (mode.into(), 1.into());
        inode.modified = 1_700_000_000_000_000_000_u64.into();
        change(&mut inode);
        let mut value = inode.as_bytes().to_vec();
        XFields::put(fields, &mut value);
        self.record(&RecordKey::single(id, record_type::INODE), value);
    }

    /// Adds an entry to folder `parent`.
    pub(crate) fn entry(&mut self, parent: FileId, name: &str, id: FileId, mode: u16) {
        let entry = DirectoryEntryRaw {
            file_id: id.into(),
            added: 0.into(),
            flags: (mode >> 12).into(),
        };
        let key = RecordKey::entry(parent, name.as_bytes(), self.rules.hash(name));
        self.record(&key, entry.as_bytes().to_vec());
    }

    fn id(&mut self) -> FileId {
        self.next += 1;
        FileId(self.next - 1)
    }

    pub(crate) fn folder(&mut self, parent: FileId, name: &str) -> FileId {
        let id = self.id();
        self.inode(id, parent, mode_type::FOLDER | 0o755, &[], |_| {});
        self.entry(parent, name, id, mode_type::FOLDER);
        id
    }

    /// Adds a file with these contents.
    pub(crate) fn file(&mut self, parent: FileId, name: &str, contents: &[u8]) -> FileId {
        let id = self.id();
        let stream = self.stream(id, contents);
        let stream = (
            inode_field::DATA_STREAM,
            field_flags::SYSTEM,
            stream.as_bytes(),
        );
        let fields = [(
            inode_field::NAME,
            field_flags::DO_NOT_COPY,
            [name.as_bytes(), b"\0"].concat(),
        )];
        let name_field = (fields[0].0, fields[0].1, &fields[0].2[..]);
        self.inode(
            id,
            parent,
            mode_type::FILE | 0o644,
            &[name_field, stream],
            |_| {},
        );
        self.entry(parent, name, id, mode_type::FILE);
        id
    }

    /// Adds a stream with its contents in one extent, or in none if they are empty.
    fn stream(&mut self, id: FileId, contents: &[u8]) -> DataStreamRaw {
        let block = Paddr(at::CONTENTS + (self.contents.len() / BLOCK) as u64);
        self.contents.extend_from_slice(contents);
        self.contents
            .resize(self.contents.len().next_multiple_of(BLOCK), 0);
        let allocated = contents.len().next_multiple_of(BLOCK) as u64;
        if allocated > 0 {
            self.extent(id, 0, allocated, block);
        }
        let mut stream = DataStreamRaw::new_zeroed();
        (stream.size, stream.allocated) = ((contents.len() as u64).into(), allocated.into());
        stream
    }

    /// Adds an extent of a stream.
    pub(crate) fn extent(&mut self, id: FileId, start: u64, len: u64, block: Paddr) {
        let extent = FileExtentRaw::new(len, block, 0, extent_flags::CRYPTO_ID_IS_TWEAK);
        self.record(
            &RecordKey::numbered(id, record_type::FILE_EXTENT, start),
            extent.as_bytes().to_vec(),
        );
    }

    pub(crate) fn symlink(&mut self, parent: FileId, name: &str, target: &str) -> FileId {
        let id = self.id();
        self.inode(id, parent, mode_type::SYMLINK | 0o755, &[], |_| {});
        self.entry(parent, name, id, mode_type::SYMLINK);
        self.xattr(
            id,
            xattr_name::SYMLINK,
            &[target.as_bytes(), b"\0"].concat(),
        );
        id
    }

    /// Adds an embedded attribute.
    pub(crate) fn xattr(&mut self, id: FileId, name: &str, value: &[u8]) {
        let head = XattrRaw {
            flags: xattr_flags::EMBEDDED.into(),
            len: (value.len() as u16).into(),
        };
        let value = [head.as_bytes(), value].concat();
        self.record(
            &RecordKey::named(id, record_type::XATTR, name.as_bytes()),
            value,
        );
    }

    pub(crate) fn draw(&self) -> Vec<u8> {
        let mut disk = Disk {
            bytes: vec![0; BLOCKS as usize * BLOCK],
        };
        let contents = at::CONTENTS as usize * BLOCK;
        disk.bytes[contents..contents + self.contents.len()].copy_from_slice(&self.contents);
        let nodes = self.nodes();
        let mut mapped = Vec::new();
        for (number, node) in (0..).zip(nodes) {
            disk.put(at::FILES + number, &node);
            mapped.push((Oid(FILES.0 + number), Paddr(at::FILES + number)));
        }
        disk.put(
            at::VOLUME_OMAP_TREE,
            &omap_tree(at::VOLUME_OMAP_TREE, &mapped),
        );
        disk.put(
            at::VOLUME_OMAP,
            &omap(at::VOLUME_OMAP, at::VOLUME_OMAP_TREE, 0),
        );
        disk.put(at::VOLUME, self.superblock().as_bytes());
        disk.put(
            at::OMAP_TREE,
            &omap_tree(at::OMAP_TREE, &[(VOLUME, Paddr(at::VOLUME))]),
        );
        disk.put(at::OMAP, &omap(at::OMAP, at::OMAP_TREE, 1));
        let spaceman = ObjectRaw::new(
            SPACEMAN,
            XID,
            storage::EPHEMERAL | object_type::SPACE_MANAGER,
            0,
        );
        disk.put(at::DATA, spaceman.as_bytes());
        disk.put(at::DESCRIPTORS, &checkpoint_map());
        let container = container();
        disk.put(at::DESCRIPTORS + 1, container.as_bytes());
        disk.put(0, container.as_bytes());
        disk.bytes
    }

    /// Returns the nodes of the file-system tree, the root first.
    fn nodes(&self) -> Vec<Vec<u8>> {
        let mut leaves: Vec<Vec<&RawRecord>> = vec![Vec::new()];
        let mut used = 0;
        for record in self.records.values() {
            let len = record.0.len() + record.1.len() + size_of::<EntryRaw>();
            if used + len > LEAF {
                leaves.push(Vec::new());
                used = 0;
            }
            used += len;
            leaves.last_mut().expect("there is always one").push(record);
        }
        let kind = storage::VIRTUAL | object_type::BTREE_NODE;
        let header = |number: u64, kind| {
            ObjectRaw::new(Oid(FILES.0 + number), XID, kind, object_type::FS_TREE)
        };
        let info = tree_info(
            tree_flags::NOT_ALIGNED,
            (0, 0),
            self.records.len(),
            leaves.len() + 1,
        );
        if let [only] = &leaves[..] {
            let records: Vec<_> = only
                .iter()
                .map(|record| (&record.0[..], &record.1[..]))
                .collect();
            let header = header(0, storage::VIRTUAL | object_type::BTREE_ROOT);
            return vec![node(header, 0, &records, None, Some(&info))];
        }
        let children: Vec<_> = (1..)
            .zip(&leaves)
            .map(|(number, leaf)| (&leaf[0].0[..], (FILES.0 + number).to_le_bytes()))
            .collect();
        let children: Vec<_> = children.iter().map(|(key, oid)| (*key, &oid[..])).collect();
        let root = node(
            header(0, storage::VIRTUAL | object_type::BTREE_ROOT),
            1,
            &children,
            None,
            Some(&info),
        );
        let leaf = |(number, leaf): (u64, &Vec<&RawRecord>)| {
            let records: Vec<_> = leaf
                .iter()
                .map(|record| (&record.0[..], &record.1[..]))
                .collect();
            node(header(number, kind), 0, &records, None, None)
        };
        std::iter::once(root)
            .chain((1..).zip(&leaves).map(leaf))
            .collect()
    }

    fn superblock(&self) -> VolumeRaw {
        let mut raw = VolumeRaw::new_zeroed();
        raw.object = ObjectRaw::new(VOLUME, XID, object_type::VOLUME, 0);
        (raw.magic, raw.uuid) = (VOLUME_MAGIC, [7; 16]);
        let rules = match self.rules {
            NameRules::Bytes => 0,
            NameRules::CaseSensitive => volume_incompatible::NORMALIZATION_INSENSITIVE,
            NameRules::CaseInsensitive => volume_incompatible::CASE_INSENSITIVE,
        };
        (raw.incompatible_features, raw.flags) = (rules.into(), volume_flags::UNENCRYPTED.into());
        (raw.root_tree_type, raw.omap_oid) =
            (object_type::BTREE_ROOT.into(), at::VOLUME_OMAP.into());
        (raw.root_tree_oid, raw.next_file_id) = (FILES.into(), self.next.into());
        raw.name[..6].copy_from_slice(b"Sketch");
        raw
    }
}

struct Disk {
    bytes: Vec<u8>,
}

impl Disk {
    /// Writes an object to a block and updates its checksum.
    fn put(&mut self, block: u64, object: &[u8]) {
        let start = block as usize * BLOCK;
        let place = &mut self.bytes[start..start + BLOCK];
        place[..object.len()].copy_from_slice(object);
        store_checksum(place);
    }
}

/// Updates the checksum of every block that looks like an object, so that parsers accept changes in
/// it.
pub fn reseal(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(BLOCK) {
        let kind = u16::from_le_bytes([block[0x18], block[0x19]]);
        if kind != 0
            && u32::from(kind) <= object_type::FEXT_TREE
            && block[..OBJECT_HEADER].iter().any(|&byte| byte != 0)
        {
            store_checksum(block);
        }
    }
}

fn container() -> ContainerRaw {
    let mut raw = ContainerRaw::new_zeroed();
    raw.object = ObjectRaw::new(
        Oid::CONTAINER,
        XID,
        storage::EPHEMERAL | object_type::CONTAINER,
        0,
    );
    (raw.magic, raw.uuid) = (CONTAINER_MAGIC, [9; 16]);
    (raw.block_size, raw.block_count) = ((BLOCK as u32).into(), BLOCKS.into());
    raw.incompatible_features = container_incompatible::VERSION_2.into();
    (raw.desc_base, raw.desc_blocks, raw.desc_len) = (
        at::DESCRIPTORS.into(),
        at::DESCRIPTOR_BLOCKS.into(),
        2.into(),
    );
    (raw.data_base, raw.data_blocks, raw.data_len) =
        (at::DATA.into(), at::DATA_BLOCKS.into(), 1.into());
    (raw.spaceman_oid, raw.omap_oid) = (SPACEMAN.into(), at::OMAP.into());
    (raw.next_oid, raw.next_xid, raw.max_volumes) = (0x500.into(), (XID.0 + 1).into(), 1.into());
    raw.volume_oids[0] = VOLUME.into();
    raw
}

fn checkpoint_map() -> Vec<u8> {
    let object = ObjectRaw::new(
        Oid(at::DESCRIPTORS),
        XID,
        storage::PHYSICAL | object_type::CHECKPOINT_MAP,
        0,
    );
    let head = CheckpointMapRaw {
        object,
        flags: CHECKPOINT_MAP_LAST.into(),
        count: 1.into(),
    };
    let mut entry = CheckpointEntryRaw::new_zeroed();
    entry.kind = (storage::EPHEMERAL | object_type::SPACE_MANAGER).into();
    (entry.size, entry.oid, entry.paddr) =
        ((BLOCK as u32).into(), SPACEMAN.into(), at::DATA.into());
    [head.as_bytes(), entry.as_bytes()].concat()
}

fn omap(block: u64, tree: u64, flags: u32) -> Vec<u8> {
    let mut raw = OmapRaw::new_zeroed();
    raw.object = ObjectRaw::new(Oid(block), XID, storage::PHYSICAL | object_type::OMAP, 0);
    (raw.flags, raw.tree_oid) = (flags.into(), tree.into());
    raw.as_bytes().to_vec()
}

fn omap_tree(block: u64, mapped: &[(Oid, Paddr)]) -> Vec<u8> {
    let record = |&(oid, paddr): &(Oid, Paddr)| {
        let key = OmapKeyRaw {
            oid: oid.into(),
            xid: XID.into(),
        };
        let value = OmapValueRaw {
            flags: 0.into(),
            size: (BLOCK as u32).into(),
            paddr: paddr.into(),
        };
        (key.as_bytes().to_vec(), value.as_bytes().to_vec())
    };
    let records: Vec<_> = mapped.iter().map(record).collect();
    let records: Vec<_> = records
        .iter()
        .map(|(key, value)| (&key[..], &value[..]))
        .collect();
    let header = ObjectRaw::new(
        Oid(block),
        XID,
        storage::PHYSICAL | object_type::BTREE_ROOT,
        object_type::OMAP,
    );
    node(
        header,
        0,
        &records,
        Some(4),
        Some(&tree_info(tree_flags::PHYSICAL, (16, 16), mapped.len(), 1)),
    )
}

fn tree_info(flags: u32, sizes: (u32, u32), keys: usize, nodes: usize) -> TreeInfoRaw {
    let mut info = TreeInfoRaw::new_zeroed();
    (info.flags, info.node_size) = (flags.into(), (BLOCK as u32).into());
    (info.key_size, info.value_size) = (sizes.0.into(), sizes.1.into());
    (info.key_count, info.node_count) = ((keys as u64).into(), (nodes as u64).into());
    info
}

/// Returns a node with these records. `fixed` is the length of an entry of the table if keys and
/// values have fixed lengths.
fn node(
    object: ObjectRaw,
    level: u16,
    records: &[(&[u8], &[u8])],
    fixed: Option<usize>,
    info: Option<&TreeInfoRaw>,
) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let table = records.len() * fixed.unwrap_or(size_of::<EntryRaw>());
    let end = BLOCK - if info.is_some() { TREE_INFO } else { 0 };
    let (mut keys, mut values) = (0, 0);
    for (index, (key, value)) in records.iter().enumerate() {
        let start = NODE_HEADER + table + keys;
        block[start..start + key.len()].copy_from_slice(key);
        values += value.len();
        block[end - values..end - values + value.len()].copy_from_slice(value);
        let entry = match fixed {
            Some(_) => [(keys as u16).to_le_bytes(), (values as u16).to_le_bytes()].concat(),
            None => {
                let key = SpanRaw::new(keys as u16, key.len() as u16);
                EntryRaw {
                    key,
                    value: SpanRaw::new(values as u16, value.len() as u16),
                }
                .as_bytes()
                .to_vec()
            }
        };
        let at = NODE_HEADER + index * entry.len();
        block[at..at + entry.len()].copy_from_slice(&entry);
        keys += key.len();
    }
    let free = end - NODE_HEADER - table - keys - values;
    let flag = |set: bool, flag: u16| if set { flag } else { 0 };
    let flags = flag(info.is_some(), node_flags::ROOT)
        | flag(level == 0, node_flags::LEAF)
        | flag(fixed.is_some(), node_flags::FIXED);
    let head = NodeRaw {
        object,
        flags: flags.into(),
        level: level.into(),
        count: (records.len() as u32).into(),
        table: SpanRaw::new(0, table as u16),
        free: SpanRaw::new(keys as u16, free as u16),
        key_free_list: SpanRaw::NO_LIST,
        value_free_list: SpanRaw::NO_LIST,
    };
    block[..NODE_HEADER].copy_from_slice(head.as_bytes());
    if let Some(info) = info {
        block[end..].copy_from_slice(info.as_bytes());
    }
    block
}

/// Returns a volume with one object of every kind, in several leaves.
pub(crate) fn sample(rules: NameRules) -> Vec<u8> {
    let mut fixture = Fixture::new(rules);
    let docs = fixture.folder(FileId::ROOT, "docs");
    let file = fixture.file(docs, "file.txt", b"deep down");
    fixture.xattr(file, "user.color", b"blue");
    fixture.xattr(
        file,
        xattr_name::FINDER_INFO,
        b"TEXTttxt\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    );
    fixture.entry(FileId::ROOT, "same.txt", file, mode_type::FILE);
    fixture.file(FileId::ROOT, "empty", b"");
    fixture.file(FileId::ROOT, "Größe é 漢字", &[7; 10_000]);
    fixture.symlink(FileId::ROOT, "link", "docs/file.txt");
    let many = fixture.folder(FileId::ROOT, "many");
    for number in 0..60 {
        fixture.file(many, &format!("entry number {number:03}"), b"");
    }
    fixture.draw()
}
