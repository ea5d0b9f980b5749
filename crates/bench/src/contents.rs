//! Contents of the test files: noise that no file system can compress or deduplicate, and that can
//! be generated again when it is read. It is cheap to generate: a pool is filled once, and each
//! block of a file starts with a mark of its own.

use bandsaw::{Error, Kind, Result};

use crate::noise::SplitMix64;

/// Alignment of buffers in bytes, as direct I/O requires; requests are multiples of it, except the
/// last of a file.
pub const ALIGNMENT: usize = 4096;
/// Size of the pool of noise in bytes, without one request: larger than the window in which file
/// systems look for repetitions, and small enough for the processor's cache, as a program's single
/// buffer would be.
const POOL: usize = 1 << 20;

/// Generator of file contents, by file number and offset.
#[derive(Debug)]
pub struct Contents {
    pool: Vec<u8>,
    /// Index in `pool` of the first aligned byte.
    front: usize,
    seed: u64,
    request: usize,
}

impl Contents {
    /// Creates contents for requests of up to `request` bytes, a multiple of [`ALIGNMENT`].
    /// Compressible contents shrink to about a half.
    pub fn new(seed: u64, request: usize, compressible: bool) -> Self {
        let mut pool = vec![0; POOL + request + ALIGNMENT];
        let front = pool.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let mut noise = SplitMix64::new(seed);
        for block in pool[front..].chunks_mut(ALIGNMENT) {
            let len = if compressible {
                block.len() / 2
            } else {
                block.len()
            };
            noise.fill(&mut block[..len]);
        }
        Self {
            pool,
            front,
            seed,
            request,
        }
    }

    /// Returns the size of a request, in bytes.
    pub fn request(&self) -> usize {
        self.request
    }

    /// Returns `len` bytes of file `number` at `offset`, a multiple of [`ALIGNMENT`]; at most as
    /// many bytes as a request has.
    pub fn at(&mut self, number: u64, offset: u64, len: usize) -> &[u8] {
        let start = self.front + (offset % POOL as u64) as usize;
        let bytes = &mut self.pool[start..start + len.min(self.request)];
        for (n, block) in bytes.chunks_mut(ALIGNMENT).enumerate() {
            let at = offset + (n * ALIGNMENT) as u64;
            let mark = SplitMix64::new(self.seed ^ number.rotate_left(40) ^ at)
                .number()
                .to_le_bytes();
            let len = block.len().min(mark.len());
            block[..len].copy_from_slice(&mark[..len]);
        }
        bytes
    }

    /// Checks that `bytes` are the contents of file `number` at `offset`.
    pub fn check(&mut self, number: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.at(number, offset, bytes.len()) == bytes {
            return Ok(());
        }
        Err(Error::new(
            Kind::Corrupt,
            "benchmark",
            "the data read differs from the data written",
        )
        .at(offset))
    }
}

/// A buffer with an aligned address.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    front: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGNMENT];
        let front = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { bytes, front, len }
    }

    pub(crate) fn front(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.front..self.front + len.min(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_blocks_are_the_same_and_all_are_recognized() {
        let mut contents = Contents::new(7, 1 << 16, false);
        let mut seen = HashSet::new();
        for number in 0..4 {
            for offset in (0..1 << 20).step_by(1 << 16) {
                let bytes = contents.at(number, offset, 1 << 16).to_vec();
                assert!(
                    bytes
                        .chunks(ALIGNMENT)
                        .all(|block| seen.insert(block.to_vec())),
                    "a block of file {number} is there already"
                );
                contents.check(number, offset, &bytes).unwrap();
                contents.check(number, offset, &bytes[..100]).unwrap();
                assert!(contents.check(number + 1, offset, &bytes).is_err());
            }
        }
    }

    #[test]
    fn noise_is_noise_and_half_of_it_is_asked_for() {
        let zeros = |compressible| {
            Contents::new(1, 1 << 16, compressible)
                .at(0, 0, 1 << 16)
                .iter()
                .filter(|byte| **byte == 0)
                .count()
        };
        assert!(zeros(false) < 600 && zeros(true) > 32_000);
    }
}
