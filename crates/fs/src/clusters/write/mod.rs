//! Modification of volumes whose files are chains of clusters.
//!
//! Every operation writes its changes of tables and folders to a [`Buffer`] over the volume, and they are kept
//! or rolled back as a whole. The changes of successive operations remain pending until the next commit,
//! which writes them in an order that a crash cannot turn into two files with the same clusters: contents, then
//! allocated clusters, then entries (those of moved objects after the old ones are gone), then freed
//! clusters. A crash during a commit leaves clusters without a file, and may undo some of the operations
//! but not others; the last name of an object that was just moved may be lost.
//!
//! File contents are written directly to their clusters. Freed clusters are not used again before the commit
//! that frees them.

mod entries;
mod file;
mod folder;
mod format;
mod free_clusters;
mod nodes;
mod volume;

use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, Memory, ReadOnlyView};
use bandsaw_core::sync::RwLock;
use bandsaw_core::{Error, Kind, Result};

use self::file::{FileTable, OpenFile, refuse};
pub(crate) use self::format::{EachSet, EntryBytes, FoundSet, Stream, WriteFormat};
pub(crate) use self::free_clusters::FreeClusters;
use self::volume::{ROOT, Volume};
use crate::write_buffer::Buffer;
use crate::{
    Attributes, Change, Entry, ExistingTarget, FileKind, FileSystem, FileSystemMut, Fork, NewNode,
    NodeId, Stored, VolumeInfo,
};

/// Size of a page of the buffer in bytes.
const PAGE: u32 = 512;

/// Returns a buffer for the changes of a volume.
pub(crate) fn buffer(device: Arc<dyn BlockDevice>) -> Arc<Buffer> {
    Arc::new(Buffer::new(device, PAGE))
}

/// A volume that can be read and changed by any number of threads.
///
/// Dropping it unmounts the volume like [`FileSystemMut::unmount`], but errors are ignored.
#[derive(Debug)]
pub(crate) struct MutableClusters<F: WriteFormat> {
    shared: Arc<Shared<F>>,
}

/// State shared by the volume and its open files.
#[derive(Debug)]
struct Shared<F: WriteFormat> {
    volume: RwLock<Volume<F>>,
    files: FileTable<F>,
}

impl<F: WriteFormat> MutableClusters<F> {
    /// Opens a clean volume on `device`, whose clusters in use are `clusters`. `format` reads it through
    /// `buffer`.
    pub(crate) fn new(
        format: F,
        device: Arc<dyn BlockDevice>,
        buffer: Arc<Buffer>,
        clusters: FreeClusters,
    ) -> Self {
        let volume = Volume::new(format, device, buffer, clusters);
        Self {
            shared: Arc::new(Shared {
                volume: RwLock::new(volume),
                files: FileTable::new(),
            }),
        }
    }

    /// Writes the state of all open files to their entries.
    fn record_all(&self) -> Result<()> {
        let mut volume = self.shared.volume.write();
        let states = self.shared.files.states();
        states
            .iter()
            .filter(|(id, _)| volume.nodes.place(*id).is_some())
            .map(|(id, state)| (*id, state.clone()))
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|(id, state)| volume.record(id, &state))
    }

    fn is_open(&self) -> impl Fn(u64) -> bool + '_ {
        move |id| self.shared.files.has(id)
    }

    fn refuse<T>(&self, what: &str) -> Result<T> {
        refuse(F::LAYER, self.shared.volume.read().format.name(), what)
    }

    /// Returns the attributes of an object.
    fn attributes_of(&self, volume: &Volume<F>, id: NodeId, raw: &F::Raw) -> Result<Attributes> {
        let mut found = volume.format.attributes(raw);
        found.id = id;
        let size = volume.space().cluster_size;
        if volume.format.is_folder(raw) {
            let place = volume.format.folder_place(raw);
            let counted = place.and_then(|place| count(volume, &place.counted()));
            found.size = match counted {
                Err(error) if error.kind() != Kind::Corrupt => return Err(error),
                counted => counted.unwrap_or_default(),
            };
            found.allocated = volume.format.stream(raw).len.max(size);
            return Ok(found);
        }
        let stream = volume.format.stream(raw);
        found.size = stream.len;
        found.allocated = volume.space().clusters_for(stream.len) * size;
        if let Some(state) = self.shared.files.state(id.0) {
            state.show_in(&mut found, size);
        }
        Ok(found)
    }

    /// Notes the parent of a folder, so that it need not be searched for.
    fn note_parent(volume: &Volume<F>, found: &Attributes, dir: NodeId) {
        if found.kind == FileKind::Folder {
            volume.parents.insert(found.id.0, dir.0);
        }
    }
}

/// Returns the number of objects in a folder; of a damaged one, those before the damage.
fn count<F: WriteFormat>(
    volume: &Volume<F>,
    place: &crate::clusters::DirectoryPlace,
) -> Result<u64> {
    let mut count = 0;
    let scanned = volume.format.scan(place, &mut |_| {
        count += 1;
        Ok(ControlFlow::Continue(()))
    });
    match scanned {
        Err(error) if error.kind() != Kind::Corrupt => Err(error),
        _ => Ok(count),
    }
}

impl<F: WriteFormat> Drop for MutableClusters<F> {
    fn drop(&mut self) {
        // Errors cannot be reported here; uncommitted changes are lost, as in a crash.
        let _ = self.unmount();
    }
}

impl<F: WriteFormat> Drop for Shared<F> {
    /// Unmounts again, because files closed later may have changed the volume after it was unmounted.
    fn drop(&mut self) {
        let volume = self.volume.get_mut();
        // Errors cannot be reported here: clusters of files without a name are lost.
        for (id, raw) in volume.nodes.nameless() {
            let _ = volume
                .contents(&raw)
                .and_then(|contents| volume.reap(id, &contents));
        }
        let _ = volume.clean();
    }
}

impl<F: WriteFormat> FileSystem for MutableClusters<F> {
    fn volume(&self) -> VolumeInfo {
        self.shared.volume.read().info()
    }

    fn root(&self) -> NodeId {
        ROOT
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        let volume = self.shared.volume.read();
        let folder = volume.folder(dir)?;
        let Some(set) = volume.find(&folder, name)? else {
            return Ok(None);
        };
        let id = NodeId(volume.nodes.id_of(set.main));
        let found = self.attributes_of(&volume, id, &set.raw)?;
        Self::note_parent(&volume, &found, dir);
        Ok(Some(found))
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        let volume = self.shared.volume.read();
        if node == ROOT {
            let root = volume.format.root();
            return Ok(Attributes {
                size: count(&volume, &root.counted())?,
                allocated: volume.space().cluster_size,
                ..Attributes::plain(ROOT, FileKind::Folder)
            });
        }
        let raw = volume.raw(node.0)?;
        let mut found = self.attributes_of(&volume, node, &raw)?;
        if volume.nodes.is_nameless(node.0) {
            found.links = 0;
        }
        Ok(found)
    }

    /// Entries that are added or removed during the listing are not considered; `each` may change the
    /// volume.
    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut found = Vec::new();
        {
            let volume = self.shared.volume.read();
            let folder = volume.folder(dir)?;
            volume.format.scan(&folder.place, &mut |set| {
                found.push((volume.nodes.id_of(set.main), set.name, set.raw));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        for (id, name, raw) in found {
            let volume = self.shared.volume.read();
            let attributes = self.attributes_of(&volume, NodeId(id), &raw)?;
            Self::note_parent(&volume, &attributes, dir);
            drop(volume);
            if each(Entry { name, attributes })?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn list_names(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(&str, FileKind) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut found = Vec::new();
        {
            let volume = self.shared.volume.read();
            let folder = volume.folder(dir)?;
            volume.format.scan(&folder.place, &mut |set| {
                let kind = match volume.format.is_folder(&set.raw) {
                    true => FileKind::Folder,
                    false => FileKind::File,
                };
                found.push((set.name, kind));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        for (name, kind) in found {
            if each(&name, kind)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        let open = OpenFile::open(&self.shared, node)?;
        Ok(match fork {
            Fork::Data => Arc::new(ReadOnlyView(open)),
            Fork::Resource => Arc::new(Memory::read_only([])),
        })
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        let format = self.shared.volume.read().format.name();
        let message = format!("{format} has no symbolic links");
        Err(Error::invalid(F::LAYER, message).at(node.0))
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        self.attributes(node).map(|_| Vec::new())
    }

    fn xattr(&self, node: NodeId, _name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        self.attributes(node).map(|_| None)
    }
}

impl<F: WriteFormat> FileSystemMut for MutableClusters<F> {
    fn name_key(&self, name: &str) -> Result<Vec<u8>> {
        let volume = self.shared.volume.read();
        volume.check_name(name)?;
        let key = volume.format.key(name);
        Ok(key.into_iter().flat_map(u16::to_be_bytes).collect())
    }

    fn create(&self, dir: NodeId, name: &str, new: &NewNode) -> Result<NodeId> {
        let mut volume = self.shared.volume.write();
        let id = volume.create(dir, name, new)?;
        if new.kind == crate::NewKind::Folder {
            volume.parents.insert(id.0, dir.0);
        }
        Ok(id)
    }

    fn link(&self, _node: NodeId, _dir: NodeId, _name: &str) -> Result<()> {
        self.refuse("hard links")
    }

    fn link_over(&self, _node: NodeId, _dir: NodeId, _name: &str) -> Result<()> {
        self.refuse("hard links")
    }

    fn rename(
        &self,
        from: (NodeId, &str),
        to: (NodeId, &str),
        existing: ExistingTarget,
    ) -> Result<()> {
        let mut volume = self.shared.volume.write();
        let id = volume.rename(from, to, existing, &self.is_open())?;
        volume.parents.replace(id, to.0.0);
        Ok(())
    }

    fn swap(&self, _a: (NodeId, &str), _b: (NodeId, &str)) -> Result<()> {
        self.refuse("way to exchange two names in one step")
    }

    fn remove(&self, dir: NodeId, name: &str) -> Result<()> {
        let mut volume = self.shared.volume.write();
        volume.remove(dir, name, &self.is_open())
    }

    fn open_mut(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        match fork {
            Fork::Data => Ok(OpenFile::open(&self.shared, node)?),
            Fork::Resource => self.refuse("resource forks"),
        }
    }

    fn create_unlinked(&self, new: &NewNode) -> Result<NodeId> {
        self.shared.volume.write().create_unlinked(new)
    }

    fn link_unlinked(
        &self,
        node: NodeId,
        dir: NodeId,
        name: &str,
        existing: ExistingTarget,
    ) -> Result<()> {
        let mut volume = self.shared.volume.write();
        if let Some(state) = self.shared.files.state(node.0) {
            volume.record(node.0, &state)?;
        }
        volume.link_unlinked(node, dir, name, existing, &self.is_open())
    }

    fn discard_unlinked(&self, node: NodeId) -> Result<()> {
        let mut volume = self.shared.volume.write();
        volume.discard_unlinked(node, &self.is_open())
    }

    fn store(&self, _node: NodeId, _stored: &Stored<'_>) -> Result<()> {
        self.refuse("compressed files")
    }

    fn set_attributes(&self, node: NodeId, change: &Change) -> Result<()> {
        let mut volume = self.shared.volume.write();
        let state = self.shared.files.state(node.0);
        if let Some(state) = &state {
            // The dates of earlier writes must not replace the new ones.
            volume.record(node.0, state)?;
        }
        volume.set_attributes(node, change)
    }

    fn set_xattr(
        &self,
        _node: NodeId,
        name: &str,
        _value: &dyn BlockDevice,
        _existing: ExistingTarget,
    ) -> Result<()> {
        let refused: Result<()> = self.refuse("extended attributes");
        refused.map_err(|error| error.named(name))
    }

    fn remove_xattr(&self, _node: NodeId, name: &str) -> Result<()> {
        Err(Error::not_found(F::LAYER, name))
    }

    fn sync(&self) -> Result<()> {
        self.record_all()?;
        self.shared.volume.write().clean()
    }

    /// Only [syncs](FileSystemMut::sync), because no older states are held.
    fn release_held(&self) -> Result<()> {
        self.sync()
    }

    fn unmount(&self) -> Result<()> {
        self.sync()
    }
}
