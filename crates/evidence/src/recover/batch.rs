//! Recovered files as a file system, for the writer of `extract`.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw::device::{BlockDevice, Memory};
use bandsaw::fs::{
    Attributes, Entry, FileKind, FileSystem, Fork, NodeId, RESOURCE_FORK, RecoveredFile, VolumeInfo,
};
use bandsaw::{Error, Result};

use crate::LAYER;

/// Files in folders.
#[derive(Debug)]
pub(super) struct BatchFileSystem {
    nodes: Vec<BatchNode>,
    bytes: u64,
}

#[derive(Debug)]
enum BatchNode {
    Folder(Box<BatchFolder>),
    File(Box<RecoveredFile>),
}

#[derive(Debug)]
struct BatchFolder {
    attributes: Attributes,
    /// In the order in which they were added.
    children: Vec<(String, usize)>,
    names: HashMap<String, usize>,
}

impl BatchNode {
    fn folder(attributes: Attributes) -> Self {
        Self::Folder(Box::new(BatchFolder {
            attributes,
            children: Vec::new(),
            names: HashMap::new(),
        }))
    }
}

impl BatchFileSystem {
    /// Returns a file system without files, whose root has these attributes.
    pub(super) fn new(root: Attributes) -> Self {
        Self {
            nodes: vec![BatchNode::folder(root)],
            bytes: 0,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a file at a path, whose parts are joined by `/`; its folders are made. Returns false if
    /// there is a file in place of a folder, or an entry with its name.
    pub(super) fn add(&mut self, path: &str, mut file: RecoveredFile) -> bool {
        let mut folder = 0;
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let next = self.nodes.len();
            let BatchNode::Folder(parent) = &mut self.nodes[folder] else {
                return false;
            };
            let known = parent.names.get(part).copied();
            if parts.peek().is_none() {
                if known.is_some() {
                    return false;
                }
                parent.names.insert(part.to_owned(), next);
                parent.children.push((part.to_owned(), next));
                file.attributes.id = NodeId(next as u64);
                // Each name is a file of its own.
                file.attributes.links = 1;
                self.bytes = self.bytes.saturating_add(file.attributes.size);
                self.nodes.push(BatchNode::File(Box::new(file)));
                return true;
            }
            folder = match known {
                Some(known) => known,
                None => {
                    parent.names.insert(part.to_owned(), next);
                    parent.children.push((part.to_owned(), next));
                    self.nodes.push(BatchNode::folder(folder_attributes(next)));
                    next
                }
            };
        }
        false
    }

    fn node(&self, node: NodeId) -> Result<&BatchNode> {
        usize::try_from(node.0)
            .ok()
            .and_then(|node| self.nodes.get(node))
            .ok_or_else(|| Error::not_found(LAYER, format!("object {}", node.0)))
    }

    fn file(&self, node: NodeId) -> Result<&RecoveredFile> {
        match self.node(node)? {
            BatchNode::File(file) => Ok(file),
            BatchNode::Folder(..) => Err(Error::invalid(LAYER, "internal: not a file")),
        }
    }
}

/// Returns the attributes of a folder of which nothing but the name is known.
pub(super) fn folder_attributes(node: usize) -> Attributes {
    Attributes::plain(NodeId(node as u64), FileKind::Folder)
}

impl FileSystem for BatchFileSystem {
    fn volume(&self) -> VolumeInfo {
        VolumeInfo {
            format: "recovered",
            total: self.bytes,
            ..VolumeInfo::default()
        }
    }

    fn root(&self) -> NodeId {
        NodeId(0)
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        let BatchNode::Folder(folder) = self.node(dir)? else {
            return Ok(None);
        };
        let found = folder.names.get(name).map(|&node| NodeId(node as u64));
        found.map(|node| self.attributes(node)).transpose()
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        Ok(match self.node(node)? {
            BatchNode::Folder(folder) => folder.attributes.clone(),
            BatchNode::File(file) => file.attributes.clone(),
        })
    }

    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let BatchNode::Folder(folder) = self.node(dir)? else {
            return Err(Error::invalid(LAYER, "internal: not a folder"));
        };
        for (name, node) in &folder.children {
            let entry = Entry {
                name: name.clone(),
                attributes: self.attributes(NodeId(*node as u64))?,
            };
            if each(entry)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        self.file(node)?.open(fork)
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        self.file(node)?.read_link()
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        let BatchNode::File(file) = self.node(node)? else {
            return Ok(Vec::new());
        };
        let mut names: Vec<String> = file.xattrs.iter().map(|(name, _)| name.clone()).collect();
        if file.attributes.resource_size > 0 {
            names.push(RESOURCE_FORK.to_owned());
        }
        Ok(names)
    }

    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        let file = self.file(node)?;
        if name == RESOURCE_FORK {
            return file.open(Fork::Resource).map(Some);
        }
        let found = file.xattrs.iter().find(|(known, _)| known == name);
        Ok(found
            .map(|(_, value)| Arc::new(Memory::read_only(value.clone())) as Arc<dyn BlockDevice>))
    }
}
