//! Structures of images, located by the formats' own numbers, independent of the library.

use std::iter;
use std::ops::Range;

use super::layout::{Field, Layout};

/// One structure in a file of an image.
#[derive(Debug, Clone)]
pub(super) struct Structure {
    /// Its name for messages.
    pub(super) name: String,
    /// The file that holds it.
    pub(super) file: String,
    /// Its offset in that file.
    pub(super) offset: usize,
    pub(super) fields: Vec<Field>,
    /// The checksums over it.
    pub(super) seal: Seal,
}

/// The checksums of a structure, which a change may have to update.
#[derive(Debug, Clone)]
pub(super) enum Seal {
    /// No checksum.
    None,
    /// CRC-32 in the GPT header at this byte.
    GptHeader(usize),
    /// CRC-32 of the table of entries and of the GPT header at this byte.
    GptEntries(usize),
    /// Fletcher-64 of the APFS object in this range.
    ApfsObject(Range<usize>),
}

impl Structure {
    fn new(name: impl Into<String>, offset: usize, fields: Vec<Field>, seal: Seal) -> Self {
        Self {
            name: name.into(),
            file: String::new(),
            offset,
            fields,
            seal,
        }
    }

    /// Returns its range in the file.
    pub(super) fn range(&self) -> Range<usize> {
        let end = self
            .fields
            .iter()
            .map(|field| field.offset + field.size)
            .max()
            .unwrap_or(0);
        self.offset..self.offset + end
    }
}

impl Seal {
    /// Returns the ranges that [`seal`](Self::seal) writes.
    pub(super) fn ranges(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        match self {
            Self::None => Vec::new(),
            Self::GptHeader(at) => iter::once(at + 16..at + 20).collect(),
            Self::GptEntries(at) => vec![at + 88..at + 92, at + 16..at + 20],
            Self::ApfsObject(range) => {
                iter::once(range.start..(range.start + 8).min(bytes.len())).collect()
            }
        }
    }

    /// Writes the checksums of the contents.
    pub(super) fn seal(&self, bytes: &mut [u8]) {
        match self {
            Self::None => {}
            Self::GptHeader(at) => seal_gpt_header(bytes, *at),
            Self::GptEntries(at) => {
                let table = le(bytes, at + 72, 8) * 512;
                let len = le(bytes, at + 80, 4) * le(bytes, at + 84, 4);
                let sum = crc32fast::hash(&bytes[table..table + len]);
                bytes[at + 88..at + 92].copy_from_slice(&sum.to_le_bytes());
                seal_gpt_header(bytes, *at);
            }
            Self::ApfsObject(range) => {
                let sum = fletcher64(&bytes[range.start + 8..range.end]);
                bytes[range.start..range.start + 8].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
}

fn seal_gpt_header(bytes: &mut [u8], at: usize) {
    bytes[at + 16..at + 20].fill(0);
    let sum = crc32fast::hash(&bytes[at..at + 92]);
    bytes[at + 16..at + 20].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the checksum of APFS objects: docs/formats/apfs.md §1.
fn fletcher64(bytes: &[u8]) -> u64 {
    let (mut low, mut high) = (0_u64, 0_u64);
    for word in bytes.chunks_exact(4) {
        low = (low + u64::from(u32::from_le_bytes(word.try_into().unwrap()))) % 0xFFFF_FFFF;
        high = (high + low) % 0xFFFF_FFFF;
    }
    let first = 0xFFFF_FFFF - (low + high) % 0xFFFF_FFFF;
    let second = 0xFFFF_FFFF - (low + first) % 0xFFFF_FFFF;
    second << 32 | first
}

fn be(bytes: &[u8], at: usize, len: usize) -> usize {
    bytes[at..at + len]
        .iter()
        .fold(0, |value, byte| value << 8 | usize::from(*byte))
}

fn le(bytes: &[u8], at: usize, len: usize) -> usize {
    bytes[at..at + len]
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | usize::from(*byte))
}

/// Returns one number that no structure of the sources declares, such as an entry of an array at
/// the end of a node.
fn number(offset: usize, size: usize, is_big_endian: bool) -> Vec<Field> {
    vec![Field {
        name: "number".into(),
        offset,
        size,
        is_number: true,
        is_big_endian,
    }]
}

macro_rules! sources {
    ($($path:literal),+) => { [$(include_str!(concat!("../../", $path))),+] };
}

/// Returns the headers, tree nodes and journal of the HFS+ volume in `range` of the file.
pub(super) fn hfsplus(bytes: &[u8], range: Range<usize>) -> Vec<Structure> {
    let layout = Layout::read(&crate::fs::layouts::HFSPLUS, true);
    let (header, volume) = (range.start + 1024, &bytes[range.clone()]);
    let mut found = vec![
        Structure::new(
            "volume header",
            header,
            layout.fields("VolumeHeaderRaw"),
            Seal::None,
        ),
        Structure::new(
            "alternate volume header",
            range.end - 1024,
            layout.fields("VolumeHeaderRaw"),
            Seal::None,
        ),
    ];
    let block = be(volume, 1024 + 40, 4);
    for (tree, fork) in [("extents", 192), ("catalog", 272), ("attributes", 352)] {
        // New volumes have each tree in one extent.
        let (start, blocks) = (
            be(volume, 1024 + fork + 16, 4) * block,
            be(volume, 1024 + fork + 20, 4),
        );
        if blocks == 0 {
            continue;
        }
        let size = be(volume, start + 32, 2);
        let at = range.start + start;
        found.push(Structure::new(
            format!("{tree} header record"),
            at + 14,
            layout.fields("TreeHeaderRaw"),
            Seal::None,
        ));
        found.push(Structure::new(
            format!("{tree} map"),
            at + 248,
            number(0, 1, true),
            Seal::None,
        ));
        for node in 0..blocks * block / size {
            let node_at = start + node * size;
            let records = be(volume, node_at + 10, 2);
            if volume[node_at..node_at + size]
                .iter()
                .all(|byte| *byte == 0)
            {
                continue;
            }
            let name = format!("{tree} node {node}");
            found.push(Structure::new(
                &name,
                range.start + node_at,
                layout.fields("NodeDescriptorRaw"),
                Seal::None,
            ));
            // The table is one structure: a record that is inserted moves the offsets of others.
            let table = range.start + node_at + size - 2 * (records + 1);
            let offset = |record| Field {
                name: format!("offset {record}"),
                offset: 2 * (records - record),
                size: 2,
                is_number: true,
                is_big_endian: true,
            };
            found.push(Structure::new(
                &name,
                table,
                (0..=records).map(offset).collect(),
                Seal::None,
            ));
        }
    }
    let info = be(volume, 1024 + 12, 4) * block;
    if info != 0 {
        let journal = be(volume, info + 36, 8);
        found.push(Structure::new(
            "journal info block",
            range.start + info,
            layout.fields("JournalInfoBlockRaw"),
            Seal::None,
        ));
        found.push(Structure::new(
            "journal header",
            range.start + journal,
            layout.fields("JournalHeaderRaw"),
            Seal::None,
        ));
    }
    found
}

/// Returns every object with a header of the APFS container in `range` of the file.
pub(super) fn apfs(bytes: &[u8], range: Range<usize>) -> Vec<Structure> {
    let layout = Layout::read(&crate::fs::layouts::APFS, false);
    let mut found = Vec::new();
    for at in range.clone().step_by(4096) {
        let block = at..at + 4096;
        let sum = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        if sum == 0 || sum != fletcher64(&bytes[at + 8..block.end]) {
            continue;
        }
        let name = match le(bytes, at + 24, 2) {
            0x01 => "ContainerRaw",
            0x02 | 0x03 => "NodeRaw",
            0x05 => "SpacemanRaw",
            0x07 => "ChunkInfoRaw",
            0x0B => "OmapRaw",
            0x0C => "CheckpointMapRaw",
            0x0D => "VolumeRaw",
            0x11 => "ReaperRaw",
            _ => "ObjectRaw",
        };
        let mut add = |name: &str, offset| {
            let label = format!("{name} in block {}", (at - range.start) / 4096);
            found.push(Structure::new(
                label,
                offset,
                layout.fields(name),
                Seal::ApfsObject(block.clone()),
            ));
        };
        add(name, at);
        match name {
            "NodeRaw" if le(bytes, at + 0x20, 2) & 1 == 1 => add("TreeInfoRaw", block.end - 0x28),
            "ChunkInfoRaw" => add("ChunkRaw", at + 0x28),
            "CheckpointMapRaw" => (0..le(bytes, at + 0x24, 4))
                .for_each(|entry| add("CheckpointEntryRaw", at + 0x28 + entry * 0x28)),
            _ => {}
        }
    }
    found
}

/// Returns both headers and the used entries of the GPT of a disk.
pub(super) fn gpt(bytes: &[u8]) -> Vec<Structure> {
    let layout = Layout::read(&sources!["partition/layout.rs"], false);
    let mut found = vec![Structure::new(
        "protective MBR",
        0,
        layout.fields("MbrRaw"),
        Seal::None,
    )];
    for (name, at) in [("primary GPT", 512), ("backup GPT", bytes.len() - 512)] {
        found.push(Structure::new(
            format!("{name} header"),
            at,
            layout.fields("GptHeaderRaw"),
            Seal::GptHeader(at),
        ));
        let table = le(bytes, at + 72, 8) * 512;
        for entry in 0..2 {
            let offset = table + entry * 128;
            found.push(Structure::new(
                format!("{name} entry {entry}"),
                offset,
                layout.fields("GptEntryRaw"),
                Seal::GptEntries(at),
            ));
        }
    }
    found
}

/// Returns the driver descriptor and the entries of an Apple partition map.
pub(super) fn apm(bytes: &[u8]) -> Vec<Structure> {
    let layout = Layout::read(&sources!["partition/layout.rs"], true);
    let mut found = vec![Structure::new(
        "driver descriptor",
        0,
        layout.fields("DriverDescriptorRaw"),
        Seal::None,
    )];
    for entry in 1..=be(bytes, 512 + 4, 4) {
        found.push(Structure::new(
            format!("APM entry {entry}"),
            entry * 512,
            layout.fields("ApmEntryRaw"),
            Seal::None,
        ));
    }
    found
}

/// Returns the master boot record of a disk.
pub(super) fn mbr() -> Vec<Structure> {
    vec![Structure::new(
        "MBR",
        0,
        Layout::read(&sources!["partition/layout.rs"], false).fields("MbrRaw"),
        Seal::None,
    )]
}

/// Returns the first node of a sparse image.
pub(super) fn sparse_image() -> Vec<Structure> {
    let layout = Layout::read(&sources!["container/sparseimage/layout.rs"], true);
    vec![Structure::new(
        "sparse image header",
        0,
        layout.fields("HeadRaw"),
        Seal::None,
    )]
}

/// Returns the header, the directories, and the first entries of a table of an ASIF image with the
/// states of their blocks.
pub(super) fn asif(bytes: &[u8]) -> Vec<Structure> {
    let layout = Layout::read(&sources!["container/asif/layout.rs"], true);
    let mut found = vec![Structure::new(
        "ASIF header",
        0,
        layout.fields("HeaderRaw"),
        Seal::None,
    )];
    let chunk = be(bytes, 0x40, 4);
    let mut has_table = false;
    for (number, at) in [be(bytes, 0x10, 8), be(bytes, 0x18, 8)]
        .into_iter()
        .enumerate()
    {
        found.push(Structure::new(
            format!("ASIF directory {number}, version"),
            at,
            number_at(8),
            Seal::None,
        ));
        let table = be(bytes, at + 8, 8);
        found.push(Structure::new(
            format!("ASIF directory {number}, entry 0"),
            at + 8,
            number_at(8),
            Seal::None,
        ));
        if !has_table && table != 0 && (table & 0x007F_FFFF_FFFF_FFFF) * chunk < bytes.len() {
            has_table = true;
            let table = (table & 0x007F_FFFF_FFFF_FFFF) * chunk;
            for entry in 0..6 {
                found.push(Structure::new(
                    format!("ASIF table entry {entry}"),
                    table + entry * 8,
                    number_at(8),
                    Seal::None,
                ));
            }
            // The states of the blocks of these chunks, 512 bytes for each.
            let bitmap = be(bytes, table + GROUP * 8, 8) * chunk;
            for at in (0..6 * 512).step_by(128) {
                found.push(Structure::new(
                    format!("ASIF mask of chunk {}, byte {}", at / 512, at % 512),
                    bitmap + at,
                    number_at(8),
                    Seal::None,
                ));
            }
        }
    }
    found
}

/// Number of chunks in a group of an ASIF table.
const GROUP: usize = 2048;

fn number_at(size: usize) -> Vec<Field> {
    number(0, size, true)
}

/// Returns the header, the directory and the passphrase entry of an encrypted image.
pub(super) fn encryption(bytes: &[u8]) -> Vec<Structure> {
    let layout = Layout::read(&crate::crypt::LAYOUTS, true);
    let mut found = vec![Structure::new(
        "encryption header",
        0,
        layout.fields("HeaderRaw"),
        Seal::None,
    )];
    for entry in 0..be(bytes, 0x48, 4) {
        let at = 0x4C + entry * 20;
        found.push(Structure::new(
            format!("key directory {entry}"),
            at,
            layout.fields("DirectoryRaw"),
            Seal::None,
        ));
        let place = be(bytes, at + 4, 8);
        found.push(Structure::new(
            format!("key entry {entry}"),
            place,
            layout.fields("PassphraseRaw"),
            Seal::None,
        ));
    }
    found
}

/// Returns the trailer of a compressed image.
pub(super) fn udif(bytes: &[u8]) -> Vec<Structure> {
    let layout = Layout::read(
        &sources![
            "container/udif/layout/trailer.rs",
            "container/udif/layout/mod.rs"
        ],
        true,
    );
    vec![Structure::new(
        "koly trailer",
        bytes.len() - 512,
        layout.fields("KolyRaw"),
        Seal::None,
    )]
}
