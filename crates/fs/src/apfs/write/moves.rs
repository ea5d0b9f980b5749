//! Rename, move and swap of entries; a rename may replace an existing entry.

use super::LAYER;
use super::entries::{FolderEntry, IsOpen, check_replaceable};
use super::inode::Inode;
use super::volume::Volume;
use crate::apfs::layout::FileId;
use crate::{ExistingTarget, NodeId};
use bandsaw_core::{Error, Kind, Result};

impl Volume {
    pub(super) fn rename(
        &mut self,
        from: (NodeId, &str),
        to: (NodeId, &str),
        existing: ExistingTarget,
        is_open: IsOpen<'_>,
    ) -> Result<()> {
        self.reap(is_open)?;
        let orphan = self.change(true, |volume| {
            let (mut old_dir, mut new_dir) = (volume.folder(from.0)?, volume.folder(to.0)?);
            let (entry, mut inode) = volume.found(old_dir.id, from.1)?;
            if inode.is_folder() && volume.is_within(new_dir.id, inode.id)? {
                return Err(
                    Error::invalid(LAYER, "a folder cannot be moved into itself").named(from.1),
                );
            }
            let there = match volume.entry(new_dir.id, to.1)? {
                Some(there) => Some((volume.object(NodeId(there.id().0))?, there)),
                None => None,
            };
            let same_folder = old_dir.id == new_dir.id;
            // Only the spelling of the name changes.
            let respelled = same_folder
                && there
                    .as_ref()
                    .is_some_and(|(_, there)| there.name == entry.name);
            let mut orphan = None;
            if let Some((object, there)) = there.filter(|_| !respelled) {
                check_replaceable(&inode, &object, existing, to.1)?;
                if object.id == inode.id {
                    return Ok(None); // two names of one file, as POSIX has it
                }
                orphan = volume.unname(&mut new_dir, &there, object, is_open)?;
                volume.put_inode(&new_dir)?;
                // The replaced entry may have been in the old folder.
                old_dir = volume.inode(old_dir.id)?;
            }
            volume.remove_entry(&mut old_dir, &entry)?;
            volume.put_inode(&old_dir)?;
            volume.check_new(new_dir.id, to.1)?;
            volume.arrive(&mut inode, &entry, new_dir.id, to.1)?;
            Ok(orphan)
        })?;
        self.orphans.extend(orphan);
        Ok(())
    }

    pub(super) fn swap(&mut self, a: (NodeId, &str), b: (NodeId, &str)) -> Result<()> {
        self.change(true, |volume| {
            let dirs = [volume.folder(a.0)?.id, volume.folder(b.0)?.id];
            let (entry_a, mut inode_a) = volume.found(dirs[0], a.1)?;
            let (entry_b, mut inode_b) = volume.found(dirs[1], b.1)?;
            if inode_a.id == inode_b.id {
                return Ok(());
            }
            for (inode, dir, name) in [(&inode_a, dirs[1], a.1), (&inode_b, dirs[0], b.1)] {
                if inode.is_folder() && volume.is_within(dir, inode.id)? {
                    return Err(
                        Error::invalid(LAYER, "a folder cannot be moved into itself").named(name),
                    );
                }
            }
            for (dir, entry) in dirs.into_iter().zip([&entry_a, &entry_b]) {
                let mut dir = volume.inode(dir)?;
                volume.remove_entry(&mut dir, entry)?;
                volume.put_inode(&dir)?;
            }
            volume.arrive(&mut inode_a, &entry_a, dirs[1], &entry_b.name)?;
            volume.arrive(&mut inode_b, &entry_b, dirs[0], &entry_a.name)
        })
    }

    /// Adds an object that was removed from `entry` to a folder, under a name that must be free.
    fn arrive(
        &mut self,
        inode: &mut Inode,
        entry: &FolderEntry,
        dir: FileId,
        name: &str,
    ) -> Result<()> {
        let mut dir = self.inode(dir)?;
        self.rename_links(inode, entry, &dir, name)?;
        inode.raw.changed = self.date();
        self.put_inode(inode)?;
        self.add_entry(&mut dir, name, inode, entry.sibling)?;
        self.put_inode(&dir)
    }

    /// Updates the names in an object's own records.
    fn rename_links(
        &mut self,
        inode: &mut Inode,
        entry: &FolderEntry,
        dir: &Inode,
        name: &str,
    ) -> Result<()> {
        let Some(sibling) = entry.sibling else {
            inode.raw.parent_id = dir.id.into();
            inode.set_name(name);
            return Ok(());
        };
        self.put_sibling(inode, sibling, dir.id, name)?;
        self.name_by_first_link(inode)
    }

    /// Returns true if folder `id` is `folder` or one of its descendants.
    fn is_within(&self, mut id: FileId, folder: FileId) -> Result<bool> {
        // A path cannot be longer than the number of folders, so this ends even if there is a
        // cycle.
        for _ in 0..=self.read.raw.folders.get().saturating_add(1) {
            if id == folder {
                return Ok(true);
            }
            if id == FileId::ROOT {
                return Ok(false);
            }
            id = self.inode(id)?.raw.parent_id.into();
        }
        Err(Error::new(
            Kind::Corrupt,
            LAYER,
            format!("folder {id:#x} contains itself; the volume is damaged"),
        ))
    }
}
