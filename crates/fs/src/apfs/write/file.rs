//! Contents of a file as a device: read, write, extend, truncate.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use zerocopy::{FromBytes, IntoBytes};

use super::contents::{Extent, PIECE};
use super::extents::StreamIds;
use super::inode::Inode;
use super::volume::Volume;
use super::{LAYER, Shared, xattrs};
use crate::apfs::layout::{DataStreamIdRaw, FileId, RecordKey, record_type, xattr_name};
use crate::apfs::stream::Stream;
use crate::{Fork, NodeId, UF_COMPRESSED};
use bandsaw_core::device::{Access, AfterDiscard, BlockDevice, FileRange, Info};
use bandsaw_core::size::to_usize;
use bandsaw_core::sync::RwLock;
use bandsaw_core::{Error, Result};

/// An open fork, shared by all users that have it open.
#[derive(Debug)]
pub(super) struct OpenFork {
    shared: Arc<Shared>,
    id: FileId,
    fork: Fork,
    /// Current extents. Readers hold the lock shared, so that no block is freed while it is read.
    bytes: RwLock<Stream>,
    /// True if the modification time was updated by a write through this fork.
    dated: AtomicBool,
}

impl OpenFork {
    /// Returns the open fork of a file, opening it if necessary.
    pub(super) fn open(shared: &Arc<Shared>, node: NodeId, fork: Fork) -> Result<Arc<Self>> {
        let volume = shared.read();
        let inode = volume.object(node)?;
        if inode.is_folder() {
            return Err(Error::invalid(LAYER, "is a folder, expected a file")
                .named(format!("object {}", node.0)));
        }
        let mut forks = shared.open_forks();
        let key = (inode.id, fork == Fork::Data);
        if let Some(open) = forks.get(&key).and_then(Weak::upgrade) {
            return Ok(open);
        }
        let bytes = RwLock::new(stored(&volume, &inode, fork)?);
        let open = Arc::new(Self {
            shared: shared.clone(),
            id: inode.id,
            fork,
            bytes,
            dated: AtomicBool::new(false),
        });
        forks.insert(key, Arc::downgrade(&open));
        Ok(open)
    }

    /// Fails if the contents cannot be written.
    pub(super) fn check_writable(&self) -> Result<()> {
        let volume = self.shared.read();
        let inode = volume.inode(self.id)?;
        let refused = |message: &'static str| {
            Err(Error::unsupported(LAYER, message).named(format!("object {}", self.id)))
        };
        if inode.raw.bsd_flags.get() & UF_COMPRESSED != 0 {
            return refused(
                "cannot write to a compressed file; decompress it first (`bandsaw \
                            decompress`) or replace it",
            );
        }
        if !inode.is_file() {
            return refused("cannot write contents: not a regular file");
        }
        let stream = RecordKey::single(inode.raw.private_id.into(), record_type::DATA_STREAM);
        let users = |record: Vec<u8>| {
            DataStreamIdRaw::read_from_prefix(&record).map_or(0, |(raw, _)| raw.references.get())
        };
        if self.fork == Fork::Data && volume.record(stream)?.map_or(0, users) > 1 {
            return refused(
                "cannot write to contents shared with a clone; replace the file instead",
            );
        }
        Ok(())
    }

    /// Changes the stream in one operation. Only extents within `range` may change, so the cost
    /// does not depend on the length of the stream.
    fn change(
        &self,
        volume: &mut Volume,
        grows: bool,
        range: &Range<u64>,
        change: &dyn Fn(&mut Volume, &mut Extent, &dyn BlockDevice) -> Result<()>,
    ) -> Result<()> {
        // Blocks readers while their extents change.
        let mut bytes = self.bytes.write();
        let range = whole_blocks(range, volume.block());
        let (runs, len) = volume.change(grows, |volume| {
            let mut inode = volume.inode(self.id)?;
            let mut stream = stream_of(volume, &inode, self.fork)?;
            change(volume, &mut stream, &*bytes)?;
            store(volume, &mut inode, self.fork, &stream)?;
            volume.touch(&mut inode);
            volume.put_inode(&inode)?;
            Ok((
                volume.stored_runs(stream.ids.stream, &range)?,
                stream.raw.size.get(),
            ))
        })?;
        bytes.change(range, &runs, len);
        self.dated.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Writes in place if all blocks were allocated since the last commit, so that no checkpoint
    /// has them. Returns false if they were not.
    fn write_in_place(&self, volume: &mut Volume, offset: u64, buf: &[u8]) -> Result<bool> {
        if !self.dated.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let inode = volume.inode(self.id)?;
        let mut stream = stream_of(volume, &inode, self.fork)?;
        let range = whole_blocks(&(offset..offset + buf.len() as u64), volume.block());
        if volume.in_place(stream.ids, &range)?.is_none() {
            return Ok(false);
        }
        volume.write_stream(&mut stream, &*self.bytes.read(), offset, buf)?;
        Ok(true)
    }
}

/// Extends `range` to whole blocks, in bytes.
fn whole_blocks(range: &Range<u64>, block: u64) -> Range<u64> {
    range.start - range.start % block..range.end.next_multiple_of(block)
}

/// Returns the current extents of a fork.
fn stored(volume: &Volume, inode: &Inode, fork: Fork) -> Result<Stream> {
    let found = match fork {
        Fork::Data => inode
            .stream()
            .map(|stream| (FileId::from(inode.raw.private_id), stream.size.get())),
        Fork::Resource => volume
            .xattr_stream(inode.id, xattr_name::RESOURCE_FORK)?
            .map(|found| (found.ids.stream, found.raw.size.get())),
    };
    match found {
        Some((stream, len)) => volume.read.runs(stream, len),
        None => Ok(Stream::empty(&volume.store, volume.read.cipher.as_ref())),
    }
}

fn stream_of(volume: &mut Volume, inode: &Inode, fork: Fork) -> Result<Extent> {
    match fork {
        Fork::Data => {
            let id = FileId::from(inode.raw.private_id);
            let raw = inode.stream().unwrap_or_else(|| volume.new_stream());
            Ok(Extent {
                ids: StreamIds {
                    stream: id,
                    owner: id,
                },
                raw,
                holes: inode.holes(),
                sparse: true,
            })
        }
        Fork::Resource => match volume.xattr_stream(inode.id, xattr_name::RESOURCE_FORK)? {
            Some(found) => Ok(found),
            None => Ok(volume.new_xattr_stream(inode.id)),
        },
    }
}

/// Writes the properties of a stream to its records. An empty stream is removed.
fn store(volume: &mut Volume, inode: &mut Inode, fork: Fork, stream: &Extent) -> Result<()> {
    let empty = stream.raw.size.get() == 0;
    if fork == Fork::Resource {
        let key = RecordKey::named(
            inode.id,
            record_type::XATTR,
            xattr_name::RESOURCE_FORK.as_bytes(),
        );
        xattrs::mark(inode, xattr_name::RESOURCE_FORK, !empty);
        return match (empty, volume.record(key)?) {
            (false, _) => volume.put_xattr_stream(inode.id, xattr_name::RESOURCE_FORK, stream),
            (true, Some(_)) => volume.remove_record(key),
            (true, None) => Ok(()),
        };
    }
    let key = RecordKey::single(stream.ids.stream, record_type::DATA_STREAM);
    match (empty, volume.record(key)?) {
        (false, None) => volume.put(
            key,
            DataStreamIdRaw {
                references: 1.into(),
            }
            .as_bytes(),
        )?,
        (true, Some(_)) => volume.remove_record(key)?,
        _ => {}
    }
    inode.set_stream((!empty).then_some(stream.raw));
    inode.set_holes(stream.holes);
    Ok(())
}

impl BlockDevice for OpenFork {
    fn info(&self) -> Info {
        Info {
            access: Access::ReadWrite,
            ..self.bytes.read().info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.bytes.read().read_at(offset, buf)
    }

    /// Writes within the file's length; [`set_len`](BlockDevice::set_len) must be called first to
    /// extend it.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        let mut volume = self.shared.write();
        let mut at = offset;
        for piece in pieces(offset, buf) {
            if !self.write_in_place(&mut volume, at, piece)? {
                let range = at..at + piece.len() as u64;
                self.change(&mut volume, true, &range, &|volume, stream, old| {
                    volume.write_stream(stream, old, at, piece)
                })?;
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.info().check_range(LAYER, &range)?;
        if range.is_empty() || leave != AfterDiscard::Zeros {
            return Ok(());
        }
        let mut volume = self.shared.write();
        self.change(&mut volume, true, &range, &|volume, stream, old| {
            volume.zero_stream(stream, old, &range)
        })
    }

    fn extent_at(&self, range: Range<u64>) -> Result<bandsaw_core::device::Extent> {
        self.bytes.read().extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        self.shared.write().commit()
    }

    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        let mut volume = self.shared.write();
        let old = self.info().len;
        if len == old {
            return Ok(());
        }
        let zeros = leave == AfterDiscard::Zeros;
        let range = len.min(old)..len.max(old);
        self.change(&mut volume, len > old, &range, &|volume, stream, old| {
            volume.resize_stream(stream, old, len, zeros)
        })
    }

    /// Returns `None`: the blocks of a file may be freed and reused.
    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}

/// Splits a buffer at the piece boundaries of a stream.
fn pieces(mut offset: u64, mut buf: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let now = to_usize((PIECE - offset % PIECE).min(buf.len() as u64));
        let (piece, rest) = buf.split_at(now);
        (offset, buf) = (offset + now as u64, rest);
        (!piece.is_empty()).then_some(piece)
    })
}
