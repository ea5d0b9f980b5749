//! Unlinked files: they are kept in the private directory, next to the root, while they are open
//! (§8), as are files that have no name yet.

use super::LAYER;
use super::entries::check_replaceable;
use super::entries::{IsOpen, check_target};
use super::inode::Inode;
use super::volume::{Volume, corrupt};
use crate::apfs::layout::FileId;
use crate::{ExistingTarget, FileSystem, NewKind, NewNode, NodeId};
use bandsaw_core::{Error, Kind, Result};

/// Suffix of the name of such a file in that directory.
const ENDING: &str = "-dead";

impl Volume {
    /// Moves a file that has lost its last name to the private directory.
    pub(super) fn orphan(&mut self, inode: &mut Inode) -> Result<()> {
        let mut private = self.inode(FileId::PRIVATE_DIR)?;
        let name = name_of(inode.id);
        inode.raw.parent_id = private.id.into();
        inode.set_name(&name);
        self.add_entry(&mut private, &name, inode, None)?;
        // Without names the link count is 0, and so is the number of entries of a folder.
        inode.raw.children_or_links = 0.into();
        self.put_inode(&private)?;
        self.put_inode(inode)?;
        // The volume's counts exclude it.
        self.count(inode, -1);
        Ok(())
    }

    /// Deletes the unlinked files that are not open.
    pub(super) fn reap(&mut self, is_open: IsOpen<'_>) -> Result<()> {
        for id in self.orphans.clone() {
            if is_open(id) {
                continue;
            }
            self.change(false, |volume| {
                let mut private = volume.inode(FileId::PRIVATE_DIR)?;
                let name = name_of(id);
                if let Some(entry) = volume
                    .entry(private.id, &name)?
                    .filter(|entry| entry.id() == id)
                {
                    let inode = volume.inode(id)?;
                    volume.remove_entry(&mut private, &entry)?;
                    volume.put_inode(&private)?;
                    volume.discard(&inode)?;
                }
                Ok(())
            })?;
            self.orphans.retain(|orphan| *orphan != id);
        }
        Ok(())
    }

    pub(super) fn create_unlinked(&mut self, new: &NewNode) -> Result<NodeId> {
        if new.kind == NewKind::Folder {
            return Err(Error::invalid(
                LAYER,
                "cannot create a folder without a name",
            ));
        }
        check_target(&new.kind)?;
        let id = self.change(true, |volume| {
            let mut private = volume.inode(FileId::PRIVATE_DIR)?;
            let mut inode = volume.new_inode(private.id, "", new);
            let name = name_of(inode.id);
            inode.set_name(&name);
            volume.put_new(&inode, new)?;
            volume.add_entry(&mut private, &name, &inode, None)?;
            volume.put_inode(&private)?;
            // The volume's counts exclude it until it has a name.
            Ok(inode.id)
        })?;
        self.nameless.push(id);
        Ok(NodeId(id.0))
    }

    pub(super) fn link_unlinked(
        &mut self,
        node: NodeId,
        dir: NodeId,
        name: &str,
        existing: ExistingTarget,
        is_open: IsOpen<'_>,
    ) -> Result<()> {
        let id = self.nameless(node)?;
        self.reap(is_open)?;
        let orphan = self.change(true, |volume| {
            let mut parent = volume.folder(dir)?;
            let mut inode = volume.inode(id)?;
            let mut orphan = None;
            if let Some(there) = volume.entry(parent.id, name)? {
                let object = volume.object(NodeId(there.id().0))?;
                check_replaceable(&inode, &object, existing, name)?;
                orphan = volume.unname(&mut parent, &there, object, is_open)?;
            }
            volume.check_new(parent.id, name)?;
            let mut private = volume.inode(FileId::PRIVATE_DIR)?;
            let entry = volume
                .entry(private.id, &name_of(id))?
                .filter(|entry| entry.id() == id);
            let entry = entry.ok_or_else(|| {
                corrupt(
                    id,
                    "not in the private folder, where deleted objects are kept",
                )
            })?;
            volume.remove_entry(&mut private, &entry)?;
            volume.put_inode(&private)?;
            inode.raw.parent_id = parent.id.into();
            inode.set_name(name);
            inode.raw.changed = volume.date();
            volume.put_inode(&inode)?;
            volume.add_entry(&mut parent, name, &inode, None)?;
            volume.put_inode(&parent)?;
            volume.count(&inode, 1);
            Ok(orphan)
        })?;
        self.nameless.retain(|nameless| *nameless != id);
        self.orphans.extend(orphan);
        Ok(())
    }

    pub(super) fn discard_unlinked(&mut self, node: NodeId, is_open: IsOpen<'_>) -> Result<()> {
        let id = self.nameless(node)?;
        self.nameless.retain(|nameless| *nameless != id);
        self.orphans.push(id);
        self.reap(is_open)
    }

    /// Returns the number of an object that has no name yet.
    fn nameless(&self, node: NodeId) -> Result<FileId> {
        let found = self.nameless.iter().find(|id| id.0 == node.0);
        found.copied().ok_or_else(|| {
            let message = format!("object {} has a name, or does not exist", node.0);
            Error::new(Kind::NotFound, LAYER, message)
        })
    }

    /// Finds the unlinked files that a crash has left.
    pub(super) fn find_orphans(&mut self) -> Result<()> {
        let mut found = Vec::new();
        self.read
            .list(NodeId(FileId::PRIVATE_DIR.0), &mut |entry| {
                let id = FileId(entry.attributes.id.0);
                if entry.name.ends_with(ENDING) && entry.name == name_of(id) {
                    found.push(id);
                }
                Ok(std::ops::ControlFlow::Continue(()))
            })?;
        self.orphans = found;
        Ok(())
    }
}

fn name_of(id: FileId) -> String {
    format!("{id:#x}{ENDING}")
}
