//! Modes, owners, flags and dates of objects (§7.5, §10).

use super::records::date_of;
use super::volume::Volume;
use crate::hfsplus::catalog::Object;
use crate::hfsplus::layout::{finder_flags, mode_type, record_flags};
use crate::{Change, NodeId, UF_COMPRESSED, UF_HIDDEN};
use bandsaw_core::Result;
use bandsaw_core::size::narrow;

impl Volume {
    pub(super) fn set_attributes(&mut self, node: NodeId, change: &Change) -> Result<()> {
        self.change(|volume| {
            let mut found = volume.changeable(node)?;
            apply(&mut found.object, change);
            if change.changed.is_none() {
                found.object.set_changed(volume);
            }
            volume.put(found.parent, &found.name, &found.object)
        })
    }
}

fn apply(object: &mut Object, change: &Change) {
    let expanded = object.has(record_flags::EXPANDED_TIMES);
    let dates = object.dates_mut();
    let fields = [
        (&mut dates.create, change.created),
        (&mut dates.content_mod, change.modified),
        (&mut dates.attribute_mod, change.changed),
        (&mut dates.access, change.accessed),
        (&mut dates.backup, change.backed_up),
    ];
    for (field, moment) in fields {
        if let Some(moment) = moment {
            *field = date_of(moment, expanded).into();
        }
    }
    let (bsd, finder, kind) = match object {
        Object::Folder(folder) => (
            &mut folder.bsd,
            &mut folder.user_info.finder_flags,
            mode_type::FOLDER,
        ),
        Object::File(file) => (
            &mut file.bsd,
            &mut file.user_info.finder_flags,
            mode_type::FILE,
        ),
    };
    if bsd.file_mode.get() == 0
        && (change.mode.is_some() || change.uid.is_some() || change.gid.is_some())
    {
        // An object from a system without owners gets an owner and a mode now.
        bsd.file_mode = (kind
            | if kind == mode_type::FOLDER {
                0o755
            } else {
                0o644
            })
        .into();
    }
    if let Some(mode) = change.mode {
        bsd.file_mode = (bsd.mode_type() | mode & 0o7777).into();
    }
    if let Some(uid) = change.uid {
        bsd.owner_id = uid.into();
    }
    if let Some(gid) = change.gid {
        bsd.group_id = gid.into();
    }
    if let Some(flags) = change.flags {
        let [_, admin_flags, _, owner_flags] = flags.to_be_bytes();
        // The compression flag cannot be changed through attributes.
        let compressed = narrow::<u8>(UF_COMPRESSED);
        bsd.owner_flags = owner_flags & !compressed | bsd.owner_flags & compressed;
        bsd.admin_flags = admin_flags;
        let hidden = if flags & UF_HIDDEN != 0 {
            finder_flags::INVISIBLE
        } else {
            0
        };
        *finder = (finder.get() & !finder_flags::INVISIBLE | hidden).into();
    }
}
