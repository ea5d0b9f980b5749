//! What is mounted on this host, and taking it away.

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

/// What a file system in a program talks to the kernel through.
pub(crate) const FUSE: &str = "/dev/fuse";

/// Returns whether this user may not talk to it.
pub(crate) fn refuses_fuse() -> bool {
    let opened = fs::File::options().read(true).write(true).open(FUSE);
    opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// A mounted file system, as the kernel tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    /// Where it is.
    pub path: PathBuf,
    /// Its type: `fuse.bandsaw`.
    pub kind: String,
    /// What it shows.
    pub source: String,
    /// Its device number: major, minor.
    pub device: (u32, u32),
}

impl MountPoint {
    /// Returns whether it is one of this program.
    pub fn is_ours(&self) -> bool {
        self.kind.strip_prefix("fuse.") == Some(SUBTYPE)
    }

    /// Returns whether the process that served it is gone, so that nothing can be reached any more.
    pub fn is_dead(&self) -> bool {
        fs::metadata(&self.path).is_err_and(|error| error.kind() == io::ErrorKind::NotConnected)
    }
}

/// All mounted file systems, those on top last.
pub fn mount_points() -> Result<Vec<MountPoint>> {
    const TABLE: &str = "/proc/self/mountinfo";
    let table =
        fs::read(TABLE).map_err(|source| Error::io(LAYER, "read", source).in_file(TABLE))?;
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// A line: `36 35 98:0 /root /mnt rw,noatime shared:1 - ext3 /dev/root rw`.
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

/// `\040` for a space, and so on.
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

/// Hands everything that the kernel has gathered for the file system at `path` to it.
pub(crate) fn hand_over(path: &Path) -> Result<()> {
    let failed = |source: io::Error| Error::io(LAYER, "sync", source).in_file(path);
    let folder = fs::File::open(path).map_err(failed)?;
    match rustix::fs::syncfs(&folder) {
        // Of a file that was removed before the kernel had told its dates; writes that fail are the
        // volume's to tell.
        Err(Errno::NOENT) => Ok(()),
        done => done.map_err(|error| failed(error.into())),
    }
}

/// Unmounts what is at `path`; with `lazily` also if somebody uses it, who keeps it until done with
/// it. [`Kind::Conflict`] if it is in use.
pub fn unmount(path: &Path, lazily: bool) -> Result<()> {
    let flags = if lazily {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    match rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(busy(path)),
        // Whoever is not root asks a program that is.
        Err(rustix::io::Errno::PERM) => by_helper(path, lazily),
        Err(error) => Err(Error::io(LAYER, "unmount", io::Error::from(error)).in_file(path)),
    }
}

fn busy(path: &Path) -> Error {
    Error::new(Kind::Conflict, LAYER, "is in use").in_file(path)
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
                    Error::io(
                        LAYER,
                        format!("start {program} (of the package fuse3)"),
                        source,
                    )
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

/// Lets the kernel read ahead as far as large requests go. Only root may say so; others keep what
/// the system has.
pub(crate) fn read_ahead(path: &Path, kilobytes: u32) {
    let found = mount_points()
        .ok()
        .and_then(|all| all.into_iter().rev().find(|mount| mount.path == path));
    if let Some(MountPoint {
        device: (major, minor),
        ..
    }) = found
    {
        // Slower at worst.
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
