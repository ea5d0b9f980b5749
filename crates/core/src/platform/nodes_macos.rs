//! macOS. Written from its manual pages; never run there.

use std::borrow::Cow;
use std::ffi::CStr;
use std::fs::{File, FileTimes};
use std::io;
use std::os::darwin::fs::FileTimesExt;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Mode, Stat};

use super::{HostNode, HostTime, moment};
use crate::platform::macos_rules;

/// Returns the metadata of a node within a folder; of a symbolic link itself.
pub fn node_at(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<HostNode> {
    Ok(node(&rustix::fs::statat(
        folder,
        name,
        AtFlags::SYMLINK_NOFOLLOW,
    )?))
}

/// Returns the metadata of an open node.
pub fn node_of(open: impl AsFd) -> io::Result<HostNode> {
    Ok(node(&rustix::fs::fstat(open)?))
}

fn node(stat: &Stat) -> HostNode {
    let nanos = |nanos: i64| u32::try_from(nanos).unwrap_or(0);
    HostNode {
        kind: FileType::from_raw_mode(stat.st_mode),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        flags: stat.st_flags,
        links: u64::from(stat.st_nlink),
        identity: (u64::from(stat.st_dev.cast_unsigned()), stat.st_ino),
        size: stat.st_size.try_into().unwrap_or(0),
        special: u64::from(stat.st_rdev.cast_unsigned()),
        created: Some((stat.st_birthtime, nanos(stat.st_birthtime_nsec))),
        modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
        changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
        accessed: (stat.st_atime, nanos(stat.st_atime_nsec)),
    }
}

/// Returns macOS's name of an extended attribute.
pub fn xattr_to_mac(host_name: &str) -> Option<&str> {
    Some(host_name)
}

/// Returns the host's name of a macOS extended attribute.
pub fn xattr_from_mac(mac_name: &str) -> Cow<'_, str> {
    Cow::Borrowed(mac_name)
}

/// Converts a device number of the host to macOS's encoding.
pub fn device_to_mac(special: u64) -> Option<u32> {
    u32::try_from(special).ok()
}

/// Converts a device number of macOS to the host's encoding.
pub fn device_from_mac(device: u32) -> u64 {
    u64::from(device)
}

/// Refuses to create a FIFO, a socket or a device node; there is no safe binding for it.
pub fn make_special(
    _folder: BorrowedFd<'_>,
    _name: &str,
    _kind: FileType,
    _mode: Mode,
    _special: u64,
) -> rustix::io::Result<()> {
    Err(rustix::io::Errno::OPNOTSUPP)
}

/// Maximum length of the value of an extended attribute that is read into memory; HFS+ and APFS
/// allow more.
pub const MAX_XATTR: u64 = 1 << 30;

/// Sets the creation date of an open node. After the date of modification: an earlier one of those
/// moves it.
pub fn set_created(node: BorrowedFd<'_>, created: HostTime) -> io::Result<()> {
    let Some(created) = moment(created) else {
        return Ok(());
    };
    File::from(node.try_clone_to_owned()?).set_times(FileTimes::new().set_created(created))
}

/// Sets those BSD flags of an open node that its owner may choose. Last: a locked file is not changed
/// any more.
pub fn set_flags(node: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    match macos_rules::copied_flags(flags) {
        0 => Ok(()),
        flags => bandsaw_darwin::set_flags(node, flags),
    }
}
