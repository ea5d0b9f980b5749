//! Compressed archives for tests and for fuzzing.

use zerocopy::IntoBytes;
use zerocopy::big_endian::U64;

use super::layout::{BlockRaw, EnvelopeRaw, PREFIX};
use crate::codec::{Codec, Encoder, Level, Lz4Encoder};

/// Returns a file of `stream` in blocks of `size` bytes, with the compression of a letter: `-`, `4`, `e`,
/// `x` or `z`. Blocks that would not be shorter are stored as they are.
pub fn packed(letter: u8, size: usize, stream: &[u8]) -> Vec<u8> {
    let envelope = EnvelopeRaw {
        prefix: *PREFIX,
        compression: letter,
        block_size: U64::new(size as u64),
    };
    let mut file = envelope.as_bytes().to_vec();
    for block in stream.chunks(size) {
        let mut packed = Vec::new();
        let of = |codec| Encoder::new(codec, Level::FASTEST);
        let is_shorter = match letter {
            b'4' => Lz4Encoder::default().encode(block, &mut packed),
            b'e' => of(Codec::Lzfse).encode(block, &mut packed).unwrap_or(false),
            b'x' => of(Codec::Lzma).encode(block, &mut packed).unwrap_or(false),
            b'z' => of(Codec::Zlib).encode(block, &mut packed).unwrap_or(false),
            _ => false,
        };
        let stored = match is_shorter && packed.len() < block.len() {
            true => packed,
            false => block.to_vec(),
        };
        let header = BlockRaw {
            length: U64::new(block.len() as u64),
            stored: U64::new(stored.len() as u64),
        };
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(&stored);
    }
    file
}
