//! Partial decoding of a compressed chunk, for callers that only identify an image.
//!
//! Partially decoded data is not verified against the checksum at the end of its stream. It is kept
//! separate from the cache of decoded chunks, and used only by an image opened
//! [unverified](super::Udif::glancing).

use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

use super::chunks::{Chunk, ChunkIndex};
use super::contents::ChunkReader;
use crate::codec::Codec;

/// Size of a piece in bytes, the unit of partial decoding.
const PIECE: usize = 16 << 10;
/// Maximum number of cached pieces.
const MOST: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Glance(Mutex<Vec<DecodePart>>);

#[derive(Debug)]
struct DecodePart {
    chunk: ChunkIndex,
    /// Index of the piece within the chunk.
    number: usize,
    bytes: Vec<u8>,
}

impl DecodePart {
    /// Returns the number of bytes of the chunk that must be decoded for it.
    fn reach(number: usize) -> u64 {
        (number as u64 + 1) * PIECE as u64
    }
}

impl Glance {
    /// Fills `out` from byte `within` of a chunk of `codec`. Returns false if the chunk must be
    /// decoded as a whole: because that is cheaper, because the codec has no streams, or because it
    /// is damaged, which the caller then reports.
    pub(super) fn read(
        &self,
        contents: &ChunkReader,
        (index, chunk, codec): (ChunkIndex, &Chunk, Codec),
        within: usize,
        out: &mut [u8],
    ) -> bool {
        if chunk.len <= PIECE as u64 || out.len() > PIECE || contents.cache.expects(index) {
            return false;
        }
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Once the work exceeds that for the whole chunk, decoding all of it is faster.
        let decoded = |seen: &[DecodePart]| -> u64 {
            seen.iter()
                .filter(|piece| piece.chunk == index)
                .map(|piece| DecodePart::reach(piece.number))
                .sum()
        };
        let mut done = 0;
        while done < out.len() {
            let (number, from) = ((within + done) / PIECE, (within + done) % PIECE);
            let known = seen
                .iter()
                .position(|piece| (piece.chunk, piece.number) == (index, number));
            let at = match known {
                Some(at) => at,
                None if decoded(&seen) + DecodePart::reach(number)
                    > chunk.len.next_multiple_of(PIECE as u64) =>
                {
                    return false;
                }
                None => {
                    let Some(bytes) = decode(contents, chunk, codec, number) else {
                        return false;
                    };
                    if seen.len() == MOST {
                        seen.remove(0);
                    }
                    seen.push(DecodePart {
                        chunk: index,
                        number,
                        bytes,
                    });
                    seen.len() - 1
                }
            };
            let bytes = &seen[at].bytes[from..];
            let len = bytes.len().min(out.len() - done);
            out[done..done + len].copy_from_slice(&bytes[..len]);
            done += len;
        }
        true
    }
}

/// Decodes one piece of a chunk, and no more of the chunk than precedes it.
fn decode(contents: &ChunkReader, chunk: &Chunk, codec: Codec, number: usize) -> Option<Vec<u8>> {
    let mut plain = codec.stream(StoredChunk {
        contents,
        at: chunk.offset,
        left: chunk.stored,
    })?;
    let mut bytes = vec![0; PIECE];
    for before in 0..=number {
        bytes.truncate((chunk.len - (before * PIECE) as u64).min(PIECE as u64) as usize);
        plain.read_exact(&mut bytes).ok()?;
    }
    Some(bytes)
}

/// A reader of the stored bytes of a chunk.
struct StoredChunk<'a> {
    contents: &'a ChunkReader,
    /// Offset in the data fork.
    at: u64,
    left: u64,
}

impl Read for StoredChunk<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = buf
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.contents
            .fork
            .read_at(self.at, &mut buf[..len])
            .map_err(io::Error::other)?;
        (self.at, self.left) = (self.at + len as u64, self.left - len as u64);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::container::Format;
    use crate::container::udif::{Area, EncodeOptions, Numbers, ToStream, Udif, encode};
    use crate::device::{BlockDeviceExt, Memory};
    use crate::progress::Silent;

    const CHUNK: usize = 1 << 20;
    const KINDS: [Format; 5] = [
        Format::Udco,
        Format::Udzo,
        Format::Udbz,
        Format::Ulfo,
        Format::Ulmo,
    ];

    /// Returns numbers as text, which compress to streams of some length.
    fn disk() -> Vec<u8> {
        let numbers = (0_u32..)
            .flat_map(|n| format!("{} {n}\n", n.wrapping_mul(2_654_435_761) % 1009).into_bytes());
        numbers.take(2 * CHUNK).collect()
    }

    fn image(format: Format, disk: &[u8]) -> Vec<u8> {
        let whole = [Area {
            range: 0..disk.len() as u64,
            name: String::new(),
            kind: String::new(),
            is_free: false,
        }];
        let mut out = ToStream(Vec::new());
        let options = EncodeOptions {
            format,
            level: None,
        };
        encode(
            &Memory::read_only(disk),
            (Numbers::Whole, &whole),
            &options,
            &mut out,
            &Silent,
        )
        .unwrap();
        out.0
    }

    fn open(image: &[u8]) -> Udif {
        Udif::open(Arc::new(Memory::read_only(image))).unwrap()
    }

    #[test]
    fn it_shows_what_is_there() {
        let disk = disk();
        for format in KINDS {
            let image = open(&image(format, &disk)).glancing();
            let places = [
                (0, 512),
                (PIECE - 3, 6),
                (CHUNK - 512, 1024),
                (2 * CHUNK - 512, 512),
                (300_000, 4096),
                (0, CHUNK),
                (70, 9),
            ];
            for (at, len) in places {
                assert!(
                    image.read_vec(at as u64, len).unwrap() == disk[at..at + len],
                    "{format}: {len} bytes at {at}"
                );
            }
        }
    }

    #[test]
    fn nothing_of_it_is_given_to_readers() {
        let image = open(&image(Format::Udzo, &disk())).glancing();
        let expects = || image.contents.cache.expects(ChunkIndex(0));
        let seen = || image.glance.as_ref().unwrap().0.lock().unwrap().len();
        image.read_vec(1024, 512).unwrap();
        image.read_vec(PIECE as u64, 512).unwrap();
        image.read_vec(CHUNK as u64 / 2, 512).unwrap();
        assert!(!expects() && seen() == 3);
        image
            .read_vec(CHUNK as u64 / 2 + 2 * PIECE as u64, 512)
            .unwrap();
        assert!(
            expects() && seen() == 3,
            "so much of it is quicker decoded whole"
        );
    }

    #[test]
    fn what_is_behind_is_not_compared() {
        let disk = disk();
        for format in [Format::Udzo, Format::Ulmo] {
            let mut bytes = image(format, &disk);
            let stored = open(&bytes)
                .contents
                .chunks
                .get(ChunkIndex(0))
                .unwrap()
                .stored as usize;
            bytes[stored / 2..stored].fill(0xFF);
            let plain = open(&bytes).read_vec(0, 512).unwrap_err();
            let image = open(&bytes).glancing();
            assert!(image.read_vec(0, 512).unwrap() == disk[..512], "{format}");
            // A damaged chunk is reported as usual.
            let error = image.read_vec(CHUNK as u64 - 512, 512).unwrap_err();
            assert_eq!(
                (error.to_string(), error.kind()),
                (plain.to_string(), plain.kind()),
                "{format}"
            );
        }
    }
}
