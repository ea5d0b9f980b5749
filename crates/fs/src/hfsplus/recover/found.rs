//! The records that a scan has found, in 16 or 24 bytes each. Names and extents are read again when a
//! file is assembled.

use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hasher};

use super::area::RecordPlace;
use super::carve;
use crate::hfsplus::layout::{FileRaw, FolderRaw};

/// A file record.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileEntry {
    pub(super) id: u32,
    /// Hash of both forks; 0 if both are empty.
    pub(super) forks: u32,
    /// The later of the dates of the last change.
    pub(super) date: u32,
    /// Order of magnitude of its size: of two records of one second, the larger one is the newer.
    pub(super) magnitude: u16,
    /// True if a record of the same file is newer.
    pub(super) is_older: bool,
    pub(super) place: RecordPlace,
}

/// A record of an object with a date: a folder's, or a thread, whose date is 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameEntry {
    pub(super) id: u32,
    pub(super) date: u32,
    pub(super) place: RecordPlace,
}

/// A record of the extents tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct OverflowEntry {
    pub(super) id: u32,
    pub(super) start: u32,
    pub(super) fork: u8,
    pub(super) place: RecordPlace,
}

/// An attribute whose value is in its record.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttributeEntry {
    pub(super) id: u32,
    pub(super) place: RecordPlace,
}

/// All records that a scan has found.
#[derive(Debug, Default)]
pub(super) struct FoundRecords {
    pub(super) files: Vec<FileEntry>,
    pub(super) folders: Vec<NameEntry>,
    pub(super) threads: Vec<NameEntry>,
    pub(super) overflow: Vec<OverflowEntry>,
    pub(super) attributes: Vec<AttributeEntry>,
}

impl FoundRecords {
    pub(super) fn add_file(&mut self, file: &FileRaw, block_size: u32, place: RecordPlace) {
        let sizes = file.data_fork.logical_size.get() | file.resource_fork.logical_size.get();
        let forks = match sizes {
            0 => 0,
            _ => hash(file, block_size),
        };
        self.files.push(FileEntry {
            id: file.file_id.get(),
            forks,
            date: file
                .dates
                .attribute_mod
                .get()
                .max(file.dates.content_mod.get()),
            magnitude: magnitude(file),
            is_older: false,
            place,
        });
    }

    pub(super) fn add_folder(&mut self, folder: &FolderRaw, place: RecordPlace) {
        self.folders.push(NameEntry {
            id: folder.folder_id.get(),
            date: folder.dates.attribute_mod.get().max(1),
            place,
        });
    }

    /// Drops repeated records, and sorts all: files by the date of their record, newest first, and the
    /// others by number. `is_live` returns true for the number of an object that exists.
    pub(super) fn sort(&mut self, is_live: &dyn Fn(u32) -> bool) {
        let files = &mut self.files;
        files.sort_unstable_by_key(|file| (file.id, file.forks, Reverse(file.date), file.place));
        files.dedup_by_key(|file| (file.id, file.forks));
        files.sort_unstable_by_key(|file| {
            let newest = (Reverse(file.date), Reverse(file.magnitude));
            (file.id, newest, file.place)
        });
        // A file that was just made is empty.
        let mut kept = 0;
        let mut at = 0;
        while at < files.len() {
            let id = files[at].id;
            let end = at + files[at..].partition_point(|file| file.id == id);
            let has_contents = files[at..end].iter().any(|file| file.forks != 0);
            let mut is_older = false;
            for index in at..end {
                let mut file = files[index];
                if file.forks == 0 && (has_contents || is_live(id)) {
                    continue;
                }
                file.is_older = is_older;
                is_older = true;
                files[kept] = file;
                kept += 1;
            }
            at = end;
        }
        files.truncate(kept);
        // Threads of files that are known by their record add nothing.
        let known = |id: u32| files.binary_search_by_key(&id, |file| file.id).is_ok();
        self.threads.retain(|thread| !known(thread.id));
        self.threads
            .sort_unstable_by_key(|thread| (thread.id, thread.place));
        self.threads.dedup_by_key(|thread| thread.id);
        files.sort_by_key(|file| (Reverse(file.date), file.id, file.is_older));
        let folders = &mut self.folders;
        folders.sort_unstable_by_key(|folder| (folder.id, Reverse(folder.date), folder.place));
        folders.dedup_by_key(|folder| folder.id);
        self.overflow
            .sort_unstable_by_key(|record| (record.id, record.fork, record.start, record.place));
        self.attributes
            .sort_unstable_by_key(|record| (record.id, record.place));
    }

    /// Returns the records of the extents tree for a fork, from a block on.
    pub(super) fn overflow(&self, key: (u32, u8, u32)) -> impl Iterator<Item = RecordPlace> + '_ {
        let key_of = |record: &OverflowEntry| (record.id, record.fork, record.start);
        let first = self.overflow.partition_point(|record| key_of(record) < key);
        self.overflow[first..]
            .iter()
            .take_while(move |record| key_of(record) == key)
            .map(|record| record.place)
    }

    /// Returns the attributes of an object.
    pub(super) fn attributes(&self, id: u32) -> impl Iterator<Item = RecordPlace> + '_ {
        let first = self.attributes.partition_point(|record| record.id < id);
        self.attributes[first..]
            .iter()
            .take_while(move |record| record.id == id)
            .map(|record| record.place)
    }

    /// Returns the record of a folder.
    pub(super) fn folder(&self, id: u32) -> Option<RecordPlace> {
        let at = self.folders.binary_search_by_key(&id, |folder| folder.id);
        at.ok().map(|at| self.folders[at].place)
    }
}

/// Returns a hash of the sizes and used extents of both forks, which is not 0.
fn hash(file: &FileRaw, block_size: u32) -> u32 {
    let mut hasher = DefaultHasher::new();
    for fork in [&file.data_fork, &file.resource_fork] {
        hasher.write_u64(fork.logical_size.get());
        for extent in carve::used_extents(fork, block_size) {
            hasher.write_u32(extent.start.0);
            hasher.write_u32(extent.count);
        }
    }
    let hash = hasher.finish();
    let folded = (hash >> 32) ^ (hash & u64::from(u32::MAX));
    u32::try_from(folded).unwrap_or(u32::MAX).max(1)
}

/// Returns a number that grows with the sum of both sizes: its length in bits, and its first ten bits.
fn magnitude(file: &FileRaw) -> u16 {
    let sizes = [&file.data_fork, &file.resource_fork].map(|fork| fork.logical_size.get());
    let size = sizes[0].saturating_add(sizes[1]);
    let bits = u64::BITS - size.leading_zeros();
    let first = size >> bits.saturating_sub(10);
    u16::try_from(u64::from(bits.min(63)) << 10 | first & 0x3FF).unwrap_or(u16::MAX)
}
