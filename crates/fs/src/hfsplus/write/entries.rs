//! Creation and removal of folder entries.

use zerocopy::big_endian::U16;

use super::LAYER;
use super::forks::{MAX_BLOCKS, MAX_PIECES};
use super::volume::Volume;
use crate::hfsplus::catalog::{LocatedObject, Object};
use crate::hfsplus::layout::{Cnid, FileRaw, ForkRaw, fork_type, record_flags};
use crate::hfsplus::links::{FILES_FOLDER, FOLDERS_FOLDER, ORPHAN};
use crate::hfsplus::unicode::{decode_name, encode_name, encode_verbatim};
use crate::{NewKind, NewNode, NodeId};
use bandsaw_core::{Error, Kind, Result};

/// Maximum length in bytes of a symbolic link's target that macOS follows.
const MAX_LINK_TARGET: usize = 1023;

/// Predicate that is true for an open file.
pub(super) type IsOpen<'a> = &'a dyn Fn(Cnid) -> bool;

/// Refuses a link target that is empty or longer than macOS supports.
pub(super) fn check_target(kind: &NewKind) -> Result<()> {
    match kind {
        NewKind::Symlink(target) if !(1..=MAX_LINK_TARGET).contains(&target.len()) => {
            let message = format!(
                "invalid link target of {} bytes: expected 1 to {MAX_LINK_TARGET}",
                target.len()
            );
            Err(Error::limit(LAYER, message))
        }
        _ => Ok(()),
    }
}

/// Returns the name of a file in the private folder that has no other name.
pub(super) fn orphan_name(id: Cnid) -> Result<Vec<U16>> {
    let mut units = Vec::new();
    encode_name(&format!("{ORPHAN}{id}"), &mut units)?;
    Ok(units)
}

impl Volume {
    pub(super) fn create(&mut self, dir: NodeId, name: &str, new: &NewNode) -> Result<NodeId> {
        check_target(&new.kind).map_err(|error| error.named(name))?;
        self.change(|volume| {
            let parent = volume.folder(dir)?.object.id();
            let units = volume.new_name(parent, name)?;
            let id = volume.next_id()?;
            let object = volume.new_object(id, new)?;
            volume.insert_object(parent, &units, &object)?;
            Ok(NodeId(id.0.into()))
        })
    }

    /// Writes the target of a new symbolic link; returns the fork that contains it.
    pub(super) fn put_target(&mut self, id: Cnid, target: &str) -> Result<ForkRaw> {
        let empty = ForkRaw::default();
        let mut fork = self.fork_map(&empty, id, fork_type::DATA)?;
        self.resize_fork(&mut fork, target.len() as u64, true)?;
        self.store_fork(&mut fork, &empty)?;
        self.write_fork(&fork, target.as_bytes())?;
        Ok(fork.raw)
    }

    /// Removes the name of a file, or an empty folder.
    pub(super) fn remove(&mut self, dir: NodeId, name: &str, is_open: IsOpen<'_>) -> Result<()> {
        let unname = |volume: &mut Self, is_open: IsOpen<'_>| {
            let parent = volume.folder(dir)?.object.id();
            let (units, object) = volume.entry(parent, name)?;
            volume.unname(parent, &units, object, is_open)
        };
        let orphans = match self.change(|volume| unname(volume, is_open)) {
            // The operation does not fit in the journal. Remove only the name; the file is then
            // deleted in several steps.
            Err(error) if error.kind() == Kind::Limit => {
                self.change(|volume| unname(volume, &|_| true))?
            }
            done => done?,
        };
        self.reap(orphans, is_open)
    }

    /// Removes an entry. A file that cannot be deleted yet, because it is open or too large for one
    /// operation, remains without a name and is returned.
    pub(super) fn unname(
        &mut self,
        parent: Cnid,
        name: &[U16],
        object: Object,
        is_open: IsOpen<'_>,
    ) -> Result<Option<Cnid>> {
        let refused = |kind, message: &'static str| {
            Err(Error::new(kind, LAYER, message).named(decode_name(name)))
        };
        let file = match &object {
            Object::Folder(folder) if folder.valence.get() != 0 => {
                return refused(Kind::Conflict, "the folder is not empty");
            }
            Object::Folder(_) => {
                self.drop_attributes(object.id())?;
                self.remove_object(parent, name, &object)?;
                return Ok(None);
            }
            Object::File(file) => *file,
        };
        match self.read.links.is_link(&file) {
            (_, true) => refused(Kind::Unsupported, "hard links to folders cannot be changed"),
            (true, _) => self.unlink(parent, name, &file, is_open),
            _ => self.discard(parent, name, file, is_open),
        }
    }

    /// Deletes a file, or an inode file, with all of its contents.
    pub(super) fn discard(
        &mut self,
        parent: Cnid,
        name: &[U16],
        mut file: FileRaw,
        is_open: IsOpen<'_>,
    ) -> Result<Option<Cnid>> {
        let id = Cnid(file.file_id.get());
        if is_open(id) || self.is_large(&file)? {
            // No link refers to it any more.
            file.flags = (file.flags.get() & !record_flags::HAS_LINK_CHAIN).into();
            file.first_link = 0.into();
            let private = self.private_folder()?;
            self.transfer(
                (parent, name),
                (private, &orphan_name(id)?),
                &Object::File(file),
            )?;
            self.orphans.push(id);
            return Ok(Some(id));
        }
        self.drop_forks(&file)?;
        self.drop_attributes(id)?;
        self.remove_object(parent, name, &Object::File(file))?;
        Ok(None)
    }

    /// Returns true if a file has too many blocks for one operation.
    fn is_large(&self, file: &FileRaw) -> Result<bool> {
        let id = Cnid(file.file_id.get());
        let blocks = u64::from(file.data_fork.total_blocks.get())
            + u64::from(file.resource_fork.total_blocks.get());
        let pieces = self
            .fork_map(&file.data_fork, id, fork_type::DATA)?
            .extents
            .len()
            + self
                .fork_map(&file.resource_fork, id, fork_type::RESOURCE)?
                .extents
                .len();
        Ok(blocks > MAX_BLOCKS.into() || pieces > MAX_PIECES)
    }

    /// Deletes files without a name unless they are open.
    pub(super) fn reap(
        &mut self,
        orphans: impl IntoIterator<Item = Cnid>,
        is_open: IsOpen<'_>,
    ) -> Result<()> {
        for id in orphans {
            if is_open(id) {
                continue;
            }
            // The mount in which the file lost its name may have ended.
            self.begin()?;
            loop {
                match self.step_reap(id) {
                    Ok(true) => {}
                    Ok(false) => break,
                    // If the journal or the space on the volume is not sufficient for one
                    // operation, remove the file in several steps.
                    Err(error) if error.kind() == Kind::Limit && self.shed(id)? => self.commit()?,
                    Err(error) => return Err(error),
                }
            }
            self.orphans.retain(|orphan| *orphan != id);
        }
        Ok(())
    }

    /// Performs one operation of the deletion of a file without a name; returns true if more is to
    /// be done.
    fn step_reap(&mut self, id: Cnid) -> Result<bool> {
        self.step_with_room(&mut |volume| {
            let Some(LocatedObject {
                parent,
                name,
                object: Object::File(mut file),
            }) = volume.read.catalog.by_id(id)?
            else {
                return Ok(false);
            };
            if !volume.is_large(&file)? {
                volume.drop_forks(&file)?;
                volume.drop_attributes(id)?;
                volume.remove_object(parent, &name, &Object::File(file))?;
                return Ok(false);
            }
            volume.cut_fork(&mut file)?;
            volume.put(parent, &name, &Object::File(file))?;
            Ok(true)
        })
    }

    /// Removes an attribute of a file without a name, or else a part of its contents. Returns false
    /// if it has neither.
    fn shed(&mut self, id: Cnid) -> Result<bool> {
        self.step_with_room(&mut |volume| {
            if let Some(units) = volume.read.attributes.all_names(id)?.into_iter().next() {
                return volume.remove_units(id, &units);
            }
            let Some(LocatedObject {
                parent,
                name,
                object: Object::File(mut file),
            }) = volume.read.catalog.by_id(id)?
            else {
                return Ok(false);
            };
            let had_some = volume.cut_fork(&mut file)?;
            if had_some {
                volume.put(parent, &name, &Object::File(file))?;
            }
            Ok(had_some)
        })
    }

    /// Frees blocks at the end of the first fork that has some, as many as one operation may.
    /// Returns false if no fork has blocks.
    fn cut_fork(&mut self, file: &mut FileRaw) -> Result<bool> {
        let id = Cnid(file.file_id.get());
        for kind in [fork_type::DATA, fork_type::RESOURCE] {
            let raw = if kind == fork_type::DATA {
                &mut file.data_fork
            } else {
                &mut file.resource_fork
            };
            let (before, mut fork) = (*raw, self.fork_map(raw, id, kind)?);
            if before.total_blocks.get() == 0 {
                continue;
            }
            self.resize_fork(&mut fork, 0, false)?;
            self.store_fork(&mut fork, &before)?;
            *raw = fork.raw;
            return Ok(true);
        }
        Ok(false)
    }

    /// Deletes the files without a name that an interrupted mount has left.
    pub(super) fn reap_left(&mut self) -> Result<()> {
        let Some((private, _)) = self.read.links.files_folder() else {
            return Ok(());
        };
        let mut left = Vec::new();
        self.read.catalog.children(private, None, |name, object| {
            if decode_name(name).starts_with(ORPHAN)
                && matches!(object, Object::File(_))
                && !self.is_nameless(object.id())
            {
                left.push(object.id());
            }
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        self.reap(left, &|_| false)
    }

    /// Returns the on-disk name of a new entry.
    pub(super) fn new_name(&self, parent: Cnid, name: &str) -> Result<Vec<U16>> {
        let mut units = Vec::new();
        encode_name(name, &mut units)?;
        let order = self.read.catalog.name_order();
        if order.compare(&units, &[]).is_eq() {
            return Err(Error::invalid(
                LAYER,
                "the name has only characters that the volume ignores",
            )
            .named(name));
        }
        let reserved = [FILES_FOLDER, FOLDERS_FOLDER].map(crate::hfsplus::unicode::units);
        if parent == Cnid::ROOT
            && reserved
                .iter()
                .any(|reserved| order.compare(reserved, &units).is_eq())
        {
            return Err(
                Error::invalid(LAYER, "the name is reserved for the volume's own data").named(name),
            );
        }
        match self.try_entry(parent, name)? {
            Some(_) => Err(Error::conflict(LAYER, "already exists").named(name)),
            None => Ok(units),
        }
    }

    /// Returns the on-disk name and the record of an entry, which must exist and be changeable.
    pub(super) fn entry(&self, parent: Cnid, name: &str) -> Result<(Vec<U16>, Object)> {
        let hidden =
            |object: &Object| parent == Cnid::ROOT && self.read.links.is_private(object.id());
        match self.try_entry(parent, name)? {
            Some((units, object)) if !hidden(&object) => {
                self.check_own(object.id())?;
                Ok((units, object))
            }
            _ => Err(Error::not_found(LAYER, name)),
        }
    }

    /// Returns a key that is equal for names that are the same on the volume.
    pub(super) fn name_key(&self, name: &str) -> Result<Vec<u8>> {
        let (mut units, mut key) = (Vec::new(), Vec::new());
        encode_name(name, &mut units)?;
        let order = self.read.catalog.name_order();
        order.sort_key(&units, &mut key);
        Ok(key)
    }

    /// Returns an entry, found by any spelling that may be on disk.
    pub(super) fn try_entry(&self, parent: Cnid, name: &str) -> Result<Option<(Vec<U16>, Object)>> {
        let mut units = Vec::new();
        encode_name(name, &mut units)?;
        if let Some(object) = self.read.catalog.get(parent, &units)? {
            return Ok(Some((units, object)));
        }
        if name.is_ascii() {
            return Ok(None);
        }
        units.clear();
        encode_verbatim(name, &mut units);
        Ok(self
            .read
            .catalog
            .get(parent, &units)?
            .map(|object| (units, object)))
    }

    /// Returns true if folder `id` is `folder` or one of its descendants.
    pub(super) fn is_within(&self, mut id: Cnid, folder: Cnid) -> Result<bool> {
        // No path is longer than the number of folders.
        for _ in 0..=self.read.header.raw.folder_count.get() {
            if id == folder {
                return Ok(true);
            }
            match self.read.catalog.by_id(id)? {
                Some(found) if found.parent != Cnid::ROOT_PARENT => id = found.parent,
                _ => return Ok(false),
            }
        }
        Err(Error::new(
            Kind::Corrupt,
            LAYER,
            format!("folder {id} contains itself; the volume needs repair"),
        ))
    }

    /// Writes the whole contents of a small fork.
    pub(super) fn write_fork(&self, fork: &super::forks::ForkMap, bytes: &[u8]) -> Result<()> {
        let space = crate::hfsplus::extents::ForkSpace {
            device: self.device.clone(),
            ..self.read.space.clone()
        };
        space
            .device_over(&fork.extents, bytes.len() as u64)
            .overwrite(0, bytes)
    }

    /// Refuses to move a folder with hard links to folders below it, because macOS marks all
    /// folders on the path to them.
    pub(super) fn check_movable(object: &Object, name: &[U16]) -> Result<()> {
        if object.has(record_flags::HAS_CHILD_LINK) {
            let message = "cannot move a folder that contains hard links to folders";
            return Err(Error::unsupported(LAYER, message).named(decode_name(name)));
        }
        Ok(())
    }
}
