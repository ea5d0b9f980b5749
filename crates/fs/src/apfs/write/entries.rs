//! Directory entries: create, look up, remove, together with the objects that they refer to (§8.3,
//! §8.6).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::LAYER;
use super::inode::Inode;
use super::volume::{Volume, corrupt};
use crate::apfs::layout::{
    DataStreamIdRaw, DirectoryEntryRaw, FileId, InodeRaw, RecordKey, SiblingLinkRaw, SiblingMapRaw,
    XattrRaw, entry_field, inode_field, inode_flags, mode_type, nanoseconds, put_name, record_type,
    xattr_flags, xattr_name,
};
use crate::{ExistingTarget, FileKind, NewKind, NewNode, NodeId};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Reason, Result};

/// Maximum length of a name in bytes.
const MAX_NAME: usize = 255;
/// Maximum length of the target of a symbolic link in macOS, in bytes.
const MAX_LINK_TARGET: usize = 1023;

/// A function that returns true if a file is open.
pub(super) type IsOpen<'a> = &'a dyn Fn(FileId) -> bool;

/// A directory entry.
#[derive(Debug, Clone)]
pub(super) struct FolderEntry {
    /// Name as on disk.
    pub(super) name: String,
    pub(super) raw: DirectoryEntryRaw,
    /// Sibling number of this name, if the object has or had several names.
    pub(super) sibling: Option<FileId>,
}

impl FolderEntry {
    pub(super) fn id(&self) -> FileId {
        self.raw.file_id.into()
    }
}

impl Volume {
    pub(super) fn create(&mut self, dir: NodeId, name: &str, new: &NewNode) -> Result<NodeId> {
        check_target(&new.kind).map_err(|error| error.named(name))?;
        self.change(true, |volume| {
            let mut parent = volume.folder(dir)?;
            volume.check_new(parent.id, name)?;
            let inode = volume.new_inode(parent.id, name, new);
            volume.put_new(&inode, new)?;
            volume.add_entry(&mut parent, name, &inode, None)?;
            volume.put_inode(&parent)?;
            volume.count(&inode, 1);
            Ok(NodeId(inode.id.0))
        })
    }

    /// Writes the records of a new object.
    pub(super) fn put_new(&mut self, inode: &Inode, new: &NewNode) -> Result<()> {
        self.put_inode(inode)?;
        match &new.kind {
            NewKind::Symlink(target) => self.put_target(inode.id, target),
            _ => Ok(()),
        }
    }

    pub(super) fn new_inode(&mut self, parent: FileId, name: &str, new: &NewNode) -> Inode {
        let (id, now) = (self.next_id(), self.date());
        let date = new.created.map_or(now, nanoseconds);
        let kind = match &new.kind {
            NewKind::File => FileKind::File,
            NewKind::Folder => FileKind::Folder,
            NewKind::Symlink(_) => FileKind::Symlink,
            NewKind::Special(kind, _) => *kind,
        };
        let raw = InodeRaw {
            parent_id: parent.into(),
            private_id: id.into(),
            created: date,
            modified: date,
            changed: date,
            accessed: date,
            internal_flags: inode_flags::NO_RESOURCE_FORK.into(),
            children_or_links: u32::from(kind != FileKind::Folder).into(),
            write_generation: 1.into(),
            bsd_flags: (new.flags & !crate::UF_COMPRESSED).into(),
            owner: new.uid.into(),
            group: new.gid.into(),
            mode: (mode_type::of(kind) | new.mode & !mode_type::MASK).into(),
            ..InodeRaw::new_zeroed()
        };
        let mut inode = Inode::new(id, raw, name);
        if let NewKind::Special(FileKind::CharDevice | FileKind::BlockDevice, device) = new.kind {
            inode.set_field(
                inode_field::DEVICE,
                0,
                Some(U32::new(device).as_bytes().to_vec()),
            );
        }
        inode
    }

    fn put_target(&mut self, id: FileId, target: &str) -> Result<()> {
        let flags = xattr_flags::EMBEDDED | xattr_flags::FILE_SYSTEM_OWNED;
        // No truncation: at most MAX_LINK_TARGET.
        let mut value = XattrRaw {
            flags: flags.into(),
            len: (narrow::<u16>(target.len()) + 1).into(),
        }
        .as_bytes()
        .to_vec();
        value.extend_from_slice(target.as_bytes());
        value.push(0);
        self.put(
            RecordKey::named(id, record_type::XATTR, xattr_name::SYMLINK.as_bytes()),
            &value,
        )
    }

    /// Adds `change` to the volume's count of objects of this kind.
    pub(super) fn count(&mut self, inode: &Inode, change: i64) {
        let raw = &mut self.read.raw;
        let counter = match inode.raw.mode.get() & mode_type::MASK {
            mode_type::FOLDER => &mut raw.folders,
            mode_type::FILE => &mut raw.files,
            mode_type::SYMLINK => &mut raw.symlinks,
            _ => &mut raw.other_objects,
        };
        *counter = counter.get().saturating_add_signed(change).into();
    }

    /// Returns a folder that can be modified.
    pub(super) fn folder(&self, dir: NodeId) -> Result<Inode> {
        let inode = self.object(dir)?;
        if !inode.is_folder() {
            return Err(Error::invalid(LAYER, "not a folder").named(format!("object {}", dir.0)));
        }
        if inode.raw.has(inode_flags::MAINTAIN_DIR_STATS) {
            let message = "read-only: folders with statistics cannot be changed";
            return Err(Error::unsupported(LAYER, message).named(format!("object {}", dir.0)));
        }
        Ok(inode)
    }

    /// Returns an object that is visible to users.
    pub(super) fn object(&self, node: NodeId) -> Result<Inode> {
        let id = FileId(node.0);
        if id < FileId::FIRST_USER && id != FileId::ROOT {
            return Err(Error::not_found(LAYER, format!("object {}", node.0)));
        }
        self.inode(id)
    }

    /// Fails if a name is invalid or exists.
    pub(super) fn check_new(&self, dir: FileId, name: &str) -> Result<()> {
        check_name(name)?;
        match self.entry(dir, name)? {
            Some(_) => Err(Error::conflict(LAYER, "already exists").named(name)),
            None => Ok(()),
        }
    }

    /// Returns the entry of a name, compared by the volume's rules.
    pub(super) fn entry(&self, dir: FileId, name: &str) -> Result<Option<FolderEntry>> {
        let Some(hash) = self.read.names.hash(name) else {
            return Ok(None);
        };
        let tree = self.files.reader()?;
        (self.read.names).find(&tree, dir, (name, hash), |there, value| {
            let Some((raw, fields)) = DirectoryEntryRaw::parse(value) else {
                return Err(corrupt(dir, "malformed directory entry"));
            };
            let sibling = fields
                .read::<U64>(entry_field::SIBLING_ID)
                .map(FileId::from);
            Ok(FolderEntry {
                name: there.to_owned(),
                raw: *raw,
                sibling,
            })
        })
    }

    /// Returns an entry, which must exist, and its object.
    pub(super) fn found(&self, dir: FileId, name: &str) -> Result<(FolderEntry, Inode)> {
        let entry = self
            .entry(dir, name)?
            .ok_or_else(|| Error::not_found(LAYER, name))?;
        let inode = self.object(NodeId(entry.id().0))?;
        Ok((entry, inode))
    }

    /// Adds an entry to a folder, whose record the caller must write.
    pub(super) fn add_entry(
        &mut self,
        dir: &mut Inode,
        name: &str,
        inode: &Inode,
        sibling: Option<FileId>,
    ) -> Result<()> {
        let count = dir.count().checked_add(1).ok_or_else(|| {
            Error::limit(
                LAYER,
                "the folder has the maximum number of entries, 2^32 - 1",
            )
        })?;
        dir.raw.children_or_links = count.into();
        self.touch(dir);
        self.put_entry(dir.id, name, inode, self.date(), sibling)
    }

    pub(super) fn put_entry(
        &mut self,
        dir: FileId,
        name: &str,
        inode: &Inode,
        added: U64,
        sibling: Option<FileId>,
    ) -> Result<()> {
        let raw = DirectoryEntryRaw {
            file_id: inode.id.into(),
            added,
            flags: (inode.raw.mode.get() >> 12).into(),
        };
        let mut value = Vec::new();
        raw.put(sibling, &mut value);
        self.put(
            RecordKey::entry(dir, name.as_bytes(), self.read.names.hash(name)),
            &value,
        )
    }

    /// Removes an entry from a folder, whose record the caller must write.
    pub(super) fn remove_entry(&mut self, dir: &mut Inode, entry: &FolderEntry) -> Result<()> {
        dir.raw.children_or_links = dir.count().saturating_sub(1).into();
        self.touch(dir);
        self.remove_record(RecordKey::entry(
            dir.id,
            entry.name.as_bytes(),
            self.read.names.hash(&entry.name),
        ))
    }

    /// Updates the modification time and the write generation of an object.
    pub(super) fn touch(&self, inode: &mut Inode) {
        let now = self.date();
        (inode.raw.modified, inode.raw.changed) = (now, now);
        inode.raw.write_generation = inode.raw.write_generation.get().wrapping_add(1).into();
    }

    pub(super) fn remove(&mut self, dir: NodeId, name: &str, is_open: IsOpen<'_>) -> Result<()> {
        self.reap(is_open)?;
        let orphan = self.change(false, |volume| {
            let mut parent = volume.folder(dir)?;
            let (entry, inode) = volume.found(parent.id, name)?;
            let orphan = volume.unname(&mut parent, &entry, inode, is_open)?;
            volume.put_inode(&parent)?;
            Ok(orphan)
        })?;
        self.orphans.extend(orphan);
        Ok(())
    }

    /// Removes an entry, and the object if that was its last name. If the object is open, it
    /// becomes an unlinked file instead, and its number is returned. The caller must write the
    /// folder's record.
    pub(super) fn unname(
        &mut self,
        dir: &mut Inode,
        entry: &FolderEntry,
        mut inode: Inode,
        is_open: IsOpen<'_>,
    ) -> Result<Option<FileId>> {
        if inode.is_folder()
            && (inode.count() != 0
                || !self
                    .records(inode.id, record_type::DIRECTORY_ENTRY)?
                    .is_empty())
        {
            return Err(Error::conflict(LAYER, "the folder is not empty").named(entry.name.clone()));
        }
        self.remove_entry(dir, entry)?;
        if let Some(sibling) = entry.sibling {
            self.remove_record(RecordKey::numbered(
                inode.id,
                record_type::SIBLING_LINK,
                sibling.0,
            ))?;
            self.remove_record(RecordKey::single(sibling, record_type::SIBLING_MAP))?;
        }
        if !inode.is_folder() && inode.count() > 1 {
            inode.raw.children_or_links = (inode.count() - 1).into();
            inode.raw.changed = self.date();
            self.name_by_first_link(&mut inode)?;
            self.put_inode(&inode)?;
            return Ok(None);
        }
        if is_open(inode.id) {
            self.orphan(&mut inode)?;
            return Ok(Some(inode.id));
        }
        self.discard(&inode)?;
        self.count(&inode, -1);
        Ok(None)
    }

    /// Deletes an object without names, with all its records.
    pub(super) fn discard(&mut self, inode: &Inode) -> Result<()> {
        let id = inode.id;
        for (key, value) in self.records(id, record_type::XATTR)? {
            self.drop_xattr_stream(&value)?;
            self.files.remove(&key)?;
        }
        if !self.records(id, record_type::SIBLING_LINK)?.is_empty() {
            return Err(corrupt(id, "has more names than its inode records"));
        }
        self.drop_contents(inode)?;
        self.remove_record(RecordKey::single(id, record_type::INODE))
    }

    /// Drops an object's reference to its contents.
    pub(super) fn drop_contents(&mut self, inode: &Inode) -> Result<()> {
        // An inode without a stream has no contents, although its number may be that of a stream
        // that clones still use.
        if inode.stream().is_none() {
            return Ok(());
        }
        let stream = FileId::from(inode.raw.private_id);
        let key = RecordKey::single(stream, record_type::DATA_STREAM);
        let Some(record) = self.record(key)? else {
            return Ok(());
        };
        let references =
            DataStreamIdRaw::read_from_prefix(&record).map_or(0, |(raw, _)| raw.references.get());
        if references > 1 {
            return self.put_raw(
                key,
                &DataStreamIdRaw {
                    references: (references - 1).into(),
                },
            );
        }
        self.cut(stream, &(0..u64::MAX))?;
        self.remove_record(key)
    }

    // Hard links.

    pub(super) fn link(
        &mut self,
        (node, dir, name): (NodeId, NodeId, &str),
        existing: ExistingTarget,
        is_open: IsOpen<'_>,
    ) -> Result<()> {
        self.reap(is_open)?;
        let orphan = self.change(true, |volume| {
            let mut parent = volume.folder(dir)?;
            let mut orphan = None;
            if let (ExistingTarget::Replace, Some(there)) =
                (existing, volume.entry(parent.id, name)?)
            {
                let object = volume.object(NodeId(there.id().0))?;
                if object.id.0 == node.0 {
                    return Ok(None);
                }
                check_replaceable(&volume.object(node)?, &object, existing, name)?;
                orphan = volume.unname(&mut parent, &there, object, is_open)?;
                volume.put_inode(&parent)?;
            }
            volume.check_new(parent.id, name)?;
            let mut inode = volume.object(node)?;
            if FileId::from(inode.raw.parent_id) == FileId::PRIVATE_DIR {
                return Err(Error::not_found(LAYER, format!("object {}", node.0)));
            }
            if !inode.is_file() {
                return Err(Error::unsupported(LAYER, "only files can have hard links").named(name));
            }
            let count = inode.count().checked_add(1);
            inode.raw.children_or_links = count
                .ok_or_else(|| {
                    Error::limit(LAYER, "has the maximum number of hard links, 2^32 - 1")
                        .named(name)
                })?
                .into();
            inode.raw.changed = volume.date();
            if volume
                .records(inode.id, record_type::SIBLING_LINK)?
                .is_empty()
            {
                volume.number_first_name(&inode)?;
            }
            let sibling = volume.next_id();
            volume.put_sibling(&inode, sibling, parent.id, name)?;
            volume.put_inode(&inode)?;
            volume.add_entry(&mut parent, name, &inode, Some(sibling))?;
            volume.put_inode(&parent)?;
            Ok(orphan)
        })?;
        self.orphans.extend(orphan);
        Ok(())
    }

    /// Assigns a sibling number to the only name of a file.
    fn number_first_name(&mut self, inode: &Inode) -> Result<()> {
        let dir = FileId::from(inode.raw.parent_id);
        let name = inode
            .name()
            .ok_or_else(|| corrupt(inode.id, "has no name"))?
            .to_owned();
        let entry = self
            .entry(dir, &name)?
            .filter(|entry| entry.id() == inode.id);
        let entry =
            entry.ok_or_else(|| corrupt(inode.id, "not in the folder that its inode records"))?;
        let sibling = self.next_id();
        self.put_sibling(inode, sibling, dir, &entry.name)?;
        self.put_entry(dir, &entry.name, inode, entry.raw.added, Some(sibling))
    }

    pub(super) fn put_sibling(
        &mut self,
        inode: &Inode,
        sibling: FileId,
        dir: FileId,
        name: &str,
    ) -> Result<()> {
        let mut link = SiblingLinkRaw {
            parent_id: dir.into(),
        }
        .as_bytes()
        .to_vec();
        put_name(name.as_bytes(), &mut link);
        self.put(
            RecordKey::numbered(inode.id, record_type::SIBLING_LINK, sibling.0),
            &link,
        )?;
        self.put_raw(
            RecordKey::single(sibling, record_type::SIBLING_MAP),
            &SiblingMapRaw {
                file_id: inode.id.into(),
            },
        )
    }

    /// Sets an inode's own name and folder to those of its sibling link with the lowest number.
    pub(super) fn name_by_first_link(&mut self, inode: &mut Inode) -> Result<()> {
        let links = self.records(inode.id, record_type::SIBLING_LINK)?;
        let Some((_, value)) = links.first() else {
            return Ok(());
        };
        let parsed = SiblingLinkRaw::parse(value)
            .and_then(|(link, name)| Some((link.parent_id, str::from_utf8(name).ok()?)));
        let (parent, name) =
            parsed.ok_or_else(|| corrupt(inode.id, "malformed record of a name"))?;
        inode.raw.parent_id = parent;
        inode.set_name(name);
        Ok(())
    }
}

/// Fails if the target of a symbolic link is empty or too long.
pub(super) fn check_target(kind: &NewKind) -> Result<()> {
    match kind {
        NewKind::Symlink(target)
            if !(1..=MAX_LINK_TARGET).contains(&target.len()) || target.contains('\0') =>
        {
            let message = format!(
                "invalid link target of {} bytes: expected 1 to {MAX_LINK_TARGET} without NUL",
                target.len()
            );
            Err(Error::limit(LAYER, message))
        }
        _ => Ok(()),
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.len() > MAX_NAME {
        let message = format!(
            "the name has {} bytes: the maximum is {MAX_NAME}",
            name.len()
        );
        return Err(Error::limit(LAYER, message)
            .because(Reason::NameTooLong)
            .named(name));
    }
    if name.is_empty() || name.contains(['/', '\0']) || matches!(name, "." | "..") {
        let message = format!(
            "invalid name of {} bytes: expected 1 to {MAX_NAME} bytes without slash and NUL",
            name.len()
        );
        return Err(Error::invalid(LAYER, message).named(name));
    }
    Ok(())
}

pub(super) fn check_replaceable(
    object: &Inode,
    there: &Inode,
    existing: ExistingTarget,
    name: &str,
) -> Result<()> {
    let refused = |message: &'static str| Err(Error::conflict(LAYER, message).named(name));
    match (existing, object.is_folder(), there.is_folder()) {
        (ExistingTarget::Error, ..) => Err(Error::conflict(LAYER, "already exists")
            .because(Reason::Exists)
            .named(name)),
        (_, true, false) => refused("not a folder; a folder cannot replace it"),
        (_, false, true) => refused("a folder; a file cannot replace it"),
        _ => Ok(()),
    }
}
