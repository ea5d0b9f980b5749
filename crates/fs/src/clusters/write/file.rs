//! The contents of a file as a device: reads and writes in place, growth and truncation.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use bandsaw_core::device::{Access, AfterDiscard, BlockDevice, Extent, FileRange, Info};
use bandsaw_core::sync::{Mutex, RwLock};
use bandsaw_core::{Error, Kind, Result};

use super::Shared;
use super::format::WriteFormat;
use super::nodes::NodePlace;
use super::volume::{Contents, Volume, now};
use crate::{Attributes, NodeId, Timestamp};

/// The contents of an open file, shared by all of its users.
#[derive(Debug)]
pub(super) struct FileState {
    /// Requests hold the lock shared, so that no cluster is freed while it is in use.
    contents: RwLock<Contents>,
    /// Time of the last change that the entry does not have yet.
    touched: Mutex<Option<Timestamp>>,
}

impl FileState {
    fn touch(&self) {
        *self.touched.lock() = Some(now());
    }

    /// Returns true if the entry does not have the state of the contents.
    fn is_unrecorded(&self) -> bool {
        self.contents.read().is_unrecorded || self.touched.lock().is_some()
    }

    /// Changes attributes to those of the contents.
    pub(super) fn show_in(&self, attributes: &mut Attributes, cluster_size: u64) {
        let contents = self.contents.read();
        attributes.size = contents.stored.len();
        attributes.allocated = contents.clusters() * cluster_size;
        if let Some(touched) = *self.touched.lock() {
            attributes.modified = Some(touched);
        }
    }
}

/// A file from its opening until it is completely closed.
#[derive(Debug)]
struct KnownFile<F: WriteFormat> {
    handle: Weak<OpenFile<F>>,
    state: Arc<FileState>,
}

/// The open files of a volume. Changed only with the volume locked, so that it tells whether one is open.
#[derive(Debug)]
pub(super) struct FileTable<F: WriteFormat>(Mutex<HashMap<u64, KnownFile<F>>>);

impl<F: WriteFormat> FileTable<F> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.0.lock().contains_key(&id)
    }

    pub(super) fn state(&self, id: u64) -> Option<Arc<FileState>> {
        self.0.lock().get(&id).map(|known| known.state.clone())
    }

    pub(super) fn states(&self) -> Vec<(u64, Arc<FileState>)> {
        let known = self.0.lock();
        known
            .iter()
            .map(|(id, known)| (*id, known.state.clone()))
            .collect()
    }
}

impl<F: WriteFormat> Volume<F> {
    /// Writes the length, the clusters and the date of an open file to its entry.
    pub(super) fn record(&mut self, id: u64, state: &FileState) -> Result<()> {
        if !state.is_unrecorded() {
            return Ok(());
        }
        let mut contents = state.contents.write();
        self.fill(&mut contents)?;
        let stream = contents.stream();
        let touched = *state.touched.lock();
        self.change(|volume| {
            volume.update(id, &mut |format, raw| {
                format.set_stream(raw, stream);
                if let Some(touched) = touched {
                    format.touch(raw, touched);
                }
            })
        })?;
        contents.is_unrecorded = false;
        *state.touched.lock() = None;
        Ok(())
    }

    /// Writes zeros to bytes that were never written: FAT has no valid length, and some readers of exFAT ignore
    /// it.
    fn fill(&self, contents: &mut Contents) -> Result<()> {
        let (valid, len) = (contents.stored.valid(), contents.stored.len());
        if valid >= len {
            return Ok(());
        }
        with_valid(contents, len, |stored| stored.zero(valid..len))
    }
}

/// Calls `write` with contents of which `valid` bytes are stored. They remain so only if it succeeds.
fn with_valid(
    contents: &mut Contents,
    valid: u64,
    write: impl FnOnce(&crate::clusters::ClusterContents) -> Result<()>,
) -> Result<()> {
    let old = contents.stored.valid();
    contents.stored.set_valid(valid.max(old));
    let done = write(&contents.stored);
    if done.is_err() {
        contents.stored.set_valid(old);
    }
    done
}

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile<F: WriteFormat> {
    shared: Arc<Shared<F>>,
    id: u64,
    state: Arc<FileState>,
}

impl<F: WriteFormat> OpenFile<F> {
    /// Returns the open file with a number, and opens it first if necessary.
    pub(super) fn open(shared: &Arc<Shared<F>>, node: NodeId) -> Result<Arc<Self>> {
        let volume = shared.volume.read();
        let raw = match node {
            super::volume::ROOT => None,
            _ => Some(volume.raw(node.0)?).filter(|raw| !volume.format.is_folder(raw)),
        };
        let Some(raw) = raw else {
            return Err(Error::invalid(F::LAYER, "expected a file, found a folder").at(node.0));
        };
        let mut files = shared.files.0.lock();
        let known = files.get(&node.0);
        if let Some(open) = known.and_then(|known| known.handle.upgrade()) {
            return Ok(open);
        }
        let state = match known {
            // A thread that is closing the file has not recorded its state yet.
            Some(known) => known.state.clone(),
            None => {
                let contents = volume.contents(&raw).map_err(|error| error.at(node.0))?;
                Arc::new(FileState {
                    contents: RwLock::new(contents),
                    touched: Mutex::default(),
                })
            }
        };
        let open = Arc::new(Self {
            shared: shared.clone(),
            id: node.0,
            state: state.clone(),
        });
        let handle = Arc::downgrade(&open);
        files.insert(node.0, KnownFile { handle, state });
        Ok(open)
    }
}

impl<F: WriteFormat> Drop for OpenFile<F> {
    fn drop(&mut self) {
        let mut volume = self.shared.volume.write();
        {
            let mut files = self.shared.files.0.lock();
            match files.get(&self.id) {
                Some(known) if known.handle.strong_count() == 0 => drop(files.remove(&self.id)),
                // It was opened again.
                _ => return,
            }
        }
        // Best effort: errors cannot be reported here.
        let _ = match volume.nodes.place(self.id) {
            Some(NodePlace::Nameless { is_new: false, .. }) => {
                let contents = self.state.contents.read();
                volume.reap(self.id, &contents)
            }
            Some(_) => volume.record(self.id, &self.state),
            None => Ok(()),
        };
    }
}

impl<F: WriteFormat> BlockDevice for OpenFile<F> {
    fn info(&self) -> Info {
        Info {
            access: Access::ReadWrite,
            ..self.state.contents.read().stored.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.state.contents.read().stored.read_at(offset, buf)
    }

    /// Writes within the file's length; use [`set_len`](BlockDevice::set_len) first to extend it.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        {
            let contents = self.state.contents.read();
            let end = contents
                .stored
                .info()
                .check(F::LAYER, offset, buf.len() as u64)?;
            if end <= contents.stored.valid() {
                contents.stored.overwrite(offset, buf)?;
                self.state.touch();
                return Ok(());
            }
        }
        let mut contents = self.state.contents.write();
        let info = contents.stored.info();
        let end = info.check(F::LAYER, offset, buf.len() as u64)?;
        let valid = contents.stored.valid();
        with_valid(&mut contents, end, |stored| {
            if valid < offset {
                stored.zero(valid..offset)?;
            }
            stored.overwrite(offset, buf)
        })?;
        contents.is_unrecorded = true;
        drop(contents);
        self.state.touch();
        Ok(())
    }

    /// The file has no holes: bytes that must become zero are overwritten, and its clusters remain allocated.
    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        {
            let contents = self.state.contents.read();
            contents.stored.info().check_range(F::LAYER, &range)?;
            // Bytes that were never written are zero.
            let end = range.end.min(contents.stored.valid());
            if leave == AfterDiscard::Zeros && range.start < end {
                contents.stored.zero(range.start..end)?;
            }
        }
        self.state.touch();
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.state.contents.read().stored.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        let mut volume = self.shared.volume.write();
        if volume.nodes.place(self.id).is_some() {
            volume.record(self.id, &self.state)?;
        }
        volume.commit()
    }

    fn set_len(&self, len: u64, _leave: AfterDiscard) -> Result<()> {
        if len > F::MAX_FILE {
            let message = format!("a file of {len} bytes: the maximum is {}", F::MAX_FILE);
            return Err(Error::limit(F::LAYER, message));
        }
        let mut volume = self.shared.volume.write();
        let old = self.state.contents.read().stored.len();
        if len == old {
            return Ok(());
        }
        if len > old {
            volume.settle_cuts()?;
        }
        // The exclusive lock prevents reads and writes of the bytes to be cut off.
        let mut contents = self.state.contents.write();
        if len < old {
            let valid = contents.stored.valid();
            if valid < len {
                // The entry gets the length at once.
                with_valid(&mut contents, len, |stored| stored.zero(valid..len))?;
            }
        }
        let id = self.id;
        let resized = volume.change(|volume| {
            let mut resized = volume.resize(&contents, len)?;
            if len < old {
                volume.update(id, &mut |format, raw| {
                    format.set_stream(raw, resized.stream());
                })?;
                resized.is_unrecorded = false;
            }
            Ok(resized)
        })?;
        *contents = resized;
        drop(contents);
        self.state.touch();
        Ok(())
    }

    /// Returns `None`, because clusters may be reused for another file.
    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(F::LAYER, &range)?;
        Ok(None)
    }
}

/// Fails for changes of something that the format does not have.
pub(super) fn refuse<T>(layer: &'static str, format: &str, what: &str) -> Result<T> {
    let message = format!("{format} has no {what}");
    Err(Error::new(Kind::Unsupported, layer, message))
}
