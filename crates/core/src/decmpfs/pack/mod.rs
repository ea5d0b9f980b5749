//! Compression of contents: chunk by chunk on all cores, into the attribute if they fit, otherwise
//! into the resource fork.

use std::fmt;
use std::mem::offset_of;

use rayon::prelude::*;
use zerocopy::{FromZeros, IntoBytes};

use super::layout::{
    EntryRaw, HeaderRaw, MAX_ATTRIBUTE, MapRaw, NO_NAME, RESOURCES, ResourceForkRaw, ResourceRaw,
};
use super::pack_options::PackOptions;
use super::{CHUNK, Compression, LAYER, Method, Place, chunk};
use crate::progress::Progress;
use crate::size::{narrow, to_usize};
use crate::{Error, Result};

/// Maximum length of contents that are compressed, in bytes: macOS fails on longer ones (§6).
pub const MAX_LEN: u64 = u32::MAX as u64 - 1;

/// Number of chunks per core that are compressed before the results are written; large enough to
/// balance the load.
const BATCH: u64 = 32;

/// Result of a compression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedFile {
    /// Value of [`ATTRIBUTE`](super::ATTRIBUTE).
    pub attribute: Vec<u8>,
    /// Length of the resource fork in bytes; 0 if everything is in the attribute.
    pub fork_len: u64,
}

impl PackedFile {
    /// Returns the number of the type (§3).
    pub fn number(&self) -> Option<u32> {
        Compression::parse(&self.attribute).map(|compression| compression.number)
    }
}

/// Limits of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum length of the attribute in bytes, up to the 3802 that macOS accepts.
    pub attribute: usize,
    /// Maximum length of the resource fork in bytes.
    pub fork: u64,
}

/// Contents to be compressed.
pub struct PlainContents<'a> {
    /// Length in bytes.
    pub len: u64,
    /// Fills a buffer from an offset on. Called for all bytes in order, from one thread at a time.
    pub read: &'a mut (dyn FnMut(u64, &mut [u8]) -> Result<()> + Send),
}

impl fmt::Debug for PlainContents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainContents")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Compresses all of `plain`, of 1 to [`MAX_LEN`] bytes. Data for the resource fork is passed to
/// `write` with its offset, not always in order. Returns `None` if the result would exceed
/// `bounds`; data written so far is then invalid.
///
/// While all cores compress, the previous results are written and the next input is read.
pub fn pack(
    plain: PlainContents<'_>,
    packing: PackOptions,
    bounds: Bounds,
    progress: &dyn Progress,
    write: &mut (dyn FnMut(u64, &[u8]) -> Result<()> + Send),
) -> Result<Option<PackedFile>> {
    let PlainContents { len, read } = plain;
    if !(1..=MAX_LEN).contains(&len) {
        return Err(Error::limit(
            LAYER,
            format!("cannot compress {len} bytes: expected 1 to {MAX_LEN}"),
        ));
    }
    let count = to_usize(len.div_ceil(CHUNK));
    let mut table = ChunkTable::new(packing.method, count);
    let batch = CHUNK * BATCH * rayon::current_num_threads() as u64;
    let mut read_from = |start: u64, bytes: &mut Vec<u8>| {
        bytes.resize(to_usize(batch.min(len - start)), 0);
        read(start, bytes)
    };
    // The current input, and the next one.
    let (mut start, mut bytes, mut following) = (0, Vec::new(), Vec::new());
    read_from(0, &mut bytes)?;
    // The offset of the results that are not written yet, and their chunks.
    let (mut at, mut ready) = (table.len(), Vec::<Vec<u8>>::new());
    loop {
        progress.check()?;
        let next = start + bytes.len() as u64;
        let mut meanwhile = || {
            if !ready.is_empty() {
                write(at, &ready.concat())?;
            }
            if next < len {
                read_from(next, &mut following)
            } else {
                Ok(())
            }
        };
        let packed = match count {
            1 => encode_all(&bytes, packing)?,
            _ => {
                let (packed, done) = rayon::join(|| encode_all(&bytes, packing), &mut meanwhile);
                done?;
                packed?
            }
        };
        progress.advance(bytes.len() as u64);
        if let ([only], 1) = (packed.as_slice(), count)
            && size_of::<HeaderRaw>() + only.len() <= bounds.attribute.min(MAX_ATTRIBUTE)
        {
            return Ok(Some(PackedFile {
                attribute: packing.attribute(Place::Attribute, len, only),
                fork_len: 0,
            }));
        }
        at += len_of(&ready);
        packed.iter().for_each(|chunk| table.add(chunk.len()));
        ready = packed;
        let Ok(end) = u32::try_from(at + len_of(&ready) + table.tail_len()) else {
            return Ok(None);
        };
        if u64::from(end) > bounds.fork {
            return Ok(None);
        }
        std::mem::swap(&mut bytes, &mut following);
        start = next;
        if start == len {
            break;
        }
    }
    write(at, &ready.concat())?;
    at += len_of(&ready);
    let tail = table.tail();
    if !tail.is_empty() {
        write(at, &tail)?;
    }
    write(0, &table.head(at))?;
    let fork_len = at + tail.len() as u64;
    Ok(Some(PackedFile {
        attribute: packing.attribute(Place::Fork, len, &[]),
        fork_len,
    }))
}

fn len_of(chunks: &[Vec<u8>]) -> u64 {
    chunks.iter().map(|chunk| chunk.len() as u64).sum()
}

/// Compresses the chunks of `bytes`; returns them in order.
fn encode_all(bytes: &[u8], packing: PackOptions) -> Result<Vec<Vec<u8>>> {
    // One chunk per task, to balance the load between cores.
    bytes
        .par_chunks(to_usize(CHUNK))
        .with_max_len(1)
        .map(|bytes| chunk::encode(packing, bytes))
        .collect()
}

/// The table of a resource fork under construction.
struct ChunkTable {
    classic: bool,
    count: usize,
    lens: Vec<u32>,
}

impl ChunkTable {
    fn new(method: Method, count: usize) -> Self {
        Self {
            classic: method == Method::Zlib,
            count,
            lens: Vec::with_capacity(count),
        }
    }

    /// Returns the number of bytes before the chunks.
    fn len(&self) -> u64 {
        let count = self.count as u64;
        match self.classic {
            true => {
                u64::from(RESOURCES)
                    + size_of::<ResourceRaw>() as u64
                    + count * size_of::<EntryRaw>() as u64
            }
            false => (count + 1) * 4,
        }
    }

    /// Returns the number of bytes after the chunks.
    fn tail_len(&self) -> u64 {
        if self.classic {
            size_of::<MapRaw>() as u64
        } else {
            0
        }
    }

    fn add(&mut self, len: usize) {
        self.lens.push(narrow(len));
    }

    /// Returns the bytes before the chunks, which end at `end`.
    fn head(&self, end: u64) -> Vec<u8> {
        let end = narrow::<u32>(end); // checked with each batch
        let mut at = narrow::<u32>(self.len());
        let mut next = |len: &u32| {
            at += len;
            at - len
        };
        if !self.classic {
            let starts = self
                .lens
                .iter()
                .map(&mut next)
                .chain([end])
                .collect::<Vec<_>>();
            return starts.into_iter().flat_map(u32::to_le_bytes).collect();
        }
        let fork = ResourceForkRaw {
            data: RESOURCES.into(),
            map: end.into(),
            data_len: (end - RESOURCES).into(),
            map_len: narrow::<u32>(size_of::<MapRaw>()).into(),
        };
        let mut head = fork.as_bytes().to_vec();
        head.resize(RESOURCES as usize, 0);
        let resource = ResourceRaw {
            len: (end - RESOURCES - 4).into(),
            chunks: narrow::<u32>(self.count).into(),
        };
        head.extend(resource.as_bytes());
        for len in &self.lens {
            // Relative to the number of chunks.
            let offset = next(len) - RESOURCES - 4;
            head.extend(
                EntryRaw {
                    offset: offset.into(),
                    len: (*len).into(),
                }
                .as_bytes(),
            );
        }
        head
    }

    /// Returns the bytes after the chunks: the map of the single resource.
    fn tail(&self) -> Vec<u8> {
        if !self.classic {
            return Vec::new();
        }
        MapRaw {
            types_at: narrow::<u16>(offset_of!(MapRaw, last_type)).into(),
            names_at: narrow::<u16>(size_of::<MapRaw>()).into(),
            kind: *b"cmpf",
            references_at: narrow::<u16>(offset_of!(MapRaw, id) - offset_of!(MapRaw, last_type))
                .into(),
            id: 1.into(),
            name_at: NO_NAME.into(),
            ..MapRaw::new_zeroed()
        }
        .as_bytes()
        .to_vec()
    }
}

#[cfg(test)]
mod tests;
