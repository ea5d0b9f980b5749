//! Folders of a host: what their files have beyond those of every store.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Store;
use crate::{Error, Result};

/// The kind of a name in a folder of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link or a special file.
    Other,
}

/// The attributes of a name in a folder of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Its kind.
    pub kind: NodeKind,
    /// Length in bytes.
    pub len: u64,
    /// Time of the last change of the contents, in nanoseconds since 1970.
    pub modified: i64,
    /// Time of the last change of contents or attributes, in nanoseconds since 1970.
    pub changed: i64,
    /// Its number in its file system.
    pub inode: u64,
    /// Number of its names.
    pub links: u64,
}

/// A folder of a host: a store whose files have times, owners and several names, and whose folders
/// can be renamed.
///
/// [`Local`](super::Local) is the one that ships; the simulation of power cuts in `bandsaw-testing`
/// is another. Names are those of [`Store`].
pub trait HostStore: Store {
    /// Returns the path of `name` on the host; of the folder itself for "".
    fn host_path(&self, name: &str) -> PathBuf;

    /// Returns an error that names the folder, or the bundle that holds it, and `name` in it.
    fn named(&self, error: Error, name: &str) -> Error {
        error.in_folder(self.host_path(""), name)
    }

    /// Returns the store of another folder of this host, which need not exist. Its
    /// [`sync`](Store::sync) covers only the names that are changed through it.
    fn elsewhere(&self, folder: &Path) -> Arc<dyn HostStore>;

    /// Returns the attributes of `name`, or of the folder itself for "". Symbolic links are not
    /// followed. `None`: there is none.
    fn attributes(&self, name: &str) -> Result<Option<Attributes>>;

    /// Gives all names directly in the folder `name` (the store's own is "") to `each`, in any order.
    /// `false`: there is no such folder.
    fn each_name_in(
        &self,
        name: &str,
        each: &mut dyn FnMut(OsString) -> Result<()>,
    ) -> Result<bool>;

    /// Sets the modification time of a file to this number of nanoseconds since 1970. The contents
    /// and the time are durable when it returns.
    fn set_modified(&self, name: &str, nanos: i64) -> Result<()>;

    /// Gives a file the permissions of another, and its owner as far as this user may; durably.
    fn set_owner_of(&self, name: &str, like: &str) -> Result<()>;

    /// Creates a hard link `to`, which must not exist, to `from`. `false`: hard links are not
    /// supported here, or there is no `from`.
    fn link(&self, from: &str, to: &str) -> Result<bool>;

    /// Creates or replaces `to` as a copy that shares the storage of `from` until either is
    /// written. `false`: not supported by the host.
    fn clone_of(&self, from: &str, to: &str) -> Result<bool>;

    /// Creates or replaces `to` as a copy of the file at the path `from` of this host. `true`: it
    /// shares the storage of the original. Its contents are durable, its name is not.
    fn copy_from(&self, from: &Path, to: &str) -> Result<bool>;

    /// Renames the folder `from` to `to` in the same folder. `false`: `to` exists and is not empty.
    fn rename_folder(&self, from: &str, to: &str) -> Result<bool>;

    /// Removes the folder `name` with all that it holds. Does nothing if it does not exist.
    fn remove_tree(&self, name: &str) -> Result<()>;

    /// Removes the files and folders in the folder `name` that are named `prefix` plus the
    /// [`own_suffix`](crate::platform::own_suffix) of a process that has ended. Best effort.
    fn remove_leftovers(&self, name: &str, prefix: &str);

    /// Makes the names in the folder `name` and in its subfolders durable, also those that were not
    /// changed through this store. The name of the folder itself is not included.
    fn sync_tree(&self, name: &str) -> Result<()>;
}

/// Returns all names directly in the folder `name` of a store (its own is ""), in any order. `None`: there
/// is no such folder.
pub fn names_in(store: &dyn HostStore, name: &str) -> Result<Option<Vec<OsString>>> {
    let mut names = Vec::new();
    let is_there = store.each_name_in(name, &mut |last| {
        names.push(last);
        Ok(())
    })?;
    Ok(is_there.then_some(names))
}
