//! The file system interface of a volume.
//!
//! The number of a folder is the byte at which its directory begins, that of any other object the byte
//! at which its first record begins.

use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, Memory};
use bandsaw_core::{Error, Kind, Result};

use super::apple::{self, FinderType};
use super::contents::join_sections;
use super::directory::{Directory, EntryRecords};
use super::layout::{self, Record, RecordRaw, flags};
use super::rock_ridge::RockRidge;
use super::{IsoVolume, LAYER};
use crate::{
    Attributes, Entry, FINDER_INFO, FileKind, FileSystem, Fork, NodeId, RESOURCE_FORK, UF_HIDDEN,
    UNKNOWN_OWNER, VolumeInfo, mode_type,
};

/// Maximum number of bytes of a directory in which entries are counted.
const MAX_COUNTED: u64 = 1 << 20;

/// An entry of a directory.
#[derive(Debug)]
pub(super) struct FoundEntry {
    pub(super) records: EntryRecords,
    rock_ridge: RockRidge,
    /// The byte at which the directory begins, if it is a folder.
    pub(super) folder: Option<u64>,
}

impl FoundEntry {
    fn kind(&self) -> FileKind {
        let mode = self.rock_ridge.posix.map(|posix| posix.mode);
        match (self.folder, mode.map(mode_type::kind_of)) {
            (Some(_), _) => FileKind::Folder,
            (None, Some(FileKind::Folder) | None) => FileKind::File,
            (None, Some(kind)) => kind,
        }
    }
}

impl IsoVolume {
    /// Calls `each` for the entries of a directory with their names, without those of the directory
    /// itself, of its parent, and of directories that are shown in another place.
    pub(super) fn walk(
        &self,
        directory: &Directory,
        each: &mut dyn FnMut(String, FoundEntry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut entries = self.entries_of(directory);
        while let Some(records) = entries.read_next()? {
            if records.record.is_link_to_directory() {
                continue;
            }
            let found = self.found(records)?;
            if found.rock_ridge.is_moved {
                continue;
            }
            let name = self.naming.name(&found.records.record, &found.rock_ridge);
            if each(name, found)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn found(&self, records: EntryRecords) -> Result<FoundEntry> {
        let rock_ridge = self
            .rock_ridge(&records.record)
            .map_err(|error| error.at(records.offset))?;
        let raw = &records.record.raw;
        let own = raw.is_directory().then(|| raw.first_block());
        let block = rock_ridge.moved_to.map(u64::from).or(own);
        Ok(FoundEntry {
            folder: block.map(|block| self.space.offset(block)),
            rock_ridge,
            records,
        })
    }

    /// Returns the object that is not a folder.
    fn file(&self, node: NodeId) -> Result<FoundEntry> {
        let found = self.found(self.entry_at(node.0)?)?;
        match found.folder {
            None => Ok(found),
            Some(_) => {
                let message = "expected a file, found a folder";
                Err(Error::invalid(LAYER, message).at(node.0))
            }
        }
    }

    /// Returns true if a folder has this number.
    fn is_folder(&self, node: NodeId) -> bool {
        node.0 == self.root || self.directory(node.0).is_ok()
    }

    /// Returns the attributes of an entry. A folder that cannot be read is described by its record.
    fn entry_attributes(&self, found: &FoundEntry) -> Result<Attributes> {
        let Some(start) = found.folder else {
            return Ok(self.file_attributes(found));
        };
        match self.directory(start) {
            Ok(directory) => self.folder_attributes(&directory),
            Err(error) if error.kind() == Kind::Corrupt => {
                Ok(self.attributes_of(NodeId(start), &found.records.record, &found.rock_ridge))
            }
            Err(error) => Err(error),
        }
    }

    fn folder_attributes(&self, directory: &Directory) -> Result<Attributes> {
        let rock_ridge = self
            .rock_ridge_of(directory)
            .map_err(|error| error.at(directory.start))?;
        let node = NodeId(directory.start);
        Ok(Attributes {
            size: self.count(directory)?,
            allocated: directory.len.next_multiple_of(self.space.block_size),
            ..self.attributes_of(node, &directory.record, &rock_ridge)
        })
    }

    /// Returns the number of entries of a directory, or of the first megabyte of a longer one.
    fn count(&self, directory: &Directory) -> Result<u64> {
        let counted = Directory {
            start: directory.start,
            len: directory.len.min(MAX_COUNTED),
            record: directory.record.clone(),
        };
        let (mut entries, mut count) = (self.entries_of(&counted), 0);
        loop {
            match entries.read_next() {
                Ok(Some(entry)) => {
                    let is_hidden = entry.record.is_link_to_directory()
                        || self.rock_ridge(&entry.record).is_ok_and(|of| of.is_moved);
                    count += u64::from(!is_hidden);
                }
                // Damage is an error of those who list the entries.
                Ok(None) => return Ok(count),
                Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Limit) => {
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn file_attributes(&self, found: &FoundEntry) -> Attributes {
        let records = &found.records;
        let kind = found.kind();
        let size = match (kind, found.rock_ridge.target()) {
            (FileKind::Symlink, Some(target)) => target.len() as u64,
            _ => length(&records.data),
        };
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        Attributes {
            kind,
            size,
            allocated: self.allocated(&records.data) + self.allocated(&records.resource),
            resource_size: length(&records.resource),
            device: found.rock_ridge.device * u32::from(is_device),
            ..self.attributes_of(NodeId(records.offset), &records.record, &found.rock_ridge)
        }
    }

    fn allocated(&self, sections: &[RecordRaw]) -> u64 {
        let whole = |section: &RecordRaw| {
            u64::from(section.size.get()).next_multiple_of(self.space.block_size)
        };
        sections.iter().map(whole).sum()
    }

    /// Returns the attributes that are alike for all objects, of a folder without sizes.
    fn attributes_of(&self, id: NodeId, record: &Record, extra: &RockRidge) -> Attributes {
        let is_folder = record.raw.is_directory() || extra.moved_to.is_some();
        let finder_flags = self.finder_type(record).map_or(0, |found| found.flags);
        let is_hidden =
            record.raw.flags & flags::HIDDEN != 0 || finder_flags & apple::INVISIBLE != 0;
        Attributes {
            id,
            kind: FileKind::Folder,
            size: 0,
            allocated: 0,
            resource_size: 0,
            mode: match (extra.posix, is_folder) {
                (Some(posix), _) => posix.mode & 0o7777,
                (None, true) => 0o755,
                (None, false) => 0o644,
            },
            uid: extra.posix.map_or(UNKNOWN_OWNER, |posix| posix.uid),
            gid: extra.posix.map_or(UNKNOWN_OWNER, |posix| posix.gid),
            // Each name of a file has a record of its own.
            links: 1,
            device: 0,
            flags: if is_hidden { UF_HIDDEN } else { 0 },
            created: extra.created,
            modified: extra.modified.or(layout::short_date(record.raw.date)),
            changed: extra.changed,
            accessed: extra.accessed,
            backed_up: extra.backed_up,
            has_xattrs: false,
        }
    }

    fn finder_type(&self, record: &Record) -> Option<FinderType> {
        FinderType::of(record, self.skip)
    }

    /// Returns Finder info and the sections of the resource fork of an object.
    fn apple_parts(&self, node: NodeId) -> Result<(Option<FinderType>, Vec<RecordRaw>)> {
        if self.is_folder(node) {
            let record = self.directory(node.0)?.record;
            return Ok((self.finder_type(&record), Vec::new()));
        }
        let records = self.file(node)?.records;
        Ok((self.finder_type(&records.record), records.resource))
    }
}

/// Returns the length of a file in bytes.
fn length(sections: &[RecordRaw]) -> u64 {
    sections
        .iter()
        .map(|section| u64::from(section.size.get()))
        .sum()
}

impl FileSystem for IsoVolume {
    fn volume(&self) -> VolumeInfo {
        self.info.clone()
    }

    fn root(&self) -> NodeId {
        NodeId(self.root)
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        let (mut exact, mut similar) = (None, None);
        self.walk(&self.directory(dir.0)?, &mut |found_name, found| {
            if found_name == name {
                exact = Some(found);
                return Ok(ControlFlow::Break(()));
            }
            if similar.is_none()
                && !self.naming.is_case_sensitive()
                && found_name.eq_ignore_ascii_case(name)
            {
                similar = Some(found);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let found = exact.or(similar);
        found.map(|found| self.entry_attributes(&found)).transpose()
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        match self.is_folder(node) {
            true => self.folder_attributes(&self.directory(node.0)?),
            false => Ok(self.file_attributes(&self.file(node)?)),
        }
    }

    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.walk(&self.directory(dir.0)?, &mut |name, found| {
            let attributes = self.entry_attributes(&found)?;
            each(Entry { name, attributes })
        })
    }

    fn list_names(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(&str, FileKind) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.walk(&self.directory(dir.0)?, &mut |name, found| {
            each(&name, found.kind())
        })
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        let found = self.file(node)?;
        let sections = match fork {
            Fork::Data => {
                if let Some(encoding) = found.rock_ridge.encoding {
                    let message = format!("{encoding} are not supported");
                    return Err(Error::unsupported(LAYER, message).at(node.0));
                }
                found.records.data
            }
            Fork::Resource => found.records.resource,
        };
        Ok(Arc::new(join_sections(&self.space, &sections)?))
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        let found = self.file(node)?;
        match (found.kind(), found.rock_ridge.target()) {
            (FileKind::Symlink, Some(target)) => Ok(String::from_utf8_lossy(target).into_owned()),
            _ => {
                let message = "expected a symbolic link with a target";
                Err(Error::invalid(LAYER, message).at(node.0))
            }
        }
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        let (finder, resource) = self.apple_parts(node)?;
        let mut names = Vec::new();
        if finder.and_then(FinderType::finder_info).is_some() {
            names.push(FINDER_INFO.to_owned());
        }
        if length(&resource) > 0 {
            names.push(RESOURCE_FORK.to_owned());
        }
        Ok(names)
    }

    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        let (finder, resource) = self.apple_parts(node)?;
        match name {
            FINDER_INFO => Ok(finder
                .and_then(FinderType::finder_info)
                .map(|bytes| Arc::new(Memory::read_only(bytes)) as Arc<dyn BlockDevice>)),
            RESOURCE_FORK if length(&resource) > 0 => {
                Ok(Some(Arc::new(join_sections(&self.space, &resource)?)))
            }
            _ => Ok(None),
        }
    }
}
