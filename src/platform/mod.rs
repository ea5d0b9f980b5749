//! What differs between operating systems: one file for each, with the same functions.
//!
//! What all of them share is here. [`on_battery`], [`mounts`], [`forbid_core_dumps`],
//! [`raise_file_limit`] and [`remove_leftovers`] are for front ends, the rest is for the local
//! store. The macOS half was written from Apple's manual pages and never ran on a Mac.

mod leftovers;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(any(target_os = "macos", test))]
mod macos_text;
pub(crate) mod nodes;

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
compile_error!("Bandsaw knows the system calls of Linux and macOS only; see src/platform/");

pub(crate) use host::{
    can_punch_in, clone_file, copy_range, is_forgotten, lock_holder, make_durable,
    make_names_durable, punch_hole,
};
pub use leftovers::{own_suffix, remove_leftovers, take_removed};

/// A place where a file system is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The folder it is mounted on.
    pub path: PathBuf,
    /// What is mounted: a device, a server, or a word of the file system's own.
    pub source: String,
    /// The file system's name (`ext4`, `apfs`).
    pub kind: String,
}

/// Returns whether the machine runs on its battery. `None` where the host does not tell.
pub fn on_battery() -> Option<bool> {
    host::on_battery()
}

/// The file systems mounted now, in the order the host lists them.
pub fn mounts() -> io::Result<Vec<Mount>> {
    host::mounts()
}

/// Keeps the memory of this process, which holds keys, out of core dumps from now on. Where the
/// host does not allow it, nothing changes.
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

/// Asks for `wanted` open files at once; returns how many the process may have now, which can be
/// fewer.
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

/// Takes the lock of an open file without waiting. `false`: somebody else has it.
pub(crate) fn try_lock(file: &File, exclusive: bool) -> io::Result<bool> {
    let how = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    loop {
        match rustix::fs::flock(file, how) {
            Ok(()) => return Ok(true),
            // ACCESS: what Linux's SMB client makes of a server's answer that another client has
            // it.
            Err(Errno::WOULDBLOCK | Errno::ACCESS) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// How long somebody who is letting go of a lock is waited for.
const LETTING_GO: Duration = Duration::from_millis(200);

/// Takes the lock of an open file. `false`: somebody else has it, and still has a moment later. A
/// process that is being started by this one, or by one that just ended, holds what its parent had
/// open until it becomes another program, for a moment as a rule.
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

/// Where data, or a hole, begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// At this offset.
    At(u64),
    /// Not before the end of the file.
    Nowhere,
    /// The host cannot tell: everything may be data.
    Unknown,
}

/// Where the next stored byte at or after `offset` is.
pub(crate) fn next_data(file: &File, offset: u64) -> io::Result<Next> {
    next(rustix::fs::seek(file, SeekFrom::Data(offset)))
}

/// Where the next hole at or after `offset` begins; the end of the file counts as one.
pub(crate) fn next_hole(file: &File, offset: u64) -> io::Result<Next> {
    next(rustix::fs::seek(file, SeekFrom::Hole(offset)))
}

fn next(found: rustix::io::Result<u64>) -> io::Result<Next> {
    match found {
        Ok(at) => Ok(Next::At(at)),
        Err(Errno::NXIO) => Ok(Next::Nowhere),
        // IO: Linux's SMB client of a server that does not answer the question. A disk that fails
        // says so when it is read.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP | Errno::NOTTY | Errno::IO) => {
            Ok(Next::Unknown)
        }
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
            // As often as it takes: a busy machine makes any moment long.
            let waiting = scope.spawn(|| while !lock_soon(&two, true).unwrap() {});
            thread::sleep(Duration::from_millis(5));
            drop(one);
            waiting.join().unwrap();
        });
        assert!(!lock_soon(&File::open(&path).unwrap(), true).unwrap());
    }

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
