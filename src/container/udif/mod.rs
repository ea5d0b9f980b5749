//! UDIF (`.dmg`): read-only, chunks compressed one by one, tables in a property list, a trailer.
//!
//! * [`layout`]: the bytes of trailer and tables. [`resources`]: the property list or resource fork that holds the tables.
//! * [`chunks`]: which chunk holds which bytes of the disk. [`cache`]: chunks lately decoded, [`ahead`] by others.
//! * [`set`]: the data fork, which may lie in several files; [`parts`]: an image cut into such files, or joined.
//! * [`list`]: resources written as a property list, [`roman`] the text in them; [`edit`]: other resources in a finished image,
//!   [`licence`] those that make a licence. [`verify`]: the stored sums.
//! * [`check`](mod@check): all that is wrong with the structure.
//! * [`encode`](mod@encode): a new image of any disk.
//!
//! Reading is never refused because of a signature, extra resources or a sector count of 0; what a file lacks of the disk reads as
//! zeros. Source: docs/formats/udif.md.

mod ahead;
mod cache;
mod check;
mod chunks;
mod edit;
mod encode;
mod layout;
mod licence;
mod list;
mod parts;
mod resources;
mod roman;
mod set;
mod verify;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};

use rayon::prelude::*;

use self::ahead::Ahead;
use self::cache::Cache;
use self::chunks::{Chunk, ChunkIndex, Chunks};
use self::layout::{KOLY_MAGIC, KOLY_SIZE, Koly, KolyRaw, MOST_SECTORS, RunKind, Table};
use self::set::Fork;
use super::{Format, SECTOR};
use crate::codec::Codec;
use crate::device::{Access, BlockDevice, BlockDeviceExt, Extent, ExtentKind, Info, Leave, Lent};
use crate::{Error, Kind, Result};

pub use check::check;
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
/// Decoded chunks that are kept: those that a few sequential readers are in, and what is decoded ahead of them.
const CACHE: usize = 32 << 20;
/// Longer compressed chunks are decoded one at a time, and never ahead; those of macOS have 1 MiB at most.
const LONG_CHUNK: u64 = 4 << 20;
/// A request of at least this much is decoded straight into the caller's buffer, on all cores.
const WHOLE: usize = 1 << 20;

/// A disk in a UDIF file.
#[derive(Debug)]
pub struct Udif {
    inner: Arc<Inner>,
    /// The file, or the first of the set.
    first: Arc<dyn BlockDevice>,
    koly: Koly,
    tables: Vec<Table>,
    resources: Vec<Resource>,
    /// The chunk after the one decoded last: a reader that asks for it goes through the disk in order.
    next: AtomicU32,
    ahead: Arc<Ahead>,
}

impl Drop for Udif {
    fn drop(&mut self) {
        // Whoever opens the file next finds it free.
        self.ahead.close();
    }
}

/// What decoding ahead needs.
#[derive(Debug)]
struct Inner {
    fork: Fork,
    chunks: Chunks,
    cache: Cache,
    len: u64,
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
    /// Whether a code signature stands before the trailer.
    pub signed: bool,
}

/// Which part of a set `file` is, which ends in a trailer.
pub fn segment(file: &dyn BlockDevice) -> Result<Segment> {
    Ok(read_trailer(file)?.1.segment)
}

/// Bytes of the trailer, which is the last thing in the file.
pub const TRAILER: u64 = KOLY_SIZE;

/// Whether `file` ends like a UDIF image.
pub fn probe(file: &dyn BlockDevice) -> Result<bool> {
    match file.info().len.checked_sub(KOLY_SIZE) {
        Some(at) => Ok(file.read_array::<4>(at)? == KOLY_MAGIC),
        None => Ok(false),
    }
}

impl Udif {
    /// Opens the image in `file`, which is only read. A part of a set is refused: see [`Udif::open_parts`].
    pub fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let (_, koly) = read_trailer(&*file)?;
        if koly.segment.count > 1 {
            let Segment { number, count, .. } = koly.segment;
            let message = format!("is part {number} of an image in {count} files, of which all are needed");
            return Err(Error::new(Kind::Invalid, LAYER, message));
        }
        let fork = Fork::whole(file.clone(), &koly)?;
        Self::new(file, koly, fork)
    }

    /// Opens the image that lies in these files, all parts of one set in their order. The error about a file that is not
    /// what its place demands says why and names it.
    pub fn open_parts(parts: Vec<Part>) -> Result<Self> {
        let Some(Part { file, name }) = parts.first().cloned() else {
            return Err(Error::new(Kind::Invalid, LAYER, "a set has at least one part"));
        };
        let (_, koly) = read_trailer(&*file)?;
        if koly.segment.count as usize != parts.len() {
            let message = format!("has {} parts, of which {} are here", koly.segment.count, parts.len());
            return Err(Error::new(Kind::Invalid, LAYER, message).in_file(name));
        }
        Self::new(file, koly, Fork::joined(parts)?)
    }

    fn new(first: Arc<dyn BlockDevice>, koly: Koly, fork: Fork) -> Result<Self> {
        let resources = read_resources(&*first, &koly)?;
        let tables = parse_tables(&resources, &koly)?;
        let chunks = Chunks::new(&tables, fork.len())?;
        let len = disk_len(&koly, &chunks)?;
        let inner = Inner { fork, chunks, cache: Cache::new(CACHE), len };
        Ok(Self { inner: Arc::new(inner), first, koly, tables, resources, next: AtomicU32::new(0), ahead: Arc::default() })
    }

    /// The kind, which is written nowhere: it follows from how most of the chunks are compressed.
    pub fn format(&self) -> Format {
        let mut counts = [0u64; 6];
        for chunk in self.inner.chunks.iter() {
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
        let most = codecs.into_iter().max_by_key(|(codec, _)| counts[*codec as usize]);
        most.filter(|(codec, _)| counts[*codec as usize] > 0).map_or(Format::Udro, |(_, format)| format)
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
        for chunk in self.inner.chunks.iter().filter(|chunk| matches!(chunk.kind, RunKind::Raw | RunKind::Packed(_))) {
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
        let mut warnings: Vec<_> = self.check_coverage().err().map(|error| error.to_string()).into_iter().collect();
        if self.verify_tables_sum().agrees() == Some(false) {
            warnings.push("the sum over the block tables is not what is stored: tables are damaged, or some are missing".into());
        }
        warnings
    }

    /// Where a code signature stands in the file. Nothing here says whether it is right.
    pub fn signature(&self) -> Option<Range<u64>> {
        Some(self.koly.signature.clone()).filter(|signature| !signature.is_empty())
    }

    /// Reads the part of `chunk` that begins at byte `from` of the disk.
    fn read_part(&self, index: ChunkIndex, chunk: &Chunk, from: u64, out: &mut [u8]) -> Result<()> {
        let within = (from - chunk.start) as usize;
        match chunk.kind {
            RunKind::Zero | RunKind::Ignore => out.fill(0),
            RunKind::Raw => self.inner.fork.read_at(chunk.offset + within as u64, out)?,
            RunKind::Packed(_) => {
                let plain = self.inner.decoded(index, chunk)?;
                self.decode_ahead(index);
                out.copy_from_slice(&plain[within..within + out.len()]);
            }
        }
        Ok(())
    }

    /// Has the other cores decode what a reader who goes through the disk in order asks for next.
    fn decode_ahead(&self, index: ChunkIndex) {
        let expected = self.next.swap(index.0 + 1, Ordering::Relaxed);
        if expected != index.0 {
            return;
        }
        for ahead in 1..=rayon::current_num_threads() as u32 {
            let index = ChunkIndex(index.0.saturating_add(ahead));
            let is_short = |chunk: &Chunk| matches!(chunk.kind, RunKind::Packed(_)) && chunk.len <= LONG_CHUNK;
            let packed = self.inner.chunks.get(index).is_some_and(is_short);
            if packed && self.inner.cache.peek(index).is_none() {
                // Work that waits does not keep the file open.
                let (inner, ahead) = (Arc::downgrade(&self.inner), self.ahead.clone());
                rayon::spawn(move || {
                    ahead.run(|| {
                        let Some(inner) = inner.upgrade() else { return };
                        if let Some(chunk) = inner.chunks.get(index) {
                            // A failure is met again, and told, by whoever reads the chunk.
                            drop(inner.decoded(index, chunk));
                        }
                    });
                });
            }
        }
    }

    /// The runs of `range`, which is within the disk: each lies in one chunk, or in none.
    fn runs(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, Option<(ChunkIndex, &Chunk)>)> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let (end, found) = match self.inner.chunks.at(at) {
                Ok((index, chunk)) => (chunk.end(), Some((index, chunk))),
                Err(gap) => (gap.map_or(range.end, |gap| at.saturating_add(gap)), None),
            };
            let run = at..end.min(range.end);
            at = run.end;
            Some((run, found))
        })
    }
}

impl Inner {
    /// A compressed chunk's plain bytes, through the cache.
    fn decoded(&self, index: ChunkIndex, chunk: &Chunk) -> Result<Arc<[u8]>> {
        self.cache.get(index, || {
            let turn = self.turn(chunk);
            if turn.is_some() {
                self.cache.forget();
            }
            let mut plain = vec![0; chunk.len as usize];
            self.decode(chunk, &mut plain)?;
            Ok(plain.into())
        })
    }

    /// Taken before room is made for a chunk, and held until it is decoded.
    fn turn(&self, chunk: &Chunk) -> Option<MutexGuard<'_, ()>> {
        (chunk.len > LONG_CHUNK).then(|| self.cache.turn())
    }

    /// Fills `out`, as long as the chunk, with its plain bytes.
    fn decode(&self, chunk: &Chunk, out: &mut [u8]) -> Result<()> {
        match chunk.kind {
            RunKind::Zero | RunKind::Ignore => out.fill(0),
            RunKind::Raw => self.fork.read_at(chunk.offset, out)?,
            RunKind::Packed(codec) => {
                // No stream is much longer than what comes out of it, whatever the table says.
                let most = chunk.len + chunk.len / 8 + (64 << 10);
                let packed = self.fork.read_vec(chunk.offset, chunk.stored.min(most) as usize)?;
                codec.decode(&packed, out).map_err(|error| {
                    let message = format!("the chunk of byte {} of the disk does not decode", chunk.start);
                    let (file, at) = self.fork.place(chunk.offset);
                    let error = Error::corrupt(LAYER, at, message).caused_by(error);
                    file.into_iter().fold(error, Error::in_file)
                })?;
            }
        }
        Ok(())
    }
}

impl BlockDevice for Udif {
    fn info(&self) -> Info {
        let len = self.inner.len;
        Info { len, block: SECTOR as u32, write: 1, discard: SECTOR, access: Access::ReadOnly }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = self.info().check(LAYER, offset, buf.len() as u64)?;
        let large = buf.len() >= WHOLE;
        let mut parts = Vec::new();
        let mut rest = buf;
        for (run, found) in self.runs(offset..end) {
            let (out, after) = std::mem::take(&mut rest).split_at_mut((run.end - run.start) as usize);
            rest = after;
            match found {
                None => out.fill(0),
                // Whole chunks of a large request go straight to the caller, side by side.
                Some((index, chunk)) if large && out.len() as u64 == chunk.len && self.inner.cache.peek(index).is_none() => {
                    parts.push((chunk, out));
                }
                Some((index, chunk)) => self.read_part(index, chunk, run.start, out)?,
            }
        }
        parts.into_par_iter().try_for_each(|(chunk, out)| {
            let _turn = self.inner.turn(chunk);
            self.inner.decode(chunk, out)
        })
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> Result<()> {
        Err(Error::read_only(LAYER))
    }

    fn discard(&self, _range: Range<u64>, _leave: Leave) -> Result<()> {
        Err(Error::read_only(LAYER))
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        let mut extent: Option<Extent> = None;
        // Neighbouring chunks of one kind are one run to whoever asks.
        for (run, found) in self.runs(range.clone()) {
            let kind = match found.map(|(_, chunk)| chunk.kind) {
                None | Some(RunKind::Ignore) => ExtentKind::Hole,
                Some(RunKind::Zero) => ExtentKind::Zero,
                Some(RunKind::Raw | RunKind::Packed(_)) => ExtentKind::Data,
            };
            match &mut extent {
                None => extent = Some(Extent { kind, len: run.end - run.start }),
                Some(extent) if extent.kind == kind => extent.len += run.end - run.start,
                Some(_) => break,
            }
        }
        extent.ok_or_else(|| Error::new(Kind::Invalid, LAYER, "an empty range has no extent").at(range.start))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _len: u64, _leave: Leave) -> Result<()> {
        Err(Error::read_only(LAYER))
    }

    fn lend(&self, range: Range<u64>) -> Result<Option<Lent>> {
        self.info().check_range(LAYER, &range)?;
        let Some((run, Some((_, chunk)))) = self.runs(range).next() else { return Ok(None) };
        if chunk.kind != RunKind::Raw {
            return Ok(None);
        }
        let from = chunk.offset + (run.start - chunk.start);
        self.inner.fork.lend(from..from + (run.end - run.start))
    }
}

fn read_trailer(file: &dyn BlockDevice) -> Result<(KolyRaw, Koly)> {
    let len = file.info().len;
    let at = len
        .checked_sub(KOLY_SIZE)
        .ok_or_else(|| Error::corrupt(LAYER, 0, format!("{len} bytes, the trailer has {KOLY_SIZE}")))?;
    let raw: KolyRaw = zerocopy::transmute!(file.read_array::<{ KOLY_SIZE as usize }>(at)?);
    let koly = Koly::parse(&raw, at)?;
    Ok((raw, koly))
}

fn read_resources(file: &dyn BlockDevice, koly: &Koly) -> Result<Vec<Resource>> {
    let (place, xml) = if koly.xml.is_empty() { (&koly.resource_fork, false) } else { (&koly.xml, true) };
    let length = place.end - place.start;
    if length > resources::MOST_BYTES {
        let message = format!("{length} bytes of resources; up to {} are read", resources::MOST_BYTES);
        return Err(Error::new(Kind::Limit, LAYER, message).at(place.start));
    }
    if length == 0 {
        return Err(Error::corrupt(LAYER, koly.xml.start, "the trailer names neither a property list nor a resource fork"));
    }
    let bytes = file.read_vec(place.start, length as usize)?;
    let found = if xml { resources::from_plist(&bytes) } else { resources::from_fork(&bytes) };
    let mut found = found.map_err(|error| Error::corrupt(LAYER, place.start, "the resources cannot be read").caused_by(error))?;
    if xml && !koly.resource_fork.is_empty() {
        add_from_fork(&mut found, file, koly);
    }
    Ok(found)
}

/// Older images have a list and a fork of the same resources. What only the fork holds is not lost; a fork that cannot be
/// read is no reason to refuse the list.
fn add_from_fork(resources: &mut Vec<Resource>, file: &dyn BlockDevice, koly: &Koly) {
    let length = koly.resource_fork.end - koly.resource_fork.start;
    if length > resources::MOST_BYTES {
        return;
    }
    let bytes = file.read_vec(koly.resource_fork.start, length as usize);
    for resource in bytes.and_then(|bytes| resources::from_fork(&bytes)).unwrap_or_default() {
        let known = resources.iter().any(|other| other.kind == resource.kind && other.id == resource.id);
        if !known && resource.kind != "blkx" {
            resources.push(resource);
        }
    }
}

fn parse_tables(resources: &[Resource], koly: &Koly) -> Result<Vec<Table>> {
    let tables = resources.iter().filter(|resource| resource.kind == "blkx");
    let tables: Vec<_> = tables.map(|table| Table::parse(&table.data, &table.name)).collect::<Result<_>>()?;
    if tables.is_empty() && koly.sector_count > 0 {
        let message = format!("no block table among {} resources, for a disk of {} sectors", resources.len(), koly.sector_count);
        return Err(Error::corrupt(LAYER, koly.xml.start, message));
    }
    Ok(tables)
}

/// The trailer's count of sectors; where it is 0, as other programs leave it, the end of the last chunk.
fn disk_len(koly: &Koly, chunks: &Chunks) -> Result<u64> {
    let sectors = if koly.sector_count == 0 { chunks.end() / SECTOR } else { koly.sector_count };
    if sectors > MOST_SECTORS || sectors * SECTOR < chunks.end() {
        let message = format!("a disk of {sectors} sectors, of which the last chunk ends at byte {}", chunks.end());
        return Err(Error::corrupt(LAYER, 0x1EC, message));
    }
    Ok(sectors * SECTOR)
}
