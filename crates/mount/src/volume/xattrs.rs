//! Extended attributes: macOS's names with Linux's prefix `user.`. Setting the name [`COMPRESS`] stores
//! nothing: it compresses the file.

use bandsaw::codec::Level;
use bandsaw::decmpfs::{Method, PackOptions};
use bandsaw::device::{BlockDeviceExt, Memory};
use bandsaw::fs::{ExistingTarget, FileKind, NodeId};
use bandsaw::ops::compress::CompressOptions;
use bandsaw::{Error, Kind};
use fuser::{Errno, Request};

use super::{Answer, VolumeFs};

/// Prefix of attributes that Linux lets unprivileged users set.
const PREFIX: &str = "user.";
/// Prefixes with a meaning for Linux, which asks for some of them by itself.
const OF_LINUX: [&str; 3] = ["security.", "system.", "trusted."];
/// The name by which a file is compressed. Other file systems of Linux refuse it with EOPNOTSUPP, as they
/// do all unknown names of this prefix.
pub(super) const COMPRESS: &str = "system.bandsaw.compress";
/// Level of zlib, as of the command.
const LEVEL: u8 = 5;
/// Maximum size of a value in Linux's system calls, in bytes.
const MAX_VALUE_LEN: u64 = 64 << 10;
/// Flags of setxattr(2).
const CREATE: i32 = 1;
const REPLACE: i32 = 2;

/// Returns macOS's name of an attribute: without the prefix, which programs written for macOS omit.
fn mac_name(name: &str) -> Answer<&str> {
    if OF_LINUX.iter().any(|prefix| name.starts_with(prefix)) {
        return Err(Errno::EOPNOTSUPP);
    }
    match name.strip_prefix(PREFIX).unwrap_or(name) {
        "" => Err(Errno::EOPNOTSUPP),
        name => Ok(name),
    }
}

impl VolumeFs {
    /// Returns the names of the attributes, each terminated by a zero byte.
    pub(super) fn xattr_names(&self, node: NodeId) -> Answer<Vec<u8>> {
        let names = self
            .fs
            .xattrs(node)
            .map_err(|error| self.events.errno(&error))?;
        let mut list = Vec::new();
        for name in names {
            list.extend_from_slice(PREFIX.as_bytes());
            list.extend_from_slice(name.as_bytes());
            list.push(0);
        }
        Ok(list)
    }

    pub(super) fn xattr_value(&self, node: NodeId, name: &str) -> Answer<Vec<u8>> {
        let name = mac_name(name)?;
        let read = || -> bandsaw::Result<Option<Vec<u8>>> {
            let Some(value) = self.fs.xattr(node, name)? else {
                return Ok(None);
            };
            let len = value.info().len;
            if len > MAX_VALUE_LEN {
                return Err(Error::limit(
                    "mount",
                    "the attribute is too large for Linux (limit 64 KiB)",
                )
                .named(name));
            }
            value.read_vec(0, len as usize).map(Some)
        };
        match read() {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(Errno::NO_XATTR),
            Err(error) if error.kind() == Kind::Limit => Err(Errno::E2BIG),
            Err(error) => Err(self.events.errno(&error)),
        }
    }

    pub(super) fn set_xattr(
        &self,
        node: NodeId,
        name: &str,
        value: &[u8],
        flags: i32,
    ) -> Answer<()> {
        let name = mac_name(name)?;
        let (change, _inside) = self.changing()?;
        self.check_unlocked(node)?;
        if flags & REPLACE != 0
            && self
                .fs
                .xattr(node, name)
                .map_err(|error| self.events.errno(&error))?
                .is_none()
        {
            return Err(Errno::NO_XATTR);
        }
        let existing = if flags & CREATE != 0 {
            ExistingTarget::Error
        } else {
            ExistingTarget::Replace
        };
        change
            .set_xattr(node, name, &Memory::read_only(value), existing)
            .map_err(|error| self.events.errno(&error))
    }

    /// Compresses a file by the method that `value` names, `zlib`, `lzvn` or `lzfse`; an empty one means
    /// LZVN, which `ditto --hfsCompression` of macOS writes. Files with several names, empty and compressed
    /// ones, and those that would not shrink are left as they are.
    ///
    /// EPERM unless the request is by root or the owner, EBUSY if the file is open for writing, EINVAL for
    /// another method or an object that is not a regular file.
    pub(super) fn compress(&self, req: &Request, node: NodeId, value: &[u8]) -> Answer<()> {
        let method = match value {
            b"" | b"lzvn" => Method::Lzvn,
            b"zlib" => Method::Zlib,
            b"lzfse" => Method::Lzfse,
            _ => return Err(Errno::EINVAL),
        };
        let options = Level::new(LEVEL).and_then(|level| PackOptions::new(method, level));
        let options = CompressOptions::new(self.done(options)?);
        let (_, _inside) = self.changing()?;
        let found = self.check_unlocked(node)?;
        // Linux itself checks no permission for this prefix.
        if req.uid() != 0 && req.uid() != self.view.attr(&found).uid {
            return Err(Errno::EPERM);
        }
        if found.kind != FileKind::File {
            return Err(Errno::EINVAL);
        }
        if found.links > 1 {
            return Ok(());
        }
        let file = self.files.get(node);
        let compressed = file.compress(&self.volume(), &options);
        self.files.close(file);
        compressed.map_err(|error| match error.kind() {
            Kind::Conflict => Errno::EBUSY,
            _ => self.events.errno(&error),
        })
    }

    pub(super) fn remove_xattr(&self, node: NodeId, name: &str) -> Answer<()> {
        let name = mac_name(name)?;
        let (change, _inside) = self.changing()?;
        self.check_unlocked(node)?;
        change
            .remove_xattr(node, name)
            .map_err(|error| match error.kind() {
                Kind::NotFound => Errno::NO_XATTR,
                _ => self.events.errno(&error),
            })
    }
}
