//! Files of an interrupted export, for one that resumes it.
//!
//! A file is written under the name of its object in the volume, `.bandsaw-part-ID`, and gets its own
//! name when its contents and attributes are complete. A file of its own name is therefore never an
//! incomplete one of ours.

use std::fs::File;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, RenameFlags, Stat};
use rustix::io::Errno;

use super::{BUFFER, LAYER};
use crate::fs::{Attributes, NodeId};
use crate::{Error, Result};

/// Returns the name of the file that receives the contents of an object.
pub(super) fn part_name(id: NodeId) -> String {
    format!(".bandsaw-part-{:x}", id.0)
}

/// Removes the incomplete file of an interrupted run.
pub(super) fn remove_part(folder: BorrowedFd<'_>, part: &str) -> Result<()> {
    match rustix::fs::unlinkat(folder, part, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed("remove an incomplete file")(errno)),
    }
}

/// Returns true if `name` is a file of this length and modification time. Fails if there is another
/// entry of that name.
pub(super) fn is_file(
    folder: BorrowedFd<'_>,
    name: &str,
    attributes: &Attributes,
    len: u64,
) -> Result<bool> {
    let Some(found) = stat(folder, name)? else {
        return Ok(false);
    };
    let same_len = u64::try_from(found.st_size) == Ok(len);
    // The host may have no fractions of a second.
    let same_time = attributes
        .modified
        .is_none_or(|modified| modified.seconds == found.st_mtime);
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    match is_file && same_len && same_time {
        true => Ok(true),
        false => Err(differs()),
    }
}

/// Returns true if `name` is a symbolic link to `target`. Fails if there is another entry of that
/// name.
pub(super) fn is_symlink(folder: BorrowedFd<'_>, name: &str, target: &str) -> Result<bool> {
    let Some(found) = stat(folder, name)? else {
        return Ok(false);
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
        return Err(differs());
    }
    let there =
        rustix::fs::readlinkat(folder, name, Vec::new()).map_err(failed("read symbolic link"))?;
    match there.as_bytes() == target.as_bytes() {
        true => Ok(true),
        false => Err(differs()),
    }
}

/// Gives a complete file of `len` bytes its own name: `names` are the old and the new one. An
/// existing entry is never replaced.
pub(super) fn publish(
    folder: BorrowedFd<'_>,
    file: &File,
    len: u64,
    (part, name): (&str, &str),
) -> Result<()> {
    // The length of a large file was set before its contents were written, so after a power failure
    // it would look complete.
    if len > BUFFER as u64 {
        file.sync_data()
            .map_err(|source| Error::io(LAYER, "flush", source))?;
    }
    let flags = RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(folder, part, folder, name, flags) {
        Ok(()) => return Ok(()),
        Err(Errno::EXIST) => return Err(differs()),
        // Not every file system of the host can do that.
        Err(_) => {}
    }
    match rustix::fs::linkat(folder, part, folder, name, AtFlags::empty()) {
        Ok(()) => rustix::fs::unlinkat(folder, part, AtFlags::empty()).map_err(failed("rename")),
        Err(Errno::EXIST) => Err(differs()),
        // Not every file system of the host has hard links.
        Err(_) if stat(folder, name)?.is_none() => {
            rustix::fs::renameat(folder, part, folder, name).map_err(failed("rename"))
        }
        Err(_) => Err(differs()),
    }
}

fn stat(folder: BorrowedFd<'_>, name: &str) -> Result<Option<Stat>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed("read metadata")(errno)),
    }
}

fn differs() -> Error {
    Error::conflict(LAYER, "already exists, and differs")
}

/// Returns the error of a system call on an entry of the target.
pub(super) fn failed(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| match errno {
        Errno::EXIST => Error::conflict(LAYER, "already exists"),
        errno => Error::io(LAYER, doing, errno),
    }
}
