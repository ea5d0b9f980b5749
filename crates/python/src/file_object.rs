//! The device over an object of Python: a file object, an open file of the host, memory.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bandsaw::device::{Access, BlockDevice, Extent, ExtentKind, FileRange, Info, read_only};
use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Result};
use pyo3::exceptions::{PyEOFError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::buffer::Buffer;
use crate::failure::Outcome;

const LAYER: &str = "file object";
/// Bytes requested of a file object at a time. So many stay in the processor's cache until they are copied.
const PIECE: usize = 256 << 10;

/// Returns a device over `source`: an object with the buffer protocol, or a binary file object with `seek` and `readinto` or
/// `read`. `descriptor` is that of the host file if nothing but the file is behind the object.
pub(crate) fn device(
    source: &Bound<'_, PyAny>,
    descriptor: Option<i32>,
) -> Outcome<Arc<dyn BlockDevice>> {
    // A second description of the file: it has a position of its own, and stays open if the object is closed.
    let file = descriptor.and_then(|number| File::open(format!("/dev/fd/{number}")).ok());
    let host = file.and_then(|file| Some((file.metadata().ok()?, file)));
    if let Some((meta, file)) = host.filter(|(meta, _)| meta.is_file()) {
        return Ok(Arc::new(SourceDevice {
            len: meta.len(),
            source: Source::Host(file),
        }));
    }
    let memory = match source.hasattr("getbuffer")? {
        true => Buffer::of(&source.call_method0("getbuffer")?).ok(),
        false => Buffer::of(source).ok(),
    };
    Ok(Arc::new(match memory {
        Some(memory) => SourceDevice {
            len: memory.bytes().len() as u64,
            source: Source::Memory(memory),
        },
        None => {
            let object = FileObject::new(source)?;
            SourceDevice {
                len: object.len()?,
                source: Source::Object(object),
            }
        }
    }))
}

/// A device that is read only.
#[derive(Debug)]
struct SourceDevice {
    source: Source,
    len: u64,
}

/// The origin of the bytes.
#[derive(Debug)]
enum Source {
    /// An open file of the host, read without the interpreter.
    Host(File),
    /// Memory of another object: `bytes`, `mmap`, the contents of a `BytesIO`.
    Memory(Buffer),
    Object(FileObject),
}

impl BlockDevice for SourceDevice {
    fn info(&self) -> Info {
        Info {
            len: self.len,
            block: 512,
            write: 1,
            discard: 1,
            access: Access::ReadOnly,
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        match &self.source {
            Source::Host(file) => file
                .read_exact_at(buf, offset)
                .map_err(|error| Error::io(LAYER, "read", error).at(offset)),
            Source::Memory(memory) => {
                let bytes = usize::try_from(offset)
                    .ok()
                    .and_then(|start| memory.bytes().get(start..)?.get(..buf.len()));
                let bytes =
                    bytes.ok_or_else(|| Error::new(Kind::Io, LAYER, "the memory has shrunk"))?;
                buf.copy_from_slice(bytes);
                Ok(())
            }
            Source::Object(object) => object.read_at(offset, buf),
        }
    }

    read_only!(LAYER);

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        Ok(Extent {
            kind: ExtentKind::Data,
            len: range.end - range.start,
        })
    }

    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }
}

/// A binary file object. Its position is that of the last request, so that requests exclude each other.
#[derive(Debug)]
struct FileObject {
    object: Py<PyAny>,
    has_readinto: bool,
    /// Memory for `readinto`; locked during a request, by threads that are detached from the interpreter.
    piece: Mutex<Option<Py<PyByteArray>>>,
}

impl FileObject {
    fn new(object: &Bound<'_, PyAny>) -> Outcome<Self> {
        let has_readinto = object.hasattr("readinto")?;
        if !object.hasattr("seek")? || !(has_readinto || object.hasattr("read")?) {
            let message =
                "expected a path, a URL, bytes, or a binary file object with read and seek";
            return Err(PyTypeError::new_err(message).into());
        }
        Ok(Self {
            object: object.clone().unbind(),
            has_readinto,
            piece: Mutex::new(None),
        })
    }

    /// Returns the length, by a seek to the end.
    fn len(&self) -> PyResult<u64> {
        Python::attach(|py| {
            let object = self.object.bind(py);
            let end = object.call_method1("seek", (0, 2))?;
            // Some objects return nothing from `seek`.
            match end.is_none() {
                true => object.call_method0("tell")?.extract(),
                false => end.extract(),
            }
        })
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut piece = self.piece.lock();
        let failed = |message| Error::new(Kind::Io, LAYER, message).at(offset);
        match Python::try_attach(|py| self.fill(py, &mut piece, offset, buf)) {
            Some(Ok(())) => Ok(()),
            Some(Err(cause)) => Err(failed("cannot read").caused_by(cause)),
            None => Err(failed("cannot read: the interpreter has ended")),
        }
    }

    /// Fills `buf` from `offset`.
    fn fill(
        &self,
        py: Python<'_>,
        piece: &mut Option<Py<PyByteArray>>,
        offset: u64,
        buf: &mut [u8],
    ) -> PyResult<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.read_piece(py, piece, at, &mut buf[done..])? {
                0 => return Err(PyEOFError::new_err("the file object ended early")),
                count => done += count,
            }
        }
        Ok(())
    }

    /// Reads at most [`PIECE`] bytes at `offset`, and returns their number.
    fn read_piece(
        &self,
        py: Python<'_>,
        piece: &mut Option<Py<PyByteArray>>,
        offset: u64,
        buf: &mut [u8],
    ) -> PyResult<usize> {
        let object = self.object.bind(py);
        object.call_method1("seek", (offset,))?;
        let wanted = buf.len().min(PIECE);
        if !self.has_readinto {
            let read = object.call_method1("read", (wanted,))?;
            let bytes = read.cast::<PyBytes>()?.as_bytes();
            let count = bytes.len().min(wanted);
            buf[..count].copy_from_slice(&bytes[..count]);
            return Ok(count);
        }
        let held = piece.get_or_insert_with(|| PyByteArray::new(py, &[]).unbind());
        let held = held.bind(py);
        if held.len() != wanted {
            held.resize(wanted)?;
        }
        let count: usize = object.call_method1("readinto", (held,))?.extract()?;
        let buffer = Buffer::of(held)?;
        let read = buffer.bytes().get(..count);
        let read =
            read.ok_or_else(|| PyEOFError::new_err("readinto returned too large a number"))?;
        buf[..count].copy_from_slice(read);
        Ok(count)
    }
}
