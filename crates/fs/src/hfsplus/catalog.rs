//! The catalog: lookup of objects by number, by folder and name, and the entries of a folder (§7).

use std::ops::ControlFlow;

use zerocopy::big_endian::U16;

use super::btree::{KeyOrder, Tree};
use super::layout::{
    BsdInfoRaw, CatalogKey, CatalogRecord, Cnid, DatesRaw, FileRaw, FolderRaw, ForkRaw, fork_type,
    record_flags,
};
use super::unicode::{NameOrder, decode_name};
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "hfs+ catalog";

/// A folder or file record of the catalog.
#[derive(Debug, Clone)]
pub(super) enum Object {
    Folder(FolderRaw),
    /// Anything but a folder; hard links too.
    File(FileRaw),
}

impl Object {
    pub(super) fn id(&self) -> Cnid {
        match self {
            Self::Folder(folder) => Cnid(folder.folder_id.get()),
            Self::File(file) => Cnid(file.file_id.get()),
        }
    }

    pub(super) fn flags(&self) -> u16 {
        match self {
            Self::Folder(folder) => folder.flags.get(),
            Self::File(file) => file.flags.get(),
        }
    }

    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags() & flag != 0
    }

    pub(super) fn dates(&self) -> &DatesRaw {
        match self {
            Self::Folder(folder) => &folder.dates,
            Self::File(file) => &file.dates,
        }
    }

    pub(super) fn bsd(&self) -> &BsdInfoRaw {
        match self {
            Self::Folder(folder) => &folder.bsd,
            Self::File(file) => &file.bsd,
        }
    }

    pub(super) fn finder_flags(&self) -> u16 {
        match self {
            Self::Folder(folder) => folder.user_info.finder_flags.get(),
            Self::File(file) => file.user_info.finder_flags.get(),
        }
    }
}

/// An object, and the folder and the name of its record.
#[derive(Debug)]
pub(super) struct LocatedObject {
    pub(super) parent: Cnid,
    pub(super) name: Vec<U16>,
    pub(super) object: Object,
}

/// A folder and a name in it, as stored on disk.
pub(super) type EntryKey = (Cnid, Vec<U16>);
/// The key of a file, and its forks, each with the file's number and the fork type.
pub(super) type FileForks = (EntryKey, Vec<(ForkRaw, Cnid, u8)>);

/// The catalog tree.
#[derive(Debug)]
pub(super) struct Catalog {
    tree: Tree,
}

impl Catalog {
    pub(super) fn new(tree: Tree) -> Self {
        Self { tree }
    }

    /// Returns the tree.
    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the tree for modification.
    pub(super) fn tree_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// Returns the order of names in the catalog.
    pub(super) fn name_order(&self) -> NameOrder {
        match self.tree.order() {
            KeyOrder::Catalog(order) => order,
            KeyOrder::Extents | KeyOrder::Attributes => NameOrder::Folding,
        }
    }

    /// Returns the object `name` in folder `parent`.
    pub(super) fn get(&self, parent: Cnid, name: &[U16]) -> Result<Option<Object>> {
        let mut cursor = self.tree.seek(&key(parent, name))?;
        let Some(record) = cursor.next()? else {
            return Ok(None);
        };
        let Some((found, data)) = CatalogKey::split(record) else {
            return Err(self.no_key(cursor.node_number()));
        };
        if found.parent != parent || self.name_order().compare(found.name, name).is_ne() {
            return Ok(None);
        }
        match CatalogRecord::parse(data) {
            Some(CatalogRecord::Folder(folder)) => Ok(Some(Object::Folder(*folder))),
            Some(CatalogRecord::File(file)) => Ok(Some(Object::File(*file))),
            // With an empty name the key is that of the thread of `parent`.
            Some(CatalogRecord::Thread(_)) => Ok(None),
            None => Err(self.bad_record(cursor.node_number(), parent, name)),
        }
    }

    /// Returns the object with this number, found through its thread.
    pub(super) fn by_id(&self, id: Cnid) -> Result<Option<LocatedObject>> {
        let Some((parent, name)) = self.thread(id)? else {
            return self.scan_for(id);
        };
        let object = self.get(parent, &name)?.filter(|object| object.id() == id);
        let Some(object) = object else {
            let message = format!(
                "the thread record of object {id} refers to {:?} in folder {parent}, which is \
                 another object",
                decode_name(&name)
            );
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        };
        Ok(Some(LocatedObject {
            parent,
            name,
            object,
        }))
    }

    /// Returns the folder and the name in the thread of `id`.
    fn thread(&self, id: Cnid) -> Result<Option<(Cnid, Vec<U16>)>> {
        let mut cursor = self.tree.seek(&key(id, &[]))?;
        let Some(record) = cursor.next()? else {
            return Ok(None);
        };
        match CatalogKey::split(record) {
            Some((key, data)) if key.parent == id && key.name.is_empty() => {
                match CatalogRecord::parse(data) {
                    Some(CatalogRecord::Thread(thread)) => {
                        Ok(Some((thread.parent, thread.name.to_vec())))
                    }
                    _ => Err(self.bad_record(cursor.node_number(), id, &[])),
                }
            }
            Some(_) => Ok(None),
            None => Err(self.no_key(cursor.node_number())),
        }
    }

    /// Returns at most `most` files after the entry `after`, in the order of the tree, with the
    /// forks that have blocks.
    pub(super) fn files_after(
        &self,
        after: Option<&EntryKey>,
        most: usize,
    ) -> Result<Vec<FileForks>> {
        let mut cursor = match after {
            Some((parent, name)) => self.tree.seek(&key(*parent, name))?,
            None => self.tree.first()?,
        };
        let mut found = Vec::new();
        while let Some(record) = cursor.next()? {
            let Some((key, data)) = CatalogKey::split(record) else {
                return Err(self.no_key(cursor.node_number()));
            };
            let Some(CatalogRecord::File(file)) = CatalogRecord::parse(data) else {
                continue;
            };
            // The search ends at the entry itself, if it still exists.
            if after.is_some_and(|(parent, name)| *parent == key.parent && *name == key.name) {
                continue;
            }
            let id = Cnid(file.file_id.get());
            let forks = [
                (file.data_fork, id, fork_type::DATA),
                (file.resource_fork, id, fork_type::RESOURCE),
            ];
            let forks = forks
                .into_iter()
                .filter(|(fork, ..)| fork.total_blocks.get() > 0);
            found.push(((key.parent, key.name.to_vec()), forks.collect()));
            if found.len() == most {
                break;
            }
        }
        Ok(found)
    }

    /// Searches all records for an object without a thread, as the oldest volumes have them.
    fn scan_for(&self, id: Cnid) -> Result<Option<LocatedObject>> {
        let mut cursor = self.tree.first()?;
        while let Some(record) = cursor.next()? {
            let Some((key, data)) = CatalogKey::split(record) else {
                continue;
            };
            if let Some(CatalogRecord::File(file)) = CatalogRecord::parse(data)
                && file.file_id.get() == id.0
                && file.flags.get() & record_flags::THREAD_EXISTS == 0
            {
                return Ok(Some(LocatedObject {
                    parent: key.parent,
                    name: key.name.to_vec(),
                    object: Object::File(*file),
                }));
            }
        }
        Ok(None)
    }

    /// Calls `each` for the entries of folder `id` in order, beginning after the name `after` if it
    /// is given, until `each` breaks.
    pub(super) fn children(
        &self,
        id: Cnid,
        after: Option<&[U16]>,
        mut each: impl FnMut(&[U16], Object) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut cursor = self.tree.seek(&key(id, after.unwrap_or_default()))?;
        // The thread of a folder comes before its entries. Without one, `id` is not a folder.
        let mut threaded = after.is_some();
        loop {
            let Some(record) = cursor.next()? else { break };
            let Some((key, data)) = CatalogKey::split(record) else {
                return Err(self.no_key(cursor.node_number()));
            };
            if key.parent != id {
                break;
            }
            if after.is_some_and(|after| self.name_order().compare(key.name, after).is_eq()) {
                continue;
            }
            let object = match CatalogRecord::parse(data) {
                Some(CatalogRecord::Thread(thread)) if key.name.is_empty() && thread.folder => {
                    threaded = true;
                    continue;
                }
                Some(CatalogRecord::Folder(folder)) if threaded && !key.name.is_empty() => {
                    Object::Folder(*folder)
                }
                Some(CatalogRecord::File(file)) if threaded && !key.name.is_empty() => {
                    Object::File(*file)
                }
                _ => {
                    let name = key.name.to_vec();
                    return Err(self.bad_record(cursor.node_number(), id, &name));
                }
            };
            if each(key.name, object)?.is_break() {
                return Ok(());
            }
        }
        if threaded {
            Ok(())
        } else {
            Err(Error::not_found(LAYER, format!("folder {id}")))
        }
    }

    fn no_key(&self, node: u32) -> Error {
        self.tree.corrupt(node, "malformed key of a record")
    }

    fn bad_record(&self, node: u32, parent: Cnid, name: &[U16]) -> Error {
        let message = format!(
            "unexpected record for the name {:?} in folder {parent}",
            decode_name(name)
        );
        self.tree.corrupt(node, message)
    }
}

/// Returns the key of an object's record; with an empty name, that of the thread of `parent`.
pub(super) fn key(parent: Cnid, name: &[U16]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + 2 * name.len());
    CatalogKey { parent, name }.put(&mut bytes);
    bytes
}
