//! Memory of Python objects, used while the interpreter is detached. The only unsafe code of the package.
#![allow(
    unsafe_code,
    reason = "memory of Python objects is read and filled in place"
)]

use std::slice;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// The memory of an object with the buffer protocol, as bytes. It stays in place until this is dropped.
#[derive(Debug)]
pub(crate) struct Buffer(PyUntypedBuffer);

impl Buffer {
    /// Returns the memory of `object`, which must be contiguous. Its elements may be of any type.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        // A view of it has the strides that some objects do not state, such as arrays of `ctypes`.
        let buffer = PyUntypedBuffer::get(object)
            .or_else(|_| PyUntypedBuffer::get(PyMemoryView::from(object)?.as_any()))?;
        match buffer.is_c_contiguous() {
            true => Ok(Self(buffer)),
            false => Err(PyBufferError::new_err("the buffer is not contiguous")),
        }
    }

    /// Returns the same for an object whose memory can be written.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = Self::of(object)?;
        if buffer.0.readonly() {
            return Err(PyBufferError::new_err("the buffer is read-only"));
        }
        match has_objects(buffer.0.format().to_bytes()) {
            true => Err(PyBufferError::new_err("the buffer consists of objects")),
            false => Ok(buffer),
        }
    }

    /// Returns the bytes. Another thread of the program that changes them at the same time decides what is read.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.0.len_bytes() {
            0 => &[],
            // SAFETY: the pointer and the length are those of an exported buffer without gaps, which the exporter keeps in
            // place until the buffer is released, when `self` is dropped. Any byte is a valid `u8`.
            length => unsafe { slice::from_raw_parts(self.0.buf_ptr().cast(), length) },
        }
    }

    /// Returns the bytes for writing. Only for a buffer that [`writable`](Self::writable) returned.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self.0.len_bytes() {
            0 => &mut [],
            _ if self.0.readonly() => &mut [],
            // SAFETY: as in `bytes`; the exporter has confirmed that the memory can be written, and this is the only
            // reference to it that this crate makes.
            length => unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), length) },
        }
    }
}

/// Returns true if a format of the module `struct` has references to objects, which bytes of a file must not replace.
fn has_objects(format: &[u8]) -> bool {
    // The names of members are between colons.
    format
        .split(|&letter| letter == b':')
        .step_by(2)
        .any(|types| types.contains(&b'O'))
}
