//! The file system interface of a volume.
//!
//! The number of an object is the byte of the volume at which its entry begins, a multiple of 32. The
//! root directory has no entry, and number 1.

use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::{Error, Kind, Result};
use zerocopy::FromBytes;

use super::directory::FatEntry;
use super::layout::{ShortEntryRaw, Width, attributes, first_byte};
use super::{FatVolume, LAYER, free_map, missing};
use crate::clusters::{ClusterContents, DirectoryPlace, ENTRY_LEN, same_but_case};
use crate::{
    Attributes, Entry, FileKind, FileSystem, Fork, FreeMap, NodeId, UF_HIDDEN, UF_IMMUTABLE,
    VolumeInfo,
};

/// Number of the root directory.
const ROOT: NodeId = NodeId(1);

impl FatVolume {
    /// Returns the entry with a number.
    pub(super) fn entry(&self, node: NodeId) -> Result<FatEntry> {
        let offset = node.0;
        let in_root = self.boot.root_range.contains(&offset);
        let is_place = offset.is_multiple_of(ENTRY_LEN as u64)
            && (in_root || self.space.cluster_at(offset).is_some());
        if !is_place {
            return Err(missing(offset));
        }
        let bytes = self.space.device.read_array::<ENTRY_LEN>(offset)?;
        let raw = ShortEntryRaw::read_from_bytes(&bytes).map_err(|_| missing(offset))?;
        let is_entry = !matches!(raw.name[0], first_byte::END | first_byte::DELETED)
            && raw.attributes & attributes::LABEL == 0
            && !raw.is_dot();
        match is_entry {
            true => Ok(FatEntry {
                offset,
                raw,
                name: String::new(),
                slot: 0,
                parts: 0,
            }),
            false => Err(missing(offset)),
        }
    }

    /// Returns the place of the folder with a number.
    fn folder(&self, node: NodeId) -> Result<DirectoryPlace> {
        if node == ROOT {
            return Ok(self.root.clone());
        }
        let entry = self.entry(node)?;
        match entry.raw.is_directory() {
            true => self.place_of(&entry),
            false => Err(Error::invalid(LAYER, "expected a folder, found a file").at(node.0)),
        }
    }

    /// Returns the number of entries and of bytes of a directory; of a long one, of its first part. One that
    /// cannot be read has those before the damage.
    fn measure(&self, place: &DirectoryPlace) -> Result<(u64, u64)> {
        let mut count = 0;
        let walked = self.walk(&place.counted(), &mut |_| {
            count += 1;
            Ok(ControlFlow::Continue(()))
        });
        match walked {
            Err(error) if error.kind() != Kind::Corrupt => return Err(error),
            _ => {}
        }
        // Counting the clusters after the last entry is not worth reading them.
        Ok((count, self.space.cluster_size))
    }

    fn attributes_of(&self, entry: &FatEntry) -> Result<Attributes> {
        let raw = &entry.raw;
        let (size, allocated) = match raw.is_directory() {
            true => match self.place_of(entry) {
                Ok(place) => self.measure(&place)?,
                Err(error) if error.kind() == Kind::Corrupt => (0, 0),
                Err(error) => return Err(error),
            },
            false => {
                let size = u64::from(raw.size.get());
                let clusters = self.space.clusters_for(size);
                (size, clusters * self.space.cluster_size)
            }
        };
        Ok(Attributes {
            id: NodeId(entry.offset),
            size,
            allocated,
            ..described(raw)
        })
    }

    /// Returns the properties of the volume that do not change.
    pub(super) fn fixed_info(&self) -> VolumeInfo {
        VolumeInfo {
            format: self.boot.width.name(),
            name: self.name.clone(),
            block_size: u32::try_from(self.boot.cluster_size).unwrap_or_default(),
            total: self.boot.len,
            ..VolumeInfo::default()
        }
    }
}

/// Returns the attributes that the entry of an object has itself.
pub(super) fn described(raw: &ShortEntryRaw) -> Attributes {
    let flag = |bit: u8, flag: u32| match raw.attributes & bit {
        0 => 0,
        _ => flag,
    };
    let kind = match raw.is_directory() {
        true => FileKind::Folder,
        false => FileKind::File,
    };
    let [created, modified, accessed] = raw.times();
    Attributes {
        flags: flag(attributes::READ_ONLY, UF_IMMUTABLE) | flag(attributes::HIDDEN, UF_HIDDEN),
        created,
        modified,
        accessed,
        ..Attributes::plain(ROOT, kind)
    }
}

impl FileSystem for FatVolume {
    fn volume(&self) -> VolumeInfo {
        let &(free, clean) = self.usage.get_or_init(|| {
            let map = free_map(self.space.device.clone());
            map.and_then(|map| Ok((map.free()?, map.is_in_order())))
                .unwrap_or_default()
        });
        VolumeInfo {
            clean,
            free,
            ..self.fixed_info()
        }
    }

    fn root(&self) -> NodeId {
        ROOT
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        let (mut exact, mut similar) = (None, None);
        self.walk(&self.folder(dir)?, &mut |entry| {
            if entry.name == name {
                exact = Some(entry);
                return Ok(ControlFlow::Break(()));
            }
            if similar.is_none() && same_but_case(&entry.name, name) {
                similar = Some(entry);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let found = exact.or(similar);
        found.map(|entry| self.attributes_of(&entry)).transpose()
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        if node != ROOT {
            return self.attributes_of(&self.entry(node)?);
        }
        let (size, allocated) = self.measure(&self.root)?;
        Ok(Attributes {
            size,
            allocated: match self.boot.width {
                Width::Fat32 => allocated,
                _ => 0,
            },
            ..Attributes::plain(ROOT, FileKind::Folder)
        })
    }

    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.walk(&self.folder(dir)?, &mut |entry| {
            let attributes = self.attributes_of(&entry)?;
            let name = entry.name;
            each(Entry { name, attributes })
        })
    }

    fn list_names(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(&str, FileKind) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.walk(&self.folder(dir)?, &mut |entry| {
            let kind = match entry.raw.is_directory() {
                true => FileKind::Folder,
                false => FileKind::File,
            };
            each(&entry.name, kind)
        })
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        let entry = match node {
            ROOT => None,
            _ => Some(self.entry(node)?).filter(|entry| !entry.raw.is_directory()),
        };
        let Some(entry) = entry else {
            return Err(Error::invalid(LAYER, "expected a file, found a folder").at(node.0));
        };
        let len = match fork {
            Fork::Data => u64::from(entry.raw.size.get()),
            Fork::Resource => 0,
        };
        let runs = self
            .space
            .chain(
                entry.raw.first(self.boot.width),
                self.space.clusters_for(len),
            )
            .map_err(|error| error.at(node.0))?;
        Ok(Arc::new(ClusterContents::new(&self.space, runs, len, len)))
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        Err(Error::invalid(LAYER, "FAT has no symbolic links").at(node.0))
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        if node != ROOT {
            self.entry(node)?;
        }
        Ok(Vec::new())
    }

    fn xattr(&self, node: NodeId, _name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        if node != ROOT {
            self.entry(node)?;
        }
        Ok(None)
    }
}
