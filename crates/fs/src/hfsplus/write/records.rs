//! Records of new objects (§7).

use super::volume::Volume;
use crate::hfsplus::build::records::times_flag;
use crate::hfsplus::catalog::Object;
use crate::hfsplus::layout::{
    BsdInfoRaw, Cnid, DatesRaw, ExtendedInfoRaw, FileInfoRaw, FileRaw, FolderRaw, SYMLINK_TYPE,
    Variant, finder_flags, mac_date, record_flags, record_type,
};
use crate::mode_type;
use crate::{FileKind, NewKind, NewNode, Timestamp, UF_COMPRESSED, UF_HIDDEN};

impl Volume {
    /// Creates the record of a new object without contents.
    pub(super) fn new_record(&self, id: Cnid, new: &NewNode) -> Object {
        let hfsx = self.read.header.variant == Variant::Hfsx;
        let expanded = self.expanded_times();
        let times = times_flag(expanded);
        let date = new
            .created
            .map_or_else(|| self.date(), |created| date_of(created, expanded))
            .into();
        let dates = DatesRaw {
            create: date,
            content_mod: date,
            attribute_mod: date,
            access: date,
            backup: 0.into(),
        };
        let added = u32::try_from(self.now().seconds.max(0)).unwrap_or(u32::MAX);
        let finder_info = ExtendedInfoRaw {
            date_added: added.into(),
            ..Default::default()
        };
        let hidden = if new.flags & UF_HIDDEN != 0 {
            finder_flags::INVISIBLE
        } else {
            0
        };
        let mut bsd = bsd(new);
        if matches!(new.kind, NewKind::Folder) {
            let counted = if hfsx {
                record_flags::HAS_FOLDER_COUNT
            } else {
                0
            };
            let mut folder = FolderRaw {
                record_type: record_type::FOLDER.into(),
                flags: (record_flags::HAS_DATE_ADDED | counted | times).into(),
                folder_id: id.0.into(),
                dates,
                bsd,
                finder_info,
                ..Default::default()
            };
            folder.user_info.finder_flags = hidden.into();
            return Object::Folder(folder);
        }
        let mut user_info = FileInfoRaw {
            finder_flags: hidden.into(),
            ..Default::default()
        };
        let mut flags = record_flags::THREAD_EXISTS | record_flags::HAS_DATE_ADDED;
        let mut extended = finder_info;
        match &new.kind {
            NewKind::Symlink(_) => {
                (user_info.file_type, user_info.creator) = SYMLINK_TYPE;
                (flags, extended) = (record_flags::THREAD_EXISTS, ExtendedInfoRaw::default());
            }
            NewKind::Special(_, device) => bsd.special = (*device).into(),
            NewKind::File | NewKind::Folder => {}
        }
        Object::File(FileRaw {
            record_type: record_type::FILE.into(),
            flags: (flags | times).into(),
            file_id: id.0.into(),
            dates,
            bsd,
            user_info,
            finder_info: extended,
            ..Default::default()
        })
    }
}

/// Returns the on-disk form of a date. Dates before 1970 become 1970, as on macOS; Linux would read
/// them as dates in the future.
pub(super) fn date_of(moment: Timestamp, expanded: bool) -> u32 {
    mac_date(moment.max(Timestamp::from_seconds(0)), expanded)
}

fn bsd(new: &NewNode) -> BsdInfoRaw {
    let kind = match &new.kind {
        NewKind::Folder => FileKind::Folder,
        NewKind::Symlink(_) => FileKind::Symlink,
        NewKind::File | NewKind::Special(FileKind::Folder | FileKind::Symlink, _) => FileKind::File,
        NewKind::Special(kind, _) => *kind,
    };
    let [_, admin_flags, _, owner_flags] = (new.flags & !UF_COMPRESSED).to_be_bytes();
    BsdInfoRaw {
        owner_id: new.uid.into(),
        group_id: new.gid.into(),
        admin_flags,
        owner_flags,
        file_mode: (mode_type::of(kind) | new.mode & 0o7777).into(),
        special: 1.into(),
    }
}
