//! A folder of the host as a tree.
//!
//! The walk lists and asks, but reads no contents: those are read while the volume is written, and a file that changed
//! in between is an error. Everything below the folder belongs to the tree, what is mounted there included. Symbolic
//! links stay links. Owners are numbers. Extended attributes get the names that macOS gives them: `user.NAME` of Linux is
//! `NAME`; what belongs to the host alone (`security.*`, `system.*`, `trusted.*`) is left out.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::fs::FileType;

use super::host_contents::{HostContents, HostEntry};
use crate::fs::source::{SourceKind, SourceNode, Stream, Tree};
use crate::fs::{FileKind, Timestamp};
use crate::platform::nodes::{self, Moment, Node};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

pub(super) const LAYER: &str = "source folder";

/// How a folder is read.
#[derive(Debug, Clone, Default)]
pub struct FolderOptions {
    /// Files and folders of the host that are left out: the image that is being made, if it lies inside the folder.
    pub leave_out: Vec<PathBuf>,
}

/// The tree below the folder `path` of the host; `path` itself may be a symbolic link. The same folder gives the same
/// tree whatever the order in which the host lists it.
///
/// Fails with [`Kind::Unsupported`] on what cannot be stored on a volume of Apple's, and with [`Kind::Conflict`] on what
/// vanishes while it is looked at.
pub fn folder(path: &Path, options: &FolderOptions, progress: &dyn Progress) -> Result<Tree> {
    progress.stage("scan", 0);
    let walk = Walk::begin(path, options, progress)?;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(MOST_THREADS);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| walk.work());
        }
        walk.work();
    });
    walk.finish()?.assemble()
}

/// More do not help: the kernel's folder locks are the limit.
const MOST_THREADS: usize = 4;

/// A folder on the way down, kept open while folders in it wait to be listed.
#[derive(Debug)]
struct Place {
    parent: Option<Arc<Place>>,
    name: Box<str>,
    fd: OwnedFd,
}

impl Place {
    fn path(&self) -> PathBuf {
        match &self.parent {
            Some(parent) => parent.path().join(&*self.name),
            None => PathBuf::from(&*self.name),
        }
    }
}

/// A folder that waits to be listed.
#[derive(Debug)]
struct Job {
    number: usize,
    parent: Arc<Place>,
    name: Box<str>,
}

/// An entry of a listed folder.
#[derive(Debug)]
struct Found {
    name: Box<str>,
    node: Node,
    xattrs: Vec<(Box<str>, Stream)>,
    what: What,
}

#[derive(Debug)]
enum What {
    File,
    Folder { number: usize },
    Symlink(Box<str>),
    Special(FileKind, u32),
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Vec<Job>,
    /// Threads that list a folder now and may yet find more.
    busy: usize,
    /// By folder number; empty until listed.
    listed: Vec<Vec<Found>>,
    failure: Option<Error>,
}

struct Walk<'a> {
    root: Arc<Place>,
    root_node: Node,
    root_xattrs: Vec<(Box<str>, Stream)>,
    /// Folder (device and inode) and name.
    leave_out: Vec<((u64, u64), CString)>,
    progress: &'a dyn Progress,
    shared: Mutex<Shared>,
    changed: Condvar,
}

impl<'a> Walk<'a> {
    fn begin(path: &Path, options: &FolderOptions, progress: &'a dyn Progress) -> Result<Self> {
        let fail = |error: std::io::Error| Error::io(LAYER, "open", error).in_file(path);
        let fd = OwnedFd::from(std::fs::File::open(path).map_err(fail)?);
        let root_node = nodes::node_of(&fd).map_err(fail)?;
        if root_node.kind != FileType::Directory {
            return Err(Error::new(Kind::Invalid, LAYER, "is no folder").in_file(path));
        }
        let root_xattrs = xattrs_of(&fd).map_err(|error| error.in_file(path))?;
        let name = path.to_str().ok_or_else(|| Error::unsupported(LAYER, "its path is not UTF-8").in_file(path))?;
        let root = Arc::new(Place { parent: None, name: name.into(), fd });
        let leave_out = options.leave_out.iter().filter_map(|path| place_of(path)).collect();
        let shared = Shared { listed: vec![Vec::new()], ..Shared::default() };
        let walk =
            Self { root, root_node, root_xattrs, leave_out, progress, shared: Mutex::new(shared), changed: Condvar::new() };
        let found = walk.list(&walk.root)?;
        walk.file(0, &walk.root, found);
        Ok(walk)
    }

    /// Lists waiting folders until none waits and nobody may find another.
    fn work(&self) {
        while let Some(job) = self.take() {
            let number = job.number;
            let result = self.enter(job);
            match result {
                Ok((place, found)) => self.file(number, &place, found),
                Err(error) => {
                    self.shared().failure.get_or_insert(error);
                }
            }
            self.shared().busy -= 1;
            self.changed.notify_all();
        }
    }

    fn take(&self) -> Option<Job> {
        let mut shared = self.shared();
        loop {
            if shared.failure.is_some() {
                return None;
            }
            if let Some(job) = shared.waiting.pop() {
                shared.busy += 1;
                return Some(job);
            }
            if shared.busy == 0 {
                return None;
            }
            shared = self.changed.wait(shared).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn enter(&self, job: Job) -> Result<(Arc<Place>, Vec<Found>)> {
        self.progress.check()?;
        let fd = nodes::open_folder(&job.parent.fd, &job.name)
            .map_err(|error| failed("open folder", error, &job.parent, &job.name))?;
        let place = Arc::new(Place { parent: Some(job.parent), name: job.name, fd });
        let found = self.list(&place)?;
        Ok((place, found))
    }

    /// Puts what was found in folder `number` in its place, and its folders in line.
    fn file(&self, number: usize, place: &Arc<Place>, mut found: Vec<Found>) {
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.progress.advance(found.len() as u64);
        let mut shared = self.shared();
        for entry in &mut found {
            if let What::Folder { number } = &mut entry.what {
                *number = shared.listed.len();
                shared.listed.push(Vec::new());
                shared.waiting.push(Job { number: *number, parent: place.clone(), name: entry.name.clone() });
            }
        }
        shared.listed[number] = found;
        drop(shared);
        self.changed.notify_all();
    }

    fn list(&self, place: &Place) -> Result<Vec<Found>> {
        let fail = |error: rustix::io::Errno| Error::io(LAYER, "list folder", error).in_file(place.path());
        let here = nodes::node_of(&place.fd).map_err(|error| Error::io(LAYER, "look at", error).in_file(place.path()))?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&place.fd).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name();
            let left_out = || self.leave_out.iter().any(|(folder, left_out)| *folder == here.identity && **left_out == *name);
            if !nodes::is_dots(name) && !left_out() {
                found.push(look(place, name)?);
            }
        }
        Ok(found)
    }

    fn finish(self) -> Result<Assembly> {
        let Self { root, root_node, root_xattrs, shared, .. } = self;
        let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = shared.failure {
            return Err(error);
        }
        let root_source = source_node(0, "".into(), &root_node, SourceKind::Folder, root_xattrs);
        let entries = vec![HostEntry::folder(0, "".into())];
        Ok(Assembly { root, listed: shared.listed, nodes: vec![root_source], entries, linked: HashMap::new() })
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at one entry of a folder.
fn look(place: &Place, name: &std::ffi::CStr) -> Result<Found> {
    let text = name.to_str().map_err(|_| {
        Error::unsupported(LAYER, "a name on an Apple volume must be UTF-8")
            .in_file(place.path().join(name.to_string_lossy().as_ref()))
    })?;
    let fail = |doing, error: std::io::Error| failed(doing, error, place, text);
    let node = nodes::node_at(place.fd.as_fd(), name).map_err(|error| fail("look at", error))?;
    let what = match node.kind {
        FileType::RegularFile => What::File,
        FileType::Directory => What::Folder { number: 0 },
        FileType::Symlink => What::Symlink(target(place, text)?),
        FileType::Fifo => What::Special(FileKind::Fifo, 0),
        FileType::Socket => What::Special(FileKind::Socket, 0),
        FileType::CharacterDevice => What::Special(FileKind::CharDevice, device(&node, place, text)?),
        FileType::BlockDevice => What::Special(FileKind::BlockDevice, device(&node, place, text)?),
        FileType::Unknown => return Err(Error::unsupported(LAYER, "is of an unknown kind").in_file(place.path().join(text))),
    };
    // Other kinds of nodes have no attributes of ours on Linux, and opening them could have effects.
    let opened = match what {
        What::File => Some(nodes::open_file(&place.fd, text)),
        What::Folder { .. } => Some(nodes::open_folder(&place.fd, text)),
        _ => None,
    };
    let xattrs = match opened.transpose().map_err(|error| fail("open", error))? {
        Some(fd) => xattrs_of(&fd).map_err(|error| error.in_file(place.path().join(text)))?,
        None => Vec::new(),
    };
    Ok(Found { name: text.into(), node, xattrs, what })
}

fn target(place: &Place, name: &str) -> Result<Box<str>> {
    let target = rustix::fs::readlinkat(&place.fd, name, Vec::new()).map_err(|error| failed("read link", error, place, name))?;
    match target.into_string() {
        Ok(target) => Ok(target.into()),
        Err(_) => {
            Err(Error::unsupported(LAYER, "the target of a link on an Apple volume must be UTF-8")
                .in_file(place.path().join(name)))
        }
    }
}

fn device(node: &Node, place: &Place, name: &str) -> Result<u32> {
    nodes::device_to_mac(node.special).ok_or_else(|| {
        Error::unsupported(LAYER, "its device number does not fit in the 8 and 24 bits that macOS has for it")
            .in_file(place.path().join(name))
    })
}

fn xattrs_of(fd: &OwnedFd) -> Result<Vec<(Box<str>, Stream)>> {
    let found = nodes::xattrs(fd.as_fd()).map_err(|error| Error::io(LAYER, "read extended attributes", error))?;
    Ok(found.into_iter().map(|(name, value)| (name.into(), Stream::Bytes(value.into()))).collect())
}

/// The error of a system call on an entry that was just listed.
fn failed(doing: &'static str, error: impl Into<std::io::Error>, place: &Place, name: &str) -> Error {
    let error = error.into();
    match error.kind() {
        std::io::ErrorKind::NotFound => Error::new(Kind::Conflict, LAYER, "vanished while the folder was read"),
        _ => Error::io(LAYER, doing, error),
    }
    .in_file(place.path().join(name))
}

/// The folder (device and inode) and name of something that may not exist.
fn place_of(path: &Path) -> Option<((u64, u64), CString)> {
    let name = nodes::c_name(path.file_name()?.as_encoded_bytes()).ok()?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = std::fs::File::open(parent).ok()?;
    Some((nodes::node_of(folder).ok()?.identity, name))
}

/// Puts the listed folders together: each folder's entries side by side, then its folders one after another.
struct Assembly {
    root: Arc<Place>,
    listed: Vec<Vec<Found>>,
    nodes: Vec<SourceNode>,
    entries: Vec<HostEntry>,
    /// First index of each node with several names.
    linked: HashMap<(u64, u64), u32>,
}

impl Assembly {
    fn assemble(mut self) -> Result<Tree> {
        let mut ahead = vec![(0, 0)];
        while let Some((number, index)) = ahead.pop() {
            let mut folders = Vec::new();
            for found in std::mem::take(&mut self.listed[number]) {
                let child = u32::try_from(self.nodes.len())
                    .map_err(|_| Error::new(Kind::Limit, LAYER, "more than 2^32 files and folders"))?;
                if let What::Folder { number } = found.what {
                    folders.push((number, child));
                }
                self.add(index, child, found);
            }
            ahead.extend(folders.into_iter().rev());
        }
        let root = self.root.fd.try_clone().map_err(|error| Error::io(LAYER, "keep open", error).in_file(self.root.path()))?;
        let contents = Box::new(HostContents::new(self.root.path(), root, self.entries));
        Ok(Tree { nodes: self.nodes, contents })
    }

    fn add(&mut self, parent: u32, child: u32, found: Found) {
        let Found { name, node, xattrs, what } = found;
        let mut kind = match what {
            What::File => SourceKind::File(match node.size {
                0 => Stream::empty(),
                len => Stream::Extern { node: child, offset: 0, len },
            }),
            What::Folder { .. } => SourceKind::Folder,
            What::Symlink(target) => SourceKind::Symlink(target),
            What::Special(kind, device) => SourceKind::Special(kind, device),
        };
        if node.links > 1 && node.kind != FileType::Directory {
            let first = *self.linked.entry(node.identity).or_insert(child);
            if first != child {
                kind = SourceKind::HardLink(first);
            }
        }
        self.entries.push(HostEntry { parent, name: name.clone(), inode: node.identity.1, modified: node.modified });
        self.nodes.push(source_node(parent, name, &node, kind, xattrs));
    }
}

fn source_node(parent: u32, name: Box<str>, node: &Node, kind: SourceKind, xattrs: Vec<(Box<str>, Stream)>) -> SourceNode {
    SourceNode {
        parent,
        name,
        kind,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        flags: node.flags,
        created: node.created.map(timestamp),
        modified: timestamp(node.modified),
        changed: Some(timestamp(node.changed)),
        accessed: Some(timestamp(node.accessed)),
        xattrs,
    }
}

fn timestamp((seconds, nanos): Moment) -> Timestamp {
    Timestamp { seconds, nanos }
}
