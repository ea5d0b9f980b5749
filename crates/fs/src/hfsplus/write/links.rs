//! Files with several names: the inode file in the private folder, and a record for each name, in a
//! chain (§7.7).

use zerocopy::big_endian::U16;

use super::LAYER;
use super::entries::IsOpen;
use super::volume::Volume;
use crate::hfsplus::build::records::RecordStyle;
use crate::hfsplus::catalog::{LocatedObject, Object};
use crate::hfsplus::layout::{Cnid, FileRaw, record_flags, timestamp};
use crate::hfsplus::links::{FILES_FOLDER, inode_name, inode_number};
use crate::hfsplus::unicode::units;
use crate::hfsplus::{layout::Variant, stat};
use crate::{ExistingTarget, FileKind, NodeId, Timestamp};
use bandsaw_core::{Error, Kind, Result};

/// Maximum number of names of a file on macOS.
const MAX_LINKS: u32 = 32767;

impl Volume {
    /// Adds a name to a file, which may replace an existing entry.
    pub(super) fn link(
        &mut self,
        (node, dir, name): (NodeId, NodeId, &str),
        existing: ExistingTarget,
        is_open: IsOpen<'_>,
    ) -> Result<()> {
        let orphan = self.change(|volume| {
            let parent = volume.folder(dir)?.object.id();
            let mut orphan = None;
            if let (ExistingTarget::Replace, Some((units, there))) =
                (existing, volume.try_entry(parent, name)?)
            {
                let found = volume.changeable(node)?;
                if volume.leads_to(&there, &found) {
                    return Ok(None);
                }
                volume.check_replaceable(&found.object, &there, existing, name)?;
                orphan = volume.unname(parent, &units, there, is_open)?;
            }
            let units = volume.new_name(parent, name)?;
            let found = volume.changeable(node)?;
            let Object::File(file) = found.object else {
                return Err(
                    Error::unsupported(LAYER, "a folder cannot have hard links").named(name)
                );
            };
            if stat::file_kind(&file) != FileKind::File
                || volume.read.links.is_link(&file) != (false, false)
            {
                return Err(
                    Error::unsupported(LAYER, "only regular files can have hard links").named(name),
                );
            }
            if volume.is_nameless(Cnid(file.file_id.get())) {
                return Err(Error::not_found(
                    LAYER,
                    format!("a name of file {}", file.file_id),
                ));
            }
            let mut inode = volume.as_inode(found.parent, &found.name, file)?;
            let count = inode.bsd.special.get();
            if count >= MAX_LINKS {
                return Err(Error::limit(
                    LAYER,
                    format!("the file has the maximum of {count} names"),
                )
                .named(name));
            }
            volume.add_link(&mut inode, parent, &units)?;
            Ok(orphan)
        })?;
        self.reap(orphan, is_open)
    }

    /// Returns true if an entry is a name of this file.
    fn leads_to(&self, there: &Object, file: &LocatedObject) -> bool {
        let number = inode_number(&file.name).unwrap_or(file.object.id().0);
        there.id() == file.object.id()
            || matches!(there, Object::File(link) if self.read.links.is_link(link).0 && link.bsd.special.get() == number)
    }

    /// Moves a file with one name to the private folder and replaces its entry by a link, unless it
    /// is already there.
    fn as_inode(&mut self, parent: Cnid, name: &[U16], mut file: FileRaw) -> Result<FileRaw> {
        let private = self.private_folder()?;
        if parent == private {
            return Ok(file);
        }
        let id = Cnid(file.file_id.get());
        file.flags = (file.flags.get() | record_flags::HAS_LINK_CHAIN).into();
        (file.first_link, file.bsd.special) = (0.into(), 0.into());
        // The folder's dates remain unchanged, because it has the same names as before.
        self.with_dates_of(parent, |volume| {
            volume.transfer(
                (parent, name),
                (private, &inode_name(id)),
                &Object::File(file),
            )?;
            volume.add_link(&mut file, parent, name)
        })?;
        Ok(file)
    }

    /// Inserts a new link at the head of the chain of `inode`.
    fn add_link(&mut self, inode: &mut FileRaw, parent: Cnid, name: &[U16]) -> Result<()> {
        let target = Cnid(inode.file_id.get());
        let Some(found) = self.read.catalog.by_id(target)? else {
            return Err(Error::new(
                Kind::Corrupt,
                LAYER,
                format!("file {target} no longer exists"),
            ));
        };
        let chained = inode.flags.get() & record_flags::HAS_LINK_CHAIN != 0;
        let id = self.next_id()?;
        let next = Some(Cnid(inode.first_link.get())).filter(|next| chained && next.0 != 0);
        let mut link = self.style().link(
            id,
            inode_number(&found.name).map_or(target, Cnid),
            None,
            next,
        );
        if !chained {
            // Old files only count their links, without a chain.
            link.flags = (link.flags.get() & !record_flags::HAS_LINK_CHAIN).into();
        }
        self.insert_object(parent, name, &Object::File(link))?;
        if let Some(next) = next {
            self.change_link(next, |link| link.bsd.owner_id = id.0.into())?;
        }
        if chained {
            inode.first_link = id.0.into();
        }
        inode.bsd.special += 1;
        inode.dates.attribute_mod = self.date_in(inode.flags).into();
        self.put(found.parent, &found.name, &Object::File(*inode))
    }

    /// Removes one name of a file, and deletes the file with its last name.
    pub(super) fn unlink(
        &mut self,
        parent: Cnid,
        name: &[U16],
        link: &FileRaw,
        is_open: IsOpen<'_>,
    ) -> Result<Option<Cnid>> {
        let Some((private, _)) = self.read.links.files_folder() else {
            return Err(Error::new(
                Kind::Corrupt,
                LAYER,
                "a hard link refers to the private folder of hard links, which does not exist: run \
                 `bandsaw repair`",
            ));
        };
        self.remove_object(parent, name, &Object::File(*link))?;
        let units = inode_name(Cnid(link.bsd.special.get()));
        let Some(Object::File(mut inode)) = self.read.catalog.get(private, &units)? else {
            return Ok(None); // a link that led nowhere
        };
        if link.flags.get() & record_flags::HAS_LINK_CHAIN != 0 {
            let (previous, next) = (link.bsd.owner_id, link.bsd.group_id);
            match previous.get() {
                0 => inode.first_link = next,
                id => self.change_link(Cnid(id), |link| link.bsd.group_id = next)?,
            }
            if next.get() != 0 {
                self.change_link(Cnid(next.get()), |link| link.bsd.owner_id = previous)?;
            }
        }
        inode.bsd.special = inode.bsd.special.get().saturating_sub(1).into();
        inode.dates.attribute_mod = self.date_in(inode.flags).into();
        self.put(private, &units, &Object::File(inode))?;
        match inode.bsd.special.get() {
            0 => self.discard(private, &units, inode, is_open),
            _ => Ok(None),
        }
    }

    /// Changes the record of a link in a chain.
    fn change_link(&mut self, id: Cnid, change: impl FnOnce(&mut FileRaw)) -> Result<()> {
        let Some(LocatedObject {
            parent,
            name,
            object: Object::File(mut link),
        }) = self.read.catalog.by_id(id)?
        else {
            return Err(Error::new(
                Kind::Corrupt,
                LAYER,
                format!("link {id} of a chain does not exist; the volume needs repair"),
            ));
        };
        change(&mut link);
        self.put(parent, &name, &Object::File(link))
    }

    /// Returns the private folder of files with several names, which is created if necessary.
    pub(super) fn private_folder(&mut self) -> Result<Cnid> {
        if let Some((id, _)) = self.read.links.files_folder() {
            return Ok(id);
        }
        let id = self.next_id()?;
        let folder = self.style().private_folder(id, 0);
        let created = folder.dates.create.get();
        // Keep the dates of the root folder, because this entry is hidden.
        self.with_dates_of(Cnid::ROOT, |volume| {
            volume.insert_object(Cnid::ROOT, &units(FILES_FOLDER), &Object::Folder(folder))
        })?;
        self.read.links.set_files_folder(id, created);
        Ok(id)
    }

    /// Returns the properties of records that belong to the volume itself.
    fn style(&self) -> RecordStyle {
        let date = self
            .read
            .links
            .files_folder()
            .map_or(self.read.links.root_created(), |(_, created)| created);
        let expanded = self.expanded_times();
        let created = timestamp(date, expanded).unwrap_or(Timestamp::from_seconds(0));
        RecordStyle {
            created,
            latest: None,
            expanded,
            hfsx: self.read.header.variant == Variant::Hfsx,
        }
    }
}
