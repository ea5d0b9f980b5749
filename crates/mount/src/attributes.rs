//! Attributes of an object, in the kernel's form.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bandsaw::fs::{Attributes, FileKind, NodeId, Timestamp};
use fuser::{FileAttr, FileType, INodeNo};

/// The user and group "unknown" of macOS: each user sees itself as the owner.
const UNKNOWN: u32 = 99;

/// Presentation of objects: inode numbers, owners and modes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// The root folder, inode 1 of FUSE.
    pub(crate) root: NodeId,
    /// User and group of the mounting process.
    pub(crate) mounter: (u32, u32),
    /// Owner and group of everything, if overridden.
    pub(crate) owner: (Option<u32>, Option<u32>),
    /// Permission bits that are cleared in every mode.
    pub(crate) umask: u16,
    /// Preferred I/O size in bytes.
    pub(crate) block_size: u32,
}

impl View {
    /// Returns the inode number of an object.
    pub(crate) fn ino(&self, node: NodeId) -> INodeNo {
        if node == self.root {
            INodeNo::ROOT
        } else {
            INodeNo(node.0)
        }
    }

    /// Returns the object of an inode number.
    pub(crate) fn node(&self, ino: INodeNo) -> NodeId {
        if ino == INodeNo::ROOT {
            self.root
        } else {
            NodeId(ino.0)
        }
    }

    /// Converts all attributes of an object.
    pub(crate) fn attr(&self, of: &Attributes) -> FileAttr {
        let date = |date: Option<Timestamp>| date.map_or(UNIX_EPOCH, system_time);
        let modified = date(of.modified);
        let shown = |id: u32, mounter: u32, over: Option<u32>| {
            over.unwrap_or(if id == UNKNOWN { mounter } else { id })
        };
        FileAttr {
            ino: self.ino(of.id),
            size: of.size,
            blocks: of.allocated.div_ceil(512),
            atime: of.accessed.map_or(modified, system_time),
            mtime: modified,
            ctime: of.changed.map_or(modified, system_time),
            crtime: date(of.created),
            kind: file_type(of.kind),
            perm: of.mode & !self.umask,
            nlink: of.links,
            uid: shown(of.uid, self.mounter.0, self.owner.0),
            gid: shown(of.gid, self.mounter.1, self.owner.1),
            rdev: linux_device(of.device),
            blksize: self.block_size,
            flags: 0,
        }
    }
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Folder => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    whole
        .and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanos.into())))
        .unwrap_or(UNIX_EPOCH)
}

/// Converts macOS's device number, with the major number in the top 8 bits, to FUSE's encoding of
/// Linux's: minor, major, minor.
fn linux_device(device: u32) -> u32 {
    let (major, minor) = (device >> 24, device & 0xff_ffff);
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// Converts Linux's device number to macOS's; `None` if it does not fit.
pub(crate) fn mac_device(device: u32) -> Option<u32> {
    let (major, minor) = (
        (device >> 8) & 0xfff,
        device & 0xff | (device >> 12) & 0xf_ff00,
    );
    (major < 0x100).then_some(major << 24 | minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_devices_come_back() {
        for time in [0, 1, -1, 2_000_000_000, -2_000_000_000] {
            for nanos in [0, 1, 999_999_999] {
                let time = Timestamp {
                    seconds: time,
                    nanos,
                };
                assert_eq!(Timestamp::from(system_time(time)), time);
            }
        }
        // makedev(8, 1), and a minor number above 255.
        assert_eq!(mac_device(0x801), Some(0x0800_0001));
        for device in [0x801, 0x0010_0801, 0xff_u32 << 8] {
            assert_eq!(linux_device(mac_device(device).unwrap()), device);
        }
        assert_eq!(mac_device(0x100 << 8), None);
    }
}
