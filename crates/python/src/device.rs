//! A device as a native object: the disk of an image, or a fork of a file.

use std::sync::Arc;

use bandsaw::device::{Access, AfterDiscard, BlockDevice, ExtentKind};
use bandsaw::sync::RwLock;
use bandsaw::{Error, Kind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::Buffer;
use crate::detached::{Detached, Shared};
use crate::failure::Outcome;

/// Bytes that are read or written between two looks for signals.
const PIECE: usize = 64 << 20;

/// An array of bytes. All methods may be called by several threads at the same time.
#[pyclass(frozen, module = "bandsaw._bandsaw")]
#[derive(Debug)]
pub(crate) struct Device {
    /// `None` once closed.
    device: RwLock<Option<Shared<Arc<dyn BlockDevice>>>>,
}

impl Device {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device: RwLock::new(Some(Detached::shared(device))),
        }
    }

    fn device(&self) -> Outcome<Shared<Arc<dyn BlockDevice>>> {
        let device = self.device.read().clone();
        Ok(device.ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))?)
    }
}

#[pymethods]
impl Device {
    /// The length in bytes.
    #[getter]
    fn size(&self) -> Outcome<u64> {
        Ok(self.device()?.info().len)
    }

    /// The size of a sector in bytes.
    #[getter]
    fn block_size(&self) -> Outcome<u32> {
        Ok(self.device()?.info().block)
    }

    #[getter]
    fn writable(&self) -> Outcome<bool> {
        Ok(self.device()?.info().access == Access::ReadWrite)
    }

    #[getter]
    fn closed(&self) -> bool {
        self.device.read().is_none()
    }

    /// Returns at most `size` bytes at `offset`; all up to the end if `size` is negative.
    pub(crate) fn pread<'py>(
        &self,
        py: Python<'py>,
        size: i64,
        offset: u64,
    ) -> Outcome<Bound<'py, PyBytes>> {
        let device = self.device()?;
        let left = device.info().len.saturating_sub(offset);
        let size = u64::try_from(size).unwrap_or(u64::MAX).min(left);
        let size = usize::try_from(size)
            .ok()
            .filter(|size| isize::try_from(*size).is_ok())
            .ok_or_else(|| too_large(size))?;
        // Refused here if there is no memory for it.
        Ok(PyBytes::new_with(py, size, |bytes| {
            Ok(read(py, &***device, bytes, offset)?)
        })?)
    }

    /// Fills `buffer` from `offset`, and returns the number of bytes, which is smaller at the end only.
    fn pread_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> Outcome<usize> {
        let device = self.device()?;
        let mut buffer = Buffer::writable(buffer)?;
        let left = device.info().len.saturating_sub(offset);
        let bytes = buffer.bytes_mut();
        let size = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        read(py, &***device, &mut bytes[..size], offset)?;
        Ok(size)
    }

    /// Writes all of `buffer` at `offset`. Past the end, a file grows; a disk has a fixed length.
    fn pwrite(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
        grow: bool,
    ) -> Outcome<usize> {
        let device = self.device()?;
        let buffer = Buffer::of(buffer)?;
        let bytes = buffer.bytes();
        let end = offset.saturating_add(bytes.len() as u64);
        if grow && end > device.info().len && !bytes.is_empty() {
            py.detach(|| device.set_len(end, AfterDiscard::Zeros))?;
        }
        let mut at = offset;
        for piece in bytes.chunks(PIECE) {
            py.detach(|| device.write_at(at, piece))?;
            py.check_signals()?;
            at += piece.len() as u64;
        }
        Ok(bytes.len())
    }

    /// Sets the length.
    fn truncate(&self, py: Python<'_>, size: u64) -> Outcome {
        let device = self.device()?;
        Ok(py.detach(|| device.set_len(size, AfterDiscard::Zeros))?)
    }

    /// Deallocates a range, which then reads as zeros.
    fn discard(&self, py: Python<'_>, start: u64, end: u64) -> Outcome {
        let device = self.device()?;
        Ok(py.detach(|| device.discard(start..end, AfterDiscard::Zeros))?)
    }

    /// Makes everything written durable.
    fn flush(&self, py: Python<'_>) -> Outcome {
        let device = self.device()?;
        Ok(py.detach(|| device.flush())?)
    }

    /// Returns the kind (`hole`, `zero` or `data`) and the length of the extent at `start`, which ends at `end` at most.
    fn extent(&self, py: Python<'_>, start: u64, end: u64) -> Outcome<(&'static str, u64)> {
        let device = self.device()?;
        let end = end.min(device.info().len);
        if start >= end {
            return Err(PyValueError::new_err("the range is empty").into());
        }
        let extent = py.detach(|| device.extent_at(start..end))?;
        if extent.len == 0 || extent.len > end - start {
            let error = Error::new(
                Kind::Corrupt,
                "device",
                "the device reported an extent of a wrong length",
            );
            return Err(error.at(start).into());
        }
        let kind = match extent.kind {
            ExtentKind::Hole => "hole",
            ExtentKind::Zero => "zero",
            ExtentKind::Data => "data",
        };
        Ok((kind, extent.len))
    }

    /// Releases the device. Requests of other threads that have begun are completed.
    fn close(&self) {
        // In a variable, so that it is not dropped while the lock is held.
        let device = self.device.write().take();
        drop(device);
    }
}

/// Fills `bytes` in pieces, between which signals are handled.
fn read(py: Python<'_>, device: &dyn BlockDevice, bytes: &mut [u8], mut offset: u64) -> Outcome {
    let is_long = bytes.len() > PIECE;
    for piece in bytes.chunks_mut(PIECE) {
        py.detach(|| device.read_at(offset, piece))?;
        offset += piece.len() as u64;
        if is_long {
            py.check_signals()?;
        }
    }
    Ok(())
}

fn too_large(size: u64) -> Error {
    Error::new(Kind::Limit, "memory", format!("no memory for {size} bytes"))
}
