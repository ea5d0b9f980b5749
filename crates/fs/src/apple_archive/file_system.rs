//! The read interface.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, Memory, Slice};
use bandsaw_core::{Error, Result};

use super::entry::Blob;
use super::tree::{ArchiveNode, NodeContents, ROOT, id_of, number_of};
use super::{AppleArchive, LAYER, xattrs};
use crate::{Attributes, Entry, FileSystem, Fork, NodeId, RESOURCE_FORK, VolumeInfo};

impl AppleArchive {
    fn part(&self, range: Range<u64>) -> Result<Arc<dyn BlockDevice>> {
        Ok(match range.is_empty() {
            true => Arc::new(Memory::read_only(Vec::new())),
            false => Arc::new(Slice::new(self.stream.clone(), range)?),
        })
    }

    /// Returns the place of the contents of a file.
    pub(super) fn data(&self, node: &ArchiveNode) -> Result<Blob> {
        match &node.contents {
            NodeContents::File(data) => Ok(data.clone()),
            NodeContents::Unreadable(why) => {
                Err(Error::unsupported(LAYER, *why).named(self.tree.path(number_of(node))))
            }
            _ => {
                let message = "expected a file";
                Err(Error::invalid(LAYER, message).at(node.attributes.id.0))
            }
        }
    }

    /// Returns the place of the value of an extended attribute.
    fn value(&self, node: &ArchiveNode, name: &str) -> Result<Option<Range<u64>>> {
        let mut value = None;
        if let Some(blob) = &node.xattrs {
            xattrs::walk(&*self.stream, blob, &mut |found| {
                if found.name != name {
                    return ControlFlow::Continue(());
                }
                value = Some(found.value);
                ControlFlow::Break(())
            })?;
        }
        Ok(value)
    }

    fn children(&self, dir: NodeId) -> Result<impl Iterator<Item = (&str, &ArchiveNode)>> {
        let NodeContents::Folder { children, .. } = &self.tree.node(dir)?.contents else {
            return Err(Error::invalid(LAYER, "expected a folder").at(dir.0));
        };
        Ok(children.iter().filter_map(|(name, index)| {
            let node = self.tree.nodes.get(*index as usize)?;
            Some((&**name, node))
        }))
    }
}

impl FileSystem for AppleArchive {
    fn volume(&self) -> VolumeInfo {
        VolumeInfo {
            format: "Apple Archive",
            case_sensitive: true,
            clean: true,
            block_size: 512,
            total: self.stream.info().len,
            files: self.tree.files,
            folders: self.tree.folders,
            ..VolumeInfo::default()
        }
    }

    fn root(&self) -> NodeId {
        id_of(ROOT)
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        let NodeContents::Folder { children, .. } = &self.tree.node(dir)?.contents else {
            return Err(Error::invalid(LAYER, "expected a folder").at(dir.0));
        };
        let found = children.get(name);
        found
            .map(|index| self.attributes(id_of(*index)))
            .transpose()
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        Ok(self.tree.node(node)?.attributes.clone())
    }

    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        for (name, node) in self.children(dir)? {
            let entry = Entry {
                name: name.to_owned(),
                attributes: node.attributes.clone(),
            };
            if each(entry)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        let found = self.tree.node(node)?;
        match fork {
            Fork::Data => self.part(self.data(found)?),
            Fork::Resource => {
                let value = self.value(found, RESOURCE_FORK)?;
                self.part(value.unwrap_or_default())
            }
        }
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        match &self.tree.node(node)?.contents {
            NodeContents::Symlink(target) => Ok(target.to_string()),
            _ => Err(Error::invalid(LAYER, "expected a symbolic link").at(node.0)),
        }
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        let mut names = Vec::new();
        if let Some(blob) = &self.tree.node(node)?.xattrs {
            xattrs::walk(&*self.stream, blob, &mut |found| {
                names.push(found.name);
                ControlFlow::Continue(())
            })?;
        }
        Ok(names)
    }

    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        let value = self.value(self.tree.node(node)?, name)?;
        value.map(|range| self.part(range)).transpose()
    }
}
