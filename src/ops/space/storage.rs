//! The files that store an image's disk, as far as the allocation of their bytes is known.

use std::ops::Range;
use std::path::Path;

use crate::container::FileMapping;
use crate::container::asif::Asif;
use crate::container::sparsebundle::{Bundle, StoredBands};
use crate::container::sparseimage::SparseImage;
use crate::device::{AfterDiscard, BlockDevice, BlockDeviceExt, ExtentKind};
use crate::open::{Image, remote};
use crate::progress::Progress;
use crate::store::{LocalFile, Open};
use crate::{Error, Result, platform};

const LAYER: &str = "storage";
/// Largest number of pieces of a raw disk.
const MAX_PIECES: u64 = 4096;
/// Size of the smallest piece, in bytes.
const MIN_PIECE: u64 = 1 << 20;

/// The unit in which a disk is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitKind {
    /// A band of a sparse bundle or sparse image.
    Band,
    /// A chunk of an ASIF image.
    Chunk,
    /// One of equal pieces of a raw disk, which has no units of its own.
    Piece,
}

impl UnitKind {
    /// Returns the word for one unit and for several.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Band => ("band", "bands"),
            Self::Chunk => ("chunk", "chunks"),
            Self::Piece => ("piece", "pieces"),
        }
    }
}

/// The storage of a disk.
pub(crate) enum Storage<'a> {
    /// Band files.
    Bundle(&'a Bundle, StoredBands),
    /// One file. The disk's bytes, or the container's, begin at `offset` in it.
    File {
        file: LocalFile,
        offset: u64,
        layout: Layout<'a>,
    },
}

/// The mapping of disk offsets to file offsets in a container.
pub(crate) enum Layout<'a> {
    Raw,
    SparseImage(&'a SparseImage),
    Asif(&'a Asif),
}

impl<'a> Storage<'a> {
    /// Returns the storage of the writable part of an image, which is the topmost layer of a stack.
    /// `None` if it cannot be changed.
    pub(crate) fn of(image: &'a Image, progress: &dyn Progress) -> Result<Option<Self>> {
        // The disk has no place of its own in the file of an archive.
        if image.archive().is_some() && image.overlays().next().is_none() {
            return Ok(None);
        }
        if let Some(bundle) = image.bundle().filter(|_| image.overlays().next().is_none()) {
            return Ok(Some(Self::Bundle(bundle, bundle.stored(progress)?)));
        }
        let (path, layout, offset) = match image.overlays().last() {
            Some(top) => (top.path.as_path(), Layout::Asif(&top.image), 0),
            None => {
                let layout = if let Some(image) = image.sparse_image() {
                    Layout::SparseImage(image)
                } else if let Some(image) = image.asif() {
                    Layout::Asif(image)
                } else if image.layers().iter().any(|layer| layer.raw().is_some()) {
                    Layout::Raw
                } else {
                    return Ok(None);
                };
                (
                    image.path(),
                    layout,
                    image
                        .encryption()
                        .map_or(0, |encryption| encryption.data_offset),
                )
            }
        };
        // A second descriptor of a file that is already open and locked.
        let file = LocalFile::open(path, Open::Read)?
            .ok_or_else(|| Error::not_found(LAYER, path.display().to_string()))?;
        Ok(Some(Self::File {
            file,
            offset,
            layout,
        }))
    }

    /// Returns the kind and size in bytes of the units of a disk of `len` bytes.
    pub(crate) fn units(&self, len: u64) -> (UnitKind, u64) {
        match self {
            Self::Bundle(bundle, _) => (UnitKind::Band, bundle.band_size()),
            Self::File {
                layout: Layout::SparseImage(image),
                ..
            } => (UnitKind::Band, image.band_size()),
            Self::File {
                layout: Layout::Asif(image),
                ..
            } => (UnitKind::Chunk, image.usage().chunk_size),
            Self::File {
                layout: Layout::Raw,
                ..
            } => (
                UnitKind::Piece,
                len.div_ceil(MAX_PIECES).next_power_of_two().max(MIN_PIECE),
            ),
        }
    }

    /// Returns the bytes of storage that a discard of `range` of the disk would free if the host
    /// can free any part of a file, in whole blocks of the host.
    pub(crate) fn allocated_in(&self, range: &Range<u64>) -> Result<u64> {
        let mut allocated = 0;
        match self {
            Self::Bundle(bundle, stored) => {
                for band in stored.in_range(bundle.band_size(), range) {
                    allocated += match bundle.part_in(band, range) {
                        (_, true) => band.allocated,
                        (part, false) => bundle.allocated_in(part)?,
                    };
                }
            }
            Self::File { file, .. } => {
                let grain = file.info().discard.max(1);
                self.each_stored(range, true, &mut |_, place| {
                    let whole = place.start.next_multiple_of(grain)..place.end / grain * grain;
                    allocated += data_in(file, whole)?;
                    Ok(())
                })?;
            }
        }
        Ok(allocated)
    }

    /// Calls `each` with the disk offset and the file range of the runs of `range` that have a
    /// place in the file. With `ends`, a run that ends with the file is extended to a block of the
    /// host.
    fn each_stored(
        &self,
        range: &Range<u64>,
        ends: bool,
        each: &mut dyn FnMut(u64, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let Self::File {
            file,
            offset,
            layout,
        } = self
        else {
            return Ok(());
        };
        let (len, grain) = (file.info().len, file.info().discard.max(1));
        let mut at = range.start;
        while at < range.end {
            let rest = at..range.end;
            let FileMapping {
                at: place,
                len: run,
            } = match layout {
                Layout::Raw => FileMapping {
                    at: Some(at),
                    len: rest.end - rest.start,
                },
                Layout::SparseImage(image) => image.place_at(rest)?,
                Layout::Asif(image) => image.place_at(rest)?,
            };
            if let Some(place) = place {
                let start = place.saturating_add(*offset).min(len);
                let end = start.saturating_add(run).min(len);
                let end = if ends && end == len {
                    end.next_multiple_of(grain)
                } else {
                    end
                };
                each(at, start..end)?;
            }
            at = at.saturating_add(run.max(1));
        }
        Ok(())
    }

    /// Returns index and bytes of storage of each unit of `size` bytes of a disk of `len` bytes,
    /// for those with storage, in order.
    pub(crate) fn allocated_by_unit(&self, size: u64, len: u64) -> Result<Vec<(u64, u64)>> {
        let Self::File { file, .. } = self else {
            let Self::Bundle(_, stored) = self else {
                return Ok(Vec::new());
            };
            return Ok(stored
                .bands
                .iter()
                .map(|band| (band.index, band.allocated))
                .collect());
        };
        let mut units: Vec<(u64, u64)> = Vec::new();
        let mut add = |start: u64, bytes: u64| match units.last_mut() {
            Some((index, allocated)) if *index == start / size => *allocated += bytes,
            _ => units.push((start / size, bytes)),
        };
        self.each_stored(&(0..len), false, &mut |disk, place| {
            for extent in file.extents(place.clone()) {
                let (range, kind) = extent?;
                if kind != ExtentKind::Data {
                    continue;
                }
                let (mut at, end) = (
                    disk + (range.start - place.start),
                    disk + (range.end - place.start),
                );
                while at < end {
                    let next = ((at / size + 1) * size).min(end);
                    add(at, next - at);
                    at = next;
                }
            }
            Ok(())
        })?;
        Ok(units)
    }

    /// Frees the storage of `range` of `disk`, which must be stored here; parts of bands, chunks
    /// and files only if `can_punch` is true. Durable after the next flush.
    pub(crate) fn free_range(
        &self,
        disk: &dyn BlockDevice,
        range: &Range<u64>,
        can_punch: bool,
    ) -> Result<()> {
        match self {
            Self::Bundle(bundle, stored) => bundle.free_range(stored, range, can_punch),
            // If the host cannot punch holes, the container itself frees only whole bands or
            // chunks.
            Self::File {
                layout: Layout::Raw,
                ..
            } if !can_punch => Ok(()),
            Self::File { .. } => disk.discard(range.clone(), AfterDiscard::Any),
        }
    }
}

/// Returns true if the host can free parts of files at the location of the image, or of its topmost
/// layer. With `trying`, a temporary file is created there if needed to find out; otherwise the
/// type of the file system may decide.
pub(crate) fn can_punch(image: &Image, trying: bool) -> bool {
    let path = image
        .overlays()
        .last()
        .map_or(image.path(), |top| &top.path);
    if remote::url(path).is_some() {
        return true; // nothing is punched there: objects are written anew
    }
    let folder = if path.is_dir() {
        Some(path)
    } else {
        path.parent()
    };
    platform::can_punch_in(
        folder
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new(".")),
        trying,
    )
}

/// Returns the bytes of storage in `range` of a file. There are none past its end.
fn data_in(file: &LocalFile, range: Range<u64>) -> Result<u64> {
    let range = range.start..range.end.min(file.info().len);
    let mut bytes = 0;
    if range.start < range.end {
        for extent in file.extents(range) {
            let (range, kind) = extent?;
            bytes += if kind == ExtentKind::Data {
                range.end - range.start
            } else {
                0
            };
        }
    }
    Ok(bytes)
}
