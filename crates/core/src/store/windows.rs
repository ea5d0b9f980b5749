//! Files and folders of a Windows host, where images are read and new ones of one file are made.
//!
//! Nothing that exists is written: opening it for changes is [`Kind::Unsupported`]. Locks are those of
//! Windows: while a file is locked by a reader, no program writes it.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::ops::Range;
use std::os::windows::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{
    Attributes, Entry, Guard, HostStore, Lock, Meta, NodeKind, Open, Put, Store, check_folder,
    check_name,
};
use crate::device::{
    Access, AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info, ZEROS,
};
use crate::platform::FileExt;
use crate::sync::{Mutex, RwLock, RwLockReadGuard};
use crate::{Error, Kind, Reason, Result, rate};

const LAYER: &str = "file";
/// Others may read, rename and remove the file, but not write it (`CreateFileW`).
const SHARE_READ_DELETE: u32 = 1 | 4;
/// Maximum depth of `list`. Bundles have two levels.
const DEPTH: usize = 64;

/// Permission bits of files, which Windows does not have: new files get those of their folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(u32);

impl FileMode {
    /// Access for the owner only.
    pub const PRIVATE: Self = Self(0o600);
    /// Access for all users.
    pub const ANY: Self = Self(0o666);

    /// Creates a mode from the relevant bits of `mode`.
    pub const fn new(mode: u32) -> Self {
        Self(mode & 0o666 | 0o600)
    }

    /// Returns [`ANY`](Self::ANY) for what exists.
    pub fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|_| Self::ANY)
    }

    /// Returns the bits that both allow.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the bits of a file.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Does nothing.
    pub fn set_on(self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

fn refused(path: &Path) -> Error {
    let message = "on Windows images are only read: convert it to a new image instead";
    Error::unsupported(LAYER, message).in_file(path)
}

fn in_use(path: &Path) -> Error {
    Error::conflict(LAYER, "in use by another process")
        .because(Reason::InUse)
        .in_file(path)
}

/// Takes the lock of an open file. `false`: another process has it.
fn try_lock(file: &File, mode: Lock) -> io::Result<bool> {
    let locked = match mode {
        Lock::Shared => file.try_lock_shared(),
        Lock::Exclusive => file.try_lock(),
    };
    match locked {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(source),
    }
}

fn meta_of(meta: &Metadata) -> Meta {
    Meta {
        len: meta.len(),
        allocated: meta.len(),
        version: meta.last_write_time(),
        changed: meta
            .modified()
            .ok()
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .map(|since| since.as_secs()),
    }
}

/// A regular file of the host.
#[derive(Debug)]
pub struct LocalFile {
    file: File,
    opened: PathBuf,
    renamed: OnceLock<PathBuf>,
    access: Access,
    len: AtomicU64,
    /// Held shared by every request, exclusively while the length changes.
    in_flight: RwLock<()>,
    /// One flush at a time: the second must not return before the first has made its writes durable.
    flushing: Mutex<()>,
    /// A flush failed; the contents on disk are unknown.
    lost: AtomicBool,
}

impl LocalFile {
    /// Opens the file at `path`, following symbolic links. `None` as for
    /// [`Store::open`](crate::store::Store::open).
    pub fn open(path: impl AsRef<Path>, mode: Open) -> Result<Option<Self>> {
        match mode {
            Open::Read => Self::open_at(path.as_ref(), Access::ReadOnly),
            Open::CreateNew => Self::open_at(path.as_ref(), Access::ReadWrite),
            Open::Write | Open::Create => Err(refused(path.as_ref())),
        }
    }

    /// Creates the file at `path`. `None`: it exists.
    pub fn create_new(path: impl AsRef<Path>, _permissions: FileMode) -> Result<Option<Self>> {
        Self::open_at(path.as_ref(), Access::ReadWrite)
    }

    /// Opens the file at `path` and [locks](Self::lock) it, before anything of it is read.
    pub fn open_locked(path: impl AsRef<Path>, mode: Open, lock: Lock) -> Result<Option<Self>> {
        let Some(file) = Self::open(path, mode)? else {
            return Ok(None);
        };
        file.lock(lock)?;
        Ok(Some(file))
    }

    /// Opens an existing file for reading, or creates one.
    fn open_at(path: &Path, access: Access) -> Result<Option<Self>> {
        let failed = |source: io::Error| Error::io(LAYER, "open", source).in_file(path);
        let mut options = File::options();
        options.read(true);
        if access == Access::ReadWrite {
            options.write(true).create_new(true);
            options.share_mode(SHARE_READ_DELETE);
        }
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) => {
                return match (access, error.kind()) {
                    (Access::ReadOnly, io::ErrorKind::NotFound) => Ok(None),
                    (Access::ReadWrite, io::ErrorKind::AlreadyExists) => Ok(None),
                    _ if path.is_dir() => {
                        let message = "is a folder, expected a regular file";
                        Err(Error::unsupported(LAYER, message).in_file(path))
                    }
                    _ => Err(failed(error)),
                };
            }
        };
        let len = file.metadata().map_err(failed)?.len();
        Ok(Some(Self {
            file,
            opened: path.to_owned(),
            renamed: OnceLock::new(),
            access,
            len: AtomicU64::new(len),
            in_flight: RwLock::default(),
            flushing: Mutex::default(),
            lost: AtomicBool::new(false),
        }))
    }

    /// Returns the metadata of the open file.
    pub fn meta(&self) -> Result<Meta> {
        self.metadata().map(|meta| meta_of(&meta))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.renamed.get().unwrap_or(&self.opened)
    }

    /// Records that the file was renamed to `path`. Only the first call has an effect.
    pub fn set_renamed(&self, path: &Path) {
        let _ = self.renamed.set(path.to_owned());
    }

    /// Returns the host's metadata of the open file.
    pub fn metadata(&self) -> Result<Metadata> {
        self.file
            .metadata()
            .map_err(|source| Error::io(LAYER, "read metadata", source).in_file(self.path()))
    }

    /// Locks the file for as long as it is open. A file that was created here is locked since then.
    /// [`Kind::Conflict`] if another process has the lock.
    pub fn lock(&self, mode: Lock) -> Result<()> {
        if self.access == Access::ReadWrite {
            return Ok(());
        }
        match try_lock(&self.file, mode) {
            Ok(true) => Ok(()),
            Ok(false) => Err(in_use(self.path())),
            Err(source) => Err(Error::io(LAYER, "lock", source).in_file(self.path())),
        }
    }

    /// Begins a request: while the guard lives, the range stays within the file.
    fn enter(&self, offset: u64, length: u64) -> Result<RwLockReadGuard<'_, ()>> {
        let guard = self.in_flight.read();
        self.info()
            .check(LAYER, offset, length)
            .map_err(|error| error.in_file(self.path()))?;
        Ok(guard)
    }

    fn check_range(&self, range: &Range<u64>) -> Result<()> {
        self.info()
            .check_range(LAYER, range)
            .map_err(|error| error.in_file(self.path()))
    }

    fn check_changeable(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Err(Error::read_only(LAYER).in_file(self.path()));
        }
        if self.lost.load(Ordering::Acquire) {
            let message = "an earlier flush failed and may have lost changes";
            return Err(Error::new(Kind::Io, LAYER, message).in_file(self.path()));
        }
        Ok(())
    }

    fn failed(&self, doing: &'static str, offset: u64, source: io::Error) -> Error {
        let error = match source.kind() {
            io::ErrorKind::UnexpectedEof => Error::conflict(LAYER, "truncated while it was open"),
            _ => Error::io(LAYER, doing, source),
        };
        error.at(offset).in_file(self.path())
    }
}

impl BlockDevice for LocalFile {
    fn info(&self) -> Info {
        Info {
            len: self.len.load(Ordering::SeqCst),
            block: 512,
            write: 1,
            discard: 4096,
            access: self.access,
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let in_flight = self.enter(offset, buf.len() as u64)?;
        self.file
            .read_exact_at(buf, offset)
            .map_err(|source| self.failed("read", offset, source))?;
        drop(in_flight);
        rate::after_read(buf.len());
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.check_changeable()?;
        let _in_flight = self.enter(offset, buf.len() as u64)?;
        self.file
            .write_all_at(buf, offset)
            .map_err(|source| self.failed("write", offset, source))
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.check_changeable()?;
        self.check_range(&range)?;
        if leave == AfterDiscard::Any {
            return Ok(());
        }
        let mut at = range.start;
        while at < range.end {
            let count = (range.end - at).min(ZEROS.len() as u64);
            self.write_at(at, &ZEROS[..count as usize])?;
            at += count;
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.check_range(&range)?;
        Ok(Extent {
            kind: ExtentKind::Data,
            len: range.end - range.start,
        })
    }

    fn flush(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        let _one_at_a_time = self.flushing.lock();
        self.check_changeable()?;
        self.file.sync_all().map_err(|source| {
            self.lost.store(true, Ordering::Release);
            Error::io(LAYER, "flush", source).in_file(self.path())
        })
    }

    fn set_len(&self, len: u64, _leave: AfterDiscard) -> Result<()> {
        self.check_changeable()?;
        let _alone = self.in_flight.write();
        self.file
            .set_len(len)
            .map_err(|source| self.failed("set the length", len, source))?;
        self.len.store(len, Ordering::SeqCst);
        Ok(())
    }

    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }
}

/// A folder of the host as a store that is only read. Links below it are not followed.
#[derive(Debug)]
pub struct Local {
    root: PathBuf,
}

impl Local {
    /// Creates a store for `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            root: folder.into(),
        }
    }

    /// Returns the store unchanged.
    #[must_use]
    pub fn with_mode(self, _mode: FileMode) -> Self {
        self
    }

    /// Returns the store unchanged.
    #[must_use]
    pub fn with_mode_in(self, _name: &str, _mode: FileMode) -> Self {
        self
    }

    /// Does nothing: a folder is not renamed while it is open.
    pub fn set_renamed(&self, _path: &Path) {}

    /// Does nothing: nothing is moved by copying.
    pub fn set_attributes_like(&self, _name: &str, _like: &Path) -> Result<()> {
        Ok(())
    }

    /// Returns the path of `name` on the host.
    pub fn host_path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns [`Kind::Unsupported`].
    pub fn link(&self, from: &str, _to: &str) -> Result<bool> {
        Err(refused(&self.host_path(from)))
    }

    /// Returns [`Kind::Unsupported`].
    pub fn clone_of(&self, from: &str, _to: &str) -> Result<bool> {
        Err(refused(&self.host_path(from)))
    }

    /// Returns the path and the metadata of a name without following links. `None`: nothing has it.
    fn metadata_of(&self, name: &str) -> Result<Option<(PathBuf, Metadata)>> {
        let mut path = self.root.clone();
        let mut found = None;
        for part in name.split('/') {
            // They would lead elsewhere: `C:`, a stream of a file, another separator.
            if part.contains(['\\', ':']) {
                return Err(Error::invalid(LAYER, "invalid name").named(name));
            }
            path.push(part);
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_symlink() => {
                    let message = "is a symbolic link, which is not followed: name its target";
                    return Err(Error::unsupported(LAYER, message).in_file(path));
                }
                Ok(meta) => found = Some(meta),
                Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(source) => return Err(self.failed("read metadata", name, source)),
            }
        }
        Ok(found.map(|meta| (path, meta)))
    }

    fn failed(&self, doing: &'static str, name: &str, source: io::Error) -> Error {
        Error::io(LAYER, doing, source).in_file(self.host_path(name))
    }

    fn walk(
        &self,
        folder: &str,
        start: &str,
        depth: usize,
        each: &mut dyn FnMut(Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        if depth == 0 {
            let message = format!("too many levels of folders (limit {DEPTH})");
            return Err(Error::limit(LAYER, message).in_file(self.host_path(folder)));
        }
        let path = match folder {
            "" => self.root.clone(),
            folder => match self.metadata_of(folder)? {
                Some((path, _)) => path,
                None => return Ok(()),
            },
        };
        let failed = |source| self.failed("list", folder, source);
        let entries = match fs::read_dir(path) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        let mut subfolders = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let Ok(last) = entry.file_name().into_string() else {
                continue; // not a name of a store
            };
            if !last.starts_with(start) {
                continue;
            }
            let name = match folder {
                "" => last,
                folder => format!("{folder}/{last}"),
            };
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_file() {
                each(Entry::new(&name, &|| self.stat(&name)))?;
            } else if kind.is_dir() {
                subfolders.push(name);
            }
        }
        subfolders
            .iter()
            .try_for_each(|name| self.walk(name, "", depth - 1, each))
    }
}

impl Store for Local {
    fn open(&self, name: &str, mode: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        check_name(name)?;
        if mode != Open::Read {
            return Err(refused(&self.host_path(name)));
        }
        let Some((path, _)) = self.metadata_of(name)? else {
            return Ok(None);
        };
        let file = LocalFile::open(path, mode)?;
        Ok(file.map(|file| Arc::new(file) as Arc<dyn BlockDevice>))
    }

    fn put(&self, name: &str, _bytes: &[u8], _cond: Put) -> Result<bool> {
        Err(refused(&self.host_path(name)))
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        check_name(name)?;
        let found = self.metadata_of(name)?.filter(|(_, meta)| meta.is_file());
        Ok(found.map(|(_, meta)| meta_of(&meta)))
    }

    fn copy(&self, _from: &str, to: &str) -> Result<()> {
        Err(refused(&self.host_path(to)))
    }

    fn rename(&self, from: &str, _to: &str) -> Result<()> {
        Err(refused(&self.host_path(from)))
    }

    fn remove(&self, name: &str) -> Result<bool> {
        Err(refused(&self.host_path(name)))
    }

    fn remove_folder(&self, name: &str) -> Result<()> {
        Err(refused(&self.host_path(name)))
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let (folder, start) = prefix.rsplit_once('/').unwrap_or(("", prefix));
        check_folder(folder)?;
        self.walk(folder, start, DEPTH, each)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn lock(&self, name: &str, mode: Lock) -> Result<Guard> {
        check_name(name)?;
        if mode == Lock::Exclusive {
            return Err(refused(&self.host_path(name)));
        }
        let Some((path, _)) = self.metadata_of(name)? else {
            return Ok(Guard::nothing());
        };
        let file =
            File::open(&path).map_err(|source| self.failed("open the lock", name, source))?;
        match try_lock(&file, mode) {
            Ok(true) => Ok(Guard::new(file)),
            Ok(false) => Err(in_use(&path)),
            Err(source) => Err(self.failed("lock", name, source)),
        }
    }
}

/// Reads only, as the store; files have no numbers.
impl HostStore for Local {
    fn host_path(&self, name: &str) -> PathBuf {
        self.host_path(name)
    }

    fn elsewhere(&self, folder: &Path) -> Arc<dyn HostStore> {
        Arc::new(Self::new(folder))
    }

    fn attributes(&self, name: &str) -> Result<Option<Attributes>> {
        check_folder(name)?;
        let path = match name {
            "" => self.root.clone(),
            name => self.host_path(name),
        };
        let meta = match fs::symlink_metadata(path) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            meta => meta.map_err(|source| self.failed("read metadata", name, source))?,
        };
        let kind = match meta.file_type() {
            kind if kind.is_file() => NodeKind::File,
            kind if kind.is_dir() => NodeKind::Folder,
            _ => NodeKind::Other,
        };
        let since = meta.modified().ok();
        let since = since.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let modified = since.and_then(|since| i64::try_from(since.as_nanos()).ok());
        let modified = modified.unwrap_or(0);
        Ok(Some(Attributes {
            kind,
            len: meta.len(),
            modified,
            changed: modified,
            inode: 0,
            links: 1,
        }))
    }

    fn each_name_in(
        &self,
        name: &str,
        each: &mut dyn FnMut(OsString) -> Result<()>,
    ) -> Result<bool> {
        check_folder(name)?;
        let failed = |source| self.failed("list", name, source);
        let entries = match fs::read_dir(self.root.join(name)) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(false),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            each(entry.map_err(failed)?.file_name())?;
        }
        Ok(true)
    }

    fn set_modified(&self, name: &str, _nanos: i64) -> Result<()> {
        Err(refused(&self.host_path(name)))
    }

    fn set_owner_of(&self, name: &str, _like: &str) -> Result<()> {
        Err(refused(&self.host_path(name)))
    }

    fn link(&self, from: &str, to: &str) -> Result<bool> {
        self.link(from, to)
    }

    fn clone_of(&self, from: &str, to: &str) -> Result<bool> {
        self.clone_of(from, to)
    }

    fn copy_from(&self, _from: &Path, to: &str) -> Result<bool> {
        Err(refused(&self.host_path(to)))
    }

    fn rename_folder(&self, from: &str, _to: &str) -> Result<bool> {
        Err(refused(&self.host_path(from)))
    }

    fn remove_tree(&self, name: &str) -> Result<()> {
        Err(refused(&self.host_path(name)))
    }

    fn remove_leftovers(&self, _name: &str, _prefix: &str) {}

    fn sync_tree(&self, _name: &str) -> Result<()> {
        Ok(())
    }
}
