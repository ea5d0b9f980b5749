//! Copies of files and folders with modes, dates and extended attributes.

use std::collections::HashMap;
use std::fs::{self, File, FileTimes};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use bandsaw::platform::nodes;
use bandsaw::{Error, Kind};

use super::{FileOptions, LAYER, compress, failed, make_parents, print_copied};
use crate::failure::Outcome;
use crate::new_file;

/// Copies files, or the contents of folders, to `to`.
pub(super) fn copy(from: &[&Path], to: &Path, files: FileOptions) -> Outcome {
    let mut copy = Copy {
        files,
        is_root: rustix::process::geteuid().is_root(),
        links: HashMap::new(),
    };
    for from in from {
        let meta = fs::symlink_metadata(from).map_err(|error| failed("find", error, from))?;
        if meta.is_dir() && is_inside(to, from).map_err(|error| failed("find", error, to))? {
            let message = "is inside the folder to be copied";
            return Err(Error::new(Kind::Conflict, LAYER, message)
                .in_file(to)
                .into());
        }
        if !meta.is_dir() && to.is_dir() {
            let name = from.file_name().unwrap_or_default();
            copy.node(from, &to.join(name))?;
        } else {
            make_parents(to)?;
            copy.node(from, to)?;
        }
    }
    Ok(())
}

/// A copy of several trees.
struct Copy {
    files: FileOptions,
    /// Owners are kept.
    is_root: bool,
    /// The copies of files with several names, by device and inode.
    links: HashMap<(u64, u64), PathBuf>,
}

impl Copy {
    /// Copies a file, a symbolic link, or a folder into an existing one.
    fn node(&mut self, from: &Path, to: &Path) -> Outcome {
        let meta = fs::symlink_metadata(from).map_err(|error| failed("find", error, from))?;
        if meta.is_dir() {
            return self.folder(from, to, &meta);
        }
        if to.is_dir() && !to.is_symlink() {
            return Err(
                Error::new(Kind::Conflict, LAYER, "is a folder, expected a file")
                    .in_file(to)
                    .into(),
            );
        }
        if !meta.is_symlink() && !meta.is_file() {
            let message = "a special file, which is not copied";
            return Err(Error::new(Kind::Unsupported, LAYER, message)
                .in_file(from)
                .into());
        }
        let identity = (meta.dev(), meta.ino());
        match fs::symlink_metadata(to) {
            Ok(there) if (there.dev(), there.ino()) == identity => {
                return Err(Error::conflict(LAYER, "is the file to be copied")
                    .in_file(to)
                    .into());
            }
            // A copy that fails leaves what it was to replace.
            Ok(_) => {
                let aside = new_file::aside(to);
                let copied = self.leaf(from, &aside, &meta).and_then(|()| {
                    fs::rename(&aside, to).map_err(|error| failed("replace", error, to))?;
                    Ok(())
                });
                // After an error, or where both are names of the same file: a rename leaves these.
                let _ = fs::remove_file(&aside);
                copied?;
            }
            Err(_) => self.leaf(from, to, &meta)?,
        }
        if meta.is_file() && meta.nlink() > 1 {
            self.links.entry(identity).or_insert_with(|| to.to_owned());
        }
        Ok(())
    }

    /// Copies a file or a symbolic link to a name that is free.
    fn leaf(&self, from: &Path, to: &Path, meta: &fs::Metadata) -> Outcome {
        if self.files.named {
            print_copied(from);
        }
        if meta.is_symlink() {
            let target = fs::read_link(from).map_err(|error| failed("read", error, from))?;
            symlink(target, to).map_err(|error| failed("make the link", error, to))?;
            return self.own(to, meta);
        }
        if let Some(first) = self.links.get(&(meta.dev(), meta.ino())) {
            fs::hard_link(first, to).map_err(|error| failed("make the link", error, to))?;
            return Ok(());
        }
        let mut source = File::open(from).map_err(|error| failed("open", error, from))?;
        let mut target = File::create_new(to).map_err(|error| failed("create", error, to))?;
        io::copy(&mut source, &mut target).map_err(|error| failed("write", error, to))?;
        self.finish(&source, &target, meta, to)?;
        drop(target); // an open file is not compressed
        if self.files.compressed && meta.nlink() == 1 {
            compress::compress(to)?;
        }
        Ok(())
    }

    fn folder(&mut self, from: &Path, to: &Path, meta: &fs::Metadata) -> Outcome {
        if !to.is_dir() {
            fs::create_dir(to).map_err(|error| failed("create", error, to))?;
        }
        let entries = fs::read_dir(from)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(|error| failed("list", error, from))?;
        let mut names: Vec<_> = entries.iter().map(fs::DirEntry::file_name).collect();
        names.sort();
        for name in names {
            self.node(&from.join(&name), &to.join(&name))?;
        }
        // Last, as the copies of its entries change its date and its mode may forbid them.
        let open = |path: &Path| File::open(path).map_err(|error| failed("open", error, path));
        self.finish(&open(from)?, &open(to)?, meta, to)
    }

    /// Copies everything but the contents.
    fn finish(&self, from: &File, to: &File, meta: &fs::Metadata, path: &Path) -> Outcome {
        if self.files.attributes {
            let all = nodes::xattrs(from.as_fd());
            for (name, value) in all.map_err(|error| failed("read attributes", error, path))? {
                nodes::set_xattr(to.as_fd(), &name, &value)
                    .map_err(|error| failed("set attributes", error, path))?;
            }
        }
        self.own(path, meta)?;
        let times = FileTimes::new()
            .set_accessed(meta.accessed()?)
            .set_modified(meta.modified()?);
        to.set_permissions(fs::Permissions::from_mode(meta.mode() & 0o7777))
            .and_then(|()| to.set_times(times))
            .map_err(|error| failed("set metadata", error, path))?;
        Ok(())
    }

    fn own(&self, path: &Path, meta: &fs::Metadata) -> Outcome {
        if self.is_root {
            lchown(path, Some(meta.uid()), Some(meta.gid()))
                .map_err(|error| failed("set the owner", error, path))?;
        }
        Ok(())
    }
}

/// Returns true if `path`, which may not exist yet, is in `folder` or is the same.
pub(super) fn is_inside(path: &Path, folder: &Path) -> io::Result<bool> {
    let (path, folder) = (std::path::absolute(path)?, folder.canonicalize()?);
    let existing = path.ancestors().find_map(|path| path.canonicalize().ok());
    Ok(existing.is_some_and(|existing| existing.starts_with(folder)))
}
