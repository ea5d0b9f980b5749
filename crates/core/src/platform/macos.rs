//! macOS. Written from the manual pages; never run on a Mac.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CloneFlags, Mode, OFlags};
use rustix::io::Errno;

use super::macos_rules::DriveFlushes;
use super::{Mount, macos_rules, macos_text};

pub(super) use macos_rules::is_unsupported;

/// False: APFS was seen to report holes over data that had just been written.
pub(super) const REPORTS_HOLES: bool = false;

/// Makes the contents and length of a file durable.
pub(crate) fn make_durable(file: &File) -> io::Result<()> {
    static DRIVES: OnceLock<DriveFlushes> = OnceLock::new();
    Ok(macos_rules::make_durable(
        DRIVES.get_or_init(DriveFlushes::default),
        file.metadata()?.dev(),
        || rustix::fs::fsync(file),
        || rustix::fs::fcntl_fullfsync(file),
    )?)
}

/// Makes the names in a folder durable.
pub(crate) fn make_names_durable(folder: &File) -> io::Result<()> {
    make_durable(folder)
}

/// Frees the storage behind a range, which then reads as zeros. `false`: not supported by this host
/// or file system.
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<bool> {
    let grain = rustix::fs::fstatfs(file)?.f_bsize;
    let punch = |range: std::ops::Range<u64>| loop {
        match bandsaw_darwin::punch_hole(file.as_fd(), range.start, range.end - range.start) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => match Errno::from_io_error(&error) {
                Some(errno) if macos_rules::is_unknown_fcntl(errno) => return Ok(false),
                _ => return Err(error),
            },
        }
    };
    let zeros = |range: std::ops::Range<u64>| {
        // Less than a block.
        file.write_all_at(&vec![0; (range.end - range.start) as usize], range.start)
    };
    macos_rules::punch(
        offset..offset + len,
        u64::from(grain.max(512)),
        punch,
        zeros,
    )
}

/// Returns true if the file system of `folder` can punch holes: only APFS can.
pub fn can_punch_in(folder: &Path, _named: bool) -> bool {
    rustix::fs::statfs(folder).map_or(true, |of| {
        of.f_fstypename
            .iter()
            .map(|byte| *byte as u8)
            .take(4)
            .eq(*b"apfs")
    })
}

/// Returns the length of a disk in bytes; `None` for other files.
pub(crate) fn disk_len(file: &File) -> io::Result<Option<u64>> {
    if !file.metadata()?.file_type().is_block_device() {
        return Ok(None);
    }
    bandsaw_darwin::disk_len(file.as_fd()).map(Some)
}

/// Returns the path to open for a disk: of its two devices the one that takes requests of any size.
pub(crate) fn disk_path(path: &Path) -> Cow<'_, Path> {
    match path.to_str().and_then(macos_rules::block_device) {
        Some(block_device) => Cow::Owned(block_device.into()),
        None => Cow::Borrowed(path),
    }
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
    let mode = Mode::RUSR | Mode::WUSR;
    let opened = macos_rules::open_clone(
        || rustix::fs::openat(folder, name, flags, Mode::empty()),
        || rustix::fs::chmodat(folder, name, mode, AtFlags::SYMLINK_NOFOLLOW),
        || {
            // Best effort: the caller gets the error of opening it.
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        },
    );
    Ok(Some(File::from(opened?)))
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
