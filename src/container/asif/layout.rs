//! On-disk structures of an ASIF file. Big-endian, no checksums. Source: docs/formats/asif.md.
//!
//! The file is an array of chunks. The first holds the header and two directories. A directory
//! lists the chunks of tables. A table lists, for each chunk of the disk, the chunk of the file
//! that stores it, and bitmap chunks, which list the written blocks of partly written chunks.

use std::mem::offset_of;

use uuid::Uuid;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::LAYER;
use super::geometry::Geometry;
use crate::size::narrow;
use crate::{Error, Result};

pub(super) const MAGIC: [u8; 4] = *b"shdw";
const VERSION: u32 = 1;
/// Range of header sizes that macOS accepts, in bytes.
const HEADER_SIZES: std::ops::RangeInclusive<u32> = 0x50..=0x10_0000;

/// The header at the start of the file.
///
/// Source: images of macOS 26 and huven/asif-format (docs/formats/asif.md §2).
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Clone)]
#[repr(C)]
pub(super) struct HeaderRaw {
    /*00*/ magic: [u8; 4],
    /*04*/ version: U32,
    /*08*/ header_size: U32,
    /*0C*/ header_flags: U32,
    /*10*/ pub(super) directories: [U64; 2], // bytes of the file
    /*20*/ pub(super) uuid: [u8; 16], // in the order of its text
    /*30*/ pub(super) sector_count: U64, // in blocks
    /*38*/ pub(super) max_sector_count: U64,
    /*40*/ pub(super) chunk_size: U32,
    /*44*/ pub(super) block_size: U16,
    /*46*/ total_segments: U16,
    /*48*/ pub(super) metadata_chunk: U64, // a chunk of the disk, 0: none
    /*50*/ pub(super) parent_uuid: [u8; 16],
    /*60*/ read_only_flags: U32,
    /*64*/ metadata_flags: U32,
    /*68*/ metadata_read_only_flags: U32,
}
pub(super) const HEADER: usize = 0x6C;
const _: () = assert!(size_of::<HeaderRaw>() == HEADER);

/// Returns the offset in the file of a field of the header, in bytes.
macro_rules! header_offset {
    ($field:ident) => {
        std::mem::offset_of!($crate::container::asif::layout::HeaderRaw, $field) as u64
    };
}
pub(super) use header_offset;

/// Returns the offset in the file of the header's field with the place of a directory, in bytes.
pub(super) fn directory_field(directory: usize) -> u64 {
    header_offset!(directories) + NUMBER * directory as u64
}

/// Size of a number in a directory or a table, in bytes.
pub(super) const NUMBER: u64 = size_of::<U64>() as u64;
/// Size of the version at the start of a directory, in bytes. The chunk numbers of the tables follow.
pub(super) const DIRECTORY_VERSION: usize = size_of::<U64>();

/// Returns the offset in a directory of a table's chunk number, in bytes. That of the table after the last
/// is the length in use.
pub(super) fn table_offset(table: u32) -> u64 {
    DIRECTORY_VERSION as u64 + NUMBER * u64::from(table)
}

/// Returns the offset of an entry in its table, in bytes.
pub(super) fn entry_offset(entry: u32) -> u64 {
    NUMBER * u64::from(entry)
}

/// The only known header flag: set in the cache layer of a stack.
const FLAG_CACHE: u32 = 1;

/// A parsed header.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) geometry: Geometry,
    /// Length of the disk in blocks, at most `geometry`'s.
    pub(super) sectors: u64,
    pub(super) parent: Uuid,
    pub(super) is_cache: bool,
    /// The chunk of the first metadata segment.
    pub(super) metadata: Option<DiskChunk>,
    /// File offsets of the directories; `None` for a missing one.
    pub(super) directories: [Option<u64>; 2],
    /// Reason why the image is read-only, if it is.
    pub(super) read_only: Option<String>,
    /// Reason why the metadata is read-only, if it is.
    pub(super) metadata_read_only: Option<String>,
}

impl HeaderRaw {
    /// Parses a header from its first bytes. Fields past the header's own size are zero.
    pub(super) fn read(mut bytes: [u8; HEADER]) -> Self {
        let raw: Self = zerocopy::transmute!(bytes);
        let size = raw.header_size.get();
        if let Some(beyond) = bytes
            .get_mut(size as usize..)
            .filter(|_| HEADER_SIZES.contains(&size))
        {
            beyond.fill(0);
        }
        zerocopy::transmute!(bytes)
    }

    /// Returns the bytes of the header up to the places of the directories.
    pub(super) fn up_to_directories(&self) -> &[u8] {
        &self.as_bytes()[..offset_of!(Self, uuid)]
    }

    /// Returns the header of a new image.
    pub(super) fn new(
        geometry: &Geometry,
        sectors: u64,
        uuid: Uuid,
        parent: Uuid,
        is_cache: bool,
    ) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION.into(),
            header_size: narrow::<u32>(geometry.header_size()).into(),
            header_flags: if is_cache {
                FLAG_CACHE.into()
            } else {
                U32::ZERO
            },
            directories: geometry.directories().map(U64::new),
            uuid: uuid.into_bytes(),
            sector_count: sectors.into(),
            max_sector_count: geometry.max_sectors.into(),
            chunk_size: geometry.chunk.into(),
            block_size: narrow::<u16>(geometry.block).into(),
            total_segments: U16::ZERO,
            metadata_chunk: geometry.default_metadata_chunk().0.into(),
            parent_uuid: parent.into_bytes(),
            read_only_flags: U32::ZERO,
            metadata_flags: U32::ZERO,
            metadata_read_only_flags: U32::ZERO,
        }
    }
}

impl Header {
    pub(super) fn parse(raw: &HeaderRaw) -> Result<Self> {
        if raw.magic != MAGIC {
            return Err(Error::corrupt(
                LAYER,
                0,
                "invalid signature: expected \"shdw\"",
            ));
        }
        check_version(raw.version.get())?;
        let header_size = raw.header_size.get();
        if !HEADER_SIZES.contains(&header_size) {
            return Err(Error::corrupt(
                LAYER,
                header_offset!(header_size),
                format!("invalid header size {header_size}: expected 80 to 1048576 bytes"),
            ));
        }
        refuse_flags(
            "header flags",
            header_offset!(header_flags),
            raw.header_flags.get() & !FLAG_CACHE,
        )?;
        refuse_flags(
            "metadata flags",
            header_offset!(metadata_flags),
            raw.metadata_flags.get(),
        )?;
        if raw.total_segments.get() != 0 {
            let segments = format!("unsupported: disk of {} segments", raw.total_segments.get());
            return Err(Error::unsupported(LAYER, segments).at(header_offset!(total_segments)));
        }
        let (block, chunk) = (u32::from(raw.block_size.get()), raw.chunk_size.get());
        let geometry = Geometry::new(block, chunk, raw.max_sector_count.get())?;
        let sectors = raw.sector_count.get();
        if sectors > geometry.max_sectors {
            let beyond = format!(
                "the header records a disk of {sectors} blocks, but a maximum of {}",
                geometry.max_sectors
            );
            return Err(Error::corrupt(LAYER, header_offset!(sector_count), beyond));
        }
        let directories = parse_directories(raw, u64::from(header_size), &geometry)?;
        let mut read_only = unknown_flags("read-only flags", raw.read_only_flags.get());
        if read_only.is_none() && directories.contains(&None) {
            read_only = Some(
                "the image has one directory only, and a change needs two to be safe".to_owned(),
            );
        }
        Ok(Self {
            sectors,
            parent: Uuid::from_bytes(raw.parent_uuid),
            is_cache: raw.header_flags.get() & FLAG_CACHE != 0,
            metadata: Some(raw.metadata_chunk.get())
                .filter(|chunk| *chunk != 0)
                .map(DiskChunk),
            directories,
            read_only,
            metadata_read_only: unknown_flags(
                "metadata read-only flags",
                raw.metadata_read_only_flags.get(),
            ),
            geometry,
        })
    }

    /// Returns the first chunk after the header and the directories.
    pub(super) fn first_chunk(&self) -> FileChunk {
        self.geometry.first_chunk(&self.directories)
    }
}

fn check_version(version: u32) -> Result<()> {
    match version {
        VERSION => Ok(()),
        2..=4 => {
            let old = format!("unsupported: version {version} is an old shadow file, not ASIF");
            Err(Error::unsupported(LAYER, old).at(header_offset!(version)))
        }
        _ => Err(Error::unsupported(
            LAYER,
            format!("unsupported version {version}: only {VERSION} is supported"),
        )
        .at(header_offset!(version))),
    }
}

fn parse_directories(
    raw: &HeaderRaw,
    header_size: u64,
    geometry: &Geometry,
) -> Result<[Option<u64>; 2]> {
    let len = geometry.directory_bytes();
    let found = raw
        .directories
        .map(|at| Some(at.get()).filter(|at| *at != 0));
    for (at, field) in found
        .iter()
        .zip([0, 1].map(directory_field))
        .filter_map(|(at, field)| at.map(|at| (at, field)))
    {
        if at < header_size
            || !at.is_multiple_of(NUMBER)
            || at.checked_add(len).is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(Error::corrupt(
                LAYER,
                field,
                format!("invalid directory: {len} bytes at byte {at}"),
            ));
        }
    }
    match found {
        [None, None] => Err(Error::corrupt(
            LAYER,
            header_offset!(directories),
            "no valid directory",
        )),
        [Some(one), Some(other)] if one.abs_diff(other) < len => Err(Error::corrupt(
            LAYER,
            header_offset!(directories),
            format!("directories at bytes {one} and {other}, of {len} bytes each, overlap"),
        )),
        found => Ok(found),
    }
}

fn unknown_flags(field: &str, bits: u32) -> Option<String> {
    (bits != 0).then(|| format!("unknown {field} {bits:#x}"))
}

fn refuse_flags(field: &str, at: u64, bits: u32) -> Result<()> {
    unknown_flags(field, bits).map_or(Ok(()), |unknown| {
        Err(Error::unsupported(LAYER, unknown).at(at))
    })
}

/// Number of a chunk of the disk's address space. Chunks past the end of the disk may hold
/// metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DiskChunk(pub(super) u64);

/// Number of a chunk of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileChunk(pub(super) u64);

const STATUS_SHIFT: u32 = 62;
const RESERVED: u64 = 0x3F80_0000_0000_0000;
const CHUNK_MASK: u64 = (1 << 55) - 1;

/// A table entry of a chunk of the disk. Source: §4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkEntry {
    /// Never written. In a stack the layer below is visible.
    Uninit,
    /// Discarded: explicit zeros, which hide the layer below.
    Unmapped,
    /// All blocks are written.
    Full(FileChunk),
    /// The bitmap of the group has the state of each block.
    Partial(FileChunk),
}

impl ChunkEntry {
    /// Parses an entry. The error is a description of the damage.
    pub(super) fn parse(raw: u64) -> Result<Self, &'static str> {
        let chunk = FileChunk(raw & CHUNK_MASK);
        match (raw >> STATUS_SHIFT, chunk.0) {
            _ if raw & RESERVED != 0 => Err("invalid entry: reserved bits are set"),
            (0, 0) => Ok(Self::Uninit),
            (2, 0) => Ok(Self::Unmapped),
            (0 | 2, _) => Err("invalid entry: it has no data but a chunk number"),
            (_, 0) => Err("invalid entry: it has data but no chunk number"),
            (1, _) => Ok(Self::Full(chunk)),
            _ => Ok(Self::Partial(chunk)),
        }
    }

    pub(super) fn raw(self) -> u64 {
        match self {
            Self::Uninit => 0,
            Self::Unmapped => 2 << STATUS_SHIFT,
            Self::Full(chunk) => 1 << STATUS_SHIFT | chunk.0,
            Self::Partial(chunk) => 3 << STATUS_SHIFT | chunk.0,
        }
    }

    pub(super) fn chunk(self) -> Option<FileChunk> {
        match self {
            Self::Uninit | Self::Unmapped => None,
            Self::Full(chunk) | Self::Partial(chunk) => Some(chunk),
        }
    }
}

/// Parses a bitmap entry: the bitmap chunk of a group, if it has one. The error is a description of
/// the damage. Source: §4.2.
pub(super) fn parse_bitmap_entry(raw: u64) -> Result<Option<FileChunk>, &'static str> {
    match raw {
        0 => Ok(None),
        _ if raw & !CHUNK_MASK != 0 => Err("invalid bitmap entry: status or reserved bits are set"),
        chunk => Ok(Some(FileChunk(chunk))),
    }
}

/// The header of a metadata segment.
///
/// Source: images of macOS 26 and huven/asif-format (docs/formats/asif.md §5).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SegmentRaw {
    /*00*/ magic: [u8; 4],
    /*04*/ version: U32,
    /*08*/ header_size: U32,
    /*0C*/ data_size: U64,
    /*14*/ next: U64, // a chunk of the disk, 0: the last segment
}
pub(super) const SEGMENT: usize = 0x1C;
const _: () = assert!(size_of::<SegmentRaw>() == SEGMENT);

const SEGMENT_MAGIC: [u8; 4] = *b"meta";
const SEGMENT_VERSION: u32 = 1;
/// Sizes of a segment's header that macOS accepts, in bytes.
const SEGMENT_HEADER_SIZES: [u32; 2] = [512, 4096];

/// A parsed segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// Offset of the data within its chunk, in bytes.
    pub(super) header_size: u32,
    pub(super) data_size: u32,
    pub(super) next: Option<DiskChunk>,
}

impl Segment {
    /// Parses the header found at byte `at` of the disk's address space.
    pub(super) fn parse(raw: &SegmentRaw, geometry: &Geometry, at: u64) -> Result<Self> {
        let wrong = |offset: usize, what: String| {
            Err(Error::corrupt(
                "asif metadata",
                at.saturating_add(offset as u64),
                what,
            ))
        };
        if raw.magic != SEGMENT_MAGIC {
            return wrong(
                offset_of!(SegmentRaw, magic),
                "invalid segment signature: expected \"meta\"".to_owned(),
            );
        }
        if raw.version.get() != SEGMENT_VERSION {
            return wrong(
                offset_of!(SegmentRaw, version),
                format!(
                    "unsupported segment version {}: only {SEGMENT_VERSION} is supported",
                    raw.version.get()
                ),
            );
        }
        let header_size = raw.header_size.get();
        if !SEGMENT_HEADER_SIZES.contains(&header_size) || header_size >= geometry.chunk {
            return wrong(
                offset_of!(SegmentRaw, header_size),
                format!("invalid segment header size {header_size}: expected 512 or 4096 bytes"),
            );
        }
        let (size, most) = (raw.data_size.get(), u64::from(geometry.chunk - header_size));
        match u32::try_from(size) {
            Ok(data_size) if size <= most && data_size.is_multiple_of(geometry.block) => {
                let next = Some(raw.next.get())
                    .filter(|next| *next != 0)
                    .map(DiskChunk);
                Ok(Self {
                    header_size,
                    data_size,
                    next,
                })
            }
            _ => wrong(
                offset_of!(SegmentRaw, data_size),
                format!(
                    "invalid segment size {size}: expected whole blocks and at most {most} \
                         bytes"
                ),
            ),
        }
    }

    pub(super) fn raw(&self) -> SegmentRaw {
        SegmentRaw {
            magic: SEGMENT_MAGIC,
            version: SEGMENT_VERSION.into(),
            header_size: self.header_size.into(),
            data_size: u64::from(self.data_size).into(),
            next: self.next.map_or(0, |next| next.0).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> HeaderRaw {
        let geometry = Geometry::for_disk(512, 195_312_500).unwrap();
        HeaderRaw::new(
            &geometry,
            195_312_500,
            Uuid::from_u128(7),
            Uuid::nil(),
            false,
        )
    }

    #[test]
    fn headers_read_back() {
        let parsed = Header::parse(&header()).unwrap();
        assert_eq!(parsed.sectors, 195_312_500);
        assert_eq!(parsed.directories, [Some(0x200), Some(0x41400)]);
        assert_eq!((parsed.parent, parsed.is_cache), (Uuid::nil(), false));
        assert_eq!(
            (parsed.metadata, parsed.first_chunk()),
            (Some(DiskChunk(0xFFFF_FFFF)), FileChunk(1))
        );
        assert!(parsed.read_only.is_none() && parsed.metadata_read_only.is_none());
    }

    #[test]
    fn headers_that_macos_refuses_are_refused_by_name() {
        type Change = fn(&mut HeaderRaw);
        let cases: [(Change, &str); 12] = [
            (|raw| raw.magic = *b"shdx", "invalid signature"),
            (|raw| raw.version = 0.into(), "unsupported version 0"),
            (|raw| raw.version = 3.into(), "an old shadow file"),
            (
                |raw| raw.header_size = 0x4F.into(),
                "invalid header size 79",
            ),
            (
                |raw| raw.header_flags = 6.into(),
                "unknown header flags 0x6",
            ),
            (
                |raw| raw.metadata_flags = 8.into(),
                "unknown metadata flags 0x8",
            ),
            (|raw| raw.total_segments = 1.into(), "1 segments"),
            (|raw| raw.block_size = 100.into(), "invalid block size 100"),
            (
                |raw| raw.chunk_size = 1000.into(),
                "invalid chunk size 1000",
            ),
            (
                |raw| raw.max_sector_count = U64::new(u64::MAX / 512),
                "exceed 2^64 bytes",
            ),
            (
                |raw| raw.sector_count = U64::new(1 << 44),
                "a maximum of 8796093022208",
            ),
            (|raw| raw.directories[1] = 0x300.into(), "overlap"),
        ];
        for (change, expected) in cases {
            let mut raw = header();
            change(&mut raw);
            let error = Header::parse(&raw).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}, expected {expected}");
        }
    }

    #[test]
    fn some_flags_only_forbid_changes() {
        let mut raw = header();
        raw.header_flags = 1.into();
        raw.read_only_flags = 4.into();
        raw.metadata_read_only_flags = 2.into();
        let parsed = Header::parse(&raw).unwrap();
        assert!(parsed.is_cache);
        assert_eq!(
            parsed.read_only.as_deref(),
            Some("unknown read-only flags 0x4")
        );
        assert_eq!(
            parsed.metadata_read_only.as_deref(),
            Some("unknown metadata read-only flags 0x2")
        );
    }

    #[test]
    fn a_short_header_has_zeros_beyond() {
        let mut raw = header();
        raw.header_size = 0x50.into();
        raw.metadata_flags = 9.into();
        let raw = HeaderRaw::read(zerocopy::transmute!(raw));
        assert_eq!(raw.metadata_flags.get(), 0);
        Header::parse(&raw).unwrap();
    }

    #[test]
    fn entries() {
        for entry in [
            ChunkEntry::Uninit,
            ChunkEntry::Unmapped,
            ChunkEntry::Full(FileChunk(5)),
            ChunkEntry::Partial(FileChunk(2)),
        ] {
            assert_eq!(ChunkEntry::parse(entry.raw()), Ok(entry));
        }
        assert_eq!(
            ChunkEntry::Partial(FileChunk(2)).raw(),
            0xC000_0000_0000_0002
        );
        for raw in [
            5,
            2 << 62 | 5,
            1 << 62,
            3 << 62,
            1 << 62 | 1 << 55 | 5,
            1 << 61,
        ] {
            assert!(ChunkEntry::parse(raw).is_err(), "{raw:#x}");
        }
        assert_eq!(parse_bitmap_entry(3), Ok(Some(FileChunk(3))));
        assert_eq!(parse_bitmap_entry(0), Ok(None));
        assert!(parse_bitmap_entry(1 << 62 | 3).is_err());
    }
}
