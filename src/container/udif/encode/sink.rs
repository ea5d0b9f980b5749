//! Output of a new image.

use std::io::Write;

use crate::device::{AfterDiscard, BlockDevice};
use crate::{Error, Result};

/// A sequential output of an image.
pub trait Sink {
    /// Writes all of `bytes` at the current end.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
}

/// A growing device: a file, or an encrypted one.
#[derive(Debug)]
pub struct DeviceSink<'a> {
    device: &'a dyn BlockDevice,
    at: u64,
    len: u64,
}

/// The device grows in steps of this many bytes, to limit the number of changes of its length.
const GROWTH: u64 = 64 << 20;

impl<'a> DeviceSink<'a> {
    /// Writes to `device` from offset 0, over its contents.
    pub fn new(device: &'a dyn BlockDevice) -> Self {
        Self {
            device,
            at: 0,
            len: device.info().len,
        }
    }

    /// Truncates the device to the bytes written. The caller flushes.
    pub fn finish(self) -> Result<()> {
        self.device.set_len(self.at, AfterDiscard::Any)
    }
}

impl Sink for DeviceSink<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.at + bytes.len() as u64;
        if end > self.len {
            self.device.set_len(end + GROWTH, AfterDiscard::Any)?;
            self.len = end + GROWTH;
        }
        self.device.write_at(self.at, bytes)?;
        self.at = end;
        Ok(())
    }
}

/// A stream: a pipe, or a vector.
#[derive(Debug)]
pub struct StreamSink<W>(pub W);

impl<W: Write> Sink for StreamSink<W> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0
            .write_all(bytes)
            .map_err(|source| Error::io("stream", "write the image", source))
    }
}
