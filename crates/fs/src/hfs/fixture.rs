//! Volumes of HFS for tests, written by the rules of `docs/formats/hfs.md`.

use zerocopy::{FromZeros, IntoBytes};

use super::layout::{
    EXTENT_KEY_LENGTH, ExtentRaw, ExtentRecordRaw, ExtentsRaw, FILE_HAS_THREAD, FILE_LOCKED,
    FileRaw, FolderRaw, ForkRaw, MAX_NAME, MasterDirectoryBlockRaw, NODE_SIZE, SIGNATURE,
    ThreadHeadRaw, cnid, fork_type, record_type, volume_attributes,
};
use super::names;
use crate::btree_node::{FIRST_RECORD, NodeDescriptorRaw, TreeHeaderRaw, node_kind};

/// 2023-11-14 22:13:20 on the clock of a Mac.
pub const DATE: u32 = 1_700_000_000 + 2_082_844_800;
/// Number of the root folder.
pub const ROOT: u32 = cnid::ROOT;

const SECTOR: usize = 512;
/// Offset of the bitmap in sectors.
const BITMAP_START: usize = 3;
/// Number of free blocks at the end of a volume.
const SPARE: usize = 4;
/// Length of a catalog key in an index node, without its length field.
const CATALOG_KEY_LENGTH: u8 = 37;

/// A volume to be written.
#[derive(Debug)]
pub struct Fixture {
    name: Vec<u8>,
    block_size: usize,
    /// Contents of the allocation blocks.
    blocks: Vec<u8>,
    /// True for each allocated block.
    used: Vec<bool>,
    catalog: Vec<CatalogEntry>,
    overflow: Vec<ExtentRecordRaw>,
    next_id: u32,
    /// Number of extents of the catalog file.
    catalog_pieces: usize,
    /// True if names are sorted by their bytes, which is wrong.
    sorts_bytes: bool,
}

/// A file to be added.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "their names")]
pub struct NewFile {
    pub data: Vec<u8>,
    pub resource: Vec<u8>,
    /// Number of extents of each fork; 0 counts as 1.
    pub pieces: usize,
    pub type_and_creator: [u8; 8],
    pub finder_flags: u16,
    pub is_locked: bool,
    pub has_thread: bool,
}

impl NewFile {
    /// Returns a file with this data fork.
    pub fn new(data: &[u8]) -> Self {
        Self {
            data: data.to_vec(),
            ..Self::default()
        }
    }
}

#[derive(Debug)]
struct CatalogEntry {
    parent: u32,
    name: Vec<u8>,
    id: u32,
    /// `None`: a folder.
    file: Option<FileRaw>,
}

impl Fixture {
    /// Returns an empty volume.
    pub fn new(name: &str, block_size: usize) -> Self {
        let root = CatalogEntry {
            parent: cnid::ROOT_PARENT,
            name: name.into(),
            id: cnid::ROOT,
            file: None,
        };
        Self {
            name: name.into(),
            block_size,
            blocks: Vec::new(),
            used: Vec::new(),
            catalog: vec![root],
            overflow: Vec::new(),
            next_id: cnid::FIRST_USER,
            catalog_pieces: 1,
            sorts_bytes: false,
        }
    }

    /// Stores the catalog file in this number of extents.
    #[must_use]
    pub fn catalog_pieces(mut self, pieces: usize) -> Self {
        self.catalog_pieces = pieces;
        self
    }

    /// Sorts names by their bytes, which Mac OS does not.
    #[must_use]
    pub fn sort_bytes(mut self) -> Self {
        self.sorts_bytes = true;
        self
    }

    /// Adds a folder; returns its number.
    pub fn folder(&mut self, parent: u32, name: impl AsRef<[u8]>) -> u32 {
        self.entry(parent, name.as_ref(), None)
    }

    /// Adds a file with a MacRoman name; returns its number.
    pub fn file(&mut self, parent: u32, name: impl AsRef<[u8]>, new: &NewFile) -> u32 {
        let id = self.next_id;
        let mut file = FileRaw {
            record_type: record_type::FILE,
            file_id: id.into(),
            ..FileRaw::default()
        };
        file.dates.create = DATE.into();
        file.dates.modify = (DATE + 60).into();
        file.user_info.as_mut_bytes()[..8].copy_from_slice(&new.type_and_creator);
        file.user_info.flags = new.finder_flags.into();
        if new.is_locked {
            file.flags |= FILE_LOCKED;
        }
        if new.has_thread {
            file.flags |= FILE_HAS_THREAD;
        }
        (file.data, file.data_extents) =
            self.fork(id, fork_type::DATA, &new.data, new.pieces.max(1));
        (file.resource, file.resource_extents) =
            self.fork(id, fork_type::RESOURCE, &new.resource, new.pieces.max(1));
        self.entry(parent, name.as_ref(), Some(file))
    }

    fn entry(&mut self, parent: u32, name: &[u8], file: Option<FileRaw>) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        self.catalog.push(CatalogEntry {
            parent,
            name: name.to_vec(),
            id,
            file,
        });
        id
    }

    /// Stores a fork; returns its sizes and first extents.
    fn fork(&mut self, id: u32, kind: u8, bytes: &[u8], pieces: usize) -> (ForkRaw, ExtentsRaw) {
        let blocks = bytes.len().div_ceil(self.block_size);
        let mut extents: Vec<ExtentRaw> = Vec::new();
        let mut rest = bytes;
        for piece in 0..pieces {
            let count = (blocks * (piece + 1)) / pieces - blocks * piece / pieces;
            if count == 0 {
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min(count * self.block_size));
            extents.push(ExtentRaw {
                start_block: (self.used.len() as u16).into(),
                block_count: (count as u16).into(),
            });
            self.push_blocks(now, count, true);
            rest = later;
            if pieces > 1 {
                // Neighbors would be one extent.
                self.push_blocks(&[0xEE; 8], 1, false);
            }
        }
        let mut lists = extents.chunks(3).map(|chunk| {
            let mut list = ExtentsRaw::default();
            list[..chunk.len()].copy_from_slice(chunk);
            list
        });
        let first = lists.next().unwrap_or_default();
        let count_of = |list: &ExtentsRaw| -> u16 {
            let counts = list.iter().map(|extent| extent.block_count.get());
            counts.sum()
        };
        let mut start_block = count_of(&first);
        for extents in lists {
            self.overflow.push(ExtentRecordRaw {
                key_length: EXTENT_KEY_LENGTH,
                fork_type: kind,
                file_id: id.into(),
                start_block: start_block.into(),
                extents,
            });
            start_block += count_of(&extents);
        }
        let raw = ForkRaw {
            start_block: 0.into(),
            logical_size: (bytes.len() as u32).into(),
            physical_size: ((blocks * self.block_size) as u32).into(),
        };
        (raw, first)
    }

    fn push_blocks(&mut self, bytes: &[u8], count: usize, used: bool) {
        self.blocks.extend(bytes);
        self.used.resize(self.used.len() + count, used);
        self.blocks.resize(self.used.len() * self.block_size, 0);
    }

    /// Returns the bytes of the volume.
    pub fn build(mut self) -> Vec<u8> {
        let nodes = self.block_size / NODE_SIZE;
        let catalog = tree(&self.catalog_records(), CATALOG_KEY_LENGTH, nodes);
        let (catalog_fork, catalog_extents) = self.fork(
            cnid::CATALOG,
            fork_type::DATA,
            &catalog,
            self.catalog_pieces,
        );
        let overflow = tree(&self.overflow_records(), EXTENT_KEY_LENGTH, nodes);
        let (overflow_fork, overflow_extents) =
            self.fork(cnid::EXTENTS, fork_type::DATA, &overflow, 1);
        self.push_blocks(&[], SPARE, false);

        let total = self.used.len();
        let first_block = BITMAP_START + total.div_ceil(SECTOR * 8);
        let mut bytes = vec![0; first_block * SECTOR];
        for (number, _) in self.used.iter().enumerate().filter(|(_, used)| **used) {
            bytes[BITMAP_START * SECTOR + number / 8] |= 0x80 >> (number % 8);
        }
        bytes.extend(&self.blocks);
        bytes.resize(bytes.len() + 2 * SECTOR, 0);

        let mut mdb = MasterDirectoryBlockRaw::new_zeroed();
        mdb.signature = SIGNATURE.into();
        mdb.create_date = DATE.into();
        mdb.modify_date = (DATE + 120).into();
        mdb.attributes = volume_attributes::UNMOUNTED.into();
        mdb.bitmap_start = (BITMAP_START as u16).into();
        mdb.total_blocks = (total as u16).into();
        mdb.block_size = (self.block_size as u32).into();
        mdb.first_block = (first_block as u16).into();
        mdb.next_catalog_id = self.next_id.into();
        let free = self.used.iter().filter(|used| !**used).count();
        mdb.free_blocks = (free as u16).into();
        mdb.name[0] = self.name.len() as u8;
        mdb.name[1..=self.name.len()].copy_from_slice(&self.name);
        let files = self.catalog.iter().filter(|entry| entry.file.is_some());
        let files = files.count();
        mdb.file_count = (files as u32).into();
        let in_root = |entry: &&CatalogEntry| entry.parent == cnid::ROOT;
        let root_files = |entry: &&CatalogEntry| entry.file.is_some();
        let root_files = self.catalog.iter().filter(in_root).filter(root_files);
        let root_files = root_files.count() as u16;
        let in_root = self.catalog.iter().filter(in_root).count() as u16;
        mdb.root_files = root_files.into();
        mdb.root_folders = (in_root - root_files).into();
        for clump in [
            &mut mdb.clump_size,
            &mut mdb.extents_clump_size,
            &mut mdb.catalog_clump_size,
        ] {
            *clump = (self.block_size as u32).into();
        }
        mdb.folder_count = ((self.catalog.len() - files - 1) as u32).into();
        mdb.extents_file_size = overflow_fork.logical_size;
        mdb.extents_file = overflow_extents;
        mdb.catalog_file_size = catalog_fork.logical_size;
        mdb.catalog_file = catalog_extents;
        let alternate = bytes.len() - 2 * SECTOR;
        for at in [2 * SECTOR, alternate] {
            bytes[at..at + size_of_val(&mdb)].copy_from_slice(mdb.as_bytes());
        }
        bytes
    }

    /// Returns the records of the catalog in their order: keys and data.
    fn catalog_records(&self) -> Vec<TreeRecord> {
        let mut records = Vec::new();
        for entry in &self.catalog {
            let data = match &entry.file {
                Some(file) => file.as_bytes().to_vec(),
                None => {
                    let of = self.catalog.iter().filter(|other| other.parent == entry.id);
                    let mut folder = FolderRaw {
                        record_type: record_type::FOLDER,
                        valence: (of.count() as u16).into(),
                        folder_id: entry.id.into(),
                        ..FolderRaw::default()
                    };
                    folder.dates.create = DATE.into();
                    folder.dates.modify = DATE.into();
                    folder.as_bytes().to_vec()
                }
            };
            records.push((entry.parent, entry.name.clone(), data));
            let has_thread = entry
                .file
                .is_none_or(|file| file.flags & FILE_HAS_THREAD != 0);
            if has_thread {
                let mut thread = ThreadHeadRaw::new_zeroed();
                thread.record_type = match entry.file {
                    Some(_) => record_type::FILE_THREAD,
                    None => record_type::FOLDER_THREAD,
                };
                thread.parent_id = entry.parent.into();
                let mut data = thread.as_bytes().to_vec();
                data.push(entry.name.len() as u8);
                data.extend(&entry.name);
                data.resize(size_of_val(&thread) + 1 + MAX_NAME, 0);
                records.push((entry.id, Vec::new(), data));
            }
        }
        records.sort_by(|(a_parent, a, _), (b_parent, b, _)| {
            let by_name = || match self.sorts_bytes {
                true => a.cmp(b),
                false => names::compare(a, b),
            };
            a_parent.cmp(b_parent).then_with(by_name)
        });
        let record = |(parent, name, data): (u32, Vec<u8>, Vec<u8>)| {
            let mut key = vec![6 + name.len() as u8, 0];
            key.extend(parent.to_be_bytes());
            key.push(name.len() as u8);
            key.extend(name);
            (key, data)
        };
        records.into_iter().map(record).collect()
    }

    fn overflow_records(&self) -> Vec<TreeRecord> {
        let mut records = self.overflow.clone();
        records.sort_by_key(|record| {
            (
                record.file_id.get(),
                record.fork_type,
                record.start_block.get(),
            )
        });
        let record = |record: ExtentRecordRaw| {
            let (key, data) = record
                .as_bytes()
                .split_at(1 + usize::from(EXTENT_KEY_LENGTH));
            (key.to_vec(), data.to_vec())
        };
        records.into_iter().map(record).collect()
    }
}

/// A key with its length, and the data.
type TreeRecord = (Vec<u8>, Vec<u8>);

/// Returns the file of a tree with these records in order. Keys in index nodes have `key_length` bytes,
/// and the number of nodes is a multiple of 4 and of `multiple`.
fn tree(records: &[TreeRecord], key_length: u8, multiple: usize) -> Vec<u8> {
    let padded = |key: &[u8], len: usize| {
        let mut key = key.to_vec();
        key.resize(len, 0);
        key
    };
    let leaf_record = |(key, data): &TreeRecord| {
        let bytes = [&padded(key, key.len().next_multiple_of(2))[..], data].concat();
        (key.clone(), bytes)
    };
    let mut level: Vec<TreeRecord> = records.iter().map(leaf_record).collect();
    let mut nodes = vec![[0; NODE_SIZE]]; // node 0 is written last
    let (mut depth, mut last_leaf) = (0, 0);
    while !level.is_empty() {
        depth += 1;
        let groups = groups(&level);
        let first = nodes.len();
        let mut above = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            let number = first + at;
            let previous = if at == 0 { 0 } else { number - 1 };
            let next = if at + 1 == groups.len() {
                0
            } else {
                number + 1
            };
            let kind = match depth {
                1 => node_kind::LEAF,
                _ => node_kind::INDEX,
            };
            nodes.push(node(kind, depth, (previous, next), group));
            let mut key = padded(&group[0].0, usize::from(key_length) + 1);
            key[0] = key_length;
            let bytes = [&key[..], &(number as u32).to_be_bytes()].concat();
            above.push((group[0].0.clone(), bytes));
        }
        if depth == 1 {
            last_leaf = nodes.len() - 1;
        }
        level = if above.len() > 1 { above } else { Vec::new() };
    }
    let used = nodes.len();
    nodes.resize(used.next_multiple_of(multiple.max(4)), [0; NODE_SIZE]);
    let mut header = TreeHeaderRaw::new_zeroed();
    header.tree_depth = u16::from(depth).into();
    // The last node that was added; 0 in an empty tree.
    header.root_node = (used as u32 - 1).into();
    header.leaf_records = (records.len() as u32).into();
    header.first_leaf_node = u32::from(depth > 0).into();
    header.last_leaf_node = (last_leaf as u32).into();
    header.node_size = (NODE_SIZE as u16).into();
    header.max_key_length = u16::from(key_length).into();
    header.total_nodes = (nodes.len() as u32).into();
    header.free_nodes = ((nodes.len() - used) as u32).into();
    let mut map = vec![0; 256];
    for number in 0..used {
        map[number / 8] |= 0x80 >> (number % 8);
    }
    let records = [header.as_bytes().to_vec(), vec![0; 128], map];
    let records = records.map(|bytes| (Vec::new(), bytes));
    nodes[0] = node(node_kind::HEADER, 0, (0, 0), &records);
    nodes.concat()
}

/// Parts records into those of each node.
fn groups(records: &[TreeRecord]) -> Vec<Vec<TreeRecord>> {
    let mut groups: Vec<Vec<TreeRecord>> = Vec::new();
    let mut room = 0;
    for record in records {
        let len = record.1.len() + 2;
        if len > room {
            groups.push(Vec::new());
            room = NODE_SIZE - usize::from(FIRST_RECORD) - 2;
        }
        room -= len;
        if let Some(group) = groups.last_mut() {
            group.push(record.clone());
        }
    }
    groups
}

fn node(
    kind: i8,
    height: u8,
    (previous, next): (usize, usize),
    records: &[TreeRecord],
) -> [u8; NODE_SIZE] {
    let head = NodeDescriptorRaw {
        forward_link: (next as u32).into(),
        backward_link: (previous as u32).into(),
        kind,
        height,
        record_count: (records.len() as u16).into(),
        reserved: 0.into(),
    };
    let mut bytes = [0; NODE_SIZE];
    bytes[..usize::from(FIRST_RECORD)].copy_from_slice(head.as_bytes());
    let mut at = usize::from(FIRST_RECORD);
    for (index, (_, record)) in records.iter().enumerate() {
        bytes[at..at + record.len()].copy_from_slice(record);
        let place = NODE_SIZE - 2 * (index + 1);
        bytes[place..place + 2].copy_from_slice(&(at as u16).to_be_bytes());
        at += record.len();
    }
    let place = NODE_SIZE - 2 * (records.len() + 1);
    bytes[place..place + 2].copy_from_slice(&(at as u16).to_be_bytes());
    bytes
}

/// Returns the bytes of a small volume with one of everything: nested folders and one with many
/// entries, files in one and in many extents, resource forks, Finder information, a name with
/// diacritics.
pub fn sample() -> Vec<u8> {
    sample_volume().catalog_pieces(5).build()
}

/// Returns the volume of [`sample`], whose catalog has one extent.
pub(super) fn sample_volume() -> Fixture {
    let mut volume = Fixture::new("Sample", SECTOR);
    let docs = volume.folder(ROOT, "docs");
    let deep = volume.folder(docs, "deep");
    let text = NewFile {
        type_and_creator: *b"TEXTttxt",
        has_thread: true,
        ..NewFile::new(b"deep down")
    };
    volume.file(deep, "Read Me", &text);
    let numbered: Vec<u8> = (0..5000_u32).map(|at| (at / 100) as u8).collect();
    let scattered = NewFile {
        resource: numbered[..3000].to_vec(),
        pieces: 8,
        is_locked: true,
        ..NewFile::new(&numbered)
    };
    volume.file(ROOT, "scattered", &scattered);
    let hidden = NewFile {
        resource: b"resources".to_vec(),
        finder_flags: 0x4000,
        ..NewFile::new(b"")
    };
    volume.file(docs, b"R\x8esum\x8e 1/2", &hidden);
    let many = volume.folder(ROOT, "many");
    for number in 0..60 {
        volume.file(
            many,
            format!("entry number {number:03}"),
            &NewFile::new(b""),
        );
    }
    volume
}
