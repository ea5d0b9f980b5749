//! Replacement of a file's stored contents in one step: plain by compressed, or compressed by plain
//! (`docs/formats/decmpfs.md` §7).
//!
//! The new contents are the stream of an unlinked file. The operation makes it the file's data
//! stream or its resource fork, and frees the previous contents.

use zerocopy::IntoBytes;

use super::LAYER;
use super::contents::Extent;
use super::entries::IsOpen;
use super::extents::StreamIds;
use super::inode::Inode;
use super::volume::Volume;
use super::xattrs::mark;
use crate::apfs::layout::{
    FileId, MAX_EMBEDDED_XATTR, RecordKey, XattrRaw, inode_flags, record_type, xattr_flags,
    xattr_name,
};
use crate::{NodeId, Stored, UF_COMPRESSED};
use bandsaw_core::decmpfs::Compression;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Kind, Result};

impl Volume {
    /// Replaces the stored contents of `node`; fails if it is open according to `is_open`.
    pub(super) fn store_contents(
        &mut self,
        node: NodeId,
        stored: &Stored<'_>,
        is_open: IsOpen<'_>,
    ) -> Result<()> {
        self.change(true, |volume| {
            let mut inode = volume.object(node)?;
            let id = inode.id;
            let refused = |kind, message: &'static str| {
                Err(Error::new(kind, LAYER, message).named(format!("object {id}")))
            };
            let compressed = inode.raw.bsd_flags.get() & UF_COMPRESSED != 0;
            if !inode.is_file() {
                return refused(Kind::Invalid, "not a regular file");
            }
            if is_open(id) {
                return refused(Kind::Conflict, "the file is open");
            }
            match stored {
                Stored::Packed { .. } if compressed => {
                    refused(Kind::Conflict, "already compressed")
                }
                Stored::Packed { .. }
                    if volume
                        .xattr_stream(id, xattr_name::RESOURCE_FORK)?
                        .is_some() =>
                {
                    refused(
                        Kind::Conflict,
                        "a file with a resource fork cannot be compressed",
                    )
                }
                Stored::Packed {
                    attribute,
                    contents,
                } => {
                    let mut nameless = volume.object(*contents)?;
                    volume.pack(&mut inode, attribute, &mut nameless)?;
                    volume.put_inode(&nameless)?;
                    volume.put_inode(&inode)
                }
                Stored::Plain { .. } if !compressed => refused(Kind::Conflict, "is not compressed"),
                Stored::Plain { contents } => {
                    let mut nameless = volume.object(*contents)?;
                    volume.unpack(&mut inode, &mut nameless)?;
                    volume.put_inode(&nameless)?;
                    volume.put_inode(&inode)
                }
            }
        })
    }

    /// Makes the stream of `nameless` the resource fork of `inode`, whose data stream is dropped.
    fn pack(&mut self, inode: &mut Inode, attribute: &[u8], nameless: &mut Inode) -> Result<()> {
        let Some(compression) = Compression::parse(attribute) else {
            return Err(Error::invalid(LAYER, "expected a compression attribute"));
        };
        if attribute.len() > MAX_EMBEDDED_XATTR {
            let message = format!(
                "{} compressed bytes do not fit in an attribute: the maximum is \
                 {MAX_EMBEDDED_XATTR}",
                attribute.len()
            );
            return Err(Error::limit(LAYER, message));
        }
        self.drop_contents(inode)?;
        inode.set_stream(None);
        inode.set_holes(0);
        if let Some(raw) = nameless.stream() {
            let stream = FileId::from(nameless.raw.private_id);
            self.own(stream, inode.id)?;
            self.remove_record(RecordKey::single(stream, record_type::DATA_STREAM))?;
            nameless.set_stream(None);
            nameless.set_holes(0);
            let fork = Extent {
                ids: StreamIds {
                    stream,
                    owner: inode.id,
                },
                raw,
                holes: 0,
                sparse: false,
            };
            self.put_xattr_stream(inode.id, xattr_name::RESOURCE_FORK, &fork)?;
            mark(inode, xattr_name::RESOURCE_FORK, true);
        }
        let head = XattrRaw {
            flags: xattr_flags::EMBEDDED.into(),
            len: narrow::<u16>(attribute.len()).into(),
        };
        let key = RecordKey::named(inode.id, record_type::XATTR, xattr_name::DECMPFS.as_bytes());
        self.put(key, &[head.as_bytes(), attribute].concat())?;
        self.set_packed(inode, Some(compression.size));
        Ok(())
    }

    /// Makes the stream of `nameless` the data stream of `inode`, whose resource fork is dropped.
    fn unpack(&mut self, inode: &mut Inode, nameless: &mut Inode) -> Result<()> {
        for name in [xattr_name::DECMPFS, xattr_name::RESOURCE_FORK] {
            let key = RecordKey::named(inode.id, record_type::XATTR, name.as_bytes());
            if let Some(record) = self.record(key)? {
                self.drop_xattr_stream(&record)?;
                self.remove_record(key)?;
            }
            mark(inode, name, false);
        }
        self.drop_contents(inode)?;
        let (come, own) = (FileId::from(nameless.raw.private_id), inode.id);
        // The stream of a file has the file's number, unless a clone still uses a stream with that
        // number.
        if self
            .record(RecordKey::single(own, record_type::DATA_STREAM))?
            .is_some()
        {
            std::mem::swap(&mut inode.raw.private_id, &mut nameless.raw.private_id);
        } else {
            self.renumber(come, own)?;
            inode.raw.private_id = own.into();
        }
        inode.set_stream(nameless.stream());
        inode.set_holes(nameless.holes());
        nameless.set_stream(None);
        nameless.set_holes(0);
        self.set_packed(inode, None);
        Ok(())
    }

    /// Sets the compression flag and the uncompressed length of an inode, or clears them.
    fn set_packed(&mut self, inode: &mut Inode, len: Option<u64>) {
        let flags = inode.raw.bsd_flags.get();
        inode.raw.bsd_flags = if len.is_some() {
            flags | UF_COMPRESSED
        } else {
            flags & !UF_COMPRESSED
        }
        .into();
        inode.raw.uncompressed_size = len.unwrap_or(0).into();
        inode.set_flag(inode_flags::HAS_UNCOMPRESSED_SIZE, len.is_some());
    }
}
