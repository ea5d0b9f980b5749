//! Catalog objects: insertion under a name, removal, and changes in place.

use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use super::LAYER;
use super::volume::Volume;
use crate::NodeId;
use crate::hfsplus::catalog::{LocatedObject, Object, key};
use crate::hfsplus::layout::{Cnid, FileRaw, ForkRaw, Thread, fork_type, mac_date, record_flags};
use bandsaw_core::{Error, Kind, Result};

/// The change of a folder's entries.
#[derive(Clone, Copy)]
enum EntryChange {
    Added,
    Removed,
}

/// Wraps a file record.
pub(super) fn file(file: FileRaw) -> Object {
    Object::File(file)
}

impl Object {
    /// Returns the record in its on-disk form.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Folder(folder) => folder.as_bytes(),
            Self::File(file) => file.as_bytes(),
        }
    }

    pub(super) fn set_flags(&mut self, set: u16, clear: u16) {
        let flags = match self {
            Self::Folder(folder) => &mut folder.flags,
            Self::File(file) => &mut file.flags,
        };
        *flags = (flags.get() & !clear | set).into();
    }

    /// Sets the date of the last change of the attributes to now.
    pub(super) fn set_changed(&mut self, volume: &Volume) {
        let date = volume.date_in(self.flags().into());
        self.dates_mut().attribute_mod = date.into();
    }

    pub(super) fn dates_mut(&mut self) -> &mut crate::hfsplus::layout::DatesRaw {
        match self {
            Self::Folder(folder) => &mut folder.dates,
            Self::File(file) => &mut file.dates,
        }
    }
}

impl Volume {
    /// Returns the object with a number, and the key of its record.
    pub(super) fn find(&self, node: NodeId) -> Result<LocatedObject> {
        let missing = || Error::not_found(LAYER, format!("object {}", node.0));
        let id = u32::try_from(node.0).map(Cnid).map_err(|_| missing())?;
        self.read.catalog.by_id(id)?.ok_or_else(missing)
    }

    /// Returns the object with a number, which must be changeable.
    pub(super) fn changeable(&self, node: NodeId) -> Result<LocatedObject> {
        let found = self.find(node)?;
        self.check_own(found.object.id())?;
        Ok(found)
    }

    /// Refuses to change the files of the volume's journal.
    pub(super) fn check_own(&self, id: Cnid) -> Result<()> {
        if self.read.links.is_kept(id) {
            let message = "a file of the volume's journal cannot be changed";
            return Err(Error::unsupported(LAYER, message).named(format!("object {id}")));
        }
        Ok(())
    }

    /// Returns the folder with a number to which an entry will be added or removed.
    pub(super) fn folder(&self, node: NodeId) -> Result<LocatedObject> {
        let found = self.find(node)?;
        let refused = |kind, message: &'static str| {
            Err(Error::new(kind, LAYER, message).named(format!("object {}", node.0)))
        };
        match &found.object {
            Object::File(_) => refused(Kind::Invalid, "not a folder"),
            Object::Folder(_) if self.read.links.is_private(found.object.id()) => refused(
                Kind::Unsupported,
                "the folder is reserved for the volume's own data",
            ),
            Object::Folder(_) => Ok(found),
        }
    }

    /// Inserts a new object, or one that was removed: its record, its thread, and the counts.
    pub(super) fn insert_object(
        &mut self,
        parent: Cnid,
        name: &[U16],
        object: &Object,
    ) -> Result<()> {
        self.put_name(parent, name, object)?;
        let folders = u32::from(matches!(object, Object::Folder(_)));
        let header = self.header();
        let (folder_count, file_count) = (header.folder_count.get(), header.file_count.get());
        header.folder_count = folder_count.saturating_add(folders).into();
        header.file_count = file_count.saturating_add(1 - folders).into();
        self.count_entry(parent, EntryChange::Added, object)
    }

    /// Removes an object from the catalog.
    pub(super) fn remove_object(
        &mut self,
        parent: Cnid,
        name: &[U16],
        object: &Object,
    ) -> Result<()> {
        self.take_name(parent, name, object)?;
        let header = self.header();
        let count = match object {
            Object::Folder(_) => &mut header.folder_count,
            _ => &mut header.file_count,
        };
        *count = count.get().saturating_sub(1).into();
        self.count_entry(parent, EntryChange::Removed, object)
    }

    /// Moves an object whose kind and number do not change.
    pub(super) fn transfer(
        &mut self,
        from: (Cnid, &[U16]),
        to: (Cnid, &[U16]),
        object: &Object,
    ) -> Result<()> {
        self.take_name(from.0, from.1, object)?;
        self.put_name(to.0, to.1, object)?;
        if from.0 != to.0 {
            self.count_entry(from.0, EntryChange::Removed, object)?;
            return self.count_entry(to.0, EntryChange::Added, object);
        }
        self.touch(to.0)
    }

    /// Exchanges the places of two objects, whose kinds and numbers do not change.
    pub(super) fn exchange_places(
        &mut self,
        a: (Cnid, &[U16], &Object),
        b: (Cnid, &[U16], &Object),
    ) -> Result<()> {
        self.take_name(a.0, a.1, a.2)?;
        self.take_name(b.0, b.1, b.2)?;
        self.put_name(b.0, b.1, a.2)?;
        self.put_name(a.0, a.1, b.2)?;
        if a.0 == b.0 {
            return self.touch(a.0);
        }
        for (dir, gone, come) in [(a.0, a.2, b.2), (b.0, b.2, a.2)] {
            self.count_entry(dir, EntryChange::Removed, gone)?;
            self.count_entry(dir, EntryChange::Added, come)?;
        }
        Ok(())
    }

    fn put_name(&mut self, parent: Cnid, name: &[U16], object: &Object) -> Result<()> {
        let mut thread = Vec::with_capacity(10 + 2 * name.len());
        Thread {
            parent,
            name,
            folder: matches!(object, Object::Folder(_)),
        }
        .put(&mut thread);
        let tree = self.read.catalog.tree_mut();
        tree.insert(&key(object.id(), &[]), &thread)?;
        tree.insert(&key(parent, name), object.bytes())
    }

    fn take_name(&mut self, parent: Cnid, name: &[U16], object: &Object) -> Result<()> {
        let tree = self.read.catalog.tree_mut();
        let there = tree.remove(&key(parent, name))?;
        // The oldest volumes have files without threads.
        let threaded = tree.remove(&key(object.id(), &[]))?;
        if there && (threaded || !object.has(record_flags::THREAD_EXISTS)) {
            return Ok(());
        }
        let message = format!(
            "object {} has no record or no thread; the volume needs repair",
            object.id()
        );
        Err(Error::new(Kind::Corrupt, LAYER, message))
    }

    /// Writes a changed record under the same name.
    pub(super) fn put(&mut self, parent: Cnid, name: &[U16], object: &Object) -> Result<()> {
        self.read
            .catalog
            .tree_mut()
            .replace(&key(parent, name), object.bytes())
    }

    /// Updates a folder for an entry that was added or removed.
    fn count_entry(&mut self, id: Cnid, change: EntryChange, entry: &Object) -> Result<()> {
        let now = self.now();
        self.change_folder(id, |folder| {
            let date = mac_date(now, folder.flags.get() & record_flags::EXPANDED_TIMES != 0);
            let counted = |count: u32| match change {
                EntryChange::Added => count.saturating_add(1),
                EntryChange::Removed => count.saturating_sub(1),
            };
            let is_folder = matches!(entry, Object::Folder(_));
            folder.valence = counted(folder.valence.get()).into();
            if is_folder && folder.flags.get() & record_flags::HAS_FOLDER_COUNT != 0 {
                folder.folder_count = counted(folder.folder_count.get()).into();
            }
            (folder.dates.content_mod, folder.dates.attribute_mod) = (date.into(), date.into());
        })
    }

    /// Updates the dates of a folder whose entries have changed.
    fn touch(&mut self, id: Cnid) -> Result<()> {
        let now = self.now();
        self.change_folder(id, |folder| {
            let date = mac_date(now, folder.flags.get() & record_flags::EXPANDED_TIMES != 0);
            (folder.dates.content_mod, folder.dates.attribute_mod) = (date.into(), date.into())
        })
    }

    /// Changes the entries of a folder without changing its dates.
    pub(super) fn with_dates_of<T>(
        &mut self,
        id: Cnid,
        entries: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let found = self.find(NodeId(id.0.into()))?;
        let done = entries(self)?;
        if let Object::Folder(before) = found.object {
            self.change_folder(id, |folder| folder.dates = before.dates)?;
        }
        Ok(done)
    }

    fn change_folder(
        &mut self,
        id: Cnid,
        change: impl FnOnce(&mut crate::hfsplus::layout::FolderRaw),
    ) -> Result<()> {
        let Some(LocatedObject {
            parent,
            name,
            object: Object::Folder(mut folder),
        }) = self.read.catalog.by_id(id)?
        else {
            return Err(Error::not_found(LAYER, format!("folder {id}")));
        };
        change(&mut folder);
        self.put(parent, &name, &Object::Folder(folder))
    }

    /// Frees all blocks of a file's forks, which must be few. The caller removes the record.
    pub(super) fn drop_forks(&mut self, file: &FileRaw) -> Result<()> {
        let id = Cnid(file.file_id.get());
        for (raw, kind) in [
            (&file.data_fork, fork_type::DATA),
            (&file.resource_fork, fork_type::RESOURCE),
        ] {
            if raw.total_blocks.get() == 0 {
                continue;
            }
            let mut fork = self.fork_map(raw, id, kind)?;
            for extent in std::mem::take(&mut fork.extents) {
                self.free_extent(extent)?;
            }
            fork.raw = ForkRaw::default();
            self.store_fork(&mut fork, raw)?;
        }
        Ok(())
    }
}
