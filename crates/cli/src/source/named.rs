//! A volume whose errors name its image.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use bandsaw::device::BlockDevice;
use bandsaw::fs::{Attributes, Entry, FileSystem, Fork, NodeId, VolumeInfo};
use bandsaw::{Error, Result};

/// The volume and its image.
#[derive(Debug)]
pub(super) struct NamedVolume {
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) image: PathBuf,
}

impl NamedVolume {
    fn named<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| error.in_file(&self.image))
    }
}

impl FileSystem for NamedVolume {
    fn volume(&self) -> VolumeInfo {
        self.fs.volume()
    }

    fn root(&self) -> NodeId {
        self.fs.root()
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        self.named(self.fs.lookup(dir, name))
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        self.named(self.fs.attributes(node))
    }

    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        // A failure of the caller's callback does not concern the image.
        let mut failed: Option<Error> = None;
        let listed = self.fs.list(dir, &mut |entry| {
            each(entry).or_else(|error| {
                failed = Some(error);
                Ok(ControlFlow::Break(()))
            })
        });
        failed.map_or_else(|| self.named(listed), Err)
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        self.named(self.fs.open(node, fork))
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        self.named(self.fs.read_link(node))
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        self.named(self.fs.xattrs(node))
    }

    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        self.named(self.fs.xattr(node, name))
    }
}
