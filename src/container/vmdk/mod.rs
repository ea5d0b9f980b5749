//! VMDK of VMware: one sparse file with its description, stream-optimized ones included, or a description
//! of extents in files beside it. Source: docs/formats/virtual-disks.md.

mod description;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod layout;
mod sparse;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

pub use self::description::Description;
use self::description::{DescribedContents, check_no_parent, extent_lines, value};
use self::layout::MAGIC;
use self::sparse::{HEADER, SparseExtent};
use super::Format;
use super::checksum::StoredChecksum;
use super::mapped::{ChunkPlace, DiskMap, MappedChunk};
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::problem::Problems;
use crate::progress::Progress;
use crate::{Error, Kind, Result};

const LAYER: &str = "vmdk";

/// The disk of a VMDK file, or of the files of a description.
#[derive(Debug)]
pub struct Vmdk {
    kind: String,
    len: u64,
    /// In the order of the disk, without gaps.
    extents: Vec<PlacedExtent>,
}

/// A file that a description names.
#[derive(Debug, Clone)]
pub struct VmdkPart {
    /// The file.
    pub file: Arc<dyn BlockDevice>,
    /// Its place, for errors.
    pub path: PathBuf,
}

/// An extent and its place on the disk.
#[derive(Debug)]
struct PlacedExtent {
    /// First byte on the disk.
    start: u64,
    /// Length in bytes.
    len: u64,
    contents: ExtentContents,
    /// The file of an extent that is not the image itself.
    path: Option<PathBuf>,
}

#[derive(Debug)]
enum ExtentContents {
    Zero,
    /// The bytes of a file from an offset on.
    Flat(Arc<dyn BlockDevice>, u64),
    Sparse(SparseExtent),
}

/// Returns true if `file` begins as a sparse VMDK file, or as a description.
pub fn probe(file: &dyn BlockDevice) -> Result<bool> {
    let is_sparse = file.info().len >= HEADER && file.read_array::<4>(0)? == MAGIC;
    Ok(is_sparse || Description::probe(file)?)
}

fn damaged(at: u64, message: impl Into<String>) -> Error {
    Error::corrupt(LAYER, at, message.into())
}

impl Vmdk {
    /// Opens the disk in `file`, a sparse file with a description in it.
    ///
    /// [`Kind::Unsupported`] if it is a part of a disk in several files, or a layer over another disk.
    pub fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let extent = SparseExtent::open(file)?;
        let kind = kind_alone(extent.description())?;
        let len = extent.len();
        Ok(Self {
            kind,
            len,
            extents: vec![PlacedExtent {
                start: 0,
                len,
                contents: ExtentContents::Sparse(extent),
                path: None,
            }],
        })
    }

    /// Opens the disk of a description, whose files are `parts`, in the order of
    /// [`Description::file_names`]. Fails if the length of a file is not that in the description.
    pub fn open_parts(description: &Description, parts: &[VmdkPart]) -> Result<Self> {
        let names = description.file_names();
        let part = |name: &str| {
            let at = names.iter().position(|other| *other == name);
            let part = at.and_then(|at| parts.get(at));
            part.ok_or_else(|| Error::not_found(LAYER, format!("extent {name}")))
        };
        let mut extents = Vec::new();
        let mut start = 0;
        for described in description.extents() {
            let len = described.len;
            let (contents, path) = match &described.contents {
                DescribedContents::Zero => (ExtentContents::Zero, None),
                DescribedContents::Flat { name, offset } => {
                    let VmdkPart { file, path } = part(name)?;
                    let (end, found) = (offset + len, file.info().len);
                    if end > found {
                        let message = format!(
                            "truncated: the description needs {end} bytes of the extent, which has {found}"
                        );
                        return Err(damaged(found, message).in_file(path));
                    }
                    let contents = ExtentContents::Flat(file.clone(), *offset);
                    (contents, Some(path.clone()))
                }
                DescribedContents::Sparse { name } => {
                    let VmdkPart { file, path } = part(name)?;
                    let extent =
                        SparseExtent::open(file.clone()).map_err(|error| error.in_file(path))?;
                    if extent.len() != len {
                        let message = format!(
                            "the extent has {} bytes by its header, but {len} by the description",
                            extent.len()
                        );
                        return Err(Error::new(Kind::Corrupt, LAYER, message).in_file(path));
                    }
                    (ExtentContents::Sparse(extent), Some(path.clone()))
                }
            };
            extents.push(PlacedExtent {
                start,
                len,
                contents,
                path,
            });
            start += len;
        }
        Ok(Self {
            kind: description.kind().to_owned(),
            len: start,
            extents,
        })
    }

    /// Returns the extent that contains byte `offset` of the disk.
    fn extent(&self, offset: u64) -> Result<&PlacedExtent> {
        let after = self
            .extents
            .partition_point(|extent| extent.start <= offset);
        self.extents
            .get(after.wrapping_sub(1))
            .filter(|extent| offset - extent.start < extent.len)
            .ok_or_else(|| Error::out_of_range(LAYER, offset, 1, self.len))
    }
}

impl PlacedExtent {
    /// Adds the file to an error.
    fn explain(&self, error: Error) -> Error {
        match &self.path {
            Some(path) => error.in_file(path),
            None => error,
        }
    }
}

/// Returns the kind of disk by the description in its only file. Refuses those of which the file is a
/// part.
fn kind_alone(description: Option<&str>) -> Result<String> {
    let is_part = || {
        let message = "one of several files of a VMware disk: open its description, the file that ends in \
                       `.vmdk` without a number";
        Error::unsupported(LAYER, message)
    };
    let text = description.ok_or_else(is_part)?;
    check_no_parent(text)?;
    // QEMU leaves room for a description in each file, and fills that of none.
    let kind = value(text, "createType").ok_or_else(is_part)?;
    if extent_lines(text).count() > 1 {
        let message = "VMware disk in several files, described in one of them: convert it first: `qemu-img \
                       convert -O raw DISK.vmdk disk.img`";
        return Err(Error::unsupported(LAYER, message));
    }
    Ok(kind)
}

impl DiskMap for Vmdk {
    fn format(&self) -> Format {
        Format::Vmdk
    }

    fn layer(&self) -> &'static str {
        LAYER
    }

    fn disk_len(&self) -> u64 {
        self.len
    }

    fn chunk_at(&self, offset: u64) -> Result<MappedChunk> {
        let extent = self.extent(offset)?;
        let whole = |place| MappedChunk {
            range: extent.start..extent.start + extent.len,
            place,
        };
        Ok(match &extent.contents {
            ExtentContents::Zero => whole(ChunkPlace::Hole),
            ExtentContents::Flat(file, at) => whole(ChunkPlace::Stored(file.clone(), *at)),
            ExtentContents::Sparse(sparse) => {
                let chunk = sparse.chunk_at(offset - extent.start);
                let MappedChunk { range, place } = chunk.map_err(|error| extent.explain(error))?;
                // The last grain may reach past the end of the extent.
                let end = (extent.start + range.end).min(extent.start + extent.len);
                MappedChunk {
                    range: extent.start + range.start..end,
                    place,
                }
            }
        })
    }

    fn decode(&self, chunk: &Range<u64>, out: &mut [u8]) -> Result<()> {
        let extent = self.extent(chunk.start)?;
        let ExtentContents::Sparse(sparse) = &extent.contents else {
            return Err(Error::invalid(LAYER, "the extent is not compressed").at(chunk.start));
        };
        let local = chunk.start - extent.start..chunk.end - extent.start;
        sparse
            .decode(&local, out)
            .map_err(|error| extent.explain(error))
    }

    fn check(&self, problems: &mut Problems, progress: &dyn Progress) -> Result<()> {
        for extent in &self.extents {
            progress.check()?;
            let ExtentContents::Sparse(sparse) = &extent.contents else {
                continue;
            };
            let mut found = Problems::default();
            sparse
                .check(&mut found, progress)
                .map_err(|error| extent.explain(error))?;
            for problem in found {
                problems.add(problem.severity, extent.explain(problem.error));
            }
        }
        Ok(())
    }

    fn verify(&self, _progress: &dyn Progress) -> Result<Vec<StoredChecksum>> {
        Ok(Vec::new())
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![("kind", self.kind.clone())];
        let sparse = self
            .extents
            .iter()
            .find_map(|extent| match &extent.contents {
                ExtentContents::Sparse(sparse) => Some(sparse.grains()),
                _ => None,
            });
        facts.extend(sparse.map(|grains| ("grains", grains)));
        if self.extents.iter().any(|extent| extent.path.is_some()) {
            facts.push(("extents", self.extents.len().to_string()));
        }
        facts
    }
}
