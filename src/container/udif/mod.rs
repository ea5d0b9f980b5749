//! UDIF (`.dmg`): a read-only format with individually compressed chunks, block tables in a
//! property list, and a trailer.
//!
//! * [`layout`]: the on-disk structures of trailer and tables. [`resources`]: the property list or
//!   resource fork that holds the tables.
//! * [`index`]: loading of these structures. [`chunks`]: the chunks in disk order.
//! * [`read`]: the disk as a device, with read-ahead. [`contents`]: decoding of chunks.
//! * [`set`]: the data fork, which may be split into several files; [`split`]: splitting and
//!   joining of images.
//! * [`list`]: writer of resources as a property list, [`mac_roman`] the encoding of texts in them,
//!   [`base64_list`] fast decoding of their data; [`edit`]: replacing the resources of a finished image,
//!   [`license`] the resources of a license. [`verify`]: the stored checksums. [`signature`]: the code
//!   signature.
//! * [`check`](mod@check): consistency check of the structures. [`checksums`]: checksums of the data that
//!   is read.
//! * [`encode`](mod@encode): creation of an image of any disk.
//!
//! An image is readable despite a signature, additional resources or a sector count of 0; parts of
//! the disk that the file does not contain read as zeros. Source: docs/formats/udif.md.

mod base64_list;
mod check;
mod checksums;
mod chunks;
mod contents;
mod edit;
mod encode;
mod index;
mod layout;
mod license;
mod list;
mod mac_roman;
mod read;
mod resources;
mod set;
mod signature;
mod split;
mod verify;

use std::ops::Range;
use std::sync::Arc;

use self::chunks::Chunks;
use self::contents::ChunkReader;
use self::index::{disk_len, parse_tables, read_resources, read_trailer};
pub(crate) use self::layout::find_trailer;
use self::layout::{KOLY_MAGIC, KOLY_SIZE, Koly, RunKind, Table};
use self::set::Fork;
use super::{Format, SECTOR};
use crate::device::{BlockDevice, BlockDeviceExt, Readahead};
use crate::{Error, Result};

pub use check::check;
pub use edit::{read_list, write_list};
pub use encode::{
    Area, DeviceSink, EncodeOptions, EncodedImage, Sink, StreamSink, TableNumbering, encode,
};
pub(crate) use index::begins_with_chunk;
pub use layout::{Checksum, Segment};
pub use license::{LICENSE_KINDS, license};
pub use list::{bare_list, image_list};
pub use mac_roman::{decode as from_mac_roman, encode as to_mac_roman};
pub use resources::{BLOCK_TABLE, Resource, from_fork, from_list, to_fork};
pub(crate) use set::first_path;
pub use set::{MAX_PARTS, SegmentPart, part_path};
pub use signature::CodeSignature;
pub use split::{MAX_WRITTEN_PARTS, SplitMethod, SplitPlan};
pub use verify::ChecksumResult;

const LAYER: &str = "udif";

/// A disk in a UDIF file.
#[derive(Debug)]
pub struct Udif {
    contents: Arc<ChunkReader>,
    /// The file, or the first of the set.
    first: Arc<dyn BlockDevice>,
    koly: Koly,
    tables: Vec<Table>,
    resources: Vec<Resource>,
    ahead: Arc<Readahead>,
}

impl Drop for Udif {
    fn drop(&mut self) {
        // Releases the file before the next open of it.
        self.ahead.close();
    }
}

/// Space usage of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Number of stored chunks.
    pub chunks: u64,
    /// Length of their stored data in bytes.
    pub stored: u64,
    /// Length of their contents in bytes; the rest of the disk is zeros or not allocated.
    pub held: u64,
    /// Length of the longest chunk in bytes.
    pub longest: u64,
    /// Number of block tables, one for each area of the disk.
    pub tables: u64,
    /// True if there is a code signature before the trailer.
    pub signed: bool,
}

/// Returns the position of `file`, which must end in a trailer, in its set.
pub fn segment(file: &dyn BlockDevice) -> Result<Segment> {
    Ok(read_trailer(file)?.1.segment)
}

/// Length of the trailer in bytes; it is at the end of the file.
pub const TRAILER: u64 = KOLY_SIZE;

/// Returns true if `file` ends in the trailer of a UDIF image.
pub fn probe(file: &dyn BlockDevice) -> Result<bool> {
    match file.info().len.checked_sub(KOLY_SIZE) {
        Some(at) => Ok(file.read_array::<4>(at)? == KOLY_MAGIC),
        None => Ok(false),
    }
}

impl Udif {
    /// Opens the image in `file`, which is only read. Fails for a part of a set: see
    /// [`Udif::open_parts`].
    pub fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let (_, koly) = read_trailer(&*file)?;
        if koly.segment.count > 1 {
            let Segment { number, count, .. } = koly.segment;
            let message =
                format!("part {number} of an image in {count} files; all parts are required");
            return Err(Error::invalid(LAYER, message));
        }
        let fork = Fork::of_one_file(file.clone(), &koly)?;
        Self::new(file, koly, fork)
    }

    /// Opens the image in these files, all parts of one set in order. An error about a file that
    /// does not belong at its position names the file.
    pub(crate) fn open_parts(parts: Vec<SegmentPart>) -> Result<Self> {
        let Some(SegmentPart { file, name }) = parts.first().cloned() else {
            return Err(Error::invalid(LAYER, "an image needs at least one part"));
        };
        let (_, koly) = read_trailer(&*file)?;
        if koly.segment.count as usize != parts.len() {
            let message = format!(
                "incomplete set of {} parts: {} given",
                koly.segment.count,
                parts.len()
            );
            return Err(Error::invalid(LAYER, message).in_file(name));
        }
        Self::new(file, koly, Fork::joined(parts)?)
    }

    fn new(first: Arc<dyn BlockDevice>, koly: Koly, fork: Fork) -> Result<Self> {
        let resources = read_resources(&*first, &koly)?;
        let tables = parse_tables(&resources, &koly)?;
        Self::of_tables(first, koly, fork, resources, tables)
    }

    fn of_tables(
        first: Arc<dyn BlockDevice>,
        koly: Koly,
        fork: Fork,
        resources: Vec<Resource>,
        tables: Vec<Table>,
    ) -> Result<Self> {
        let chunks = Chunks::new(&tables, fork.len())?;
        let len = disk_len(&koly, &chunks)?;
        let contents = Arc::new(ChunkReader::new(fork, chunks, len));
        Ok(Self {
            contents,
            first,
            koly,
            tables,
            resources,
            ahead: Arc::default(),
        })
    }

    /// Returns the format. It is not stored, but derived from the compression of most chunks.
    pub fn format(&self) -> Format {
        let mut counts = [0u64; 6];
        for chunk in self.contents.chunks.iter() {
            match chunk.kind {
                RunKind::Packed(codec) => counts[codec as usize] += 1,
                RunKind::Raw => counts[5] += 1,
                RunKind::Zero | RunKind::Ignore => {}
            }
        }
        let count = |format: &Format| format.codec().map_or(0, |codec| counts[codec as usize]);
        let most = Format::ALL.into_iter().max_by_key(count);
        most.filter(|format| count(format) > 0)
            .unwrap_or(Format::Udro)
    }

    /// Returns the space usage.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage {
            chunks: 0,
            stored: 0,
            held: 0,
            longest: 0,
            tables: self.tables.len() as u64,
            signed: !self.koly.signature.is_empty(),
        };
        for chunk in self
            .contents
            .chunks
            .iter()
            .filter(|chunk| matches!(chunk.kind, RunKind::Raw | RunKind::Packed(_)))
        {
            usage.chunks += 1;
            usage.stored += chunk.stored;
            usage.held += chunk.len;
            usage.longest = usage.longest.max(chunk.len);
        }
        usage
    }

    /// Returns all resources of the image, including the block tables (`blkx`).
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// Returns the checksum over those of all tables, as stored.
    pub fn stored_sum(&self) -> Checksum {
        self.koly.master_checksum
    }

    /// Returns the block tables: the number and the name of each, and its checksum as stored.
    pub fn areas(&self) -> impl Iterator<Item = (&str, &str, Checksum)> {
        let tables = self
            .resources
            .iter()
            .filter(|table| table.kind == BLOCK_TABLE);
        tables
            .zip(&self.tables)
            .map(|(resource, table)| (resource.id.as_str(), resource.name.as_str(), table.checksum))
    }

    /// Returns true if the chunks are stored in the order of the disk.
    pub fn is_ordered(&self) -> bool {
        let stored = self.contents.chunks.iter().filter(|chunk| chunk.stored > 0);
        stored.map(|chunk| chunk.offset).is_sorted()
    }

    /// Returns the position of the file in its set; that of the first if all parts are open.
    pub fn segment(&self) -> Segment {
        self.koly.segment
    }

    /// Returns the warnings about the image that do not prevent reading it.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<_> = self
            .check_coverage()
            .err()
            .map(|error| error.to_string())
            .into_iter()
            .collect();
        if self.verify_tables_sum().agrees() == Some(false) {
            warnings.push(
                "checksum mismatch of the block tables: tables are damaged or missing".into(),
            );
        }
        warnings
    }

    /// Returns the file range of the code signature, whose contents
    /// [`code_signature`](Self::code_signature) returns.
    pub fn signature(&self) -> Option<Range<u64>> {
        Some(self.koly.signature.clone()).filter(|signature| !signature.is_empty())
    }
}
