//! Directories: the search for their records, and what records of a file belong together.

use bandsaw_core::device::BlockDeviceExt;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

use super::layout::{ContinuationRaw, Record, RecordRaw, SECTOR, SELF};
use super::names::Naming;
use super::rock_ridge::RockRidge;
use super::system_use::{Fields, MAX_AREA, MAX_AREAS, bytes_to_skip, fields_of_root};
use super::{IsoVolume, LAYER, Space};

/// Maximum length of a record in bytes.
const MAX_RECORD: u64 = 255;
/// Bytes of a directory that are read in one call, for all of its entries.
const WINDOW: u64 = 16 << 10;
/// The same for one entry.
const SMALL_WINDOW: u64 = 1 << 10;
/// Maximum number of sections of a file.
const MAX_SECTIONS: usize = 1 << 14;

/// A directory by the record of itself, which is its first.
#[derive(Debug)]
pub(super) struct Directory {
    /// The byte at which it begins.
    pub(super) start: u64,
    /// In bytes; its end is within the volume.
    pub(super) len: u64,
    pub(super) record: Record,
}

/// The records of one entry of a directory: several if the file has several sections, or a resource
/// fork.
#[derive(Debug)]
pub(super) struct EntryRecords {
    /// The byte at which the first record begins.
    pub(super) offset: u64,
    /// The first record of the contents, or of the resource fork if there are no contents.
    pub(super) record: Record,
    pub(super) data: Vec<RecordRaw>,
    pub(super) resource: Vec<RecordRaw>,
}

/// The entries of a range of records, in order. Those of the directory itself and its parent are
/// included.
#[derive(Debug)]
pub(super) struct EntryReader<'a> {
    space: &'a Space,
    at: u64,
    end: u64,
    /// Maximum number of blocks without a record before the end.
    max_blank: u64,
    /// Bytes that are read in one call.
    window_len: u64,
    window: Vec<u8>,
    window_start: u64,
    /// A record that was read ahead.
    ahead: Option<(u64, Record)>,
}

impl Space {
    /// Returns the first byte of a block.
    pub(super) fn offset(&self, block: u64) -> u64 {
        block * self.block_size
    }
}

impl IsoVolume {
    /// Opens the directory that begins at a byte.
    pub(super) fn directory(&self, start: u64) -> Result<Directory> {
        let no_directory = |why: &'static str| Error::corrupt(LAYER, start, why);
        let device = &self.space.device;
        let rest = device.info().len.saturating_sub(start);
        if rest == 0 {
            return Err(no_directory("a directory is past the end of the volume"));
        }
        let bytes = device.read_vec(start, to_usize(rest.min(MAX_RECORD)))?;
        let record = Record::parse(&bytes).map_err(no_directory)?;
        if *record.name() != SELF || !record.raw.is_directory() {
            return Err(no_directory("expected the first record of a directory"));
        }
        if !record.raw.size.agrees() {
            return Err(no_directory(
                "the length of a directory differs between the byte orders",
            ));
        }
        let len = u64::from(record.raw.size.get());
        if len > rest {
            return Err(no_directory(
                "a directory reaches past the end of the volume",
            ));
        }
        Ok(Directory { start, len, record })
    }

    /// Returns the entries of a directory.
    pub(super) fn entries_of(&self, directory: &Directory) -> EntryReader<'_> {
        let end = directory.start + directory.len;
        EntryReader {
            max_blank: u64::MAX,
            window_len: WINDOW,
            ..EntryReader::new(&self.space, directory.start, end)
        }
    }

    /// Returns the entry whose first record begins at a byte.
    pub(super) fn entry_at(&self, offset: u64) -> Result<EntryRecords> {
        let end = self.space.device.info().len;
        let mut reader = EntryReader::new(&self.space, offset, end);
        match reader.read_next()? {
            Some(entry) if entry.offset == offset => Ok(entry),
            _ => Err(Error::not_found(LAYER, format!("object {offset}"))),
        }
    }

    /// Returns what the entries of Rock Ridge say of a record.
    pub(super) fn rock_ridge(&self, record: &Record) -> Result<RockRidge> {
        let field = record.system_use();
        match self.naming {
            Naming::RockRidge => {
                self.read_fields(Fields(field.get(self.skip..).unwrap_or_default()))
            }
            Naming::Joliet | Naming::Plain => Ok(RockRidge::default()),
        }
    }

    /// Returns the same of the record of a directory itself.
    pub(super) fn rock_ridge_of(&self, directory: &Directory) -> Result<RockRidge> {
        match directory.start == self.root && self.naming == Naming::RockRidge {
            true => self.read_fields(fields_of_root(directory.record.system_use())),
            false => self.rock_ridge(&directory.record),
        }
    }

    /// Returns the number of bytes of a system use field before the first entry of Rock Ridge. `None`:
    /// the volume does not use it.
    pub(super) fn rock_ridge_skip(&self) -> Result<Option<usize>> {
        let root = self.directory(self.root)?;
        let field = root.record.system_use();
        let Some(skip) = bytes_to_skip(field) else {
            return Ok(None);
        };
        let found = self.read_fields(fields_of_root(field))?;
        Ok(found.posix.is_some().then_some(skip))
    }

    fn read_fields(&self, fields: Fields<'_>) -> Result<RockRidge> {
        let mut found = RockRidge::default();
        let mut next = add_all(&mut found, fields)?;
        let mut areas = 0;
        while let Some(place) = next {
            areas += 1;
            if areas > MAX_AREAS {
                let message = format!("a record has more than {MAX_AREAS} continuation areas");
                return Err(Error::new(Kind::Corrupt, LAYER, message));
            }
            let area = self.read_area(place)?;
            next = add_all(&mut found, Fields(&area))?;
        }
        Ok(found)
    }

    fn read_area(&self, place: ContinuationRaw) -> Result<Vec<u8>> {
        let start = self.space.offset(place.block.get().into()) + u64::from(place.offset.get());
        let len = place.len.get();
        let device = &self.space.device;
        let is_within = start + u64::from(len) <= device.info().len;
        if len > MAX_AREA || !is_within {
            let message = format!("a continuation area of {len} bytes is too long");
            return Err(Error::corrupt(LAYER, start, message));
        }
        device.read_vec(start, to_usize(len.into()))
    }
}

/// Adds entries; returns the place of the continuation.
fn add_all(found: &mut RockRidge, fields: Fields<'_>) -> Result<Option<ContinuationRaw>> {
    let mut next = None;
    for field in fields {
        next = found.add(field)?.or(next);
    }
    Ok(next)
}

impl<'a> EntryReader<'a> {
    fn new(space: &'a Space, at: u64, end: u64) -> Self {
        Self {
            space,
            at,
            end,
            max_blank: SECTOR / space.block_size,
            window_len: SMALL_WINDOW,
            window: Vec::new(),
            window_start: 0,
            ahead: None,
        }
    }

    /// Returns the next entry.
    pub(super) fn read_next(&mut self) -> Result<Option<EntryRecords>> {
        let Some((offset, first)) = self.next_record()? else {
            return Ok(None);
        };
        let sections = self.sections(offset, &first)?;
        if !first.raw.is_associated() {
            return Ok(Some(EntryRecords {
                offset,
                record: first,
                data: sections,
                resource: Vec::new(),
            }));
        }
        match self.next_record()? {
            Some((at, main)) if !main.raw.is_associated() && main.name() == first.name() => {
                let data = self.sections(at, &main)?;
                Ok(Some(EntryRecords {
                    offset,
                    record: main,
                    data,
                    resource: sections,
                }))
            }
            other => {
                self.ahead = other;
                Ok(Some(EntryRecords {
                    offset,
                    record: first,
                    data: Vec::new(),
                    resource: sections,
                }))
            }
        }
    }

    /// Returns the sections of the file that begins with a record.
    fn sections(&mut self, offset: u64, first: &Record) -> Result<Vec<RecordRaw>> {
        let (mut sections, mut last) = (vec![first.raw], first.raw);
        while last.is_continued() && !last.is_directory() {
            let next = self.next_record()?.map(|(_, record)| record);
            let is_same = |record: &Record| {
                record.name() == first.name()
                    && record.raw.is_associated() == first.raw.is_associated()
            };
            let Some(next) = next.filter(is_same) else {
                let message = "the last record of a file with several sections is missing";
                return Err(Error::corrupt(LAYER, offset, message));
            };
            if sections.len() == MAX_SECTIONS {
                let message = format!("a file has more than {MAX_SECTIONS} sections");
                return Err(Error::limit(LAYER, message).at(offset));
            }
            last = next.raw;
            sections.push(last);
        }
        Ok(sections)
    }

    fn next_record(&mut self) -> Result<Option<(u64, Record)>> {
        if let Some(ahead) = self.ahead.take() {
            return Ok(Some(ahead));
        }
        let mut blank = 0;
        while self.at < self.end && blank <= self.max_blank {
            let offset = self.at;
            let bytes = self.bytes()?;
            // The rest of a sector that is too short for the next record is blank.
            if bytes.first().is_none_or(|&len| len == 0) {
                self.at = (offset / self.space.block_size + 1) * self.space.block_size;
                blank += 1;
                continue;
            }
            let record = Record::parse(bytes).map_err(|why| Error::corrupt(LAYER, offset, why))?;
            self.at += u64::from(record.raw.len);
            return Ok(Some((offset, record)));
        }
        Ok(None)
    }

    /// Returns the bytes from the current place on, at least a record if there are as many.
    fn bytes(&mut self) -> Result<&[u8]> {
        let wanted = MAX_RECORD.min(self.end - self.at);
        let window_end = self.window_start + self.window.len() as u64;
        if self.at < self.window_start || self.at + wanted > window_end {
            let len = to_usize(self.window_len.min(self.end - self.at));
            self.window.resize(len, 0);
            self.space.device.read_at(self.at, &mut self.window)?;
            self.window_start = self.at;
        }
        let within = to_usize(self.at - self.window_start);
        Ok(self.window.get(within..).unwrap_or_default())
    }
}
