//! macOS. Written from the manual pages; never run on a Mac.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CloneFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{Mount, macos_text};

/// Makes the contents and length of a file durable.
pub(crate) fn make_durable(file: &File) -> io::Result<()> {
    // fsync does not flush the drive's cache here; F_FULLFSYNC does. Network file systems support
    // only fsync.
    match rustix::fs::fcntl_fullfsync(file) {
        Ok(()) => Ok(()),
        Err(Errno::NOTSUP | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY) => {
            Ok(rustix::fs::fsync(file)?)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Makes the names in a folder durable.
pub(crate) fn make_names_durable(folder: &File) -> io::Result<()> {
    make_durable(folder)
}

/// Frees the storage behind a range, which then reads as zeros. `false`: not supported by this host
/// or file system.
///
/// Always `false`: F_PUNCHHOLE takes a structure by pointer and no safe binding of it exists.
pub(crate) fn punch_hole(_file: &File, _offset: u64, _len: u64) -> io::Result<bool> {
    Ok(false)
}

/// Returns true if the file system of `folder` can punch holes with the calls available here.
pub(crate) fn can_punch_in(_folder: &Path, _named: bool) -> bool {
    false
}

/// Creates `name` as a file that shares the storage of `from` until either is written. `None`: not
/// supported by the file system.
pub(crate) fn clone_file(
    from: &File,
    folder: BorrowedFd<'_>,
    name: &str,
) -> io::Result<Option<File>> {
    if rustix::fs::fclonefileat(from, folder, name, CloneFlags::empty()).is_err() {
        return Ok(None);
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(Some(File::from(rustix::fs::openat(
        folder,
        name,
        flags,
        Mode::empty(),
    )?)))
}

/// Copies up to `len` bytes between the same offsets of two files inside the kernel; returns the
/// number of bytes copied.
///
/// Always refused: macOS has no such call for parts of files.
pub(crate) fn copy_range(_from: &File, _to: &File, _offset: u64, _len: u64) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns true if a file server has lost the state of an open file; macOS does not report it.
pub(crate) fn is_forgotten(_file: &File) -> bool {
    false
}

/// Returns the process that holds the lock of a file; macOS does not report it.
pub(crate) fn lock_holder(_file: &File) -> Option<String> {
    None
}

pub(super) fn on_battery() -> Option<bool> {
    let output = Command::new("/usr/bin/pmset")
        .args(["-g", "batt"])
        .output()
        .ok()?;
    macos_text::on_battery(&String::from_utf8_lossy(&output.stdout))
}

pub(super) fn mounts() -> io::Result<Vec<Mount>> {
    let output = Command::new("/sbin/mount").output()?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(macos_text::mount)
        .collect())
}
