//! Import of a part of a volume as a tree, to be put into another volume.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::device::{BlockDevice, BlockDeviceExt, ExtentKind};
use crate::fs::source::{ContentReader, Contents, SourceKind, SourceNode, Stream, Tree};
use crate::fs::{
    Ancestors, Attributes, FileKind, FileSystem, FileSystemExt, Fork, NodeId, Timestamp,
};
use crate::progress::Progress;
use crate::size::{narrow, to_usize};
use crate::{Error, Result};

const LAYER: &str = "source volume";
/// Longest attribute value read into memory, in bytes. Longer values are read when needed.
const IN_HAND: u64 = 1 << 20;

/// Returns the tree below the folder at `path`. Any other entry at `path` becomes the only entry of
/// a root made from its parent folder.
pub fn volume(fs: Arc<dyn FileSystem>, path: &str, progress: &dyn Progress) -> Result<Tree> {
    progress.stage("scan", 0);
    let top = fs.resolve(path)?;
    let path = path.trim_end_matches('/');
    let mut assembly = Assembly {
        fs: fs.clone(),
        nodes: Vec::new(),
        streams: Vec::new(),
        first_names: HashMap::new(),
        progress,
    };
    if top.kind == FileKind::Folder {
        assembly.add(0, "", &top)?;
        assembly.walk(&top)?;
    } else {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let root = fs.resolve(folder)?;
        assembly.add(0, "", &root)?;
        assembly.add(0, name, &top)?;
    }
    let contents = Box::new(VolumeContents {
        fs,
        streams: assembly.streams,
    });
    Ok(Tree {
        nodes: assembly.nodes,
        contents,
    })
}

/// The source of a stream that is not held in memory.
#[derive(Debug, Clone)]
enum StreamSource {
    Data(NodeId),
    Attribute(NodeId, Box<str>),
}

struct Assembly<'a> {
    fs: Arc<dyn FileSystem>,
    nodes: Vec<SourceNode>,
    streams: Vec<StreamSource>,
    first_names: HashMap<NodeId, u32>,
    progress: &'a dyn Progress,
}

impl Assembly<'_> {
    fn walk(&mut self, top: &Attributes) -> Result<()> {
        let (mut ahead, mut ancestors) = (vec![(0, top.id, 0)], Ancestors::default());
        while let Some((index, id, depth)) = ahead.pop() {
            let entered = ancestors.enter(id, depth);
            entered.map_err(|error| error.named(format!("folder {}", id.0)))?;
            for entry in self.fs.entries(id)? {
                self.progress.check()?;
                let child = self.add(index, &entry.name, &entry.attributes)?;
                if entry.attributes.kind == FileKind::Folder {
                    ahead.push((child, entry.attributes.id, depth + 1));
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, parent: u32, name: &str, found: &Attributes) -> Result<u32> {
        let index = u32::try_from(self.nodes.len())
            .map_err(|_| Error::limit(LAYER, "too many files and folders (limit 2^32)"))?;
        let first = if found.links > 1 {
            *self.first_names.entry(found.id).or_insert(index)
        } else {
            index
        };
        let kind = match found.kind {
            _ if first != index && found.kind != FileKind::Folder => SourceKind::HardLink(first),
            FileKind::Folder => SourceKind::Folder,
            FileKind::File => {
                SourceKind::File(self.stream(StreamSource::Data(found.id), found.size))
            }
            FileKind::Symlink => SourceKind::Symlink(self.fs.read_link(found.id)?.into()),
            kind => SourceKind::Special(kind, found.device),
        };
        let mut xattrs = Vec::new();
        if !matches!(kind, SourceKind::HardLink(_)) {
            for name in self.fs.xattrs(found.id)? {
                xattrs.extend(self.attribute(found.id, name)?);
            }
        }
        let modified = found.modified.unwrap_or(Timestamp::from_seconds(0));
        let Attributes {
            mode,
            uid,
            gid,
            flags,
            created,
            changed,
            accessed,
            ..
        } = *found;
        self.nodes.push(SourceNode {
            parent,
            name: name.into(),
            kind,
            mode,
            uid,
            gid,
            flags,
            created,
            modified,
            changed,
            accessed,
            xattrs,
        });
        Ok(index)
    }

    fn attribute(&mut self, id: NodeId, name: String) -> Result<Option<(Box<str>, Stream)>> {
        let Some(value) = self.fs.xattr(id, &name)? else {
            return Ok(None);
        };
        let len = value.info().len;
        let stream = match len <= IN_HAND {
            true => Stream::Bytes(value.read_vec(0, to_usize(len))?.into()),
            false => self.stream(StreamSource::Attribute(id, name.as_str().into()), len),
        };
        Ok(Some((name.into(), stream)))
    }

    fn stream(&mut self, origin: StreamSource, len: u64) -> Stream {
        if len == 0 {
            return Stream::empty();
        }
        self.streams.push(origin);
        // The cast cannot truncate: the number of nodes and attributes is smaller, because each
        // takes more memory than this number.
        Stream::Extern {
            node: narrow::<u32>(self.streams.len()) - 1,
            offset: 0,
            len,
        }
    }
}

#[derive(Debug)]
struct VolumeContents {
    fs: Arc<dyn FileSystem>,
    /// Origins of the streams, by the node number of the stream.
    streams: Vec<StreamSource>,
}

impl Contents for VolumeContents {
    fn open(&self, stream: &Stream) -> Result<Box<dyn ContentReader + '_>> {
        let origin = match stream {
            Stream::Extern { node, .. } => self.streams.get(*node as usize),
            Stream::Bytes(_) => None,
        };
        let device = match origin {
            Some(StreamSource::Data(id)) => self.fs.open(*id, Fork::Data)?,
            Some(StreamSource::Attribute(id, name)) => self
                .fs
                .xattr(*id, name)?
                .ok_or_else(|| Error::not_found(LAYER, &**name))?,
            None => {
                return Err(Error::invalid(
                    LAYER,
                    "internal: contents in memory cannot be opened as a device",
                ));
            }
        };
        Ok(Box::new(Reader(device)))
    }
}

struct Reader(Arc<dyn BlockDevice>);

impl ContentReader for Reader {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }

    fn data_from(&self, from: u64) -> Result<Option<Range<u64>>> {
        for extent in self.0.extents(from..self.0.info().len) {
            let (range, kind) = extent?;
            if kind == ExtentKind::Data {
                return Ok(Some(range));
            }
        }
        Ok(None)
    }
}
