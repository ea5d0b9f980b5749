//! The sections of the files of a set.

use std::mem::offset_of;

use zerocopy::{FromBytes, IntoBytes};

use super::layout::{
    DigestRaw, HashRaw, SMART_VOLUME, SectionRaw, SegmentRaw, TableRaw, VolumeRaw,
};
use super::{LAYER, adler32, damaged, probe};
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::size::to_usize;
use crate::{Error, Result};

const HEADER: u64 = size_of::<SectionRaw>() as u64;
/// Largest number of sections of a file, of entries of a table, and of tables of a set.
const MAX_SECTIONS: usize = 1 << 20;
const MAX_ENTRIES: u32 = 1 << 20;
const MAX_TABLES: usize = 1 << 20;

/// The size of a disk and of its chunks.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiskGeometry {
    pub(super) chunk_sectors: u32,
    /// In bytes.
    pub(super) sector_size: u32,
    pub(super) sectors: u64,
}

/// A table of chunks in a file.
#[derive(Debug, Clone)]
pub(super) struct StoredTable {
    /// The number of the first chunk.
    pub(super) first: u64,
    pub(super) count: u32,
    /// The number of the file, from 0.
    pub(super) part: usize,
    /// File offset of the entries.
    pub(super) entries_at: u64,
    pub(super) base: u64,
    /// File offset of the end of the last chunk.
    pub(super) end: u64,
}

/// The contents of the sections of all files, besides the tables.
#[derive(Debug, Default)]
pub(super) struct Sections {
    pub(super) volume: Option<DiskGeometry>,
    pub(super) md5: Option<Vec<u8>>,
    pub(super) sha1: Option<Vec<u8>>,
    /// Checksums that differ, with the number of the file.
    pub(super) problems: Vec<(usize, Error)>,
    chunks: u64,
}

/// A section with its place.
struct EwfSection {
    kind: [u8; 16],
    /// File offset of its contents, and their length.
    at: u64,
    len: u64,
    next: u64,
    is_sound: bool,
}

impl EwfSection {
    fn read(file: &dyn BlockDevice, at: u64) -> Result<Self> {
        let file_len = file.info().len;
        if at.checked_add(HEADER).is_none_or(|end| end > file_len) {
            return Err(damaged(
                at,
                "truncated: a section begins past the end of the file",
            ));
        }
        let bytes = file.read_array::<{ size_of::<SectionRaw>() }>(at)?;
        let raw: SectionRaw = zerocopy::transmute!(bytes);
        let is_sound =
            raw.checksum.get() == adler32(&raw.as_bytes()[..offset_of!(SectionRaw, checksum)]);
        let (size, next) = (raw.size.get(), raw.next.get());
        // Some writers leave the size out; sections follow each other.
        let len = match size {
            0 => next.saturating_sub(at + HEADER),
            size => size.saturating_sub(HEADER),
        };
        Ok(Self {
            kind: raw.kind,
            at: at + HEADER,
            len: len.min(file_len - at - HEADER),
            next,
            is_sound,
        })
    }

    fn is(&self, name: &[u8]) -> bool {
        let (start, rest) = self.kind.split_at(name.len());
        start == name && rest.first().is_none_or(|byte| *byte == 0)
    }

    fn is_last(&self) -> bool {
        self.is(b"done") || self.is(b"next")
    }
}

/// Calls `each` with the sections of `file`, in order.
fn walk(
    file: &dyn BlockDevice,
    each: &mut dyn FnMut(&EwfSection) -> Result<()>,
) -> Result<EwfSection> {
    let mut at = size_of::<SegmentRaw>() as u64;
    for _ in 0..MAX_SECTIONS {
        let section = EwfSection::read(file, at)?;
        each(&section)?;
        if section.is_last() {
            return Ok(section);
        }
        if section.next <= at {
            return Err(damaged(at, "a section does not refer to one behind it"));
        }
        at = section.next;
    }
    Err(Error::limit(LAYER, "the file has too many sections").at(at))
}

/// Returns true if the file ends with the section `next`.
pub(super) fn continues(file: &dyn BlockDevice) -> Result<bool> {
    walk(file, &mut |_| Ok(())).map(|last| last.is(b"next"))
}

impl Sections {
    /// Adds what the file of this number, from 0, of so many has.
    pub(super) fn read(
        &mut self,
        part: usize,
        count: usize,
        file: &dyn BlockDevice,
        tables: &mut Vec<StoredTable>,
    ) -> Result<()> {
        match probe(file)? {
            Some(number) if usize::from(number) == part + 1 => {}
            Some(number) => {
                let message = format!("file {number} of its set, expected file {}", part + 1);
                return Err(damaged(offset_of!(SegmentRaw, number) as u64, message));
            }
            None => return Err(damaged(0, "the file has no signature")),
        }
        // The end of the last section with data.
        let mut data_end = None;
        let last = walk(file, &mut |section| {
            if !section.is_sound {
                let message = "checksum mismatch of the header of a section";
                self.problems
                    .push((part, damaged(section.at - HEADER, message)));
            }
            if section.is(b"volume") || section.is(b"disk") {
                self.volume = Some(volume(file, section)?);
            } else if section.is(b"sectors") {
                data_end = Some(section.at + section.len);
            } else if section.is(b"table") {
                let end = data_end.take();
                tables.extend(self.table(part, file, section, end)?);
            } else if section.is(b"digest") && section.len >= size_of::<DigestRaw>() as u64 {
                let raw: DigestRaw = zerocopy::transmute!(
                    file.read_array::<{ size_of::<DigestRaw>() }>(section.at)?
                );
                self.md5 = Some(raw.md5.to_vec());
                // A digest of zeros was not computed.
                self.sha1 = Some(raw.sha1.to_vec()).filter(|sum| sum.iter().any(|byte| *byte != 0));
            } else if section.is(b"hash") && section.len >= size_of::<HashRaw>() as u64 {
                let raw: HashRaw =
                    zerocopy::transmute!(file.read_array::<{ size_of::<HashRaw>() }>(section.at)?);
                self.md5 = Some(raw.md5.to_vec());
            }
            Ok(())
        })?;
        if tables.len() > MAX_TABLES {
            return Err(Error::limit(LAYER, "the set has too many tables"));
        }
        if last.is(b"next") != (part + 1 < count) {
            let message = format!("the set continues after file {count}, or ends before");
            return Err(damaged(last.at - HEADER, message));
        }
        Ok(())
    }

    /// Reads the header of a table. Chunks are in the section before it, which ends at `data_end`, or in the
    /// table's own.
    fn table(
        &mut self,
        part: usize,
        file: &dyn BlockDevice,
        section: &EwfSection,
        data_end: Option<u64>,
    ) -> Result<Option<StoredTable>> {
        const TABLE: u64 = size_of::<TableRaw>() as u64;
        if section.len < TABLE {
            return Err(damaged(
                section.at,
                "truncated: a table is shorter than its header",
            ));
        }
        let bytes = file.read_array::<{ size_of::<TableRaw>() }>(section.at)?;
        let raw: TableRaw = zerocopy::transmute!(bytes);
        if raw.checksum.get() != adler32(&raw.as_bytes()[..offset_of!(TableRaw, checksum)]) {
            let message = "checksum mismatch of the header of a table";
            self.problems.push((part, damaged(section.at, message)));
        }
        let count = raw.entries.get();
        let entries_len = u64::from(count) * 4;
        if count > MAX_ENTRIES || TABLE + entries_len > section.len {
            let message = format!("a table has {count} entries in {} bytes", section.len);
            return Err(damaged(section.at, message));
        }
        if count == 0 {
            return Ok(None);
        }
        let entries_at = section.at + TABLE;
        let entries = file.read_vec(entries_at, to_usize(entries_len))?;
        let sum_at = entries_at + entries_len;
        if sum_at + 4 <= section.at + section.len {
            let sum = file.read_array::<4>(sum_at)?;
            // Zero in files of SMART, which have none.
            if u32::from_le_bytes(sum) != adler32(&entries) && sum != [0; 4] {
                let message = "checksum mismatch of the entries of a table";
                self.problems.push((part, damaged(entries_at, message)));
            }
        }
        let table = StoredTable {
            first: self.chunks,
            count,
            part,
            entries_at,
            base: raw.base.get(),
            end: data_end.unwrap_or(section.at + section.len),
        };
        self.chunks += u64::from(count);
        Ok(Some(table))
    }
}

fn volume(file: &dyn BlockDevice, section: &EwfSection) -> Result<DiskGeometry> {
    if section.len < size_of::<VolumeRaw>() as u64 {
        return Err(damaged(
            section.at,
            "truncated: the description of the disk is missing",
        ));
    }
    let bytes = file.read_array::<{ size_of::<VolumeRaw>() }>(section.at)?;
    let raw = VolumeRaw::read_from_bytes(&bytes)
        .map_err(|_| damaged(section.at, "the description of the disk is truncated"))?;
    let sectors = raw.sectors.get();
    Ok(DiskGeometry {
        chunk_sectors: raw.chunk_sectors.get(),
        sector_size: raw.sector_size.get(),
        sectors: match section.len {
            SMART_VOLUME => sectors & u64::from(u32::MAX),
            _ => sectors,
        },
    })
}
