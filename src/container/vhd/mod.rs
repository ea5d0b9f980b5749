//! VHD of Virtual PC and Hyper-V: fixed disks, and dynamic ones in blocks. Source:
//! docs/formats/virtual-disks.md.

#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod layout;

use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::IntoBytes;

use self::layout::{
    DIFFERENCING, DYNAMIC, FIXED, FOOTER_COOKIE, FooterRaw, SPARSE_COOKIE, SparseRaw, UNUSED,
};
use super::checksum::StoredChecksum;
use super::mapped::{ChunkPlace, DiskMap, MappedChunk};
use super::{Format, SECTOR, SectorNumber};
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::size::{self, to_usize};
use crate::{Error, Result};

const LAYER: &str = "vhd";
const FOOTER: u64 = size_of::<FooterRaw>() as u64;
/// Largest number of blocks: of 2 TiB in blocks of 512 KiB.
const MAX_BLOCKS: u64 = 4 << 20;

/// The disk of a VHD image.
#[derive(Debug)]
pub struct Vhd {
    file: Arc<dyn BlockDevice>,
    len: u64,
    /// `None`: the disk is stored from the first byte of the file on.
    blocks: Option<VhdBlocks>,
    /// True if the footer at the end is damaged and its copy in front was used.
    used_copy: bool,
}

/// The blocks of a dynamic disk.
#[derive(Debug)]
struct VhdBlocks {
    /// In bytes.
    size: u64,
    /// Bytes of the bitmap before the data of a block.
    bitmap: u64,
    /// In sectors, by block.
    table: Vec<u32>,
}

/// Returns true if `file` begins or ends with the footer of a VHD image.
pub fn probe(file: &dyn BlockDevice) -> Result<bool> {
    let len = file.info().len;
    if len < FOOTER {
        return Ok(false);
    }
    let is_at = |at| -> Result<bool> { Ok(file.read_array::<8>(at)? == FOOTER_COOKIE) };
    Ok(is_at(len - FOOTER)? || is_at(0)?)
}

fn damaged(at: u64, message: impl Into<String>) -> Error {
    Error::corrupt(LAYER, at, message.into())
}

/// Returns the checksum of a structure in which that is zero.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(0_u32, |sum, byte| sum.wrapping_add((*byte).into()))
}

/// Reads a footer. `None` if it is damaged.
fn footer(file: &dyn BlockDevice, at: u64) -> Result<Option<FooterRaw>> {
    let bytes = file.read_array::<{ size_of::<FooterRaw>() }>(at)?;
    let footer: FooterRaw = zerocopy::transmute!(bytes);
    let mut unsummed = footer;
    unsummed.checksum = 0.into();
    let is_valid =
        footer.cookie == FOOTER_COOKIE && footer.checksum.get() == checksum(unsummed.as_bytes());
    Ok(is_valid.then_some(footer))
}

impl Vhd {
    /// Opens the image in `file`.
    ///
    /// [`crate::Kind::Unsupported`] if it is a layer over another disk.
    pub fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let file_len = file.info().len;
        let Some(last) = file_len.checked_sub(FOOTER) else {
            return Err(damaged(0, "the file is shorter than its footer"));
        };
        let (footer, used_copy) = match footer(&*file, last)? {
            Some(footer) => (footer, false),
            None => match footer(&*file, 0)?.filter(|footer| footer.kind.get() != FIXED) {
                Some(copy) => (copy, true),
                None => return Err(damaged(last, "the footer is damaged or missing")),
            },
        };
        let len = footer.size.get();
        if len % SECTOR != 0 || len > i64::MAX.cast_unsigned() {
            return Err(damaged(
                last + offset_of!(FooterRaw, size) as u64,
                format!("the disk has {len} bytes, not a number of whole sectors"),
            ));
        }
        let blocks = match footer.kind.get() {
            FIXED if len > last => {
                let message = format!("truncated: a disk of {len} bytes in a file of {file_len}");
                return Err(damaged(last, message));
            }
            FIXED => None,
            DYNAMIC => Some(VhdBlocks::read(&*file, footer.data_offset.get(), len)?),
            DIFFERENCING => {
                let name = parent_name(&*file, footer.data_offset.get())?;
                let message = format!(
                    "VHD image that is a layer over {name} (differencing): join both first, in Hyper-V \
                     (`Convert-VHD DISK.vhd WHOLE.vhd`) or VirtualBox (`VBoxManage clonemedium DISK.vhd \
                     WHOLE.vhd`); qemu-img reads the layer alone"
                );
                return Err(Error::unsupported(LAYER, message));
            }
            other => {
                let message = format!("VHD image of the unknown kind {other}");
                return Err(Error::unsupported(LAYER, message));
            }
        };
        Ok(Self {
            file,
            len,
            blocks,
            used_copy,
        })
    }
}

impl VhdBlocks {
    fn read(file: &dyn BlockDevice, at: u64, len: u64) -> Result<Self> {
        let file_len = file.info().len;
        let is_inside = |at: u64, len: u64| at.checked_add(len).is_some_and(|end| end <= file_len);
        if !is_inside(at, size_of::<SparseRaw>() as u64) {
            return Err(damaged(
                at,
                "the header of the blocks is past the end of the file",
            ));
        }
        let bytes = file.read_array::<{ size_of::<SparseRaw>() }>(at)?;
        let mut header: SparseRaw = zerocopy::transmute!(bytes);
        let stored = std::mem::take(&mut header.checksum);
        if header.cookie != SPARSE_COOKIE || stored.get() != checksum(header.as_bytes()) {
            return Err(damaged(at, "the header of the blocks is damaged"));
        }
        let size = u64::from(header.block_size.get());
        if !size.is_power_of_two() || size < SECTOR {
            return Err(damaged(
                at + offset_of!(SparseRaw, block_size) as u64,
                format!(
                    "invalid block size of {size} bytes: expected a power of two from {SECTOR}"
                ),
            ));
        }
        let count = len.div_ceil(size);
        if count > u64::from(header.entries.get()) {
            let message = format!("the table has too few entries for {count} blocks");
            return Err(damaged(at + offset_of!(SparseRaw, entries) as u64, message));
        }
        if count > MAX_BLOCKS {
            return Err(Error::limit(LAYER, format!("a disk of {count} blocks")));
        }
        let table_at = header.table_offset.get();
        if !is_inside(table_at, count * 4) {
            return Err(damaged(
                at + offset_of!(SparseRaw, table_offset) as u64,
                "the table of blocks is past the end of the file",
            ));
        }
        let table = file.read_vec(table_at, to_usize(count * 4))?;
        let table = table.as_chunks::<4>().0.iter();
        Ok(Self {
            size,
            bitmap: (size / SECTOR).div_ceil(8).next_multiple_of(SECTOR),
            table: table.map(|entry| u32::from_be_bytes(*entry)).collect(),
        })
    }

    /// Returns the file offset of the data of a block. `None`: it is not stored.
    fn data(&self, number: u64) -> Option<u64> {
        let sector = *self.table.get(to_usize(number))?;
        (sector != UNUSED).then(|| SectorNumber::from(sector).offset() + self.bitmap)
    }
}

/// Returns the name of the disk below a differencing disk, for users.
fn parent_name(file: &dyn BlockDevice, header_at: u64) -> Result<String> {
    const LEN: usize = size_of::<SparseRaw>();
    let unnamed = || Ok("another".to_owned());
    let end = header_at.checked_add(LEN as u64);
    if end.is_none_or(|end| end > file.info().len) {
        return unnamed();
    }
    let header: SparseRaw = zerocopy::transmute!(file.read_array::<LEN>(header_at)?);
    let units = header.parent_name.iter().map(|unit| unit.get());
    let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    if header.cookie != SPARSE_COOKIE || units.is_empty() {
        return unnamed();
    }
    Ok(format!("{:?}", String::from_utf16_lossy(&units)))
}

impl DiskMap for Vhd {
    fn format(&self) -> Format {
        Format::Vhd
    }

    fn layer(&self) -> &'static str {
        LAYER
    }

    fn disk_len(&self) -> u64 {
        self.len
    }

    fn chunk_at(&self, offset: u64) -> Result<MappedChunk> {
        let Some(blocks) = &self.blocks else {
            return Ok(MappedChunk {
                range: 0..self.len,
                place: ChunkPlace::Stored(self.file.clone(), 0),
            });
        };
        let number = offset / blocks.size;
        let start = number * blocks.size;
        // In a dynamic disk, sectors that the bitmap of a block has as unused are zeros.
        let place = match blocks.data(number) {
            Some(at) => ChunkPlace::Stored(self.file.clone(), at),
            None => ChunkPlace::Hole,
        };
        Ok(MappedChunk {
            range: start..start + blocks.size,
            place,
        })
    }

    fn decode(&self, chunk: &Range<u64>, _out: &mut [u8]) -> Result<()> {
        Err(Error::invalid(LAYER, "no data is coded").at(chunk.start))
    }

    fn check(&self, problems: &mut Problems, _progress: &dyn Progress) -> Result<()> {
        let file_len = self.file.info().len;
        if self.used_copy {
            let message = "the footer is damaged or missing; its copy was used";
            problems.add(Severity::Warning, damaged(file_len - FOOTER, message));
        }
        let Some(blocks) = &self.blocks else {
            return Ok(());
        };
        let mut used: Vec<_> = Vec::new();
        for number in 0..blocks.table.len() as u64 {
            let Some(at) = blocks.data(number) else {
                continue;
            };
            let size = blocks.size.min(self.len - number * blocks.size);
            if at + size > file_len {
                let message =
                    format!("truncated: block {number} ends after the file of {file_len}");
                problems.add(Severity::Damage, damaged(at, message));
            }
            used.push((at - blocks.bitmap, number));
        }
        used.sort_unstable();
        for pair in used.windows(2) {
            if let [(at, one), (next, other)] = pair
                && next - at < blocks.bitmap + blocks.size
            {
                let message = format!("blocks {one} and {other} overlap");
                problems.add(Severity::Damage, damaged(*next, message));
            }
        }
        Ok(())
    }

    fn verify(&self, _progress: &dyn Progress) -> Result<Vec<StoredChecksum>> {
        Ok(Vec::new())
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let kind = match &self.blocks {
            None => "fixed".to_owned(),
            Some(blocks) => {
                let size = size::display(blocks.size);
                format!("dynamic, in blocks of {size:#}")
            }
        };
        vec![("kind", kind)]
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes;

    use super::*;
    use crate::device::Memory;

    #[test]
    fn a_differencing_disk_is_refused_with_the_name_of_its_parent() {
        let mut bytes = fixture::image(&[1; 64 << 10], Some(16 << 10));
        let last = bytes.len() - size_of::<FooterRaw>();
        for at in [0, last] {
            let (footer, _) = FooterRaw::mut_from_prefix(&mut bytes[at..]).unwrap();
            footer.kind = DIFFERENCING.into();
            footer.checksum = 0.into();
            footer.checksum = checksum(footer.as_bytes()).into();
        }
        let refused = |bytes: &[u8]| {
            let opened = Vhd::open(Arc::new(Memory::read_only(bytes)));
            opened.unwrap_err().to_string()
        };
        assert!(refused(&bytes).contains("a layer over another"));
        let (header, _) = SparseRaw::mut_from_prefix(&mut bytes[512..]).unwrap();
        let units = "Büro.vhd".encode_utf16();
        for (place, unit) in header.parent_name.iter_mut().zip(units) {
            *place = unit.into();
        }
        let error = refused(&bytes);
        assert!(
            error.contains("\"Büro.vhd\"") && error.contains("Convert-VHD"),
            "{error}"
        );
    }
}
