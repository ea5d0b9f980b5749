//! Contents that are read from an archive.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::TAR_LAYER;
use crate::fs::source::{ContentReader, Contents, Stream, data_in_file};
use crate::ops::tar::read::SparsePiece;
use crate::platform::FileExt;
use crate::size::to_usize;
use crate::{Error, Result};

/// The pieces of a sparse file, in order.
pub(super) type SparsePieces = Arc<[SparsePiece]>;

/// The contents of members of an archive in a file.
#[derive(Debug)]
pub(super) struct TarContents {
    file: Arc<File>,
    /// Pieces of sparse files, by the `offset` of their streams.
    pieces: HashMap<u64, SparsePieces>,
}

impl TarContents {
    pub(super) fn new(file: Arc<File>, pieces: HashMap<u64, SparsePieces>) -> Self {
        Self { file, pieces }
    }
}

impl Contents for TarContents {
    fn open(&self, stream: &Stream) -> Result<Box<dyn ContentReader + '_>> {
        let Stream::Extern { offset, len, .. } = *stream else {
            return Err(Error::invalid(
                TAR_LAYER,
                "internal: contents in memory cannot be opened as a device",
            ));
        };
        Ok(match self.pieces.get(&offset) {
            Some(pieces) => Box::new(SparseReader {
                file: &self.file,
                pieces,
                len,
            }),
            None => Box::new(PlainReader {
                file: &self.file,
                offset,
                len,
            }),
        })
    }
}

fn read(file: &File, offset: u64, buf: &mut [u8]) -> Result<()> {
    file.read_exact_at(buf, offset)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::conflict(TAR_LAYER, "truncated while it was read")
            }
            _ => Error::io(TAR_LAYER, "read", error),
        })
}

/// Returns the end of a read of contents of `len` bytes. Fails past the end, where the archive
/// holds other members.
fn end_within(len: u64, offset: u64, buf: &[u8]) -> Result<u64> {
    let end = offset
        .checked_add(buf.len() as u64)
        .filter(|&end| end <= len);
    end.ok_or_else(|| Error::out_of_range(TAR_LAYER, offset, buf.len() as u64, len))
}

/// Contents in one piece.
struct PlainReader<'a> {
    file: &'a File,
    offset: u64,
    len: u64,
}

impl ContentReader for PlainReader<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        end_within(self.len, offset, buf)?;
        read(self.file, self.offset + offset, buf)
    }

    fn data_from(&self, from: u64) -> Result<Option<Range<u64>>> {
        Ok(data_in_file(self.file, self.offset, self.len, from))
    }
}

/// Pieces with zeros between them.
struct SparseReader<'a> {
    file: &'a File,
    pieces: &'a [SparsePiece],
    len: u64,
}

impl ContentReader for SparseReader<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = end_within(self.len, offset, buf)?;
        buf.fill(0);
        let first = self
            .pieces
            .partition_point(|piece| piece.at + piece.len <= offset);
        for piece in self.pieces[first..]
            .iter()
            .take_while(|piece| piece.at < end)
        {
            let (from, to) = (piece.at.max(offset), (piece.at + piece.len).min(end));
            let inside = &mut buf[to_usize(from - offset)..to_usize(to - offset)];
            read(self.file, piece.offset + (from - piece.at), inside)?;
        }
        Ok(())
    }

    fn data_from(&self, from: u64) -> Result<Option<Range<u64>>> {
        let first = self
            .pieces
            .partition_point(|piece| piece.at + piece.len <= from);
        let piece = self.pieces[first..].iter().find(|piece| piece.len > 0);
        Ok(piece.map(|piece| piece.at.max(from)..piece.at + piece.len))
    }
}
