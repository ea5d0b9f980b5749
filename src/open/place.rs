//! The place of a new image on the host: claimed first, occupied when the image is finished.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::{LAYER, interrupted};
use crate::container::sparsebundle;
use crate::device::Access;
use crate::store::{FileMode, Guard, Local, LocalFile, Lock, Open};
use crate::{Error, Kind, Reason, Result, platform};

/// The final path of an image, and its temporary path.
#[derive(Debug)]
pub(crate) struct ImagePlace {
    target: PathBuf,
    /// In the same folder, so that it can be renamed. Removed on drop.
    aside: PathBuf,
    /// The temporary file is kept on drop, to be resumed.
    keeps: bool,
    /// The image is in its place.
    published: bool,
    /// The image to be replaced, locked.
    old: Option<ReplacedImage>,
    mode: FileMode,
    /// The mode is applied exactly, independent of the umask.
    is_exact: bool,
    /// The image itself, which is told its final path.
    image: OnceLock<NewFiles>,
}

/// The file or folder of a new image.
#[derive(Debug)]
enum NewFiles {
    File(Arc<LocalFile>),
    Folder(Arc<Local>),
}

/// The permissions of a new image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewMode {
    /// This mode, independent of the umask.
    Exactly(FileMode),
    /// This mode, restricted by the mode of the image that it replaces and by the umask.
    AtMost(FileMode),
}

impl Default for NewMode {
    fn default() -> Self {
        Self::AtMost(FileMode::ANY)
    }
}

impl NewMode {
    /// Returns the mode.
    pub fn mode(self) -> FileMode {
        match self {
            Self::Exactly(mode) | Self::AtMost(mode) => mode,
        }
    }

    /// Returns the mode for an image that holds secrets: only the owner, unless the mode is exact.
    #[must_use]
    pub(crate) fn of_secret(self, is_secret: bool) -> Self {
        match self {
            Self::AtMost(mode) if is_secret => Self::AtMost(mode.and(FileMode::PRIVATE)),
            same => same,
        }
    }
}

/// An image that is to be replaced, with the locks that prove it is not in use.
#[derive(Debug)]
enum ReplacedImage {
    File(#[expect(dead_code, reason = "holds the lock")] LocalFile),
    Folder(#[expect(dead_code, reason = "holds the locks")] Vec<Guard>),
}

impl ImagePlace {
    /// Claims `target` for a new image.
    pub(crate) fn claim(target: &Path, overwrite: bool, mode: NewMode) -> Result<Self> {
        if super::remote::url(target).is_some() {
            let message = "not on this machine: only sparse bundles can be created in a bucket \
                           (s3://)";
            return Err(Error::new(Kind::ReadOnly, LAYER, message));
        }
        let old = match fs::symlink_metadata(target) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(Error::io(LAYER, "read metadata", source)),
            Ok(_) if !overwrite => {
                return Err(Error::conflict(LAYER, "already exists").because(Reason::Exists));
            }
            Ok(meta) => {
                interrupted::refuse_or_warn(target, Access::ReadWrite)?;
                Some(ReplacedImage::lock(target, &meta)?)
            }
        };
        if !folder_of(target).is_dir() {
            return Err(Error::new(
                Kind::NotFound,
                LAYER,
                "the parent folder does not exist",
            ));
        }
        if let Some(prefix) = unfinished(target)?.to_str() {
            platform::remove_leftovers(folder_of(target), prefix);
        }
        let aside = unused_name(target)?;
        let (mode, is_exact) = match mode {
            NewMode::Exactly(mode) => (mode, true),
            NewMode::AtMost(mode) => {
                let before = old.as_ref().and_then(|_| FileMode::of(target));
                (
                    before.map_or(mode, |before| before.and(mode)),
                    before.is_some(),
                )
            }
        };
        Ok(Self {
            target: target.to_owned(),
            aside,
            keeps: false,
            published: false,
            old,
            mode,
            is_exact,
            image: OnceLock::new(),
        })
    }

    /// Claims `target` for an image under a fixed temporary name, which is not removed on drop.
    pub(super) fn claim_kept(target: &Path, overwrite: bool, mode: NewMode) -> Result<Self> {
        let mut place = Self::claim(target, overwrite, mode)?;
        let name = platform::hidden_name(target.file_name().unwrap_or_default(), ".partial");
        (place.aside, place.keeps) = (target.with_file_name(name), true);
        Ok(place)
    }

    /// Removes a kept image without a valid note, unless it is in use.
    pub(super) fn clear_kept(&self) -> Result<()> {
        let Ok(meta) = fs::symlink_metadata(&self.aside) else {
            return Ok(());
        };
        let removed = if meta.is_dir() {
            let _unused = sparsebundle::lock_unused(&Local::new(&self.aside))?;
            fs::remove_dir_all(&self.aside)
        } else {
            let _unused = ReplacedImage::lock(&self.aside, &meta)?;
            fs::remove_file(&self.aside)
        };
        removed.map_err(|source| Error::io(LAYER, "remove an unfinished image", source))
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    pub(crate) fn aside(&self) -> &Path {
        &self.aside
    }

    /// Creates the file of the image, empty and locked.
    pub(super) fn create_file(&self) -> Result<Arc<LocalFile>> {
        let file = LocalFile::create_new(&self.aside, self.mode)?.ok_or_else(|| {
            Error::conflict(
                LAYER,
                "another program has created the temporary file of the image",
            )
        })?;
        file.lock(Lock::Exclusive)?;
        let file = Arc::new(file);
        let _ = self.image.set(NewFiles::File(file.clone()));
        Ok(file)
    }

    /// Opens and locks the file of an image that was kept.
    pub(super) fn open_file(&self) -> Result<Arc<LocalFile>> {
        let file = LocalFile::open_locked(&self.aside, Open::Write, Lock::Exclusive)?;
        let file = file.ok_or_else(|| Error::new(Kind::NotFound, LAYER, "does not exist"))?;
        let file = Arc::new(file);
        let _ = self.image.set(NewFiles::File(file.clone()));
        Ok(file)
    }

    /// Returns the folder of the image, which is created with the first file in it.
    pub(super) fn folder(&self) -> Arc<Local> {
        let folder = Arc::new(Local::new(&self.aside).with_mode(self.mode));
        let _ = self.image.set(NewFiles::Folder(folder.clone()));
        folder
    }

    /// Closes the file or folder of the image, unless it is also open elsewhere.
    pub(super) fn close(&mut self) {
        drop(self.image.take());
    }

    /// Returns the mode with which the image is created.
    pub(crate) fn mode(&self) -> FileMode {
        self.mode
    }

    /// Returns true once the image was moved to its place.
    pub(super) fn is_published(&self) -> bool {
        self.published
    }

    /// Moves the finished image, which may be open, to its place, durably.
    pub(crate) fn publish(&mut self) -> Result<()> {
        if self.is_exact {
            let failed = |source| Error::io(LAYER, "set the permissions of the image", source);
            self.mode.set_on(&self.aside).map_err(failed)?;
        }
        let failed = |source| Error::io(LAYER, "rename the image to its final name", source);
        match &self.old {
            None => move_new(&self.aside, &self.target).map_err(failed)?,
            Some(old) => exchange(old, &self.aside, &self.target).map_err(failed)?,
        }
        self.published = true;
        match self.image.get() {
            Some(NewFiles::File(file)) => file.set_renamed(&self.target),
            Some(NewFiles::Folder(folder)) => folder.set_renamed(&self.target),
            None => {}
        }
        platform::sync_folder(folder_of(&self.target))
            .map_err(|source| Error::io(LAYER, "sync the folder", source))
    }
}

impl Drop for ImagePlace {
    fn drop(&mut self) {
        // Once moved, the temporary name holds the replaced image, which is removed in any case.
        if self.keeps && !self.published {
            return;
        }
        // The unfinished or the replaced image. Best effort: a drop cannot report errors.
        if fs::symlink_metadata(&self.aside).is_ok_and(|meta| meta.is_dir()) {
            let _ = fs::remove_dir_all(&self.aside);
        } else {
            let _ = fs::remove_file(&self.aside);
        }
    }
}

impl ReplacedImage {
    fn lock(path: &Path, meta: &fs::Metadata) -> Result<Self> {
        let refused = |what: &str| Err(Error::conflict(LAYER, format!("cannot overwrite {what}")));
        if meta.is_file() {
            let Some(file) = LocalFile::open(path, Open::Read)? else {
                return Err(Error::conflict(LAYER, "removed by another program"));
            };
            file.lock(Lock::Exclusive)?;
            return Ok(Self::File(file));
        }
        if !meta.is_dir() {
            return refused(if meta.is_symlink() {
                "a symbolic link"
            } else {
                "a special file"
            });
        }
        let store = Local::new(path);
        if !sparsebundle::is_bundle(&store)? {
            return refused("a folder that is not a sparse bundle");
        }
        sparsebundle::check_changeable(&store)?;
        Ok(Self::Folder(sparsebundle::lock_unused(&store)?))
    }
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Returns the prefix of the temporary names of an image at `target`.
fn unfinished(target: &Path) -> Result<OsString> {
    let Some(name) = target.file_name() else {
        return Err(Error::invalid(LAYER, "invalid name for a new image"));
    };
    Ok(platform::hidden_name(name, ".new-"))
}

/// Returns an unused name beside `target`.
fn unused_name(target: &Path) -> Result<PathBuf> {
    loop {
        let mut aside = unfinished(target)?;
        aside.push(platform::own_suffix());
        let aside = target.with_file_name(aside);
        match fs::symlink_metadata(&aside) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(aside),
            Err(source) => return Err(Error::io(LAYER, "find an unused name", source)),
            Ok(_) => {} // left by a crash of a process with our number
        }
    }
}

/// Renames to a name that must not exist.
fn move_new(from: &Path, to: &Path) -> io::Result<()> {
    match platform::rename_new(from, to)? {
        true => Ok(()),
        false => move_without_flag(from, to),
    }
}

/// Renames to a name that must not exist on a file system that has no flag for that.
fn move_without_flag(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => return Err(source),
        // A folder, or no hard links here either.
        Err(_) => {}
        Ok(()) => return fs::remove_file(from),
    }
    match fs::symlink_metadata(to) {
        // A name that is created now is overwritten.
        Err(source) if source.kind() == io::ErrorKind::NotFound => fs::rename(from, to),
        Err(source) => Err(source),
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

/// Moves `from` to `to`, where the old image is, which is afterwards at `from` or gone.
fn exchange(old: &ReplacedImage, from: &Path, to: &Path) -> io::Result<()> {
    if platform::exchange(from, to)? {
        return Ok(());
    }
    if matches!(old, ReplacedImage::File(_)) && fs::symlink_metadata(from)?.is_file() {
        return fs::rename(from, to);
    }
    // No atomic exchange here. A crash in between leaves both, each under a recognizable name.
    let mut aside = from.as_os_str().to_owned();
    aside.push(".old");
    fs::rename(to, &aside)?;
    fs::rename(from, to).or_else(|error| fs::rename(&aside, to).and(Err(error)))?;
    fs::rename(&aside, from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_replaced_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name);
        for rename in [move_new, move_without_flag] {
            fs::write(name("new"), b"new").unwrap();
            fs::create_dir(name("folder")).unwrap();
            fs::write(name("other"), b"other").unwrap();
            for from in ["new", "folder"] {
                let refused = rename(&name(from), &name("other")).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{from}");
                rename(&name(from), &name("free")).unwrap();
                assert!(!name(from).exists(), "{from}");
                fs::rename(name("free"), name(from)).unwrap();
            }
            assert_eq!(fs::read(name("other")).unwrap(), b"other");
            fs::remove_dir(name("folder")).unwrap();
        }
    }
}
