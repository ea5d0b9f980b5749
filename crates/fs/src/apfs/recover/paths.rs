//! Paths of files that do not exist any more, through folders that do, and through those that were found.

use super::live::LiveObjects;
use super::nodes::NodeReader;
use super::records::{FoundRecord, FoundRecords};
use crate::apfs::btree::{Key, Tree};
use crate::apfs::layout::{FileId, InodeRaw, RecordKey, inode_field, record_type, until_nul};
use crate::recovered::paths::{FolderPath, KnownPaths};

/// Largest number of states of an inode among which the one to use is chosen.
const MAX_STATES: usize = 64;

/// Resolves paths of folders.
pub(super) struct FolderPaths<'a> {
    pub(super) live: Option<(&'a Tree, &'a LiveObjects)>,
    pub(super) found: &'a FoundRecords,
    pub(super) known: KnownPaths<u64>,
}

impl FolderPaths<'_> {
    /// Returns the path of a folder.
    pub(super) fn folder(&mut self, id: u64, reader: &mut NodeReader<'_>) -> FolderPath {
        let (live, found) = (self.live, self.found);
        self.known.folder(id, |id| parent(live, found, id, reader))
    }
}

/// Returns the parent and the name of a folder.
fn parent(
    live: Option<(&Tree, &LiveObjects)>,
    found: &FoundRecords,
    id: u64,
    reader: &mut NodeReader<'_>,
) -> Option<(u64, String)> {
    if let Some((tree, live)) = live
        && live.has(id)
    {
        let key = Key::Record(RecordKey::single(FileId(id), record_type::INODE));
        return tree.get(&key, named).ok()??;
    }
    let (_, value) = inode(found, id, reader)?;
    named(&value)
}

/// Returns the parent and the name in an inode.
pub(super) fn named(value: &[u8]) -> Option<(u64, String)> {
    let (inode, fields) = InodeRaw::parse(value)?;
    let name = until_nul(fields.get(inode_field::NAME)?);
    Some((
        inode.parent_id.get(),
        String::from_utf8_lossy(name).into_owned(),
    ))
}

/// Returns the newest inode of an object from before its deletion, if there is one: an object that is
/// being deleted is moved to the private folder first, and gets another name.
pub(super) fn inode(
    found: &FoundRecords,
    id: u64,
    reader: &mut NodeReader<'_>,
) -> Option<(FoundRecord, Vec<u8>)> {
    let mut newest = None;
    for record in found.of(id, record_type::INODE).iter().take(MAX_STATES) {
        let Some(node) = reader.read(record.paddr()) else {
            continue;
        };
        let Some((_, value)) = node.record(record.index()) else {
            continue;
        };
        let Some((inode, _)) = InodeRaw::parse(value) else {
            continue;
        };
        let is_in_place = inode.parent_id.get() != FileId::PRIVATE_DIR.0;
        if is_in_place {
            return Some((*record, value.to_vec()));
        }
        newest = newest.or_else(|| Some((*record, value.to_vec())));
    }
    newest
}
