//! Changes of a volume's tree: create, rename, remove, and set attributes.

use std::ffi::OsStr;
use std::sync::RwLockReadGuard;
use std::time::SystemTime;

use bandsaw::error::Place;
use bandsaw::fs::{
    Attributes, Change, ExistingTarget, FileKind, FileSystemMut, NewKind, NewNode, NodeId,
    Timestamp,
};
use bandsaw::{Kind, Reason, Result};
use fuser::{Errno, RenameFlags, Request, TimeOrNow};

use super::{Answer, VolumeFs, utf8};
use crate::attributes;

/// BSD flags of immutable objects, and of append-only ones.
const IMMUTABLE: u32 = 0x2 | 0x2_0000;
const APPEND_ONLY: u32 = 0x4 | 0x4_0000;
/// The set-group-ID bit: new entries of a folder inherit its group.
const SET_GROUP: u16 = 0o2000;
const SET_USER: u16 = 0o4000;
const GROUP_EXEC: u16 = 0o010;
/// Maximum length of a symbolic link's target.
const MAX_TARGET: usize = 1023;

/// Attributes that a SETATTR request changes, besides the length.
#[derive(Debug, Default)]
pub(super) struct AttributeChanges {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) atime: Option<TimeOrNow>,
    pub(super) mtime: Option<TimeOrNow>,
    pub(super) ctime: Option<SystemTime>,
}

impl VolumeFs {
    /// Returns the volume for a change, and a guard that keeps the mount from ending; fails with
    /// EROFS if it is read-only.
    pub(super) fn changing(&self) -> Answer<(&dyn FileSystemMut, RwLockReadGuard<'_, bool>)> {
        let change = self.change.as_deref().ok_or(Errno::EROFS)?;
        Ok((change, self.gate.enter()?))
    }

    fn described(&self, node: NodeId) -> Answer<Attributes> {
        self.fs
            .attributes(node)
            .map_err(|error| self.events.errno(&error))
    }

    /// Fails if macOS's flags make the object immutable.
    pub(super) fn check_unlocked(&self, node: NodeId) -> Answer<Attributes> {
        let found = self.described(node)?;
        if found.flags & (IMMUTABLE | APPEND_ONLY) != 0 {
            Err(Errno::EPERM)
        } else {
            Ok(found)
        }
    }

    /// Fails if macOS's flags forbid writing; `appending` is allowed for append-only files, too.
    pub(super) fn check_writable(&self, node: NodeId, appending: bool) -> Answer<()> {
        let refused = if appending {
            IMMUTABLE
        } else {
            IMMUTABLE | APPEND_ONLY
        };
        if self.described(node)?.flags & refused != 0 {
            Err(Errno::EPERM)
        } else {
            Ok(())
        }
    }

    /// Creates an object in a folder, owned by the requesting user.
    pub(super) fn make(
        &self,
        req: &Request,
        parent: NodeId,
        name: &OsStr,
        kind: NewKind,
        mode: u32,
    ) -> Answer<Attributes> {
        let name = utf8(name)?;
        let (change, _inside) = self.changing()?;
        let folder = self.described(parent)?;
        if folder.flags & IMMUTABLE != 0 {
            return Err(Errno::EPERM);
        }
        let inherits = folder.mode & SET_GROUP != 0;
        let is_folder = kind == NewKind::Folder;
        let mode = (mode & 0o7777) as u16 | if inherits && is_folder { SET_GROUP } else { 0 };
        let (uid, gid) = (req.uid(), if inherits { folder.gid } else { req.gid() });
        let too_long = matches!(&kind, NewKind::Symlink(target) if target.len() > MAX_TARGET);
        let made = change
            .create(
                parent,
                name,
                &NewNode {
                    mode,
                    uid,
                    gid,
                    ..NewNode::new(kind)
                },
            )
            .and_then(|id| change.attributes(id));
        made.map_err(|error| match error.kind() {
            Kind::Limit if too_long => Errno::ENAMETOOLONG,
            _ => self.events.errno(&error),
        })
    }

    /// Returns the kind of object that a MKNOD request creates.
    pub(super) fn special(mode: u32, rdev: u32) -> Answer<NewKind> {
        let device = || attributes::mac_device(rdev).ok_or(Errno::EINVAL);
        Ok(match mode & 0o170_000 {
            0 | 0o100_000 => NewKind::File,
            0o010_000 => NewKind::Special(FileKind::Fifo, 0),
            0o140_000 => NewKind::Special(FileKind::Socket, 0),
            0o020_000 => NewKind::Special(FileKind::CharDevice, device()?),
            0o060_000 => NewKind::Special(FileKind::BlockDevice, device()?),
            _ => return Err(Errno::EINVAL),
        })
    }

    pub(super) fn remove(&self, parent: NodeId, name: &OsStr) -> Answer<()> {
        let name = utf8(name)?;
        let (change, _inside) = self.changing()?;
        self.check_may_leave(parent, name)?;
        change
            .remove(parent, name)
            .map_err(|error| match error.kind() {
                Kind::Conflict => Errno::ENOTEMPTY,
                _ => self.events.errno(&error),
            })
    }

    /// Fails if macOS's flags on the folder or the entry forbid its removal; returns the entry's
    /// attributes.
    fn check_may_leave(&self, parent: NodeId, name: &str) -> Answer<Attributes> {
        self.check_unlocked(parent)?;
        let found = self
            .fs
            .lookup(parent, name)
            .map_err(|error| self.events.errno(&error))?
            .ok_or(Errno::ENOENT)?;
        if found.flags & (IMMUTABLE | APPEND_ONLY) != 0 {
            Err(Errno::EPERM)
        } else {
            Ok(found)
        }
    }

    pub(super) fn link(&self, node: NodeId, parent: NodeId, name: &OsStr) -> Answer<Attributes> {
        let name = utf8(name)?;
        let (change, _inside) = self.changing()?;
        self.check_unlocked(node)?;
        let linked = change
            .link(node, parent, name)
            .and_then(|()| change.attributes(node));
        linked.map_err(|error| match error.kind() {
            Kind::Unsupported => Errno::EPERM,
            // Too many names are an error about this name, a full volume is none.
            Kind::Limit
                if matches!(error.place(), Place::Name(_))
                    && error.reason() != Some(Reason::NameTooLong) =>
            {
                Errno::EMLINK
            }
            _ => self.events.errno(&error),
        })
    }

    pub(super) fn rename(
        &self,
        from: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
        flags: RenameFlags,
    ) -> Answer<()> {
        let (old, new) = (utf8(from.1)?, utf8(to.1)?);
        let (change, _inside) = self.changing()?;
        if flags == RenameFlags::RENAME_EXCHANGE {
            self.check_may_leave(from.0, old)?;
            self.check_may_leave(to.0, new)?;
            return change
                .swap((from.0, old), (to.0, new))
                .map_err(|error| self.events.errno(&error));
        }
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return Err(Errno::EINVAL); // neither format has what an overlay leaves behind
        }
        let moved = self.check_may_leave(from.0, old)?;
        let replaced = match self.check_may_leave(to.0, new) {
            Err(errno) if errno == Errno::ENOENT => None,
            found => Some(found?),
        };
        let existing = if flags.is_empty() {
            ExistingTarget::Replace
        } else {
            ExistingTarget::Error
        };
        change
            .rename((from.0, old), (to.0, new), existing)
            .map_err(|error| match (error.kind(), &replaced) {
                (Kind::Conflict, Some(there)) if existing == ExistingTarget::Replace => {
                    match (moved.kind, there.kind) {
                        (FileKind::Folder, FileKind::Folder) => Errno::ENOTEMPTY,
                        (FileKind::Folder, _) => Errno::ENOTDIR,
                        (_, FileKind::Folder) => Errno::EISDIR,
                        _ => Errno::EEXIST,
                    }
                }
                _ => self.events.errno(&error),
            })
    }

    /// Sets the length of a file; clears the setuid and setgid bits unless the user may keep them.
    pub(super) fn resize(&self, req: &Request, node: NodeId, len: u64) -> Answer<()> {
        let (_, _inside) = self.changing()?;
        self.check_writable(node, false)?;
        let file = self.files.get(node);
        file.count_writer(true); // so that it is not compressed meanwhile
        let done = file.set_len(&self.volume(), len);
        file.count_writer(false);
        self.files.close(file);
        done.map_err(|error| self.events.errno(&error))?;
        if req.uid() != 0 {
            self.drop_privileges(node)
        } else {
            Ok(())
        }
    }

    /// Clears the setuid and setgid bits of a file whose contents were changed.
    pub(super) fn drop_privileges(&self, node: NodeId) -> Answer<()> {
        let (change, _inside) = self.changing()?;
        let found = self.described(node)?;
        match unprivileged(&found) {
            Some(mode) => self.done(change.set_attributes(
                node,
                &Change {
                    mode: Some(mode),
                    ..Change::default()
                },
            )),
            None => Ok(()),
        }
    }

    pub(super) fn describe(&self, node: NodeId, wanted: &AttributeChanges) -> Answer<Attributes> {
        let (change, _inside) = self.changing()?;
        let found = self.described(node)?;
        let dates_only = wanted.mode.is_none() && wanted.uid.is_none() && wanted.gid.is_none();
        if found.flags & (IMMUTABLE | APPEND_ONLY) != 0 && !dates_only {
            return Err(Errno::EPERM);
        }
        // If recorded owners are not respected, a chown is ignored without an error, as on macOS.
        let over = self.view.owner;
        let uid = wanted.uid.filter(|_| over.0.is_none());
        let gid = wanted.gid.filter(|_| over.1.is_none());
        let mut mode = wanted.mode.map(|mode| (mode & 0o7777) as u16);
        if mode.is_none() && (uid.is_some() || gid.is_some()) {
            mode = unprivileged(&found);
        }
        let limited = |time: SystemTime| {
            let time = Timestamp::from(time);
            self.epoch.map_or(time, |epoch| time.min(epoch))
        };
        let moment = |time: &Option<TimeOrNow>| {
            time.map(|time| match time {
                TimeOrNow::SpecificTime(time) => limited(time),
                TimeOrNow::Now => limited(SystemTime::now()),
            })
        };
        let change_to = Change {
            mode,
            uid,
            gid,
            modified: moment(&wanted.mtime),
            accessed: moment(&wanted.atime),
            changed: wanted.ctime.map(limited),
            ..Change::default()
        };
        if change_to == Change::default() {
            return Ok(found);
        }
        self.done(
            change
                .set_attributes(node, &change_to)
                .and_then(|()| change.attributes(node)),
        )
    }

    /// Converts the result for the kernel; notifies the owner of faults of the image.
    pub(super) fn done<T>(&self, result: Result<T>) -> Answer<T> {
        result.map_err(|error| self.events.errno(&error))
    }
}

/// Returns the mode of a file without its setuid and setgid bits; `None` if it has none.
fn unprivileged(found: &Attributes) -> Option<u16> {
    let group = if found.mode & GROUP_EXEC != 0 {
        SET_GROUP
    } else {
        0
    };
    let mode = found.mode & !(SET_USER | group);
    (found.kind == FileKind::File && mode != found.mode).then_some(mode)
}
