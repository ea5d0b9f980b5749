//! The records that a scan has found, in 24 bytes each. Their contents are read again when a file is
//! assembled.

use std::cmp::Reverse;

use super::live::LiveObjects;
use super::nodes::FoundNode;
use crate::apfs::layout::{DirectoryEntryRaw, FileId, Paddr, RecordKey, RecordKeyRaw, record_type};
use bandsaw_core::size::to_usize;

/// Bits of the index of a record in its node.
const INDEX: u32 = 16;

/// A record.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundRecord {
    /// Type and number of its object as in a key; of a directory entry the number of the entry's file.
    key: u64,
    /// Transaction of its node.
    pub(super) xid: u64,
    /// Block of its node, and its index in it.
    place: u64,
}

impl FoundRecord {
    pub(super) fn id(&self) -> u64 {
        head(self.key).id().0
    }

    pub(super) fn kind(&self) -> u8 {
        head(self.key).kind()
    }

    pub(super) fn paddr(&self) -> Paddr {
        Paddr(self.place >> INDEX)
    }

    pub(super) fn index(&self) -> usize {
        to_usize(self.place & ((1 << INDEX) - 1))
    }
}

fn head(key: u64) -> RecordKeyRaw {
    RecordKeyRaw {
        id_and_type: key.into(),
    }
}

fn key(id: u64, kind: u8) -> u64 {
    RecordKeyRaw::new(FileId(id), kind).id_and_type.get()
}

/// The records of a volume that were found, of objects that do not exist.
#[derive(Debug, Default)]
pub(super) struct FoundRecords {
    all: Vec<FoundRecord>,
}

impl FoundRecords {
    /// Adds the records of a leaf.
    pub(super) fn add(&mut self, found: &FoundNode, hashed: bool, live: Option<&LiveObjects>) {
        let is_live = |id| live.is_some_and(|live| live.has(id));
        let is_live_stream = |id| live.is_some_and(|live| live.has_stream(id));
        for index in 0..found.node.count.min(1 << INDEX) {
            let Some((bytes, value)) = found.node.record(index) else {
                continue;
            };
            let Some(RecordKey { id, kind, .. }) = RecordKey::parse(bytes, hashed) else {
                continue;
            };
            let about = match kind {
                record_type::INODE | record_type::XATTR if !is_live(id.0) => id.0,
                record_type::FILE_EXTENT if !is_live_stream(id.0) => id.0,
                record_type::DIRECTORY_ENTRY => match DirectoryEntryRaw::parse(value) {
                    Some((entry, _)) if !is_live(entry.file_id.get()) => entry.file_id.get(),
                    _ => continue,
                },
                _ => continue,
            };
            let place = found.node.paddr.0 << INDEX | index as u64;
            self.all.push(FoundRecord {
                key: key(about, kind),
                xid: found.xid,
                place,
            });
        }
    }

    /// Sorts the records by their keys, the newest of each first.
    pub(super) fn sort(&mut self) {
        self.all
            .sort_unstable_by_key(|record| (record.key, Reverse(record.xid), record.place));
    }

    /// Returns the records of a type of an object, the newest first.
    pub(super) fn of(&self, id: u64, kind: u8) -> &[FoundRecord] {
        let key = key(id, kind);
        let first = self.all.partition_point(|record| record.key < key);
        let count = self.all[first..].partition_point(|record| record.key == key);
        &self.all[first..first + count]
    }

    /// Returns the newest record of each object: its inode, or a directory entry of one whose inode was
    /// not found. Those of the newest transactions come first.
    pub(super) fn newest(&self) -> Vec<FoundRecord> {
        let mut newest: Vec<FoundRecord> = Vec::new();
        for kind in [record_type::INODE, record_type::DIRECTORY_ENTRY] {
            let (low, high) = (key(0, kind), key(u64::MAX, kind));
            let first = self.all.partition_point(|record| record.key < low);
            let end = self.all.partition_point(|record| record.key <= high);
            let mut last = None;
            for record in &self.all[first..end] {
                let is_known = kind == record_type::DIRECTORY_ENTRY
                    && !self.of(record.id(), record_type::INODE).is_empty();
                if last != Some(record.key) && !is_known {
                    newest.push(*record);
                }
                last = Some(record.key);
            }
        }
        newest.sort_unstable_by_key(|record| (Reverse(record.xid), record.key));
        newest
    }
}
