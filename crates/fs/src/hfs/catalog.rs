//! The catalog: lookup of objects by number, by folder and name, and the entries of a folder (§5).

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::atomic::{self, AtomicU64};

use super::btree::{Cursor, RecordTree};
use super::layout::{CatalogKey, CatalogRecord, Object, cnid};
use super::names;
use bandsaw_core::{Error, Kind, Result};

/// The layer in errors about the catalog.
pub(super) const LAYER: &str = "hfs catalog";

/// The catalog tree.
#[derive(Debug)]
pub(super) struct HfsCatalog {
    tree: RecordTree,
    leaves: LeafIndex,
}

impl HfsCatalog {
    /// Creates the catalog of a volume that claims to have a number of `objects`.
    pub(super) fn new(tree: RecordTree, objects: u64) -> Self {
        let leaves = LeafIndex::new(objects);
        Self { tree, leaves }
    }

    /// Returns the object with this number.
    ///
    /// Folders are found by their threads. Files often have none: they are found in the leaf in which
    /// they were met before, or by a search of all leaves.
    pub(super) fn by_id(&self, id: u32) -> Result<Option<Object>> {
        if let Some(number) = self.leaves.get(id) {
            let leaf = self.tree.leaf(number)?;
            let mut objects = (0..leaf.records).filter_map(|index| {
                let (_, data) = CatalogKey::split(leaf.record(index)?)?;
                object(CatalogRecord::parse(data)?)
            });
            if let Some(found) = objects.find(|object| object.id() == id) {
                return Ok(Some(found));
            }
        }
        let Some((parent, _)) = self.thread(id)? else {
            return self.scan_for(id);
        };
        let mut found = None;
        self.records_of(parent, |_, record, _| {
            found = object(record).filter(|object| object.id() == id);
            Ok(break_if(found.is_some()))
        })?;
        if found.is_none() {
            let message =
                format!("the thread of object {id} refers to folder {parent}, which lacks it");
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        }
        Ok(found)
    }

    /// Returns the folder that contains an object, and true if the object is a folder, by its thread.
    fn thread(&self, id: u32) -> Result<Option<(u32, bool)>> {
        let mut thread = None;
        self.records_of(id, |key, record, _| {
            if let CatalogRecord::Thread { parent, is_folder } = record
                && key.name.is_empty()
            {
                thread = Some((parent, is_folder));
            }
            // The empty name sorts before all others.
            Ok(ControlFlow::Break(()))
        })?;
        Ok(thread)
    }

    /// Searches all records for a file without a thread, and notes the places of all objects.
    fn scan_for(&self, id: u32) -> Result<Option<Object>> {
        let (mut cursor, mut found) = (self.tree.first()?, None);
        while cursor.advance()? {
            let Some((_, data)) = cursor.record().and_then(CatalogKey::split) else {
                return Err(self.no_key(&cursor));
            };
            let Some(object) = CatalogRecord::parse(data).and_then(object) else {
                continue;
            };
            self.leaves.put(object.id(), cursor.leaf());
            if object.id() == id && matches!(object, Object::File(_)) {
                found = Some(object);
            }
        }
        Ok(found)
    }

    /// Returns the object `name`, in its on-disk form, in folder `parent`.
    ///
    /// The whole folder is searched, because names written in other scripts, and those of some programs,
    /// are not in one known order.
    pub(super) fn get(&self, parent: u32, name: &[u8]) -> Result<Option<Object>> {
        let mut found = None;
        self.records_of(parent, |key, record, _| {
            let Some(object) = object(record).filter(|_| names::is_equal(key.name, name)) else {
                return Ok(ControlFlow::Continue(()));
            };
            let is_exact = key.name == name;
            if is_exact || found.is_none() {
                found = Some(object);
            }
            Ok(break_if(is_exact))
        })?;
        Ok(found)
    }

    /// Calls `each` for the entries of folder `id` in order, until it breaks.
    pub(super) fn children(
        &self,
        id: u32,
        mut each: impl FnMut(&[u8], Object) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut is_folder = false;
        self.records_of(id, |key, record, leaf| match record {
            CatalogRecord::Thread { is_folder: is, .. } if key.name.is_empty() => {
                is_folder = is;
                Ok(break_if(!is))
            }
            // Without a thread before its entries, `id` is not a folder.
            _ if !is_folder => Ok(ControlFlow::Break(())),
            CatalogRecord::Object(object) if !key.name.is_empty() => each(key.name, object),
            _ => {
                let name = names::decode(key.name);
                let message = format!("unexpected record for the name {name:?} in folder {id}");
                Err(self.tree.corrupt(leaf, message))
            }
        })?;
        match is_folder {
            true => Ok(()),
            false => Err(Error::not_found(LAYER, format!("folder {id}"))),
        }
    }

    /// Calls `each` for the records whose key has `parent`, in order, with the number of their leaf,
    /// until it breaks. Only the order of parents is relied on.
    fn records_of(
        &self,
        parent: u32,
        mut each: impl FnMut(&CatalogKey<'_>, CatalogRecord, u32) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let before_all = |record: &[u8]| {
            let (key, _) = CatalogKey::split(record)?;
            let names = || match key.name {
                [] => Ordering::Equal,
                _ => Ordering::Greater,
            };
            Some(key.parent.cmp(&parent).then_with(names))
        };
        let mut cursor = self.tree.seek(&before_all)?;
        while cursor.advance()? {
            let leaf = cursor.leaf();
            let Some((key, data)) = cursor.record().and_then(CatalogKey::split) else {
                return Err(self.no_key(&cursor));
            };
            if key.parent != parent {
                break;
            }
            let Some(record) = CatalogRecord::parse(data) else {
                let name = names::decode(key.name);
                let message = format!("malformed record for the name {name:?} in folder {parent}");
                return Err(self.tree.corrupt(leaf, message));
            };
            if let CatalogRecord::Object(object) = &record {
                self.leaves.put(object.id(), leaf);
            }
            if each(&key, record, leaf)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Fails if the thread of a folder does not refer to the folder in which it was found, because
    /// following it could lead into a cycle.
    pub(super) fn check_thread(&self, parent: u32, folder: u32) -> Result<()> {
        // The root is in no folder, so every chain of threads ends there.
        if folder != cnid::ROOT && self.thread(folder)? == Some((parent, true)) {
            return Ok(());
        }
        let message =
            format!("folder {folder} is in folder {parent}, but its thread points elsewhere");
        Err(Error::new(Kind::Corrupt, LAYER, message))
    }

    fn no_key(&self, cursor: &Cursor<'_>) -> Error {
        let message = "malformed key of a record";
        self.tree.corrupt(cursor.leaf(), message)
    }
}

fn object(record: CatalogRecord) -> Option<Object> {
    match record {
        CatalogRecord::Object(object) => Some(object),
        CatalogRecord::Thread { .. } => None,
    }
}

fn break_if(done: bool) -> ControlFlow<()> {
    match done {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// The leaves in which objects were met, of a bounded number of objects: the slot is a function of the
/// object's number, and a later object replaces an earlier one. The volume does not change while it is
/// open, and the leaf is searched for the object, so an entry cannot mislead.
struct LeafIndex {
    /// Number of the object in the high half, of its leaf in the low one; 0 for none.
    slots: Box<[AtomicU64]>,
}

impl LeafIndex {
    /// Minimum and maximum number of slots; the maximum takes 512 KiB.
    const SLOTS: (u64, u64) = (64, 65_536);

    fn new(objects: u64) -> Self {
        let slots = objects.clamp(Self::SLOTS.0, Self::SLOTS.1);
        Self {
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn slot(&self, id: u32) -> &AtomicU64 {
        &self.slots[id as usize % self.slots.len()]
    }

    fn put(&self, id: u32, leaf: u32) {
        let entry = u64::from(id) << 32 | u64::from(leaf);
        self.slot(id).store(entry, atomic::Ordering::Relaxed);
    }

    fn get(&self, id: u32) -> Option<u32> {
        let entry = self.slot(id).load(atomic::Ordering::Relaxed);
        let leaf = u32::try_from(entry & u64::from(u32::MAX)).ok()?;
        (entry >> 32 == u64::from(id) && leaf != 0).then_some(leaf)
    }
}

impl std::fmt::Debug for LeafIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeafIndex")
            .field("slots", &self.slots.len())
            .finish_non_exhaustive()
    }
}
