//! The image to be repaired, and the location of its undo data.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{LAYER, Options};
use crate::container::sparsebundle;
use crate::device::{Access, BlockDevice, BlockDeviceExt, regions};
use crate::open::interrupted::{self, UNDO_SUFFIX};
use crate::open::{self, OpenOptions, StoredImage};
use crate::store::{Entry, Guard, Local, Lock, Meta, Open, Put, Store};
use crate::{Error, Kind, Result};

const NO_PLACE: &str =
    "is in a bucket, where no undo data is kept: name a folder on this machine with `--undo-dir`";
const NO_FOLDER: &str =
    "is a device, beside which no undo data is kept: name a folder with `--undo-dir`";

/// An image to be repaired: its stored bytes, locked, and the location of its undo data.
#[derive(Debug)]
pub struct Target {
    /// Path of the image, for errors and for the parts of segmented images.
    pub(super) path: PathBuf,
    pub(super) store: Arc<dyn Store>,
    /// The name in `store` of an image that is a single file. `None`: the store is a sparse bundle.
    pub(super) file: Option<String>,
    pub(super) vault: Result<Vault, &'static str>,
    _locks: Vec<Guard>,
}

impl Target {
    /// Opens and locks the image at `path`: exclusively, or for read-only access against writers.
    pub(super) fn at(
        path: &Path,
        options: &OpenOptions<'_>,
        undo_dir: Option<&Path>,
        access: Access,
    ) -> Result<Self> {
        let options = OpenOptions { access, ..*options };
        // If layers are on top of the image, only the topmost one is changed.
        let path_of_bytes = options.shadows.last().map_or(path, PathBuf::as_path);
        let stored = match options.shadows.is_empty() {
            true => open::stored(path, &options)?,
            false => StoredImage::File(open::lock_file(path_of_bytes, access)?),
        };
        let is_here = open::remote::url(path_of_bytes).is_none();
        let (mut locks, mut root) = (Vec::new(), None);
        let (store, file): (Arc<dyn Store>, _) = match stored {
            StoredImage::Folder(store) => {
                if is_here {
                    locks = lock_bundle(&*store, access)?;
                    root = Some(path_of_bytes.to_owned());
                }
                (store, None)
            }
            StoredImage::File(file) => {
                let name = path_of_bytes
                    .file_name()
                    .map_or("image".into(), |name| name.to_string_lossy().into_owned());
                root = path_of_bytes.parent().map(|parent| {
                    if parent.as_os_str().is_empty() {
                        ".".into()
                    } else {
                        parent.into()
                    }
                });
                (
                    Arc::new(OneFile {
                        name: name.clone(),
                        file,
                    }),
                    Some(name),
                )
            }
        };
        let is_regular = !is_here
            || fs::metadata(path_of_bytes).is_ok_and(|meta| meta.is_file() || meta.is_dir());
        let vault = match undo_dir {
            None if !is_here => Err(NO_PLACE),
            None if !is_regular => Err(NO_FOLDER),
            _ => Ok(Vault::host(
                undo_folder(path_of_bytes, undo_dir),
                root.filter(|_| is_here),
                path_of_bytes,
            )),
        };
        Ok(Self {
            path: path.to_owned(),
            store,
            file,
            vault,
            _locks: locks,
        })
    }

    /// Returns the image called `name` in a store: a sparse bundle if `name/Info.plist` or
    /// `name/Info.bckup` exists, else a file. Its undo data is stored in `name.undo/`. Nothing is
    /// locked.
    pub fn in_store(parent: Arc<dyn Store>, name: &str) -> Result<Self> {
        let folder: Arc<dyn Store> = Arc::new(Within {
            parent: parent.clone(),
            prefix: format!("{name}/"),
        });
        let is_bundle = sparsebundle::is_bundle(&*folder)?;
        let undo = format!("{name}{UNDO_SUFFIX}/");
        let (prefix, store, file): (String, Arc<dyn Store>, _) = match is_bundle {
            true => (format!("{name}/"), folder, None),
            false => {
                let file = parent
                    .open(name, Open::Write)?
                    .ok_or_else(|| Error::not_found(LAYER, name))?;
                (
                    String::new(),
                    Arc::new(OneFile {
                        name: name.to_owned(),
                        file,
                    }),
                    Some(name.to_owned()),
                )
            }
        };
        let store_of_undo = Within {
            parent: parent.clone(),
            prefix: undo.clone(),
        };
        let vault = Vault {
            store: Box::new(store_of_undo),
            place: UndoPlace::Store {
                parent,
                image: prefix,
                undo,
            },
        };
        Ok(Self {
            path: name.into(),
            store,
            file,
            vault: Ok(vault),
            _locks: Vec::new(),
        })
    }

    pub(super) fn vault(&self) -> Result<&Vault> {
        self.vault
            .as_ref()
            .map_err(|why| Error::new(Kind::Invalid, LAYER, *why).in_file(&self.path))
    }
}

/// Returns the folder of the undo data of the image at `path`.
pub fn undo_folder(path: &Path, undo_dir: Option<&Path>) -> PathBuf {
    let beside = interrupted::undo_folder(path);
    match undo_dir {
        Some(folder) => folder.join(beside.file_name().unwrap_or_default()),
        None => beside,
    }
}

/// Locks a bundle. Uses existing lock files only, so that nothing is created before the repair; if
/// there is none, one is created.
fn lock_bundle(store: &dyn Store, access: Access) -> Result<Vec<Guard>> {
    if access == Access::ReadOnly {
        return sparsebundle::lock_shared(store).map(Vec::from);
    }
    let locks = sparsebundle::lock_unused(store)?;
    Ok(if locks.is_empty() {
        sparsebundle::locks(store)?.into()
    } else {
        locks
    })
}

/// Opens and locks the image at `path` for an operation on its undo data.
pub(super) fn at_for_undo(
    path: &Path,
    options: &OpenOptions<'_>,
    chosen: &Options<'_>,
) -> Result<Target> {
    Target::at(path, options, chosen.undo_dir, Access::ReadWrite)
}

/// A store with a single open file.
#[derive(Debug)]
struct OneFile {
    name: String,
    file: Arc<dyn BlockDevice>,
}

impl OneFile {
    fn refused(&self) -> Error {
        Error::unsupported(LAYER, "an image of one file stays one file").named(&self.name)
    }

    fn meta(&self) -> Meta {
        let len = self.file.info().len;
        Meta {
            len,
            allocated: len,
            version: 0,
        }
    }
}

impl Store for OneFile {
    fn open(&self, name: &str, how: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        match how {
            Open::Read | Open::Write => Ok((name == self.name).then(|| self.file.clone())),
            Open::Create if name == self.name => Ok(Some(self.file.clone())),
            Open::Create | Open::CreateNew => Err(self.refused()),
        }
    }

    fn put(&self, _name: &str, _bytes: &[u8], _cond: Put) -> Result<bool> {
        Err(self.refused())
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        Ok((name == self.name).then(|| self.meta()))
    }

    fn copy(&self, _from: &str, _to: &str) -> Result<()> {
        Err(self.refused())
    }

    fn rename(&self, _from: &str, _to: &str) -> Result<()> {
        Err(self.refused())
    }

    fn remove(&self, _name: &str) -> Result<bool> {
        Err(self.refused())
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        if !self.name.starts_with(prefix) {
            return Ok(());
        }
        each(Entry::new(&self.name, &|| Ok(Some(self.meta()))))
    }

    fn sync(&self) -> Result<()> {
        self.file.flush()
    }

    fn lock(&self, _name: &str, _mode: Lock) -> Result<Guard> {
        Ok(Guard::nothing())
    }
}

/// The part of a store whose names have a common prefix, without that prefix.
#[derive(Debug)]
struct Within {
    parent: Arc<dyn Store>,
    prefix: String,
}

impl Within {
    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Store for Within {
    fn open(&self, name: &str, how: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        self.parent.open(&self.full(name), how)
    }

    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool> {
        self.parent.put(&self.full(name), bytes, cond)
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        self.parent.stat(&self.full(name))
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        self.parent.copy(&self.full(from), &self.full(to))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.parent.rename(&self.full(from), &self.full(to))
    }

    fn remove(&self, name: &str) -> Result<bool> {
        self.parent.remove(&self.full(name))
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        self.parent
            .list(
                &self.full(prefix),
                &mut |entry| match entry.name.strip_prefix(&self.prefix) {
                    Some(name) => each(Entry::new(name, &|| entry.meta())),
                    None => Ok(()),
                },
            )
    }

    fn sync(&self) -> Result<()> {
        self.parent.sync()
    }

    fn lock(&self, name: &str, mode: Lock) -> Result<Guard> {
        self.parent.lock(&self.full(name), mode)
    }
}

/// The storage of undo data.
#[derive(Debug)]
pub(super) struct Vault {
    store: Box<dyn Store>,
    place: UndoPlace,
}

#[derive(Debug)]
enum UndoPlace {
    Host {
        folder: PathBuf,
        /// The folder of the image's files. `None` if it is not on this host.
        image: Option<PathBuf>,
        /// Mode of the files in `folder`: that of the image.
        mode: u32,
        /// Folders whose entries changed since the last sync.
        changed: Mutex<Vec<PathBuf>>,
    },
    Store {
        parent: Arc<dyn Store>,
        image: String,
        undo: String,
    },
}

impl Vault {
    fn host(folder: PathBuf, image: Option<PathBuf>, path: &Path) -> Self {
        // Access to a bundle is determined by the mode of its lists.
        let of = [
            path.join("Info.plist"),
            path.join("Info.bckup"),
            path.to_owned(),
        ];
        let mode = of
            .iter()
            .find_map(|path| fs::metadata(path).ok())
            .map_or(0o600, |meta| meta.mode() & 0o666);
        let place = UndoPlace::Host {
            folder: folder.clone(),
            image,
            mode: mode | 0o600,
            changed: Mutex::default(),
        };
        Self {
            store: Box::new(Local::new(folder)),
            place,
        }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the folder. `None` if it is not on this host.
    pub(super) fn folder(&self) -> Option<&Path> {
        match &self.place {
            UndoPlace::Host { folder, .. } => Some(folder),
            UndoPlace::Store { .. } => None,
        }
    }

    /// Fails if the path of the folder is not a folder.
    pub(super) fn check(&self) -> Result<()> {
        match &self.place {
            UndoPlace::Host { folder, .. }
                if fs::metadata(folder).is_ok_and(|meta| !meta.is_dir()) =>
            {
                Err(no_undo(folder, io::ErrorKind::NotADirectory.into()))
            }
            _ => Ok(()),
        }
    }

    /// Creates the folder with mode 0700 if it is missing, and fails if it is not writable.
    pub(super) fn make(&self) -> Result<()> {
        let UndoPlace::Host {
            folder, changed, ..
        } = &self.place
        else {
            return Ok(());
        };
        let refused = |error: io::Error| no_undo(folder, error);
        match fs::DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => {
                let above = folder
                    .parent()
                    .filter(|above| !above.as_os_str().is_empty())
                    .unwrap_or(Path::new("."));
                changed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(above.to_owned());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(refused(error)),
        }
        let probe = folder.join(".bandsaw-probe");
        let probed = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&probe);
        probed
            .and_then(|_| fs::remove_file(&probe))
            .map_err(refused)
    }

    /// Sets the mode of a new file of the undo data to that of the image.
    pub(super) fn protect(&self, name: &str) -> Result<()> {
        let UndoPlace::Host { folder, mode, .. } = &self.place else {
            return Ok(());
        };
        let path = folder.join(name);
        fs::set_permissions(&path, Permissions::from_mode(*mode)).map_err(|error| {
            Error::io(LAYER, "cannot set the permissions of undo data", error).in_file(path)
        })
    }

    /// Sets the mode of a file that a repair created in the image to that of the other files.
    pub(super) fn adopt(&self, name: &str) -> Result<()> {
        let UndoPlace::Host {
            image: Some(root),
            mode,
            ..
        } = &self.place
        else {
            return Ok(());
        };
        let path = root.join(name);
        fs::set_permissions(&path, Permissions::from_mode(*mode))
            .map_err(|error| Error::io(LAYER, "cannot set permissions", error).in_file(path))
    }

    /// Moves a file of the image to the undo data.
    pub(super) fn take(&self, image: &dyn Store, name: &str, to: &str) -> Result<()> {
        match &self.place {
            UndoPlace::Store {
                parent,
                image,
                undo,
            } => parent.rename(&format!("{image}{name}"), &format!("{undo}{to}")),
            UndoPlace::Host {
                folder,
                image: Some(root),
                ..
            } => {
                let moved = self.rename(&root.join(name), &folder.join(to))?;
                if moved {
                    Ok(())
                } else {
                    move_by_copy(image, name, &*self.store, to)
                }
            }
            UndoPlace::Host { image: None, .. } => move_by_copy(image, name, &*self.store, to),
        }
    }

    /// Moves a file of the undo data back to the image.
    pub(super) fn give_back(&self, image: &dyn Store, from: &str, name: &str) -> Result<()> {
        match &self.place {
            UndoPlace::Store {
                parent,
                image,
                undo,
            } => parent.rename(&format!("{undo}{from}"), &format!("{image}{name}")),
            UndoPlace::Host {
                folder,
                image: Some(root),
                ..
            } => {
                let moved = self.rename(&folder.join(from), &root.join(name))?;
                if moved {
                    Ok(())
                } else {
                    move_by_copy(&*self.store, from, image, name)
                }
            }
            UndoPlace::Host { image: None, .. } => move_by_copy(&*self.store, from, image, name),
        }
    }

    /// Renames a file. Returns `false` if the paths are on different file systems.
    fn rename(&self, from: &Path, to: &Path) -> Result<bool> {
        let UndoPlace::Host { changed, .. } = &self.place else {
            return Ok(false);
        };
        let parents = [from.parent(), to.parent()]
            .into_iter()
            .flatten()
            .map(Path::to_owned)
            .collect::<Vec<_>>();
        let made = to.parent().map_or(Ok(()), |above| {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(above)
        });
        match made.and_then(|()| fs::rename(from, to)) {
            Ok(()) => {
                let mut changed = changed.lock().unwrap_or_else(PoisonError::into_inner);
                for folder in parents
                    .into_iter()
                    .flat_map(|folder| [folder.parent().map(Path::to_owned), Some(folder)])
                    .flatten()
                {
                    if !folder.as_os_str().is_empty() && !changed.contains(&folder) {
                        changed.push(folder);
                    }
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => Ok(false),
            Err(error) => Err(Error::io(LAYER, "cannot move", error).in_file(from)),
        }
    }

    /// Makes all file names durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.store.sync()?;
        let UndoPlace::Host { changed, .. } = &self.place else {
            return Ok(());
        };
        for folder in std::mem::take(&mut *changed.lock().unwrap_or_else(PoisonError::into_inner)) {
            let synced = File::open(&folder).and_then(|open| open.sync_all());
            match synced {
                // A folder of undo data that was removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                synced => synced
                    .map_err(|error| Error::io(LAYER, "cannot sync", error).in_file(&folder))?,
            }
        }
        Ok(())
    }

    /// Returns a value that changes with a file of the image: its modification time on this host, a
    /// checksum in a store, or 0 if the image is not on this host.
    pub(super) fn stamp(&self, image: &dyn Store, name: &str) -> Result<u64> {
        match &self.place {
            UndoPlace::Host {
                image: Some(root), ..
            } => Ok(fs::metadata(root.join(name)).map_or(0, |meta| {
                (meta.mtime().cast_unsigned())
                    .wrapping_mul(1_000_000_000)
                    .wrapping_add(meta.mtime_nsec().cast_unsigned())
            })),
            UndoPlace::Host { image: None, .. } => Ok(0),
            UndoPlace::Store { .. } => {
                let Some(file) = image.open(name, Open::Read)? else {
                    return Ok(0);
                };
                let mut sum = crc32fast::Hasher::new();
                let (mut at, len) = (0, file.info().len);
                while at < len {
                    let bytes = file.read_vec(at, (len - at).min(1 << 20) as usize)?;
                    sum.update(&bytes);
                    at += bytes.len() as u64;
                }
                Ok(sum.finalize().into())
            }
        }
    }

    /// Removes all undo data in the folder `prefix`.
    pub(super) fn clear(&self, prefix: &str) -> Result<()> {
        if let UndoPlace::Host { folder, .. } = &self.place {
            let path = folder.join(prefix.trim_end_matches('/'));
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(LAYER, "cannot remove undo data", error).in_file(path));
                }
                _ => {}
            }
            return Ok(());
        }
        let mut names = Vec::new();
        self.store.list(prefix, &mut |entry| {
            names.push(entry.name.to_owned());
            Ok(())
        })?;
        names
            .iter()
            .try_for_each(|name| self.store.remove(name).map(drop))?;
        self.store.sync()
    }
}

impl Vault {
    /// Removes the folder if it is empty.
    pub(super) fn remove(&self) -> Result<()> {
        let UndoPlace::Host { folder, .. } = &self.place else {
            return Ok(());
        };
        match fs::remove_dir(folder) {
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Err(Error::io(LAYER, "cannot remove", error).in_file(folder))
            }
            _ => Ok(()),
        }
    }
}

fn no_undo(folder: &Path, error: io::Error) -> Error {
    let what = "cannot keep undo data, without which nothing is repaired (`--undo-dir` names another place)";
    Error::io(LAYER, what, error).in_file(folder)
}

/// Moves a file to another store. The copy is durable before the original is removed.
fn move_by_copy(from: &dyn Store, name: &str, to: &dyn Store, target: &str) -> Result<()> {
    let source = from
        .open(name, Open::Read)?
        .ok_or_else(|| Error::not_found(LAYER, name))?;
    let copy = to
        .open(target, Open::Create)?
        .ok_or_else(|| Error::not_found(LAYER, target))?;
    regions::copy_all(&*source, &*copy)?;
    copy.flush()?;
    to.sync()?;
    from.remove(name)?;
    from.sync()
}
