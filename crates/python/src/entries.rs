//! Entries of folders, their attributes, and the iterator over them.

use std::sync::Arc;

use bandsaw::device::Access;
use bandsaw::fs::{Attributes, Entry, FileKind, FileSystem, NodeId, Timestamp, UF_COMPRESSED};
use bandsaw::sync::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Outcome;
use crate::walk::{Walk, WalkScope, joined};

/// The attributes of an object, with the names of `os.stat_result`. Dates that are not set are 0.
#[pyclass(frozen, module = "bandsaw._bandsaw")]
#[derive(Debug)]
pub(crate) struct Stat(Attributes);

impl Stat {
    pub(crate) fn new(attributes: Attributes) -> Self {
        Self(attributes)
    }
}

/// Nanoseconds since 1970. Only dates far from now need the long form, which is slow to convert.
#[derive(IntoPyObject)]
enum Nanoseconds {
    Near(i64),
    Far(i128),
}

fn nanoseconds(time: Option<Timestamp>) -> Nanoseconds {
    let count = time.map_or(0, |time| {
        i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos)
    });
    i64::try_from(count).map_or(Nanoseconds::Far(count), Nanoseconds::Near)
}

fn seconds(time: Option<Timestamp>) -> f64 {
    time.map_or(0.0, |time| {
        time.seconds as f64 + f64::from(time.nanos) / 1e9
    })
}

/// Returns the `datetime` in UTC; `None` if it is not set or out of the range of that type.
fn date_time<'py>(py: Python<'py>, time: Option<Timestamp>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(time) = time else { return Ok(None) };
    let module = py.import("datetime")?;
    let utc = module.getattr("timezone")?.getattr("utc")?;
    let epoch = module
        .getattr("datetime")?
        .call1((1970, 1, 1, 0, 0, 0, 0, utc))?;
    let parts = PyDict::new(py);
    parts.set_item("seconds", time.seconds)?;
    parts.set_item("microseconds", time.nanos / 1000)?;
    let since = module.getattr("timedelta")?.call((), Some(&parts));
    Ok(since.and_then(|since| epoch.add(since)).ok())
}

/// Returns the type of an object in the bits of `stat(2)`.
fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::Folder => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::File => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    }
}

#[pymethods]
impl Stat {
    #[getter]
    fn st_mode(&self) -> u32 {
        type_bits(self.0.kind) | u32::from(self.0.mode)
    }

    #[getter]
    fn st_ino(&self) -> u64 {
        self.0.id.0
    }

    #[getter]
    fn st_nlink(&self) -> u32 {
        self.0.links
    }

    #[getter]
    fn st_uid(&self) -> u32 {
        self.0.uid
    }

    #[getter]
    fn st_gid(&self) -> u32 {
        self.0.gid
    }

    #[getter]
    fn st_size(&self) -> u64 {
        self.0.size
    }

    #[getter]
    fn st_blocks(&self) -> u64 {
        self.0.allocated / 512
    }

    #[getter]
    fn st_rdev(&self) -> u32 {
        self.0.device
    }

    #[getter]
    fn st_flags(&self) -> u32 {
        self.0.flags
    }

    #[getter]
    fn st_atime(&self) -> f64 {
        seconds(self.0.accessed)
    }

    #[getter]
    fn st_mtime(&self) -> f64 {
        seconds(self.0.modified)
    }

    #[getter]
    fn st_ctime(&self) -> f64 {
        seconds(self.0.changed)
    }

    #[getter]
    fn st_birthtime(&self) -> f64 {
        seconds(self.0.created)
    }

    #[getter]
    fn st_atime_ns(&self) -> Nanoseconds {
        nanoseconds(self.0.accessed)
    }

    #[getter]
    fn st_mtime_ns(&self) -> Nanoseconds {
        nanoseconds(self.0.modified)
    }

    #[getter]
    fn st_ctime_ns(&self) -> Nanoseconds {
        nanoseconds(self.0.changed)
    }

    #[getter]
    fn st_birthtime_ns(&self) -> Nanoseconds {
        nanoseconds(self.0.created)
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    #[getter]
    fn allocated(&self) -> u64 {
        self.0.allocated
    }

    #[getter]
    fn resource_fork_size(&self) -> u64 {
        self.0.resource_size
    }

    #[getter]
    fn has_xattrs(&self) -> bool {
        self.0.has_xattrs
    }

    #[getter]
    fn compressed(&self) -> bool {
        self.0.flags & UF_COMPRESSED != 0
    }

    #[getter]
    fn created<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        date_time(py, self.0.created)
    }

    #[getter]
    fn modified<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        date_time(py, self.0.modified)
    }

    #[getter]
    fn changed<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        date_time(py, self.0.changed)
    }

    #[getter]
    fn accessed<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        date_time(py, self.0.accessed)
    }

    #[getter]
    fn backed_up<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        date_time(py, self.0.backed_up)
    }

    fn __repr__(&self) -> String {
        format!(
            "<bandsaw.Stat {} of {} bytes, mode {:04o}, inode {}>",
            self.kind(),
            self.0.size,
            self.0.mode,
            self.0.id.0
        )
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<Self>()
            .is_ok_and(|other| other.get().0 == self.0)
    }

    fn __hash__(&self) -> u64 {
        self.0.id.0
    }
}

/// An entry of a folder, with the methods of `os.DirEntry`. Its attributes were read with the folder.
#[pyclass(frozen, module = "bandsaw._bandsaw")]
#[derive(Debug)]
pub(crate) struct DirEntry {
    folder: Arc<str>,
    entry: Entry,
}

impl From<(Arc<str>, Entry)> for DirEntry {
    fn from((folder, entry): (Arc<str>, Entry)) -> Self {
        Self { folder, entry }
    }
}

#[pymethods]
impl DirEntry {
    #[getter]
    fn name(&self) -> &str {
        &self.entry.name
    }

    #[getter]
    fn path(&self) -> String {
        joined(&self.folder, &self.entry.name)
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.entry.attributes.kind.name()
    }

    #[getter]
    fn size(&self) -> u64 {
        self.entry.attributes.size
    }

    pub(crate) fn inode(&self) -> u64 {
        self.entry.attributes.id.0
    }

    fn is_dir(&self) -> bool {
        self.entry.attributes.kind == FileKind::Folder
    }

    pub(crate) fn is_file(&self) -> bool {
        self.entry.attributes.kind == FileKind::File
    }

    fn is_symlink(&self) -> bool {
        self.entry.attributes.kind == FileKind::Symlink
    }

    fn stat(&self) -> Stat {
        Stat(self.entry.attributes.clone())
    }

    fn __repr__(&self) -> String {
        format!("<bandsaw.DirEntry {:?}>", self.path())
    }
}

/// An iterator over the entries of a folder, or of all folders below it. Few entries are in memory at a time ([`Walk`]).
#[pyclass(frozen, module = "bandsaw._bandsaw")]
#[derive(Debug)]
pub(crate) struct Entries(Mutex<Walk>);

impl Entries {
    /// Returns the entries of the folder `id` at `path`.
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        folder: (NodeId, &str),
        scope: WalkScope,
        access: Access,
    ) -> Self {
        Self(Mutex::new(Walk::new(fs, folder, scope, access)))
    }
}

#[pymethods]
impl Entries {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> Outcome<Option<DirEntry>> {
        // The lock is waited for by detached threads only: its holder may itself wait for the interpreter.
        if let Some(mut walk) = self.0.try_lock()
            && let Some(entry) = walk.at_hand()
        {
            return Ok(Some(entry.into()));
        }
        let next = py.detach(|| self.0.lock().next())?;
        if next.is_none() {
            py.check_signals()?;
        }
        Ok(next.map(DirEntry::from))
    }
}
