//! Functions that differ between operating systems: one file for each, with the same functions.
//!
//! Common functions are in this module and in `unix.rs`; on Windows, `windows.rs` stands for all of it.
//! [`on_battery`], [`mounts`], [`forbid_core_dumps`],
//! [`raise_file_limit`] and [`remove_leftovers`] are for front ends, the rest is for the local
//! store. The macOS half was written from Apple's manual pages and never run on a Mac.

mod leftovers;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(any(target_os = "macos", test))]
mod macos_rules;
#[cfg(any(target_os = "macos", test))]
mod macos_text;
pub mod nodes;
mod unix;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, SeekFrom};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[cfg(target_os = "linux")]
use linux as host;
#[cfg(target_os = "macos")]
use macos as host;

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!(
    "Bandsaw knows the system calls of Linux and macOS only; see crates/core/src/platform/"
);

pub use host::can_punch_in;
pub(crate) use host::{
    clone_file, copy_range, disk_len, disk_path, is_forgotten, lock_holder, make_durable,
    make_names_durable, punch_hole,
};
pub use leftovers::{hidden_name, own_suffix, remove_leftovers, take_removed};
pub use unix::{
    FileExt, FileId, allocated, appends, exchange, file_id, host_name, is_disk, is_too_many_files,
    name_of_bytes, rename_new, shared_id, sync_folder, temporary_folder, version,
};

/// A mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The folder it is mounted on.
    pub path: PathBuf,
    /// The mounted source: a device, a server, or a name chosen by the file system.
    pub source: String,
    /// The file system's name (`ext4`, `apfs`).
    pub kind: String,
}

/// Returns true if the machine runs on its battery. `None` if the host does not report it.
pub fn on_battery() -> Option<bool> {
    host::on_battery()
}

/// Returns the file systems mounted now, in the order in which the host lists them.
pub fn mounts() -> io::Result<Vec<Mount>> {
    host::mounts()
}

/// Excludes the memory of this process, which holds keys, from core dumps from now on. Does nothing
/// if the host does not allow it.
pub fn forbid_core_dumps() {
    let now = getrlimit(Resource::Core);
    let _ = setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: now.maximum,
        },
    );
}

/// Raises the limit of simultaneously open files to `wanted`; returns the resulting limit, which
/// can be lower.
pub fn raise_file_limit(wanted: u64) -> u64 {
    let now = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= wanted);
    if enough(now.current) {
        return now.current.unwrap_or(u64::MAX);
    }
    let current = if enough(now.maximum) {
        Some(wanted)
    } else {
        now.maximum
    };
    match setrlimit(
        Resource::Nofile,
        Rlimit {
            current,
            maximum: now.maximum,
        },
    ) {
        Ok(()) => current.unwrap_or(u64::MAX),
        Err(_) => now.current.unwrap_or(u64::MAX),
    }
}

/// Takes the lock of an open file without waiting. `false`: another process has it.
/// [`Unsupported`](io::ErrorKind::Unsupported): the file system has no locks.
pub(crate) fn try_lock(file: &File, exclusive: bool) -> io::Result<bool> {
    let operation = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    locked(rustix::io::retry_on_intr(|| {
        rustix::fs::flock(file, operation)
    }))
}

fn locked(result: rustix::io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        // ACCESS: Linux's SMB client maps the server's answer that another client has the lock
        // to it.
        Err(Errno::WOULDBLOCK | Errno::ACCESS) => Ok(false),
        Err(errno) if host::is_unsupported(errno) => Err(io::ErrorKind::Unsupported.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Maximum time to wait for a lock that is being released.
const LETTING_GO: Duration = Duration::from_millis(200);

/// Takes the lock of an open file. `false`: another process has it, even after a short wait. A
/// child process that is being started, by this process or one that just ended, holds the locks of
/// its parent until it executes its program, usually for a moment.
pub(crate) fn lock_soon(file: &File, exclusive: bool) -> io::Result<bool> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    while !try_lock(file, exclusive)? {
        if begun.elapsed() >= LETTING_GO {
            return Ok(false);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    Ok(true)
}

/// The result of a search for data or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At this offset.
    At(u64),
    /// Not before the end of the file.
    Nowhere,
    /// Unknown to the host: everything may be data.
    Unknown,
}

/// Finds the next stored byte at or after `offset`.
pub fn next_data(file: &File, offset: u64) -> io::Result<Next> {
    next(host::REPORTS_HOLES, || {
        rustix::fs::seek(file, SeekFrom::Data(offset))
    })
}

/// Finds the next hole at or after `offset`; the end of the file counts as one.
pub fn next_hole(file: &File, offset: u64) -> io::Result<Next> {
    next(host::REPORTS_HOLES, || {
        rustix::fs::seek(file, SeekFrom::Hole(offset))
    })
}

fn next(is_reported: bool, find: impl FnOnce() -> rustix::io::Result<u64>) -> io::Result<Next> {
    if !is_reported {
        return Ok(Next::Unknown);
    }
    match find() {
        Ok(at) => Ok(Next::At(at)),
        Err(Errno::NXIO) => Ok(Next::Nowhere),
        // IO: Linux's SMB client, if the server does not support the query. A failing disk reports
        // the error again on read.
        Err(Errno::INVAL | Errno::NOTTY | Errno::IO) => Ok(Next::Unknown),
        Err(errno) if host::is_unsupported(errno) => Ok(Next::Unknown),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_mounted() {
        assert!(
            mounts()
                .unwrap()
                .iter()
                .any(|mount| mount.path.as_os_str() == "/")
        );
    }

    #[test]
    fn a_limit_is_raised_no_further_than_allowed() {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let got = raise_file_limit(most.min(1 << 20));
        assert!(got <= most);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), got);
        assert_eq!(raise_file_limit(1), got, "a limit is never lowered");
    }

    #[test]
    fn a_lock_shuts_out_other_descriptions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let (one, two) = (File::create(&path).unwrap(), File::open(&path).unwrap());
        assert!(try_lock(&one, true).unwrap());
        assert!(!try_lock(&two, false).unwrap());
        drop(one);
        assert!(try_lock(&two, false).unwrap());
    }

    #[test]
    fn a_lock_that_is_let_go_of_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let (one, two) = (File::create(&path).unwrap(), File::open(&path).unwrap());
        assert!(try_lock(&one, true).unwrap());
        thread::scope(|scope| {
            // Retried until it succeeds: on a busy machine the wait may be too short.
            let waiting = scope.spawn(|| while !lock_soon(&two, true).unwrap() {});
            thread::sleep(Duration::from_millis(5));
            drop(one);
            waiting.join().unwrap();
        });
        assert!(!lock_soon(&File::open(&path).unwrap(), true).unwrap());
    }

    #[test]
    fn a_file_system_without_locks_is_distinguished_from_an_error() {
        let unsupported = locked(Err(Errno::NOTSUP)).unwrap_err();
        assert_eq!(unsupported.kind(), io::ErrorKind::Unsupported);
        let failed = locked(Err(Errno::NOLCK)).unwrap_err();
        assert_ne!(failed.kind(), io::ErrorKind::Unsupported);
        assert!(!locked(Err(Errno::WOULDBLOCK)).unwrap());
    }

    #[test]
    fn holes_are_not_asked_of_a_host_that_misreports_them() {
        let found = next(false, || unreachable!("it is not asked"));
        assert_eq!(found.unwrap(), Next::Unknown);
        assert_eq!(next(true, || Err(Errno::NOTSUP)).unwrap(), Next::Unknown);
        assert_eq!(next(true, || Ok(7)).unwrap(), Next::At(7));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn holes_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let file = File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(next_data(&file, 0).unwrap(), Next::Nowhere);
        assert_eq!(next_hole(&file, 0).unwrap(), Next::At(0));
        rustix::io::pwrite(&file, b"data", 512 << 10).unwrap();
        assert_eq!(next_data(&file, 0).unwrap(), Next::At(512 << 10));
        assert_eq!(next_hole(&file, 1 << 20).unwrap(), Next::Nowhere);
    }
}
