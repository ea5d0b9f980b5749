//! VHDX of Hyper-V: fixed and dynamic disks. Source: docs/formats/virtual-disks.md.

#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod layout;

use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::crc32c::crc32c;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use self::layout::{
    BAT, BLOCK_PARTIAL, BLOCK_PRESENT, BLOCK_RESERVED, BLOCK_STATE, BLOCK_ZERO, CHECKSUM_AT,
    DISK_ID, DISK_SIZE, FILE_MAGIC, FILE_PARAMETERS, HAS_PARENT, HEADER_SIGNATURE, HEADER_SIZE,
    HEADERS, LOGICAL_SECTOR, LocatorEntryRaw, LocatorRaw, METADATA, METADATA_REQUIRED,
    METADATA_SIGNATURE, MetadataRaw, MetadataTableRaw, OFFSET_SHIFT, PARENT_LOCATOR,
    PHYSICAL_SECTOR, REGION_SIGNATURE, REGION_TABLES, RegionRaw, RegionTableRaw, TABLE_SIZE,
    VhdxHeaderRaw,
};
use super::checksum::StoredChecksum;
use super::mapped::{ChunkPlace, DiskMap, MappedChunk};
use super::{Format, SECTOR};
use crate::device::{BlockDevice, BlockDeviceExt, ChunkCache};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::size::{self, to_usize};
use crate::{Error, Reason, Result};

const LAYER: &str = "vhdx";
const MIB: u64 = 1 << 20;
/// Largest disk, in bytes: 64 TiB.
const MAX_DISK: u64 = 64 << 40;
/// Longest description of a parent that is read, in bytes.
const MAX_LOCATOR: u64 = 64 << 10;
/// Largest number of entries of a table.
const MAX_ENTRIES: usize = 2047;
/// Bytes of the table of blocks that are read at a time, and kept.
const PIECE: u64 = 64 << 10;
const CACHE: usize = 8 << 20;

/// The disk of a VHDX image.
#[derive(Debug)]
pub struct Vhdx {
    file: Arc<dyn BlockDevice>,
    len: u64,
    block_size: u64,
    /// Number of blocks after which the table has an entry of a bitmap.
    ratio: u64,
    /// The table of blocks in the file.
    table: Range<u64>,
    pieces: ChunkCache<u64>,
}

/// Returns true if `file` begins as a VHDX image.
pub fn probe(file: &dyn BlockDevice) -> Result<bool> {
    Ok(file.info().len >= FILE_MAGIC.len() as u64 && file.read_array::<8>(0)? == FILE_MAGIC)
}

fn damaged(at: u64, message: impl Into<String>) -> Error {
    Error::corrupt(LAYER, at, message.into())
}

/// Returns the CRC-32C of `bytes`, a header or table, with the field of the checksum as zeros.
fn checksum(bytes: &[u8]) -> u32 {
    let (before, field) = bytes.split_at(CHECKSUM_AT);
    let (field, after) = field.split_at(size_of::<u32>());
    let zeroed = crc32c(crc32c(u32::MAX, before), &[0; 4][..field.len()]);
    !crc32c(zeroed, after)
}

impl Vhdx {
    /// Opens the image in `file`.
    ///
    /// [`crate::Kind::Unsupported`] if its log is to be replayed, or it is a layer over another disk.
    pub fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        if !probe(&*file)? {
            return Err(damaged(0, "the file has no signature"));
        }
        let file_len = file.info().len;
        if file_len < MIB {
            let message =
                format!("the file is truncated: {file_len} bytes, expected 1 MiB at least");
            return Err(damaged(file_len, message).because(Reason::Truncated));
        }
        check_header(&*file)?;
        let [table, metadata] = regions(&*file)?;
        let VhdxMetadata {
            block_size,
            len,
            sector,
        } = VhdxMetadata::read(&*file, metadata)?;
        let ratio = (u64::from(sector) << 23) / block_size;
        let blocks = len.div_ceil(block_size);
        let entries = blocks + blocks.saturating_sub(1) / ratio;
        if entries * 8 > table.end - table.start {
            let message = format!("the table of blocks is too short for {blocks} blocks");
            return Err(damaged(table.start, message));
        }
        Ok(Self {
            file,
            len,
            block_size,
            ratio,
            table,
            pieces: ChunkCache::new(CACHE),
        })
    }

    /// Returns the entry of a block.
    fn entry(&self, number: u64) -> Result<BlockEntry> {
        let at = (number + number / self.ratio) * 8;
        let piece = at / PIECE;
        let bytes = self.pieces.get(piece, || {
            let start = self.table.start + piece * PIECE;
            let len = PIECE.min(self.table.end - start);
            self.file.read_vec(start, to_usize(len)).map(Arc::new)
        })?;
        let entry = bytes
            .get(to_usize(at % PIECE)..)
            .and_then(|bytes| bytes.first_chunk());
        entry
            .map(|entry| BlockEntry(u64::from_le_bytes(*entry)))
            .ok_or_else(|| {
                damaged(
                    self.table.start + at,
                    "the entry is past the table of blocks",
                )
            })
    }
}

/// An entry of the table of blocks.
#[derive(Debug, Clone, Copy)]
struct BlockEntry(u64);

impl BlockEntry {
    fn state(self) -> u64 {
        self.0 & BLOCK_STATE
    }

    /// Returns the file offset of the data, in bytes.
    fn offset(self) -> u64 {
        (self.0 >> OFFSET_SHIFT) * MIB
    }
}

/// Refuses an image whose log is to be replayed. Of two headers the newer one counts.
fn check_header(file: &dyn BlockDevice) -> Result<()> {
    let mut newest: Option<VhdxHeaderRaw> = None;
    for at in HEADERS {
        let bytes = file.read_array::<HEADER_SIZE>(at)?;
        let Ok((header, _)) = VhdxHeaderRaw::read_from_prefix(&bytes) else {
            continue;
        };
        let is_valid =
            header.signature == HEADER_SIGNATURE && header.checksum.get() == checksum(&bytes);
        let is_newer = |before: &VhdxHeaderRaw| header.sequence.get() > before.sequence.get();
        if is_valid && newest.as_ref().is_none_or(is_newer) {
            newest = Some(header);
        }
    }
    let [first, _] = HEADERS;
    let header = newest.ok_or_else(|| damaged(first, "both headers are damaged"))?;
    if header.version.get() != 1 {
        let message = format!("VHDX image of version {}", header.version.get());
        return Err(Error::unsupported(LAYER, message));
    }
    if header.log != [0; 16] {
        let message = "VHDX image that was not closed: changes in its log are to be replayed, by Hyper-V \
                       or by `qemu-img check -r all` on a copy";
        return Err(Error::unsupported(LAYER, message));
    }
    Ok(())
}

/// Returns the places of the table of blocks and of the metadata.
fn regions(file: &dyn BlockDevice) -> Result<[Range<u64>; 2]> {
    let mut failed = None;
    for at in REGION_TABLES {
        let bytes = file.read_vec(at, TABLE_SIZE);
        match bytes.and_then(|bytes| regions_of(&bytes, at, file.info().len)) {
            Ok(regions) => return Ok(regions),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.unwrap_or_else(|| damaged(0, "there is no region table")))
}

fn regions_of(bytes: &[u8], at: u64, file_len: u64) -> Result<[Range<u64>; 2]> {
    let (header, rest) = RegionTableRaw::ref_from_prefix(bytes)
        .map_err(|_| damaged(at, "the region table is truncated"))?;
    if header.signature != REGION_SIGNATURE || header.checksum.get() != checksum(bytes) {
        return Err(damaged(at, "the region table is damaged"));
    }
    let count = header.entries.get() as usize;
    let entries = rest
        .get(..count.min(MAX_ENTRIES) * size_of::<RegionRaw>())
        .and_then(|rest| <[RegionRaw]>::ref_from_bytes(rest).ok())
        .unwrap_or_default();
    let unknown = entries
        .iter()
        .any(|entry| entry.is_required.get() & 1 != 0 && entry.id != BAT && entry.id != METADATA);
    if unknown {
        return Err(Error::unsupported(
            LAYER,
            "VHDX image with an unknown region that readers must know",
        ));
    }
    let find = |id: [u8; 16]| {
        let entry = entries.iter().find(|entry| entry.id == id);
        let entry = entry.ok_or_else(|| damaged(at, "a region is missing in the table"))?;
        let (start, len) = (entry.offset.get(), u64::from(entry.length.get()));
        match start.checked_add(len) {
            Some(end) if end <= file_len => Ok(start..end),
            _ => Err(damaged(start, "truncated: a region ends after the file")),
        }
    };
    Ok([find(BAT)?, find(METADATA)?])
}

/// The properties of the disk in the metadata.
struct VhdxMetadata {
    /// In bytes.
    block_size: u64,
    len: u64,
    sector: u32,
}

impl VhdxMetadata {
    fn read(file: &dyn BlockDevice, region: Range<u64>) -> Result<Self> {
        let at = region.start;
        let len = (region.end - at).min(TABLE_SIZE as u64);
        let bytes = file.read_vec(at, to_usize(len))?;
        let (header, rest) = MetadataTableRaw::ref_from_prefix(&bytes)
            .map_err(|_| damaged(at, "the table of metadata is truncated"))?;
        if header.signature != METADATA_SIGNATURE {
            return Err(damaged(at, "the table of metadata is damaged"));
        }
        let count = usize::from(header.entries.get()).min(MAX_ENTRIES);
        let entries = rest
            .get(..count * size_of::<MetadataRaw>())
            .and_then(|rest| <[MetadataRaw]>::ref_from_bytes(rest).ok())
            .unwrap_or_default();
        let known = [
            FILE_PARAMETERS,
            DISK_SIZE,
            LOGICAL_SECTOR,
            PHYSICAL_SECTOR,
            DISK_ID,
        ];
        // The item of a parent is required, too; its flag names it better.
        let unknown = entries
            .iter()
            .any(|entry| entry.flags.get() & METADATA_REQUIRED != 0 && !known.contains(&entry.id));
        let item = |id: [u8; 16], len: u64| {
            let entry = entries.iter().find(|entry| entry.id == id);
            let entry = entry.ok_or_else(|| damaged(at, "an item is missing in the metadata"))?;
            let start = at + u64::from(entry.offset.get());
            if start + len > region.end {
                return Err(damaged(start, "an item is past the metadata"));
            }
            file.read_vec(start, to_usize(len))
        };
        let word = |bytes: &[u8]| {
            bytes
                .first_chunk()
                .map_or(0, |word| u32::from_le_bytes(*word))
        };
        let parameters = item(FILE_PARAMETERS, 8)?;
        let (block_size, flags) = (u64::from(word(&parameters)), word(&parameters[4..]));
        if flags & HAS_PARENT != 0 {
            let locator = entries.iter().find(|entry| entry.id == PARENT_LOCATOR);
            let locator = locator.and_then(|entry| {
                let len = u64::from(entry.length.get()).min(MAX_LOCATOR);
                item(PARENT_LOCATOR, len).ok()
            });
            let parent = locator.and_then(|bytes| parent_path(&bytes));
            let name = parent.map_or_else(|| "another".to_owned(), |path| format!("{path:?}"));
            let message = format!(
                "VHDX image that is a layer over {name} (differencing): join both first, in Hyper-V: \
                 `Convert-VHD DISK.vhdx WHOLE.vhdx`"
            );
            return Err(Error::unsupported(LAYER, message));
        }
        if unknown {
            let message = "VHDX image with unknown metadata that readers must know";
            return Err(Error::unsupported(LAYER, message));
        }
        let disk = item(DISK_SIZE, 8)?;
        let len = disk.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
        let sector = word(&item(LOGICAL_SECTOR, 4)?);
        if !block_size.is_power_of_two() || !(MIB..=256 * MIB).contains(&block_size) {
            return Err(damaged(
                at,
                format!(
                    "invalid block size of {block_size} bytes: expected a power of two from 1 MiB to 256 MiB"
                ),
            ));
        }
        if ![512, 4096].contains(&sector) {
            return Err(damaged(
                at,
                format!("invalid sector size of {sector} bytes: expected 512 or 4096"),
            ));
        }
        if len % SECTOR != 0 || len > MAX_DISK {
            return Err(damaged(
                at,
                format!(
                    "invalid disk size of {len} bytes: expected whole sectors, at most {MAX_DISK} bytes"
                ),
            ));
        }
        Ok(Self {
            block_size,
            len,
            sector,
        })
    }
}

/// Returns the path of the parent in the item that describes it.
fn parent_path(locator: &[u8]) -> Option<String> {
    let (head, rest) = LocatorRaw::ref_from_prefix(locator).ok()?;
    let count = usize::from(head.entries.get()) * size_of::<LocatorEntryRaw>();
    let entries = <[LocatorEntryRaw]>::ref_from_bytes(rest.get(..count)?).ok()?;
    let text = |at: U32, len: U16| {
        let bytes = locator.get(to_usize(at.get().into())..)?;
        let units = bytes.get(..len.get().into())?.as_chunks::<2>().0.iter();
        let units: Vec<u16> = units.map(|unit| u16::from_le_bytes(*unit)).collect();
        Some(String::from_utf16_lossy(&units))
    };
    ["relative_path", "absolute_win32_path", "volume_path"]
        .into_iter()
        .find_map(|key| {
            let is_it = |entry: &&LocatorEntryRaw| {
                text(entry.key_at, entry.key_length).as_deref() == Some(key)
            };
            let entry = entries.iter().find(is_it)?;
            text(entry.value_at, entry.value_length)
        })
}

impl DiskMap for Vhdx {
    fn format(&self) -> Format {
        Format::Vhdx
    }

    fn layer(&self) -> &'static str {
        LAYER
    }

    fn disk_len(&self) -> u64 {
        self.len
    }

    fn chunk_at(&self, offset: u64) -> Result<MappedChunk> {
        let number = offset / self.block_size;
        let entry = self.entry(number)?;
        let place = match entry.state() {
            BLOCK_PRESENT => ChunkPlace::Stored(self.file.clone(), entry.offset()),
            BLOCK_ZERO => ChunkPlace::Zero,
            BLOCK_PARTIAL => {
                let message = format!("block {number} is stored in part, without a parent");
                return Err(damaged(self.table.start, message));
            }
            _ => ChunkPlace::Hole,
        };
        let start = number * self.block_size;
        Ok(MappedChunk {
            range: start..start + self.block_size,
            place,
        })
    }

    fn decode(&self, chunk: &Range<u64>, _out: &mut [u8]) -> Result<()> {
        Err(Error::invalid(LAYER, "no data is coded").at(chunk.start))
    }

    fn check(&self, problems: &mut Problems, progress: &dyn Progress) -> Result<()> {
        let file_len = self.file.info().len;
        for number in 0..self.len.div_ceil(self.block_size) {
            progress.check()?;
            let entry = self.entry(number)?;
            let at = entry.offset();
            let size = self.block_size.min(self.len - number * self.block_size);
            let message = match entry.state() {
                BLOCK_PRESENT if at.saturating_add(size) > file_len => {
                    format!("truncated: block {number} ends after the file of {file_len}")
                }
                BLOCK_PARTIAL => format!("block {number} is stored in part, without a parent"),
                state if BLOCK_RESERVED.contains(&state) => {
                    format!("block {number} has the unknown state {state}")
                }
                _ => continue,
            };
            problems.add(Severity::Damage, damaged(at, message));
        }
        Ok(())
    }

    fn verify(&self, _progress: &dyn Progress) -> Result<Vec<StoredChecksum>> {
        Ok(Vec::new())
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        vec![("blocks", format!("{:#}", size::display(self.block_size)))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;

    /// The value that catalogs of CRCs give for CRC-32C, of bytes around a field of zeros.
    #[test]
    fn the_checksum_is_the_one_of_castagnoli() {
        // Of 32 bytes of zeros: RFC 3720, appendix B.4.
        assert_eq!(checksum(&[0; 32]), 0x8A91_36AA);
    }

    #[test]
    fn a_differencing_disk_is_refused_with_the_path_of_its_parent() {
        let file = fixture::differencing("..\\below.vhdx");
        let opened = Vhdx::open(Arc::new(Memory::read_only(file)));
        let error = opened.unwrap_err().to_string();
        assert!(
            error.contains("below.vhdx") && error.contains("Convert-VHD"),
            "{error}"
        );
    }
}
