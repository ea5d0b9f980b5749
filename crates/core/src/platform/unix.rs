//! Functions that Linux and macOS have in common; those of Windows are in `windows.rs`.

use std::ffi::OsStr;
use std::fs::{File, FileType, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags, fcntl_getfl, renameat_with};
use rustix::io::Errno;

pub use std::os::unix::fs::FileExt;

/// The identity of a file: the same for all its names.
pub type FileId = (u64, u64);

/// Returns the identity of the file at `path`.
pub fn file_id(path: &Path) -> io::Result<FileId> {
    let meta = std::fs::metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

/// Returns the identity of a file that has several names. `None`: it has one.
pub fn shared_id(meta: &Metadata) -> Option<FileId> {
    (meta.nlink() > 1).then(|| (meta.dev(), meta.ino()))
}

/// Returns the bytes of storage that a file or folder uses.
pub fn allocated(meta: &Metadata) -> u64 {
    meta.blocks() * 512
}

/// Returns a text that changes when the file is replaced or written.
pub fn version(meta: &Metadata) -> String {
    let (ino, seconds, nanos) = (meta.ino(), meta.mtime(), meta.mtime_nsec());
    format!("{ino} {} {seconds} {nanos}", meta.len())
}

/// Returns true for a disk.
pub fn is_disk(kind: FileType) -> bool {
    kind.is_block_device()
}

/// Returns true if all writes to an open file go to its end.
pub fn appends(file: &File) -> io::Result<bool> {
    Ok(fcntl_getfl(file)?.contains(OFlags::APPEND))
}

/// Returns the name of the host that has these bytes. `None`: no name has them.
pub fn name_of_bytes(bytes: &[u8]) -> Option<&OsStr> {
    Some(OsStr::from_bytes(bytes))
}

/// Makes the names in the folder at `path` durable.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    super::make_names_durable(&File::open(path)?)
}

/// Renames `from` to `to`, which must not exist. `false`: the file system cannot do that in one step.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<bool> {
    rename(from, to, RenameFlags::NOREPLACE)
}

/// Exchanges two names. `false`: the file system cannot do that in one step.
pub fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    rename(one, other, RenameFlags::EXCHANGE)
}

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<bool> {
    match renameat_with(CWD, from, CWD, to, flags) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns true for the error of a process, or host, that has too many open files.
pub fn is_too_many_files(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// Returns the name of this machine.
pub fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// Returns the folder for temporary files of callers that name none.
pub fn temporary_folder() -> PathBuf {
    "/tmp".into()
}
