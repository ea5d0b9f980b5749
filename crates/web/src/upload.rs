//! Files that visitors upload: into folders that the server was given, under a temporary name until
//! they are complete.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::{Error, Reason, Result};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::LAYER;
use crate::text;
use crate::token::Token;
use crate::visitor_folders::{VisitorFolders, failed};

/// Maximum length of the name of an uploaded file in bytes.
const MAX_NAME: usize = 255;
/// Begin of the names of incomplete files.
const TEMPORARY: &str = ".bandsaw-upload-";

impl VisitorFolders {
    /// Begins a file in the folder of this number. [`Reason::Exists`] if there is one of this name
    /// and it is not to be replaced.
    pub(crate) fn begin(&self, number: usize, name: &str, replaces: bool) -> Result<Incoming> {
        let place = self.get(number)?;
        let found = rustix::fs::statat(&place.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        // Once more at the end, where it is certain.
        if found.is_ok() && !replaces {
            return Err(exists(&place.path, name));
        }
        let random: String = Token::new()?.reveal().chars().take(16).collect();
        let temporary = format!("{TEMPORARY}{random}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let file = rustix::fs::openat(&place.folder, &*temporary, flags, mode)
            .map_err(|errno| failed("create", errno))?;
        Ok(Incoming {
            file: Arc::new(File::from(file)),
            folder: place.folder.clone(),
            path: place.path.clone(),
            temporary: Some(temporary),
            name: name.to_owned(),
            replaces,
        })
    }
}

/// A file that arrives. Unless it is finished, it is removed.
#[derive(Debug)]
pub(crate) struct Incoming {
    file: Arc<File>,
    folder: Arc<OwnedFd>,
    path: PathBuf,
    temporary: Option<String>,
    name: String,
    replaces: bool,
}

impl Incoming {
    /// Returns the file without its name, to write to.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Returns the path that the file is to have, for people.
    pub(crate) fn path(&self) -> PathBuf {
        self.path.join(&self.name)
    }

    /// Gives the complete file its name. It is durable on return.
    pub(crate) fn finish(mut self) -> Result<()> {
        let written = |source| Error::io(LAYER, "write an uploaded file", source);
        self.file.sync_all().map_err(written)?;
        let Some(temporary) = &self.temporary else {
            return Ok(());
        };
        let (folder, name) = (self.folder.as_fd(), &*self.name);
        let named = match self.replaces {
            true => rustix::fs::renameat(folder, &**temporary, folder, name),
            false => {
                let flags = RenameFlags::NOREPLACE;
                match rustix::fs::renameat_with(folder, &**temporary, folder, name, flags) {
                    // File systems without the flag.
                    Err(Errno::INVAL | Errno::NOSYS) => {
                        rustix::fs::linkat(folder, &**temporary, folder, name, AtFlags::empty())
                            .and_then(|()| {
                                rustix::fs::unlinkat(folder, &**temporary, AtFlags::empty())
                            })
                    }
                    done => done,
                }
            }
        };
        match named {
            Ok(()) => self.temporary = None,
            Err(Errno::EXIST) => return Err(exists(&self.path, name)),
            Err(errno) => return Err(failed("rename", errno).in_file(self.path())),
        }
        rustix::fs::fsync(&self.folder).map_err(|errno| failed("write", errno))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = rustix::fs::unlinkat(&self.folder, &**temporary, AtFlags::empty());
        }
    }
}

/// Returns a file without a name in a folder.
pub(crate) fn nameless(folder: &Path) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    if let Ok(file) = rustix::fs::open(folder, flags, mode) {
        return Ok(File::from(file));
    }
    // File systems without such files.
    let random: String = Token::new()?.reveal().chars().take(16).collect();
    let path = folder.join(format!("{TEMPORARY}{random}"));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, mode).map_err(|errno| failed("create", errno))?;
    let unlinked = rustix::fs::unlinkat(rustix::fs::CWD, &path, AtFlags::empty());
    unlinked.map_err(|errno| failed("unlink", errno))?;
    Ok(File::from(file))
}

/// Writes bytes at the end of a file.
pub(crate) fn append(mut file: &File, bytes: &[u8]) -> Result<()> {
    let written = |source: io::Error| Error::io(LAYER, "write an uploaded file", source);
    file.write_all(bytes).map_err(written)
}

/// Returns true for names that an uploaded file may have.
pub(crate) fn is_safe(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with('.')
        && !name.contains(['/', '\\'])
        && crate::names::visible(name) == name
}

fn exists(folder: &Path, name: &str) -> Error {
    Error::conflict(LAYER, text::EXISTS)
        .because(Reason::Exists)
        .in_file(folder.join(name))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_of_uploads_are_safe() {
        for name in ["a.dmg", "שלום.txt", "a b&c", "é"] {
            assert!(is_safe(name), "{name}");
        }
        let long = "a".repeat(256);
        for name in [
            "",
            ".",
            "..",
            ".bashrc",
            "a/b",
            "a\\b",
            "/etc/passwd",
            "a\0b",
            "a\nb",
            "\u{202E}gpj.exe",
            &long,
        ] {
            assert!(!is_safe(name), "{name}");
        }
    }

    #[test]
    fn files_arrive_whole_or_not_at_all() {
        let scratch = tempfile::tempdir().unwrap();
        let folders = VisitorFolders::open(&[scratch.path().to_owned()]).unwrap();
        let count = || fs::read_dir(scratch.path()).unwrap().count();
        let incoming = folders.begin(0, "a.dmg", false).unwrap();
        append(incoming.file(), b"half").unwrap();
        assert!(!scratch.path().join("a.dmg").exists());
        drop(incoming);
        assert_eq!(count(), 0);
        let write = |replaces: bool, bytes: &[u8]| {
            let incoming = folders.begin(0, "a.dmg", replaces)?;
            append(incoming.file(), bytes)?;
            incoming.finish()
        };
        // A second one of the same name arrives meanwhile.
        let late = folders.begin(0, "a.dmg", false).unwrap();
        write(false, b"first").unwrap();
        assert_eq!(late.finish().unwrap_err().reason(), Some(Reason::Exists));
        assert_eq!(
            write(false, b"second").unwrap_err().reason(),
            Some(Reason::Exists)
        );
        assert_eq!(fs::read(scratch.path().join("a.dmg")).unwrap(), b"first");
        write(true, b"third").unwrap();
        assert_eq!(fs::read(scratch.path().join("a.dmg")).unwrap(), b"third");
        // A link is replaced, not followed.
        let (link, target) = (scratch.path().join("link"), scratch.path().join("a.dmg"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let incoming = folders.begin(0, "link", true).unwrap();
        append(incoming.file(), b"new").unwrap();
        incoming.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"third");
        assert_eq!(fs::read(&link).unwrap(), b"new");
        assert_eq!(count(), 2);
        assert!(folders.begin(1, "a", false).is_err());
    }
}
