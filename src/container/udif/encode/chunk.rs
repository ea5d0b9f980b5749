//! Encoding of one chunk: reads it, sums it, splits off zeros, and compresses the rest.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crc32fast::Hasher;

use super::plan::PlannedRead;
use super::{Area, CHUNK, EncodeOptions};
use crate::Result;
use crate::codec::{Codec, Encoder};
use crate::container::SECTOR;
use crate::container::udif::layout::RunKind;
use crate::device::{BlockDevice, is_zero, reserve};
use crate::size::to_usize;

/// Minimum number of zero bytes split off a compressed chunk: fewer take less space compressed than
/// as a run of their own.
const MIN_ZEROS: usize = 128 << 10;
/// Minimum number of zero bytes split off an uncompressed chunk: the usual block size of volumes.
const MIN_ZEROS_RAW: usize = 4096;

/// An encoded chunk.
#[derive(Debug)]
pub(super) struct EncodedChunk {
    pub(super) pieces: Vec<ChunkPart>,
    /// All its stored bytes.
    pub(super) bytes: Vec<u8>,
    pub(super) stored_sum: Hasher,
    /// Checksum of the plain bytes, without zeros in unused areas.
    pub(super) plain_sum: Hasher,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkPart {
    pub(super) kind: RunKind,
    pub(super) sectors: u64,
    pub(super) stored: u64,
}

/// State that a thread reuses for each chunk.
pub(super) struct ChunkEncoder {
    codec: Option<(Codec, Encoder)>,
    plain: Vec<u8>,
}

impl ChunkEncoder {
    /// Encodes with these options. An encoding fails soon after `stop` becomes true.
    pub(super) fn new(options: &EncodeOptions, stop: &Arc<AtomicBool>) -> Self {
        let codec = options.format.codec().map(|codec| {
            let encoder = Encoder::new(codec, options.level.unwrap_or_default());
            (codec, encoder.stopped_by(stop.clone()))
        });
        Self {
            codec,
            plain: Vec::new(),
        }
    }

    /// Encodes a chunk of `area` into `room`, whose contents are discarded.
    pub(super) fn pack(
        &mut self,
        disk: &dyn BlockDevice,
        step: &PlannedRead,
        area: &Area,
        room: Vec<u8>,
    ) -> Result<EncodedChunk> {
        debug_assert!(step.len <= CHUNK as u64, "a step is at most a chunk");
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        reserve(&mut plain, to_usize(step.len))?;
        plain.resize(to_usize(step.len), 0);
        let packed = disk
            .read_at(step.start, &mut plain)
            .and_then(|()| self.pack_bytes(&plain, area.is_free, room));
        self.plain = plain;
        packed
    }

    fn pack_bytes(
        &mut self,
        plain: &[u8],
        is_free: bool,
        mut room: Vec<u8>,
    ) -> Result<EncodedChunk> {
        room.clear();
        let mut packed = EncodedChunk {
            pieces: Vec::new(),
            bytes: room,
            stored_sum: Hasher::new(),
            plain_sum: Hasher::new(),
        };
        let least = if self.codec.is_some() {
            MIN_ZEROS
        } else {
            MIN_ZEROS_RAW
        };
        for (range, has_data) in stretches(plain, least) {
            let bytes = &plain[range];
            let before = packed.bytes.len();
            let kind = if has_data {
                self.store(bytes, &mut packed.bytes)?
            } else {
                RunKind::Zero
            };
            let stored = (packed.bytes.len() - before) as u64;
            packed.pieces.push(ChunkPart {
                kind,
                sectors: bytes.len() as u64 / SECTOR,
                stored,
            });
            if has_data || !is_free {
                packed.plain_sum.update(bytes);
            }
        }
        packed.stored_sum.update(&packed.bytes);
        Ok(packed)
    }

    /// Appends `bytes` to `into`, compressed if that is shorter.
    fn store(&mut self, bytes: &[u8], into: &mut Vec<u8>) -> Result<RunKind> {
        if let Some((codec, encoder)) = &mut self.codec
            && encoder.encode(bytes, into)?
        {
            return Ok(RunKind::Packed(*codec));
        }
        reserve(into, bytes.len())?;
        into.extend_from_slice(bytes);
        Ok(RunKind::Raw)
    }
}

/// Splits `bytes`, whole sectors, into ranges of data and of zeros. The latter have at least
/// `least` bytes, unless everything is zeros.
fn stretches(bytes: &[u8], least: usize) -> Vec<(Range<usize>, bool)> {
    const SECTOR: usize = to_usize(super::SECTOR);
    let (mut found, mut data_from, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let zeros = bytes[at..]
            .chunks(SECTOR)
            .take_while(|sector| is_zero(sector))
            .map(<[u8]>::len)
            .sum::<usize>();
        if zeros >= least || zeros == bytes.len() {
            if data_from < at {
                found.push((data_from..at, true));
            }
            found.push((at..at + zeros, false));
            data_from = at + zeros;
        }
        at += zeros + SECTOR;
    }
    if data_from < bytes.len() {
        found.push((data_from..bytes.len(), true));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_zeros_are_taken_out() {
        let mut bytes = vec![0; 40 * 512];
        let of = |bytes: &[u8]| {
            stretches(bytes, 4096)
                .iter()
                .map(|(range, data)| (range.start / 512, range.end / 512, *data))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&bytes), [(0, 40, false)]);
        assert_eq!(of(&bytes[..512]), [(0, 1, false)], "all zeros, however few");
        bytes[8 * 512] = 1;
        assert_eq!(of(&bytes), [(0, 8, false), (8, 9, true), (9, 40, false)]);
        bytes[0] = 1;
        bytes[39 * 512 + 511] = 1;
        assert_eq!(
            of(&bytes),
            [(0, 9, true), (9, 39, false), (39, 40, true)],
            "seven sectors are too few"
        );
        bytes[20 * 512] = 1;
        bytes[27 * 512] = 1;
        assert_eq!(
            of(&bytes),
            [
                (0, 9, true),
                (9, 20, false),
                (20, 28, true),
                (28, 39, false),
                (39, 40, true)
            ]
        );
        assert_eq!(of(&[]), []);
    }
}
