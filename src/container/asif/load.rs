//! Loading and validation of the header, the directory and all tables. Source: docs/formats/asif.md
//! §2-4.
//!
//! The format has no list of free chunks of the file, so all tables are read when an image is
//! opened, which also detects two entries for one chunk. Of the tables only one bit per chunk of
//! the file is kept in memory.

use std::collections::BTreeMap;

use uuid::Uuid;
use zerocopy::big_endian::U64;
use zerocopy::{FromZeros, IntoBytes};

use super::LAYER;
use super::geometry::EntryKind;
use super::layout::{
    ChunkEntry, DIRECTORY_VERSION, DiskChunk, FileChunk, HEADER, Header, HeaderRaw, NUMBER,
    directory_field, header_offset, parse_bitmap_entry, table_offset,
};
use super::mask::Mask;
use super::space::ChunkBitmap;
use super::tables::UNUSED_MASK;
use crate::device::{BlockDevice, BlockDeviceExt, ExtentKind, regions};
use crate::problem::{Findings, Severity};
use crate::size::{narrow, to_usize};
use crate::{Error, Kind, Result};

/// Minimum file length in bytes, as in macOS.
const MIN_FILE: u64 = 512;
/// Number of table entries read at a time.
const PIECE: usize = 4096;
/// Maximum number of recorded chunks past the end of the disk, including metadata segments.
const MAX_BEYOND: usize = 4096;

/// The loaded structures of an image.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) raw: HeaderRaw,
    pub(super) header: Header,
    pub(super) active: usize,
    pub(super) version: u64,
    pub(super) tables: BTreeMap<u32, FileChunk>,
    pub(super) used: ChunkBitmap,
    pub(super) bitmaps: u64,
    /// Stored chunks past the end of the disk, each with the file offset of its entry.
    pub(super) beyond: Vec<(DiskChunk, u64)>,
}

/// Loads everything in `file` except the data.
pub(super) fn load(file: &dyn BlockDevice, findings: &mut Findings<'_>) -> Result<Loaded> {
    load_with(file, None, findings)
}

/// Like [`load`], with the given directory instead of the one with the higher version.
pub(super) fn load_with(
    file: &dyn BlockDevice,
    directory: Option<usize>,
    findings: &mut Findings<'_>,
) -> Result<Loaded> {
    let file_len = file.info().len;
    if file_len < MIN_FILE {
        return Err(Error::corrupt(
            LAYER,
            0,
            format!("the file is truncated: it has {file_len} bytes, the header takes {MIN_FILE}"),
        ));
    }
    let raw = HeaderRaw::read(file.read_array::<HEADER>(0)?);
    let raw = match (lost_directory(file, &raw)?, directory) {
        (Some((found, lost)), Some(number)) if lost == number => found,
        (Some((found, lost)), None) => {
            let why = format!(
                "the header records a wrong place of directory {lost}: at its usual place, byte \
                 {}, is a directory newer than the other",
                found.directories[lost]
            );
            return Err(Error::corrupt(LAYER, directory_field(lost), why));
        }
        _ => raw,
    };
    load_by(file, raw, directory, findings)
}

/// Loads everything but the data by this header.
fn load_by(
    file: &dyn BlockDevice,
    raw: HeaderRaw,
    directory: Option<usize>,
    findings: &mut Findings<'_>,
) -> Result<Loaded> {
    let file_len = file.info().len;
    let header = match directory {
        Some(number) => parse_for(&raw, number, file_len)?,
        None => Header::parse(&raw)?,
    };
    for why in header.read_only.iter().chain(&header.metadata_read_only) {
        findings.report(Severity::Note, Error::unsupported(LAYER, why.clone()))?;
    }
    let (active, version) = choose_directory(file, &header, directory)?;
    if directory.is_none() {
        compare_directories(file, &header, version, findings)?;
    }
    let first = header.first_chunk();
    let used = ChunkBitmap::none(first, file_len.div_ceil(header.geometry.chunk_bytes()))?;
    let mut walk = IndexWalk {
        file,
        file_len,
        findings,
        used,
        bitmaps: 0,
        beyond: Vec::new(),
        header: &header,
    };
    let tables = walk.directory(header.directories[active].unwrap_or(0))?;
    for (table, chunk) in &tables {
        walk.table(*table, *chunk)?;
    }
    let IndexWalk {
        used,
        bitmaps,
        beyond,
        ..
    } = walk;
    Ok(Loaded {
        raw,
        active,
        version,
        tables,
        used,
        bitmaps,
        beyond,
        header,
    })
}

/// Returns the UUID in the header of the image in `file` without reading more. `None` if it is not
/// an ASIF image.
pub(crate) fn peek_uuid(file: &dyn BlockDevice) -> Result<Option<Uuid>> {
    if file.info().len < MIN_FILE {
        return Ok(None);
    }
    let raw = HeaderRaw::read(file.read_array::<HEADER>(0)?);
    Ok(Header::parse(&raw).ok().map(|_| Uuid::from_bytes(raw.uuid)))
}

/// Parses a header for the use of directory `number`. An invalid place of the other one is ignored,
/// also one past the end of the file, at `file_len`.
fn parse_for(raw: &HeaderRaw, number: usize, file_len: u64) -> Result<Header> {
    let parsed = Header::parse(raw).and_then(|header| {
        let other = header.directories.get(1 - number.min(1)).copied().flatten();
        match other.filter(|at| at.saturating_add(header.geometry.directory_bytes()) > file_len) {
            Some(at) => Err(Error::corrupt(
                LAYER,
                at,
                "the header records a directory past the end of the file",
            )),
            None => Ok(header),
        }
    });
    parsed.or_else(|error| {
        let mut alone = raw.clone();
        match alone.directories.get_mut(1 - number.min(1)) {
            Some(other) if other.get() != 0 => *other = U64::ZERO,
            _ => return Err(error),
        }
        Header::parse(&alone)
    })
}

/// Returns the index and version of the active directory: `wanted`, or the one with the higher
/// version, or the first if both are equal.
fn choose_directory(
    file: &dyn BlockDevice,
    header: &Header,
    wanted: Option<usize>,
) -> Result<(usize, u64)> {
    let mut best: Option<(usize, u64)> = None;
    for (number, at) in header
        .directories
        .iter()
        .enumerate()
        .filter_map(|(number, at)| at.map(|at| (number, at)))
        .filter(|(number, _)| wanted.is_none_or(|wanted| wanted == *number))
    {
        let end = at + header.geometry.directory_bytes();
        if end > file.info().len {
            let lost = format!(
                "directory {number} ends at byte {end}, past the end of the file at {}",
                file.info().len
            );
            return Err(Error::corrupt(LAYER, at, lost));
        }
        let version = u64::from_be_bytes(file.read_array(at)?);
        if best.is_none_or(|(_, highest)| version > highest) {
            best = Some((number, version));
        }
    }
    best.ok_or_else(|| Error::corrupt(LAYER, header_offset!(directories), "no valid directory"))
}

/// Returns the indexes of the active directory and of the other one, if the file has two whose
/// tables differ.
fn two_directories(file: &dyn BlockDevice) -> Result<Option<(Header, usize, usize)>> {
    if file.info().len < MIN_FILE {
        return Ok(None);
    }
    let header = Header::parse(&HeaderRaw::read(file.read_array::<HEADER>(0)?))?;
    let [Some(one), Some(other)] = header.directories else {
        return Ok(None);
    };
    let (active, _) = choose_directory(file, &header, None)?;
    let first = table_offset(0);
    let tables = header.geometry.directory_bytes() - first;
    let differ = !regions::are_equal(file, one + first, other + first, tables)?;
    Ok(differ.then_some((header, active, 1 - active)))
}

/// Returns the index of the directory whose place in `raw` is wrong, and a header with the right
/// one, if the directory at its usual place has a higher version than the other one and can be
/// loaded.
fn lost_directory(file: &dyn BlockDevice, raw: &HeaderRaw) -> Result<Option<(HeaderRaw, usize)>> {
    let file_len = file.info().len;
    for number in 0..2 {
        let Ok(header) = parse_for(raw, 1 - number, file_len) else {
            continue;
        };
        let (geometry, other) = (header.geometry, header.directories[1 - number]);
        let (at, len) = (geometry.directories()[number], geometry.directory_bytes());
        let is_apart = other.is_some_and(|other| other.abs_diff(at) >= len);
        if raw.directories[number].get() == at || !is_apart || at + len > file_len {
            continue;
        }
        let version = |at| file.read_array(at).map(u64::from_be_bytes);
        if version(at)? <= version(other.unwrap_or_default())? {
            continue;
        }
        let mut found = raw.clone();
        found.directories[number] = at.into();
        if regions::is_zero(file, at + table_offset(0)..at + len)? {
            continue;
        }
        match load_by(file, found.clone(), Some(number), &mut Findings::Open) {
            Ok(_) => return Ok(Some((found, number))),
            Err(error) if error.kind() == Kind::Io => return Err(error),
            Err(_) => {}
        }
    }
    Ok(None)
}

/// Returns the index of the directory that [`use_directory`] finds again: its place in the header is
/// wrong, and it is newer than the other one.
pub(crate) fn lost_newer(file: &dyn BlockDevice) -> Result<Option<usize>> {
    if file.info().len < MIN_FILE {
        return Ok(None);
    }
    let raw = HeaderRaw::read(file.read_array::<HEADER>(0)?);
    Ok(lost_directory(file, &raw)?.map(|(_, number)| number))
}

/// Returns the only directory that has a place in `file`, and the header for its use, if the place
/// of the other one is invalid.
fn placed_directory(file: &dyn BlockDevice) -> Result<Option<(HeaderRaw, Header, usize)>> {
    if file.info().len < MIN_FILE {
        return Ok(None);
    }
    let raw = HeaderRaw::read(file.read_array::<HEADER>(0)?);
    let mut placed = Vec::new();
    for number in 0..2 {
        let Ok(header) = parse_for(&raw, number, file.info().len) else {
            continue;
        };
        match choose_directory(file, &header, Some(number)) {
            Ok(_) => placed.push((raw.clone(), header, number)),
            Err(error) if error.kind() == Kind::Io => return Err(error),
            Err(_) => {}
        }
    }
    Ok(placed.pop().filter(|_| placed.is_empty()))
}

/// Returns the indexes of the active directory of the image in `file` and of the other one, which
/// may be the right one if a version is damaged. A directory with an invalid place counts as the
/// active one; of two, the newer one at its usual place counts as the other, if the header names
/// another place. `None` if there is only one, or both name the same tables.
pub fn directories(file: &dyn BlockDevice) -> Result<Option<[usize; 2]>> {
    if let Some(lost) = lost_newer(file)? {
        return Ok(Some([1 - lost, lost]));
    }
    match two_directories(file) {
        Ok(found) => Ok(found.map(|(_, active, other)| [active, other])),
        Err(error) if error.kind() == Kind::Io => Err(error),
        Err(error) => match placed_directory(file)? {
            Some((_, _, placed)) => Ok(Some([1 - placed, placed])),
            None => Err(error),
        },
    }
}

/// Makes the directory `number` of the image in `file` the active one, durably, by changing versions
/// only. If the other one has an invalid place, it is written anew where a new image has it;
/// [`Kind::Conflict`] if a directory with other tables is there, which may be the lost one, unless
/// `overwrite` is true. Returns one sentence for each step.
pub(crate) fn use_directory(
    file: &dyn BlockDevice,
    number: usize,
    overwrite: bool,
) -> Result<Vec<String>> {
    if file.info().len >= MIN_FILE {
        let raw = HeaderRaw::read(file.read_array::<HEADER>(0)?);
        if let Some((found, lost)) = lost_directory(file, &raw)? {
            if lost != number {
                let header = parse_for(&raw, number, file.info().len)?;
                return replace_other(file, raw, &header, number, overwrite);
            }
            let at = found.directories[number].get();
            file.write_at(0, found.up_to_directories())?;
            file.flush()?;
            return Ok(vec![format!(
                "the header names directory {number} at byte {at} again"
            )]);
        }
    }
    let (header, active, other) = match two_directories(file) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Vec::new()),
        Err(error) if error.kind() == Kind::Io => return Err(error),
        Err(error) => {
            return match placed_directory(file)? {
                Some((raw, header, placed)) if placed == number => {
                    replace_other(file, raw, &header, number, overwrite)
                }
                _ => Err(error),
            };
        }
    };
    if number == active {
        return Ok(Vec::new());
    }
    let place = |index: usize| header.directories[index].unwrap_or_default();
    let version = u64::from_be_bytes(file.read_array(place(other))?);
    let mut steps = Vec::new();
    let mut write = |index: usize, version: u64| {
        steps.push(format!("directory {index} gets version {version}"));
        file.write_at(place(index), &version.to_be_bytes())?;
        file.flush()
    };
    // Of equal versions the first directory counts.
    match (version, other) {
        (0, 1) => {
            write(active, 0)?;
            write(other, 1)?;
        }
        (version, _) => write(active, version.saturating_sub(1))?,
    }
    Ok(steps)
}

/// Writes a copy of directory `number` as the other one, whose place in `raw` is invalid.
fn replace_other(
    file: &dyn BlockDevice,
    mut raw: HeaderRaw,
    header: &Header,
    number: usize,
    overwrite: bool,
) -> Result<Vec<String>> {
    let (geometry, other) = (header.geometry, 1 - number);
    let (at, len) = (geometry.directories()[other], geometry.directory_bytes());
    let used = header.directories[number].unwrap_or_default();
    let room = geometry.in_file(geometry.first_chunk(&[Some(used), None]), 0..0);
    if at.abs_diff(used) < len || at + len > room.start {
        let lost =
            format!("directory {other} has an invalid offset, and its usual place is in use");
        return Err(Error::corrupt(LAYER, at, lost));
    }
    let mut bytes = file.read_vec(used, to_usize(len))?;
    let there = file.read_vec(at, to_usize(len))?;
    let is_free = there.iter().all(|byte| *byte == 0)
        || there.get(DIRECTORY_VERSION..) == bytes.get(DIRECTORY_VERSION..);
    if !(is_free || overwrite) {
        let why = format!(
            "directory {other} has an invalid place, and its usual one holds other tables than \
             directory {number}"
        );
        return Err(Error::conflict(LAYER, why));
    }
    let (head, _) = bytes.split_at_mut(DIRECTORY_VERSION);
    let version = u64::from_be_bytes(file.read_array(used)?);
    // Of equal versions the first directory counts: both are the same.
    head.copy_from_slice(&version.saturating_sub(1).to_be_bytes());
    file.write_at(at, &bytes)?;
    file.flush()?;
    raw.directories[other] = at.into();
    file.write_at(0, raw.up_to_directories())?;
    file.flush()?;
    Ok(vec![format!("directory {other} is written anew")])
}

/// Reports directories of the same version that differ: readers may then disagree about the active
/// one. Opening an image uses the first.
fn compare_directories(
    file: &dyn BlockDevice,
    header: &Header,
    version: u64,
    findings: &mut Findings<'_>,
) -> Result<()> {
    let [Some(one), Some(other)] = header.directories else {
        return Ok(());
    };
    if matches!(findings, Findings::Open)
        || u64::from_be_bytes(file.read_array(one)?) != u64::from_be_bytes(file.read_array(other)?)
    {
        return Ok(());
    }
    if regions::are_equal(file, one, other, header.geometry.directory_bytes())? {
        return Ok(());
    }
    let differ = format!("both directories have version {version}, but differ; the first is used");
    findings.report(Severity::Warning, Error::corrupt(LAYER, other, differ))
}

/// A walk through all references to chunks of the file.
struct IndexWalk<'a, 'f> {
    file: &'a dyn BlockDevice,
    file_len: u64,
    findings: &'a mut Findings<'f>,
    header: &'a Header,
    used: ChunkBitmap,
    bitmaps: u64,
    beyond: Vec<(DiskChunk, u64)>,
}

/// The partly written chunks of the current group.
#[derive(Default)]
struct PartialChunks {
    /// Index of the entry of their bitmap.
    bitmap_entry: u32,
    /// Their indexes in the bitmap.
    in_group: Vec<u32>,
    /// File offset of the entry of the last one.
    at: u64,
}

impl IndexWalk<'_, '_> {
    fn damage(&mut self, at: u64, what: impl Into<std::borrow::Cow<'static, str>>) -> Result<()> {
        self.findings
            .report(Severity::Damage, Error::corrupt(LAYER, at, what))
    }

    fn directory(&mut self, at: u64) -> Result<BTreeMap<u32, FileChunk>> {
        let (mut tables, header) = (BTreeMap::new(), self.header);
        self.each_number(
            at + table_offset(0),
            u64::from(header.geometry.tables),
            &mut |walk, number, raw, at| {
                if walk.claim(FileChunk(raw), at)? {
                    tables.insert(number, FileChunk(raw));
                }
                Ok(())
            },
        )?;
        Ok(tables)
    }

    /// Records the chunk that the number at byte `at` refers to. Returns false if the reference is
    /// invalid.
    fn claim(&mut self, chunk: FileChunk, at: u64) -> Result<bool> {
        let (first, bytes) = (
            self.header.first_chunk(),
            self.header.geometry.chunk_bytes(),
        );
        let chunks = self.file_len.div_ceil(bytes);
        if chunk.0 >= chunks {
            let past = format!(
                "chunk {} is past the last of the {chunks} chunks in the file: the file is \
                 truncated, or the index is damaged",
                chunk.0
            );
            return self.damage(at, past).map(|()| false);
        }
        if chunk < first {
            let before = format!(
                "invalid chunk number {}: the first possible is {}",
                chunk.0, first.0
            );
            return self.damage(at, before).map(|()| false);
        }
        if !self.used.claim(chunk) {
            return self
                .damage(at, format!("chunk {} is referenced twice", chunk.0))
                .map(|()| false);
        }
        Ok(true)
    }

    fn table(&mut self, table: u32, chunk: FileChunk) -> Result<()> {
        self.findings.advance(1)?;
        let geometry = self.header.geometry;
        let start = geometry.in_file(chunk, 0..0).start;
        let mut partial = PartialChunks::default();
        self.each_number(
            start,
            geometry.chunk_bytes() / NUMBER,
            &mut |walk, entry, raw, at| {
                if entry > partial.bitmap_entry {
                    walk.without_bitmap(&mut partial)?;
                }
                match geometry.entry_kind(table, entry) {
                    EntryKind::Data(chunk) => walk.data_entry(chunk, raw, at, &mut partial),
                    EntryKind::Bitmap => walk.bitmap_entry(raw, at, &mut partial),
                    EntryKind::Nothing => walk.findings.report(
                        Severity::Note,
                        Error::corrupt(LAYER, at, "a table has data after its last entry"),
                    ),
                }
            },
        )?;
        self.without_bitmap(&mut partial)
    }

    fn data_entry(
        &mut self,
        chunk: DiskChunk,
        raw: u64,
        at: u64,
        partial: &mut PartialChunks,
    ) -> Result<()> {
        let entry = match ChunkEntry::parse(raw) {
            Ok(entry) => entry,
            Err(wrong) => return self.damage(at, wrong),
        };
        match entry.chunk() {
            Some(named) if !self.claim(named, at)? => return Ok(()),
            _ => {}
        }
        if let ChunkEntry::Partial(_) = entry {
            let place = self.header.geometry.table_place(chunk);
            partial.in_group.push(place.in_group);
            (partial.bitmap_entry, partial.at) = (place.bitmap_entry, at);
        }
        let end = self.header.sectors * u64::from(self.header.geometry.block);
        if self.header.geometry.start(chunk) >= end && self.beyond.len() < MAX_BEYOND {
            self.beyond.push((chunk, at));
        }
        Ok(())
    }

    fn bitmap_entry(&mut self, raw: u64, at: u64, partial: &mut PartialChunks) -> Result<()> {
        let partial = std::mem::take(partial);
        match parse_bitmap_entry(raw) {
            Ok(Some(bitmap)) if self.claim(bitmap, at)? => {
                self.bitmaps += 1;
                self.masks(bitmap, &partial.in_group)
            }
            Ok(_) => Ok(()),
            Err(wrong) => self.damage(at, wrong),
        }
    }

    /// Ends the group of `partial`, which has no bitmap; that is damage if it has partly written
    /// chunks.
    fn without_bitmap(&mut self, partial: &mut PartialChunks) -> Result<()> {
        let PartialChunks { in_group, at, .. } = std::mem::take(partial);
        if in_group.is_empty() {
            Ok(())
        } else {
            self.damage(
                at,
                "a partly written chunk has no bitmap, which says which of its blocks are written",
            )
        }
    }

    /// Validates the masks of partly written chunks. Skipped on open, where masks are read on
    /// demand.
    fn masks(&mut self, bitmap: FileChunk, partial: &[u32]) -> Result<()> {
        if matches!(self.findings, Findings::Open) {
            return Ok(());
        }
        let bytes = u64::from(self.header.geometry.mask_bytes());
        for in_group in partial {
            let at =
                self.header.geometry.in_file(bitmap, 0..0).start + u64::from(*in_group) * bytes;
            let there = self.file_len.saturating_sub(at).min(bytes);
            let mask = self.file.read_vec(at, to_usize(there))?;
            match Mask::parse(mask) {
                Err(block) => self.damage(
                    at + u64::from(block / 4),
                    format!("block {block} of a chunk has the invalid state 3"),
                )?,
                Ok(mask) if mask.is_unused() => self.damage(at, UNUSED_MASK)?,
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Calls `each` for the numbers from byte `start` on with the number's index, value and file
    /// offset. Zeros are skipped; holes of the file are not read.
    fn each_number(
        &mut self,
        start: u64,
        count: u64,
        each: &mut dyn FnMut(&mut Self, u32, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let end = (start + count * NUMBER).min(self.file_len);
        let mut buf: [U64; PIECE] = FromZeros::new_zeroed();
        let mut at = start;
        while at + NUMBER <= end {
            let extent = self.file.extent_at(at..end)?;
            if extent.kind != ExtentKind::Data && extent.len >= NUMBER {
                at += extent.len / NUMBER * NUMBER;
                continue;
            }
            let numbers = (((end - at) / NUMBER) as usize).min(PIECE);
            let part = &mut buf[..numbers];
            self.file.read_at(at, part.as_mut_bytes())?;
            for (index, number) in part
                .iter()
                .enumerate()
                .filter(|(_, number)| number.get() != 0)
            {
                let place = at + index as u64 * NUMBER;
                each(self, narrow((place - start) / NUMBER), number.get(), place)?;
            }
            at += numbers as u64 * NUMBER;
        }
        Ok(())
    }
}
