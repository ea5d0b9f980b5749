//! The file-system interface of a volume.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::btree::{Key, Record};
use super::layout::{
    DirectoryEntryRaw, ENTRY_TYPE_MASK, FileId, KeyRest, RecordKey, XattrValue, mode_type,
    record_type, timestamp, xattr_name,
};
use super::names::NameRules;
use super::object::Object;
use super::volume::{Apfs, corrupt};
use crate::{Attributes, Entry, FileKind, FileSystem, Fork, NodeId, VolumeInfo};
use bandsaw_core::decmpfs::{self, Compression};
use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

/// Receives the name and the record of an entry of a folder.
type EachEntry<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>> + 'a;

const LAYER: &str = "apfs volume";

/// Maximum length of a compression attribute in bytes; longer ones are ignored.
const MAX_COMPRESSION: u64 = 1 << 16;

/// Type of entries that hide an entry of an underlying volume.
const WHITEOUT: u16 = 0xE;

impl Apfs {
    /// Returns the attributes of the object of an entry in folder `dir`; `None` if the entry is
    /// hidden.
    fn entry(&self, dir: FileId, record: &[u8]) -> Result<Option<Attributes>> {
        let Some((entry, _)) = DirectoryEntryRaw::parse(record) else {
            return Err(corrupt(dir, "malformed directory entry"));
        };
        if entry.flags.get() & ENTRY_TYPE_MASK == WHITEOUT {
            return Ok(None);
        }
        let object = self
            .object(entry.file_id.into())
            .map_err(|error| match error.kind() {
                Kind::NotFound => corrupt(
                    dir,
                    format!(
                        "an entry points to object {:#x}, which does not exist",
                        entry.file_id.get()
                    ),
                ),
                _ => error,
            })?;
        // Following a folder from a folder that is not its parent could loop.
        if object.kind() == FileKind::Folder && FileId::from(object.inode.parent_id) != dir {
            let message = format!(
                "its entry is in folder {dir:#x}, but its inode records folder {:#x}",
                object.inode.parent_id.get()
            );
            return Err(corrupt(object.id, message));
        }
        self.attributes_of(&object).map(Some)
    }

    /// Calls `each` with the name and the record of every entry of folder `dir`.
    fn each_entry(&self, dir: FileId, each: &mut EachEntry<'_>) -> Result<()> {
        if self.object(dir)?.kind() != FileKind::Folder {
            return Err(Error::invalid(LAYER, "not a folder").named(format!("object {dir:#x}")));
        }
        let first = self.names.hashed().then_some(0);
        let mut cursor = self
            .files
            .seek(&Key::Record(RecordKey::entry(dir, b"", first)))?;
        while let Some(record) = cursor.next()? {
            let Some(name) = entry_name(&record, dir) else {
                break;
            };
            if each(name, record.value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn attributes_of(&self, object: &Object) -> Result<Attributes> {
        let compression = self.compression(object)?;
        Ok(object.attributes(compression.and_then(|value| Compression::parse(&value))))
    }

    /// Returns the value of the compression attribute of a file, `None` if it is not compressed:
    /// flag and attribute must agree.
    fn compression(&self, object: &Object) -> Result<Option<Vec<u8>>> {
        let Some(xattr) = object.compression() else {
            return Ok(None);
        };
        let value = match (object.compression_value(), xattr.stream) {
            (Some(value), _) => value.to_vec(),
            (None, Some((id, len))) if len <= MAX_COMPRESSION => {
                self.stream(id, len)?.read_vec(0, to_usize(len))?
            }
            _ => return Ok(None),
        };
        Ok(Compression::parse(&value).is_some().then_some(value))
    }

    /// Returns the value of the compression attribute of an object, `None` if it is not compressed.
    pub(super) fn compression_of(&self, node: NodeId) -> Result<Option<Vec<u8>>> {
        self.compression(&self.object(FileId(node.0))?)
    }

    /// Returns the contents of an object, which must be a file.
    fn contents(&self, object: &Object) -> Result<Arc<dyn BlockDevice>> {
        if object.kind() == FileKind::Folder {
            let error = Error::invalid(LAYER, "is a folder, expected a file");
            return Err(error.named(format!("object {:#x}", object.id)));
        }
        if let Some(value) = self.compression(object)? {
            let fork = || self.resource_fork(object.id);
            return decmpfs::contents(&value, fork)
                .map_err(|error| error.named(format!("object {:#x}", object.id)));
        }
        match object.stream {
            Some(stream) => self.stream(object.inode.private_id.into(), stream.size.get()),
            None => Ok(Arc::new(Memory::read_only([]))),
        }
    }

    fn resource_fork(&self, id: FileId) -> Result<Arc<dyn BlockDevice>> {
        let fork = self.xattr_value(id, xattr_name::RESOURCE_FORK)?;
        Ok(fork.unwrap_or_else(|| Arc::new(Memory::read_only([]))))
    }

    /// Returns the value of any attribute, hidden ones included.
    fn xattr_value(&self, id: FileId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        let key = RecordKey::named(id, record_type::XATTR, name.as_bytes());
        let found = self.files.get(&Key::Record(key), |record| {
            Some(match XattrValue::parse(record)? {
                XattrValue::Embedded(value) => Ok(value.to_vec()),
                XattrValue::Stream(at) => Err((at.stream_id.into(), at.stream.size.get())),
            })
        })?;
        match found {
            None => Ok(None),
            Some(None) => Err(corrupt(
                id,
                format!("malformed record of the attribute {name}"),
            )),
            Some(Some(Ok(value))) => Ok(Some(Arc::new(Memory::read_only(value)))),
            Some(Some(Err((stream, len)))) => self.stream(stream, len).map(Some),
        }
    }
}

/// Returns the name in the key of a directory entry of folder `dir`; `None` if it is another
/// record.
fn entry_name<'r>(record: &Record<'r>, dir: FileId) -> Option<&'r [u8]> {
    match record.key {
        Key::Record(RecordKey {
            id,
            kind: record_type::DIRECTORY_ENTRY,
            rest: KeyRest::Name(name) | KeyRest::Hashed(_, name),
        }) if id == dir => Some(name),
        _ => None,
    }
}

/// Returns a name as programs see it: slashes, which no valid volume has in names, become colons.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace('/', ":")
}

impl FileSystem for Apfs {
    fn volume(&self) -> VolumeInfo {
        let (raw, size) = (&self.raw, self.container.store.block_size);
        let bytes = |blocks: u64| size.of(blocks).unwrap_or(u64::MAX);
        let room = self.container.free_blocks();
        let (total, free) = match raw.quota_blocks.get() {
            0 => (self.container.store.blocks, room),
            quota => (
                quota,
                room.min(quota.saturating_sub(raw.allocated_blocks.get())),
            ),
        };
        VolumeInfo {
            format: "APFS",
            name: raw.label(),
            uuid: Some(raw.uuid()),
            case_sensitive: self.names != NameRules::CaseInsensitive,
            journaled: false,
            clean: true,
            holes: true,
            block_size: size.get(),
            total: bytes(total),
            free: bytes(free),
            // A quota applies to the blocks that the volume owns, which exclude pending ones.
            pending: if raw.quota_blocks.get() == 0 {
                self.container.pending()
            } else {
                0
            },
            files: raw.files.get(),
            folders: raw.folders.get(),
            created: timestamp(raw.formatted_by.time),
            modified: timestamp(raw.last_modified),
        }
    }

    fn root(&self) -> NodeId {
        NodeId(FileId::ROOT.0)
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        let dir = FileId(dir.0);
        let Some(hash) = self.names.hash(name) else {
            let key = Key::Record(RecordKey::entry(dir, name.as_bytes(), None));
            let found = self.files.get(&key, <[u8]>::to_vec)?;
            return Ok(found
                .map(|record| self.entry(dir, &record))
                .transpose()?
                .flatten());
        };
        let found = self
            .names
            .find(&self.files, dir, (name, hash), |_, value| {
                self.entry(dir, value)
            })?;
        Ok(found.flatten())
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        self.attributes_of(&self.object(FileId(node.0))?)
    }

    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.each_entry(FileId(dir.0), &mut |name, record| match self
            .entry(FileId(dir.0), record)?
        {
            Some(attributes) => each(Entry {
                name: shown(name),
                attributes,
            }),
            None => Ok(ControlFlow::Continue(())),
        })
    }

    fn list_names(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(&str, FileKind) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.each_entry(FileId(dir.0), &mut |name, record| {
            let Some((entry, _)) = DirectoryEntryRaw::parse(record) else {
                return Err(corrupt(FileId(dir.0), "malformed directory entry"));
            };
            match entry.flags.get() & ENTRY_TYPE_MASK {
                WHITEOUT => Ok(ControlFlow::Continue(())),
                kind => each(&shown(name), mode_type::kind_of(kind << 12)),
            }
        })
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        let object = self.object(FileId(node.0))?;
        match fork {
            Fork::Data => self.contents(&object),
            // The resource fork holds the compressed contents and is not visible.
            Fork::Resource if self.compression(&object)?.is_some() => {
                Ok(Arc::new(Memory::read_only([])))
            }
            Fork::Resource => self.resource_fork(object.id),
        }
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        let object = self.object(FileId(node.0))?;
        let Some(target) = object.link_target() else {
            return Err(Error::invalid(LAYER, "not a symbolic link")
                .named(format!("object {:#x}", object.id)));
        };
        Ok(String::from_utf8_lossy(target).into_owned())
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        let object = self.object(FileId(node.0))?;
        let mut names: Vec<_> = object
            .xattrs
            .iter()
            .filter(|xattr| !xattr.is_hidden())
            .map(|xattr| xattr.name.clone())
            .collect();
        // The attributes that store compressed contents are not visible.
        if self.compression(&object)?.is_some() {
            names.retain(|name| name != decmpfs::ATTRIBUTE && name != xattr_name::RESOURCE_FORK);
        }
        Ok(names)
    }

    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        let object = self.object(FileId(node.0))?;
        match object.xattr(name) {
            Some(xattr) if !xattr.is_hidden() => self.xattr_value(object.id, name),
            _ => Ok(None),
        }
    }
}
