//! Bodies that are made while they are sent.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use bandsaw::device::BlockDevice;
use bandsaw::{Error, Result};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::open_images::OpenImage;

/// Bytes that are read and sent at a time.
const PIECE: usize = 128 << 10;
/// Pieces that wait for the client.
const AHEAD: usize = 2;
/// Bytes at the end of an archive that are sent only when it is complete: no program takes an
/// archive without them for a whole one.
pub(crate) const TAIL: usize = 4 << 10;
/// Bytes of memory that a stream of a file holds; one of an archive holds a buffer of 1 MiB more.
pub(crate) const STREAM_MEMORY: usize = (AHEAD + 2) * PIECE;
/// Bytes of memory that a stream of an archive holds.
pub(crate) const ARCHIVE_MEMORY: usize = STREAM_MEMORY + (3 << 19) + (1 << 20);

fn body(receiver: Receiver<io::Result<Bytes>>) -> Body {
    let next = |mut receiver: Receiver<io::Result<Bytes>>| async move {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    };
    Body::from_stream(stream::unfold(receiver, next))
}

/// Streams a range of a device. If it cannot be read, the connection is broken off: the client has
/// fewer bytes than it was promised.
pub(crate) fn device(
    image: Arc<OpenImage>,
    device: Arc<dyn BlockDevice>,
    range: Range<u64>,
    failed: impl FnOnce(&Error) + Send + 'static,
) -> Body {
    let (sender, receiver) = channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(PIECE as u64);
            let mut piece = BytesMut::zeroed(usize::try_from(length).unwrap_or(PIECE));
            let read = image.check().and_then(|()| device.read_at(at, &mut piece));
            if let Err(error) = read {
                failed(&error);
                let _ = sender.blocking_send(Err(io::ErrorKind::InvalidData.into()));
                return;
            }
            if sender.blocking_send(Ok(piece.freeze())).is_err() {
                return;
            }
            at += length;
        }
    });
    body(receiver)
}

/// Streams what `write` writes, holding back the last `tail` bytes. If it fails, the connection is broken off before the end, which is
/// held back until everything was written.
pub(crate) fn written(
    image: Arc<OpenImage>,
    tail: usize,
    write: impl FnOnce(ArchiveSink) -> Result<ArchiveSink> + Send + 'static,
    failed: impl FnOnce(&Error) + Send + 'static,
) -> Body {
    let (sender, receiver) = channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let sink = ArchiveSink {
            sender: sender.clone(),
            buffer: BytesMut::new(),
            tail,
            is_broken: Arc::new(AtomicBool::new(false)),
            image,
        };
        let is_broken = sink.is_broken.clone();
        match write(sink) {
            Ok(sink) => sink.finish(),
            Err(error) => {
                is_broken.store(true, Ordering::Release);
                failed(&error);
                let _ = sender.blocking_send(Err(io::ErrorKind::InvalidData.into()));
            }
        }
    });
    body(receiver)
}

/// The writer of an archive, whose bytes are sent to the client.
pub(crate) struct ArchiveSink {
    sender: Sender<io::Result<Bytes>>,
    buffer: BytesMut,
    /// Bytes at the end that are held back.
    tail: usize,
    /// Set when the archive is given up: what is still written does not reach the client.
    is_broken: Arc<AtomicBool>,
    image: Arc<OpenImage>,
}

impl ArchiveSink {
    /// Returns what gives the archive up.
    pub(crate) fn breaker(&self) -> Arc<AtomicBool> {
        self.is_broken.clone()
    }

    /// Returns true if the client has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Returns a second hold of the channel, to ask whether it is closed.
    pub(crate) fn watch(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let (sender, image) = (self.sender.clone(), self.image.clone());
        move || sender.is_closed() || image.check().is_err()
    }

    fn send(&mut self, length: usize) -> io::Result<()> {
        let piece = self.buffer.split_to(length.min(self.buffer.len())).freeze();
        if self.is_broken.load(Ordering::Acquire) {
            // The end that a dropped writer adds goes nowhere.
            return Ok(());
        }
        if self.image.check().is_err() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let sent = self.sender.blocking_send(Ok(piece));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn finish(mut self) {
        let rest = self.buffer.len();
        // Ignored: the client has closed the connection.
        let _ = self.send(rest);
    }
}

impl Write for ArchiveSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.get(..PIECE).unwrap_or(bytes);
        self.buffer.extend_from_slice(taken);
        while self.buffer.len() >= PIECE + self.tail {
            self.send(PIECE)?;
        }
        Ok(taken.len())
    }

    /// Sends what was written, except for the end that is held back.
    fn flush(&mut self) -> io::Result<()> {
        match self.buffer.len().checked_sub(self.tail) {
            None | Some(0) => Ok(()),
            Some(length) => self.send(length),
        }
    }
}
