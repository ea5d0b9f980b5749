//! The entries of a directory, with their long names.

use bandsaw_core::Result;
use zerocopy::FromBytes;

use super::layout::{
    LAST_PART, LongEntryRaw, MAX_PARTS, ShortEntryRaw, UNITS_PER_PART, attributes, first_byte,
};
use super::names;
use crate::clusters::{ClusterSpace, DirectoryPlace, DirectoryReader};

/// An entry of a file or folder.
#[derive(Debug, Clone)]
pub(super) struct FatEntry {
    /// Offset on the volume in bytes.
    pub(super) offset: u64,
    pub(super) raw: ShortEntryRaw,
    pub(super) name: String,
    /// Number of the entry within its directory.
    pub(super) slot: u64,
    /// Number of entries before it that hold its long name.
    pub(super) parts: u64,
}

/// Something in a directory.
#[derive(Debug)]
pub(super) enum DirectoryItem {
    Entry(FatEntry),
    /// The name of the volume, in the root directory.
    Label(ShortEntryRaw),
    /// `.` or `..`.
    Dot(ShortEntryRaw),
}

/// The parts of a long name, which precede its entry, the last part first.
#[derive(Debug)]
struct LongName {
    checksum: u8,
    /// Number of parts that are still to come.
    missing: u8,
    /// The parts so far, in the order in which they are stored.
    parts: Vec<[u16; UNITS_PER_PART]>,
}

impl LongName {
    /// Begins a name with the part that is stored first. `None`: it is not the last part of a name.
    fn new(raw: &LongEntryRaw) -> Option<Self> {
        let count = raw.order & !LAST_PART;
        let is_last = raw.order & LAST_PART != 0 && (1..=MAX_PARTS).contains(&count);
        is_last.then(|| Self {
            checksum: raw.checksum,
            missing: count - 1,
            parts: vec![raw.units()],
        })
    }

    /// Adds a part. False: it does not follow.
    fn add(&mut self, raw: &LongEntryRaw) -> bool {
        let follows = raw.order == self.missing && raw.checksum == self.checksum;
        if follows && self.missing > 0 {
            self.missing -= 1;
            self.parts.push(raw.units());
            return true;
        }
        false
    }

    fn text(&self) -> String {
        let units: Vec<u16> = self.parts.iter().rev().flatten().copied().collect();
        names::long(&units)
    }
}

/// A reader of a directory.
#[derive(Debug)]
pub(super) struct Items<'a> {
    reader: DirectoryReader<'a>,
    /// Number of parts of long names that belong to no entry.
    strays: u64,
}

impl<'a> Items<'a> {
    pub(super) fn new(space: &'a ClusterSpace, place: &DirectoryPlace) -> Result<Self> {
        Ok(Self {
            reader: DirectoryReader::new(space, place)?,
            strays: 0,
        })
    }

    /// Returns the number of parts of long names so far that belong to no entry.
    pub(super) fn strays(&self) -> u64 {
        self.strays
    }

    /// Returns the next item; `None` at the end of the directory.
    pub(super) fn read_next(&mut self) -> Result<Option<DirectoryItem>> {
        let mut long: Option<LongName> = None;
        loop {
            let mut drop_long = |long: &mut Option<LongName>| {
                let parts = long.take().map_or(0, |long| long.parts.len());
                self.strays += parts as u64;
            };
            let Some((offset, bytes)) = self.reader.read_next()? else {
                drop_long(&mut long);
                return Ok(None);
            };
            let Ok(raw) = ShortEntryRaw::read_from_bytes(&bytes) else {
                continue;
            };
            match raw.name[0] {
                first_byte::END => {
                    drop_long(&mut long);
                    return Ok(None);
                }
                first_byte::DELETED => {
                    drop_long(&mut long);
                    continue;
                }
                _ => {}
            }
            if raw.is_long() {
                let Ok(part) = LongEntryRaw::read_from_bytes(&bytes) else {
                    continue;
                };
                if !long.as_mut().is_some_and(|long| long.add(&part)) {
                    drop_long(&mut long);
                    long = LongName::new(&part);
                    self.strays += u64::from(long.is_none());
                }
                continue;
            }
            if raw.attributes & attributes::LABEL != 0 {
                drop_long(&mut long);
                return Ok(Some(DirectoryItem::Label(raw)));
            }
            if raw.is_dot() {
                drop_long(&mut long);
                return Ok(Some(DirectoryItem::Dot(raw)));
            }
            let (name, parts) = match &long {
                Some(long) if long.missing == 0 && long.checksum == raw.checksum() => {
                    (long.text(), long.parts.len() as u64)
                }
                _ => {
                    drop_long(&mut long);
                    (names::short(&raw), 0)
                }
            };
            let slot = self.reader.position() - 1;
            return Ok(Some(DirectoryItem::Entry(FatEntry {
                offset,
                raw,
                name,
                slot,
                parts,
            })));
        }
    }
}
