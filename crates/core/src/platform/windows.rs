//! Functions of `mod.rs` and `unix.rs` for Windows, as far as images are read there. Files have no
//! holes, and nothing is left behind to be removed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileType, Metadata};
use std::io;
use std::os::windows::fs::{FileExt as WindowsFileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// `ERROR_TOO_MANY_OPEN_FILES`.
const TOO_MANY_FILES: i32 = 4;

/// Reads and writes at offsets, with the names that they have on Unix.
pub trait FileExt {
    /// Fills all of `buf` from `offset`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` at `offset`.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.seek_read(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buf = &mut buf[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.seek_write(buf, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    buf = &buf[count..];
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The identity of a file: its path without links. Hard links are different files.
pub type FileId = PathBuf;

/// Returns the identity of the file at `path`.
pub fn file_id(path: &Path) -> io::Result<FileId> {
    fs::canonicalize(path)
}

/// Returns `None`: hard links cannot be distinguished from other names.
pub fn shared_id(_meta: &Metadata) -> Option<FileId> {
    None
}

/// Returns the length of the file.
pub fn allocated(meta: &Metadata) -> u64 {
    meta.len()
}

/// Returns a text that changes when the file is replaced or written.
pub fn version(meta: &Metadata) -> String {
    let (created, written) = (meta.creation_time(), meta.last_write_time());
    format!("{created} {} {written}", meta.len())
}

/// Returns false: disks are not opened by name.
pub fn is_disk(_kind: FileType) -> bool {
    false
}

/// Returns true: it is not known.
pub fn appends(_file: &File) -> io::Result<bool> {
    Ok(true)
}

/// Returns the name of the host that has these bytes. `None`: names are text.
pub fn name_of_bytes(bytes: &[u8]) -> Option<&OsStr> {
    std::str::from_utf8(bytes).ok().map(OsStr::new)
}

/// Does nothing: names are durable once they are written.
pub fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Renames `from` to `to`, which must not exist. A name that is created meanwhile is overwritten.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(to) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            fs::rename(from, to).map(|()| true)
        }
        Err(source) => Err(source),
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

/// Returns false: names are not exchanged in one step.
pub fn exchange(_one: &Path, _other: &Path) -> io::Result<bool> {
    Ok(false)
}

/// Returns true for the error of a process that has too many open files.
pub fn is_too_many_files(error: &io::Error) -> bool {
    error.raw_os_error() == Some(TOO_MANY_FILES)
}

/// Returns a name for this machine.
pub fn host_name() -> String {
    "Windows".to_owned()
}

/// Returns the folder for temporary files of callers that name none.
pub fn temporary_folder() -> PathBuf {
    std::env::temp_dir()
}

/// Returns `None`: it is not known.
pub fn on_battery() -> Option<bool> {
    None
}

/// Returns false: no part of a file is freed.
pub fn can_punch_in(_folder: &Path, _named: bool) -> bool {
    false
}

/// Returns `wanted`: the number of open files is limited by memory.
pub fn raise_file_limit(wanted: u64) -> u64 {
    wanted
}

/// Returns `.NAME` plus `extension` for a temporary file beside the file `name`.
pub fn hidden_name(name: &OsStr, extension: &str) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(extension);
    hidden
}

/// Returns a suffix for temporary names that is unique while this process lives.
pub fn own_suffix() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{}-{number}", std::process::id())
}

/// Removes nothing: the end of another process is not known.
pub fn remove_leftovers(_folder: &Path, _prefix: &str) {}

/// The result of a search for data or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At this offset.
    At(u64),
    /// Not before the end of the file.
    Nowhere,
    /// Unknown to the host: everything may be data.
    Unknown,
}

/// Finds the next stored byte at or after `offset`. Always [`Next::Unknown`].
pub fn next_data(_file: &File, _offset: u64) -> io::Result<Next> {
    Ok(Next::Unknown)
}

/// Finds the next hole at or after `offset`. Always [`Next::Unknown`].
pub fn next_hole(_file: &File, _offset: u64) -> io::Result<Next> {
    Ok(Next::Unknown)
}

/// Files of the host.
pub mod nodes {
    use super::{File, Path, fs, io};

    /// Creates an unnamed file in `folder`, which is removed when it is closed.
    pub fn unlinked_file(folder: &Path) -> io::Result<File> {
        let path = folder.join(format!(".bandsaw-{}", uuid::Uuid::new_v4()));
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        fs::remove_file(path)?;
        Ok(file)
    }

    /// Encodes a device number as macOS does: 8 bits of major, 24 of minor; `None` if it does not fit.
    pub fn mac_device(major: u32, minor: u32) -> Option<u32> {
        (major < 1 << 8 && minor < 1 << 24).then_some(major << 24 | minor)
    }
}
