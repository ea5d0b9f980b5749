//! Changes of the attributes of objects.

use super::volume::Volume;
use crate::apfs::layout::{mode_type, nanoseconds};
use crate::{Change, NodeId, UF_COMPRESSED};
use bandsaw_core::Result;

impl Volume {
    pub(super) fn set_attributes(&mut self, node: NodeId, change: &Change) -> Result<()> {
        self.change(false, |volume| {
            let mut inode = volume.object(node)?;
            let raw = &mut inode.raw;
            if let Some(mode) = change.mode {
                raw.mode = (raw.mode.get() & mode_type::MASK | mode & !mode_type::MASK).into();
            }
            if let Some(flags) = change.flags {
                // The compression flag describes how contents are stored, so it cannot be changed.
                raw.bsd_flags =
                    (raw.bsd_flags.get() & UF_COMPRESSED | flags & !UF_COMPRESSED).into();
            }
            raw.owner = change.uid.unwrap_or(raw.owner.get()).into();
            raw.group = change.gid.unwrap_or(raw.group.get()).into();
            raw.changed = change.changed.map_or(volume.date(), nanoseconds);
            for (field, date) in [
                (&mut inode.raw.created, change.created),
                (&mut inode.raw.modified, change.modified),
                (&mut inode.raw.accessed, change.accessed),
            ] {
                *field = date.map_or(*field, nanoseconds);
            }
            volume.put_inode(&inode)
        })
    }
}
