//! Creation of one file, symbolic link or special node in an open folder of the host.
//!
//! No function here follows a link or takes a path: a name is one checked component in an open
//! folder. The names in a volume cannot lead out of the target.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::existing::{self, failed};
use super::{LAYER, copy};
use crate::device::BlockDevice;
use crate::fs::{Attributes, FileKind, FileSystem, Fork, Timestamp};
use crate::platform::nodes;
use crate::progress::Progress;
use crate::size::to_usize;
use crate::sync::{Mutex, MutexGuard};
use crate::{Error, Kind, Result};

/// Options and state for the creation of all nodes.
#[derive(Clone, Copy)]
pub(super) struct NodeMaker<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) progress: &'a dyn Progress,
    pub(super) overwrite: bool,
    pub(super) special_files: bool,
    pub(super) setuid: bool,
    pub(super) resume: bool,
    pub(super) fresh: bool,
    pub(super) owners: Owners,
    pub(super) made_here: &'a CreatedNodes,
}

/// The nodes created on the host so far, and the folders filled, by device and inode. Detects two
/// names of a volume that are the same name in a folder of the host, because it ignores case or
/// composes names, and would overwrite each other.
#[derive(Debug, Default)]
pub(super) struct CreatedNodes(Mutex<HashSet<(u64, u64)>>);

impl CreatedNodes {
    /// Locks the set. Held while a node is created, so that the node is in the set before another
    /// thread looks up its name.
    fn lock(&self) -> MutexGuard<'_, HashSet<(u64, u64)>> {
        self.0.lock()
    }

    /// Adds `name` in `folder`, which was just created, or is being filled.
    pub(super) fn add(&self, folder: BorrowedFd<'_>, name: &str) {
        self.lock().extend(identity(folder, name));
    }

    /// Refuses `name` in `folder` if the existing node was created by this export.
    pub(super) fn check(&self, folder: BorrowedFd<'_>, name: &str) -> Result<()> {
        match identity(folder, name) {
            Some(identity) if self.lock().contains(&identity) => Err(collision()),
            _ => Ok(()),
        }
    }
}

/// Returns device and inode of an entry; `None` if it cannot be read.
pub(super) fn identity(folder: BorrowedFd<'_>, name: &str) -> Option<(u64, u64)> {
    let name = nodes::c_name(name.as_bytes()).ok()?;
    nodes::node_at(folder, &name).ok().map(|node| node.identity)
}

fn collision() -> Error {
    let message = "name collision: the host folder ignores case or the composition of characters";
    Error::new(Kind::Unsupported, LAYER, message)
}

/// The owner of new nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owners {
    /// The user and group that new nodes get by default.
    own: (u32, u32),
    /// True if owners can be changed, which only root can do.
    restore: bool,
}

impl Owners {
    /// Returns the owners for an export to the open folder `target`.
    pub(super) fn new(target: BorrowedFd<'_>) -> io::Result<Self> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        // A folder with the set-group-ID bit passes its own group on to new nodes.
        let inherited = nodes::node_of(target)?.mode & 0o2000 != 0;
        let gid = if inherited { u32::MAX } else { gid.as_raw() };
        Ok(Self {
            own: (uid.as_raw(), gid),
            restore: uid.is_root(),
        })
    }

    fn must_change(&self, attributes: &Attributes) -> bool {
        self.restore && self.own != (attributes.uid, attributes.gid)
    }

    /// Returns the permissions, without the set-user-ID and set-group-ID bits if the node does not
    /// get its owner.
    fn mode(&self, attributes: &Attributes) -> Mode {
        let theirs = self.restore || self.own == (attributes.uid, attributes.gid);
        Mode::from_raw_mode(rustix::fs::RawMode::from(
            attributes.mode & if theirs { 0o7777 } else { 0o1777 },
        ))
    }
}

/// Refuses names that are not a single valid path component on this host.
pub(super) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || matches!(name, "." | "..") || name.contains(['/', '\0']) {
        return Err(Error::unsupported(
            LAYER,
            "the host does not support this name",
        ));
    }
    Ok(())
}

impl NodeMaker<'_> {
    /// Creates the node described by `attributes` as `name` in `folder`. Returns the bytes of
    /// contents. Non-fatal errors are passed to `problem`.
    pub(super) fn make(
        &self,
        folder: BorrowedFd<'_>,
        name: &str,
        attributes: &Attributes,
        buffer: &mut [u8],
        problem: &mut dyn FnMut(Error),
    ) -> Result<u64> {
        check_name(name)?;
        self.progress.check()?;
        match attributes.kind {
            FileKind::File => self.file(folder, name, attributes, buffer, problem),
            FileKind::Symlink => self.symlink(folder, name, attributes).map(|()| 0),
            FileKind::Folder => Err(Error::invalid(LAYER, "internal: unexpected folder")),
            _ => self.special(folder, name, attributes).map(|()| 0),
        }
    }

    /// Calls `create`, and with `overwrite` once more after removing an existing entry that is not
    /// a folder.
    pub(super) fn create<T>(
        &self,
        folder: BorrowedFd<'_>,
        name: &str,
        create: impl Fn() -> rustix::io::Result<T>,
    ) -> Result<T> {
        if !self.overwrite {
            return create().map_err(failed("create"));
        }
        let mut made_here = self.made_here.lock();
        let made = match create() {
            Err(Errno::EXIST) => {
                if identity(folder, name).is_some_and(|identity| made_here.contains(&identity)) {
                    return Err(collision());
                }
                rustix::fs::unlinkat(folder, name, AtFlags::empty()).map_err(failed("replace"))?;
                create().map_err(failed("create"))?
            }
            result => result.map_err(failed("create"))?,
        };
        made_here.extend(identity(folder, name));
        Ok(made)
    }

    /// Returns true if a node is skipped because special files were not requested.
    pub(super) fn leaves_out(&self, attributes: &Attributes) -> bool {
        !self.special_files
            && !matches!(
                attributes.kind,
                FileKind::File | FileKind::Folder | FileKind::Symlink
            )
    }

    /// Returns true if a file has set-user-ID or set-group-ID bits that will be cleared.
    pub(super) fn clears_bits(&self, attributes: &Attributes) -> bool {
        attributes.kind == FileKind::File && self.owners.mode(attributes) != self.mode(attributes)
    }

    /// Returns the permissions to set.
    fn mode(&self, attributes: &Attributes) -> Mode {
        let mode = self.owners.mode(attributes);
        // The bits of a folder only determine the group of new files.
        match attributes.kind {
            FileKind::Folder => mode,
            _ if self.setuid => mode,
            _ => mode & !(Mode::SUID | Mode::SGID),
        }
    }

    fn file(
        &self,
        folder: BorrowedFd<'_>,
        name: &str,
        attributes: &Attributes,
        buffer: &mut [u8],
        problem: &mut dyn FnMut(Error),
    ) -> Result<u64> {
        let contents = self.fs.open(attributes.id, Fork::Data)?;
        let len = contents.info().len;
        let part = self.resume.then(|| existing::part_name(attributes.id));
        if let Some(part) = part.as_ref().filter(|_| !self.fresh) {
            let is_complete = existing::is_file(folder, name, attributes, len)?;
            // A run that was killed after it had named the file leaves the other name, too.
            self.made_here.check(folder, part)?;
            existing::remove_part(folder, part)?;
            if is_complete {
                self.made_here.add(folder, name);
                return Ok(0);
            }
        }
        let written = part.as_deref().unwrap_or(name);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = File::from(self.create(folder, written, || {
            rustix::fs::openat(folder, written, flags, mode)
        })?);
        let done = copy(&*contents, &file, buffer, self.progress).and_then(|()| {
            self.finish(file.as_fd(), attributes, problem)?;
            match part {
                Some(_) => existing::publish(folder, &file, len, (written, name)),
                None => Ok(()),
            }
        });
        if let Err(error) = done {
            // An incomplete file could be mistaken for a complete one. Best effort: the error is
            // reported.
            let _ = rustix::fs::unlinkat(folder, written, AtFlags::empty());
            return Err(error);
        }
        if part.is_some() && !self.fresh {
            self.made_here.add(folder, name);
        }
        Ok(len)
    }

    fn symlink(&self, folder: BorrowedFd<'_>, name: &str, attributes: &Attributes) -> Result<()> {
        let target = self.fs.read_link(attributes.id)?;
        if self.resume && existing::is_symlink(folder, name, &target)? {
            return self.finish_unopened(folder, name, attributes);
        }
        self.create(folder, name, || {
            rustix::fs::symlinkat(&*target, folder, name)
        })?;
        self.finish_unopened(folder, name, attributes)
    }

    fn special(&self, folder: BorrowedFd<'_>, name: &str, attributes: &Attributes) -> Result<()> {
        let kind = match attributes.kind {
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            FileKind::CharDevice => FileType::CharacterDevice,
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::File | FileKind::Folder | FileKind::Symlink => {
                return Err(Error::invalid(LAYER, "internal: not a special file"));
            }
        };
        let device = nodes::device_from_mac(attributes.device);
        let mode = Mode::RUSR | Mode::WUSR;
        self.create(folder, name, || {
            nodes::make_special(folder, name, kind, mode, device)
        })?;
        self.finish_unopened(folder, name, attributes)?;
        let mode = self.mode(attributes);
        rustix::fs::chmodat(folder, name, mode, AtFlags::empty()).map_err(failed("set permissions"))
    }

    /// Sets owner and dates of a node that cannot be opened.
    fn finish_unopened(
        &self,
        folder: BorrowedFd<'_>,
        name: &str,
        attributes: &Attributes,
    ) -> Result<()> {
        if self.owners.must_change(attributes) {
            let (uid, gid) = owner(attributes);
            rustix::fs::chownat(folder, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(failed("set owner"))?;
        }
        rustix::fs::utimensat(folder, name, &dates(attributes), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(failed("set dates"))
    }

    /// Sets extended attributes, owner, permissions, dates and flags of an open file or folder, in an
    /// order in which later changes do not undo earlier ones.
    pub(super) fn finish(
        &self,
        node: BorrowedFd<'_>,
        attributes: &Attributes,
        problem: &mut dyn FnMut(Error),
    ) -> Result<()> {
        if let Err(error) = self.xattrs(node, attributes, problem) {
            problem(error);
        }
        if self.owners.must_change(attributes) {
            let (uid, gid) = owner(attributes);
            rustix::fs::fchown(node, uid, gid).map_err(failed("set owner"))?;
        }
        rustix::fs::fchmod(node, self.mode(attributes)).map_err(failed("set permissions"))?;
        rustix::fs::futimens(node, &dates(attributes)).map_err(failed("set dates"))?;
        if let Some(created) = attributes.created
            && let Err(error) = nodes::set_created(node, (created.seconds, created.nanos))
        {
            problem(Error::io(LAYER, "set the creation date", error));
        }
        if let Err(error) = nodes::set_flags(node, attributes.flags) {
            problem(Error::io(LAYER, "set flags", error));
        }
        Ok(())
    }

    fn xattrs(
        &self,
        node: BorrowedFd<'_>,
        attributes: &Attributes,
        problem: &mut dyn FnMut(Error),
    ) -> Result<()> {
        for name in self.fs.xattrs(attributes.id)? {
            let Some(value) = self.fs.xattr(attributes.id, &name)? else {
                continue;
            };
            if let Err(error) = set_xattr(node, &name, &*value) {
                problem(error);
            }
        }
        Ok(())
    }
}

fn set_xattr(node: BorrowedFd<'_>, name: &str, value: &dyn BlockDevice) -> Result<()> {
    let refused =
        |kind, why: String| Error::new(kind, LAYER, format!("extended attribute {name}: {why}"));
    let len = value.info().len;
    if len > nodes::MAX_XATTR {
        return Err(refused(
            Kind::Unsupported,
            format!(
                "{len} bytes are more than the host can store ({})",
                nodes::MAX_XATTR
            ),
        ));
    }
    let mut bytes = vec![0; to_usize(len)];
    value.read_at(0, &mut bytes)?;
    nodes::set_xattr(node, name, &bytes)
        .map_err(|error| refused(Kind::Io, "the host does not store it".into()).caused_by(error))
}

fn owner(attributes: &Attributes) -> (Option<rustix::fs::Uid>, Option<rustix::fs::Gid>) {
    (
        Some(rustix::fs::Uid::from_raw(attributes.uid)),
        Some(rustix::fs::Gid::from_raw(attributes.gid)),
    )
}

fn dates(attributes: &Attributes) -> Timestamps {
    let date = |moment: Option<Timestamp>| match moment {
        Some(moment) => Timespec {
            tv_sec: moment.seconds,
            tv_nsec: moment.nanos.into(),
        },
        None => Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
    };
    Timestamps {
        last_access: date(attributes.accessed.or(attributes.modified)),
        last_modification: date(attributes.modified),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_this_run_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("old"), "old").unwrap();
        let target = File::open(folder.path()).unwrap();
        let device = std::sync::Arc::new(crate::device::Memory::from(
            crate::testing::fuzz::sample(false, 4096),
        ));
        let fs = crate::fs::hfsplus::HfsPlus::open(device).unwrap();
        let owners = Owners::new(target.as_fd()).unwrap();
        let made_here = CreatedNodes::default();
        let progress = &crate::progress::Silent;
        let maker = NodeMaker {
            fs: &fs,
            progress,
            overwrite: true,
            special_files: false,
            setuid: false,
            resume: false,
            fresh: false,
            owners,
            made_here: &made_here,
        };
        let make = |name: &str| {
            maker.create(target.as_fd(), name, || {
                rustix::fs::symlinkat("there", &target, name)
            })
        };
        make("old").unwrap();
        make("new").unwrap();
        // On a case-insensitive folder the second name is resolved to the node of the first.
        for name in ["old", "new"] {
            assert_eq!(make(name).unwrap_err().kind(), Kind::Unsupported, "{name}");
        }
    }
}
