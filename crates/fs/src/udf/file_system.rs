//! The file system interface of a volume.
//!
//! The number of an object is the place of its ICB: the block in the low 32 bits, and the index of the
//! partition, from 1, above them.

use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

use super::attributes::FileExtras;
use super::directory::{DirectoryItem, DirectoryReader, FoundName};
use super::extents::open_contents;
use super::icb::UdfFile;
use super::layout::{file_type, icb_flags};
use super::space::BlockAddress;
use super::symlink::{self, MAX_LINK};
use super::{LAYER, UdfVolume};
use crate::{
    Attributes, Entry, FINDER_INFO, FileKind, FileSystem, Fork, NodeId, RESOURCE_FORK, UF_HIDDEN,
    UNKNOWN_OWNER, VolumeInfo,
};

/// Maximum number of bytes of a directory in which entries are counted.
const MAX_COUNTED: u64 = 1 << 20;

/// Returns the number of the object with an ICB.
pub(super) fn node_of(icb: BlockAddress) -> NodeId {
    NodeId((u64::from(icb.partition) + 1) << 32 | u64::from(icb.block))
}

/// Returns the ICB of an object. `None`: no object has this number.
fn icb_of_node(node: NodeId) -> Option<BlockAddress> {
    let partition = (node.0 >> 32).checked_sub(1)?;
    Some(BlockAddress {
        partition: u16::try_from(partition).ok()?,
        block: u32::try_from(node.0 & u64::from(u32::MAX)).ok()?,
    })
}

/// Returns the kind of an object by the type of its file entry. `None`: no object of a directory has it.
pub(super) fn kind_of(file: &UdfFile) -> Option<FileKind> {
    Some(match file.icb.kind {
        file_type::DIRECTORY => FileKind::Folder,
        file_type::UNKNOWN | file_type::FILE | file_type::REAL_TIME => FileKind::File,
        file_type::SYMLINK => FileKind::Symlink,
        file_type::FIFO => FileKind::Fifo,
        file_type::SOCKET => FileKind::Socket,
        file_type::CHAR_DEVICE => FileKind::CharDevice,
        file_type::BLOCK_DEVICE => FileKind::BlockDevice,
        _ => return None,
    })
}

/// Returns the permission bits of a file entry in the order of POSIX.
fn mode_of(file: &UdfFile) -> u16 {
    let bits = |shift: u32| {
        let bits = file.permissions >> shift;
        let bit = |from: u32, to: u16| if bits & from != 0 { to } else { 0 };
        bit(4, 4) | bit(2, 2) | bit(1, 1)
    };
    let flags = file.icb.flags.get();
    let flag = |from: u16, to: u16| if flags & from != 0 { to } else { 0 };
    bits(10) << 6
        | bits(5) << 3
        | bits(0)
        | flag(icb_flags::SETUID, 0o4000)
        | flag(icb_flags::SETGID, 0o2000)
        | flag(icb_flags::STICKY, 0o1000)
}

impl UdfVolume {
    /// Reads the file entry of an object.
    fn file(&self, node: NodeId) -> Result<UdfFile> {
        let icb = icb_of_node(node);
        let known = icb.filter(|icb| usize::from(icb.partition) < self.space.partitions.len());
        let icb = known.ok_or_else(|| Error::not_found(LAYER, format!("object {}", node.0)))?;
        UdfFile::read(&self.space, icb)
    }

    /// Calls `each` for the names of a directory, without those that are deleted and that of the parent.
    /// Damage is returned after all names that can be read.
    pub(super) fn walk(
        &self,
        directory: &UdfFile,
        each: &mut dyn FnMut(FoundName) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut reader = DirectoryReader::new(&self.space, directory)?;
        let mut failed = None;
        while let Some(item) = reader.read_next()? {
            match item {
                DirectoryItem::Unreadable(error) => failed = failed.or(Some(error)),
                DirectoryItem::Name(found) if found.is_shown() => {
                    if each(found)?.is_break() {
                        return Ok(());
                    }
                }
                DirectoryItem::Name(_) => {}
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Returns the attributes of a name. An object that cannot be read is described by the name: an error
    /// follows when it is opened.
    fn entry_attributes(&self, found: &FoundName) -> Result<Attributes> {
        let unreadable = |icb: Option<BlockAddress>| {
            let kind = match found.is_directory() {
                true => FileKind::Folder,
                false => FileKind::File,
            };
            // No object has the number 0.
            Attributes::plain(icb.map_or(NodeId(0), node_of), kind)
        };
        let Some(icb) = found.icb else {
            return Ok(unreadable(None));
        };
        let read = UdfFile::read(&self.space, icb)
            .and_then(|file| self.attributes_of(node_of(icb), &file));
        match read {
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => {
                Ok(unreadable(Some(icb)))
            }
            other => other,
        }
    }

    fn attributes_of(&self, id: NodeId, file: &UdfFile) -> Result<Attributes> {
        let kind = kind_of(file).ok_or_else(|| {
            let message = format!("files of type {} are not supported", file.icb.kind);
            Error::unsupported(LAYER, message).at(file.offset)
        })?;
        // Damage of these is an error of those who read them.
        let extras = forgive(FileExtras::read(&self.space, file))?;
        let is_whole = extras.is_some();
        let extras = extras.unwrap_or_default();
        let resource = forgive(extras.resource_len(&self.space))?;
        let (resource_size, resource_allocated) = resource.unwrap_or_default();
        let size = match kind {
            FileKind::Folder => self.count(file)?,
            FileKind::Symlink => {
                forgive(self.link_target(file))?.map_or(file.len, |target| target.len() as u64)
            }
            FileKind::File => file.len,
            _ => 0,
        };
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        let owner = |id: u32| if id == u32::MAX { UNKNOWN_OWNER } else { id };
        let allocated = file.blocks.saturating_mul(self.space.block_size);
        Ok(Attributes {
            size,
            allocated: allocated.saturating_add(resource_allocated),
            resource_size,
            mode: mode_of(file),
            uid: owner(file.uid),
            gid: owner(file.gid),
            links: match kind {
                FileKind::Folder => 1,
                _ => u32::from(file.links).max(1),
            },
            device: extras.device * u32::from(is_device),
            flags: if extras.is_invisible() { UF_HIDDEN } else { 0 },
            created: file.created.and_then(|time| time.get()).or(extras.created),
            modified: file.modified.get(),
            changed: file.changed.get(),
            accessed: file.accessed.get(),
            has_xattrs: !is_whole || !extras.streams.is_empty(),
            ..Attributes::plain(id, kind)
        })
    }

    /// Returns the number of names of a directory, or of the first megabyte of a longer one.
    fn count(&self, directory: &UdfFile) -> Result<u64> {
        let Some(mut reader) = forgive(DirectoryReader::new(&self.space, directory))? else {
            return Ok(0);
        };
        let mut count = 0;
        // Damage is an error of those who list the names.
        while let Some(Some(item)) = forgive(reader.read_next())? {
            if let DirectoryItem::Name(found) = item {
                count += u64::from(found.is_shown());
                if found.offset >= MAX_COUNTED {
                    break;
                }
            }
        }
        Ok(count)
    }

    fn link_target(&self, file: &UdfFile) -> Result<String> {
        if file.icb.kind != file_type::SYMLINK {
            let message = "expected a symbolic link";
            return Err(Error::invalid(LAYER, message).at(file.offset));
        }
        if file.len > MAX_LINK {
            let message = format!("a symbolic link has more than {MAX_LINK} bytes");
            return Err(Error::corrupt(LAYER, file.offset, message));
        }
        let bytes = open_contents(&self.space, file)?.read_vec(0, to_usize(file.len))?;
        symlink::target(&bytes).ok_or_else(|| {
            let message = "the target of a symbolic link is malformed";
            Error::corrupt(LAYER, file.offset, message)
        })
    }
}

/// Returns `None` for damage.
fn forgive<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), Kind::Io | Kind::Cancelled) => Err(error),
        Err(_) => Ok(None),
    }
}

impl FileSystem for UdfVolume {
    fn volume(&self) -> VolumeInfo {
        self.info.clone()
    }

    fn root(&self) -> NodeId {
        node_of(self.root)
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        let mut found = None;
        let walked = self.walk(&self.file(dir)?, &mut |entry| {
            if entry.name != name {
                return Ok(ControlFlow::Continue(()));
            }
            found = Some(entry);
            Ok(ControlFlow::Break(()))
        });
        match found {
            Some(found) => self.entry_attributes(&found).map(Some),
            None => walked.map(|()| None),
        }
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        self.attributes_of(node, &self.file(node)?)
    }

    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.walk(&self.file(dir)?, &mut |found| {
            let attributes = self.entry_attributes(&found)?;
            each(Entry {
                name: found.name,
                attributes,
            })
        })
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        let file = self.file(node)?;
        match fork {
            Fork::Data if kind_of(&file) == Some(FileKind::File) => {
                Ok(Arc::new(open_contents(&self.space, &file)?))
            }
            Fork::Data => {
                let message = format!("expected a file, found a file of type {}", file.icb.kind);
                Err(Error::invalid(LAYER, message).at(file.offset))
            }
            Fork::Resource => {
                let extras = FileExtras::read(&self.space, &file)?;
                let fork = extras.open_resource(&self.space)?;
                Ok(fork.unwrap_or_else(|| Arc::new(Memory::read_only([]))))
            }
        }
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        self.link_target(&self.file(node)?)
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        let extras = FileExtras::read(&self.space, &self.file(node)?)?;
        let mut names = Vec::new();
        if extras.finder.is_some() {
            names.push(FINDER_INFO.to_owned());
        }
        if extras.resource_len(&self.space)?.0 > 0 {
            names.push(RESOURCE_FORK.to_owned());
        }
        names.extend(extras.streams.into_iter().map(|(name, _)| name));
        Ok(names)
    }

    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        let extras = FileExtras::read(&self.space, &self.file(node)?)?;
        match name {
            FINDER_INFO => Ok(extras
                .finder
                .map(|info| Arc::new(Memory::read_only(info)) as Arc<dyn BlockDevice>)),
            RESOURCE_FORK => extras.open_resource(&self.space),
            _ => {
                let found = extras.streams.iter().find(|(known, _)| known == name);
                let Some((_, icb)) = found else {
                    return Ok(None);
                };
                let stream = UdfFile::read(&self.space, *icb)?;
                Ok(Some(Arc::new(open_contents(&self.space, &stream)?)))
            }
        }
    }
}
