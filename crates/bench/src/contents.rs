//! What files hold: noise that no file system can make smaller or store once for two files, and
//! that can be told again when it is read. It costs next to nothing to make: a pool is filled once,
//! and each block of a file is told apart by what stands at its front.

use bandsaw::{Error, Kind, Result};

use crate::noise::Noise;

/// Addresses of buffers are multiples of it, as direct I/O wants them; so are requests but for the
/// last of a file.
pub const ALIGNMENT: usize = 4096;
/// Bytes of noise, beyond those of a request: further apart than file systems look for repetitions.
/// No more than that, so that the processor has it near by, as it would have the one buffer of a
/// program that writes nothing but that.
const POOL: usize = 1 << 20;

/// What files hold, by number and position.
#[derive(Debug)]
pub struct Contents {
    pool: Vec<u8>,
    /// Where in `pool` an aligned address is.
    front: usize,
    seed: u64,
    request: usize,
}

impl Contents {
    /// Contents for requests of up to `request` bytes, a multiple of [`ALIGNMENT`]. Compressible
    /// ones shrink to about a half.
    pub fn new(seed: u64, request: usize, compressible: bool) -> Self {
        let mut pool = vec![0; POOL + request + ALIGNMENT];
        let front = pool.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let mut noise = Noise::new(seed);
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

    /// Bytes of a request.
    pub fn request(&self) -> usize {
        self.request
    }

    /// What file `number` holds from `offset` on, a multiple of [`ALIGNMENT`]; `len` bytes, no more
    /// than a request has.
    pub fn at(&mut self, number: u64, offset: u64, len: usize) -> &[u8] {
        let start = self.front + (offset % POOL as u64) as usize;
        let bytes = &mut self.pool[start..start + len.min(self.request)];
        for (n, block) in bytes.chunks_mut(ALIGNMENT).enumerate() {
            let at = offset + (n * ALIGNMENT) as u64;
            let mark = Noise::new(self.seed ^ number.rotate_left(40) ^ at)
                .number()
                .to_le_bytes();
            let len = block.len().min(mark.len());
            block[..len].copy_from_slice(&mark[..len]);
        }
        bytes
    }

    /// That `bytes` are what file `number` holds from `offset` on.
    pub fn check(&mut self, number: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.at(number, offset, bytes.len()) == bytes {
            return Ok(());
        }
        Err(Error::new(
            Kind::Corrupt,
            "benchmark",
            "what was read is not what was written",
        )
        .at(offset))
    }
}

/// A buffer whose address is aligned.
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
    fn no_two_blocks_are_the_same_and_all_are_told_again() {
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
