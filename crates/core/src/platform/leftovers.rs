//! Temporary files of killed processes, removed by later runs that use the same folder.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};

use super::try_lock;
use crate::sync::Mutex;

/// Minimum age for removal if the process number is unreliable: the creator may be on another
/// machine, or may not have locked the file yet.
const AGE: Duration = Duration::from_secs(60);

/// Minimum age for removal if the process number is meaningless: created before this machine was
/// started, in another container, or on another machine.
const AGE_OF_FOREIGN: Duration = Duration::from_secs(3600);

/// Maximum number of paths that [`take_removed`] returns.
const MAX_REPORTED: usize = 100;

static REMOVED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Returns the paths that [`remove_leftovers`] has removed in this process since the last call, for
/// messages.
pub fn take_removed() -> Vec<PathBuf> {
    std::mem::take(&mut *REMOVED.lock())
}

/// Returns a suffix for temporary names that is unique while this process lives:
/// `MARK-PROCESS-NUMBER`.
///
/// The mark identifies the boot of this machine and the process namespace: a process with the same
/// mark that no longer exists has ended for certain. If the system provides neither, the suffix has
/// no mark.
pub fn own_suffix() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let (process, number) = (std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    mark().map_or_else(
        || format!("{process}-{number}"),
        |mark| format!("{mark}-{process}-{number}"),
    )
}

/// Longest part of a name that [`hidden_name`] takes over, in bytes. Hosts allow 255 in all.
const MAX_NAME_PART: usize = 150;

/// Returns `.NAME` plus `extension` for a temporary file beside the file `name`. A long name is
/// shortened, with a checksum, so that what is appended still fits.
pub fn hidden_name(name: &OsStr, extension: &str) -> OsString {
    let mut hidden = OsString::from(".");
    let bytes = name.as_bytes();
    if bytes.len() <= MAX_NAME_PART + 50 {
        hidden.push(name);
    } else {
        let mut end = MAX_NAME_PART;
        // Not within a character of UTF-8.
        while end > 0 && bytes[end] & 0xC0 == 0x80 {
            end -= 1;
        }
        hidden.push(OsStr::from_bytes(&bytes[..end]));
        hidden.push(format!("-{:08x}", fnv(bytes)));
    }
    hidden.push(extension);
    hidden
}

/// The 32-bit FNV-1a hash. It keeps names short; a collision of two is harmless.
fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5_u32, |sum, &byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

fn mark() -> Option<&'static str> {
    static MARK: OnceLock<Option<String>> = OnceLock::new();
    MARK.get_or_init(|| {
        let start = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
        let space = fs::read_link("/proc/self/ns/pid").ok()?;
        let bytes = [&start, space.as_os_str().as_bytes()].concat();
        Some(format!("{:08x}", fnv(&bytes)))
    })
    .as_deref()
}

/// Removes the files and folders in `folder` that are named `prefix` plus the [`own_suffix`] of a
/// process that has ended, and that are not locked. If the end of the process is uncertain, they
/// are removed only when old. Best effort: failures are ignored.
pub fn remove_leftovers(folder: &Path, prefix: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let age = name
            .to_str()
            .and_then(|name| name.strip_prefix(prefix))
            .and_then(min_age);
        if age.is_some_and(|age| is_older(&entry.path(), age))
            && remove_unless_locked(&entry.path())
        {
            let mut removed = REMOVED.lock();
            if removed.len() < MAX_REPORTED {
                removed.push(entry.path());
            }
        }
    }
}

/// Returns the minimum age for removal of a name with this suffix; `None`: never remove it. `12-3`
/// and `12` also contain a process number; systems without marks produce them.
fn min_age(suffix: &str) -> Option<Duration> {
    let parts: Vec<&str> = suffix.split('-').collect();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (given, process) = match parts[..] {
        [process] => (None, process),
        [process, number] if is_number(number) => (None, process),
        [mark, process, number]
            if is_number(number) && mark.len() == 8 && u32::from_str_radix(mark, 16).is_ok() =>
        {
            (Some(mark), process)
        }
        _ => return None,
    };
    let process = Pid::from_raw(
        Some(process)
            .filter(|process| is_number(process))?
            .parse()
            .ok()?,
    )?;
    if given.is_some() && given != mark() {
        return Some(AGE_OF_FOREIGN);
    }
    let is_gone = test_kill_process(process) == Err(rustix::io::Errno::SRCH);
    is_gone.then_some(if given.is_some() { Duration::ZERO } else { AGE })
}

fn is_older(path: &Path, least: Duration) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    least.is_zero() || changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > least))
}

/// Returns true if it was removed.
fn remove_unless_locked(path: &Path) -> bool {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return false;
    };
    if meta.is_file() {
        let lock = File::open(path);
        lock.is_ok_and(|file| try_lock(&file, true).unwrap_or(false))
            && fs::remove_file(path).is_ok()
    } else if meta.is_dir() {
        // A bundle is locked by files in it.
        let files = fs::read_dir(path).into_iter().flatten().flatten();
        let files = files.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let locks: Vec<File> = files
            .filter_map(|entry| File::open(entry.path()).ok())
            .collect();
        locks
            .iter()
            .all(|file| try_lock(file, true).unwrap_or(false))
            && fs::remove_dir_all(path).is_ok()
    } else {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The highest process number, which no process has.
    const DEAD: u32 = i32::MAX as u32;

    fn old(path: &Path) -> File {
        let file = File::create(path).unwrap();
        let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        file.set_modified(hour_ago).unwrap();
        file
    }

    #[test]
    fn only_what_is_left_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let names = [format!(".x.new-{DEAD}-0"), format!(".x.new-{DEAD}")];
        let kept = [
            format!(".x.new-{}-0", std::process::id()),
            format!(".x.new-{DEAD}-0.old"),
            format!(".x.new-{DEAD}-"),
            format!(".y.new-{DEAD}-0"),
            ".x.new-".to_owned(),
            ".x.new--1".to_owned(),
            "x".to_owned(),
        ];
        names
            .iter()
            .chain(&kept)
            .for_each(|name| drop(old(&path(name))));
        let locked = old(&path(&format!(".x.new-{DEAD}-1")));
        assert!(try_lock(&locked, true).unwrap());
        let young = path(&format!(".x.new-{DEAD}-2"));
        fs::write(&young, b"").unwrap();
        remove_leftovers(scratch.path(), ".x.new-");
        assert!(names.iter().all(|name| !path(name).exists()));
        assert!(kept.iter().all(|name| path(name).exists()));
        assert!(young.exists() && path(&format!(".x.new-{DEAD}-1")).exists());
        drop(locked);
        remove_leftovers(scratch.path(), ".x.new-");
        assert!(!path(&format!(".x.new-{DEAD}-1")).exists());
    }

    #[test]
    fn leftovers_of_this_boot_go_at_once() {
        let Some(mark) = mark() else { return };
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let left = path(&format!(".x.new-{mark}-{DEAD}-0"));
        let living = path(&format!(".x.new-{}", own_suffix()));
        let foreign = path(&format!(".x.new-00000000-{DEAD}-0"));
        for path in [&left, &living, &foreign] {
            fs::write(path, b"").unwrap();
        }
        remove_leftovers(scratch.path(), ".x.new-");
        assert_eq!(
            [&left, &living, &foreign].map(|path| path.exists()),
            [false, true, true]
        );
        assert!(take_removed().contains(&left));
        let long_ago = std::time::SystemTime::now() - 2 * AGE_OF_FOREIGN;
        File::options()
            .write(true)
            .open(&foreign)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        remove_leftovers(scratch.path(), ".x.new-");
        assert!(!foreign.exists());
    }

    #[test]
    fn a_bundle_in_use_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let bundle = scratch.path().join(format!(".b.new-{DEAD}-0"));
        fs::create_dir_all(bundle.join("bands")).unwrap();
        let token = File::create(bundle.join("token")).unwrap();
        assert!(try_lock(&token, true).unwrap());
        File::open(&bundle)
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        remove_leftovers(scratch.path(), ".b.new-");
        assert!(bundle.exists());
        drop(token);
        remove_leftovers(scratch.path(), ".b.new-");
        assert!(!bundle.exists());
    }
}
