//! Geometry of an ASIF image. Source: docs/formats/asif.md §1.
//!
//! ```text
//!  table  = group, group, ...             a chunk of the file full of 8-byte entries
//!  group  = N data entries, 1 bitmap entry        N = 4 * block
//!  bitmap = N * blocks-per-chunk states of 2 bits, exactly one chunk
//! ```

use std::ops::Range;

use super::LAYER;
use super::layout::{DiskChunk, FileChunk, MAGIC, NUMBER, header_offset, table_offset};
use crate::container::SECTOR;
use crate::size::narrow;
use crate::{Error, Result};

/// Chunk size of new images in bytes, as in all images by macOS.
pub(super) const CHUNK: u32 = 1 << 20;
const MAX_CHUNK: u32 = 64 << 20;
/// Maximum disk length that macOS creates, in bytes: 4 PiB.
const MAX_LEN: u64 = 1 << 52;
/// Maximum number of tables in a directory, which limits its size to 8 MiB. A disk of 4 PiB with
/// chunks of the usual size needs 33,289.
const MAX_TABLES: u64 = 1 << 20;

/// Sizes and counts derived from the header, all validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Block size in bytes.
    pub(super) block: u32,
    /// Chunk size in bytes.
    pub(super) chunk: u32,
    /// Number of addressable blocks, metadata included.
    pub(super) max_sectors: u64,
    groups_per_table: u64,
    /// Number of tables in a directory.
    pub(super) tables: u32,
}

/// Location of the entries for a chunk of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TablePlace {
    pub(super) table: u32,
    /// Index of its own entry in the table.
    pub(super) entry: u32,
    /// Index of the bitmap entry of its group.
    pub(super) bitmap_entry: u32,
    /// Its index in the group, which is the index of its mask in the bitmap.
    pub(super) in_group: u32,
}

/// Meaning of a table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Data(DiskChunk),
    Bitmap,
    Nothing,
}

impl Geometry {
    pub(super) fn new(block: u32, chunk: u32, max_sectors: u64) -> Result<Self> {
        if block == 0 || !u64::from(block).is_multiple_of(SECTOR) {
            return Err(Error::corrupt(
                LAYER,
                header_offset!(block_size),
                format!("invalid block size {block}: expected a multiple of {SECTOR}"),
            ));
        }
        if chunk < block || !chunk.is_multiple_of(block) || chunk > MAX_CHUNK {
            let expected = format!(
                "invalid chunk size {chunk}: expected a multiple of {block} up to {MAX_CHUNK}"
            );
            return Err(Error::corrupt(LAYER, header_offset!(chunk_size), expected));
        }
        let group = 4 * u64::from(block) + 1;
        let groups_per_table = u64::from(chunk) / NUMBER / group;
        if groups_per_table == 0 || !(chunk / block).is_multiple_of(4) {
            let odd = format!(
                "unsupported chunk size {chunk} with blocks of {block} bytes: its tables and \
                 bitmaps would not have whole entries"
            );
            return Err(Error::unsupported(LAYER, odd).at(header_offset!(chunk_size)));
        }
        if max_sectors >= u64::MAX / u64::from(block) {
            return Err(Error::corrupt(
                LAYER,
                header_offset!(max_sector_count),
                format!(
                    "the header allows {max_sectors} blocks of {block} bytes, which exceed 2^64 \
                     bytes"
                ),
            ));
        }
        if max_sectors * u64::from(block) > i64::MAX as u64 {
            let limit = format!(
                "the header allows {max_sectors} blocks of {block} bytes, which exceed 2^63 bytes"
            );
            return Err(Error::limit(LAYER, limit).at(header_offset!(max_sector_count)));
        }
        let per_table = groups_per_table * (group - 1) * u64::from(chunk);
        let tables = (max_sectors * u64::from(block)).div_ceil(per_table);
        if tables > MAX_TABLES {
            let limit = format!(
                "directory of {tables} tables is too large: at most {MAX_TABLES} are \
                         supported"
            );
            return Err(Error::limit(LAYER, limit).at(header_offset!(max_sector_count)));
        }
        Ok(Self {
            block,
            chunk,
            max_sectors,
            groups_per_table,
            tables: narrow(tables),
        })
    }

    /// Returns the geometry that macOS uses for a new disk of `sectors` blocks.
    pub(super) fn for_disk(block: u32, sectors: u64) -> Result<Self> {
        if sectors
            .checked_mul(u64::from(block))
            .is_none_or(|len| len > MAX_LEN)
        {
            let limit = format!("disk of {sectors} blocks of {block} bytes exceeds 4 PiB");
            return Err(Error::limit(LAYER, limit));
        }
        let room = sectors + 2 * u64::from(CHUNK / block);
        Self::new(block, CHUNK, room.max(MAX_LEN / u64::from(block)))
    }

    pub(super) fn chunk_bytes(&self) -> u64 {
        u64::from(self.chunk)
    }

    pub(super) fn blocks_per_chunk(&self) -> u32 {
        self.chunk / self.block
    }

    /// Returns the length of the mask of one chunk, in bytes.
    pub(super) fn mask_bytes(&self) -> u32 {
        self.blocks_per_chunk() / 4
    }

    /// Returns the number of data entries in a group.
    fn data_per_group(&self) -> u64 {
        4 * u64::from(self.block)
    }

    /// Returns the number of chunks of the disk that one table covers.
    pub(super) fn chunks_per_table(&self) -> u64 {
        self.groups_per_table * self.data_per_group()
    }

    /// Returns the number of entries in a table; the rest of its chunk is unused.
    pub(super) fn entries_per_table(&self) -> u32 {
        narrow::<u32>(self.groups_per_table * (self.data_per_group() + 1))
    }

    /// Returns the number of addressable chunks.
    pub(super) fn disk_chunks(&self) -> u64 {
        u64::from(self.tables) * self.chunks_per_table()
    }

    /// Returns the chunk of the disk at byte `offset`.
    pub(super) fn chunk_at(&self, offset: u64) -> DiskChunk {
        DiskChunk(offset / self.chunk_bytes())
    }

    /// Returns the disk offset of a chunk, which must be addressable.
    pub(super) fn start(&self, chunk: DiskChunk) -> u64 {
        chunk.0 * self.chunk_bytes()
    }

    /// Returns the location of the entries for `chunk`, which must be addressable.
    pub(super) fn table_place(&self, chunk: DiskChunk) -> TablePlace {
        let table = chunk.0 / self.chunks_per_table();
        let within = chunk.0 % self.chunks_per_table();
        let (group, in_group) = (
            within / self.data_per_group(),
            within % self.data_per_group(),
        );
        let first = group * (self.data_per_group() + 1);
        TablePlace {
            table: narrow(table),
            entry: narrow(first + in_group),
            bitmap_entry: narrow(first + self.data_per_group()),
            in_group: narrow(in_group),
        }
    }

    /// Returns the meaning of a table entry, the inverse of [`table_place`](Self::table_place).
    pub(super) fn entry_kind(&self, table: u32, entry: u32) -> EntryKind {
        if entry >= self.entries_per_table() {
            return EntryKind::Nothing;
        }
        let group = self.data_per_group() + 1;
        let (group, in_group) = (u64::from(entry) / group, u64::from(entry) % group);
        if in_group == self.data_per_group() {
            return EntryKind::Bitmap;
        }
        EntryKind::Data(DiskChunk(
            u64::from(table) * self.chunks_per_table() + group * self.data_per_group() + in_group,
        ))
    }

    /// Returns the last chunk of the group of a bitmap entry.
    pub(super) fn last_of_group(&self, table: u32, bitmap_entry: u32) -> Option<DiskChunk> {
        match self.entry_kind(table, bitmap_entry.checked_sub(1)?) {
            EntryKind::Data(chunk) => Some(chunk),
            EntryKind::Bitmap | EntryKind::Nothing => None,
        }
    }

    /// Returns true if the chunk ends below byte 2^63 of a file.
    pub(super) fn can_be(&self, chunk: FileChunk) -> bool {
        chunk.0 < i64::MAX as u64 / self.chunk_bytes()
    }

    /// Returns the file range of the bytes `within` of a chunk that [can exist](Self::can_be).
    pub(super) fn in_file(&self, chunk: FileChunk, within: Range<u64>) -> Range<u64> {
        let start = chunk.0 * self.chunk_bytes();
        start + within.start..start + within.end
    }

    /// Returns the header size as macOS writes it: 512 bytes, rounded up to a block.
    pub(super) fn header_size(&self) -> u64 {
        SECTOR.next_multiple_of(u64::from(self.block))
    }

    /// Returns the size of a directory in bytes: a version and a number for each table.
    pub(super) fn directory_bytes(&self) -> u64 {
        table_offset(self.tables).next_multiple_of(u64::from(self.block))
    }

    /// Returns the file offsets of the directories of a new image.
    pub(super) fn directories(&self) -> [u64; 2] {
        [
            self.header_size(),
            self.header_size() + self.directory_bytes(),
        ]
    }

    /// Returns the first chunk after directories at these offsets.
    pub(super) fn first_chunk(&self, directories: &[Option<u64>; 2]) -> FileChunk {
        let end = directories
            .iter()
            .flatten()
            .map(|start| start + self.directory_bytes())
            .max();
        FileChunk(end.unwrap_or(0).div_ceil(self.chunk_bytes()))
    }

    /// Returns the chunk of the metadata of a new image: the last whole chunk that is addressable.
    pub(super) fn default_metadata_chunk(&self) -> DiskChunk {
        DiskChunk(
            (self.max_sectors * u64::from(self.block) - self.chunk_bytes()) / self.chunk_bytes(),
        )
    }
}

/// Returns true if `start` begins an ASIF file, or one of an older format with the same magic.
pub fn probe(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn the_geometry_of_macos() {
        let geometry = Geometry::for_disk(512, 19_531_250).unwrap();
        assert_eq!(geometry.max_sectors, 0x0800_0000_0000);
        assert_eq!(
            (
                geometry.tables,
                geometry.groups_per_table,
                geometry.entries_per_table()
            ),
            (33_289, 63, 129_087)
        );
        assert_eq!(
            (geometry.directory_bytes(), geometry.directories()),
            (0x41200, [0x200, 0x41400])
        );
        assert_eq!(geometry.default_metadata_chunk(), DiskChunk(0xFFFF_FFFF));
        let place = TablePlace {
            table: 33_288,
            entry: 0x20030 / 8,
            bitmap_entry: 0x20038 / 8,
            in_group: 2047,
        };
        assert_eq!(geometry.table_place(DiskChunk(0xFFFF_FFFF)), place);
        let large = Geometry::for_disk(4096, 1 << 20).unwrap();
        assert_eq!(
            (large.tables, large.groups_per_table, large.mask_bytes()),
            (37_450, 7, 64)
        );
    }

    #[test]
    fn every_entry_is_about_one_thing() {
        for block in [512, 4096] {
            let geometry = Geometry::for_disk(block, 1 << 20).unwrap();
            for chunk in [0, 1, 2047, 2048, 129_023, 129_024, 0xFFFF_FFFF].map(DiskChunk) {
                let place = geometry.table_place(chunk);
                assert_eq!(
                    geometry.entry_kind(place.table, place.entry),
                    EntryKind::Data(chunk)
                );
                assert_eq!(
                    geometry.entry_kind(place.table, place.bitmap_entry),
                    EntryKind::Bitmap
                );
            }
            assert_eq!(
                geometry.entry_kind(0, geometry.entries_per_table()),
                EntryKind::Nothing
            );
        }
    }

    #[test]
    fn the_largest_disk_has_room_for_metadata() {
        let geometry = Geometry::for_disk(512, MAX_LEN / 512).unwrap();
        assert_eq!(geometry.max_sectors, MAX_LEN / 512 + 4096);
        assert!(geometry.start(geometry.default_metadata_chunk()) >= MAX_LEN);
        assert_eq!(
            Geometry::for_disk(512, MAX_LEN / 512 + 1)
                .unwrap_err()
                .kind(),
            Kind::Limit
        );
        assert_eq!(
            Geometry::new(512, 64 << 10, 1 << 50).unwrap_err().kind(),
            Kind::Limit
        );
    }
}
