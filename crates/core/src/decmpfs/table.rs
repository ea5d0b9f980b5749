//! Table of the chunks in a resource fork (§4.1, §4.2), read on demand.

use std::ops::Range;

use zerocopy::{FromBytes, FromZeros, IntoBytes, little_endian::U32};

use super::fork::PackedFork;
use super::layout::{EntryRaw, RESOURCES, ResourceForkRaw, ResourceRaw};
use super::{CHUNK, LAYER, Method};
use crate::size::to_usize;
use crate::{Error, Result};

/// Maximum length of a compressed chunk in bytes: twice its contents, because LZFSE can make chunks
/// longer.
const MAX_PACKED: u64 = 2 * CHUNK;

/// The table of the chunks in a fork.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkTable {
    form: Form,
    /// Length of the fork in bytes.
    fork: u64,
    /// Number of chunks of the contents.
    pub(super) chunks: u64,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    /// Pairs of offset and length, relative to `base`, in a classic resource.
    Resource { base: u64 },
    /// Offsets from the start of the fork, one more than the number of chunks.
    Offsets,
}

impl ChunkTable {
    /// Reads the head of the table for `size` bytes of contents. Fails if it has fewer or more
    /// chunks than that.
    pub(super) fn open(fork: &PackedFork, method: Method, size: u64) -> Result<Self> {
        let (len, chunks) = (fork.info().len, size.div_ceil(CHUNK));
        if chunks == 0 && len == 0 {
            return Ok(Self {
                form: Form::Offsets,
                fork: len,
                chunks,
            });
        }
        let mut first = [0; 4];
        read(fork, 0, &mut first)?;
        let classic = match method {
            Method::Zlib => true,
            // Documented in both forms.
            Method::Stored => first == RESOURCES.to_be_bytes(),
            _ => false,
        };
        let (form, counted, at) = match classic {
            true => {
                let mut head = ResourceForkRaw::new_zeroed();
                read(fork, 0, head.as_mut_bytes())?;
                let at = u64::from(head.data.get());
                let mut resource = ResourceRaw::new_zeroed();
                read(fork, at, resource.as_mut_bytes())?;
                (
                    Form::Resource { base: at + 4 },
                    resource.chunks.get().into(),
                    at + 4,
                )
            }
            false => (
                Form::Offsets,
                u64::from(u32::from_le_bytes(first) / 4).saturating_sub(1),
                0,
            ),
        };
        let table = Self {
            form,
            fork: len,
            chunks,
        };
        // Apple's tables have room for further chunks, which is zero. A nonzero further chunk is
        // contents that the size would silently truncate.
        if counted < chunks || counted > chunks && table.has_chunk(fork, chunks)? {
            let message = format!(
                "the size in the attribute ({size} bytes) requires {chunks} chunks, the table in \
                 the resource fork has {counted}"
            );
            return Err(Error::corrupt(LAYER, at, message));
        }
        Ok(table)
    }

    /// Returns true if the table's entry for `chunk`, which must be within the table, has any
    /// bytes.
    fn has_chunk(&self, fork: &PackedFork, chunk: u64) -> Result<bool> {
        Ok(match self.form {
            Form::Resource { base } => {
                let entry = self.bytes(
                    fork,
                    base + 4 + chunk * size_of::<EntryRaw>() as u64,
                    size_of::<EntryRaw>(),
                )?;
                EntryRaw::read_from_bytes(&entry).is_ok_and(|entry| entry.len.get() != 0)
            }
            Form::Offsets => {
                let pair = self.bytes(fork, chunk * 4, 8)?;
                <[U32; 2]>::read_from_bytes(&pair).is_ok_and(|[start, end]| end > start)
            }
        })
    }

    /// Returns the ranges of `chunks` in the fork. Allocates at most the length of the fork.
    pub(super) fn places(&self, fork: &PackedFork, chunks: Range<u64>) -> Result<Vec<Range<u64>>> {
        let count = to_usize(chunks.end - chunks.start);
        match self.form {
            Form::Resource { base } => {
                let at = base + 4 + chunks.start * size_of::<EntryRaw>() as u64;
                let bytes = self.bytes(fork, at, count * size_of::<EntryRaw>())?;
                let entries = bytes
                    .chunks_exact(size_of::<EntryRaw>())
                    .filter_map(|entry| EntryRaw::read_from_bytes(entry).ok());
                let place = |entry: EntryRaw| {
                    let start = base + u64::from(entry.offset.get());
                    start..start + u64::from(entry.len.get())
                };
                self.check(chunks, at, entries.map(place))
            }
            Form::Offsets => {
                let at = chunks.start * 4;
                let bytes = self.bytes(fork, at, (count + 1) * 4)?;
                let offsets = bytes
                    .chunks_exact(4)
                    .filter_map(|offset| U32::read_from_bytes(offset).ok());
                let offsets: Vec<u64> = offsets.map(|offset| offset.get().into()).collect();
                self.check(chunks, at, offsets.windows(2).map(|pair| pair[0]..pair[1]))
            }
        }
    }

    fn bytes(&self, fork: &PackedFork, at: u64, len: usize) -> Result<Vec<u8>> {
        match at.checked_add(len as u64) {
            Some(end) if end <= self.fork => {
                let mut bytes = vec![0; len];
                fork.read_at(at, &mut bytes).map(|()| bytes)
            }
            _ => Err(short(self.fork, at, len)),
        }
    }

    fn check(
        &self,
        chunks: Range<u64>,
        at: u64,
        places: impl Iterator<Item = Range<u64>>,
    ) -> Result<Vec<Range<u64>>> {
        let check = |(chunk, place): (u64, Range<u64>)| {
            if place.start < place.end
                && place.end <= self.fork
                && place.end - place.start <= MAX_PACKED
            {
                return Ok(place);
            }
            let message = format!(
                "invalid chunk {chunk} at bytes {} to {} of a fork of {}: expected at most \
                 {MAX_PACKED} bytes within it",
                place.start, place.end, self.fork
            );
            Err(Error::corrupt(LAYER, at, message))
        };
        chunks.zip(places).map(check).collect()
    }
}

fn read(fork: &PackedFork, at: u64, buf: &mut [u8]) -> Result<()> {
    let len = fork.info().len;
    match at.checked_add(buf.len() as u64) {
        Some(end) if end <= len => fork.read_at(at, buf),
        _ => Err(short(len, at, buf.len())),
    }
}

fn short(fork: u64, at: u64, wanted: usize) -> Error {
    Error::corrupt(
        LAYER,
        at,
        format!("table of {wanted} bytes reaches past the end of the resource fork at {fork}"),
    )
}
