//! Renaming and moving: replacing an existing entry if requested, or exchanging two entries.

use zerocopy::big_endian::U16;

use super::LAYER;
use super::entries::IsOpen;
use super::volume::Volume;
use crate::hfsplus::catalog::Object;
use crate::hfsplus::layout::{Cnid, record_flags};
use crate::{ExistingTarget, NodeId};
use bandsaw_core::{Error, Reason, Result};

impl Volume {
    pub(super) fn rename(
        &mut self,
        from: (NodeId, &str),
        to: (NodeId, &str),
        existing: ExistingTarget,
        is_open: IsOpen<'_>,
    ) -> Result<()> {
        let orphan = self.change(|volume| {
            let (old_dir, new_dir) = (
                volume.folder(from.0)?.object.id(),
                volume.folder(to.0)?.object.id(),
            );
            let (old_name, mut object) = volume.entry(old_dir, from.1)?;
            volume.check_moves(&object, (&old_name, from.1), new_dir)?;
            let mut orphan = None;
            if let Some((name, there)) = volume.try_entry(new_dir, to.1)?
                && there.id() != object.id()
            {
                volume.check_replaceable(&object, &there, existing, to.1)?;
                if volume.is_same_file(&object, &there) {
                    return Ok(None); // two names of one file, as POSIX has it
                }
                orphan = volume.unname(new_dir, &name, there, is_open)?;
            }
            let new_name = match volume.try_entry(new_dir, to.1)? {
                // The same name in another spelling.
                Some((_, there)) if there.id() == object.id() => volume.spelled(to.1)?,
                _ => volume.new_name(new_dir, to.1)?,
            };
            volume.date_move(&mut object, old_dir != new_dir);
            volume.transfer((old_dir, &old_name), (new_dir, &new_name), &object)?;
            Ok(orphan)
        })?;
        self.reap(orphan, is_open)
    }

    pub(super) fn swap(&mut self, a: (NodeId, &str), b: (NodeId, &str)) -> Result<()> {
        self.change(|volume| {
            let dirs = [
                volume.folder(a.0)?.object.id(),
                volume.folder(b.0)?.object.id(),
            ];
            let (name_a, mut object_a) = volume.entry(dirs[0], a.1)?;
            let (name_b, mut object_b) = volume.entry(dirs[1], b.1)?;
            if object_a.id() == object_b.id() || volume.is_same_file(&object_a, &object_b) {
                return Ok(());
            }
            volume.check_moves(&object_a, (&name_a, a.1), dirs[1])?;
            volume.check_moves(&object_b, (&name_b, b.1), dirs[0])?;
            volume.date_move(&mut object_a, dirs[0] != dirs[1]);
            volume.date_move(&mut object_b, dirs[0] != dirs[1]);
            volume.exchange_places((dirs[0], &name_a, &object_a), (dirs[1], &name_b, &object_b))
        })
    }

    /// Refuses to move an object, named `units` or `name`, into folder `dir` if that is not
    /// possible.
    fn check_moves(&self, object: &Object, (units, name): (&[U16], &str), dir: Cnid) -> Result<()> {
        Self::check_movable(object, units)?;
        if let Object::File(file) = object
            && self.read.links.is_link(file).1
        {
            let message = "hard links to folders cannot be changed";
            return Err(Error::unsupported(LAYER, message).named(name));
        }
        if matches!(object, Object::Folder(_)) && self.is_within(dir, object.id())? {
            return Err(Error::invalid(LAYER, "a folder cannot be moved into itself").named(name));
        }
        Ok(())
    }

    /// Updates the dates of an object that is renamed, or moved to another folder if `moved`.
    fn date_move(&self, object: &mut Object, moved: bool) {
        object.set_changed(self);
        if moved && object.has(record_flags::HAS_DATE_ADDED) {
            self.set_date_added(object);
        }
    }

    pub(super) fn check_replaceable(
        &self,
        object: &Object,
        there: &Object,
        existing: ExistingTarget,
        name: &str,
    ) -> Result<()> {
        let refused = |message: &'static str| Err(Error::conflict(LAYER, message).named(name));
        self.check_own(there.id())?;
        if self.read.links.is_private(there.id()) {
            return refused("the name is reserved for the volume's own data");
        }
        match (existing, object, there) {
            (ExistingTarget::Error, ..) => Err(Error::conflict(LAYER, "already exists")
                .because(Reason::Exists)
                .named(name)),
            (_, Object::Folder(_), Object::File(_)) => {
                refused("not a folder; a folder cannot replace it")
            }
            (_, Object::File(_), Object::Folder(_)) => {
                refused("a folder; a file cannot replace it")
            }
            _ => Ok(()),
        }
    }

    fn is_same_file(&self, a: &Object, b: &Object) -> bool {
        let (Object::File(a), Object::File(b)) = (a, b) else {
            return false;
        };
        let links = &self.read.links;
        links.is_link(a).0 && links.is_link(b).0 && a.bsd.special == b.bsd.special
    }

    fn spelled(&self, name: &str) -> Result<Vec<U16>> {
        let mut units = Vec::new();
        crate::hfsplus::unicode::encode_name(name, &mut units)?;
        Ok(units)
    }

    pub(super) fn set_date_added(&self, object: &mut Object) {
        let added = u32::try_from(self.now().seconds.max(0)).unwrap_or(u32::MAX);
        match object {
            Object::Folder(folder) => folder.finder_info.date_added = added.into(),
            Object::File(file) => file.finder_info.date_added = added.into(),
        }
    }
}
