//! Changes of a volume. Each is complete or absent after a crash; a file that is written whole appears when it is complete.

use std::path::PathBuf;
use std::sync::Arc;

use bandsaw::device::AfterDiscard;
use bandsaw::fs::{
    Attributes, Change, ExistingTarget, FileKind, FileSystemMut, FileSystemMutExt, Fork, NewKind,
    NewNode, NodeId, Timestamp, UF_COMPRESSED,
};
use bandsaw::ops::import::{FolderOptions, Item, items};
use bandsaw::ops::put::{PutOptions, put};
use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Result};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::buffer::Buffer;
use crate::detached::{Detached, detached};
use crate::device::Device;
use crate::failure::Outcome;
use crate::progress;
use crate::value::{Value, map};
use crate::volume::{FinalLink, NativeVolume, PathProblem, changes, not_a_folder, resolve, text};

const LAYER: &str = "volume";
/// Bytes that are written at a time.
const PIECE: usize = 4 << 20;

#[pymethods]
impl NativeVolume {
    /// Begins a file that appears at `path` when it is finished.
    fn new_file(
        &self,
        py: Python<'_>,
        path: &Bound<'_, PyString>,
        replace: bool,
    ) -> Outcome<NewFile> {
        let (opened, path) = (self.opened()?, text(path)?);
        Ok(py.detach(|| NewFile::new(changes(&opened)?, &path, replace, None))?)
    }

    /// Writes a file as a whole. A new one has the mode `mode`, if that is given.
    fn write(
        &self,
        py: Python<'_>,
        path: &Bound<'_, PyString>,
        data: &Bound<'_, PyAny>,
        replace: bool,
        mode: Option<u16>,
    ) -> Outcome<usize> {
        let (opened, path, data) = (self.opened()?, text(path)?, Buffer::of(data)?);
        let bytes = data.bytes();
        py.detach(|| -> Result<()> {
            let file = NewFile::new(changes(&opened)?, &path, replace, mode)?;
            file.fill(bytes)?;
            file.link()
        })?;
        Ok(bytes.len())
    }

    fn mkdir(&self, py: Python<'_>, path: &Bound<'_, PyString>, mode: u16) -> Outcome {
        let kind = NewKind::Folder;
        self.make(
            py,
            path,
            NewNode {
                mode,
                ..NewNode::new(kind)
            },
        )
    }

    fn symlink(&self, py: Python<'_>, path: &Bound<'_, PyString>, target: String) -> Outcome {
        self.make(py, path, NewNode::new(NewKind::Symlink(target)))
    }

    /// Adds a name to a file.
    fn link(
        &self,
        py: Python<'_>,
        from: &Bound<'_, PyString>,
        to: &Bound<'_, PyString>,
    ) -> Outcome {
        let (opened, from, to) = (self.opened()?, text(from)?, text(to)?);
        Ok(py.detach(|| {
            let fs = changes(&opened)?;
            let node = resolve(&**fs, &from, FinalLink::Keep)?.id;
            let (dir, name) = parent(&**fs, &to)?;
            fs.link(node, dir, name)
        })?)
    }

    fn rename(
        &self,
        py: Python<'_>,
        from: &Bound<'_, PyString>,
        to: &Bound<'_, PyString>,
        replace: bool,
    ) -> Outcome {
        let (opened, from, to) = (self.opened()?, text(from)?, text(to)?);
        Ok(py.detach(|| {
            let fs = changes(&opened)?;
            let (from, to) = (parent(&**fs, &from)?, parent(&**fs, &to)?);
            fs.rename(from, to, existing(replace))
        })?)
    }

    /// Removes a file, a link or an empty folder; all of a folder if `recursive`.
    fn remove(
        &self,
        py: Python<'_>,
        path: &Bound<'_, PyString>,
        recursive: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> Outcome {
        let (opened, path) = (self.opened()?, text(path)?);
        let fs = changes(&opened)?;
        if !recursive {
            return Ok(py.detach(|| {
                let (dir, name) = parent(&**fs, &path)?;
                fs.remove(dir, name)
            })?);
        }
        progress::run(py, progress, |progress| {
            progress.stage("remove", 0);
            let (dir, name) = parent(&**fs, &path)?;
            let top = fs.lookup(dir, name)?;
            let top = top.ok_or_else(|| Error::not_found("path", &*path))?;
            remove_all(&**fs, (dir, name), &top, progress)
        })
    }

    /// Sets attributes; those that are `None` stay. Times are in nanoseconds since 1970.
    #[expect(clippy::too_many_arguments, reason = "the attributes")]
    fn set_attributes(
        &self,
        py: Python<'_>,
        node: u64,
        mode: Option<u16>,
        uid: Option<u32>,
        gid: Option<u32>,
        flags: Option<u32>,
        times: [Option<i128>; 4],
    ) -> Outcome {
        let opened = self.opened()?;
        let [created, modified, accessed, backed_up] = times.map(|time| time.map(timestamp));
        let change = Change {
            mode,
            uid,
            gid,
            flags,
            created: created.transpose()?,
            modified: modified.transpose()?,
            accessed: accessed.transpose()?,
            backed_up: backed_up.transpose()?,
            ..Change::default()
        };
        Ok(py.detach(|| changes(&opened)?.set_attributes(NodeId(node), &change))?)
    }

    fn set_xattr(
        &self,
        py: Python<'_>,
        node: u64,
        name: &str,
        value: &Bound<'_, PyAny>,
    ) -> Outcome {
        let (opened, value) = (self.opened()?, Buffer::of(value)?);
        let bytes = value.bytes();
        Ok(py.detach(|| changes(&opened)?.set_xattr_bytes(NodeId(node), name, bytes))?)
    }

    fn remove_xattr(&self, py: Python<'_>, node: u64, name: &str) -> Outcome {
        let opened = self.opened()?;
        Ok(py.detach(|| changes(&opened)?.remove_xattr(NodeId(node), name))?)
    }

    /// Copies files and folders of the host into the folder at `path`, each under a name.
    fn add(
        &self,
        py: Python<'_>,
        sources: Vec<(PathBuf, String)>,
        path: &Bound<'_, PyString>,
        overwrite: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> Outcome<Value> {
        let (opened, path) = (self.opened()?, text(path)?);
        let fs = changes(&opened)?;
        let sources: Vec<_> = sources
            .into_iter()
            .map(|(from, to)| Item::At { from, to })
            .collect();
        let options = PutOptions {
            overwrite,
            ..PutOptions::default()
        };
        let done = progress::run(py, progress, |progress| {
            let now = Timestamp::now_in_seconds();
            let tree = items(&sources, now, &FolderOptions::default(), progress)?;
            put(&tree, &**fs, &path, &options, progress)
        })?;
        Ok(map! {
            "files": done.files,
            "folders": done.folders,
            "symlinks": done.symlinks,
            "size": done.bytes,
        })
    }
}

impl NativeVolume {
    fn make(&self, py: Python<'_>, path: &Bound<'_, PyString>, new: NewNode) -> Outcome {
        let (opened, path) = (self.opened()?, text(path)?);
        Ok(py.detach(|| {
            let fs = changes(&opened)?;
            let (dir, name) = parent(&**fs, &path)?;
            fs.create(dir, name, &new).map(drop)
        })?)
    }
}

/// A file that has no name yet.
#[pyclass(frozen, module = "bandsaw._bandsaw")]
#[derive(Debug)]
pub(crate) struct NewFile {
    fs: Detached<Arc<dyn FileSystemMut>>,
    dir: NodeId,
    name: String,
    replace: bool,
    /// `None` once it has a name or was discarded.
    node: Mutex<Option<NodeId>>,
}

impl NewFile {
    fn new(
        fs: &Arc<dyn FileSystemMut>,
        path: &str,
        replace: bool,
        mode: Option<u16>,
    ) -> Result<Self> {
        let (dir, name) = parent(&**fs, path)?;
        let there = fs.lookup(dir, name)?;
        match &there {
            Some(there) if there.kind == FileKind::Folder => {
                return Err(
                    Error::new(Kind::Conflict, LAYER, "cannot be replaced by a file")
                        .named(path)
                        .caused_by(PathProblem::IsAFolder),
                );
            }
            Some(_) if !replace => {
                return Err(Error::new(Kind::Conflict, LAYER, "already exists").named(path));
            }
            _ => {}
        }
        let mut new = NewNode::new(NewKind::File);
        new.mode = mode.unwrap_or(new.mode);
        if let Some(there) = there.as_ref().filter(|there| there.kind == FileKind::File) {
            new = NewNode {
                mode: there.mode,
                uid: there.uid,
                gid: there.gid,
                flags: there.flags & !UF_COMPRESSED,
                created: None,
                ..new
            };
        }
        let file = Self {
            fs: Detached::new(fs.clone()),
            dir,
            name: name.to_owned(),
            replace,
            node: Mutex::new(Some(fs.create_unlinked(&new)?)),
        };
        if let Some(there) = there.filter(|there| there.kind == FileKind::File) {
            file.inherit(&there)?;
        }
        Ok(file)
    }

    /// Copies the creation date and the extended attributes of the file that is to be replaced.
    fn inherit(&self, there: &Attributes) -> Result<()> {
        let node = self.node()?;
        for name in self.fs.xattrs(there.id)? {
            if let Some(value) = self.fs.xattr(there.id, &name)? {
                self.fs
                    .set_xattr(node, &name, &*value, ExistingTarget::Replace)?;
            }
        }
        let change = Change {
            created: there.created,
            ..Change::default()
        };
        self.fs.set_attributes(node, &change)
    }

    fn node(&self) -> Result<NodeId> {
        let node = *self.node.lock();
        node.ok_or_else(|| Error::new(Kind::Invalid, LAYER, "the file is closed"))
    }

    fn fill(&self, bytes: &[u8]) -> Result<()> {
        let file = self.fs.open_mut(self.node()?, Fork::Data)?;
        file.set_len(bytes.len() as u64, AfterDiscard::Any)?;
        let mut at = 0;
        for piece in bytes.chunks(PIECE) {
            file.write_at(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn link(&self) -> Result<()> {
        let Some(node) = self.node.lock().take() else {
            return Ok(());
        };
        let linked = self
            .fs
            .link_unlinked(node, self.dir, &self.name, existing(self.replace));
        if linked.is_err() {
            *self.node.lock() = Some(node);
        }
        linked
    }
}

#[pymethods]
impl NewFile {
    /// Opens the contents for writing.
    fn open(&self, py: Python<'_>) -> Outcome<Device> {
        Ok(Device::new(
            py.detach(|| self.fs.open_mut(self.node()?, Fork::Data))?,
        ))
    }

    /// Gives the file its name.
    fn finish(&self, py: Python<'_>) -> Outcome {
        Ok(py.detach(|| self.link())?)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(node) = self.node.lock().take() {
            // The next change of the volume deletes it as well.
            detached(|| drop(self.fs.discard_unlinked(node)));
        }
    }
}

fn existing(replace: bool) -> ExistingTarget {
    match replace {
        true => ExistingTarget::Replace,
        false => ExistingTarget::Error,
    }
}

/// Returns the folder of `path`, and the name in it.
fn parent<'a>(fs: &dyn FileSystemMut, path: &'a str) -> Result<(NodeId, &'a str)> {
    let trimmed = path.trim_end_matches('/');
    let (folder, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    if matches!(name, "" | "." | "..") {
        return Err(Error::new(
            Kind::Invalid,
            "path",
            "expected the path of an object, not the root",
        )
        .named(path));
    }
    let found = resolve(fs, folder, FinalLink::Follow)?;
    match found.kind {
        FileKind::Folder => Ok((found.id, name)),
        _ => Err(not_a_folder(folder)),
    }
}

/// Removes an object and everything in it, from the inside out. A loop instead of recursion: folders may be nested to any
/// depth.
fn remove_all(
    fs: &dyn FileSystemMut,
    (dir, name): (NodeId, &str),
    top: &Attributes,
    progress: &dyn bandsaw::progress::Progress,
) -> Result<()> {
    use bandsaw::fs::FileSystemExt;
    let mut open = vec![(dir, name.to_owned(), top.id, top.kind == FileKind::Folder)];
    while let Some((dir, name, id, is_unlisted)) = open.pop() {
        progress.check()?;
        let entries = if is_unlisted {
            fs.entries(id)?
        } else {
            Vec::new()
        };
        if entries.is_empty() {
            fs.remove(dir, &name)?;
            progress.advance(1);
            continue;
        }
        open.push((dir, name, id, false));
        for entry in entries {
            let of = entry.attributes;
            open.push((id, entry.name, of.id, of.kind == FileKind::Folder));
        }
    }
    Ok(())
}

fn timestamp(nanoseconds: i128) -> PyResult<Timestamp> {
    let whole = i64::try_from(nanoseconds.div_euclid(1_000_000_000));
    let nanos = u32::try_from(nanoseconds.rem_euclid(1_000_000_000));
    match (whole, nanos) {
        (Ok(seconds), Ok(nanos)) => Ok(Timestamp { seconds, nanos }),
        _ => Err(PyValueError::new_err(
            "the time is out of range: its seconds exceed 64 bits",
        )),
    }
}
