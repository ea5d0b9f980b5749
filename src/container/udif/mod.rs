//! UDIF (`.dmg`): read-only, chunks compressed one by one, tables in a property list, a trailer.
//!
//! * [`layout`]: the bytes of trailer and tables. [`resources`]: the property list or resource fork
//!   that holds the tables.
//! * [`index`]: what an image says of itself. [`chunks`]: which chunk holds which bytes of the
//!   disk.
//! * [`read`]: the disk as a device. [`contents`]: chunks decoded; [`cache`]: those lately decoded,
//!   [`ahead`] of the reader by others; [`glance`]: as far as somebody looks who only tells what it
//!   is.
//! * [`set`]: the data fork, which may lie in several files; [`parts`]: an image cut into such
//!   files, or joined.
//! * [`list`]: resources written as a property list, [`roman`] the text in them, [`taken`] the
//!   bytes as they are read; [`edit`]: other resources in a finished image, [`licence`] those that
//!   make a licence. [`verify`]: the stored sums.
//! * [`check`](mod@check): all that is wrong with the structure. [`checked`]: sums compared while a
//!   disk is read.
//! * [`encode`](mod@encode): a new image of any disk.
//!
//! Reading is never refused because of a signature, extra resources or a sector count of 0; what a
//! file lacks of the disk reads as zeros. Source: docs/formats/udif.md.

mod ahead;
mod base64_list;
mod cache;
mod check;
mod checked;
mod chunks;
mod contents;
mod edit;
mod encode;
mod glance;
mod index;
mod layout;
mod licence;
mod list;
mod parts;
mod read;
mod resources;
mod roman;
mod set;
mod verify;

use std::ops::Range;
use std::sync::Arc;

use self::ahead::Ahead;
use self::chunks::Chunks;
use self::contents::ChunkReader;
use self::glance::Glance;
use self::index::{disk_len, parse_tables, read_resources, read_trailer};
use self::layout::{KOLY_MAGIC, KOLY_SIZE, Koly, RunKind, Table};
use self::set::Fork;
use super::{Format, SECTOR};
use crate::codec::Codec;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::{Error, Kind, Result};

pub use check::check;
pub use checked::Checked;
pub use edit::{read_list, write_list};
pub use encode::{Area, EncodeOptions, Encoded, Numbers, Sink, ToDevice, ToStream, encode};
pub use layout::{Checksum, Segment};
pub use licence::{LICENCE_KINDS, licence};
pub use list::{bare_list, image_list};
pub use parts::{Cut, MOST_WRITTEN_PARTS, Parts};
pub use resources::{Resource, from_list};
pub use set::{MOST_PARTS, Part, first_path, part_path};
pub use verify::Verdict;

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
    ahead: Arc<Ahead>,
    /// Who opened it only tells what it is.
    glance: Option<Glance>,
}

impl Drop for Udif {
    fn drop(&mut self) {
        // Whoever opens the file next finds it free.
        self.ahead.close();
    }
}

/// Facts of an image for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Chunks that are stored.
    pub chunks: u64,
    /// Bytes that they take in the file.
    pub stored: u64,
    /// Bytes of the disk that they hold; the rest is zeros or not allocated.
    pub held: u64,
    /// Bytes of the longest chunk.
    pub longest: u64,
    /// Block tables, one for each area of the disk.
    pub tables: u64,
    /// True if a code signature stands before the trailer.
    pub signed: bool,
}

/// Which part of a set `file` is, which ends in a trailer.
pub fn segment(file: &dyn BlockDevice) -> Result<Segment> {
    Ok(read_trailer(file)?.1.segment)
}

/// Bytes of the trailer, which is the last thing in the file.
pub const TRAILER: u64 = KOLY_SIZE;

/// Returns whether `file` ends like a UDIF image.
pub fn probe(file: &dyn BlockDevice) -> Result<bool> {
    match file.info().len.checked_sub(KOLY_SIZE) {
        Some(at) => Ok(file.read_array::<4>(at)? == KOLY_MAGIC),
        None => Ok(false),
    }
}

impl Udif {
    /// Opens the image in `file`, which is only read. A part of a set is refused: see
    /// [`Udif::open_parts`].
    pub fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let (_, koly) = read_trailer(&*file)?;
        if koly.segment.count > 1 {
            let Segment { number, count, .. } = koly.segment;
            let message =
                format!("is part {number} of an image in {count} files, of which all are needed");
            return Err(Error::new(Kind::Invalid, LAYER, message));
        }
        let fork = Fork::whole(file.clone(), &koly)?;
        Self::new(file, koly, fork)
    }

    /// Opens the image that lies in these files, all parts of one set in their order. The error
    /// about a file that is not what its place demands says why and names it.
    pub fn open_parts(parts: Vec<Part>) -> Result<Self> {
        let Some(Part { file, name }) = parts.first().cloned() else {
            return Err(Error::new(
                Kind::Invalid,
                LAYER,
                "a set has at least one part",
            ));
        };
        let (_, koly) = read_trailer(&*file)?;
        if koly.segment.count as usize != parts.len() {
            let message = format!(
                "has {} parts, of which {} are here",
                koly.segment.count,
                parts.len()
            );
            return Err(Error::new(Kind::Invalid, LAYER, message).in_file(name));
        }
        Self::new(file, koly, Fork::joined(parts)?)
    }

    fn new(first: Arc<dyn BlockDevice>, koly: Koly, fork: Fork) -> Result<Self> {
        let resources = read_resources(&*first, &koly)?;
        let tables = parse_tables(&resources, &koly)?;
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
            glance: None,
        })
    }

    /// The same for whoever only tells what the image is: what is read of a chunk here and there is
    /// decoded just so far, and not compared with the sum of its stream. Never to be taken for the
    /// contents of the disk.
    pub fn glancing(mut self) -> Self {
        self.glance = Some(Glance::default());
        self
    }

    /// The kind, which is written nowhere: it follows from how most of the chunks are compressed.
    pub fn format(&self) -> Format {
        let mut counts = [0u64; 6];
        for chunk in self.contents.chunks.iter() {
            match chunk.kind {
                RunKind::Packed(codec) => counts[codec as usize] += 1,
                RunKind::Raw => counts[5] += 1,
                RunKind::Zero | RunKind::Ignore => {}
            }
        }
        let codecs = [
            (Codec::Adc, Format::Udco),
            (Codec::Zlib, Format::Udzo),
            (Codec::Bzip2, Format::Udbz),
            (Codec::Lzfse, Format::Ulfo),
            (Codec::Lzma, Format::Ulmo),
        ];
        let most = codecs
            .into_iter()
            .max_by_key(|(codec, _)| counts[*codec as usize]);
        most.filter(|(codec, _)| counts[*codec as usize] > 0)
            .map_or(Format::Udro, |(_, format)| format)
    }

    /// Facts for people.
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

    /// Everything that was put into the image beside the disk, the block tables (`blkx`) among it.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// Which part of a set the file is; the first, where all are open.
    pub fn segment(&self) -> Segment {
        self.koly.segment
    }

    /// What is odd about it without keeping it from being read.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<_> = self
            .check_coverage()
            .err()
            .map(|error| error.to_string())
            .into_iter()
            .collect();
        if self.verify_tables_sum().agrees() == Some(false) {
            warnings.push("the sum over the block tables is not what is stored: tables are damaged, or some are missing".into());
        }
        warnings
    }

    /// Where a code signature stands in the file. Nothing here says whether it is right.
    pub fn signature(&self) -> Option<Range<u64>> {
        Some(self.koly.signature.clone()).filter(|signature| !signature.is_empty())
    }
}
