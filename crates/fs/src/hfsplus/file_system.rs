//! The file system interface of a volume.

use std::ops::ControlFlow;
use std::sync::Arc;

use md5::{Digest, Md5};
use uuid::{Builder, Uuid};
use zerocopy::big_endian::U16;

use super::catalog::Object;
use super::extents::Owner;
use super::layout::{Cnid, Variant, fork_type, timestamp, volume_attributes};
use super::unicode::{NameOrder, encode_name, encode_verbatim};
use super::{HfsPlus, LAYER, stat};
use crate::{
    Attributes, Entry, FINDER_INFO, FileKind, FileSystem, Fork, NodeId, RESOURCE_FORK, VolumeInfo,
};
use bandsaw_core::decmpfs;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Result};

/// Maximum length of a symbolic link's target in bytes. No system follows longer ones.
const MAX_LINK_TARGET: u64 = 4096;

impl FileSystem for HfsPlus {
    fn volume(&self) -> VolumeInfo {
        let (raw, block_size) = (&self.header.raw, self.header.block_size);
        let expanded = self.header.has(volume_attributes::EXPANDED_TIMES);
        VolumeInfo {
            format: match self.header.variant {
                Variant::HfsPlus => "HFS+",
                Variant::Hfsx => "HFSX",
            },
            name: self.label.clone(),
            uuid: volume_uuid(raw.identifier.get()),
            case_sensitive: self.catalog.name_order() == NameOrder::Binary,
            journaled: self.header.has(volume_attributes::JOURNALED),
            clean: self.clean,
            holes: false,
            block_size,
            total: u64::from(self.header.total_blocks) * u64::from(block_size),
            free: u64::from(self.header.free_blocks) * u64::from(block_size),
            pending: 0,
            files: raw
                .file_count
                .get()
                .saturating_sub(self.links.hidden_files())
                .into(),
            folders: raw.folder_count.get().into(),
            created: self.created,
            modified: timestamp(raw.modify_date.get(), expanded),
        }
    }

    fn root(&self) -> NodeId {
        NodeId(Cnid::ROOT.0.into())
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        let Ok(dir) = u32::try_from(dir.0).map(Cnid) else {
            return Ok(None);
        };
        let mut units: Vec<U16> = Vec::with_capacity(name.len());
        if encode_name(name, &mut units).is_err() {
            return Ok(None); // a name that cannot be on disk
        }
        let mut object = self.catalog.get(dir, &units)?;
        if object.is_none() && !name.is_ascii() {
            // Other systems may have written the name composed.
            units.clear();
            encode_verbatim(name, &mut units);
            object = self.catalog.get(dir, &units)?;
        }
        let hidden = |object: &Object| dir == Cnid::ROOT && self.links.is_hidden(object.id());
        let Some(object) = object.filter(|object| !hidden(object)) else {
            return Ok(None);
        };
        Ok(Some(self.attributes_of(&self.follow(dir, object)?)?))
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        self.attributes_of(&self.object(node)?)
    }

    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let missing = |_| Error::not_found(LAYER, format!("folder {}", dir.0));
        let dir = u32::try_from(dir.0).map(Cnid).map_err(missing)?;
        self.catalog.children(dir, None, |name, object| {
            match self.entry(dir, name, object)? {
                Some(entry) => each(entry),
                None => Ok(ControlFlow::Continue(())),
            }
        })
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        let resolved = self.object(node)?;
        let file = resolved.file()?;
        let id = resolved.object.id();
        match (fork, self.compression(&resolved.object)?) {
            (Fork::Data, Some(value)) => {
                let named = |error: Error| error.named(format!("object {id}"));
                return decmpfs::contents(&value, || self.resource_fork(file)).map_err(named);
            }
            // The resource fork holds the compressed contents, so it is hidden.
            (Fork::Resource, Some(_)) => return Ok(Arc::new(Memory::read_only([]))),
            (Fork::Resource, None) => return self.resource_fork(file),
            (Fork::Data, None) => {}
        }
        self.fork_device(&file.data_fork, &Owner::Data(id), id, fork_type::DATA)
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        let resolved = self.object(node)?;
        let (id, file) = (resolved.object.id(), resolved.file()?);
        let len = file.data_fork.logical_size.get();
        if stat::file_kind(file) != FileKind::Symlink || len > MAX_LINK_TARGET {
            let message = format!(
                "symbolic link is too long: the maximum is {MAX_LINK_TARGET} \
                                   bytes"
            );
            return Err(Error::invalid(LAYER, message).named(format!("object {id}")));
        }
        let device = self.fork_device(&file.data_fork, &Owner::Data(id), id, fork_type::DATA)?;
        let target = device.read_vec(0, to_usize(len))?;
        Ok(String::from_utf8_lossy(&target).into_owned())
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        let resolved = self.object(node)?;
        let mut names = Vec::new();
        if stat::finder_info(&resolved.object).is_some() {
            names.push(FINDER_INFO.to_owned());
        }
        let compressed = self.compression(&resolved.object)?.is_some();
        if let Object::File(file) = &resolved.object
            && file.resource_fork.logical_size.get() != 0
            && !compressed
        {
            names.push(RESOURCE_FORK.to_owned());
        }
        names.extend(self.attributes.names(resolved.object.id())?);
        // Hide the attribute that describes the compression.
        names.retain(|name| !compressed || name != decmpfs::ATTRIBUTE);
        Ok(names)
    }

    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        let resolved = self.object(node)?;
        match (name, &resolved.object) {
            (FINDER_INFO, object) => Ok(stat::finder_info(object)
                .map(|bytes| Arc::new(Memory::read_only(bytes)) as Arc<dyn BlockDevice>)),
            (RESOURCE_FORK, Object::File(file)) if file.resource_fork.logical_size.get() != 0 => {
                self.resource_fork(file).map(Some)
            }
            (RESOURCE_FORK, _) => Ok(None),
            (_, object) => self.attributes.open(&self.space, object.id(), name),
        }
    }
}

fn volume_uuid(identifier: u64) -> Option<Uuid> {
    /// Apple's namespace for volume identifiers.
    const NAMESPACE: Uuid = Uuid::from_u128(0xB3E2_0F39_F292_11D6_97A4_0030_6543_ECAC);
    (identifier != 0).then(|| {
        let hash = Md5::new()
            .chain_update(NAMESPACE)
            .chain_update(identifier.to_be_bytes())
            .finalize();
        Builder::from_md5_bytes(hash.into()).into_uuid()
    })
}
