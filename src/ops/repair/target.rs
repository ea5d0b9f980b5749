//! The image to be repaired, and the location of its undo data.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::undo_store::UndoStore;
use super::{LAYER, Options};
use crate::container::sparsebundle;
use crate::device::{Access, BlockDevice};
use crate::open::interrupted::{self, UNDO_SUFFIX};
use crate::open::{self, OpenOptions, StoredImage};
use crate::store::{FileMode, Guard, Local, Meta, Open, PrefixStore, SingleFile, Store};
use crate::{Error, Result};

const NO_PLACE: &str = "the image is in a bucket, which cannot store undo data: choose a local folder with \
     `--undo-dir`";
const NO_FOLDER: &str =
    "the image is a device, which cannot store undo data: choose a folder with `--undo-dir`";
/// The name in its store of an image that is a single file. It is in the undo data, which must
/// still fit after both were renamed.
const FILE: &str = "image";

/// An image to be repaired: its stored bytes, locked, and the location of its undo data.
#[derive(Debug)]
pub struct Target {
    /// Path of the image, for errors and for the parts of segmented images.
    pub(super) path: PathBuf,
    pub(super) store: Arc<dyn Store>,
    /// The name in `store` of an image that is a single file. `None`: the store is a sparse bundle.
    pub(super) file: Option<&'static str>,
    /// Device and inode of an image on this host.
    pub(super) identity: Option<(u64, u64)>,
    undo: Result<UndoStore, &'static str>,
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
        let changed = options.shadows.last().map_or(path, PathBuf::as_path);
        let is_here = open::remote::url(changed).is_none();
        let real = if is_here {
            interrupted::real_path(changed)
        } else {
            changed.to_owned()
        };
        let meta = fs::metadata(&real).ok().filter(|_| is_here);
        let is_bundle = meta.as_ref().is_some_and(fs::Metadata::is_dir);
        let undo_path = undo_folder(&real, undo_dir);
        let parent = match undo_dir {
            None if !is_here => Err(NO_PLACE),
            None if !is_bundle && !meta.as_ref().is_some_and(fs::Metadata::is_file) => {
                Err(NO_FOLDER)
            }
            _ => Ok(Parent::of(&real, &undo_path, undo_dir.is_none())),
        };
        let mut locks = Vec::new();
        let (store, file): (Arc<dyn Store>, _) = match (&parent, is_here) {
            (Ok(Some(parent)), _) if is_bundle => (Arc::new(parent.image()), None),
            (_, true) if is_bundle => (Arc::new(Local::new(&real)), None),
            (_, true) => {
                let file = open::lock_file(&real, access)?;
                let device = file.clone();
                (
                    Arc::new(SingleFile::new(FILE, device, move || file.meta())),
                    Some(FILE),
                )
            }
            (_, false) => match open::stored(changed, &options)? {
                StoredImage::Folder(store) => (store, None),
                StoredImage::File(file) => {
                    let device = file.clone();
                    (
                        Arc::new(SingleFile::new(FILE, device, move || Ok(meta_of(&*file)))),
                        Some(FILE),
                    )
                }
            },
        };
        if is_bundle {
            locks = lock_bundle(&*store, access)?;
        }
        let undo = parent.map(|parent| {
            let undo = match parent {
                Some(parent) => parent.undo(),
                None => UndoStore::apart(Arc::new(
                    Local::new(&undo_path).with_mode(FileMode::PRIVATE),
                ))
                .of_bundle(is_bundle.then(|| real.clone())),
            };
            undo.at(undo_path)
        });
        Ok(Self {
            path: path.to_owned(),
            store,
            file,
            identity: meta.as_ref().and_then(interrupted::identity),
            undo,
            _locks: locks,
        })
    }

    /// Returns the image called `name` in a store: a sparse bundle if `name/Info.plist` or
    /// `name/Info.bckup` exists, else a file. Its undo data is stored in `name.undo/`. Nothing is
    /// locked.
    pub fn in_store(parent: Arc<dyn Store>, name: &str) -> Result<Self> {
        let folder = PrefixStore::new(parent.clone(), name);
        let undo = UndoStore::beside(parent.clone(), name, &format!("{name}{UNDO_SUFFIX}"));
        let (store, file): (Arc<dyn Store>, _) = if sparsebundle::is_bundle(&folder)? {
            (Arc::new(folder), None)
        } else {
            let missing = |name: &str| Error::not_found(LAYER, name);
            let file = parent
                .open(name, Open::Write)?
                .ok_or_else(|| missing(name))?;
            let named = name.to_owned();
            let meta = move || parent.stat(&named)?.ok_or_else(|| missing(&named));
            (Arc::new(SingleFile::new(FILE, file, meta)), Some(FILE))
        };
        Ok(Self {
            path: name.into(),
            store,
            file,
            identity: None,
            undo: Ok(undo),
            _locks: Vec::new(),
        })
    }

    /// Stores the undo data in a store of its own, as with [`Options::undo_dir`]: files are copied
    /// to it.
    ///
    /// [`Options::undo_dir`]: super::Options::undo_dir
    #[must_use]
    pub fn with_undo_apart(self, store: Arc<dyn Store>) -> Self {
        Self {
            undo: Ok(UndoStore::apart(store)),
            ..self
        }
    }

    /// Returns the storage of the undo data.
    pub(super) fn undo(&self) -> Result<&UndoStore> {
        self.undo
            .as_ref()
            .map_err(|why| Error::invalid(LAYER, *why).in_file(&self.path))
    }
}

/// The folder that holds an image and its undo data.
struct Parent {
    store: Arc<dyn Store>,
    image: String,
    undo: String,
}

impl Parent {
    /// Returns the folder above `image`, if it holds the undo data too and can be used as a store:
    /// it must be readable, and names in a store are text.
    fn of(image: &Path, undo: &Path, is_beside: bool) -> Option<Self> {
        let folder = interrupted::folder_of(image);
        let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
        let (name, undo) = (name(image)?, name(undo)?);
        File::open(folder).ok().filter(|_| is_beside)?;
        let mode = FileMode::of(image).unwrap_or(FileMode::PRIVATE);
        let store = Local::new(folder)
            .with_mode_in(&name, mode)
            .with_mode_in(&undo, FileMode::PRIVATE);
        Some(Self {
            store: Arc::new(store),
            image: name,
            undo,
        })
    }

    fn image(&self) -> PrefixStore {
        PrefixStore::new(self.store.clone(), &self.image)
    }

    fn undo(&self) -> UndoStore {
        UndoStore::beside(self.store.clone(), &self.image, &self.undo)
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

/// Returns the metadata of a file whose changes are not recorded.
fn meta_of(file: &dyn BlockDevice) -> Meta {
    let len = file.info().len;
    Meta {
        len,
        allocated: len,
        version: 0,
        changed: None,
    }
}

/// Locks a bundle. Uses existing lock files only, so that nothing is created before the repair; if
/// there is none, one is created.
fn lock_bundle(store: &dyn Store, access: Access) -> Result<Vec<Guard>> {
    if access == Access::ReadOnly {
        return sparsebundle::lock_shared(store).map(Vec::from);
    }
    sparsebundle::check_changeable(store)?;
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
