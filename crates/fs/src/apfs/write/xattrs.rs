//! Extended attributes: short ones in their records, long ones and resource forks in streams
//! (§8.4).

use zerocopy::IntoBytes;

use super::LAYER;
use super::contents::{Extent, PIECE};
use super::extents::StreamIds;
use super::inode::Inode;
use super::volume::{Volume, corrupt};
use crate::apfs::layout::{
    FileId, MAX_EMBEDDED_XATTR, RecordKey, XattrRaw, XattrStreamRaw, XattrValue, inode_flags,
    record_type, xattr_flags, xattr_name,
};
use crate::{ExistingTarget, NodeId, UF_COMPRESSED};
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Kind, Result};

/// Maximum length of an attribute name in bytes.
const MAX_NAME: usize = 127;
/// Length of Finder info in bytes.
const FINDER_INFO: u64 = 32;

impl Volume {
    pub(super) fn set_xattr(
        &mut self,
        node: NodeId,
        name: &str,
        value: &dyn BlockDevice,
        existing: ExistingTarget,
    ) -> Result<()> {
        check_name(name)?;
        let len = value.info().len;
        if name == xattr_name::FINDER_INFO && len != FINDER_INFO {
            return Err(
                Error::invalid(LAYER, "invalid Finder info: expected 32 bytes").named(name),
            );
        }
        if name == xattr_name::RESOURCE_FORK && len == 0 {
            return match self.remove_xattr(node, name) {
                Err(error) if error.kind() == Kind::NotFound => Ok(()),
                done => done,
            };
        }
        self.change(true, |volume| {
            let mut inode = volume.object(node)?;
            check_changeable(&inode, name)?;
            let key = RecordKey::named(inode.id, record_type::XATTR, name.as_bytes());
            if let Some(old) = volume.record(key)? {
                if existing == ExistingTarget::Error {
                    return Err(Error::conflict(LAYER, "already exists").named(name));
                }
                volume.drop_xattr_stream(&old)?;
            }
            if len > MAX_EMBEDDED_XATTR as u64 || name == xattr_name::RESOURCE_FORK {
                volume.put_stream(&inode, name, value)?;
            } else {
                let bytes = value.read_vec(0, to_usize(len))?;
                let head = XattrRaw {
                    flags: xattr_flags::EMBEDDED.into(),
                    len: narrow::<u16>(len).into(),
                };
                volume.put(key, &[head.as_bytes(), &bytes].concat())?;
            }
            mark(&mut inode, name, true);
            inode.raw.changed = volume.date();
            volume.put_inode(&inode)
        })
    }

    pub(super) fn remove_xattr(&mut self, node: NodeId, name: &str) -> Result<()> {
        self.change(false, |volume| {
            let mut inode = volume.object(node)?;
            check_changeable(&inode, name)?;
            let key = RecordKey::named(inode.id, record_type::XATTR, name.as_bytes());
            let old = volume
                .record(key)?
                .ok_or_else(|| Error::not_found(LAYER, name))?;
            volume.drop_xattr_stream(&old)?;
            volume.remove_record(key)?;
            mark(&mut inode, name, false);
            inode.raw.changed = volume.date();
            volume.put_inode(&inode)
        })
    }

    /// Writes a value to a new stream.
    fn put_stream(&mut self, inode: &Inode, name: &str, value: &dyn BlockDevice) -> Result<()> {
        let mut stream = self.new_xattr_stream(inode.id);
        let len = value.info().len;
        let nothing = bandsaw_core::device::Memory::read_only([]);
        self.resize_stream(&mut stream, &nothing, len, false)?;
        let mut at = 0;
        while at < len {
            let piece = value.read_vec(at, to_usize(PIECE.min(len - at)))?;
            self.write_stream(&mut stream, &nothing, at, &piece)?;
            at += piece.len() as u64;
        }
        self.put_xattr_stream(inode.id, name, &stream)
    }

    /// Returns a new empty stream for an attribute.
    pub(super) fn new_xattr_stream(&mut self, owner: FileId) -> Extent {
        let ids = StreamIds {
            stream: self.next_id(),
            owner,
        };
        Extent {
            ids,
            raw: self.new_stream(),
            holes: 0,
            sparse: false,
        }
    }

    /// Writes the record of an attribute that is stored in a stream.
    pub(super) fn put_xattr_stream(
        &mut self,
        id: FileId,
        name: &str,
        stream: &Extent,
    ) -> Result<()> {
        let value = XattrStreamRaw {
            stream_id: stream.ids.stream.into(),
            stream: stream.raw,
        };
        let head = XattrRaw {
            flags: xattr_flags::DATA_STREAM.into(),
            len: narrow::<u16>(size_of::<XattrStreamRaw>()).into(),
        };
        let key = RecordKey::named(id, record_type::XATTR, name.as_bytes());
        self.put(key, &[head.as_bytes(), value.as_bytes()].concat())
    }

    /// Frees the blocks of a value that is stored in a stream.
    pub(super) fn drop_xattr_stream(&mut self, record: &[u8]) -> Result<()> {
        match XattrValue::parse(record) {
            Some(XattrValue::Stream(at)) => self.cut(at.stream_id.into(), &(0..u64::MAX)).map(drop),
            Some(XattrValue::Embedded(_)) => Ok(()),
            None => Err(Error::new(
                Kind::Corrupt,
                LAYER,
                "malformed attribute record: its value cannot be freed",
            )),
        }
    }

    /// Returns the stream of an attribute, `None` if there is no such attribute.
    pub(super) fn xattr_stream(&self, id: FileId, name: &str) -> Result<Option<Extent>> {
        let Some(record) =
            self.record(RecordKey::named(id, record_type::XATTR, name.as_bytes()))?
        else {
            return Ok(None);
        };
        match XattrValue::parse(&record) {
            Some(XattrValue::Stream(at)) => {
                let ids = StreamIds {
                    stream: at.stream_id.into(),
                    owner: id,
                };
                Ok(Some(Extent {
                    ids,
                    raw: at.stream,
                    holes: 0,
                    sparse: false,
                }))
            }
            _ => Err(corrupt(id, "the stream of an attribute is missing")),
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME || name.contains('\0') {
        let message = format!(
            "invalid attribute name of {} bytes: expected 1 to {MAX_NAME} bytes without NUL",
            name.len()
        );
        return Err(Error::limit(LAYER, message).named(name));
    }
    Ok(())
}

/// Fails for attributes that the file system itself interprets.
fn check_changeable(inode: &Inode, name: &str) -> Result<()> {
    let compressed = inode.raw.bsd_flags.get() & UF_COMPRESSED != 0;
    let message = match name {
        xattr_name::SYMLINK => "the target of a symbolic link cannot be changed",
        xattr_name::DECMPFS | xattr_name::RESOURCE_FORK if compressed => {
            "cannot change the compression attribute alone; replace the file instead"
        }
        xattr_name::RESOURCE_FORK if !inode.is_file() => "only files have resource forks",
        _ => return Ok(()),
    };
    Err(Error::unsupported(LAYER, message).named(name))
}

/// Sets the inode flags that tell whether an attribute exists.
pub(super) fn mark(inode: &mut Inode, name: &str, there: bool) {
    match name {
        xattr_name::RESOURCE_FORK => {
            inode.set_flag(inode_flags::HAS_RESOURCE_FORK, there);
            inode.set_flag(inode_flags::NO_RESOURCE_FORK, !there);
        }
        xattr_name::FINDER_INFO => inode.set_flag(inode_flags::HAS_FINDER_INFO, there),
        xattr_name::SECURITY => inode.set_flag(inode_flags::HAS_SECURITY, there),
        _ => {}
    }
}
