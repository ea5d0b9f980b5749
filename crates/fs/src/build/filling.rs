//! Parallel writing of the contents of all files, in the order of their blocks.
//!
//! The data area is divided into stretches. Each thread takes the next one, reads its contents,
//! small files side by side into one buffer, and writes it in large pieces. A stretch is as long as
//! a sparse bundle's default band, because two threads are faster in two files than in one.

use std::ops::Range;

use super::output::{BUFFER, Output};
use super::tree::path;
use crate::source::{ContentReader, Stream, Tree};
use bandsaw_core::device::{BlockDevice, Extent, ExtentKind};
use bandsaw_core::progress::{Progress, Silent};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Result, parallel};

const STRETCH: u64 = 8 << 20;
/// Minimum length in bytes of a hole that [`extent_at`] reports: finding one costs opening a file.
const LARGE_HOLE: u64 = 1 << 20;
/// Bytes that [`extent_at`] searches for a hole.
const SEARCHED: u64 = 64 << 20;
/// Bytes of a sector, the unit of [`extent_at`].
const UNIT: u64 = 512;

/// The bytes of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content<'a> {
    InMemory(&'a [u8]),
    Extern(&'a Stream),
}

impl<'a> Content<'a> {
    pub(crate) fn of(stream: &'a Stream) -> Self {
        match stream {
            Stream::Bytes(bytes) => Self::InMemory(bytes),
            Stream::Extern { .. } => Self::Extern(stream),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::InMemory(bytes) => bytes.len() as u64,
            Self::Extern(stream) => stream.len(),
        }
    }
}

/// A contiguous part of a content.
#[derive(Debug, Clone)]
pub(crate) struct Piece<'a> {
    /// Node that owns the content.
    pub(crate) node: u32,
    pub(crate) content: Content<'a>,
    /// Offset of its first byte in the content.
    pub(crate) from: u64,
    /// Byte range on the device: whole blocks, padded with zeros past the content's end.
    pub(crate) place: Range<u64>,
}

/// The placement of the contents of a tree.
pub(crate) trait Places: Sync {
    /// Returns the range of the device that is filled, in bytes.
    fn range(&self) -> Range<u64>;

    /// Returns true if every byte of the device is zero, so that zeros need not be written.
    fn zeroed(&self) -> bool;

    /// Calls `each` for every piece that overlaps `stretch`, in the order of their offsets.
    fn pieces(
        &self,
        stretch: Range<u64>,
        each: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()>;
}

/// The state shared by the threads.
struct FillState<'a> {
    tree: &'a Tree,
    places: &'a dyn Places,
    progress: &'a dyn Progress,
}

/// Maximum number of threads: enough to keep a disk busy. Each one has a buffer of its own.
const MAX_THREADS: usize = 4;

/// Writes all contents of `tree` to `device` with several threads. The calling thread runs
/// `meanwhile` first and then joins them.
pub(crate) fn fill(
    tree: &Tree,
    places: &dyn Places,
    device: &dyn BlockDevice,
    progress: &dyn Progress,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let filling = FillState {
        tree,
        places,
        progress,
    };
    let range = places.range();
    let numbers = range.start / STRETCH..range.end.div_ceil(STRETCH);
    let threads = parallel::cores(MAX_THREADS).min(1 + to_usize(numbers.end - numbers.start));
    let stretches = numbers
        .map(|number| (number * STRETCH).max(range.start)..((number + 1) * STRETCH).min(range.end));
    parallel::each_while(
        threads,
        stretches.filter(|stretch| !stretch.is_empty()),
        meanwhile,
        || None,
        |out, stretch, _| {
            let out = out.get_or_insert_with(|| output(places, device, stretch.start));
            filling.write(out, stretch)
        },
    )
    .map(drop)
}

/// Writes the contents within `range`, in multiples of 512 bytes, to `device`.
pub(crate) fn fill_range(
    tree: &Tree,
    places: &dyn Places,
    device: &dyn BlockDevice,
    range: Range<u64>,
) -> Result<()> {
    let mut out = output(places, device, range.start);
    let filling = FillState {
        tree,
        places,
        progress: &Silent,
    };
    filling.write(&mut out, range)
}

/// Returns the kind of data at the start of `range`, as [`BlockDevice::extent_at`] does: a hole of
/// at least [`LARGE_HOLE`] in a file of the source, or data.
pub(crate) fn extent_at(tree: &Tree, places: &dyn Places, range: Range<u64>) -> Result<Extent> {
    let range = range.start..range.end.min(range.start.saturating_add(SEARCHED));
    let mut hole = range.end..range.end;
    if places.zeroed() {
        places.pieces(range.clone(), &mut |piece| {
            let Content::Extern(stream) = piece.content else {
                return Ok(());
            };
            let at = piece.place.start.max(range.start);
            if !hole.is_empty() || piece.place.end.min(range.end).saturating_sub(at) < LARGE_HOLE {
                return Ok(());
            }
            let reader = tree.contents.open(stream)?;
            let (from, start) = (piece.from, piece.place.start);
            if let Some(found) = large_hole(&*reader, stream.len(), from + (at - start))? {
                let place = |offset: u64| start.saturating_add(offset - from);
                let end = place(found.end).min(piece.place.end).min(range.end);
                hole = place(found.start).next_multiple_of(UNIT)..end / UNIT * UNIT;
            }
            Ok(())
        })?;
    }
    let (kind, end) = match hole {
        hole if hole.is_empty() => (ExtentKind::Data, range.end),
        hole if hole.start > range.start => (ExtentKind::Data, hole.start),
        hole => (ExtentKind::Hole, hole.end),
    };
    Ok(Extent {
        kind,
        len: end - range.start,
    })
}

/// Returns the first large hole at or after `from` in a content of `len` bytes. Its last byte does
/// not count: only reading it reveals that the file has changed.
fn large_hole(reader: &dyn ContentReader, len: u64, mut from: u64) -> Result<Option<Range<u64>>> {
    let last = len.saturating_sub(1);
    while from < last {
        let data = reader.data_from(from)?.unwrap_or(len..len);
        let until = data.start.min(last);
        if until.saturating_sub(from) >= LARGE_HOLE {
            return Ok(Some(from..until));
        }
        from = data.end.max(from + 1);
    }
    Ok(None)
}

fn output<'a>(places: &dyn Places, device: &'a dyn BlockDevice, start: u64) -> Output<'a> {
    if places.zeroed() {
        Output::new(device, start)
    } else {
        Output::over(device, start)
    }
}

impl FillState<'_> {
    fn write(&self, out: &mut Output<'_>, stretch: Range<u64>) -> Result<()> {
        out.seek(stretch.start)?;
        self.places.pieces(stretch.clone(), &mut |piece| {
            let node = piece.node;
            self.copy(out, piece, &stretch)
                .map_err(|error| self.name(error, node))
        })?;
        out.flush()
    }

    /// Writes the part of the piece that is within `stretch`, and zeros past the end of its
    /// content.
    fn copy(&self, out: &mut Output<'_>, piece: Piece<'_>, stretch: &Range<u64>) -> Result<()> {
        let Piece {
            content,
            from,
            place,
            ..
        } = piece;
        let inside = place.start.max(stretch.start)..place.end.min(stretch.end);
        let end = place.end.min(place.start + (content.len() - from));
        let mut reader = match content {
            Content::Extern(stream) if inside.start < end => Some(self.tree.contents.open(stream)?),
            _ => None,
        };
        self.progress.check()?;
        out.seek(inside.start)?;
        while out.position() < inside.end.min(end) {
            let here = out.position();
            let length = out.room().min(to_usize(inside.end.min(end) - here));
            let from = from + (here - place.start);
            match (content, &mut reader) {
                (Content::InMemory(bytes), _) => {
                    out.append(&bytes[to_usize(from)..to_usize(from) + length])?
                }
                // The last bytes are always read: this is when a reader detects that the file has
                // changed.
                (_, Some(reader))
                    if self.places.zeroed()
                        && here + (length as u64) < end
                        && is_hole(&**reader, from, length)? =>
                {
                    out.seek(here + length as u64)?;
                }
                (_, Some(reader)) => {
                    out.append_with(length, |place| reader.read_at(from, place))?
                }
                (_, None) => break,
            }
            self.progress.advance(length as u64);
            if length == BUFFER {
                self.progress.check()?;
            }
        }
        out.pad_to(inside.end)
    }

    fn name(&self, error: Error, node: u32) -> Error {
        if error.file().is_none() {
            error.in_file(path(self.tree, node))
        } else {
            error
        }
    }
}

/// Returns true if a whole buffer of a content is a hole, which needs neither reading nor writing.
fn is_hole(reader: &dyn ContentReader, from: u64, length: usize) -> Result<bool> {
    if length < BUFFER {
        return Ok(false);
    }
    Ok(reader
        .data_from(from)?
        .is_none_or(|data| data.start >= from + length as u64))
}
