//! Conversion of catalog records to file attributes: kinds, modes, flags, dates (§7.5, §10).

use zerocopy::transmute;

use super::catalog::Object;
use super::layout::{
    ExtendedInfoRaw, FileRaw, ForkRaw, finder_flags, mode_type, record_flags, timestamp,
};
use crate::{Attributes, FileKind, NodeId, Timestamp, UF_HIDDEN, UNKNOWN_OWNER};

/// Returns the kind of a file record; an invalid type is treated as a regular file.
pub(super) fn file_kind(file: &FileRaw) -> FileKind {
    match mode_type::kind_of(file.bsd.file_mode.get()) {
        FileKind::Folder => FileKind::File,
        kind => kind,
    }
}

/// Returns the attributes in an object's record. `links` is its number of names.
pub(super) fn attributes(object: &Object, block_size: u32, links: u32) -> Attributes {
    let (bsd, dates) = (object.bsd(), object.dates());
    let recorded = bsd.file_mode.get() != 0;
    let owner = |id: u32| if recorded { id } else { UNKNOWN_OWNER };
    let expanded = object.has(record_flags::EXPANDED_TIMES);
    let date =
        |raw: zerocopy::big_endian::U32| -> Option<Timestamp> { timestamp(raw.get(), expanded) };
    let hidden = if object.finder_flags() & finder_flags::INVISIBLE != 0 {
        UF_HIDDEN
    } else {
        0
    };
    let contents = NodeFacts::of(object, block_size);
    Attributes {
        id: NodeId(object.id().0.into()),
        kind: contents.kind,
        size: contents.size,
        allocated: contents.allocated,
        resource_size: contents.resource_size,
        mode: if recorded {
            bsd.file_mode.get() & 0o7777
        } else {
            contents.default_mode
        },
        uid: owner(bsd.owner_id.get()),
        gid: owner(bsd.group_id.get()),
        links,
        device: contents.device,
        flags: u32::from(bsd.owner_flags) | u32::from(bsd.admin_flags) << 16 | hidden,
        created: date(dates.create),
        modified: date(dates.content_mod),
        changed: date(dates.attribute_mod),
        accessed: date(dates.access),
        backed_up: date(dates.backup),
        has_xattrs: object.has(record_flags::HAS_ATTRIBUTES),
    }
}

/// The attributes that differ between folders and files.
struct NodeFacts {
    kind: FileKind,
    size: u64,
    allocated: u64,
    resource_size: u64,
    default_mode: u16,
    device: u32,
}

impl NodeFacts {
    fn of(object: &Object, block_size: u32) -> Self {
        match object {
            Object::Folder(folder) => Self {
                kind: FileKind::Folder,
                size: folder.valence.get().into(),
                allocated: 0,
                resource_size: 0,
                default_mode: 0o755,
                device: 0,
            },
            Object::File(file) => {
                let kind = file_kind(file);
                let special = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
                let blocks = |fork: &ForkRaw| u64::from(fork.total_blocks.get());
                Self {
                    kind,
                    size: file.data_fork.logical_size.get(),
                    allocated: (blocks(&file.data_fork) + blocks(&file.resource_fork))
                        * u64::from(block_size),
                    resource_size: file.resource_fork.logical_size.get(),
                    default_mode: 0o644,
                    device: if special { file.bsd.special.get() } else { 0 },
                }
            }
        }
    }
}

/// Returns the attribute `com.apple.FinderInfo` as macOS shows it, without the fields reserved by
/// the system. `None` if the rest is zero.
pub(super) fn finder_info(object: &Object) -> Option<[u8; 32]> {
    let (user, extended): ([u8; 16], _) = match object {
        Object::Folder(folder) => (transmute!(folder.user_info), folder.finder_info),
        Object::File(file) => {
            let mut user = file.user_info;
            if file_kind(file) == FileKind::Symlink {
                (user.file_type, user.creator) = Default::default();
            }
            (transmute!(user), file.finder_info)
        }
    };
    let extended: [u8; 16] = transmute!(ExtendedInfoRaw {
        extended_flags: extended.extended_flags,
        reserved: extended.reserved,
        ..ExtendedInfoRaw::default()
    });
    let bytes: [u8; 32] = transmute!([user, extended]);
    (bytes != [0; 32]).then_some(bytes)
}
