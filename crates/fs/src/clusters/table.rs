//! A file allocation table: an entry for each cluster, which names the next of its file.

use std::fmt;
use std::sync::Arc;

use bandsaw_core::Result;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;
use bandsaw_core::sync::Mutex;

use super::FIRST;

/// Number of entries in memory; even, so that no entry of 12 bits is split.
const PER_PIECE: u64 = 1 << 14;

/// The width of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryWidth {
    /// FAT12: two entries in three bytes.
    Bits12,
    /// FAT16.
    Bits16,
    /// FAT32: the four highest bits are reserved.
    Bits28,
    /// exFAT.
    Bits32,
}

impl EntryWidth {
    /// Returns the bytes of the entries before `entry`, which must be even.
    pub(crate) const fn bytes(self, entries: u64) -> u64 {
        match self {
            Self::Bits12 => (entries * 3).div_ceil(2),
            Self::Bits16 => entries * 2,
            Self::Bits28 | Self::Bits32 => entries * 4,
        }
    }

    /// Returns the entry of a bad cluster.
    pub(crate) const fn bad(self) -> u32 {
        self.end_of_chain() - 8
    }

    /// Returns the entry that is written for the last cluster of a file.
    pub(crate) const fn end_of_chain(self) -> u32 {
        match self {
            Self::Bits12 => 0xFFF,
            Self::Bits16 => 0xFFFF,
            Self::Bits28 => 0x0FFF_FFFF,
            Self::Bits32 => u32::MAX,
        }
    }

    /// Returns true for an entry of the last cluster of a file. All from 8 below the largest are on FAT.
    const fn is_end(self, entry: u32) -> bool {
        match self {
            Self::Bits32 => entry == u32::MAX,
            _ => entry > self.bad(),
        }
    }

    /// Stores entries over `bytes`, which hold them already. The first of them is even, or odd if `odd`.
    fn encode(self, bytes: &mut [u8], odd: bool, entries: &[u32]) {
        let first = usize::from(odd && self == Self::Bits12);
        for (index, &entry) in (first..).zip(entries) {
            let value = entry.to_le_bytes();
            match self {
                Self::Bits12 => {
                    let at = index / 2 * 3 + index % 2;
                    let Some([low, high]) = bytes.get_mut(at..at + 2) else {
                        return;
                    };
                    match index % 2 {
                        0 => (*low, *high) = (value[0], *high & 0xF0 | value[1] & 0x0F),
                        _ => {
                            let [first, second, ..] = (entry << 4).to_le_bytes();
                            (*low, *high) = (*low & 0x0F | first, second);
                        }
                    }
                }
                Self::Bits16 => {
                    if let Some(place) = bytes.get_mut(2 * index..2 * index + 2) {
                        place.copy_from_slice(&value[..2]);
                    }
                }
                Self::Bits28 => {
                    if let Some([a, b, c, d]) = bytes.get_mut(4 * index..4 * index + 4) {
                        // The highest four bits are reserved.
                        let reserved = *d & 0xF0;
                        [*a, *b, *c, *d] = value;
                        *d = *d & 0x0F | reserved;
                    }
                }
                Self::Bits32 => {
                    if let Some(place) = bytes.get_mut(4 * index..4 * index + 4) {
                        place.copy_from_slice(&value);
                    }
                }
            }
        }
    }

    /// Decodes `count` entries, the first of which is even, or odd if `odd`.
    fn decode(self, bytes: &[u8], odd: bool, count: usize) -> Vec<u32> {
        let byte = |at: usize| bytes.get(at).copied().map_or(0, u32::from);
        let wide =
            |at: usize| byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24;
        let first = usize::from(odd && self == Self::Bits12);
        (first..first + count)
            .map(|index| match self {
                Self::Bits12 => {
                    let at = index / 2 * 3 + index % 2;
                    let pair = byte(at) | byte(at + 1) << 8;
                    match index % 2 {
                        0 => pair & 0xFFF,
                        _ => pair >> 4,
                    }
                }
                Self::Bits16 => byte(2 * index) | byte(2 * index + 1) << 8,
                Self::Bits28 => wide(4 * index) & 0x0FFF_FFFF,
                Self::Bits32 => wide(4 * index),
            })
            .collect()
    }
}

/// The state of a cluster by its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableEntry {
    Free,
    /// The next cluster of the file, which the volume has.
    Next(u64),
    /// The last cluster of a file.
    End,
    /// The medium cannot store it.
    Bad,
    /// A cluster that the volume does not have.
    Outside(u32),
}

impl fmt::Display for TableEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("a free cluster"),
            Self::Next(cluster) => write!(f, "cluster {cluster}"),
            Self::End => f.write_str("its end"),
            Self::Bad => f.write_str("a bad cluster"),
            Self::Outside(cluster) => write!(f, "cluster {cluster}, outside the volume"),
        }
    }
}

/// A table on a volume. The caller checked that it is within the device.
#[derive(Debug)]
pub(crate) struct AllocationTable {
    device: Arc<dyn BlockDevice>,
    /// Offset on the volume in bytes.
    at: u64,
    width: EntryWidth,
    /// Number of clusters; there are two entries more.
    clusters: u64,
    /// The piece read last, and its number.
    kept: Mutex<Option<(u64, Vec<u32>)>>,
}

impl AllocationTable {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        at: u64,
        width: EntryWidth,
        clusters: u64,
    ) -> Self {
        Self {
            device,
            at,
            width,
            clusters,
            kept: Mutex::default(),
        }
    }

    /// Returns `count` entries, beginning with entry `first`. They must be within the table.
    pub(crate) fn entries(&self, first: u64, count: usize) -> Result<Vec<u32>> {
        let odd = first % 2 == 1;
        let from = match self.width {
            EntryWidth::Bits12 => first - u64::from(odd),
            _ => first,
        };
        let (start, end) = (
            self.width.bytes(from),
            self.width.bytes(first + count as u64),
        );
        let bytes = self
            .device
            .read_vec(self.at + start, to_usize(end - start))?;
        Ok(self.width.decode(&bytes, odd, count))
    }

    /// Writes entries, beginning with entry `first`. They must be within the table.
    pub(crate) fn store(&self, first: u64, entries: &[u32]) -> Result<()> {
        let odd = first % 2 == 1;
        let from = match self.width {
            EntryWidth::Bits12 => first - u64::from(odd),
            _ => first,
        };
        let end = first + entries.len() as u64;
        let (start, end) = (self.width.bytes(from), self.width.bytes(end));
        let mut bytes = self
            .device
            .read_vec(self.at + start, to_usize(end - start))?;
        self.width.encode(&mut bytes, odd, entries);
        self.device.write_at(self.at + start, &bytes)?;
        let mut kept = self.kept.lock();
        if let Some((piece, kept)) = &mut *kept {
            let begin = *piece * PER_PIECE;
            for (entry, value) in (first..).zip(entries) {
                let place = entry.checked_sub(begin).map(to_usize);
                if let Some(place) = place.and_then(|at| kept.get_mut(at)) {
                    *place = *value;
                }
            }
        }
        Ok(())
    }

    /// Forgets the entries in memory, because the table was changed behind them.
    pub(crate) fn forget(&self) {
        *self.kept.lock() = None;
    }

    /// Returns the width of an entry.
    pub(crate) fn width(&self) -> EntryWidth {
        self.width
    }

    /// Returns the entry of a cluster, which the volume must have.
    fn entry(&self, cluster: u64) -> Result<u32> {
        let (piece, within) = (cluster / PER_PIECE, to_usize(cluster % PER_PIECE));
        let mut kept = self.kept.lock();
        let entries = match &mut *kept {
            Some((number, entries)) if *number == piece => entries,
            other => {
                let first = piece * PER_PIECE;
                let count = (self.clusters + FIRST - first).min(PER_PIECE);
                &mut other
                    .insert((piece, self.entries(first, to_usize(count))?))
                    .1
            }
        };
        Ok(entries.get(within).copied().unwrap_or_default())
    }

    /// Returns the meaning of an entry.
    pub(crate) fn decode(&self, entry: u32) -> TableEntry {
        match u64::from(entry) {
            0 => TableEntry::Free,
            next if (FIRST..self.clusters + FIRST).contains(&next) => TableEntry::Next(next),
            _ if entry == self.width.bad() => TableEntry::Bad,
            _ if self.width.is_end(entry) => TableEntry::End,
            _ => TableEntry::Outside(entry),
        }
    }

    /// Returns what the table says of a cluster, which the volume must have.
    pub(crate) fn link(&self, cluster: u64) -> Result<TableEntry> {
        Ok(self.decode(self.entry(cluster)?))
    }

    /// Calls `each` for every cluster with its link, in order.
    pub(crate) fn each(&self, mut each: impl FnMut(u64, TableEntry) -> Result<()>) -> Result<()> {
        let end = self.clusters + FIRST;
        let mut first = FIRST;
        while first < end {
            let count = (end - first).min(PER_PIECE);
            for (cluster, entry) in (first..).zip(self.entries(first, to_usize(count))?) {
                each(cluster, self.decode(entry))?;
            }
            first += count;
        }
        Ok(())
    }
}
