//! Processes that use a mounted file system: working folders, open files, programs and libraries.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// A process that uses a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Process number.
    pub process: u32,
    /// Name of the process.
    pub command: String,
    /// Path in use: an open or mapped file, or the working folder.
    pub uses: PathBuf,
}

/// Returns the processes that use a path at or below `path`, as far as this user has permission to
/// see them.
pub fn users_of(path: &Path) -> Vec<User> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut open_files: Vec<User> = processes
        .filter_map(|entry| {
            let folder = entry.ok()?.path();
            let process: u32 = folder.file_name()?.to_str()?.parse().ok()?;
            let uses = used_by(&folder, path)?;
            let command = fs::read_to_string(folder.join("comm"))
                .unwrap_or_default()
                .trim()
                .to_owned();
            Some(User {
                process,
                command,
                uses,
            })
        })
        .collect();
    open_files.sort_by_key(|user| user.process);
    open_files
}

/// Returns the first path at or below `path` that the process of this folder of `/proc` uses. Links
/// are read but not followed: their target may hang.
fn used_by(process: &Path, path: &Path) -> Option<PathBuf> {
    let below = |link: PathBuf| {
        fs::read_link(link)
            .ok()
            .filter(|target| target.starts_with(path))
    };
    let files = || {
        fs::read_dir(process.join("fd"))
            .ok()?
            .filter_map(|entry| below(entry.ok()?.path()))
            .next()
    };
    let links = ["cwd", "root", "exe"]
        .into_iter()
        .find_map(|link| below(process.join(link)));
    links
        .or_else(files)
        .or_else(|| mapped(&process.join("maps"), path))
}

/// Returns the first mapped file at or below `path`.
fn mapped(maps: &Path, path: &Path) -> Option<PathBuf> {
    let lines = BufReader::new(fs::File::open(maps).ok()?)
        .lines()
        .map_while(Result::ok);
    lines
        .filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])))
        .find(|file| file.starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let ours = |open_files: Vec<User>| {
            open_files
                .into_iter()
                .find(|user| user.process == std::process::id())
        };
        assert_eq!(ours(users_of(&path)), None);
        let _open = fs::File::create(path.join("file")).unwrap();
        assert_eq!(ours(users_of(&path)).unwrap().uses, path.join("file"));
    }
}
