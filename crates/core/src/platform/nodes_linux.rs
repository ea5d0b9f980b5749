//! Linux.

use std::borrow::Cow;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Mode, Statx, StatxFlags, StatxTimestamp};

use super::{HostNode, HostTime};

/// Returns the metadata of a node within a folder; of a symbolic link itself.
pub fn node_at(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<HostNode> {
    let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(node(&rustix::fs::statx(
        folder,
        name,
        AtFlags::SYMLINK_NOFOLLOW,
        flags,
    )?))
}

/// Returns the metadata of an open node.
pub fn node_of(open: impl AsFd) -> io::Result<HostNode> {
    let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(node(&rustix::fs::statx(
        open,
        c"",
        AtFlags::EMPTY_PATH,
        flags,
    )?))
}

fn node(stat: &Statx) -> HostNode {
    let moment = |time: StatxTimestamp| -> HostTime { (time.tv_sec, time.tv_nsec) };
    let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    HostNode {
        kind: FileType::from_raw_mode(u32::from(stat.stx_mode)),
        mode: stat.stx_mode & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        flags: 0,
        links: u64::from(stat.stx_nlink),
        identity: (
            rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            stat.stx_ino,
        ),
        size: stat.stx_size,
        special: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
        created: has_birth.then(|| moment(stat.stx_btime)),
        modified: moment(stat.stx_mtime),
        changed: moment(stat.stx_ctime),
        accessed: moment(stat.stx_atime),
    }
}

/// The prefix of names that programs may choose freely on Linux; macOS has no such prefix.
const PREFIX: &str = "user.";

/// Returns macOS's name of an extended attribute; `None` for those specific to the host.
pub fn xattr_to_mac(host_name: &str) -> Option<&str> {
    host_name
        .strip_prefix(PREFIX)
        .filter(|name| !name.is_empty())
}

/// Returns the host's name of a macOS extended attribute.
pub fn xattr_from_mac(mac_name: &str) -> Cow<'_, str> {
    Cow::Owned(format!("{PREFIX}{mac_name}"))
}

/// Encodes a device number as macOS does: 8 bits of major, 24 of minor; `None` if it does not fit.
pub fn device_to_mac(special: u64) -> Option<u32> {
    super::mac_device(rustix::fs::major(special), rustix::fs::minor(special))
}

/// Converts a device number of macOS to the host's encoding.
pub fn device_from_mac(device: u32) -> u64 {
    rustix::fs::makedev(device >> 24, device & 0xFF_FFFF)
}

/// Creates a FIFO, a socket or a device node.
pub fn make_special(
    folder: BorrowedFd<'_>,
    name: &str,
    kind: FileType,
    mode: Mode,
    special: u64,
) -> rustix::io::Result<()> {
    rustix::fs::mknodat(folder, name, kind, mode, special)
}

/// Maximum length of the value of an extended attribute that the kernel accepts.
pub const MAX_XATTR: u64 = 64 << 10;

/// Does nothing: Linux has no call that sets the creation date.
pub fn set_created(_node: BorrowedFd<'_>, _created: HostTime) -> io::Result<()> {
    Ok(())
}

/// Does nothing: Linux has no BSD flags.
pub fn set_flags(_node: BorrowedFd<'_>, _flags: u32) -> io::Result<()> {
    Ok(())
}
