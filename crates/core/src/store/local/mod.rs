//! A folder of the host.
//!
//! Below the folder itself no symbolic link is followed: an untrusted image cannot make us read or
//! change files outside of it.

mod copy;
mod durable_lock;
mod file;
mod folders;
mod host;
mod host_path;
mod mode;
mod pinned;
mod replace;
mod share;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat};
use rustix::io::Errno;

use super::{Entry, Guard, Lock, Meta, Open, Put, Store, check_folder, check_name};
use crate::device::BlockDevice;
use crate::sync::Mutex;
use crate::{Error, Kind, Result, platform};
use durable_lock::HeldLock;
use folders::{Folders, split};
use host_path::HostPath;
use replace::{UNFINISHED, keep_mode, move_new, unfinished_name};

pub use file::LocalFile;
pub use mode::FileMode;

const LAYER: &str = "folder";

/// Maximum depth of `list`. Bundles have two levels.
const DEPTH: usize = 64;

/// A folder of the host as a store. It need not exist until something is created in it.
#[derive(Debug)]
pub struct Local {
    folders: Folders,
    /// The name of the folder in the bundle that errors name; empty for the bundle itself.
    prefix: String,
    /// Folders from which the leftovers of killed processes have been removed.
    swept: Mutex<BTreeSet<String>>,
    /// The mode of new files and folders; determined when the first is created, unless set before.
    mode: OnceLock<FileMode>,
    /// Folders in which another mode applies.
    modes: Vec<(String, FileMode)>,
}

impl Local {
    /// Creates a store for `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folders: Folders::new(folder.into()),
            prefix: String::new(),
            swept: Mutex::default(),
            mode: OnceLock::new(),
            modes: Vec::new(),
        }
    }

    /// Records that the folder was renamed to `path`. Only the first call has an effect.
    pub fn set_renamed(&self, path: &Path) {
        self.folders.set_renamed(path);
    }

    /// Sets the mode of new files and folders. By default it is that of the existing contents of
    /// the folder.
    #[must_use]
    pub fn with_mode(self, mode: FileMode) -> Self {
        Self {
            mode: mode.into(),
            ..self
        }
    }

    /// Sets another mode for the folder `name` and what is created in it.
    #[must_use]
    pub fn with_mode_in(mut self, name: &str, mode: FileMode) -> Self {
        self.modes.push((name.to_owned(), mode));
        self
    }

    /// Returns the mode of a new file or folder.
    fn mode(&self, name: &str) -> FileMode {
        let holds = |folder: &str| {
            name.strip_prefix(folder)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if let Some((_, mode)) = self.modes.iter().find(|(folder, _)| holds(folder)) {
            return *mode;
        }
        *self
            .mode
            .get_or_init(|| FileMode::of(self.folders.root()).unwrap_or(FileMode::ANY))
    }

    /// Returns the path of `name` on the host, for messages.
    fn path(&self, name: &str) -> PathBuf {
        self.folders.root().join(name)
    }

    /// Returns the path of `name`, of which errors name the bundle first.
    fn path_in_bundle(&self, name: &str) -> HostPath {
        let (path, name) = match (name.trim_end_matches('/'), &*self.prefix) {
            ("", prefix) => (self.folders.root().to_owned(), prefix.to_owned()),
            (name, "") => (self.path(name), name.to_owned()),
            (name, prefix) => (self.path(name), format!("{prefix}/{name}")),
        };
        HostPath::in_bundle(path, name)
    }

    fn named(&self, error: Error, name: &str) -> Error {
        self.path_in_bundle(name).named(error)
    }

    fn failed(&self, doing: &'static str, name: &str, source: impl Into<io::Error>) -> Error {
        self.named(Error::io(LAYER, doing, source), name)
    }

    /// Opens the folder of a name; returns it and the name within it. `None`: there is no such
    /// folder.
    fn place<'a>(&self, name: &'a str) -> Result<Option<(Arc<File>, &'a str)>> {
        check_name(name)?;
        let (folder, last) = split(name);
        let open = self
            .folders
            .get(folder)
            .map_err(|source| self.failed("open", folder, source))?;
        Ok(open.map(|open| (open, last)))
    }

    /// Opens the folder of a name, creating it if missing; returns it and the name within it.
    fn make_place<'a>(&self, name: &'a str) -> Result<(Arc<File>, &'a str)> {
        check_name(name)?;
        let (folder, last) = split(name);
        let open = self
            .folders
            .make(folder, self.mode(name))
            .map_err(|source| self.failed("create", folder, source))?;
        Ok((open, last))
    }

    fn check_changeable(&self, name: &str) -> Result<()> {
        if self.folders.lost() {
            let refused = "an earlier sync failed and may have lost files; open the image again \
                           to change it";
            return Err(self.named(Error::new(Kind::Io, LAYER, refused), name));
        }
        Ok(())
    }

    fn mark(&self, name: &str) {
        self.folders.mark(split(name).0);
    }

    /// Removes the leftovers of killed processes in a folder when the first file is stored in it.
    fn sweep(&self, folder: &str) {
        let mut swept = self.swept.lock();
        if swept.insert(folder.to_owned()) {
            platform::remove_leftovers(&self.path(folder), UNFINISHED);
        }
    }

    /// Renames a file that `fill` creates under an unused name to `name`. `false`: the name is
    /// taken.
    fn finish(
        &self,
        name: &str,
        cond: Put,
        fill: impl FnOnce(&File, &str) -> io::Result<()>,
    ) -> Result<bool> {
        self.check_changeable(name)?;
        let (folder, last) = self.make_place(name)?;
        self.sweep(split(name).0);
        let new = unfinished_name(&folder)
            .map_err(|source| self.failed("create a new file", name, source))?;
        let moved = fill(&folder, &new).and_then(|()| move_new(&folder, &new, last, cond));
        if !matches!(moved, Ok(true)) {
            // Best effort: the caller gets the error of the failure itself.
            let _ = rustix::fs::unlinkat(&folder, new.as_str(), AtFlags::empty());
        }
        self.mark(name);
        moved.map_err(|source| self.failed("write", name, source))
    }

    /// Creates or replaces `to` as a copy of an open file.
    fn copy_of(&self, source: &File, to: &str) -> Result<()> {
        check_name(to)?;
        let copied = self.finish(to, Put::Replace, |folder, new| {
            copy::copy(source, folder, new)
        });
        copied.map(drop)
    }

    fn walk(
        &self,
        folder: &str,
        start: &str,
        depth: usize,
        each: &mut dyn FnMut(Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        if depth == 0 {
            let what = format!("too many levels of folders (limit {DEPTH})");
            return Err(self.named(Error::limit(LAYER, what), folder));
        }
        let failed = |source: Errno| self.failed("list", folder, source);
        let open = self
            .folders
            .get(folder)
            .map_err(|source| self.failed("open", folder, source))?;
        let Some(open) = open else { return Ok(()) };
        let mut subfolders = Vec::new();
        for found in Dir::read_from(&*open).map_err(failed)? {
            let found = found.map_err(failed)?;
            let Ok(last) = found.file_name().to_str() else {
                continue;
            }; // not a name of a store
            if matches!(last, "." | "..")
                || !last.starts_with(start)
                || last.starts_with(UNFINISHED)
            {
                continue;
            }
            let name = if folder.is_empty() {
                last.to_owned()
            } else {
                format!("{folder}/{last}")
            };
            match self.kind(&open, last, found.file_type())? {
                FileType::RegularFile => each(Entry::new(&name, &|| self.stat(&name)))?,
                FileType::Directory => subfolders.push(name),
                _ => {}
            }
        }
        subfolders
            .iter()
            .try_for_each(|name| self.walk(name, "", depth - 1, each))
    }

    /// Returns the kind of a file, with a system call if the listing does not contain it.
    fn kind(&self, folder: &File, last: &str, listed: FileType) -> Result<FileType> {
        if listed != FileType::Unknown {
            return Ok(listed);
        }
        match rustix::fs::statat(folder, last, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode)),
            Err(Errno::NOENT) => Ok(FileType::Unknown),
            Err(errno) => Err(self.failed("read metadata", last, errno)),
        }
    }
}

impl Store for Local {
    fn open(&self, name: &str, mode: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        let creates = matches!(mode, Open::Create | Open::CreateNew);
        let (folder, last) = if creates {
            self.check_changeable(name)?;
            self.make_place(name)?
        } else {
            match self.place(name)? {
                Some(place) => place,
                None => return Ok(None),
            }
        };
        let permissions = if creates {
            self.mode(name)
        } else {
            FileMode::ANY
        };
        let file = LocalFile::open_at(
            &*folder,
            last,
            (mode, permissions),
            OFlags::NOFOLLOW,
            self.path_in_bundle(name),
        )?;
        if creates && file.is_some() {
            self.mark(name);
        }
        Ok(file.map(|file| Arc::new(file) as Arc<dyn BlockDevice>))
    }

    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool> {
        self.finish(name, cond, |folder, new| {
            let mut file = File::from(rustix::fs::openat(
                folder,
                new,
                OFlags::WRONLY | NEW,
                self.mode(name).file(),
            )?);
            keep_mode(folder, split(name).1, &file)?;
            file.write_all(bytes)?;
            platform::make_durable(&file)
        })
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        let Some((folder, last)) = self.place(name)? else {
            return Ok(None);
        };
        match rustix::fs::statat(&*folder, last, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Ok(Some(meta(&stat)))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.failed("read metadata", name, errno)),
        }
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        self.copy_of(&self.source(from)?, to)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        self.check_changeable(from)?;
        let missing = || self.named(Error::not_found(LAYER, from), "");
        let (old, old_last) = self.place(from)?.ok_or_else(missing)?;
        let (new, new_last) = self.make_place(to)?;
        match rustix::fs::renameat(&*old, old_last, &*new, new_last) {
            Ok(()) => {
                self.mark(from);
                self.mark(to);
                Ok(())
            }
            Err(Errno::NOENT) => Err(missing()),
            Err(errno) => Err(self.failed("move", from, errno)),
        }
    }

    fn remove(&self, name: &str) -> Result<bool> {
        self.check_changeable(name)?;
        let Some((folder, last)) = self.place(name)? else {
            return Ok(false);
        };
        match rustix::fs::unlinkat(&*folder, last, AtFlags::empty()) {
            Ok(()) => {
                self.mark(name);
                Ok(true)
            }
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed("remove", name, errno)),
        }
    }

    fn remove_folder(&self, name: &str) -> Result<()> {
        check_folder(name)?;
        self.check_changeable(name)?;
        self.folders
            .remove(name, DEPTH)
            .map_err(|source| self.failed("remove", name, source))
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let (folder, start) = split(prefix);
        check_folder(folder)?;
        self.walk(folder, start, DEPTH, each)
    }

    fn sync(&self) -> Result<()> {
        self.check_changeable("")?;
        self.folders
            .sync()
            .map_err(|source| self.failed("sync", "", source))
    }

    fn lock(&self, name: &str, mode: Lock) -> Result<Guard> {
        let place = match mode {
            Lock::Shared => self.place(name)?,
            Lock::Exclusive => Some(self.make_place(name)?),
        };
        let Some((folder, last)) = place else {
            return Ok(Guard::nothing());
        };
        let opened = durable_lock::open(
            &folder,
            last,
            mode,
            if mode == Lock::Exclusive {
                self.mode(name)
            } else {
                FileMode::ANY
            },
        )
        .map_err(|source| match source.kind() {
            io::ErrorKind::IsADirectory => {
                let what =
                    "expected a file, found a folder; move it to another place to change the image";
                self.named(Error::new(Kind::Conflict, LAYER, what), name)
            }
            _ => self.failed("open the lock", name, source),
        })?;
        let Some(file) = opened else {
            return Ok(Guard::nothing());
        };
        if mode == Lock::Exclusive {
            self.mark(name);
        }
        match platform::lock_soon(&file, mode == Lock::Exclusive) {
            Ok(true) if mode == Lock::Exclusive => {
                let lock = HeldLock::new(
                    file,
                    (folder, last),
                    self.path_in_bundle(name),
                    self.mode(name),
                );
                Ok(Guard::watched(lock))
            }
            Ok(true) => Ok(Guard::new(file)),
            Ok(false) => Err(self.named(file::in_use(LAYER, &file), "")),
            Err(source) if source.kind() == io::ErrorKind::Unsupported => {
                let what = "the host file system does not support locks";
                Err(self.named(Error::unsupported(LAYER, what), ""))
            }
            Err(source) => Err(self.failed("lock", name, source)),
        }
    }
}

const NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::CLOEXEC);

#[allow(
    clippy::cast_sign_loss,
    clippy::unnecessary_cast,
    reason = "the types of these fields differ between machines; sizes are not negative"
)]
fn meta(stat: &Stat) -> Meta {
    let changed = (stat.st_ctime as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(stat.st_ctime_nsec as u64);
    // Includes the inode: a file replaced within one clock tick has the same time.
    let version = changed ^ (stat.st_ino as u64).rotate_left(40);
    Meta {
        len: stat.st_size as u64,
        allocated: stat.st_blocks as u64 * 512,
        version,
        changed: u64::try_from(stat.st_mtime as i64).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{AfterDiscard, BlockDeviceExt};

    fn local() -> (tempfile::TempDir, Local) {
        let folder = tempfile::tempdir().unwrap();
        let local = Local::new(folder.path());
        (folder, local)
    }

    fn names(store: &Local, prefix: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut keep = |entry: Entry<'_>| {
            names.push(entry.name.to_owned());
            Ok(())
        };
        store.list(prefix, &mut keep).unwrap();
        names.sort();
        names
    }

    #[test]
    fn the_folder_is_made_with_the_first_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/image.sparsebundle");
        let store = Local::new(&path);
        assert!(store.open("token", Open::Read).unwrap().is_none());
        assert!(names(&store, "").is_empty());
        store.sync().unwrap();
        assert!(!path.exists());
        store.put("bands/0", b"abc", Put::Replace).unwrap();
        store.sync().unwrap();
        assert_eq!(std::fs::read(path.join("bands/0")).unwrap(), b"abc");
    }

    #[test]
    fn links_are_not_followed() {
        let (folder, store) = local();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), b"secret").unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("bands")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), folder.path().join("token"))
            .unwrap();
        assert_eq!(
            store.open("token", Open::Write).unwrap_err().kind(),
            Kind::Unsupported
        );
        assert!(store.open("bands/secret", Open::Read).is_err());
        assert!(store.remove("bands/secret").is_err());
        assert!(store.lock("token", Lock::Exclusive).is_err());
        assert!(names(&store, "").is_empty());
        assert!(
            store.put("token", b"ours", Put::Replace).unwrap(),
            "the link itself is replaced"
        );
        assert_eq!(
            std::fs::read(outside.path().join("secret")).unwrap(),
            b"secret"
        );
    }

    #[test]
    fn names_lead_nowhere_else() {
        let (_folder, store) = local();
        for name in ["", "/etc/passwd", "../x", "a//b", "a/./b", "a/..", "a\0b"] {
            assert_eq!(
                store.open(name, Open::Create).unwrap_err().kind(),
                Kind::Invalid,
                "{name:?}"
            );
        }
    }

    #[test]
    fn unfinished_files_are_not_listed() {
        let (folder, store) = local();
        std::fs::write(folder.path().join(format!("{UNFINISHED}1-0")), b"half").unwrap();
        store.put("a", b"", Put::IfAbsent).unwrap();
        assert!(!store.put("a", b"x", Put::IfAbsent).unwrap());
        assert_eq!(names(&store, ""), ["a"]);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            2,
            "a refused put leaves nothing"
        );
    }

    #[test]
    fn a_replaced_file_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, store) = local();
        let path = folder.path().join("Info.plist");
        store.put("Info.plist", b"1", Put::Replace).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
        store.put("Info.plist", b"2", Put::Replace).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o604
        );
    }

    #[test]
    fn a_copy_keeps_its_holes() {
        let (_folder, store) = local();
        let file = store.open("a", Open::Create).unwrap().unwrap();
        file.set_len((8 << 20) + 3, AfterDiscard::Zeros).unwrap();
        file.write_at(5 << 20, b"island").unwrap();
        file.write_at(8 << 20, b"end").unwrap();
        store.copy("a", "deep/b").unwrap();
        let copy = store.open("deep/b", Open::Read).unwrap().unwrap();
        assert!(copy.read_vec(0, 8 << 20).unwrap() == file.read_vec(0, 8 << 20).unwrap());
        assert_eq!(copy.read_vec(8 << 20, 3).unwrap(), b"end");
        let allocated = store.stat("deep/b").unwrap().unwrap().allocated;
        // APFS makes holes only in files of more than 16 MiB.
        assert!(
            allocated <= 1 << 20 || cfg!(target_os = "macos"),
            "{allocated} bytes are allocated for 9"
        );
    }

    #[test]
    fn writes_to_a_removed_file_fail_at_the_flush() {
        let (folder, store) = local();
        let file = store.open("bands/0", Open::Create).unwrap().unwrap();
        file.set_len(4, AfterDiscard::Any).unwrap();
        file.write_at(0, b"kept").unwrap();
        file.flush().unwrap();
        std::fs::remove_file(folder.path().join("bands/0")).unwrap();
        file.write_at(0, b"lost").unwrap();
        let error = file.flush().unwrap_err();
        assert_eq!(error.kind(), Kind::Io, "{error}");
        assert!(error.to_string().contains("bands/0"), "{error}");
    }

    #[test]
    fn the_holder_of_a_lock_is_named() {
        let (folder, store) = local();
        let held = store.lock("lock", Lock::Exclusive).unwrap();
        let error = Local::new(folder.path())
            .lock("lock", Lock::Shared)
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("{}: in use by ", folder.path().display()))
                && (text.contains("this process") || text.contains("another process")),
            "{text}"
        );
        drop(held);
        let _both = (
            store.lock("lock", Lock::Shared).unwrap(),
            store.lock("lock", Lock::Shared).unwrap(),
        );
        assert!(store.lock("lock", Lock::Exclusive).is_err());
    }
}
