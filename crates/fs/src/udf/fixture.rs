//! A small synthetic volume for tests and for fuzzing, with every structure that is read.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromZeros, IntoBytes};

use super::layout::{
    AddressRaw, AllocationExtentRaw, AnchorRaw, AttributeRaw, DeviceRaw, EntityRaw,
    ExtendedEntryRaw, FileEntryRaw, FileSetRaw, FinderRaw, ImplementationRaw, IndirectRaw,
    IntegrityRaw, IntegrityUseRaw, LogicalVolumeRaw, LongAdRaw, MapHeadRaw, MetadataMapRaw,
    NameRaw, PartitionRaw, PathComponentRaw, PlainMapRaw, PrimaryRaw, ShortAdRaw, SpaceBitmapRaw,
    SparableMapRaw, SparingEntryRaw, SparingTableRaw, TagRaw, TimeRaw, TypedMapRaw, VatHeaderRaw,
    VatTrailerRaw, allocation, characteristics, component, extent_kind, file_type, icb_flags,
    icb_strategy, tag_id,
};
use super::tag::{checksum, crc};

/// The resource fork of `App`.
pub const RESOURCES: &[u8] = b"resources";
/// Finder info of `App` as far as it is set: type, creator, flags.
pub const FINDER: &[u8; 10] = b"APPLttxt\x20\x00";
/// The number of files in the folder `many`.
pub const MANY: usize = 70;
/// The sector with the first anchor.
const ANCHOR: u32 = 256;
/// The sector with the main volume descriptor sequence.
const MAIN: u32 = 96;
const RESERVE: u32 = 128;
const INTEGRITY: u32 = 144;
/// The sectors with the sparing tables.
const SPARING: [u32; 2] = [160, 176];
/// The first sector of the partition.
const PARTITION: u32 = 288;
/// Blocks of a packet.
const PACKET: u32 = 32;

/// The kind of the partition that holds directories and file entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UdfForm {
    /// Blocks as they are.
    Plain,
    /// Packets, of which the first is stored elsewhere.
    Sparable,
    /// Blocks by a table, as on discs that are written once.
    Virtual,
    /// Blocks of a file, which has a mirror with blocks of its own.
    Metadata,
}

/// The structures of a volume.
#[derive(Debug, Clone)]
pub struct UdfOptions {
    /// In BCD: 0x0102 to 0x0260. File entries are extended from 0x0200 on.
    pub revision: u16,
    /// In bytes; also of a sector.
    pub block_size: u32,
    /// The kind of partition.
    pub form: UdfForm,
    /// True if ICBs are chains, of which one has two entries.
    pub chains: bool,
}

impl Default for UdfOptions {
    fn default() -> Self {
        Self {
            revision: 0x0201,
            block_size: 2048,
            form: UdfForm::Plain,
            chains: false,
        }
    }
}

struct NewObject {
    parent: usize,
    name: String,
    what: ObjectKind,
}

enum ObjectKind {
    Folder,
    /// In the file entry.
    Embedded(Vec<u8>),
    /// In extents of one block each, apart from one another.
    Extents(Vec<u8>),
    /// A block, two that are allocated only, one that is not, and a block.
    Sparse,
    /// With Finder info, a resource fork and, from UDF 2.00 on, another stream.
    Application(Vec<u8>),
    Link(&'static str),
    Device,
    /// Another name of the item.
    Again(usize),
    /// A name that was deleted.
    Deleted,
}

/// Returns the first `length` bytes of a file.
pub fn contents(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 256 + at % 251) as u8).collect()
}

/// Returns the contents of the sparse file.
pub fn sparse_contents(block_size: u32) -> Vec<u8> {
    let block = block_size as usize;
    let mut all = contents(5 * block);
    all[block..4 * block].fill(0);
    all
}

fn items() -> Vec<NewObject> {
    let item = |parent, name: &str, what| NewObject {
        parent,
        name: name.to_owned(),
        what,
    };
    let mut items = vec![
        item(usize::MAX, "", ObjectKind::Folder),
        item(0, "a.txt", ObjectKind::Embedded(b"hello".to_vec())),
        item(0, "folder", ObjectKind::Folder),
        item(2, "deep.txt", ObjectKind::Extents(b"deep down".to_vec())),
        item(2, "again.txt", ObjectKind::Again(1)),
        item(0, "link", ObjectKind::Link("/folder/../a.txt")),
        item(
            0,
            "A long name: \u{e9}.text",
            ObjectKind::Extents(contents(50_000)),
        ),
        item(0, "\u{20ac}uro", ObjectKind::Embedded(Vec::new())),
        item(0, "sparse", ObjectKind::Sparse),
        item(0, "App", ObjectKind::Application(contents(100))),
        item(0, "null", ObjectKind::Device),
        item(0, "gone", ObjectKind::Deleted),
        item(0, "many", ObjectKind::Folder),
    ];
    for number in 0..MANY {
        let name = format!("file {number:02}");
        items.push(item(
            12,
            &name,
            ObjectKind::Embedded(name.as_bytes().to_vec()),
        ));
    }
    items
}

/// An extent of a file.
#[derive(Clone, Copy)]
struct ExtentPiece {
    kind: u32,
    len: u32,
    block: u32,
    partition: u16,
}

/// The contents of a file entry.
struct FileBody {
    kind: u8,
    form: u16,
    allocation: Vec<u8>,
    len: u64,
    blocks: u64,
    attributes: Vec<u8>,
    streams: Option<u32>,
    links: u16,
    unique_id: u64,
}

/// A volume that is being made.
struct Builder {
    options: UdfOptions,
    items: Vec<NewObject>,
    /// Blocks of the partition.
    base: Vec<u8>,
    /// Blocks of the virtual or metadata partition.
    meta: Vec<u8>,
    unique_id: u64,
    /// Blocks between extents, which are free.
    gaps: Vec<u32>,
}

/// Returns the bytes of a volume.
pub fn volume(options: &UdfOptions) -> Vec<u8> {
    let mut builder = Builder {
        options: options.clone(),
        items: items(),
        base: Vec::new(),
        meta: Vec::new(),
        unique_id: 16,
        gaps: Vec::new(),
    };
    let set = builder.new_meta();
    let root = builder.files();
    builder.file_set(set, root);
    builder.finish(set)
}

/// Writes the sums of every tag in a volume again, so that changed structures are read.
pub fn seal(bytes: &mut [u8]) {
    // Backwards, because a file entry can contain a directory.
    for at in (0..bytes.len().saturating_sub(16)).step_by(4).rev() {
        let head = &bytes[at..];
        let id = u16::from_le_bytes([head[0], head[1]]);
        let is_tag =
            matches!(id, 1..=9 | 256..=266) && matches!(head[2..4], [2 | 3, 0]) && head[5] == 0;
        let len = usize::from(u16::from_le_bytes([head[10], head[11]]));
        if is_tag && let Some(covered) = head.get(16..16 + len) {
            let sum = crc(covered);
            bytes[at + 8..at + 10].copy_from_slice(&sum.to_le_bytes());
            bytes[at + 4] = checksum(&bytes[at..at + 16]);
        }
    }
}

fn entity(name: &[u8], revision: u16) -> EntityRaw {
    let mut identifier = [0; 23];
    identifier[..name.len()].copy_from_slice(name);
    let mut suffix = [0; 8];
    suffix[..2].copy_from_slice(&revision.to_le_bytes());
    EntityRaw {
        flags: 0,
        identifier,
        suffix,
    }
}

/// Returns 2024-03-01 12:34:56 UTC, as local time of a zone that is two hours east.
fn time() -> TimeRaw {
    TimeRaw {
        zone: U16::new(0x1000 | 120),
        year: 2024.into(),
        month: 3,
        day: 1,
        hour: 14,
        minute: 34,
        second: 56,
        centiseconds: 0,
        hundreds: 0,
        microseconds: 0,
    }
}

fn encoded(name: &str) -> Vec<u8> {
    match name.chars().all(|c| u32::from(c) < 256) {
        true => [8]
            .into_iter()
            .chain(name.chars().map(|c| c as u8))
            .collect(),
        false => [16]
            .into_iter()
            .chain(name.encode_utf16().flat_map(u16::to_be_bytes))
            .collect(),
    }
}

/// Writes a name into a field whose last byte is the length.
fn field<const N: usize>(name: &str) -> [u8; N] {
    let name = encoded(name);
    let mut field = [0; N];
    field[..name.len()].copy_from_slice(&name);
    field[N - 1] = name.len() as u8;
    field
}

fn long_ad(piece: ExtentPiece, unique_id: u32) -> LongAdRaw {
    LongAdRaw {
        len: (piece.kind << extent_kind::SHIFT | piece.len).into(),
        address: AddressRaw {
            block: piece.block.into(),
            partition: piece.partition.into(),
        },
        flags: U16::new(0),
        unique_id: unique_id.into(),
    }
}

/// Writes a tag whose CRC covers all bytes that follow.
fn sealed(mut bytes: Vec<u8>, id: u16, location: u32, revision: u16) -> Vec<u8> {
    let covered = bytes.len() - size_of::<TagRaw>();
    let tag = TagRaw {
        identifier: id.into(),
        version: U16::new(if revision < 0x200 { 2 } else { 3 }),
        checksum: 0,
        reserved: 0,
        serial: U16::new(1),
        crc: crc(&bytes[16..]).into(),
        crc_len: U16::new(covered as u16),
        location: location.into(),
    };
    bytes[..16].copy_from_slice(tag.as_bytes());
    bytes[4] = checksum(&bytes[..16]);
    bytes
}

impl Builder {
    fn block(&self) -> usize {
        self.options.block_size as usize
    }

    /// Returns the index of the map of the partition with directories and file entries.
    fn meta_partition(&self) -> u16 {
        match self.options.form {
            UdfForm::Plain | UdfForm::Sparable => 0,
            UdfForm::Virtual | UdfForm::Metadata => 1,
        }
    }

    fn sealed(&self, bytes: Vec<u8>, id: u16, location: u32) -> Vec<u8> {
        sealed(bytes, id, location, self.options.revision)
    }

    /// Appends bytes to the partition; returns their first block.
    fn put(&mut self, bytes: &[u8]) -> u32 {
        let first = (self.base.len() / self.block()) as u32;
        self.base.extend(bytes);
        let len = self.base.len().next_multiple_of(self.block());
        self.base.resize(len, 0);
        first
    }

    /// Adds a block for directories and file entries.
    fn new_meta(&mut self) -> u32 {
        let block = vec![0; self.block()];
        if self.meta_partition() == 0 {
            return self.put(&block);
        }
        self.meta.extend(block);
        (self.meta.len() / self.block()) as u32 - 1
    }

    /// Adds the blocks of an ICB.
    fn new_icb(&mut self) -> u32 {
        let icb = self.new_meta();
        if self.options.chains {
            self.new_meta();
        }
        icb
    }

    fn put_meta(&mut self, block: u32, bytes: &[u8]) {
        let at = block as usize * self.block();
        let area = match self.meta_partition() {
            0 => &mut self.base,
            _ => &mut self.meta,
        };
        area[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes contents in blocks that are apart from one another.
    fn scatter(&mut self, bytes: &[u8]) -> Vec<ExtentPiece> {
        let mut pieces = Vec::new();
        for chunk in bytes.chunks(self.block()) {
            let block = self.put(chunk);
            let gap = self.put(&[0xEE]);
            self.gaps.push(gap);
            pieces.push(ExtentPiece {
                kind: extent_kind::RECORDED,
                len: chunk.len() as u32,
                block,
                partition: 0,
            });
        }
        pieces
    }

    /// Returns allocation descriptors. Those that do not fit are in further blocks.
    fn allocation(&mut self, pieces: &[ExtentPiece], is_long: bool, room: usize) -> (u16, Vec<u8>) {
        let bytes = |piece: &ExtentPiece| match is_long {
            true => long_ad(*piece, 0).as_bytes().to_vec(),
            false => ShortAdRaw {
                len: (piece.kind << extent_kind::SHIFT | piece.len).into(),
                block: piece.block.into(),
            }
            .as_bytes()
            .to_vec(),
        };
        let size = if is_long { 16 } else { 8 };
        let form = if is_long {
            allocation::LONG
        } else {
            allocation::SHORT
        };
        if pieces.len() * size <= room {
            return (form, pieces.iter().flat_map(bytes).collect());
        }
        let (now, later) = pieces.split_at(room / size - 1);
        let table = self.new_meta();
        let table_room = self.block() - size_of::<AllocationExtentRaw>();
        let (_, rest) = self.allocation(later, is_long, table_room);
        let raw = AllocationExtentRaw {
            tag: TagRaw::new_zeroed(),
            previous: U32::new(0),
            len: U32::new(rest.len() as u32),
        };
        let made = self.sealed(
            [raw.as_bytes(), &rest].concat(),
            tag_id::ALLOCATION_EXTENT,
            table,
        );
        self.put_meta(table, &made);
        let more = ExtentPiece {
            kind: extent_kind::CONTINUATION,
            len: self.options.block_size,
            block: table,
            partition: self.meta_partition(),
        };
        (form, now.iter().chain([&more]).flat_map(bytes).collect())
    }

    /// Writes all files; returns the ICB of the root directory.
    fn files(&mut self) -> u32 {
        let mut icbs = vec![0; self.items.len()];
        for item in 0..self.items.len() {
            icbs[item] = match self.items[item].what {
                ObjectKind::Again(of) => icbs[of],
                ObjectKind::Deleted => 0,
                _ => self.new_icb(),
            };
        }
        for item in 0..self.items.len() {
            let links = self
                .items
                .iter()
                .filter(|other| matches!(other.what, ObjectKind::Again(of) if of == item));
            let links = links.count() as u16 + 1;
            if let Some(body) = self.body(item, &icbs) {
                self.file_entry(icbs[item], FileBody { links, ..body });
            }
        }
        if self.options.chains {
            self.replace(icbs[1]);
        }
        icbs[0]
    }

    fn body(&mut self, item: usize, icbs: &[u32]) -> Option<FileBody> {
        let head = match self.is_extended() {
            true => size_of::<ExtendedEntryRaw>(),
            false => size_of::<FileEntryRaw>(),
        };
        let room = self.block() - head;
        self.unique_id += 1;
        let mut body = FileBody {
            kind: file_type::FILE,
            form: allocation::EMBEDDED,
            allocation: Vec::new(),
            len: 0,
            blocks: 0,
            attributes: Vec::new(),
            streams: None,
            links: 1,
            unique_id: if item == 0 { 0 } else { self.unique_id },
        };
        let extents = |builder: &mut Self, body: &mut FileBody, pieces: &[ExtentPiece]| {
            let is_long = builder.meta_partition() != 0 || item.is_multiple_of(2);
            (body.form, body.allocation) = builder.allocation(pieces, is_long, room);
            body.len = pieces.iter().map(|piece| u64::from(piece.len)).sum();
            let recorded = pieces
                .iter()
                .filter(|piece| piece.kind == extent_kind::RECORDED);
            body.blocks = recorded.count() as u64;
        };
        let embed = |body: &mut FileBody, bytes: &[u8]| {
            (body.len, body.allocation) = (bytes.len() as u64, bytes.to_vec());
        };
        match &self.items[item].what {
            ObjectKind::Again(_) | ObjectKind::Deleted => return None,
            ObjectKind::Embedded(bytes) => embed(&mut body, bytes),
            ObjectKind::Extents(bytes) => {
                let bytes = bytes.clone();
                let pieces = self.scatter(&bytes);
                extents(self, &mut body, &pieces);
            }
            ObjectKind::Sparse => {
                let bytes = sparse_contents(self.options.block_size);
                let block = self.block();
                let mut pieces = self.scatter(&bytes[..block]);
                let gap = |kind, blocks, at| ExtentPiece {
                    kind,
                    len: blocks * block as u32,
                    block: at,
                    partition: 0,
                };
                let reserved = self.put(&vec![0xAA; 2 * block]);
                pieces.push(gap(extent_kind::ALLOCATED, 2, reserved));
                pieces.push(gap(extent_kind::UNALLOCATED, 1, 0));
                pieces.extend(self.scatter(&bytes[4 * block..]));
                extents(self, &mut body, &pieces);
            }
            ObjectKind::Application(bytes) => {
                embed(&mut body, bytes);
                if self.is_extended() {
                    body.streams = Some(self.streams());
                }
                body.attributes = self.attributes(None);
            }
            ObjectKind::Link(target) => {
                embed(&mut body, &link(target));
                body.kind = file_type::SYMLINK;
            }
            ObjectKind::Device => {
                body.kind = file_type::CHAR_DEVICE;
                body.attributes = self.attributes(Some((3, 2)));
            }
            ObjectKind::Folder => {
                body.kind = file_type::DIRECTORY;
                let children: Vec<_> = (0..self.items.len())
                    .filter(|&child| self.items[child].parent == item)
                    .collect();
                let parent = self.items[item].parent.min(item);
                self.directory(icbs[item], icbs[parent], &children, icbs, room, &mut body);
            }
        }
        Some(body)
    }

    /// Writes the names of a directory, in the file entry if they fit.
    fn directory(
        &mut self,
        icb: u32,
        parent: u32,
        children: &[usize],
        icbs: &[u32],
        room: usize,
        body: &mut FileBody,
    ) {
        let mut names = vec![(
            String::new(),
            characteristics::DIRECTORY | characteristics::PARENT,
            parent,
        )];
        for &child in children {
            let item = &self.items[child];
            let flags = match item.what {
                ObjectKind::Folder => characteristics::DIRECTORY,
                ObjectKind::Deleted => characteristics::DELETED,
                _ => 0,
            };
            names.push((item.name.clone(), flags, icbs[child]));
        }
        let all = |builder: &Self, first: Option<u32>| {
            let mut bytes: Vec<u8> = Vec::new();
            for (name, flags, of) in &names {
                let block = (bytes.len() / builder.block()) as u32;
                let location = first.map_or(icb, |first| first + block);
                bytes.extend(builder.name(name, *flags, *of, location));
            }
            bytes
        };
        let embedded = all(self, None);
        body.len = embedded.len() as u64;
        if embedded.len() <= room {
            body.allocation = embedded;
            return;
        }
        let blocks = embedded.len().div_ceil(self.block()) as u32;
        let partition = match self.options.form {
            UdfForm::Metadata => 1,
            _ => 0,
        };
        let first = match partition {
            0 => self.put(&vec![0; blocks as usize * self.block()]),
            _ => (0..blocks).map(|_| self.new_meta()).min().unwrap_or(0),
        };
        let bytes = all(self, Some(first));
        if partition == 0 {
            let at = first as usize * self.block();
            self.base[at..at + bytes.len()].copy_from_slice(&bytes);
        } else {
            for (number, chunk) in (first..).zip(bytes.chunks(self.block())) {
                self.put_meta(number, chunk);
            }
        }
        let piece = ExtentPiece {
            kind: extent_kind::RECORDED,
            len: bytes.len() as u32,
            block: first,
            partition,
        };
        (body.form, body.allocation) = self.allocation(&[piece], true, room);
        body.blocks = blocks.into();
    }

    fn name(&self, name: &str, flags: u8, icb: u32, location: u32) -> Vec<u8> {
        let mut text = if name.is_empty() {
            Vec::new()
        } else {
            encoded(name)
        };
        let mut len = self.options.block_size;
        if flags & characteristics::DELETED != 0 {
            text[0] = 254;
            len = 0;
        }
        if self.options.chains {
            len *= 2;
        }
        let piece = ExtentPiece {
            kind: 0,
            len,
            block: icb,
            partition: self.meta_partition(),
        };
        let raw = NameRaw {
            tag: TagRaw::new_zeroed(),
            version: U16::new(1),
            characteristics: flags,
            name_len: text.len() as u8,
            icb: long_ad(piece, 0),
            use_len: U16::new(0),
        };
        let mut bytes = [raw.as_bytes(), &text].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.sealed(bytes, tag_id::NAME, location)
    }

    fn is_extended(&self) -> bool {
        self.options.revision >= 0x0200
    }

    /// Returns the bytes of a file entry.
    fn entry(&self, icb: u32, body: &FileBody) -> Vec<u8> {
        let mut tag = super::layout::IcbTagRaw::new_zeroed();
        tag.strategy = U16::new(if self.options.chains {
            icb_strategy::CHAIN
        } else {
            icb_strategy::SINGLE
        });
        tag.parameter = U16::new(u16::from(self.options.chains));
        tag.max_entries = U16::new(1 + u16::from(self.options.chains));
        tag.kind = body.kind;
        let is_shared = matches!(body.kind, file_type::DIRECTORY);
        tag.flags = U16::new(body.form | if is_shared { icb_flags::STICKY } else { 0 });
        // Read and write for the owner, read for the group and others; also execute for folders.
        let permissions = match is_shared {
            true => 7 << 10 | 5 << 5 | 5,
            false => 6 << 10 | 4 << 5 | 4,
        };
        let (uid, gid) = if body.unique_id == 0 {
            (u32::MAX, u32::MAX)
        } else {
            (501, 20)
        };
        let implementation = entity(b"*Bandsaw", 0);
        let head = match self.is_extended() {
            true => {
                let mut raw = ExtendedEntryRaw::new_zeroed();
                raw.icb = tag;
                (raw.uid, raw.gid) = (uid.into(), gid.into());
                raw.permissions = U32::new(permissions);
                raw.links = body.links.into();
                (raw.len, raw.object_len) = (body.len.into(), body.len.into());
                raw.blocks = body.blocks.into();
                (raw.accessed, raw.modified, raw.created, raw.changed) =
                    (time(), time(), time(), time());
                raw.checkpoint = U32::new(1);
                if let Some(streams) = body.streams {
                    raw.streams = self.icb_ad(streams);
                }
                raw.implementation = implementation;
                raw.unique_id = body.unique_id.into();
                raw.attributes_len = U32::new(body.attributes.len() as u32);
                raw.allocation_len = U32::new(body.allocation.len() as u32);
                raw.as_bytes().to_vec()
            }
            false => {
                let mut raw = FileEntryRaw::new_zeroed();
                raw.icb = tag;
                (raw.uid, raw.gid) = (uid.into(), gid.into());
                raw.permissions = U32::new(permissions);
                raw.links = body.links.into();
                raw.len = body.len.into();
                raw.blocks = body.blocks.into();
                (raw.accessed, raw.modified, raw.changed) = (time(), time(), time());
                raw.checkpoint = U32::new(1);
                raw.implementation = implementation;
                raw.unique_id = body.unique_id.into();
                raw.attributes_len = U32::new(body.attributes.len() as u32);
                raw.allocation_len = U32::new(body.allocation.len() as u32);
                raw.as_bytes().to_vec()
            }
        };
        let id = if self.is_extended() {
            tag_id::EXTENDED_FILE
        } else {
            tag_id::FILE
        };
        let bytes = [head, body.attributes.clone(), body.allocation.clone()].concat();
        assert!(
            bytes.len() <= self.block(),
            "a file entry of {} bytes",
            bytes.len()
        );
        self.sealed(bytes, id, icb)
    }

    fn file_entry(&mut self, icb: u32, body: FileBody) {
        let bytes = self.entry(icb, &body);
        self.put_meta(icb, &bytes);
    }

    fn icb_ad(&self, icb: u32) -> LongAdRaw {
        let blocks = 1 + u32::from(self.options.chains);
        let piece = ExtentPiece {
            kind: 0,
            len: blocks * self.options.block_size,
            block: icb,
            partition: self.meta_partition(),
        };
        long_ad(piece, 0)
    }

    /// Moves a file entry to a new ICB, and leaves an older one with an indirect entry in its place.
    fn replace(&mut self, icb: u32) {
        let at = icb as usize * self.block();
        let newest = self.base[at..at + self.block()].to_vec();
        let to = self.new_icb();
        let kept = size_of::<ExtendedEntryRaw>() + 5;
        let moved = self.sealed(newest[..kept].to_vec(), tag_id::EXTENDED_FILE, to);
        self.put_meta(to, &moved);
        let mut older = newest[..kept].to_vec();
        older[kept - 5..].copy_from_slice(b"older");
        let older = self.sealed(older, tag_id::EXTENDED_FILE, icb);
        self.put_meta(icb, &older);
        let mut raw = IndirectRaw::new_zeroed();
        raw.icb.strategy = U16::new(icb_strategy::CHAIN);
        raw.next = self.icb_ad(to);
        let indirect = self.sealed(raw.as_bytes().to_vec(), tag_id::INDIRECT, icb + 1);
        self.put_meta(icb + 1, &indirect);
    }

    /// Writes the streams of `App`; returns the ICB of their directory.
    fn streams(&mut self) -> u32 {
        let directory = self.new_icb();
        let mut bytes = self.name(
            "",
            characteristics::DIRECTORY | characteristics::PARENT,
            directory,
            directory,
        );
        for (name, value) in [
            ("*UDF Macintosh Resource Fork", RESOURCES),
            ("com.example.note", b"a note"),
        ] {
            let icb = self.new_icb();
            self.stream(icb, file_type::FILE, value);
            bytes.extend(self.name(name, 0, icb, directory));
        }
        self.stream(directory, file_type::STREAMS, &bytes);
        directory
    }

    fn stream(&mut self, icb: u32, kind: u8, bytes: &[u8]) {
        let body = FileBody {
            kind,
            form: allocation::EMBEDDED,
            allocation: bytes.to_vec(),
            len: bytes.len() as u64,
            blocks: 0,
            attributes: Vec::new(),
            streams: None,
            links: 1,
            unique_id: 0,
        };
        self.file_entry(icb, body);
    }

    /// Returns the extended attributes of `App`, or of a device.
    fn attributes(&self, device: Option<(u32, u32)>) -> Vec<u8> {
        let revision = self.options.revision;
        let attribute = |kind: u32, len: usize| AttributeRaw {
            kind: kind.into(),
            subtype: 1,
            reserved: [0; 3],
            len: U32::new(len as u32),
        };
        let mut all = vec![0; 24];
        all[16..20].copy_from_slice(&24_u32.to_le_bytes());
        if let Some((major, minor)) = device {
            let raw = DeviceRaw {
                head: attribute(12, size_of::<DeviceRaw>()),
                use_len: U32::new(0),
                major: major.into(),
                minor: minor.into(),
            };
            all.extend(raw.as_bytes());
        } else {
            let mut info = [0; 32];
            info[..FINDER.len()].copy_from_slice(FINDER);
            let finder = FinderRaw {
                checksum: U16::new(0),
                reserved: U16::new(0),
                parent: 2.into(),
                info,
            };
            // The lengths of the resource fork follow.
            let finder = [finder.as_bytes(), &[0; 8]].concat();
            let fork = [&[0, 0][..], RESOURCES, &[0]].concat();
            let uses: [(&[u8], &[u8], usize); 2] = [
                (b"*UDF Mac FinderInfo", &finder, finder.len()),
                (b"*UDF Mac ResourceFork", &fork, 2 + RESOURCES.len()),
            ];
            let count = if self.is_extended() { 1 } else { 2 };
            for (name, bytes, len) in &uses[..count] {
                let head = size_of::<ImplementationRaw>() - 2;
                let raw = ImplementationRaw {
                    head: attribute(2048, head + bytes.len()),
                    use_len: U32::new(*len as u32),
                    kind: entity(name, revision),
                    checksum: U16::new(0),
                };
                all.extend(&raw.as_bytes()[..head]);
                all.extend(*bytes);
            }
        }
        let header = self.sealed(all[..24].to_vec(), tag_id::ATTRIBUTE_HEADER, 0);
        all[..24].copy_from_slice(&header);
        all
    }

    fn file_set(&mut self, at: u32, root: u32) {
        let mut raw = FileSetRaw::new_zeroed();
        raw.recorded = time();
        raw.volume = field("Sample");
        raw.name = field("Sample");
        raw.root = self.icb_ad(root);
        raw.domain = entity(b"*OSTA UDF Compliant", self.options.revision);
        let bytes = self.sealed(raw.as_bytes().to_vec(), tag_id::FILE_SET, at);
        self.put_meta(at, &bytes);
    }

    /// Returns the partition maps after writing what they refer to.
    fn maps(&mut self) -> Vec<Vec<u8>> {
        let plain = PlainMapRaw {
            head: MapHeadRaw { kind: 1, len: 6 },
            volume: U16::new(1),
            partition: U16::new(0),
        };
        let typed = |name: &[u8], revision| TypedMapRaw {
            head: MapHeadRaw { kind: 2, len: 64 },
            reserved: [0; 2],
            kind: entity(name, revision),
            volume: U16::new(1),
            partition: U16::new(0),
        };
        let revision = self.options.revision;
        let plain = plain.as_bytes().to_vec();
        match self.options.form {
            UdfForm::Plain => vec![plain],
            UdfForm::Sparable => {
                let raw = SparableMapRaw {
                    common: typed(b"*UDF Sparable Partition", revision),
                    packet: U16::new(PACKET as u16),
                    tables: 2,
                    reserved: 0,
                    table_len: U32::new(512),
                    sectors: [SPARING[0].into(), SPARING[1].into(), 0.into(), 0.into()],
                };
                vec![raw.as_bytes().to_vec()]
            }
            UdfForm::Virtual => {
                let mut map = typed(b"*UDF Virtual Partition", revision)
                    .as_bytes()
                    .to_vec();
                map.resize(64, 0);
                vec![plain, map]
            }
            UdfForm::Metadata => {
                let meta = self.meta.clone();
                let half = (meta.len() / self.block() / 2) * self.block();
                let mut icbs = [0; 2];
                for (icb, kind) in icbs.iter_mut().zip([250, 251]) {
                    let pieces = [&meta[half..], &meta[..half]].map(|part| {
                        let block = self.put(part);
                        ShortAdRaw {
                            len: (part.len() as u32).into(),
                            block: block.into(),
                        }
                    });
                    // The second half is stored first.
                    let body = FileBody {
                        kind,
                        form: allocation::SHORT,
                        allocation: [pieces[1].as_bytes(), pieces[0].as_bytes()].concat(),
                        len: meta.len() as u64,
                        blocks: (meta.len() / self.block()) as u64,
                        attributes: Vec::new(),
                        streams: None,
                        links: 0,
                        unique_id: 0,
                    };
                    *icb = self.put(&[0]);
                    let bytes = self.entry(*icb, &body);
                    let at = *icb as usize * self.block();
                    self.base[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                let raw = MetadataMapRaw {
                    common: typed(b"*UDF Metadata Partition", revision),
                    file: icbs[0].into(),
                    mirror: icbs[1].into(),
                    bitmap: U32::new(u32::MAX),
                    unit: U32::new(32),
                    alignment: U16::new(1),
                    flags: 1,
                    reserved: [0; 5],
                };
                vec![plain, raw.as_bytes().to_vec()]
            }
        }
    }

    /// Writes the virtual allocation table, with its file entry in the last block.
    fn virtual_table(&mut self, files: u32, folders: u32) {
        let meta = self.meta.clone();
        let mut entries = vec![0_u32; meta.len() / self.block()];
        // Backwards, so that places differ from numbers.
        for number in (0..entries.len()).rev() {
            let start = number * self.block();
            entries[number] = self.put(&meta[start..start + self.block()]);
        }
        entries.push(u32::MAX);
        let entries: Vec<u8> = entries
            .iter()
            .flat_map(|entry| entry.to_le_bytes())
            .collect();
        let (kind, bytes) = match self.options.revision {
            0x0200.. => {
                let mut raw = VatHeaderRaw::new_zeroed();
                raw.len = U16::new(152);
                raw.name = field("Sample");
                raw.previous = U32::new(u32::MAX);
                (raw.files, raw.folders) = (files.into(), folders.into());
                (file_type::VAT, [raw.as_bytes(), &entries].concat())
            }
            _ => {
                let raw = VatTrailerRaw {
                    kind: entity(b"*UDF Virtual Alloc Tbl", self.options.revision),
                    previous: U32::new(u32::MAX),
                };
                (file_type::UNKNOWN, [&entries, raw.as_bytes()].concat())
            }
        };
        let first = self.put(&bytes);
        let ad = ShortAdRaw {
            len: (bytes.len() as u32).into(),
            block: first.into(),
        };
        let body = FileBody {
            kind,
            form: allocation::SHORT,
            allocation: ad.as_bytes().to_vec(),
            len: bytes.len() as u64,
            blocks: bytes.len().div_ceil(self.block()) as u64,
            attributes: Vec::new(),
            streams: None,
            links: 0,
            unique_id: 0,
        };
        let icb = (self.base.len() / self.block()) as u32;
        let entry = self.entry(icb, &body);
        self.put(&entry);
    }

    /// Writes the bitmap of the partition after some free blocks were added.
    fn bitmap(&mut self) -> (ShortAdRaw, u32) {
        let head = size_of::<SpaceBitmapRaw>();
        let used = self.base.len() / self.block();
        let len = head + (used + 64).div_ceil(8);
        let own = len.div_ceil(self.block());
        let at = self.put(&vec![0; own * self.block()]);
        let (used, all) = (used + own, used + own + 16);
        let mut bits = vec![0_u8; all.div_ceil(8)];
        let gaps = self.gaps.iter().map(|&gap| gap as usize);
        for bit in (used..all).chain(gaps) {
            bits[bit / 8] |= 1 << (bit % 8);
        }
        let raw = SpaceBitmapRaw {
            tag: TagRaw::new_zeroed(),
            bits: U32::new(all as u32),
            bytes: U32::new(bits.len() as u32),
        };
        let bytes = self.sealed([raw.as_bytes(), &bits].concat(), tag_id::SPACE_BITMAP, at);
        let start = at as usize * self.block();
        self.base[start..start + bytes.len()].copy_from_slice(&bytes);
        self.base.resize(all * self.block(), 0);
        let ad = ShortAdRaw {
            len: ((own * self.block()) as u32).into(),
            block: at.into(),
        };
        (ad, 16 + self.gaps.len() as u32)
    }

    /// Returns the whole volume.
    fn finish(mut self, set: u32) -> Vec<u8> {
        let block = self.block();
        let folders = self
            .items
            .iter()
            .filter(|item| matches!(item.what, ObjectKind::Folder));
        let folders = folders.count() as u32;
        let deleted = self
            .items
            .iter()
            .filter(|item| matches!(item.what, ObjectKind::Deleted));
        let files = (self.items.len() - deleted.count()) as u32 - folders;
        let maps = self.maps();
        let (bitmap, free) = match self.options.form {
            UdfForm::Plain | UdfForm::Sparable => self.bitmap(),
            UdfForm::Metadata => (ShortAdRaw::new_zeroed(), 0),
            UdfForm::Virtual => {
                self.virtual_table(files, folders);
                (ShortAdRaw::new_zeroed(), 0)
            }
        };
        let blocks = (self.base.len() / block) as u32;
        let mut bytes = vec![0; PARTITION as usize * block];
        self.recognition(&mut bytes);
        let mut base = std::mem::take(&mut self.base);
        if self.options.form == UdfForm::Sparable {
            let packet = PACKET as usize * block;
            let elsewhere = base[..packet].to_vec();
            base[..packet].fill(0xDE);
            base.extend(elsewhere);
            // Linux takes the first table, which is the newest here.
            for (sequence, at) in [2, 1].into_iter().zip(SPARING) {
                let table = self.sparing_table(at, sequence, PARTITION + blocks);
                bytes[at as usize * block..][..table.len()].copy_from_slice(&table);
            }
        }
        bytes.extend(base);
        let integrity = self.integrity(maps.len(), blocks, free, files, folders);
        bytes[INTEGRITY as usize * block..][..integrity.len()].copy_from_slice(&integrity);
        for first in [MAIN, RESERVE] {
            let descriptors = self.descriptors(&maps, set, bitmap, blocks);
            for (sector, (id, raw)) in (first..).zip(descriptors) {
                let made = self.sealed(raw, id, sector);
                bytes[sector as usize * block..][..made.len()].copy_from_slice(&made);
            }
        }
        // A disc that is written once has no anchor at its end.
        if self.options.form != UdfForm::Virtual {
            bytes.resize(bytes.len() + 16 * block, 0);
            let last = (bytes.len() / block) as u32;
            bytes.resize(bytes.len() + block, 0);
            self.anchor(&mut bytes, last);
        }
        self.anchor(&mut bytes, ANCHOR);
        bytes
    }

    fn recognition(&self, bytes: &mut [u8]) {
        let nsr: &[u8; 5] = if self.options.revision < 0x200 {
            b"NSR02"
        } else {
            b"NSR03"
        };
        for (number, name) in [b"BEA01", nsr, b"TEA01"].iter().enumerate() {
            let at = 32_768 + number * self.block().max(2048);
            bytes[at + 1..at + 6].copy_from_slice(*name);
            bytes[at + 6] = 1;
        }
    }

    fn anchor(&self, bytes: &mut [u8], sector: u32) {
        let extent = |sector: u32| super::layout::SectorExtentRaw {
            len: U32::new(16 * self.options.block_size),
            sector: sector.into(),
        };
        let raw = AnchorRaw {
            tag: TagRaw::new_zeroed(),
            main: extent(MAIN),
            reserve: extent(RESERVE),
        };
        let mut anchor = raw.as_bytes().to_vec();
        anchor.resize(512, 0);
        let anchor = self.sealed(anchor, tag_id::ANCHOR, sector);
        bytes[sector as usize * self.block()..][..512].copy_from_slice(&anchor);
    }

    /// Returns the descriptors of a sequence with their identifiers.
    fn descriptors(
        &self,
        maps: &[Vec<u8>],
        set: u32,
        bitmap: ShortAdRaw,
        blocks: u32,
    ) -> Vec<(u16, Vec<u8>)> {
        let mut primary = PrimaryRaw::new_zeroed();
        primary.name = field("Sample");
        primary.recorded = time();
        let padded = |raw: &[u8]| {
            let mut bytes = raw.to_vec();
            bytes.resize(512, 0);
            bytes
        };
        let partition = |sequence: u32, len: u32| {
            let mut raw = PartitionRaw::new_zeroed();
            raw.sequence = sequence.into();
            raw.flags = U16::new(1);
            raw.contents = entity(b"+NSR03", 0);
            raw.header.free_bitmap = bitmap;
            raw.access = U32::new(4);
            (raw.start, raw.len) = (PARTITION.into(), len.into());
            padded(raw.as_bytes())
        };
        let mut logical = LogicalVolumeRaw::new_zeroed();
        logical.sequence = U32::new(3);
        logical.name = field("Sample");
        logical.block_size = self.options.block_size.into();
        logical.domain = entity(b"*OSTA UDF Compliant", self.options.revision);
        logical.file_set = self.icb_ad(set);
        logical.file_set.len = self.options.block_size.into();
        let all = maps.concat();
        logical.maps_len = U32::new(all.len() as u32);
        logical.maps = U32::new(maps.len() as u32);
        logical.integrity = super::layout::SectorExtentRaw {
            len: U32::new(2 * self.options.block_size),
            sector: INTEGRITY.into(),
        };
        vec![
            (tag_id::PRIMARY, padded(primary.as_bytes())),
            // A newer descriptor of the partition replaces this one.
            (tag_id::PARTITION, partition(1, 1)),
            (tag_id::PARTITION, partition(2, blocks)),
            (tag_id::LOGICAL_VOLUME, [logical.as_bytes(), &all].concat()),
            (tag_id::TERMINATOR, padded(&[])),
        ]
    }

    fn integrity(&self, maps: usize, blocks: u32, free: u32, files: u32, folders: u32) -> Vec<u8> {
        let mut raw = IntegrityRaw::new_zeroed();
        raw.recorded = time();
        // The integrity of a disc that is written once stays open.
        raw.kind = U32::new(u32::from(self.options.form != UdfForm::Virtual));
        raw.next_unique_id = (self.unique_id + 1).into();
        raw.partitions = U32::new(maps as u32);
        raw.use_len = U32::new(size_of::<IntegrityUseRaw>() as u32);
        let mut uses = IntegrityUseRaw::new_zeroed();
        uses.implementation = entity(b"*Bandsaw", 0);
        (uses.files, uses.folders) = (files.into(), folders.into());
        let revision = U16::new(self.options.revision);
        (uses.min_read, uses.min_write, uses.max_write) = (revision, revision, revision);
        let mut bytes = raw.as_bytes().to_vec();
        for table in [[free, u32::MAX], [blocks, u32::MAX]] {
            bytes.extend(table[..maps].iter().flat_map(|entry| entry.to_le_bytes()));
        }
        bytes.extend(uses.as_bytes());
        self.sealed(bytes, tag_id::INTEGRITY, INTEGRITY)
    }

    fn sparing_table(&self, at: u32, sequence: u32, mapped: u32) -> Vec<u8> {
        let raw = SparingTableRaw {
            tag: TagRaw::new_zeroed(),
            kind: entity(b"*UDF Sparing Table", self.options.revision),
            entries: U16::new(2),
            reserved: U16::new(0),
            sequence: sequence.into(),
        };
        // An older table maps the packet to another place.
        let entries = [(0, mapped - 2 + sequence), (u32::MAX, mapped + PACKET)];
        let entries = entries.map(|(original, mapped)| SparingEntryRaw {
            original: original.into(),
            mapped: mapped.into(),
        });
        let bytes = [raw.as_bytes(), entries.as_bytes()].concat();
        self.sealed(bytes, tag_id::SPARING_TABLE, at)
    }
}

/// Returns the components of a target.
fn link(target: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, part) in target.split('/').enumerate() {
        let (kind, name) = match part {
            "" if number == 0 => (component::ROOT, Vec::new()),
            ".." => (component::PARENT, Vec::new()),
            part => (component::NAME, encoded(part)),
        };
        let raw = PathComponentRaw {
            kind,
            name_len: name.len() as u8,
            version: U16::new(0),
        };
        bytes.extend(raw.as_bytes());
        bytes.extend(name);
    }
    bytes
}
