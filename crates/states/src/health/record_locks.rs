//! Record locks of other programs on the files of a bundle, as the kernel of Linux lists them.
//!
//! netatalk locks a byte far behind the end of each file that a client has open, in one of the places of
//! [`SHARE_MODES`]; Samba and the servers of NFS pass the locks of their clients on. Source of the places:
//! `adouble.h` of netatalk 2.2 to 4, and `fruit:locking` of vfs_fruit(8).

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

/// The bytes that netatalk locks for the share modes of an open file.
const SHARE_MODES: RangeInclusive<u64> = 0x7fff_ffff_ffff_fff6..=0x7fff_ffff_ffff_ffff;

/// The record locks on the files of a file system. None are known on hosts that do not list locks.
pub(super) struct RecordLocks(Vec<RecordLock>);

impl RecordLocks {
    /// Reads those on the file system of `path`.
    pub(super) fn on_file_system_of(path: &Path) -> Self {
        let listed = fs::read_to_string("/proc/locks").unwrap_or_default();
        let mut locks: Vec<_> = listed.lines().filter_map(RecordLock::parse).collect();
        if !locks.is_empty() {
            let devices = devices(path);
            locks.retain(|lock| devices.contains(&lock.device));
        }
        Self(locks)
    }

    /// Returns the numbers of the files.
    pub(super) fn inodes(&self) -> BTreeSet<u64> {
        self.0.iter().map(|lock| lock.inode).collect()
    }

    /// Returns a description of the first lock on one of these files, if there is one.
    pub(super) fn describe(&self, inodes: &BTreeSet<u64>) -> Option<String> {
        let lock = self.0.iter().find(|lock| inodes.contains(&lock.inode))?;
        let program = fs::read_to_string(format!("/proc/{}/comm", lock.process));
        let program =
            program.map_or_else(|_| String::new(), |name| format!(" ({})", name.trim_end()));
        let how = match SHARE_MODES.contains(&lock.start) {
            true => "open through a file server: process",
            false => "a file is locked by process",
        };
        Some(format!("{how} {}{program}", lock.process))
    }
}

/// Returns the numbers of the file system of `path`: as stat(2) tells, and as the kernel knows it, which
/// are not the same on btrfs.
fn devices(path: &Path) -> Vec<(u32, u32)> {
    let mut devices = Vec::new();
    if let Ok(stat) = rustix::fs::stat(path) {
        let device = stat.st_dev;
        devices.push((rustix::fs::major(device), rustix::fs::minor(device)));
    }
    let Ok(real) = fs::canonicalize(path) else {
        return devices;
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounts.lines().filter_map(mount_in);
    let of_path = mounts.filter(|(folder, _)| real.starts_with(folder));
    let innermost = of_path.max_by_key(|(folder, _)| folder.len());
    devices.extend(innermost.map(|(_, device)| device));
    devices
}

/// Returns the folder and the numbers of the device in a line of `/proc/self/mountinfo`: `36 35 98:0 /mnt1
/// /mnt2 rw,noatime - ext3 /dev/root rw`.
fn mount_in(line: &str) -> Option<(String, (u32, u32))> {
    let mut fields = line.split(' ').skip(2);
    let (major, minor) = fields.next()?.split_once(':')?;
    let folder = fields.nth(1)?.replace("\\040", " ");
    Some((folder, (major.parse().ok()?, minor.parse().ok()?)))
}

/// A lock on a range of a file.
#[derive(Debug, PartialEq, Eq)]
struct RecordLock {
    process: i32,
    /// Numbers of the file system.
    device: (u32, u32),
    inode: u64,
    /// The first byte of the range.
    start: u64,
}

impl RecordLock {
    /// Parses a line of `/proc/locks`: `1: POSIX  ADVISORY  WRITE 708 08:01:131 0 EOF`. Returns `None` for
    /// locks of whole files, and for those that are waited for.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX" | "OFDLCK", _, _, process, place, start, ..] = fields[..] else {
            return None;
        };
        let mut place = place.split(':');
        let mut number = || u32::from_str_radix(place.next()?, 16).ok();
        let device = (number()?, number()?);
        Some(Self {
            process: process.parse().ok()?,
            device,
            inode: place.next()?.parse().ok()?,
            start: start.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_parsed() {
        let line = "1: POSIX  ADVISORY  READ 708 fe:10:131 9223372036854775799 9223372036854775799";
        let lock = RecordLock::parse(line).unwrap();
        assert_eq!(
            (lock.process, lock.device, lock.inode),
            (708, (254, 16), 131)
        );
        assert!(SHARE_MODES.contains(&lock.start));
        let line = "2: OFDLCK ADVISORY  WRITE -1 00:1f:7 0 EOF";
        let lock = RecordLock::parse(line).unwrap();
        assert_eq!((lock.process, lock.device), (-1, (0, 31)));
        assert!(!SHARE_MODES.contains(&lock.start));
        for line in [
            "",
            "3: FLOCK  ADVISORY  WRITE 708 08:01:131 0 EOF",
            "1: -> POSIX  ADVISORY  WRITE 709 08:01:131 0 EOF",
            "4: POSIX  ADVISORY  WRITE 708 08:131 0 EOF",
            "4: POSIX  ADVISORY  WRITE x 08:01:131 0 EOF",
            "4: POSIX  ADVISORY  WRITE 1 08:01:131",
        ] {
            assert_eq!(RecordLock::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_mount_has_its_device() {
        let line = r"36 35 98:1 / /mnt/my\040disk rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(mount_in(line), Some(("/mnt/my disk".to_owned(), (98, 1))));
        assert_eq!(mount_in("36 35"), None);
    }
}
