//! Mounts of this host, and unmounting.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bandsaw::{Error, Kind, Result};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::{LAYER, SUBTYPE};

/// The FUSE device, through which the kernel talks to user-space file systems.
pub(crate) const FUSE: &str = "/dev/fuse";

/// Returns true if this user has no permission to open it.
pub(crate) fn refuses_fuse() -> bool {
    let opened = fs::File::options().read(true).write(true).open(FUSE);
    opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// A mounted file system, as listed by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    /// Mount point.
    pub path: PathBuf,
    /// File system type: `fuse.bandsaw`.
    pub kind: String,
    /// Source of the mount.
    pub source: String,
    /// Device number: major, minor.
    pub device: (u32, u32),
}

impl MountPoint {
    /// Returns true if this program mounted it.
    pub fn is_ours(&self) -> bool {
        self.kind.strip_prefix("fuse.") == Some(SUBTYPE)
    }

    /// Returns true if the process that served it has ended, so that the mount is unreachable.
    pub fn is_dead(&self) -> bool {
        fs::metadata(&self.path).is_err_and(|error| error.kind() == io::ErrorKind::NotConnected)
    }
}

/// Returns all mounted file systems, in mount order: stacked ones last.
pub fn mount_points() -> Result<Vec<MountPoint>> {
    const TABLE: &str = "/proc/self/mountinfo";
    let table =
        fs::read(TABLE).map_err(|source| Error::io(LAYER, "read", source).in_file(TABLE))?;
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// Parses a line: `36 35 98:0 /root /mnt rw,noatime shared:1 - ext3 /dev/root rw`.
fn parse(line: &[u8]) -> Option<MountPoint> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let path = PathBuf::from(unescape(fields.nth(1)?));
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let text = |field: &[u8]| unescape(field).to_string_lossy().into_owned();
    let kind = text(rest.next()?);
    let source = text(rest.next()?);
    Some(MountPoint {
        path,
        kind,
        source,
        device: (major.parse().ok()?, minor.parse().ok()?),
    })
}

/// Decodes octal escapes: `\040` is a space.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let octal = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\');
        match octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok())
        {
            Some(byte) => {
                bytes.push(byte);
                at += 4;
            }
            None => {
                bytes.push(field[at]);
                at += 1;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// Makes the kernel write back all dirty pages of the file system at `path`.
pub(crate) fn hand_over(path: &Path) -> Result<()> {
    let failed = |source: io::Error| Error::io(LAYER, "sync", source).in_file(path);
    let folder = fs::File::open(path).map_err(failed)?;
    match rustix::fs::syncfs(&folder) {
        // ENOENT: a removed file whose dates were not written back yet. Write errors are reported
        // by the volume.
        Err(Errno::NOENT) => Ok(()),
        done => done.map_err(|error| failed(error.into())),
    }
}

/// Unmounts `path`; with `lazily`, also if it is in use, in which case it is detached immediately
/// and stays until its last user is done. Fails with [`Kind::Conflict`] if it is in use.
pub fn unmount(path: &Path, lazily: bool) -> Result<()> {
    let flags = if lazily {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    match rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(busy(path)),
        // Unmounting requires root; other users call a setuid helper.
        Err(rustix::io::Errno::PERM) => by_helper(path, lazily),
        Err(error) => Err(Error::io(LAYER, "unmount", io::Error::from(error)).in_file(path)),
    }
}

fn busy(path: &Path) -> Error {
    Error::conflict(LAYER, "is in use").in_file(path)
}

fn by_helper(path: &Path, lazily: bool) -> Result<()> {
    let mut failed = None;
    for program in ["fusermount3", "fusermount"] {
        let mut command = Command::new(program);
        command
            .arg(if lazily { "-uz" } else { "-u" })
            .arg("--")
            .arg(path)
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        match command.output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) if contains(&output.stderr, b"busy") => return Err(busy(path)),
            Ok(output) => {
                let said = OsStr::from_bytes(&output.stderr)
                    .to_string_lossy()
                    .trim()
                    .to_owned();
                failed =
                    Some(Error::new(Kind::Io, LAYER, format!("{program}: {said}")).in_file(path));
            }
            Err(source) => {
                failed = failed.or(Some(
                    Error::io(LAYER, format!("start {program} (package fuse3)"), source)
                        .in_file(path),
                ));
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

fn contains(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window == what)
}

/// Sets the kernel's readahead to the size of large requests. Only root may do so; other users keep
/// the default.
pub(crate) fn read_ahead(path: &Path, kilobytes: u32) {
    let found = mount_points()
        .ok()
        .and_then(|all| all.into_iter().rev().find(|mount| mount.path == path));
    if let Some(MountPoint {
        device: (major, minor),
        ..
    }) = found
    {
        // Failure only costs speed.
        let _ = fs::write(
            format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"),
            kilobytes.to_string(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_read() {
        let line = br"36 35 0:52 / /mnt/My\040Disk rw,nosuid shared:7 master:1 - fuse.bandsaw /tmp/a\134b.img rw,user_id=0";
        let found = parse(line).unwrap();
        assert_eq!(found.path, Path::new("/mnt/My Disk"));
        assert_eq!(
            (found.kind.as_str(), found.source.as_str(), found.device),
            ("fuse.bandsaw", r"/tmp/a\b.img", (0, 52))
        );
        assert!(found.is_ours());
        assert!(parse(b"").is_none() && parse(b"36 35 0:52 /").is_none());
        let root = mount_points().unwrap();
        assert!(root.iter().any(|mount| mount.path == Path::new("/")));
    }
}
