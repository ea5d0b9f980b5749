//! Renaming and moving, over what is in the way if that was asked for.

use super::LAYER;
use super::entries::IsOpen;
use super::volume::Volume;
use crate::fs::hfsplus::catalog::Object;
use crate::fs::hfsplus::layout::record_flags;
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
        let orphan = self.change(|volume| {
            let (old_dir, new_dir) = (volume.folder(from.0)?.object.id(), volume.folder(to.0)?.object.id());
            let (old_name, mut object) = volume.entry(old_dir, from.1)?;
            Self::check_movable(&object, &old_name)?;
            if let Object::File(file) = &object
                && volume.read.links.is_link(file).1
            {
                let message = "is one of several names of a folder, which are not changed";
                return Err(Error::unsupported(LAYER, message).named(from.1));
            }
            if matches!(object, Object::Folder(_)) && volume.is_within(new_dir, object.id())? {
                return Err(Error::new(Kind::Invalid, LAYER, "a folder cannot be moved into itself").named(from.1));
            }
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
            object.dates_mut().attribute_mod = volume.date().into();
            if old_dir != new_dir && object.has(record_flags::HAS_DATE_ADDED) {
                volume.set_date_added(&mut object);
            }
            volume.transfer((old_dir, &old_name), (new_dir, &new_name), &object)?;
            Ok(orphan)
        })?;
        self.reap(orphan, is_open)
    }

    pub(super) fn check_replaceable(&self, object: &Object, there: &Object, existing: Existing, name: &str) -> Result<()> {
        let refused = |message: &'static str| Err(Error::new(Kind::Conflict, LAYER, message).named(name));
        self.check_own(there.id())?;
        if self.read.links.is_private(there.id()) {
            return refused("is a name that the volume needs for itself");
        }
        match (existing, object, there) {
            (Existing::Keep, ..) => refused("exists already"),
            (_, Object::Folder(_), Object::File(_)) => refused("is no folder, and a folder cannot replace it"),
            (_, Object::File(_), Object::Folder(_)) => refused("is a folder, which a file cannot replace"),
            _ => Ok(()),
        }
    }

    fn is_same_file(&self, a: &Object, b: &Object) -> bool {
        let (Object::File(a), Object::File(b)) = (a, b) else { return false };
        let links = &self.read.links;
        links.is_link(a).0 && links.is_link(b).0 && a.bsd.special == b.bsd.special
    }

    fn spelled(&self, name: &str) -> Result<Vec<zerocopy::big_endian::U16>> {
        let mut units = Vec::new();
        crate::fs::hfsplus::unicode::encode_name(name, &mut units)?;
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
