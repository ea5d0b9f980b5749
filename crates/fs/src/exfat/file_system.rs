//! The file system interface of a volume.
//!
//! The number of an object is the byte of the volume at which its first entry begins, a multiple of 32, plus
//! 1 if the clusters of its directory are contiguous and not linked by the table: the second entry can be in
//! the next cluster. The root directory has no entry, and number 1.

use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::{Error, Kind, Result};
use zerocopy::FromBytes;

use super::directory::{DirectoryItem, EntrySet, Items};
use super::layout::{
    FileRaw, MAX_DIRECTORY, StreamRaw, attributes, entry, flags, stream_flags, timestamp,
};
use super::{ExFatVolume, LAYER, free_map, missing};
use crate::clusters::{ClusterContents, DirectoryPlace, ENTRY_LEN};
use crate::{
    Attributes, Entry, FileKind, FileSystem, Fork, NodeId, UF_HIDDEN, UF_IMMUTABLE, VolumeInfo,
};

/// Number of the root directory.
const ROOT: NodeId = NodeId(1);
/// Bit of the numbers of objects in directories whose clusters are contiguous.
const CONTIGUOUS: u64 = 1;

/// The two entries of an object that describe it.
#[derive(Debug, Clone, Copy)]
struct Described {
    id: NodeId,
    file: FileRaw,
    stream: StreamRaw,
}

impl Described {
    fn is_folder(&self) -> bool {
        self.file.attributes.get() & attributes::DIRECTORY != 0
    }

    fn kind(&self) -> FileKind {
        match self.is_folder() {
            true => FileKind::Folder,
            false => FileKind::File,
        }
    }

    fn is_contiguous(&self) -> bool {
        self.stream.flags & stream_flags::CONTIGUOUS != 0
    }
}

/// Returns the place of a directory by the entry of its clusters.
pub(super) fn directory_of(stream: &StreamRaw) -> Result<DirectoryPlace> {
    let (first, len) = (u64::from(stream.first.get()), stream.len.get());
    if len > MAX_DIRECTORY {
        let message = format!("a directory of {len} bytes exceeds the maximum of {MAX_DIRECTORY}");
        return Err(Error::new(Kind::Corrupt, LAYER, message));
    }
    Ok(match stream.flags & stream_flags::CONTIGUOUS {
        _ if len == 0 => DirectoryPlace::Fixed(0..0),
        0 => DirectoryPlace::ChainOf { first, len },
        _ => DirectoryPlace::Contiguous { first, len },
    })
}

impl ExFatVolume {
    /// Returns the object with a number.
    fn described(&self, node: NodeId) -> Result<Described> {
        let (offset, in_contiguous) = (node.0 & !CONTIGUOUS, node.0 & CONTIGUOUS != 0);
        let cluster = self.space.cluster_at(offset);
        let Some(cluster) = cluster.filter(|_| offset.is_multiple_of(ENTRY_LEN as u64)) else {
            return Err(missing(node.0));
        };
        let mut second = offset + ENTRY_LEN as u64;
        if (second - self.space.start).is_multiple_of(self.space.cluster_size) {
            let next = match in_contiguous {
                true => Some(cluster + 1),
                false => self.space.next(cluster)?,
            };
            let next = next.ok_or_else(|| missing(node.0))?;
            second = self.space.offset(self.space.checked(next)?);
        }
        let read = |at: u64| self.space.device.read_array::<ENTRY_LEN>(at);
        let (first, second) = (read(offset)?, read(second)?);
        let file = FileRaw::read_from_bytes(&first);
        let stream = StreamRaw::read_from_bytes(&second);
        match (file, stream) {
            (Ok(file), Ok(stream)) if file.kind == entry::FILE && stream.kind == entry::STREAM => {
                Ok(Described {
                    id: node,
                    file,
                    stream,
                })
            }
            _ => Err(missing(node.0)),
        }
    }

    /// Returns the place of the folder with a number.
    fn folder(&self, node: NodeId) -> Result<DirectoryPlace> {
        if node == ROOT {
            return Ok(self.root.clone());
        }
        let described = self.described(node)?;
        match described.is_folder() {
            true => directory_of(&described.stream).map_err(|error| error.at(node.0)),
            false => Err(Error::invalid(LAYER, "expected a folder, found a file").at(node.0)),
        }
    }

    /// Calls `each` for every set of a directory. Entries that cannot be read are left out.
    fn walk(
        &self,
        place: &DirectoryPlace,
        each: &mut dyn FnMut(EntrySet) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut items = Items::new(&self.space, place)?;
        while let Some(item) = items.read_next()? {
            if let DirectoryItem::Set(set) = item
                && each(*set)?.is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn of_set(set: &EntrySet, place: &DirectoryPlace) -> Described {
        let bit = match place {
            DirectoryPlace::Contiguous { .. } => CONTIGUOUS,
            _ => 0,
        };
        Described {
            id: NodeId(set.offset | bit),
            file: set.file,
            stream: set.stream,
        }
    }

    /// Returns the number of entries of a directory; of a long one, of its first part, of a damaged one those
    /// before the damage.
    fn count(&self, place: &DirectoryPlace) -> Result<u64> {
        let mut count = 0;
        let walked = self.walk(&place.counted(), &mut |_| {
            count += 1;
            Ok(ControlFlow::Continue(()))
        });
        match walked {
            Err(error) if error.kind() != Kind::Corrupt => Err(error),
            _ => Ok(count),
        }
    }

    fn attributes_of(&self, described: &Described) -> Result<Attributes> {
        let Described { id, file, stream } = described;
        let size = match described.is_folder() {
            true => match directory_of(stream) {
                Ok(place) => self.count(&place)?,
                Err(_) => 0,
            },
            false => stream.len.get(),
        };
        let clusters = self.space.clusters_for(stream.len.get());
        Ok(Attributes {
            id: *id,
            size,
            allocated: clusters.saturating_mul(self.space.cluster_size),
            ..attributes_in(file)
        })
    }

    /// Returns the properties of the volume that do not change.
    pub(super) fn fixed_info(&self) -> VolumeInfo {
        VolumeInfo {
            format: "exFAT",
            name: self.name.clone(),
            block_size: u32::try_from(self.boot.cluster_size).unwrap_or_default(),
            total: self.boot.len,
            ..VolumeInfo::default()
        }
    }
}

/// Returns the attributes that the first entry of an object has.
pub(super) fn attributes_in(file: &FileRaw) -> Attributes {
    let flag = |bit: u16, flag: u32| match file.attributes.get() & bit {
        0 => 0,
        _ => flag,
    };
    let kind = match file.attributes.get() & attributes::DIRECTORY {
        0 => FileKind::File,
        _ => FileKind::Folder,
    };
    Attributes {
        flags: flag(attributes::READ_ONLY, UF_IMMUTABLE) | flag(attributes::HIDDEN, UF_HIDDEN),
        created: timestamp(file.created, file.created_hundredths, file.created_zone),
        modified: timestamp(file.modified, file.modified_hundredths, file.modified_zone),
        accessed: timestamp(file.accessed, 0, file.accessed_zone),
        ..Attributes::plain(ROOT, kind)
    }
}

impl FileSystem for ExFatVolume {
    fn volume(&self) -> VolumeInfo {
        let free = self.free.get_or_init(|| {
            let map = free_map(self.space.device.clone());
            map.and_then(|map| map.free()).unwrap_or_default()
        });
        VolumeInfo {
            clean: self.boot.flags & (flags::DIRTY | flags::FAILED) == 0,
            free: *free,
            ..self.fixed_info()
        }
    }

    fn root(&self) -> NodeId {
        ROOT
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        let place = self.folder(dir)?;
        let wanted = self.upcase().capitals(name);
        // A damaged folder may have names that differ in case only; then each is found by its exact name.
        let (mut exact, mut similar) = (None, None);
        self.walk(&place, &mut |set| {
            let found_name = set.name();
            if found_name == name {
                exact = Some(set);
                return Ok(ControlFlow::Break(()));
            }
            if similar.is_none() && self.upcase().capitals(&found_name) == wanted {
                similar = Some(set);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let found = exact.or(similar);
        found
            .map(|set| self.attributes_of(&Self::of_set(&set, &place)))
            .transpose()
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        if node != ROOT {
            return self.attributes_of(&self.described(node)?);
        }
        Ok(Attributes {
            size: self.count(&self.root)?,
            allocated: self.boot.cluster_size,
            ..Attributes::plain(ROOT, FileKind::Folder)
        })
    }

    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let place = self.folder(dir)?;
        self.walk(&place, &mut |set| {
            let attributes = self.attributes_of(&Self::of_set(&set, &place))?;
            let name = set.name();
            each(Entry { name, attributes })
        })
    }

    fn list_names(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(&str, FileKind) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let place = self.folder(dir)?;
        self.walk(&place, &mut |set| {
            each(&set.name(), Self::of_set(&set, &place).kind())
        })
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        let described = match node {
            ROOT => None,
            _ => Some(self.described(node)?).filter(|described| !described.is_folder()),
        };
        let Some(described) = described else {
            return Err(Error::invalid(LAYER, "expected a file, found a folder").at(node.0));
        };
        let (len, valid) = match fork {
            Fork::Data => (described.stream.len.get(), described.stream.valid_len.get()),
            Fork::Resource => (0, 0),
        };
        if valid > len {
            let message = format!("has {valid} valid bytes of {len}");
            return Err(Error::corrupt(LAYER, node.0, message));
        }
        let (first, count) = (
            u64::from(described.stream.first.get()),
            self.space.clusters_for(len),
        );
        let runs = match described.is_contiguous() {
            true => self.space.contiguous(first, count),
            false => self.space.chain(first, count),
        };
        let runs = runs.map_err(|error| error.at(node.0))?;
        Ok(Arc::new(ClusterContents::new(
            &self.space,
            runs,
            len,
            valid,
        )))
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        Err(Error::invalid(LAYER, "exFAT has no symbolic links").at(node.0))
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        if node != ROOT {
            self.described(node)?;
        }
        Ok(Vec::new())
    }

    fn xattr(&self, node: NodeId, _name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        if node != ROOT {
            self.described(node)?;
        }
        Ok(None)
    }
}
