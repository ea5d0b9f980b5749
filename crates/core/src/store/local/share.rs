//! Files that share the storage of others.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::copy::keep_mode_of;
use super::{LAYER, Local};
use crate::store::{Put, check_name};
use crate::{Error, Result, platform};

impl Local {
    /// Returns the path of `name` on the host.
    pub fn host_path(&self, name: &str) -> PathBuf {
        self.path(name)
    }

    /// Creates a hard link `to`, which must not exist, to `from`. `false`: hard links are not
    /// supported here, or there is no `from`.
    pub fn link(&self, from: &str, to: &str) -> Result<bool> {
        check_name(to)?;
        self.check_changeable(to)?;
        let Some((old, old_last)) = self.place(from)? else {
            return Ok(false);
        };
        let (new, new_last) = self.make_place(to)?;
        match rustix::fs::linkat(&*old, old_last, &*new, new_last, AtFlags::empty()) {
            Ok(()) => {
                self.mark(to);
                Ok(true)
            }
            Err(
                Errno::NOENT
                | Errno::PERM
                | Errno::NOTSUP
                | Errno::NOSYS
                | Errno::MLINK
                | Errno::XDEV,
            ) => Ok(false),
            Err(errno) => Err(self.failed("link", from, errno)),
        }
    }

    /// Creates or replaces `to` as a copy that shares the storage of `from` until either is
    /// written. `false`: not supported by the host.
    pub fn clone_of(&self, from: &str, to: &str) -> Result<bool> {
        self.clone_from(&self.source(from)?, to)
    }

    /// Does the same with an open file.
    pub(super) fn clone_from(&self, source: &File, to: &str) -> Result<bool> {
        check_name(to)?;
        let mut cannot = false;
        let cloned = self.finish(to, Put::Replace, |folder, new| match platform::clone_file(
            source,
            folder.as_fd(),
            new,
        )? {
            Some(clone) => {
                keep_mode_of(source, &clone).and_then(|()| platform::make_durable(&clone))
            }
            None => {
                cannot = true;
                Err(io::ErrorKind::Unsupported.into())
            }
        });
        if cannot { Ok(false) } else { cloned }
    }

    /// Opens a file to be copied.
    pub(super) fn source(&self, from: &str) -> Result<File> {
        let source = self.place(from)?.map(|(folder, last)| {
            rustix::fs::openat(
                &*folder,
                last,
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )
        });
        match source {
            Some(Ok(file)) => Ok(File::from(file)),
            None | Some(Err(Errno::NOENT)) => Err(self.named(Error::not_found(LAYER, from), "")),
            Some(Err(errno)) => Err(self.failed("open", from, errno)),
        }
    }
}
