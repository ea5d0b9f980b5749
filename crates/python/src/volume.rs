//! An open volume as a native object: reading. `changes.rs` has what changes it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bandsaw::device::{Access, BlockDeviceExt};
use bandsaw::fs::{Attributes, FileKind, FileSystem, FileSystemMut, Fork, NodeId};
use bandsaw::ops::describe::ErrorInfo;
use bandsaw::ops::export::{self, Exported};
use bandsaw::sync::RwLock;
use bandsaw::{Error, Kind, Result};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::detached::{Detached, Shared, detached};
use crate::device::Device;
use crate::entries::{DirEntry, Entries, Stat};
use crate::failure::Outcome;
use crate::progress;
use crate::value::{Value, map};
use crate::walk::WalkScope;

const LAYER: &str = "path";
/// Symbolic links that are followed in one path, as in Linux.
const MAX_LINKS: u32 = 40;
/// Maximum length of a file that is read in the same step as it is opened, in bytes.
const SMALL: usize = 64 << 10;

/// An open volume. All methods may be called by several threads at the same time.
#[pyclass(frozen, module = "bandsaw._bandsaw")]
#[derive(Debug)]
pub(crate) struct NativeVolume {
    /// `None` once closed.
    opened: RwLock<Option<Shared<OpenVolume>>>,
}

/// The interfaces of a volume.
#[derive(Debug)]
pub(crate) struct OpenVolume {
    pub(crate) fs: Arc<dyn FileSystem>,
    /// `None`: open for reading.
    pub(crate) changes: Option<Arc<dyn FileSystemMut>>,
}

impl NativeVolume {
    pub(crate) fn new(opened: OpenVolume) -> Self {
        Self {
            opened: RwLock::new(Some(Detached::shared(opened))),
        }
    }

    pub(crate) fn opened(&self) -> Outcome<Shared<OpenVolume>> {
        let opened = self.opened.read().clone();
        Ok(opened.ok_or_else(|| PyValueError::new_err("the volume is closed"))?)
    }
}

#[pymethods]
impl NativeVolume {
    /// Returns the properties and the usage.
    fn info(&self, py: Python<'_>) -> Outcome<Value> {
        let opened = self.opened()?;
        let of = py.detach(|| opened.fs.volume());
        Ok(map! {
            "file_system": of.format,
            "name": of.name,
            "uuid": of.uuid.map(|uuid| uuid.to_string()),
            "case_sensitive": of.case_sensitive,
            "journaled": of.journaled,
            "clean": of.clean,
            "block_size": of.block_size,
            "size": of.total,
            "free": of.free,
            "pending": of.pending,
            "files": of.files,
            "folders": of.folders,
            "created": of.created.map(|time| time.to_string()),
            "modified": of.modified.map(|time| time.to_string()),
        })
    }

    #[getter]
    fn writable(&self) -> Outcome<bool> {
        Ok(self.opened()?.changes.is_some())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.opened.read().is_none()
    }

    /// Returns the attributes of the object at a path; of the target of a symbolic link if `follow`.
    fn stat(&self, py: Python<'_>, path: &Bound<'_, PyString>, follow: bool) -> Outcome<Stat> {
        let (opened, path) = (self.opened()?, text(path)?);
        let link = match follow {
            true => FinalLink::Follow,
            false => FinalLink::Keep,
        };
        Ok(Stat::new(py.detach(|| resolve(&*opened.fs, &path, link))?))
    }

    /// Returns the attributes of the object with this number.
    fn stat_node(&self, py: Python<'_>, node: u64) -> Outcome<Stat> {
        let opened = self.opened()?;
        Ok(Stat::new(py.detach(|| opened.fs.attributes(NodeId(node)))?))
    }

    /// Returns an iterator over the entries of the folder at a path.
    fn entries(
        &self,
        py: Python<'_>,
        path: &Bound<'_, PyString>,
        recursive: bool,
    ) -> Outcome<Entries> {
        let (opened, path) = (self.opened()?, text(path)?);
        let found = py.detach(|| resolve(&*opened.fs, &path, FinalLink::Follow))?;
        if found.kind != FileKind::Folder {
            return Err(not_a_folder(&path).into());
        }
        let path = format!("/{}", path.trim_matches('/'));
        Ok(Entries::new(
            opened.fs.clone(),
            (found.id, &path),
            match recursive {
                true => WalkScope::Tree,
                false => WalkScope::Folder,
            },
            match opened.changes {
                Some(_) => Access::ReadWrite,
                None => Access::ReadOnly,
            },
        ))
    }

    /// Opens a fork for reading, or for writing in place.
    fn open(&self, py: Python<'_>, node: u64, fork: &str, writable: bool) -> Outcome<Device> {
        let (opened, fork) = (self.opened()?, fork_of(fork)?);
        let device = py.detach(|| match writable {
            false => opened.fs.open(NodeId(node), fork),
            true => changes(&opened)?.open_mut(NodeId(node), fork),
        })?;
        Ok(Device::new(device))
    }

    /// Returns all of a fork.
    fn read<'py>(&self, py: Python<'py>, node: u64, fork: &str) -> Outcome<Bound<'py, PyBytes>> {
        let (opened, fork) = (self.opened()?, fork_of(fork)?);
        let read = || -> Result<_> {
            let device = opened.fs.open(NodeId(node), fork)?;
            match usize::try_from(device.info().len) {
                Ok(length) if length <= SMALL => Ok(Ok(device.read_vec(0, length)?)),
                _ => Ok(Err(device)),
            }
        };
        match py.detach(read)? {
            Ok(bytes) => Ok(PyBytes::new(py, &bytes)),
            Err(device) => Device::new(device).pread(py, -1, 0),
        }
    }

    /// Returns all of a fork of an entry; `None` if it is not a file.
    fn read_entry<'py>(
        &self,
        py: Python<'py>,
        entry: &DirEntry,
        fork: &str,
    ) -> Outcome<Option<Bound<'py, PyBytes>>> {
        match entry.is_file() {
            true => self.read(py, entry.inode(), fork).map(Some),
            false => Ok(None),
        }
    }

    /// Returns the target of a symbolic link.
    fn readlink(&self, py: Python<'_>, node: u64) -> Outcome<String> {
        let opened = self.opened()?;
        Ok(py.detach(|| opened.fs.read_link(NodeId(node)))?)
    }

    /// Returns the names of the extended attributes.
    fn xattrs(&self, py: Python<'_>, node: u64) -> Outcome<Vec<String>> {
        let opened = self.opened()?;
        Ok(py.detach(|| opened.fs.xattrs(NodeId(node)))?)
    }

    /// Returns the value of an extended attribute.
    fn xattr<'py>(
        &self,
        py: Python<'py>,
        node: u64,
        name: &str,
    ) -> Outcome<Option<Bound<'py, PyBytes>>> {
        let opened = self.opened()?;
        let value = py.detach(|| -> Result<_> {
            let Some(value) = opened.fs.xattr(NodeId(node), name)? else {
                return Ok(None);
            };
            let length = usize::try_from(value.info().len).unwrap_or(usize::MAX);
            value.read_vec(0, length).map(Some)
        })?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// Extracts the object at a path into a folder of the host, or into a tar archive.
    #[expect(clippy::too_many_arguments, reason = "the options of the verb")]
    fn extract(
        &self,
        py: Python<'_>,
        path: &Bound<'_, PyString>,
        target: PathBuf,
        tar: bool,
        overwrite: bool,
        special_files: bool,
        setuid: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Value> {
        let (opened, path) = (self.opened()?, text(path)?);
        let options = export::FolderOptions {
            overwrite,
            special_files,
            setuid,
            ..export::FolderOptions::default()
        };
        let done = progress::run(py, progress, |progress| match tar {
            true => to_archive(&*opened.fs, &path, &target, overwrite, progress),
            false => export::to_folder(&*opened.fs, &path, &target, &options, progress),
        })?;
        Ok(exported(&done))
    }

    /// Makes everything durable.
    fn sync(&self, py: Python<'_>) -> Outcome {
        let opened = self.opened()?;
        Ok(py.detach(|| {
            opened
                .changes
                .as_ref()
                .map_or(Ok(()), |changes| changes.sync())
        })?)
    }

    /// Releases the volume. One that was open for changes is marked as clean.
    fn close(&self, py: Python<'_>) -> Outcome {
        let opened = self.opened.write().take();
        let Some(opened) = opened else {
            return Ok(());
        };
        Ok(py.detach(|| opened.unmount())?)
    }
}

impl OpenVolume {
    /// Marks a volume that is open for changes as clean.
    fn unmount(&self) -> Result<()> {
        self.changes
            .as_ref()
            .map_or(Ok(()), |changes| changes.unmount())
    }
}

impl Drop for NativeVolume {
    fn drop(&mut self) {
        // A volume that was not closed is marked as clean nevertheless; errors cannot be raised here.
        if let Some(opened) = self.opened.get_mut().take() {
            detached(|| drop(opened.unmount()));
        }
    }
}

/// Returns the interface for changes.
pub(crate) fn changes(opened: &OpenVolume) -> Result<&Arc<dyn FileSystemMut>> {
    opened
        .changes
        .as_ref()
        .ok_or_else(|| Error::new(Kind::ReadOnly, "volume", "the volume is open read-only"))
}

/// Returns a path in a volume. One that is not Unicode names nothing, as names in volumes are.
pub(crate) fn text(path: &Bound<'_, PyString>) -> Result<String> {
    match path.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(Error::not_found(LAYER, path.to_string_lossy())),
    }
}

pub(crate) fn fork_of(name: &str) -> Outcome<Fork> {
    match name {
        "data" => Ok(Fork::Data),
        "resource" => Ok(Fork::Resource),
        _ => Err(PyValueError::new_err("expected the fork \"data\" or \"resource\"").into()),
    }
}

pub(crate) fn not_a_folder(path: &str) -> Error {
    Error::new(Kind::NotFound, LAYER, "cannot be followed")
        .named(path)
        .caused_by(PathProblem::NotAFolder)
}

/// A problem with a path for which the system has an error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathProblem {
    NotAFolder,
    IsAFolder,
    SymlinkLoop,
}

impl PathProblem {
    /// Returns the name by which `bandsaw.errors` chooses the class.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NotAFolder => "not_a_folder",
            Self::IsAFolder => "is_a_folder",
            Self::SymlinkLoop => "symlink_loop",
        }
    }
}

impl fmt::Display for PathProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAFolder => "not a folder",
            Self::IsAFolder => "is a folder",
            Self::SymlinkLoop => "too many symbolic links (limit 40)",
        })
    }
}

impl std::error::Error for PathProblem {}

/// The treatment of a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalLink {
    /// The path leads to its target.
    Follow,
    /// The path leads to the link.
    Keep,
}

/// Returns the object at a path. Symbolic links in it are followed within the volume.
pub(crate) fn resolve(fs: &dyn FileSystem, path: &str, link: FinalLink) -> Result<Attributes> {
    let mut above = Vec::new();
    let mut at = fs.attributes(fs.root())?;
    let mut links = 0;
    let parts = |path: &str| -> Vec<String> {
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
        parts.rev().map(str::to_owned).collect()
    };
    let mut ahead = parts(path);
    while let Some(part) = ahead.pop() {
        if at.kind != FileKind::Folder {
            return Err(not_a_folder(path));
        }
        if part == ".." {
            at = above.pop().unwrap_or(at);
            continue;
        }
        let found = fs
            .lookup(at.id, &part)?
            .ok_or_else(|| Error::not_found(LAYER, path))?;
        if found.kind == FileKind::Symlink && (link == FinalLink::Follow || !ahead.is_empty()) {
            links += 1;
            if links > MAX_LINKS {
                return Err(Error::new(Kind::Limit, LAYER, "cannot be followed")
                    .named(path)
                    .caused_by(PathProblem::SymlinkLoop));
            }
            let target = fs.read_link(found.id)?;
            if target.starts_with('/') {
                above.clear();
                at = fs.attributes(fs.root())?;
            }
            ahead.extend(parts(&target));
            continue;
        }
        above.push(std::mem::replace(&mut at, found));
    }
    Ok(at)
}

fn to_archive(
    fs: &dyn FileSystem,
    path: &str,
    target: &std::path::Path,
    overwrite: bool,
    progress: &dyn bandsaw::progress::Progress,
) -> Result<Exported> {
    let failed = |error| Error::io("extract", "create", error).in_file(target);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(!overwrite);
    options.create(true).truncate(true);
    let mut file = std::io::BufWriter::new(options.open(target).map_err(failed)?);
    let done = export::to_tar(fs, path, &mut file, progress)?;
    file.into_inner()
        .map_err(|error| failed(error.into_error()))?
        .sync_all()
        .map_err(failed)?;
    Ok(done)
}

/// Returns the result of an export.
fn exported(done: &Exported) -> Value {
    let all = |errors: &[Error]| errors.iter().map(ErrorInfo::new).collect::<Vec<_>>();
    map! {
        "files": done.files,
        "folders": done.folders,
        "symlinks": done.symlinks,
        "size": done.bytes,
        "problems": all(&done.problems),
        "problem_count": done.problem_count,
        "notes": all(&done.notes),
        "note_count": done.note_count,
    }
}
