//! Checks of an inode, and of its attributes, which follow it in the tree (§8.1, §8.4).

use super::{Files, LAYER, link_hash};
use crate::UF_COMPRESSED;
use crate::apfs::check::report::{Report, numbered, wrong};
use crate::apfs::check::tree::Leaf;
use crate::apfs::layout::{
    DataStreamRaw, FileId, InodeRaw, XFields, inode_field, inode_flags, mode_type, until_nul,
    xattr_name,
};
use zerocopy::little_endian::{U32, U64};

/// Bits for the attributes that an inode has flags for.
mod attribute {
    pub(super) const RESOURCE_FORK: u8 = 1;
    pub(super) const SECURITY: u8 = 2;
    pub(super) const DECMPFS: u8 = 8;
    pub(super) const SYMLINK: u8 = 16;
}

/// The state gathered for one object while its records are read.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: u64,
    inode: Option<InodeFields>,
    /// Bits of [`attribute`].
    attributes: u8,
    /// Number of entries, if it is a folder.
    pub(super) entries: u64,
    /// Number of sibling-link records.
    pub(super) links: u64,
    /// Hash of the name in its inode; `None` without an inode, 0 if the inode has no name.
    pub(super) primary: Option<u64>,
    pub(super) has_statistics: bool,
}

#[derive(Debug, Clone, Copy)]
struct InodeFields {
    flags: u64,
    bsd_flags: u32,
    kind: u16,
    children_or_links: u32,
}

impl Group {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id,
            inode: None,
            attributes: 0,
            entries: 0,
            links: 0,
            primary: None,
            has_statistics: false,
        }
    }

    pub(super) fn attribute(&mut self, name: &str) {
        self.attributes |= match name {
            xattr_name::RESOURCE_FORK => attribute::RESOURCE_FORK,
            xattr_name::SECURITY => attribute::SECURITY,
            xattr_name::DECMPFS => attribute::DECMPFS,
            xattr_name::SYMLINK => attribute::SYMLINK,
            _ => 0,
        };
    }
}

/// Adds an inode; `None` if one of its fields is invalid.
pub(super) fn add(
    files: &mut Files,
    id: u64,
    raw: &InodeRaw,
    fields: &XFields<'_>,
    leaf: &Leaf<'_>,
    report: &mut Report<'_>,
) -> Option<()> {
    let (flags, kind) = (raw.internal_flags.get(), raw.mode.get() & mode_type::MASK);
    let mut warn = |message: String| {
        report.warning(
            leaf.wrong(format_args!("object {id:#x} {message}"))
                .about(numbered(id)),
        )
    };
    if !matches!(
        kind,
        mode_type::FIFO
            | mode_type::CHAR
            | mode_type::FOLDER
            | mode_type::BLOCK
            | mode_type::FILE
            | mode_type::SYMLINK
            | mode_type::SOCKET
    ) {
        report.damage(
            leaf.wrong(format_args!(
                "object {id:#x} has mode {:#o} without a valid type",
                raw.mode
            ))
            .about(numbered(id)),
        );
        return Some(());
    }
    // A field that cannot be parsed is the caller's error; one that contradicts another is a warning, as
    // the contents can still be read.
    let stream = match fields.get(inode_field::DATA_STREAM) {
        Some(_) => Some(fields.read::<DataStreamRaw>(inode_field::DATA_STREAM)?),
        None => None,
    };
    let sparse = fields
        .read::<U64>(inode_field::SPARSE_BYTES)
        .map(|bytes| bytes.get());
    if stream.is_some() && kind != mode_type::FILE {
        warn(format!(
            "has contents, but its mode {:#o} is not that of a file",
            raw.mode
        ));
    }
    if fields.read::<U32>(inode_field::DEVICE).is_some()
        != matches!(kind, mode_type::CHAR | mode_type::BLOCK)
    {
        warn(format!(
            "has mode {:#o}, which contradicts its device number: device files have one, other \
             files have none",
            raw.mode
        ));
    }
    if (flags & inode_flags::IS_SPARSE != 0) != sparse.is_some() {
        warn(
            "has either the flag of a sparse file or a count of sparse bytes, expected both or \
             neither"
                .to_owned(),
        );
    }
    if raw.uncompressed_size.get() != 0 && flags & inode_flags::HAS_UNCOMPRESSED_SIZE == 0 {
        warn("has a size of compressed contents, but not the flag for it".to_owned());
    }
    let maintained = flags & inode_flags::MAINTAIN_DIR_STATS != 0;
    if maintained && fields.get(inode_field::DIRECTORY_STATS).is_none() {
        warn("has the flag for folder statistics, but no record of them".to_owned());
    }
    // Names and contents are compared once all records of the group, and all links, are known.
    let name = fields.get(inode_field::NAME).map(until_nul);
    if name.is_none() {
        warn("its inode records no name".to_owned());
    }
    let parent = FileId::from(raw.parent_id);
    let primary = name.map_or(0, |name| link_hash(parent, name));
    files.group.primary = Some(primary);
    files.group.inode = Some(InodeFields {
        flags,
        bsd_flags: raw.bsd_flags.get(),
        kind,
        children_or_links: raw.children_or_links.get(),
    });
    files
        .known(id)
        .inode(kind, primary, parent, raw.children_or_links.get());
    if let Some(stream) = stream {
        let private = raw.private_id.get();
        files.see(private);
        files
            .stream(private)
            .use_by_inode(id, &stream, sparse.unwrap_or(0), flags);
    } else if sparse.is_some_and(|bytes| bytes > 0) {
        report.warning(
            leaf.wrong(format_args!("object {id:#x} is sparse but has no contents"))
                .about(numbered(id)),
        );
    }
    Some(())
}

impl Files {
    /// Checks an object after its last record.
    pub(super) fn close_group(&mut self, report: &mut Report<'_>) {
        let group = &self.group;
        let id = group.id;
        let Some(fields) = group.inode else {
            // The parent of the root has no inode; attribute streams, crypto states and siblings
            // have none either.
            if group.entries > 0 && id != FileId::ROOT_PARENT.0 {
                report.damage(wrong(
                    LAYER,
                    format!(
                        "{} entries are in folder {id:#x}, which does not exist",
                        group.entries
                    ),
                ));
            }
            if group.attributes != 0 || group.links > 0 {
                report.damage(wrong(
                    LAYER,
                    format!("object {id:#x} has attributes or names, but no inode"),
                ));
            }
            return;
        };
        let has = |attribute: u8| group.attributes & attribute != 0;
        let flag = |flag: u64| fields.flags & flag != 0;
        let mut differs = |what: &str, found: bool, recorded: bool| {
            if found != recorded {
                let yes = |yes: bool| if yes { "yes" } else { "no" };
                let message = format!(
                    "object {id:#x} {what}: {}, but its inode says {}",
                    yes(found),
                    yes(recorded)
                );
                report.warning(wrong(LAYER, message).about(numbered(id)));
            }
        };
        let resource = has(attribute::RESOURCE_FORK);
        if !self.rules.early {
            differs(
                "has a resource fork",
                resource,
                flag(inode_flags::HAS_RESOURCE_FORK),
            );
        }
        differs(
            "has access rights",
            has(attribute::SECURITY),
            flag(inode_flags::HAS_SECURITY),
        );
        if flag(inode_flags::HAS_RESOURCE_FORK) && flag(inode_flags::NO_RESOURCE_FORK) {
            report.warning(wrong(
                LAYER,
                format!(
                    "object {id:#x} has contradictory flags: one says that it has a resource fork, \
                     another that it has none"
                ),
            ).about(numbered(id)));
        }
        let is_link = fields.kind == mode_type::SYMLINK;
        if has(attribute::SYMLINK) != is_link {
            let message = format!(
                "object {id:#x} has mode {:#o}, which contradicts its attribute for the target of a symbolic link",
                fields.kind
            );
            report.damage(wrong(LAYER, message).about(numbered(id)));
        }
        if fields.bsd_flags & UF_COMPRESSED != 0 && !has(attribute::DECMPFS) {
            report.damage(
                wrong(
                    LAYER,
                    format!("file {id:#x} is compressed, but has no compression attribute"),
                )
                .about(numbered(id)),
            );
        }
        if fields.kind != mode_type::FOLDER {
            if group.entries > 0 {
                let message = format!(
                    "{} entries are in object {id:#x}, which is not a folder",
                    group.entries
                );
                report.damage(wrong(LAYER, message).about(numbered(id)));
            }
        } else if u64::from(fields.children_or_links) != group.entries {
            let message = format!(
                "folder {id:#x} records {} entries, but has {}",
                fields.children_or_links, group.entries
            );
            report.warning(wrong(LAYER, message).about(numbered(id)));
        }
        let links = group.links;
        if let Some(known) = self.objects.get_mut(&id) {
            known.records = u32::try_from(links).unwrap_or(u32::MAX);
        }
    }
}
