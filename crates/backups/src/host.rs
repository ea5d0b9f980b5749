//! A folder of this host as a volume: a backup volume that is mounted, or files that were copied from
//! one.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::device::{BlockDevice, Memory};
use bandsaw::fs::{
    Attributes, Entry, FileKind, FileSystem, Fork, NodeId, RESOURCE_FORK, Timestamp, VolumeInfo,
};
use bandsaw::platform::nodes::{
    HostNode, HostTime, c_name, device_to_mac, node_at, node_of, open_file, open_folder, xattrs,
};
use bandsaw::store::{LocalFile, Open};
use bandsaw::sync::Mutex;
use bandsaw::{Error, Result};
use rustix::fs::FileType;

use crate::backup_volume::BackupVolume;
use crate::folders::{STORE, named};

const LAYER: &str = "folder";
/// The folder of an HFS+ volume with the folders that have several names. Linux shows each such name
/// as an empty file whose number of links is that of the folder. Source: tmfs.
const PRIVATE: &str = ".HFS+ Private Directory Data\r";
/// The first number of files and folders of users on HFS+.
const FIRST_NUMBER: u64 = 16;
/// Maximum number of folders in a path.
const DEPTH: usize = 1024;
const FINDER_INFO: &str = "com.apple.FinderInfo";

/// Returns the volume in the folder at `path` if it holds backups: `Backups.backupdb`, or a folder of
/// a date. `path` may be that of `Backups.backupdb` itself. `None` for all other folders, and for
/// files.
pub fn host_volume(path: &Path) -> Result<Option<BackupVolume>> {
    if !path.is_dir() {
        return Ok(None);
    }
    let real = fs::canonicalize(path).map_err(|source| failed("open", source).in_file(path))?;
    let root = match (real.file_name(), real.parent()) {
        (Some(name), Some(parent)) if name == STORE => parent,
        _ => &*real,
    };
    let fs = HostFolder::open(root)?;
    let mut has_backups = false;
    fs.list(fs.root(), &mut |entry| {
        let is_folder = entry.attributes.kind == FileKind::Folder;
        has_backups |= is_folder && (entry.name == STORE || named(&entry.name).is_some());
        Ok(match has_backups {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    })
    .map_err(|error| error.in_file(path))?;
    let volume = || BackupVolume {
        name: fs.volume().name,
        fs: Some(Arc::new(fs)),
        snapshots: Vec::new(),
        open: Box::new(|name| Err(Error::not_found("snapshot", name))),
        problem: None,
    };
    Ok(has_backups.then(volume))
}

/// A folder of this host. Symbolic links are never followed, and other file systems below it are not
/// entered.
///
/// The numbers of objects are those of the host. The parent and the name of each object that was
/// listed are kept.
struct HostFolder {
    path: PathBuf,
    root: OwnedFd,
    device: u64,
    number: u64,
    /// The folder with folders of several names.
    private: Option<OwnedFd>,
    /// Parent and name by the number of an object.
    places: Mutex<HashMap<u64, (Parent, String)>>,
}

/// The folder that has an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parent {
    Private,
    Folder(u64),
}

impl fmt::Debug for HostFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostFolder")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl HostFolder {
    fn open(path: &Path) -> Result<Self> {
        let in_file = |source| failed("open", source).in_file(path);
        let root = OwnedFd::from(File::open(path).map_err(in_file)?);
        let (device, number) = node_of(&root).map_err(in_file)?.identity;
        Ok(Self {
            path: path.to_owned(),
            private: open_folder(&root, PRIVATE).ok(),
            root,
            device,
            number,
            places: Mutex::default(),
        })
    }

    fn place(&self, node: NodeId) -> Result<(Parent, String)> {
        let known = self.places.lock().get(&node.0).cloned();
        known.ok_or_else(|| Error::not_found(LAYER, format!("object {}", node.0)))
    }

    /// Returns the names from the root, or from the private folder, to an object.
    fn names(&self, node: NodeId) -> Result<(bool, Vec<String>)> {
        let mut names = Vec::new();
        let mut at = node.0;
        let is_private = loop {
            if at == self.number {
                break false;
            }
            if names.len() == DEPTH {
                return Err(Error::limit(LAYER, "too many levels of folders"));
            }
            let (parent, name) = self.place(NodeId(at))?;
            names.push(name);
            match parent {
                Parent::Private => break true,
                Parent::Folder(parent) => at = parent,
            }
        };
        names.reverse();
        Ok((is_private, names))
    }

    /// Opens a folder.
    fn folder(&self, node: NodeId) -> Result<OwnedFd> {
        let (is_private, names) = self.names(node)?;
        let path = || names.join("/");
        let first = match (&self.private, is_private) {
            (Some(private), true) => private,
            _ => &self.root,
        };
        let mut at = first.try_clone().map_err(|source| failed("open", source))?;
        for name in &names {
            let opened = open_folder(&at, name);
            at = opened.map_err(|source| failed("open", source).named(path()))?;
        }
        Ok(at)
    }

    /// Returns the attributes of an entry, and notes its place. `None`: it does not exist.
    fn entry(&self, dir: NodeId, folder: &OwnedFd, name: &str) -> Result<Option<Attributes>> {
        let c_name = c_name(name.as_bytes()).map_err(|source| failed("look up", source))?;
        let node = match node_at(folder.as_fd(), &c_name) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            node => node.map_err(|source| failed("look up", source).named(name))?,
        };
        if node.identity.0 != self.device {
            let message = "another file system is mounted here, which is not entered";
            return Err(Error::unsupported(LAYER, message).named(name));
        }
        if let Some((number, found)) = self.linked_folder(&node)? {
            let mut places = self.places.lock();
            places.insert(found.id.0, (Parent::Private, number));
            return Ok(Some(found));
        }
        let found = self.attributes_of(&node, folder, name);
        let mut places = self.places.lock();
        places.insert(found.id.0, (Parent::Folder(dir.0), name.to_owned()));
        Ok(Some(found))
    }

    /// Returns the folder that an empty file stands for, and its name in the private folder.
    fn linked_folder(&self, node: &HostNode) -> Result<Option<(String, Attributes)>> {
        let Some(private) = &self.private else {
            return Ok(None);
        };
        if kind(node) != FileKind::File || node.size > 0 || node.links < FIRST_NUMBER {
            return Ok(None);
        }
        let name = format!("dir_{}", node.links);
        let c_name = c_name(name.as_bytes()).map_err(|source| failed("look up", source))?;
        match node_at(private.as_fd(), &c_name) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failed("look up", source).named(name)),
            Ok(found) if kind(&found) != FileKind::Folder => Ok(None),
            Ok(found) => {
                let attributes = self.attributes_of(&found, private, &name);
                Ok(Some((name, attributes)))
            }
        }
    }

    fn attributes_of(&self, node: &HostNode, folder: &OwnedFd, name: &str) -> Attributes {
        let kind = kind(node);
        let opened = match kind {
            FileKind::Folder => open_folder(folder, name).ok(),
            FileKind::File => open_file(folder, name).ok(),
            _ => None,
        };
        attributes(node, opened.as_ref())
    }

    /// Returns the extended attributes of a file or folder.
    fn values(&self, node: NodeId) -> Result<Vec<(String, Vec<u8>)>> {
        let opened = if node == self.root() {
            self.root
                .try_clone()
                .map_err(|source| failed("open", source))?
        } else {
            let (folder, name, found) = self.find(node)?;
            match kind(&found) {
                FileKind::Folder => open_folder(&folder, &name),
                FileKind::File => open_file(&folder, &name),
                _ => return Ok(Vec::new()),
            }
            .map_err(|source| failed("open", source).named(name))?
        };
        xattrs(opened.as_fd()).map_err(|source| failed("read the attributes", source))
    }

    /// Returns the folder with an object, its name there, and its metadata.
    fn find(&self, node: NodeId) -> Result<(OwnedFd, String, HostNode)> {
        let (parent, name) = self.place(node)?;
        let folder = match (parent, &self.private) {
            (Parent::Folder(parent), _) => self.folder(NodeId(parent))?,
            (Parent::Private, Some(private)) => private
                .try_clone()
                .map_err(|source| failed("open", source))?,
            (Parent::Private, None) => return Err(Error::not_found(LAYER, name)),
        };
        let found = c_name(name.as_bytes()).and_then(|c_name| node_at(folder.as_fd(), &c_name));
        let found = found.map_err(|source| failed("look up", source).named(&name))?;
        if found.identity != (self.device, node.0) {
            let message = "was replaced by another program in the meantime";
            return Err(Error::conflict(LAYER, message).named(name));
        }
        Ok((folder, name, found))
    }

    /// Returns the path of an object on the host.
    fn host_path(&self, node: NodeId) -> Result<PathBuf> {
        let (is_private, names) = self.names(node)?;
        let mut path = self.path.clone();
        if is_private {
            path.push(PRIVATE);
        }
        path.extend(names);
        Ok(path)
    }
}

impl FileSystem for HostFolder {
    fn volume(&self) -> VolumeInfo {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        VolumeInfo {
            format: "folder",
            name: name.to_string_lossy().into_owned(),
            case_sensitive: true,
            clean: true,
            holes: true,
            block_size: 4096,
            ..VolumeInfo::default()
        }
    }

    fn root(&self) -> NodeId {
        NodeId(self.number)
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
            return Ok(None);
        }
        self.entry(dir, &self.folder(dir)?, name)
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        if node == self.root() {
            let found = node_of(&self.root).map_err(|source| failed("look up", source))?;
            return Ok(attributes(&found, Some(&self.root)));
        }
        let (folder, name, found) = self.find(node)?;
        Ok(self.attributes_of(&found, &folder, &name))
    }

    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let folder = self.folder(dir)?;
        let path = self.host_path(dir)?;
        let broken = |source| failed("list", source).in_file(&path);
        for entry in fs::read_dir(&path).map_err(broken)? {
            let Ok(name) = entry.map_err(broken)?.file_name().into_string() else {
                let message = "has an entry whose name is not UTF-8";
                return Err(Error::unsupported(LAYER, message).in_file(path));
            };
            if dir == self.root() && name == PRIVATE {
                continue;
            }
            // Removed since it was listed, if there is none.
            if let Some(attributes) = self.entry(dir, &folder, &name)?
                && each(Entry { name, attributes })?.is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>> {
        if fork == Fork::Resource {
            let empty = || Arc::new(Memory::read_only(Vec::new())) as Arc<dyn BlockDevice>;
            return Ok(self.xattr(node, RESOURCE_FORK)?.unwrap_or_else(empty));
        }
        let (_, name, found) = self.find(node)?;
        if kind(&found) != FileKind::File {
            return Err(Error::invalid(LAYER, "expected a file").named(name));
        }
        let path = self.host_path(node)?;
        let file = LocalFile::open(&path, Open::Read)?;
        let file = file.ok_or_else(|| Error::not_found(LAYER, path.display().to_string()))?;
        let meta = file.metadata()?;
        if (meta.dev(), meta.ino()) != found.identity {
            let message = "was replaced by another program in the meantime";
            return Err(Error::conflict(LAYER, message).in_file(path));
        }
        Ok(Arc::new(file))
    }

    fn read_link(&self, node: NodeId) -> Result<String> {
        let (_, name, found) = self.find(node)?;
        if kind(&found) != FileKind::Symlink {
            return Err(Error::invalid(LAYER, "expected a symbolic link").named(name));
        }
        let path = self.host_path(node)?;
        let target = fs::read_link(&path);
        let target = target.map_err(|source| failed("read the link", source).in_file(&path))?;
        target.into_os_string().into_string().map_err(|_| {
            Error::unsupported(LAYER, "the target of the link is not UTF-8").in_file(path)
        })
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<String>> {
        let values = self.values(node)?;
        Ok(values.into_iter().map(|(name, _)| name).collect())
    }

    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        let mut values = self.values(node)?.into_iter();
        let value = values.find(|(own, _)| own == name);
        Ok(value.map(|(_, value)| Arc::new(Memory::read_only(value)) as Arc<dyn BlockDevice>))
    }
}

fn kind(node: &HostNode) -> FileKind {
    match node.kind {
        FileType::Directory => FileKind::Folder,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::RegularFile | FileType::Unknown => FileKind::File,
    }
}

/// Returns the attributes of an object; `opened` is the object itself, if it can be opened.
fn attributes(node: &HostNode, opened: Option<&OwnedFd>) -> Attributes {
    let time = |(seconds, nanos): HostTime| Timestamp { seconds, nanos };
    let kind = kind(node);
    let is_folder = kind == FileKind::Folder;
    // An unreadable value is not absent: a request for it gets the error.
    let values = opened.map(|opened| xattrs(opened.as_fd()).ok());
    let (has_xattrs, resource_size) = match values {
        None => (false, 0),
        Some(None) => (true, 0),
        Some(Some(values)) => {
            let is_other = |(name, _): &(String, _)| name != FINDER_INFO && name != RESOURCE_FORK;
            let resource = values.iter().find(|(name, _)| name == RESOURCE_FORK);
            (
                values.iter().any(is_other),
                resource.map_or(0, |(_, value)| value.len() as u64),
            )
        }
    };
    let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    Attributes {
        id: NodeId(node.identity.1),
        kind,
        size: if is_folder { 0 } else { node.size },
        allocated: if is_folder { 0 } else { node.size },
        resource_size,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        links: match is_folder {
            true => 1,
            false => u32::try_from(node.links).unwrap_or(u32::MAX),
        },
        device: device
            .then(|| device_to_mac(node.special))
            .flatten()
            .unwrap_or(0),
        flags: node.flags,
        created: node.created.map(time),
        modified: Some(time(node.modified)),
        changed: Some(time(node.changed)),
        accessed: Some(time(node.accessed)),
        backed_up: None,
        has_xattrs,
    }
}

fn failed(doing: &'static str, source: io::Error) -> Error {
    Error::io(LAYER, doing, source)
}
