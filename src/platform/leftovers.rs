//! What runs that were killed have left under names of their own: removed by whoever comes to the same place later.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};

use super::try_lock;

/// Younger ones are let be: their maker may be on another machine, or not have come to lock them yet.
const AGE: Duration = Duration::from_secs(60);

/// Removes the files and folders in `folder` that are called `prefix`, the number of a process that is gone, and perhaps a
/// hyphen and another number, if they are older than a minute and nobody has locked them. Best effort: what cannot be
/// removed stays.
pub fn remove_leftovers(folder: &Path, prefix: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_left = name.to_str().and_then(|name| name.strip_prefix(prefix)).is_some_and(is_of_the_dead);
        if is_left && is_old(&entry.path()) {
            remove_unless_locked(&entry.path());
        }
    }
}

/// Whether `12-3`, or `12`, tells of a process that is gone.
fn is_of_the_dead(rest: &str) -> bool {
    let (process, counter) = rest.split_once('-').unwrap_or((rest, "0"));
    let numbers = [process, counter].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    let process = process.parse().ok().filter(|_| numbers).and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) == Err(rustix::io::Errno::SRCH))
}

fn is_old(path: &Path) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > AGE))
}

fn remove_unless_locked(path: &Path) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    if meta.is_file() {
        let lock = File::open(path);
        if lock.is_ok_and(|file| try_lock(&file, true).unwrap_or(false)) {
            let _ = fs::remove_file(path);
        }
    } else if meta.is_dir() {
        // A bundle is locked by files in it.
        let files = fs::read_dir(path).into_iter().flatten().flatten();
        let files = files.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let locks: Vec<File> = files.filter_map(|entry| File::open(entry.path()).ok()).collect();
        if locks.iter().all(|file| try_lock(file, true).unwrap_or(false)) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process has the highest number that one could have.
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
        names.iter().chain(&kept).for_each(|name| drop(old(&path(name))));
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
    fn a_bundle_in_use_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let bundle = scratch.path().join(format!(".b.new-{DEAD}-0"));
        fs::create_dir_all(bundle.join("bands")).unwrap();
        let token = File::create(bundle.join("token")).unwrap();
        assert!(try_lock(&token, true).unwrap());
        File::open(&bundle).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        remove_leftovers(scratch.path(), ".b.new-");
        assert!(bundle.exists());
        drop(token);
        remove_leftovers(scratch.path(), ".b.new-");
        assert!(!bundle.exists());
    }
}
