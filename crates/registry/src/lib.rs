//! Registry of images in use: by which process, and since when.
//!
//! Each process that serves, mounts or attaches an image keeps a small file `diskN.json` in a
//! folder of its user, locked until the process ends. The lock proves that the process is alive:
//! process numbers are reused, locks are not. Listing the folder removes unlocked entries, with the
//! sockets, mounts and kernel disks that their processes left.
#![forbid(unsafe_code)]

mod entry;
mod folder;
mod leftovers;

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bandsaw::{Error, Result};
use rustix::fs::FlockOperation;

pub use entry::{DiskEntry, Entry, Mount, Part, Use, as_text};

const LAYER: &str = "registry";
/// Maximum device number; the first is 1.
const MAX_NUMBER: u32 = 10_000;
/// Maximum length of an entry's file in bytes; longer files are ignored.
const MAX_ENTRY_LEN: u64 = 1 << 20;

/// A folder of registry entries.
#[derive(Debug, Clone)]
pub struct Registry {
    folder: PathBuf,
}

/// A registry entry of this process. It is removed on drop.
#[derive(Debug)]
pub struct Registration {
    file: File,
    path: PathBuf,
    device: String,
}

impl Registry {
    /// Opens the registry of this user: `bandsaw` in `XDG_RUNTIME_DIR`, else in `/run/user`, else a
    /// folder of the user's own beside other temporary files. It is created if it is missing; a
    /// folder that others may write to is refused.
    pub fn of_user() -> Result<Self> {
        folder::of_user().map(|folder| Self { folder })
    }

    /// Opens a registry in an existing folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Returns the folder; sockets may be placed there, too.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reserves the first free device name: `disk1`, `disk2` and so on.
    pub fn reserve(&self) -> Result<Registration> {
        // Stale entries are removed, since they would keep their names reserved.
        self.entries()?;
        // Locked before it gets its name, so that no other process takes it for stale.
        let aside = self.folder.join(format!(".{}.new", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&aside);
        let file = file.map_err(|source| failed("create an entry", source, &aside))?;
        lock(&file).map_err(|source| failed("lock an entry", source, &aside))?;
        let named = self.name(&aside);
        let _ = fs::remove_file(&aside);
        named.map(|(path, device)| Registration { file, path, device })
    }

    fn name(&self, aside: &Path) -> Result<(PathBuf, String)> {
        for number in 1..=MAX_NUMBER {
            let device = format!("disk{number}");
            let path = self.folder.join(format!("{device}.json"));
            match fs::hard_link(aside, &path) {
                Ok(()) => return Ok((path, device)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(failed("name an entry", source, &path)),
            }
        }
        Err(Error::limit(
            LAYER,
            "no device name is free: run `bandsaw detach` on images that are no longer needed",
        )
        .in_file(&self.folder))
    }

    /// Returns the images in use, by number. Entries of processes that have ended are removed, with
    /// their leftovers.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let names =
            fs::read_dir(&self.folder).map_err(|source| failed("list", source, &self.folder))?;
        let mut entries = Vec::new();
        for name in names {
            let path = name
                .map_err(|source| failed("list", source, &self.folder))?
                .path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json" || extension == "new")
            {
                entries.extend(look_at(&path)?);
            }
        }
        entries.sort_by_key(|entry: &Entry| (entry.device.len(), entry.device.clone()));
        Ok(entries)
    }
}

impl Registration {
    /// Returns the device name.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Publishes the entry for other processes; `device` and `process` are filled in.
    pub fn publish(&mut self, entry: Entry) -> Result<()> {
        let entry = Entry {
            device: self.device.clone(),
            process: std::process::id(),
            ..entry
        };
        let written = serde_json::to_vec_pretty(&entry)
            .map_err(io::Error::from)
            .and_then(|text| {
                self.file.seek(SeekFrom::Start(0))?;
                self.file.set_len(0)?;
                self.file.write_all(&text)
            });
        written.map_err(|source| failed("write an entry", source, &self.path))
    }

    /// Keeps the entry until the process has ended and released its locks: processes that wait for
    /// the entry to disappear open the image next.
    pub fn until_exit(self) {
        std::mem::forget(self);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // A remaining file is stale, and the next listing removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Locks a file without blocking.
fn lock(file: &File) -> io::Result<()> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from)
}

/// Returns the entry in a file, if its process is alive and has written it.
fn look_at(path: &Path) -> Result<Option<Entry>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("open an entry", source, path)),
    };
    let mut text = Vec::new();
    (&file)
        .take(MAX_ENTRY_LEN)
        .read_to_end(&mut text)
        .map_err(|source| failed("read an entry", source, path))?;
    let entry = serde_json::from_slice::<Entry>(&text).ok();
    match lock(&file) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(entry),
        Err(source) => return Err(failed("lock an entry", source, path)),
        Ok(()) => {}
    }
    // Unlocked, so it is stale, unless it was removed and its name reused before it was locked
    // here.
    let same = |meta: fs::Metadata| {
        file.metadata()
            .is_ok_and(|ours| (ours.dev(), ours.ino()) == (meta.dev(), meta.ino()))
    };
    if fs::metadata(path).is_ok_and(same) {
        entry.iter().for_each(leftovers::remove);
        fs::remove_file(path).map_err(|source| failed("remove an entry", source, path))?;
    }
    Ok(None)
}

fn failed(doing: &'static str, source: io::Error, path: &Path) -> Error {
    Error::io(LAYER, doing, source).in_file(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn entry(image: &str) -> Entry {
        Entry {
            image: image.into(),
            ..Entry::new(Use::Served)
        }
    }

    #[test]
    fn names_are_the_first_that_are_free() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::at(folder.path());
        let mut first = registry.reserve().unwrap();
        let mut second = registry.reserve().unwrap();
        assert_eq!((first.device(), second.device()), ("disk1", "disk2"));
        assert_eq!(registry.entries().unwrap(), []);
        second.publish(entry("b.img")).unwrap();
        first
            .publish(entry("a long name, and then a short one.img"))
            .unwrap();
        first.publish(entry("a.img")).unwrap();
        let images: Vec<_> = registry
            .entries()
            .unwrap()
            .into_iter()
            .map(|entry| entry.image)
            .collect();
        assert_eq!(images, [PathBuf::from("a.img"), "b.img".into()]);
        drop(first);
        assert_eq!(registry.entries().unwrap().len(), 1);
        assert_eq!(registry.reserve().unwrap().device(), "disk1");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn leftovers_go_with_their_sockets_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::at(folder.path());
        let (dead, alive, file) = (
            folder.path().join("dead"),
            folder.path().join("alive"),
            folder.path().join("file"),
        );
        drop(UnixListener::bind(&dead).unwrap());
        let _listener = UnixListener::bind(&alive).unwrap();
        fs::write(&file, "mine").unwrap();
        let left = Entry {
            sockets: vec![dead.clone(), alive.clone(), file.clone()],
            device: "disk1".into(),
            ..entry("x")
        };
        fs::write(
            folder.path().join("disk1.json"),
            serde_json::to_vec(&left).unwrap(),
        )
        .unwrap();
        fs::write(folder.path().join("disk2.json"), "no JSON").unwrap();
        fs::write(folder.path().join(".12345.new"), "").unwrap();
        assert_eq!(registry.entries().unwrap(), []);
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["alive", "file"]);
    }

    #[test]
    fn the_lock_goes_with_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::at(folder.path());
        let registration = registry.reserve().unwrap();
        let path = registration.path.clone();
        assert!(registry.entries().unwrap().is_empty() && path.exists());
        // Simulates a crash: the lock is released, the file remains.
        rustix::fs::flock(&registration.file, FlockOperation::Unlock).unwrap();
        assert!(registry.entries().unwrap().is_empty() && !path.exists());
    }
}
