//! Times, owners and folders of a folder of the host.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::CWD;

use super::{LAYER, Local};
use crate::platform::nodes;
use crate::store::{Attributes, HostStore, NodeKind, check_folder, check_name};
use crate::{Error, Result, platform};

impl Local {
    /// Gives a file the permissions, the time of modification, the owner and the extended attributes
    /// of the file at `like`, durably. What this process may not set, or the file system does not
    /// keep, is left out.
    pub fn set_attributes_like(&self, name: &str, like: &Path) -> Result<()> {
        let file = self.attributed(name)?;
        let set = || {
            let like = File::from(nodes::open_file(CWD, like)?);
            let meta = like.metadata()?;
            let _ = fchown(&file, Some(meta.uid()), Some(meta.gid()));
            for (name, value) in nodes::xattrs(like.as_fd())? {
                let _ = nodes::set_xattr(file.as_fd(), &name, &value);
            }
            let _ = file.set_permissions(meta.permissions());
            let _ = file.set_modified(meta.modified()?);
            make_attributes_durable(&file)
        };
        set().map_err(|source| self.failed("set the attributes", name, source))
    }

    /// Opens a file whose attributes are set.
    fn attributed(&self, name: &str) -> Result<File> {
        check_name(name)?;
        self.check_changeable(name)?;
        self.source(name)
    }

    fn metadata_of(&self, name: &str) -> io::Result<Metadata> {
        match name {
            "" => fs::metadata(self.path("")),
            _ => fs::symlink_metadata(self.path(name)),
        }
    }
}

impl HostStore for Local {
    fn host_path(&self, name: &str) -> PathBuf {
        match name {
            "" => self.folders.root().to_owned(),
            _ => self.path(name),
        }
    }

    fn elsewhere(&self, folder: &Path) -> Arc<dyn HostStore> {
        let mut store = Self::new(folder);
        // Errors about a folder in a bundle name the bundle, too.
        if let Some(rest) = folder
            .strip_prefix(self.folders.root())
            .ok()
            .and_then(Path::to_str)
        {
            let names = [&*self.prefix, rest]
                .into_iter()
                .filter(|name| !name.is_empty());
            store.prefix = names.collect::<Vec<_>>().join("/");
        }
        Arc::new(store)
    }

    fn named(&self, error: Error, name: &str) -> Error {
        self.named(error, name)
    }

    fn attributes(&self, name: &str) -> Result<Option<Attributes>> {
        check_folder(name)?;
        match self.metadata_of(name) {
            Ok(meta) => Ok(Some(attributes(&meta))),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(self.failed("read metadata", name, source)),
        }
    }

    fn each_name_in(
        &self,
        name: &str,
        each: &mut dyn FnMut(OsString) -> Result<()>,
    ) -> Result<bool> {
        check_folder(name)?;
        let failed = |source| self.failed("list", name, source);
        let entries = match fs::read_dir(self.path(name)) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(false),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            each(entry.map_err(failed)?.file_name())?;
        }
        Ok(true)
    }

    fn set_modified(&self, name: &str, nanos: i64) -> Result<()> {
        let file = self.attributed(name)?;
        let distance = Duration::from_nanos(nanos.unsigned_abs());
        let time = match nanos < 0 {
            true => UNIX_EPOCH - distance,
            false => UNIX_EPOCH + distance,
        };
        let set = file
            .set_modified(time)
            .and_then(|()| make_attributes_durable(&file));
        set.map_err(|source| self.failed("set the time", name, source))
    }

    fn set_owner_of(&self, name: &str, like: &str) -> Result<()> {
        let file = self.attributed(name)?;
        let set = || {
            let meta = self.metadata_of(like)?;
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (meta.uid(), meta.gid()) {
                // Only the administrator may; for others the owner is who runs the file server, or
                // is not asked for.
                let _ = fchown(&file, Some(meta.uid()), Some(meta.gid()));
            }
            file.set_permissions(meta.permissions())?;
            make_attributes_durable(&file)
        };
        set().map_err(|source| self.failed("set permissions", name, source))
    }

    fn link(&self, from: &str, to: &str) -> Result<bool> {
        self.link(from, to)
    }

    fn clone_of(&self, from: &str, to: &str) -> Result<bool> {
        self.clone_of(from, to)
    }

    fn copy_from(&self, from: &Path, to: &str) -> Result<bool> {
        // The folder itself may be a symbolic link, and lie behind others.
        let (folder, last) = match (
            from.parent(),
            from.file_name().and_then(|name| name.to_str()),
        ) {
            (Some(folder), Some(last)) => (folder, last),
            _ => return Err(Error::unsupported(LAYER, "the name is not UTF-8").in_file(from)),
        };
        let source = Self::new(folder).source(last)?;
        if self.clone_from(&source, to)? {
            return Ok(true);
        }
        self.copy_of(&source, to)?;
        Ok(false)
    }

    fn rename_folder(&self, from: &str, to: &str) -> Result<bool> {
        check_name(from)?;
        check_name(to)?;
        self.check_changeable(from)?;
        self.folders.close(from);
        self.folders.close(to);
        match fs::rename(self.path(from), self.path(to)) {
            Ok(()) => {
                self.mark(from);
                self.mark(to);
                Ok(true)
            }
            Err(source)
                if matches!(
                    source.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                ) =>
            {
                Ok(false)
            }
            Err(source) => Err(self.failed("rename", from, source)),
        }
    }

    fn remove_tree(&self, name: &str) -> Result<()> {
        check_name(name)?;
        self.check_changeable(name)?;
        self.folders.close(name);
        match fs::remove_dir_all(self.path(name)) {
            Ok(()) => {
                self.mark(name);
                Ok(())
            }
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(self.failed("remove", name, source)),
        }
    }

    fn remove_leftovers(&self, name: &str, prefix: &str) {
        platform::remove_leftovers(&self.path(name), prefix);
    }

    fn sync_tree(&self, name: &str) -> Result<()> {
        check_folder(name)?;
        let synced = sync_tree(&self.path(name));
        synced.map_err(|source| self.failed("make the names durable", name, source))
    }
}

fn sync_tree(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        }
    }
    platform::sync_folder(folder)
}

/// Makes times and permissions durable, too: fdatasync may omit them.
fn make_attributes_durable(file: &File) -> io::Result<()> {
    platform::make_names_durable(file)
}

fn attributes(meta: &Metadata) -> Attributes {
    let nanos =
        |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    let kind = match meta.file_type() {
        kind if kind.is_file() => NodeKind::File,
        kind if kind.is_dir() => NodeKind::Folder,
        _ => NodeKind::Other,
    };
    Attributes {
        kind,
        len: meta.len(),
        modified: nanos(meta.mtime(), meta.mtime_nsec()),
        changed: nanos(meta.ctime(), meta.ctime_nsec()),
        inode: meta.ino(),
        links: meta.nlink(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Open, Put, Store, names_in};

    fn store() -> (tempfile::TempDir, Local) {
        let folder = tempfile::tempdir().unwrap();
        let store = Local::new(folder.path());
        (folder, store)
    }

    #[test]
    fn times_links_and_owners_are_those_that_were_set() {
        let (_folder, store) = store();
        store.put("a/one", b"x", Put::Replace).unwrap();
        store.set_modified("a/one", -1_500_000_000).unwrap();
        assert!(HostStore::link(&store, "a/one", "b/two").unwrap());
        let one = store.attributes("a/one").unwrap().unwrap();
        assert_eq!((one.len, one.links, one.modified), (1, 2, -1_500_000_000));
        assert_eq!(store.attributes("b/two").unwrap(), Some(one));
        assert_eq!(store.attributes("b/three").unwrap(), None);
        let kind = |name| store.attributes(name).unwrap().unwrap().kind;
        assert_eq!((kind(""), kind("a")), (NodeKind::Folder, NodeKind::Folder));
        store.put("like", b"", Put::Replace).unwrap();
        let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o640);
        fs::set_permissions(store.path("like"), mode.clone()).unwrap();
        store.set_owner_of("a/one", "like").unwrap();
        let found = fs::metadata(store.path("a/one")).unwrap().permissions();
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&found) & 0o777,
            0o640
        );
        store.copy_from(&store.path("a/one"), "c/copy").unwrap();
        let copy = store.attributes("c/copy").unwrap().unwrap();
        assert_eq!((copy.len, copy.links), (1, 1));
    }

    #[test]
    fn renamed_and_removed_folders_are_no_longer_written_to() {
        let (folder, store) = store();
        store.put("new/bands/0", b"x", Put::Replace).unwrap();
        assert!(store.rename_folder("new", "state").unwrap());
        store.put("new/bands/1", b"y", Put::Replace).unwrap();
        assert!(folder.path().join("state/bands/0").exists());
        assert!(folder.path().join("new/bands/1").exists());
        assert!(!store.rename_folder("new", "state").unwrap());
        store.sync_tree("").unwrap();
        store.remove_tree("state").unwrap();
        store.remove_tree("state").unwrap();
        assert_eq!(
            crate::store::names_in(&store, "").unwrap().unwrap(),
            ["new"]
        );
        assert_eq!(names_in(&store, "state").unwrap(), None);
        store.put("state/bands/2", b"z", Put::Replace).unwrap();
        assert!(store.open("state/bands/2", Open::Read).unwrap().is_some());
        store.sync().unwrap();
    }
}
