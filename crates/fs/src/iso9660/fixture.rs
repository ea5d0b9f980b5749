//! A small synthetic volume for tests and for fuzzing, with every structure that is read.

use zerocopy::IntoBytes;

use super::layout::{
    BothU16, BothU32, DescriptorRaw, FIRST_DESCRIPTOR, IDENTIFIER, PARENT, RecordRaw, SECTOR, SELF,
    flags, kind,
};

/// The date of everything: 2024-03-01 12:34:56 UTC.
const DATE: [u8; 7] = [124, 3, 1, 12, 34, 56, 0];
/// The resource fork of `App`.
pub const RESOURCES: &[u8] = b"resources";
/// Finder info of `App` as far as it is set: type, creator, flags.
pub const FINDER: &[u8; 10] = b"APPLttxt\x20\x00";
/// The number of files in the folder `many`.
pub const MANY: usize = 90;

/// The structures of a volume.
#[derive(Debug, Clone)]
pub struct IsoOptions {
    /// In bytes: 512, 1024 or 2048.
    pub block_size: u16,
    /// True if names are in Rock Ridge.
    pub rock_ridge: bool,
    /// True if there is a tree of Joliet.
    pub joliet: bool,
}

impl Default for IsoOptions {
    fn default() -> Self {
        Self {
            block_size: 2048,
            rock_ridge: true,
            joliet: true,
        }
    }
}

struct Item {
    parent: usize,
    plain: String,
    name: String,
    what: What,
}

enum What {
    Folder,
    File(Vec<Vec<u8>>),
    /// With a resource fork, type and creator.
    Application(Vec<u8>),
    Link(&'static str),
    /// In the place of a folder that is elsewhere.
    Moved(usize),
}

/// Returns the bytes of `length` of a file.
pub fn contents(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 256 + at % 251) as u8).collect()
}

fn items() -> Vec<Item> {
    let item = |parent, plain: &str, name: &str, what| Item {
        parent,
        plain: plain.to_owned(),
        name: name.to_owned(),
        what,
    };
    let file = |bytes: &[u8]| What::File(vec![bytes.to_vec()]);
    let mut items = vec![
        item(usize::MAX, "", "", What::Folder),
        item(0, "A.TXT;1", "a.txt", file(b"hello")),
        item(0, "APP.;1", "App", What::Application(contents(100))),
        item(0, "FOLDER", "folder", What::Folder),
        item(3, "DEEP.TXT;1", "deep.txt", file(b"deep down")),
        item(3, "HERE", "here", What::Moved(10)),
        item(0, "LINK.;1", "link", What::Link("/folder/../a.txt")),
        item(
            0,
            "LONG.TXT;1",
            "A long name: \u{e9}.text",
            file(&contents(5000)),
        ),
        item(
            0,
            "PARTS.;1",
            "parts",
            What::File(vec![contents(4096), contents(1000)]),
        ),
        item(0, "RR_MOVED", "rr_moved", What::Folder),
        item(9, "HERE", "here", What::Folder),
        item(10, "INNER.TXT;1", "inner.txt", file(b"moved")),
        item(0, "MANY", "many", What::Folder),
    ];
    for number in 0..MANY {
        let (plain, name) = (format!("F{number:02}.;1"), format!("file {number:02}"));
        items.push(item(12, &plain, &name, file(name.as_bytes())));
    }
    items
}

/// A volume that is being made.
struct Builder {
    options: IsoOptions,
    items: Vec<Item>,
    bytes: Vec<u8>,
    /// For each item, place and length of its sections.
    sections: Vec<Vec<(u32, u32)>>,
    /// The place of the resource fork.
    resource: u32,
    /// The place of the entries that do not fit records.
    area: u32,
}

/// Returns the bytes of a volume.
pub fn volume(options: &IsoOptions) -> Vec<u8> {
    let mut builder = Builder {
        options: options.clone(),
        items: items(),
        bytes: vec![0; (FIRST_DESCRIPTOR + 3) as usize * SECTOR as usize],
        sections: Vec::new(),
        resource: 0,
        area: 0,
    };
    builder.resource = builder.put(RESOURCES);
    builder.area = builder.put(&area());
    for item in 0..builder.items.len() {
        let pieces = match &builder.items[item].what {
            What::File(pieces) => pieces.clone(),
            What::Application(bytes) => vec![bytes.clone()],
            _ => Vec::new(),
        };
        // Backwards, so that the sections of a file are apart.
        let mut places: Vec<_> = pieces
            .iter()
            .rev()
            .map(|piece| (builder.put(piece), piece.len() as u32))
            .collect();
        places.reverse();
        builder.sections.push(places);
    }
    let primary = builder.tree(false);
    builder.describe(0, kind::PRIMARY, primary);
    let end = if options.joliet {
        let joliet = builder.tree(true);
        builder.describe(1, kind::SUPPLEMENTARY, joliet);
        2
    } else {
        1
    };
    let at = (FIRST_DESCRIPTOR + end) as usize * SECTOR as usize;
    builder.bytes[at] = kind::TERMINATOR;
    builder.bytes[at + 1..at + 6].copy_from_slice(&IDENTIFIER);
    let blocks = (builder.bytes.len() / usize::from(options.block_size)) as u32;
    for number in 0..end {
        let at = (FIRST_DESCRIPTOR + number) as usize * SECTOR as usize + 0x50;
        builder.bytes[at..at + 8].copy_from_slice(BothU32::new(blocks).as_bytes());
    }
    builder.bytes
}

impl Builder {
    /// Appends bytes from the start of a sector; returns the number of their first block.
    fn put(&mut self, bytes: &[u8]) -> u32 {
        let start = self.bytes.len();
        self.bytes.extend(bytes);
        let len = self.bytes.len().next_multiple_of(SECTOR as usize);
        self.bytes.resize(len, 0);
        (start / usize::from(self.options.block_size)) as u32
    }

    /// Writes all directories of a tree; returns place and length of its root.
    fn tree(&mut self, joliet: bool) -> (u32, u32) {
        let unplaced = vec![(0, 0); self.items.len()];
        let mut places = unplaced.clone();
        for (folder, place) in places.iter_mut().enumerate() {
            if matches!(self.items[folder].what, What::Folder) {
                let empty = vec![0; self.directory(folder, &unplaced, joliet).len()];
                *place = (self.put(&empty), empty.len() as u32);
            }
        }
        for folder in 0..self.items.len() {
            if matches!(self.items[folder].what, What::Folder) {
                let bytes = self.directory(folder, &places, joliet);
                let at = places[folder].0 as usize * usize::from(self.options.block_size);
                self.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        places[0]
    }

    fn directory(&self, folder: usize, places: &[(u32, u32)], joliet: bool) -> Vec<u8> {
        let rock_ridge = self.options.rock_ridge && !joliet;
        let of_folder = |fields: Vec<u8>| if rock_ridge { fields } else { Vec::new() };
        let parent = self.items[folder].parent.min(folder);
        let own = match folder {
            0 => [
                field(b"SP", &[0xBE, 0xEF, 0]),
                posix(0o040_755),
                self.more(0),
            ]
            .concat(),
            _ => [posix(0o040_755), times()].concat(),
        };
        let mut records = vec![
            record(&SELF, places[folder], flags::DIRECTORY, &of_folder(own)),
            record(
                &PARENT,
                places[parent],
                flags::DIRECTORY,
                &of_folder(posix(0o040_755)),
            ),
        ];
        let children = (0..self.items.len()).filter(|&item| self.items[item].parent == folder);
        for child in children {
            records.extend(self.child(child, places, joliet));
        }
        let mut bytes = Vec::new();
        for record in records {
            let left = SECTOR as usize - bytes.len() % SECTOR as usize;
            if record.len() > left {
                bytes.resize(bytes.len() + left, 0);
            }
            bytes.extend(record);
        }
        let len = bytes.len().next_multiple_of(SECTOR as usize);
        bytes.resize(len, 0);
        bytes
    }

    /// Returns the records of an item.
    fn child(&self, child: usize, places: &[(u32, u32)], joliet: bool) -> Vec<Vec<u8>> {
        let item = &self.items[child];
        let rock_ridge = self.options.rock_ridge && !joliet;
        let plain: Vec<u8> = match joliet {
            true => item
                .name
                .encode_utf16()
                .flat_map(u16::to_be_bytes)
                .collect(),
            false => item.plain.as_bytes().to_vec(),
        };
        let named = |mode: u32, more: Vec<u8>| match rock_ridge {
            true => [posix(mode), self.name(&item.name), times(), more].concat(),
            false => Vec::new(),
        };
        match &item.what {
            What::Folder => {
                let moved = self.items[item.parent].name == "rr_moved";
                let moved = if moved { field(b"RE", &[]) } else { Vec::new() };
                let fields = named(0o040_755, moved);
                vec![record(&plain, places[child], flags::DIRECTORY, &fields)]
            }
            What::Moved(folder) if rock_ridge => {
                let block = BothU32::new(places[*folder].0);
                let fields = named(0o040_755, field(b"CL", block.as_bytes()));
                vec![record(&plain, (0, 0), 0, &fields)]
            }
            What::Moved(_) => Vec::new(),
            What::Link(target) => {
                let fields = named(0o120_777, field(b"SL", &link(target)));
                vec![record(&plain, (0, 0), 0, &fields)]
            }
            What::Application(_) => {
                let apple = field_of(b"AA", 2, FINDER);
                let fields = [named(0o100_755, Vec::new()), apple].concat();
                let resource = (self.resource, RESOURCES.len() as u32);
                vec![
                    record(&plain, resource, flags::ASSOCIATED, &fields),
                    record(&plain, self.sections[child][0], 0, &fields),
                ]
            }
            What::File(_) => {
                let fields = named(0o100_644, Vec::new());
                let sections = &self.sections[child];
                let last = sections.len() - 1;
                let flags = |number| if number < last { flags::CONTINUED } else { 0 };
                (0..sections.len())
                    .map(|number| record(&plain, sections[number], flags(number), &fields))
                    .collect()
            }
        }
    }

    /// Returns an entry with a name. The end of the long one is in another place.
    fn name(&self, name: &str) -> Vec<u8> {
        match name.strip_prefix("A long ") {
            Some(_) => [field(b"NM", b"\x01A long "), self.more(1)].concat(),
            None => field(b"NM", &[b"\x00", name.as_bytes()].concat()),
        }
    }

    /// Returns an entry that continues in one of the parts of the area.
    fn more(&self, part: u32) -> Vec<u8> {
        let numbers = [self.area, part * PART, PART].map(BothU32::new);
        field(
            b"CE",
            &numbers.map(|number| number.as_bytes().to_vec()).concat(),
        )
    }

    fn describe(&mut self, number: u64, kind: u8, root: (u32, u32)) {
        let mut name = [b' '; 32];
        let joliet: Vec<u8> = "Sample".encode_utf16().flat_map(u16::to_be_bytes).collect();
        let text = match kind {
            kind::PRIMARY => &b"SAMPLE"[..],
            _ => &joliet[..],
        };
        name[..text.len()].copy_from_slice(text);
        if kind == kind::SUPPLEMENTARY {
            name[text.len()..].fill(0);
        }
        let mut escapes = [0; 32];
        if kind == kind::SUPPLEMENTARY {
            escapes[..3].copy_from_slice(b"%/E");
        }
        let date = *b"2024030112345600\0";
        let raw = DescriptorRaw {
            kind,
            identifier: IDENTIFIER,
            version: 1,
            flags: 0,
            system: *b"APPLE COMPUTER, INC., TYPE: 0002",
            name,
            unused: [0; 8],
            blocks: BothU32::new(0),
            escapes,
            set_size: BothU16::new(1),
            sequence: BothU16::new(1),
            block_size: BothU16::new(self.options.block_size),
            path_table_len: BothU32::new(0),
            path_tables: [0; 16],
            root: raw_record(34, 1, root, flags::DIRECTORY),
            root_name: 0,
            texts: [b' '; 623],
            created: date,
            modified: date,
            expires: [0; 17],
            effective: [0; 17],
        };
        let at = (FIRST_DESCRIPTOR + number) as usize * SECTOR as usize;
        let bytes = raw.as_bytes();
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Length of each part of the area of entries.
const PART: u32 = 256;

/// Returns the entries of the root directory and of the long name that do not fit records.
fn area() -> Vec<u8> {
    let identifier = b"RRIP_1991A";
    let extension = [&[10, 0, 0, 1][..], identifier].concat();
    let mut area = field(b"ER", &extension);
    area.resize(PART as usize, 0);
    area.extend(field(b"NM", "\0name: \u{e9}.text".as_bytes()));
    area.resize(2 * PART as usize, 0);
    area
}

fn field(signature: &[u8; 2], data: &[u8]) -> Vec<u8> {
    field_of(signature, 1, data)
}

fn field_of(signature: &[u8; 2], version: u8, data: &[u8]) -> Vec<u8> {
    let len = (data.len() + 4) as u8;
    [&signature[..], &[len, version], data].concat()
}

fn posix(mode: u32) -> Vec<u8> {
    let numbers = [mode, 1, 501, 20].map(BothU32::new);
    field(
        b"PX",
        &numbers.map(|number| number.as_bytes().to_vec()).concat(),
    )
}

/// Returns an entry with the times of modification and access.
fn times() -> Vec<u8> {
    field(b"TF", &[&[0x06][..], &DATE, &DATE].concat())
}

/// Returns the components of a target.
fn link(target: &str) -> Vec<u8> {
    let component = |(number, part): (usize, &str)| match part {
        "" if number == 0 => vec![8, 0],
        ".." => vec![4, 0],
        part => [&[0, part.len() as u8][..], part.as_bytes()].concat(),
    };
    let components = target.split('/').enumerate().flat_map(component);
    [0].into_iter().chain(components).collect()
}

fn record(name: &[u8], place: (u32, u32), flags: u8, system_use: &[u8]) -> Vec<u8> {
    let padded = (33 + name.len()).next_multiple_of(2);
    let len = (padded + system_use.len()).next_multiple_of(2);
    let mut bytes = raw_record(len as u8, name.len() as u8, place, flags)
        .as_bytes()
        .to_vec();
    bytes.extend(name);
    bytes.resize(padded, 0);
    bytes.extend(system_use);
    bytes.resize(len, 0);
    assert!(len <= 255, "a record of {len} bytes");
    bytes
}

fn raw_record(len: u8, name_len: u8, (block, size): (u32, u32), flags: u8) -> RecordRaw {
    RecordRaw {
        len,
        attribute_blocks: 0,
        block: BothU32::new(block),
        size: BothU32::new(size),
        date: DATE,
        flags,
        unit: 0,
        gap: 0,
        sequence: BothU16::new(1),
        name_len,
    }
}
