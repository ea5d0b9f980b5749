//! Atomic replacement of a file: written under a temporary name, then renamed.

use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, FileType, Mode, RenameFlags};
use rustix::io::Errno;

use crate::platform;
use crate::store::Put;

/// Prefix of the names of unfinished files. Those left by a crash are not listed.
pub(super) const UNFINISHED: &str = ".bandsaw-new-";

/// Copies the mode of the file that `new` will replace, if there is one.
pub(super) fn keep_mode(folder: &File, last: &str, new: &File) -> io::Result<()> {
    match rustix::fs::statat(folder, last, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(old) if FileType::from_raw_mode(old.st_mode) == FileType::RegularFile => Ok(
            rustix::fs::fchmod(new, Mode::from_raw_mode(old.st_mode & 0o777))?,
        ),
        _ => Ok(()),
    }
}

/// Returns an unused name in `folder`.
pub(super) fn unfinished_name(folder: &File) -> io::Result<String> {
    loop {
        let name = format!("{UNFINISHED}{}", platform::own_suffix());
        match rustix::fs::statat(folder, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(name),
            Ok(_) => {} // left by a crash of a process with our number
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Renames a finished file to its final name. `false`: the name is taken and must not be replaced.
pub(super) fn move_new(folder: &File, new: &str, to: &str, cond: Put) -> io::Result<bool> {
    let moved = match cond {
        Put::Replace => rustix::fs::renameat(folder, new, folder, to),
        Put::IfAbsent => {
            match rustix::fs::renameat_with(folder, new, folder, to, RenameFlags::NOREPLACE) {
                // Old kernels and some file systems lack the flag; a hard link never replaces
                // either.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                    rustix::fs::linkat(folder, new, folder, to, AtFlags::empty())
                        .and_then(|()| rustix::fs::unlinkat(folder, new, AtFlags::empty()))
                }
                moved => moved,
            }
        }
    };
    match moved {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) if cond == Put::IfAbsent => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
