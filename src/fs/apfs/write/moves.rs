//! Renaming and moving, over what is in the way if that was asked for.

use super::LAYER;
use super::entries::{Entry, IsOpen};
use super::inode::Inode;
use super::volume::Volume;
use crate::fs::apfs::layout::FileId;
use crate::fs::{Existing, NodeId};
use crate::{Error, Kind, Result};

impl Volume {
    pub(super) fn rename(
        &mut self,
        from: (NodeId, &str),
        to: (NodeId, &str),
        existing: Existing,
        is_open: IsOpen<'_>,
    ) -> Result<()> {
        self.reap(is_open)?;
        let orphan = self.change(true, |volume| {
            let (mut old_dir, mut new_dir) = (volume.folder(from.0)?, volume.folder(to.0)?);
            let (entry, mut inode) = volume.found(old_dir.id, from.1)?;
            if inode.is_folder() && volume.is_within(new_dir.id, inode.id)? {
                return Err(Error::new(Kind::Invalid, LAYER, "a folder cannot be moved into itself").named(from.1));
            }
            let there = match volume.entry(new_dir.id, to.1)? {
                Some(there) => Some((volume.object(NodeId(there.id().0))?, there)),
                None => None,
            };
            let same_folder = old_dir.id == new_dir.id;
            // The same name in another spelling.
            let respelled = same_folder && there.as_ref().is_some_and(|(_, there)| there.name == entry.name);
            let mut orphan = None;
            if let Some((object, there)) = there.filter(|_| !respelled) {
                check_replaceable(&inode, &object, existing, to.1)?;
                if object.id == inode.id {
                    return Ok(None); // two names of one file, as POSIX has it
                }
                orphan = volume.unname(&mut new_dir, &there, object, is_open)?;
                volume.put_inode(&new_dir)?;
                // What was replaced may have been in the old folder.
                old_dir = volume.inode(old_dir.id)?;
            }
            volume.leave(&mut old_dir, &entry)?;
            volume.put_inode(&old_dir)?;
            let mut new_dir = volume.inode(new_dir.id)?;
            volume.check_new(new_dir.id, to.1)?;
            volume.rename_links(&mut inode, &entry, &new_dir, to.1)?;
            inode.raw.changed = volume.date();
            volume.put_inode(&inode)?;
            volume.enter(&mut new_dir, to.1, &inode, entry.sibling)?;
            volume.put_inode(&new_dir)?;
            Ok(orphan)
        })?;
        self.orphans.extend(orphan);
        Ok(())
    }

    /// What an object itself says of its names.
    fn rename_links(&mut self, inode: &mut Inode, entry: &Entry, dir: &Inode, name: &str) -> Result<()> {
        let Some(sibling) = entry.sibling else {
            inode.raw.parent_id = dir.id.into();
            inode.set_name(name);
            return Ok(());
        };
        self.put_sibling(inode, sibling, dir.id, name)?;
        self.name_by_first_link(inode)
    }

    /// Whether a folder is another one or lies in it.
    fn is_within(&self, mut id: FileId, folder: FileId) -> Result<bool> {
        // No path is longer than there are folders.
        for _ in 0..=self.read.raw.folders.get().saturating_add(1) {
            if id == folder {
                return Ok(true);
            }
            if id == FileId::ROOT {
                return Ok(false);
            }
            id = self.inode(id)?.raw.parent_id.into();
        }
        Err(Error::new(Kind::Corrupt, LAYER, format!("folder {id:#x} is in itself; the volume is damaged")))
    }
}

pub(super) fn check_replaceable(object: &Inode, there: &Inode, existing: Existing, name: &str) -> Result<()> {
    let refused = |message: &'static str| Err(Error::new(Kind::Conflict, LAYER, message).named(name));
    match (existing, object.is_folder(), there.is_folder()) {
        (Existing::Keep, ..) => refused("exists already"),
        (_, true, false) => refused("is no folder, and a folder cannot replace it"),
        (_, false, true) => refused("is a folder, which a file cannot replace"),
        _ => Ok(()),
    }
}
