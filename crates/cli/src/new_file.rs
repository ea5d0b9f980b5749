//! A new file of the host that appears in its place only when it is complete.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bandsaw::store::FileMode;
use bandsaw::{Error, Reason, Result, platform};

use crate::failure::{Failure, Outcome};

const LAYER: &str = "target";

/// A new file. If dropped before [`finish`](Self::finish), it is removed and an existing file in
/// its place stays unchanged.
///
/// An existing FIFO or device is written to directly.
#[derive(Debug)]
pub(crate) struct NewFile {
    out: BufWriter<File>,
    path: PathBuf,
    /// The temporary file that takes the bytes meanwhile; `None` if `path` itself does.
    aside: Option<PathBuf>,
    replaces: bool,
}

impl NewFile {
    /// Creates the file with the mode of the file that it replaces, or as the umask says.
    pub(crate) fn create(path: &Path, overwrite: bool) -> Outcome<Self> {
        Self::create_as(path, overwrite, FileMode::ANY)
    }

    /// The same with a mode of at most `mode`.
    pub(crate) fn create_as(path: &Path, overwrite: bool, mode: FileMode) -> Outcome<Self> {
        let failed = |error: io::Error| Error::io(LAYER, "create", error).in_file(path);
        let (file, aside) = match path.metadata() {
            Ok(meta) if !meta.is_file() && !meta.is_dir() => (
                File::options().write(true).open(path).map_err(failed)?,
                None,
            ),
            Ok(meta) if meta.is_dir() => {
                let error = Error::conflict(LAYER, "is a folder, expected a file");
                return Err(error.in_file(path).into());
            }
            Ok(_) if !overwrite => {
                return Err(exists(path));
            }
            old => {
                let aside = aside(path);
                let before = old.is_ok().then(|| FileMode::of(path)).flatten();
                let mode = before.map_or(mode, |before| before.and(mode));
                let file = File::options()
                    .write(true)
                    .create_new(true)
                    .mode(mode.bits())
                    .open(&aside)
                    .map_err(failed)?;
                if before.is_some() {
                    file.set_permissions(Permissions::from_mode(mode.bits()))
                        .map_err(failed)?;
                }
                // Cleanup after killed runs skips files that are locked; a host without locks is
                // not an error.
                let _ = file.try_lock();
                (file, Some(aside))
            }
        };
        Ok(Self {
            out: BufWriter::with_capacity(1 << 20, file),
            path: path.to_owned(),
            aside,
            replaces: overwrite,
        })
    }

    /// Puts the whole file in its place.
    pub(crate) fn finish(mut self) -> Result<()> {
        let failed = |error: io::Error| Error::io(LAYER, "write", error).in_file(&self.path);
        self.out.flush().map_err(failed)?;
        let Some(aside) = &self.aside else {
            return Ok(());
        };
        self.out.get_ref().sync_all().map_err(failed)?;
        if self.replaces {
            fs::rename(aside, &self.path).map_err(failed)?;
        } else {
            // Unlike a rename, a hard link never replaces a file that appeared meanwhile. `drop`
            // removes the first name.
            match fs::hard_link(aside, &self.path) {
                // On file systems without hard links a file that appears between the check and the
                // rename is lost.
                Err(error)
                    if error.kind() != io::ErrorKind::AlreadyExists && !self.path.exists() =>
                {
                    fs::rename(aside, &self.path)
                }
                linked => linked,
            }
            .map_err(failed)?;
        }
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Seek for NewFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.out.seek(to)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside {
            // Already gone after a rename; otherwise best effort, as there is no caller to report
            // to.
            let _ = fs::remove_file(aside);
        }
    }
}

/// Returns the failure about a file that would be replaced.
pub(crate) fn exists(path: &Path) -> Failure {
    let error = Error::conflict(LAYER, "already exists").because(Reason::Exists);
    Failure::from(error.in_file(path)).hint_if_exists(false)
}

/// Returns a hidden name in the same folder, so that the file can be renamed. Leftovers of killed
/// runs under such names are removed.
pub(crate) fn aside(path: &Path) -> PathBuf {
    let mut name = platform::hidden_name(path.file_name().unwrap_or_default(), ".new-");
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if let Some(prefix) = name.to_str() {
        platform::remove_leftovers(folder, prefix);
    }
    name.push(platform::own_suffix());
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw::Kind;

    #[test]
    fn a_file_is_there_when_it_is_whole() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("x");
        let names = || fs::read_dir(scratch.path()).unwrap().count();

        let mut file = NewFile::create(&path, false).unwrap();
        file.write_all(b"one").unwrap();
        drop(file);
        assert_eq!(names(), 0, "unfinished");

        let mut file = NewFile::create(&path, false).unwrap();
        file.write_all(b"one").unwrap();
        file.finish().unwrap();
        assert_eq!((fs::read(&path).unwrap(), names()), (b"one".to_vec(), 1));

        assert_eq!(
            NewFile::create(&path, false).unwrap_err().kind(),
            Kind::Conflict
        );
        let mut file = NewFile::create(&path, true).unwrap();
        file.write_all(b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        file.finish().unwrap();
        assert_eq!((fs::read(&path).unwrap(), names()), (b"two".to_vec(), 1));
    }

    #[test]
    fn a_file_that_came_meanwhile_is_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("x");
        let file = NewFile::create(&path, false).unwrap();
        fs::write(&path, "theirs").unwrap();
        assert!(file.finish().is_err());
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
    }
}
