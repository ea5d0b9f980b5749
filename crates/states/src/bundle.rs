//! The folder of a sparse bundle: its files, and how they are told from changed ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::container::sparsebundle;
use bandsaw::ops::repair::check_not_interrupted;
use bandsaw::store::{Attributes, Guard, HostStore, Local, NodeKind};
use bandsaw::{Error, Kind, Reason, Result};
use serde::{Deserialize, Serialize};

use crate::LAYER;

/// The folder that only Bandsaw uses.
const OURS: &str = ".bandsaw";
/// Prefix of unfinished files of [`Local`].
const UNFINISHED: &str = ".bandsaw-new-";
/// The lock of a bundle, which is no part of its contents.
const LOCK: &str = "lock";
/// The list that every bundle has.
pub(crate) const INFO: &str = "Info.plist";
/// A file that exists while the bands get another size.
const REBANDING: &str = "rebanding.plist";
/// Maximum depth of folders. Bundles have two levels.
const DEPTH: usize = 8;

/// The numbers by which an unchanged file is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Length in bytes.
    pub len: u64,
    /// Time of the last change of the contents, in nanoseconds since 1970.
    pub modified: i64,
    /// Time of the last change of the file's metadata, in nanoseconds since 1970.
    pub changed: i64,
    /// The file's number in its file system.
    pub inode: u64,
}

impl Identity {
    fn of(file: &Attributes) -> Self {
        Self {
            len: file.len,
            modified: file.modified,
            changed: file.changed,
            inode: file.inode,
        }
    }

    /// Returns true if both are of one file with the same contents, which may have been renamed in
    /// the meantime.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        (self.len, self.modified, self.inode) == (other.len, other.modified, other.inode)
    }
}

/// The files of a bundle by name.
pub type Listing = BTreeMap<String, Identity>;

/// Summary of the files of a bundle, which differs if any file was added, removed, renamed or changed. It
/// takes the same memory for any number of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The sum of the BLAKE3 hashes of all names and identities: folders are listed in any order.
    sum: [u64; 4],
    files: u64,
    newest: i64,
    /// The file numbers that were looked for, and are in the bundle.
    found: BTreeSet<u64>,
}

impl Summary {
    fn new() -> Self {
        Self {
            sum: [0; 4],
            files: 0,
            newest: i64::MIN,
            found: BTreeSet::new(),
        }
    }

    /// Returns the summary of the files that a list names.
    pub(crate) fn of<'a>(files: impl Iterator<Item = (&'a String, &'a Identity)>) -> Self {
        let mut summary = Self::new();
        files.for_each(|(name, file)| summary.add(name, file));
        summary
    }

    fn add(&mut self, name: &str, file: &Identity) {
        let mut hasher = blake3::Hasher::new();
        hasher
            .update(&file.len.to_le_bytes())
            .update(&file.modified.to_le_bytes())
            .update(&file.changed.to_le_bytes())
            .update(&file.inode.to_le_bytes())
            .update(name.as_bytes());
        let hash = hasher.finalize();
        let words = hash.as_bytes().chunks_exact(8);
        for (sum, word) in self.sum.iter_mut().zip(words) {
            *sum = sum.wrapping_add(word.try_into().map_or(0, u64::from_le_bytes));
        }
        self.files += 1;
        self.newest = self.newest.max(file.changed).max(file.modified);
    }

    /// Returns a text that differs if any file was added, removed, renamed or changed.
    pub fn fingerprint(&self) -> String {
        let [a, b, c, d] = self.sum;
        format!("{a:016x}{b:016x}{c:016x}{d:016x}-{}", self.files)
    }

    /// Returns the time of the last change of any file, in nanoseconds since 1970.
    pub fn newest_change(&self) -> i64 {
        self.newest
    }

    /// Returns those of the file numbers that were looked for which are in the bundle.
    pub fn found(&self) -> &BTreeSet<u64> {
        &self.found
    }
}

/// A sparse bundle in a folder of a host.
#[derive(Debug)]
pub struct BundleFolder {
    path: PathBuf,
    store: Arc<dyn HostStore>,
}

impl BundleFolder {
    /// Opens the bundle in the folder at `path` of this host. [`Kind::Unsupported`] if it is none,
    /// [`Kind::ReadOnly`] if it is a state of one.
    pub fn open(path: &Path) -> Result<Self> {
        if path.metadata().is_ok_and(|found| !found.is_dir()) {
            return Err(not_a_bundle(path));
        }
        Self::in_store(Arc::new(Local::new(path)))
    }

    /// Opens the bundle in a folder of a host. Errors are those of [`open`](Self::open).
    pub fn in_store(store: Arc<dyn HostStore>) -> Result<Self> {
        let folder = Self {
            path: store.host_path(""),
            store,
        };
        let path = &folder.path;
        match folder.store.attributes("")? {
            None => return Err(Error::not_found(LAYER, path.display().to_string())),
            Some(found) if found.kind != NodeKind::Folder => return Err(folder.not_a_bundle()),
            Some(_) => {}
        }
        folder.check_folder(OURS)?;
        let has_bands = folder.check_folder("bands")?;
        if sparsebundle::is_state(&*folder.store)? {
            let message = "a kept state of a bundle, expected the bundle itself";
            return Err(Error::new(Kind::ReadOnly, LAYER, message).in_file(path));
        }
        // Lists can be lost, and are away while files are moved.
        if !has_bands && !sparsebundle::is_bundle(&*folder.store)? {
            return Err(folder.not_a_bundle());
        }
        Ok(folder)
    }

    fn not_a_bundle(&self) -> Error {
        not_a_bundle(&self.path)
    }

    /// Refuses a name that is something else than a folder. A symbolic link would lead out of the
    /// bundle. `false`: there is none.
    fn check_folder(&self, name: &str) -> Result<bool> {
        match self.store.attributes(name)? {
            None => Ok(false),
            Some(found) if found.kind == NodeKind::Folder => Ok(true),
            Some(_) => {
                let message = "expected a folder";
                Err(self.store.named(Error::unsupported(LAYER, message), name))
            }
        }
    }

    /// Returns the bundle without the handles of folders that were renamed since they were opened.
    pub(crate) fn reopened(&self) -> Result<Self> {
        // Another store does not know which names this one has changed.
        self.store.sync()?;
        Ok(Self {
            path: self.path.clone(),
            store: self.store.elsewhere(&self.path),
        })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn store(&self) -> &dyn HostStore {
        &*self.store
    }

    /// Returns the name of the folder.
    pub fn name(&self) -> Result<&str> {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.ok_or_else(|| {
            Error::unsupported(LAYER, "the name is empty or not UTF-8").in_file(&self.path)
        })
    }

    /// Acquires the locks of a bundle that is read and must not be written concurrently.
    pub(crate) fn lock_shared(&self) -> Result<[Guard; 2]> {
        sparsebundle::lock_shared(&*self.store).map_err(|error| error.in_file(&self.path))
    }

    /// Acquires the locks of a bundle whose files are changed. [`Kind::Conflict`] also if a repair of
    /// it was interrupted.
    pub(crate) fn lock_exclusive(&self) -> Result<[Guard; 2]> {
        check_not_interrupted(&self.path)?;
        sparsebundle::lock_exclusive(&*self.store).map_err(|error| error.in_file(&self.path))
    }

    /// Returns true if a change of the band size was interrupted.
    pub fn is_rebanding(&self) -> Result<bool> {
        Ok(self.store.stat(REBANDING)?.is_some())
    }

    /// Lists all files of the bundle but its lock and what only Bandsaw uses. [`Kind::Conflict`] while a
    /// change of the band size is not finished.
    pub fn list(&self) -> Result<Listing> {
        let listing = self.list_unfinished()?;
        if listing.contains_key(REBANDING) {
            return Err(self.rebanding());
        }
        Ok(listing)
    }

    /// Lists the same files, even in the middle of a change of the band size.
    pub fn list_unfinished(&self) -> Result<Listing> {
        let mut listing = list(self.store(), "")?;
        listing.remove(LOCK);
        Ok(listing)
    }

    /// Returns the summary of the same files, and which of `inodes` are among them. Errors are those of
    /// [`list`](Self::list).
    pub fn summarize(&self, inodes: &BTreeSet<u64>) -> Result<Summary> {
        self.check_not_rebanding()?;
        self.summarize_unfinished(inodes)
    }

    /// Returns the same, even in the middle of a change of the band size.
    pub fn summarize_unfinished(&self, inodes: &BTreeSet<u64>) -> Result<Summary> {
        let mut summary = Summary::new();
        walk(self.store(), "", "", DEPTH, &mut |name, file| {
            if inodes.contains(&file.inode) {
                summary.found.insert(file.inode);
            }
            if name != LOCK {
                summary.add(&name, &file);
            }
        })?;
        Ok(summary)
    }

    /// [`Kind::Conflict`] while a change of the band size is not finished.
    pub(crate) fn check_not_rebanding(&self) -> Result<()> {
        match self.is_rebanding()? {
            true => Err(self.rebanding()),
            false => Ok(()),
        }
    }

    fn rebanding(&self) -> Error {
        let message =
            "a change of the band size was interrupted; finish it with `bandsaw reband` first";
        Error::conflict(LAYER, message).in_file(&self.path)
    }

    /// Returns the identity of a file. `None`: there is none.
    pub(crate) fn identity(&self, name: &str) -> Result<Option<Identity>> {
        identity(self.store(), name)
    }
}

fn not_a_bundle(path: &Path) -> Error {
    let message = "not a sparse bundle, the only format for this command";
    Error::unsupported(LAYER, message).in_file(path)
}

/// Returns the identity of a file of a store. `None`: there is none.
pub(crate) fn identity(store: &dyn HostStore, name: &str) -> Result<Option<Identity>> {
    match store.attributes(name)? {
        None => Ok(None),
        Some(found) if found.kind == NodeKind::File => Ok(Some(Identity::of(&found))),
        Some(_) => Err(store.named(Error::conflict(LAYER, "expected a file"), name)),
    }
}

/// Lists all files in the folder `root` of a store (its own is "") by their names below it, except
/// for those in `.bandsaw`.
pub(crate) fn list(store: &dyn HostStore, root: &str) -> Result<Listing> {
    let mut listing = Listing::new();
    walk(store, root, "", DEPTH, &mut |name, file| {
        listing.insert(name, file);
    })?;
    Ok(listing)
}

/// Returns the name of a file in a folder; the store's own is "".
pub(crate) fn within(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        _ => format!("{folder}/{name}"),
    }
}

fn walk(
    store: &dyn HostStore,
    root: &str,
    prefix: &str,
    depth: usize,
    each: &mut dyn FnMut(String, Identity),
) -> Result<()> {
    let folder = within(root, prefix);
    let folder = folder.trim_end_matches('/');
    if depth == 0 {
        return Err(store.named(Error::limit(LAYER, "too many levels of folders"), folder));
    }
    let changed = || changed(&store.host_path(root));
    let is_there = store.each_name_in(folder, &mut |last| {
        let Ok(last) = last.into_string() else {
            let message = "the name is not UTF-8";
            return Err(store.named(Error::unsupported(LAYER, message), folder));
        };
        if last.starts_with(UNFINISHED) || (prefix.is_empty() && last == OURS) {
            return Ok(());
        }
        let full = within(folder, &last);
        let found = store.attributes(&full)?.ok_or_else(changed)?;
        let name = format!("{prefix}{last}");
        match found.kind {
            NodeKind::Folder => walk(store, root, &format!("{name}/"), depth - 1, each)?,
            NodeKind::File => each(name, Identity::of(&found)),
            NodeKind::Other => {
                let message = "a symbolic link or special file, which a bundle does not have";
                return Err(store.named(Error::unsupported(LAYER, message), &full));
            }
        }
        Ok(())
    })?;
    match is_there {
        true => Ok(()),
        false => Err(changed()),
    }
}

/// Returns the error about a bundle that another program changed.
pub(crate) fn changed(path: &Path) -> Error {
    let message = "the bundle was changed by another program in the meantime; run the command \
                   again when the bundle is not in use";
    Error::conflict(LAYER, message)
        .because(Reason::InUse)
        .in_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_of_names_and_identities() {
        let file = Identity {
            len: 1,
            modified: 2,
            changed: 3,
            inode: 4,
        };
        let of = |files: &[(&str, Identity)]| {
            let mut summary = Summary::new();
            files
                .iter()
                .for_each(|(name, file)| summary.add(name, file));
            summary
        };
        let base = of(&[("bands/0", file)]).fingerprint();
        assert_eq!(base, of(&[("bands/0", file)]).fingerprint());
        let others = [
            of(&[("bands/1", file)]),
            of(&[("bands/0", Identity { len: 2, ..file })]),
            of(&[(
                "bands/0",
                Identity {
                    modified: 1,
                    ..file
                },
            )]),
            of(&[("bands/0", Identity { changed: 4, ..file })]),
            of(&[("bands/0", Identity { inode: 5, ..file })]),
            of(&[("bands/0", file), ("bands/0", file)]),
            of(&[]),
        ];
        for other in &others {
            assert_ne!(base, other.fingerprint(), "{other:?}");
        }
        assert_eq!(others[3].newest_change(), 4);
        let second = Identity { inode: 5, ..file };
        let (one, two) = (("bands/0", file), ("bands/1", second));
        assert_eq!(of(&[one, two]), of(&[two, one]), "folders have no order");
        let exchanged = of(&[("bands/0", second), ("bands/1", file)]);
        assert_ne!(of(&[one, two]), exchanged);
    }
}
