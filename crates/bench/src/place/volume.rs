//! A volume in an image, accessed through the library.

use std::sync::Arc;

use bandsaw::device::{AfterDiscard, BlockDevice};
use bandsaw::fs::{FileSystemMut, Fork, NewKind, NewNode, NodeId};
use bandsaw::{Error, Result};

use super::{CacheState, Place, Sink, Source};

/// The root folder of a volume that is open for writing.
#[derive(Debug)]
pub struct VolumeFolder {
    volume: Arc<dyn FileSystemMut>,
}

impl VolumeFolder {
    /// Creates a place on `volume`, which must not contain any of the names that will be created.
    pub fn new(volume: Arc<dyn FileSystemMut>) -> Self {
        Self { volume }
    }

    fn find(&self, name: &str) -> Result<(NodeId, u64)> {
        let found = self.volume.lookup(self.volume.root(), name)?;
        let found = found.ok_or_else(|| Error::not_found("benchmark", name.to_owned()))?;
        Ok((found.id, found.size))
    }
}

impl Place for VolumeFolder {
    fn create(&self, name: &str, len: u64) -> Result<Box<dyn Sink + '_>> {
        let node = self
            .volume
            .create(self.volume.root(), name, &NewNode::new(NewKind::File))?;
        let file = self.volume.open_mut(node, Fork::Data)?;
        // Programs that write sequentially leave preallocation to the file system; here the length
        // is set once, in advance.
        file.set_len(len, AfterDiscard::Any)?;
        Ok(Box::new(VolumeFile {
            folder: self,
            file,
            at: 0,
        }))
    }

    fn open(&self, name: &str) -> Result<Box<dyn Source + '_>> {
        let (node, _) = self.find(name)?;
        Ok(Box::new(VolumeFile {
            folder: self,
            file: self.volume.open(node, Fork::Data)?,
            at: 0,
        }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.volume.remove(self.volume.root(), name)
    }

    fn flush(&self) -> Result<()> {
        self.volume.sync()
    }

    /// The image's own files are in the page cache; the opener of the image knows their paths.
    fn cool(&self, _names: &[String]) -> Result<CacheState> {
        self.volume.sync()?;
        Ok(CacheState::Kept)
    }
}

/// An open file.
#[derive(Debug)]
struct VolumeFile<'a> {
    folder: &'a VolumeFolder,
    file: Arc<dyn BlockDevice>,
    at: u64,
}

impl Sink for VolumeFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_at(self.at, bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.folder.volume.sync()
    }
}

impl Source for VolumeFile<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<()> {
        self.file.read_at(self.at, buf)?;
        self.at += buf.len() as u64;
        Ok(())
    }
}
