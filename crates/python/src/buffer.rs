//! Memory of Python objects, used while the interpreter is detached. The only unsafe code of the package.
#![allow(
    unsafe_code,
    reason = "memory of Python objects is read and filled in place"
)]

use std::fmt;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// The memory of an object with the buffer protocol. It stays in place until this is dropped.
pub(crate) struct Buffer(PyBuffer<u8>);

impl Buffer {
    /// Returns the memory of `object`, which must be contiguous and consist of bytes.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::get(object)?;
        match buffer.is_c_contiguous() {
            true => Ok(Self(buffer)),
            false => Err(PyBufferError::new_err("the buffer is not contiguous")),
        }
    }

    /// Returns the same for an object whose memory can be written.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = Self::of(object)?;
        match buffer.0.readonly() {
            true => Err(PyBufferError::new_err("the buffer is read-only")),
            false => Ok(buffer),
        }
    }

    /// Returns the bytes. Another thread of the program that changes them at the same time decides what is read.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.0.as_slice_ptr() {
            // SAFETY: the pointer and the length are those of an exported buffer, which the exporter keeps in place until
            // the buffer is released, when `self` is dropped. Any byte is a valid `u8`.
            Some(bytes) if !bytes.is_empty() => unsafe { bytes.as_ref() },
            _ => &[],
        }
    }

    /// Returns the bytes for writing. Only for a buffer that [`writable`](Self::writable) returned.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self.0.as_slice_ptr() {
            // SAFETY: as in `bytes`; the exporter has confirmed that the memory can be written, and this is the only
            // reference to it that this crate makes.
            Some(mut bytes) if !bytes.is_empty() && !self.0.readonly() => unsafe { bytes.as_mut() },
            _ => &mut [],
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").finish_non_exhaustive()
    }
}
