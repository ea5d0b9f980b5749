//! Open files: shared by all handles of a file, resized under a lock, decompressed before the first
//! write.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bandsaw::device::{AfterDiscard, BlockDevice};
use bandsaw::fs::{FileSystem, Fork, NodeId, UF_COMPRESSED};
use bandsaw::ops::compress::{self, CompressOptions};
use bandsaw::ops::writable_volume::WritableVolume;
use bandsaw::progress::Silent;
use bandsaw::sync::{Mutex, RwLock, RwLockReadGuard};
use bandsaw::{Error, Kind, Result};

/// All open files of a volume.
#[derive(Debug, Default)]
pub(super) struct Files {
    open: Mutex<HashMap<NodeId, Weak<OpenFile>>>,
}

/// The volume of the files.
pub(super) struct Volume<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) change: Option<&'a WritableVolume>,
}

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    node: NodeId,
    contents: RwLock<Contents>,
    /// Held while the length changes.
    resizing: Mutex<()>,
    /// Number of handles open for writing: with any, the kernel's cache may be newer than the
    /// volume.
    writers: AtomicUsize,
}

#[derive(Debug, Default)]
struct Contents {
    device: Option<Arc<dyn BlockDevice>>,
    writable: bool,
}

impl Files {
    /// Returns the open file of this node, which is created if necessary. Its contents are opened
    /// later, on demand.
    pub(super) fn get(&self, node: NodeId) -> Arc<OpenFile> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(&node).and_then(Weak::upgrade) {
            return file;
        }
        let file = Arc::new(OpenFile {
            node,
            contents: RwLock::default(),
            resizing: Mutex::default(),
            writers: AtomicUsize::new(0),
        });
        open.insert(node, Arc::downgrade(&file));
        file
    }

    /// Returns the file if it is open.
    pub(super) fn find(&self, node: NodeId) -> Option<Arc<OpenFile>> {
        self.open.lock().get(&node).and_then(Weak::upgrade)
    }

    /// Releases a reference, and forgets the file if it was the last one.
    pub(super) fn close(&self, file: Arc<OpenFile>) {
        let node = file.node;
        drop(file);
        let mut open = self.open.lock();
        if open.get(&node).is_some_and(|file| file.strong_count() == 0) {
            open.remove(&node);
        }
    }
}

impl OpenFile {
    /// Opens the contents for reading.
    pub(super) fn for_reading(&self, volume: &Volume<'_>) -> Result<()> {
        self.device(volume).map(drop)
    }

    /// Opens the contents for writing. Compressed files are decompressed first.
    pub(super) fn for_writing(&self, volume: &Volume<'_>) -> Result<()> {
        if self.contents.read().writable {
            return Ok(());
        }
        let change = volume.change.ok_or_else(|| Error::read_only("mount"))?;
        let mut contents = self.contents.write();
        if contents.writable {
            return Ok(());
        }
        // Readers wait for the lock. An open file cannot be decompressed, so its device is dropped.
        contents.device = None;
        let device = match change.open_mut(self.node, Fork::Data) {
            Err(error)
                if error.kind() == Kind::Unsupported
                    && change.attributes(self.node)?.flags & UF_COMPRESSED != 0 =>
            {
                compress::decompress_file(change.rewritable()?, self.node, &Silent)?;
                change.open_mut(self.node, Fork::Data)?
            }
            opened => opened?,
        };
        *contents = Contents {
            device: Some(device),
            writable: true,
        };
        Ok(())
    }

    /// Returns the contents, opened for writing. While they are held, they are neither settled nor
    /// compressed.
    fn writable(&self, volume: &Volume<'_>) -> Result<RwLockReadGuard<'_, Contents>> {
        loop {
            self.for_writing(volume)?;
            let contents = self.contents.read();
            if contents.writable {
                return Ok(contents);
            }
        }
    }

    /// Stores the contents compressed, if that makes the file smaller. [`Kind::Conflict`] if the file is open
    /// for writing.
    pub(super) fn compress(&self, volume: &Volume<'_>, options: &CompressOptions) -> Result<()> {
        let change = volume.change.ok_or_else(|| Error::read_only("mount"))?;
        let mut contents = self.contents.write();
        if self.has_writers() {
            return Err(Error::conflict("mount", "the file is open for writing"));
        }
        // As before a decompression.
        *contents = Contents::default();
        let found = change.attributes(self.node)?;
        if found.flags & UF_COMPRESSED != 0 {
            return Ok(());
        }
        // Refused for files that the volume itself uses.
        drop(change.open_mut(self.node, Fork::Data)?);
        let (volume, path) = (change.rewritable()?, String::new());
        compress::compress_one(&**volume, path, &found, options, &Silent).map(drop)
    }

    /// Assigns the contents their place in the volume, as the end of the last handle does. They are opened
    /// again on demand.
    pub(super) fn close_contents(&self) {
        *self.contents.write() = Contents::default();
    }

    /// Increments or decrements the number of handles open for writing.
    pub(super) fn count_writer(&self, more: bool) {
        if more {
            self.writers.fetch_add(1, Ordering::AcqRel);
        } else {
            self.writers.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Returns true if any handle is open for writing.
    pub(super) fn has_writers(&self) -> bool {
        self.writers.load(Ordering::Acquire) > 0
    }

    /// Returns the contents, opened if necessary.
    pub(super) fn device(&self, volume: &Volume<'_>) -> Result<Arc<dyn BlockDevice>> {
        if let Some(device) = &self.contents.read().device {
            return Ok(device.clone());
        }
        let mut contents = self.contents.write();
        if let Some(device) = &contents.device {
            return Ok(device.clone());
        }
        let device = volume.fs.open(self.node, Fork::Data)?;
        contents.device = Some(device.clone());
        Ok(device)
    }

    /// Reads up to `size` bytes at `offset` into `buf`; fewer at the end of the file.
    pub(super) fn read(
        &self,
        volume: &Volume<'_>,
        offset: u64,
        size: usize,
        buf: &mut Vec<u8>,
    ) -> Result<usize> {
        // Held during the read, so that the file is not decompressed meanwhile.
        let contents = loop {
            let contents = self.contents.read();
            if contents.device.is_some() {
                break contents;
            }
            drop(contents);
            self.device(volume)?;
        };
        let Some(device) = &contents.device else {
            return Ok(0);
        };
        loop {
            let len = device.info().len;
            let now = usize::try_from(len.saturating_sub(offset))
                .unwrap_or(usize::MAX)
                .min(size);
            // The kernel's write-back cache may extend beyond the end of the file.
            if now == 0 {
                return Ok(0);
            }
            if buf.len() < now {
                buf.resize(now, 0);
            }
            match device.read_at(offset, &mut buf[..now]) {
                // The file was truncated meanwhile.
                Err(error) if error.kind() == Kind::OutOfRange && device.info().len < len => {}
                done => return done.map(|()| now),
            }
        }
    }

    /// Writes all of `data` at `offset`, extending the file if necessary.
    pub(super) fn write(&self, volume: &Volume<'_>, offset: u64, data: &[u8]) -> Result<()> {
        let contents = self.writable(volume)?;
        let Some(device) = &contents.device else {
            return Err(Error::read_only("mount"));
        };
        let end = offset
            .checked_add(data.len() as u64)
            .ok_or_else(|| Error::invalid("mount", "the write would end past byte 2^64"))?;
        if end <= device.info().len {
            return device.write_at(offset, data);
        }
        let _alone = self.resizing.lock();
        let len = device.info().len;
        if offset > len {
            device.set_len(offset, AfterDiscard::Zeros)?;
        }
        if end > len {
            device.set_len(end, AfterDiscard::Any)?;
        }
        let written = device.write_at(offset, data);
        if written.is_err() && end > len {
            // Undo the extension for data that was not written.
            let _ = device.set_len(len, AfterDiscard::Any);
        }
        written
    }

    /// Sets the length of the file.
    pub(super) fn set_len(&self, volume: &Volume<'_>, len: u64) -> Result<()> {
        let contents = self.writable(volume)?;
        let Some(device) = &contents.device else {
            return Err(Error::read_only("mount"));
        };
        let _alone = self.resizing.lock();
        device.set_len(len, AfterDiscard::Zeros)
    }

    /// Extends the file to `len` if it is shorter.
    pub(super) fn extend_to(&self, volume: &Volume<'_>, len: u64) -> Result<()> {
        let contents = self.writable(volume)?;
        let Some(device) = &contents.device else {
            return Err(Error::read_only("mount"));
        };
        let _alone = self.resizing.lock();
        if device.info().len < len {
            device.set_len(len, AfterDiscard::Zeros)
        } else {
            Ok(())
        }
    }

    /// Zeroes a range of the file.
    pub(super) fn punch(&self, volume: &Volume<'_>, start: u64, end: u64) -> Result<()> {
        let contents = self.writable(volume)?;
        let Some(device) = &contents.device else {
            return Err(Error::read_only("mount"));
        };
        let end = end.min(device.info().len);
        if start < end {
            device.discard(start..end, AfterDiscard::Zeros)
        } else {
            Ok(())
        }
    }
}
