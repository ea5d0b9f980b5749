//! Objects that have no name yet: they are kept in the private folder until they are complete, like
//! files that were deleted while open. Those left by a crash are deleted by the next mount.

use super::LAYER;
use super::entries::{IsOpen, check_target, orphan_name};
use super::volume::Volume;
use crate::hfsplus::catalog::Object;
use crate::hfsplus::layout::{Cnid, record_flags};
use crate::{ExistingTarget, NewKind, NewNode, NodeId};
use bandsaw_core::{Error, Kind, Result};

impl Volume {
    pub(super) fn create_unlinked(&mut self, new: &NewNode) -> Result<NodeId> {
        if new.kind == NewKind::Folder {
            return Err(Error::invalid(
                LAYER,
                "cannot create a folder without a name",
            ));
        }
        check_target(&new.kind)?;
        let id = self.change(|volume| {
            let private = volume.private_folder()?;
            let id = volume.next_id()?;
            let object = volume.new_object(id, new)?;
            volume.insert_object(private, &orphan_name(id)?, &object)?;
            Ok(id)
        })?;
        self.nameless.push(id);
        Ok(NodeId(id.0.into()))
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
        let orphan = self.change(|volume| {
            let parent = volume.folder(dir)?.object.id();
            let found = volume.find(node)?;
            let mut object = found.object;
            let mut orphan = None;
            if let Some((there_name, there)) = volume.try_entry(parent, name)? {
                volume.check_replaceable(&object, &there, existing, name)?;
                orphan = volume.unname(parent, &there_name, there, is_open)?;
            }
            let units = volume.new_name(parent, name)?;
            object.set_changed(volume);
            if object.has(record_flags::HAS_DATE_ADDED) {
                volume.set_date_added(&mut object);
            }
            volume.transfer((found.parent, &found.name), (parent, &units), &object)?;
            Ok(orphan)
        })?;
        self.nameless.retain(|nameless| *nameless != id);
        self.reap(orphan, is_open)
    }

    pub(super) fn discard_unlinked(&mut self, node: NodeId, is_open: IsOpen<'_>) -> Result<()> {
        let id = self.nameless(node)?;
        self.nameless.retain(|nameless| *nameless != id);
        self.orphans.push(id);
        self.reap([id], is_open)
    }

    /// Returns the number of an object that has no name yet.
    fn nameless(&self, node: NodeId) -> Result<Cnid> {
        let found = self.nameless.iter().find(|id| u64::from(id.0) == node.0);
        found.copied().ok_or_else(|| {
            let message = format!("object {} has a name, or does not exist", node.0);
            Error::new(Kind::NotFound, LAYER, message)
        })
    }

    /// Returns true if an object has no name yet or no longer.
    pub(super) fn is_nameless(&self, id: Cnid) -> bool {
        self.orphans.contains(&id) || self.nameless.contains(&id)
    }

    /// Creates the record of a new object, and stores the target of a symbolic link.
    pub(super) fn new_object(&mut self, id: Cnid, new: &NewNode) -> Result<Object> {
        let mut object = self.new_record(id, new);
        if let (NewKind::Symlink(target), Object::File(file)) = (&new.kind, &mut object) {
            file.data_fork = self.put_target(id, target)?;
        }
        Ok(object)
    }
}
