//! Linux.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::Mount;

/// True: the kernel's file systems report holes as they are.
pub(super) const REPORTS_HOLES: bool = true;

/// Returns true if the file system does not support a call.
pub(super) fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS)
}

/// Makes the contents and length of a file durable.
pub(crate) fn make_durable(file: &File) -> io::Result<()> {
    // fdatasync suffices: it also writes the length and the block map, which are needed to read the
    // data back.
    file.sync_data()
}

/// Makes the names in a folder durable.
pub(crate) fn make_names_durable(folder: &File) -> io::Result<()> {
    // Not fdatasync: ext4 may omit a new name that fits into the folder's blocks.
    folder.sync_all()
}

/// Frees the storage behind a range, which then reads as zeros. `false`: not supported by this host
/// or file system.
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<bool> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    loop {
        match rustix::fs::fallocate(file, mode, offset, len) {
            Ok(()) => return Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Magic numbers, as in statfs(2), of file systems that cannot, or mostly cannot, punch holes: FAT,
/// exFAT, three of SMB, NFS, 9P, HFS+, ramfs and FUSE.
const WHOLE_FILES: [i128; 10] = [
    0x4d44,
    0x2011_bab0,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6969,
    0x0102_1997,
    0x482b,
    0x8584_58f6,
    0x6573_5546,
];

/// Magic numbers of SMB, as in statfs(2).
const SMB: [i128; 3] = [0x517b, 0xff53_4d42, 0xfe53_4d42];

/// Returns true if the file server of an open, writable file has lost its state, including locks,
/// after a restart. Always false on local file systems.
pub(crate) fn is_forgotten(file: &File) -> bool {
    let on_smb = rustix::fs::fstatfs(file)
        .is_ok_and(|of| SMB.contains(&(i128::from(of.f_type) & 0xffff_ffff)));
    // Sends a request with the server's handle, even if there is nothing to flush.
    on_smb && file.sync_all().is_err()
}

/// Returns true if the file system of `folder` can punch holes, by trying it on a temporary file
/// there; true if no file can be created. Without `named` the file has no name; if the file system
/// does not support unnamed files, its type decides.
pub fn can_punch_in(folder: &Path, named: bool) -> bool {
    let unnamed = rustix::fs::open(
        folder,
        OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    );
    match unnamed {
        Ok(file) => frees_parts(&File::from(file)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) if named => {
            let name = folder.join(format!(".bandsaw-punch-{}", std::process::id()));
            let Ok(file) = File::options().create_new(true).write(true).open(&name) else {
                return true;
            };
            let frees = frees_parts(&file);
            drop(file); // some hosts keep the names of open files
            let _ = fs::remove_file(&name);
            frees
        }
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
            rustix::fs::statfs(folder).map_or(true, |of| {
                !WHOLE_FILES.contains(&(i128::from(of.f_type) & 0xffff_ffff))
            })
        }
        Err(_) => true,
    }
}

/// Returns true if a hole over all of an empty file leaves it without storage: some hosts write
/// zeros instead.
fn frees_parts(file: &File) -> bool {
    const LEN: u64 = 256 << 10;
    let punched = file
        .write_all_at(&vec![0xA5; crate::size::to_usize(LEN)], 0)
        .and_then(|()| punch_hole(file, 0, LEN));
    match punched {
        Ok(true) => file
            .metadata()
            .map_or(true, |meta| meta.blocks() * 512 < LEN / 2),
        Ok(false) => false,
        Err(_) => true,
    }
}

/// Returns the length of a disk in bytes; `None` for other files.
pub(crate) fn disk_len(file: &File) -> io::Result<Option<u64>> {
    if !file.metadata()?.file_type().is_block_device() {
        return Ok(None);
    }
    Ok(Some(rustix::fs::seek(file, SeekFrom::End(0))?))
}

/// Returns the path to open for a disk.
pub(crate) fn disk_path(path: &Path) -> Cow<'_, Path> {
    Cow::Borrowed(path)
}

/// Creates `name` as a file that shares the storage of `from` until either is written. `None`: not
/// supported by the file system.
pub(crate) fn clone_file(
    from: &File,
    folder: BorrowedFd<'_>,
    name: &str,
) -> io::Result<Option<File>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let to = File::from(rustix::fs::openat(
        folder,
        name,
        flags,
        Mode::from_raw_mode(0o600),
    )?);
    // The errors that mean "unsupported" differ by file system; the fallback of copying the bytes
    // reports the real ones.
    if rustix::fs::ioctl_ficlone(&to, from).is_ok() {
        return Ok(Some(to));
    }
    rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
    Ok(None)
}

/// Copies up to `len` bytes between the same offsets of two files inside the kernel; returns the
/// number of bytes copied.
pub(crate) fn copy_range(from: &File, to: &File, offset: u64, len: u64) -> io::Result<u64> {
    let (mut here, mut there) = (offset, offset);
    let most = usize::try_from(len).unwrap_or(usize::MAX).min(1 << 30);
    Ok(rustix::fs::copy_file_range(from, Some(&mut here), to, Some(&mut there), most)? as u64)
}

/// Returns the process that holds the lock of a file, if the kernel shows it.
pub(crate) fn lock_holder(file: &File) -> Option<String> {
    let meta = file.metadata().ok()?;
    let device = meta.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let process = locks.lines().find_map(|line| holder_in(line, &place))?;
    if process == std::process::id() {
        return Some("this process".to_owned());
    }
    match fs::read_to_string(format!("/proc/{process}/comm")) {
        Ok(name) => Some(format!("process {process} ({})", name.trim_end())),
        Err(_) => Some(format!("process {process}")),
    }
}

/// Returns the process in a line of `/proc/locks` (`1: FLOCK ADVISORY WRITE 708 08:01:131 0 EOF`)
/// that is about `place`.
fn holder_in(line: &str, place: &str) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    match fields[..] {
        [_, "FLOCK", _, _, process, at, ..] if at == place => process.parse().ok(),
        _ => None,
    }
}

pub(super) fn on_battery() -> Option<bool> {
    on_battery_by(Path::new("/sys/class/power_supply"))
}

/// Returns true if the machine runs on its battery: an online mains or USB supply decides,
/// otherwise a discharging system battery.
fn on_battery_by(folder: &Path) -> Option<bool> {
    let mut emptying = false;
    for supply in fs::read_dir(folder).ok()?.flatten() {
        let read = |name: &str| fs::read_to_string(supply.path().join(name)).unwrap_or_default();
        let is = |name: &str, value: &str| read(name).trim_end() == value;
        if is("scope", "Device") {
            continue; // a mouse, not the machine
        }
        if is("type", "Battery") {
            emptying |= is("status", "Discharging");
        } else if is("online", "1") {
            return Some(false);
        }
    }
    Some(emptying)
}

pub(super) fn mounts() -> io::Result<Vec<Mount>> {
    Ok(fs::read("/proc/self/mountinfo")?
        .split(|byte| *byte == b'\n')
        .filter_map(mount_in)
        .collect())
}

/// Parses one line of `/proc/self/mountinfo`: `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3
/// /dev/root rw`.
fn mount_in(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let path = fields.by_ref().nth(4)?;
    fields.by_ref().find(|field| *field == b"-")?;
    let (kind, source) = (fields.next()?, fields.next()?);
    let text = |bytes| String::from_utf8_lossy(&unescape(bytes)).into_owned();
    Some(Mount {
        path: PathBuf::from(std::ffi::OsString::from_vec(unescape(path))),
        source: text(source),
        kind: text(kind),
    })
}

/// Decodes the kernel's `\040` escapes of blanks, tabs, line ends and backslashes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let octal = tail
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) => {
                out.push(value);
                rest = &tail[3..];
            }
            None => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_for_holes_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create_new(folder.path().join("file")).unwrap();
        let can = frees_parts(&file);
        assert_eq!(can_punch_in(folder.path(), true), can);
        can_punch_in(folder.path(), false);
        let names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["file"]);
        assert!(
            can_punch_in(&folder.path().join("absent"), true),
            "nothing says that it cannot"
        );
    }

    #[test]
    fn a_lock_names_its_holder() {
        let line = "17: FLOCK  ADVISORY  WRITE 708 08:01:131 0 EOF";
        assert_eq!(holder_in(line, "08:01:131"), Some(708));
        assert_eq!(holder_in(line, "08:01:13"), None);
        assert_eq!(
            holder_in("2: POSIX  ADVISORY  WRITE 708 08:01:131 0 EOF", "08:01:131"),
            None
        );
    }

    #[test]
    fn mount_lines_are_unescaped() {
        let mount = mount_in(
            br"36 35 98:0 / /mnt/my\040disk rw,noatime shared:1 master:2 - ext4 /dev/sd\134a rw",
        )
        .unwrap();
        let expected = Mount {
            path: "/mnt/my disk".into(),
            source: r"/dev/sd\a".into(),
            kind: "ext4".into(),
        };
        assert_eq!(mount, expected);
        assert_eq!(mount_in(b""), None);
    }

    #[test]
    fn batteries_of_peripherals_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let supply = |name: &str, facts: &[(&str, &str)]| {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            facts
                .iter()
                .for_each(|(key, value)| fs::write(path.join(key), format!("{value}\n")).unwrap());
        };
        assert_eq!(on_battery_by(&folder.path().join("absent")), None);
        assert_eq!(on_battery_by(folder.path()), Some(false));
        supply(
            "mouse",
            &[
                ("type", "Battery"),
                ("status", "Discharging"),
                ("scope", "Device"),
            ],
        );
        assert_eq!(on_battery_by(folder.path()), Some(false));
        supply("BAT0", &[("type", "Battery"), ("status", "Discharging")]);
        assert_eq!(on_battery_by(folder.path()), Some(true));
        supply("AC", &[("type", "Mains"), ("online", "1")]);
        assert_eq!(on_battery_by(folder.path()), Some(false));
    }
}
