//! The file system interface of a volume.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::layout::{FILE_LOCKED, FINDER_INVISIBLE, LAYER, Object, cnid, timestamp};
use super::{HfsVolume, names};
use crate::{
    Attributes, Entry, FINDER_INFO, FileKind, FileSystem, Fork, NodeId, RESOURCE_FORK, UF_HIDDEN,
    UF_IMMUTABLE, VolumeInfo,
};
use bandsaw_core::device::{BlockDevice, Memory};
use bandsaw_core::{Error, Result};

impl FileSystem for HfsVolume {
    fn volume(&self) -> VolumeInfo {
        let (header, raw) = (&self.header, &self.header.raw);
        VolumeInfo {
            format: "HFS",
            name: names::decode(header.name()),
            uuid: None,
            case_sensitive: false,
            journaled: false,
            clean: header.is_clean(),
            holes: false,
            block_size: header.block_size,
            total: header.bytes(header.total_blocks),
            free: header.bytes(header.free_blocks),
            pending: 0,
            files: raw.file_count.get().into(),
            folders: raw.folder_count.get().into(),
            created: timestamp(raw.create_date),
            modified: timestamp(raw.modify_date),
        }
    }

    fn root(&self) -> NodeId {
        NodeId(cnid::ROOT.into())
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        let (Ok(dir), Some(name)) = (u32::try_from(dir.0), names::encode(name)) else {
            return Ok(None);
        };
        Ok(self.catalog.get(dir, &name)?.as_ref().map(attributes))
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        Ok(attributes(&self.object(node)?))
    }

    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let missing = |_| Error::not_found(LAYER, format!("folder {}", dir.0));
        let dir = u32::try_from(dir.0).map_err(missing)?;
        self.catalog.children(dir, |name, object| {
            if matches!(object, Object::Folder(_)) {
                self.catalog.check_thread(dir, object.id())?;
            }
            each(Entry {
                name: names::decode(name),
                attributes: attributes(&object),
            })
        })
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        Ok(Arc::new(self.fork(&self.file(node)?, fork)?))
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        let message = "expected a symbolic link, which HFS does not have";
        Err(Error::invalid(LAYER, message).named(format!("object {}", node.0)))
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        let object = self.object(node)?;
        let has_info = object.finder_info().is_some();
        let has_resources = attributes(&object).resource_size != 0;
        let names = [(FINDER_INFO, has_info), (RESOURCE_FORK, has_resources)];
        let names = names.into_iter().filter(|(_, exists)| *exists);
        Ok(names.map(|(name, _)| name.to_owned()).collect())
    }

    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        let object = self.object(node)?;
        Ok(match (name, &object) {
            (FINDER_INFO, object) => object
                .finder_info()
                .map(|bytes| Arc::new(Memory::read_only(bytes)) as Arc<dyn BlockDevice>),
            (RESOURCE_FORK, Object::File(file)) if file.resource.logical_size.get() != 0 => {
                Some(Arc::new(self.fork(file, Fork::Resource)?))
            }
            _ => None,
        })
    }
}

/// Returns the attributes in an object's record. Dates have no time zone (§6), and the date of the last
/// change counts for the contents.
fn attributes(object: &Object) -> Attributes {
    let dates = object.dates();
    let mut attributes = Attributes {
        created: timestamp(dates.create),
        modified: timestamp(dates.modify),
        backed_up: timestamp(dates.backup),
        ..Attributes::plain(NodeId(object.id().into()), FileKind::Folder)
    };
    if object.finder_flags() & FINDER_INVISIBLE != 0 {
        attributes.flags |= UF_HIDDEN;
    }
    match object {
        Object::Folder(folder) => attributes.size = folder.valence.get().into(),
        Object::File(file) => {
            let (data, resource) = (&file.data, &file.resource);
            attributes.kind = FileKind::File;
            attributes.size = data.logical_size.get().into();
            attributes.allocated =
                u64::from(data.physical_size.get()) + u64::from(resource.physical_size.get());
            attributes.resource_size = resource.logical_size.get().into();
            attributes.mode = 0o644;
            if file.flags & FILE_LOCKED != 0 {
                attributes.flags |= UF_IMMUTABLE;
            }
        }
    }
    attributes
}
