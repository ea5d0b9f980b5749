//! Permission bits of new files and folders.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::Mode;

/// Number of entries of a folder that are sampled: those of a bundle have one mode.
const SAMPLE: usize = 16;

/// Permission bits of files. Those of folders are derived: a user who may read a file may enter its
/// folder. The owner may always read and write.
///
/// The umask of the process applies as to any new file: it only removes bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(u32);

impl FileMode {
    /// Access for the owner only.
    pub const PRIVATE: Self = Self(0o600);
    /// Access for all users, subject to the umask.
    pub const ANY: Self = Self(0o666);

    /// Creates a mode from the relevant bits of `mode`.
    pub const fn new(mode: u32) -> Self {
        Self(mode & 0o666 | 0o600)
    }

    /// Returns the mode of the file at `path`; for a folder, the bits common to it and a sample of
    /// its files. `None`: it does not exist or is inaccessible to this user.
    pub fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        let own = Self::new(meta.mode());
        Some(if meta.is_dir() {
            own.and(Self::sample(path, 1))
        } else {
            own
        })
    }

    fn sample(folder: &Path, depth: u32) -> Self {
        let Ok(entries) = fs::read_dir(folder) else {
            return Self::ANY;
        };
        let mut common = Self::ANY;
        for entry in entries.take(SAMPLE).flatten() {
            // Metadata of a symbolic link itself, whose bits are meaningless.
            match entry.metadata() {
                Ok(meta) if meta.is_file() => common = common.and(Self::new(meta.mode())),
                Ok(meta) if meta.is_dir() => {
                    common = common.and(Self::new(meta.mode()));
                    if depth > 0 {
                        common = common.and(Self::sample(&entry.path(), depth - 1));
                    }
                }
                _ => {}
            }
        }
        common
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

    /// Returns the mode for creating files.
    pub(crate) fn file(self) -> Mode {
        Mode::from_raw_mode(self.0 as _)
    }

    /// Returns the mode for creating folders.
    pub(crate) fn folder(self) -> Mode {
        Mode::from_raw_mode(self.folder_bits() as _)
    }

    pub(super) const fn folder_bits(self) -> u32 {
        self.0 | (self.0 & 0o444) >> 2
    }

    /// Sets the mode of an existing file or folder.
    pub fn set_on(self, path: &Path) -> io::Result<()> {
        let is_folder = fs::symlink_metadata(path)?.is_dir();
        let bits = if is_folder {
            self.folder_bits()
        } else {
            self.0
        };
        fs::set_permissions(path, fs::Permissions::from_mode(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_as_open_as_the_least_open_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sparsebundle");
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        fs::create_dir_all(path.join("bands")).unwrap();
        for name in ["token", "bands/0"] {
            fs::write(path.join(name), "").unwrap();
            set(&path.join(name), 0o644);
        }
        set(&path, 0o755);
        set(&path.join("bands"), 0o755);
        assert_eq!(FileMode::of(&path), Some(FileMode::new(0o644)));
        set(&path.join("bands/0"), 0o640);
        assert_eq!(FileMode::of(&path), Some(FileMode::new(0o640)));
        set(&path, 0o700);
        assert_eq!(FileMode::of(&path), Some(FileMode::PRIVATE));
        assert_eq!(
            FileMode::of(&path.join("token")),
            Some(FileMode::new(0o644))
        );
        assert_eq!(FileMode::of(&path.join("none")), None);
    }

    #[test]
    fn folders_can_be_entered_by_whom_they_let_read() {
        assert_eq!(FileMode::PRIVATE.folder_bits(), 0o700);
        assert_eq!(FileMode::new(0o4444).folder_bits(), 0o755);
        assert_eq!(FileMode::new(0o640).folder_bits(), 0o750);
    }
}
