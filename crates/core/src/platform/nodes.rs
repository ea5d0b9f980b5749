//! Files, folders and special nodes of the host: their metadata, extended attributes and device
//! numbers.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

#[cfg(target_os = "linux")]
#[path = "nodes_linux.rs"]
mod host;
#[cfg(target_os = "macos")]
#[path = "nodes_macos.rs"]
mod host;

pub use host::{
    MAX_XATTR, device_from_mac, device_to_mac, make_special, node_at, node_of, set_created,
    set_flags, xattr_from_mac, xattr_to_mac,
};

/// A time in seconds and nanoseconds since 1970.
pub type HostTime = (i64, u32);

/// Returns a time as the standard library has it; `None` if it cannot.
#[cfg(any(target_os = "macos", test))]
fn moment((seconds, nanos): HostTime) -> Option<std::time::SystemTime> {
    let whole = std::time::Duration::from_secs(seconds.unsigned_abs());
    let epoch = std::time::UNIX_EPOCH;
    let at = match seconds {
        0.. => epoch.checked_add(whole),
        _ => epoch.checked_sub(whole),
    };
    at?.checked_add(std::time::Duration::from_nanos(nanos.into()))
}

/// The host's metadata of a node.
#[derive(Debug, Clone, Copy)]
pub struct HostNode {
    /// File, folder, symbolic link or special file.
    pub kind: FileType,
    /// Permission bits, `0o7777`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// BSD flags; 0 on hosts without them.
    pub flags: u32,
    /// Number of names.
    pub links: u64,
    /// Device and inode: the same for all names of one node.
    pub identity: (u64, u64),
    /// Length in bytes.
    pub size: u64,
    /// The number of a device node, in the host's encoding.
    pub special: u64,
    /// Creation, if the host reports it.
    pub created: Option<HostTime>,
    /// Last change of the contents.
    pub modified: HostTime,
    /// Last change of contents or metadata.
    pub changed: HostTime,
    /// Last access.
    pub accessed: HostTime,
}

/// Opens a folder within a folder, never through a symbolic link.
pub fn open_folder(folder: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?)
}

/// Opens a file within a folder for reading, never through a symbolic link and never waiting for
/// the writer of a FIFO.
pub fn open_file(folder: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?)
}

/// Returns the extended attributes of an open node under their macOS names, sorted by those names.
/// Attributes specific to the host (security labels, access lists) are omitted; empty on file
/// systems without extended attributes.
pub fn xattrs(node: BorrowedFd<'_>) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for name in xattr_list(node)?
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let host_name = std::str::from_utf8(name)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the name is not UTF-8"))?;
        if let Some(mac_name) = xattr_to_mac(host_name) {
            found.push((mac_name.to_owned(), xattr_value(node, host_name)?));
        }
    }
    found.sort();
    Ok(found)
}

/// Sets an extended attribute of an open node by its macOS name.
pub fn set_xattr(node: BorrowedFd<'_>, mac_name: &str, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(
        node,
        &*xattr_from_mac(mac_name),
        value,
        rustix::fs::XattrFlags::empty(),
    )?)
}

fn xattr_list(node: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut small = [0_u8; 256];
    match rustix::fs::flistxattr(node, &mut small) {
        Ok(length) => return Ok(small[..length].to_vec()),
        Err(rustix::io::Errno::RANGE) => {}
        Err(error) if super::host::is_unsupported(error) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    read_value(
        || rustix::fs::flistxattr_query(node),
        |buf| rustix::fs::flistxattr(node, buf),
    )
}

fn xattr_value(node: BorrowedFd<'_>, host_name: &str) -> io::Result<Vec<u8>> {
    read_value(
        || rustix::fs::fgetxattr_query(node, host_name),
        |buf| rustix::fs::fgetxattr(node, host_name, buf),
    )
}

/// Reads a value whose length `query_len` returns. A buffer that is too small is an error,
/// but macOS fills it with the beginning of a resource fork: so the buffer is a byte larger than the
/// length, and what fills it has grown meanwhile.
fn read_value(
    mut query_len: impl FnMut() -> rustix::io::Result<usize>,
    mut read: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> io::Result<Vec<u8>> {
    const MAX_LIST_LEN: usize = 1 << 30;
    loop {
        let length = query_len()?;
        if length > MAX_LIST_LEN {
            let what = format!("the value has {length} bytes: the maximum is {MAX_LIST_LEN}");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        let mut buf = vec![0; length + 1];
        match read(&mut buf) {
            Ok(length) if length < buf.len() => {
                buf.truncate(length);
                return Ok(buf);
            }
            Ok(_) | Err(rustix::io::Errno::RANGE) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Encodes a device number as macOS does: 8 bits of major, 24 of minor; `None` if it does not fit.
pub fn mac_device(major: u32, minor: u32) -> Option<u32> {
    (major < 1 << 8 && minor < 1 << 24).then_some(major << 24 | minor)
}

/// Creates an unnamed file in `folder`, which only this user can open, and which is removed when it is
/// closed.
pub fn unlinked_file(folder: &Path) -> io::Result<File> {
    let unique = uuid::Uuid::new_v4();
    let path = folder.join(format!(".bandsaw-{unique}"));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

/// Converts a name for a system call.
pub fn c_name(name: &[u8]) -> io::Result<std::ffi::CString> {
    std::ffi::CString::new(name)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the name has a NUL byte"))
}

/// Returns true for `.` and `..`.
pub fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// Reads an attribute as the host does: `cuts` as macOS a resource fork, else as other attributes.
    fn attribute(value: &[u8], cuts: bool, buf: &mut [u8]) -> rustix::io::Result<usize> {
        if buf.len() < value.len() && !cuts {
            return Err(Errno::RANGE);
        }
        let length = value.len().min(buf.len());
        buf[..length].copy_from_slice(&value[..length]);
        Ok(length)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn attributes_of_a_file_are_read_as_they_were_set() {
        // On the disk of the build: it has attributes.
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut expected = Vec::new();
        for length in [0, 1, 1000] {
            let (name, value) = (format!("length of {length} bytes"), vec![7; length]);
            set_xattr(file.as_fd(), &name, &value).unwrap();
            expected.push((name, value));
        }
        // More names than the first buffer holds.
        for number in 10..20 {
            let name = format!("{number}{}", "n".repeat(30));
            set_xattr(file.as_fd(), &name, b"value").unwrap();
            expected.push((name, b"value".to_vec()));
        }
        expected.sort();
        assert!(xattrs(file.as_fd()).unwrap() == expected);
    }

    #[test]
    fn dates_before_1970_are_moments() {
        let file = tempfile::tempfile().unwrap();
        for date in [(0, 0), (1_700_000_000, 5), (-2_082_844_800, 999_999_999)] {
            file.set_modified(moment(date).unwrap()).unwrap();
            assert_eq!(node_of(&file).unwrap().modified, date);
        }
        assert_eq!(moment((i64::MAX, 1_000_000_000)), None);
    }

    #[test]
    fn an_attribute_is_read_to_its_end() {
        let value: Vec<u8> = (0..300_000_u32).map(|at| at as u8).collect();
        for (cuts, length) in [(true, 300_000), (true, 65_536), (true, 0), (false, 300_000)] {
            let value = &value[..length];
            let read = read_value(|| Ok(length), |buf| attribute(value, cuts, buf)).unwrap();
            assert!(read == value, "{cuts} {length}: {}", read.len());
        }
    }

    #[test]
    fn an_attribute_that_grows_meanwhile_is_read_again() {
        let value: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        for cuts in [true, false] {
            let mut lengths = [1000, value.len()].into_iter();
            let read = read_value(
                || Ok(lengths.next().unwrap()),
                |buf| attribute(&value, cuts, buf),
            );
            assert!(read.unwrap() == value);
            assert_eq!(lengths.next(), None, "it is asked twice");
        }
        let long = read_value(|| Ok(usize::MAX), |_| unreachable!("nothing is read"));
        assert_eq!(long.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(read_value(|| Err(Errno::IO), |_| Ok(0)).is_err());
    }
}
