//! bzip2 streams, by the crate `bzip2`.

use crate::size::to_usize;

use bzip2::{Action, Compress, Compression, Decompress, Status};

use super::{BROKEN, CodecError, TOO_LONG, TOO_SHORT};

/// Decodes the stream `packed` into exactly `plain`.
pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), CodecError> {
    let mut stream = super::with_memory(DECODER_STATE, || Decompress::new(false))?;
    loop {
        let (taken, given) = (to_usize(stream.total_in()), to_usize(stream.total_out()));
        let status = stream
            .decompress(&packed[taken..], &mut plain[given..])
            .map_err(|error| CodecError::caused(BROKEN, error))?;
        let full = to_usize(stream.total_out()) == plain.len();
        match status {
            Status::StreamEnd if full => return Ok(()),
            Status::StreamEnd => return Err(CodecError::new(TOO_SHORT)),
            Status::MemNeeded => return Err(CodecError::no_memory()),
            // No progress: the library needs more input than there is, or more output than is
            // allowed.
            _ if (to_usize(stream.total_in()), to_usize(stream.total_out())) == (taken, given) => {
                return Err(CodecError::new(if full { TOO_LONG } else { TOO_SHORT }));
            }
            _ => {}
        }
    }
}

/// Memory in bytes that a decoder takes at its beginning; it reports if it gets no more later.
const DECODER_STATE: usize = 1 << 20;

/// Memory of an encoder in bytes: bzip2's own figure for blocks of 900,000 bytes, rounded up.
pub(super) const MEMORY: usize = 8 << 20;

/// Appends a stream of `plain`. Returns false if it would not be shorter.
pub(super) fn encode(plain: &[u8], packed: &mut Vec<u8>) -> Result<bool, CodecError> {
    if plain.is_empty() {
        return Ok(false);
    }
    let before = packed.len();
    super::extend_with_room(packed, plain.len())?;
    // The maximum block size: streams start with `BZh9`, as in all images of macOS.
    let mut stream = super::with_memory(MEMORY, || Compress::new(Compression::best(), 0))?;
    let status = stream.compress(plain, &mut packed[before..], Action::Finish);
    packed.truncate(before + to_usize(stream.total_out()));
    // Any status other than the end means that there was no room.
    Ok(
        status.map_err(|error| CodecError::caused("compression failed", error))?
            == Status::StreamEnd,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw_testing::Random;

    fn encode_at(plain: &[u8], level: u32) -> Vec<u8> {
        let mut packed = Vec::with_capacity(plain.len() + plain.len() / 50 + 1000);
        Compress::new(Compression::new(level), 0)
            .compress_vec(plain, &mut packed, Action::Finish)
            .unwrap();
        packed
    }

    /// Returns repeated words, runs of all lengths, and noise.
    fn text(len: usize, seed: u64) -> Vec<u8> {
        let mut random = Random::new(seed);
        let mut text = Vec::with_capacity(len + 5000);
        while text.len() < len {
            match random.within(0..4) {
                0 => text.resize(
                    text.len() + 1 + random.within(0..700) as usize,
                    random.within(0..256) as u8,
                ),
                1 => (0..random.within(0..40)).for_each(|_| text.push(random.within(0..256) as u8)),
                _ => {
                    let from = random.within(0..text.len() as u64 + 1) as usize;
                    let word = text[from..]
                        .iter()
                        .copied()
                        .take(random.within(0..90) as usize)
                        .collect::<Vec<_>>();
                    text.extend(word);
                    text.push(b' ');
                }
            }
        }
        text.truncate(len);
        text
    }

    #[test]
    fn several_blocks_come_back() {
        for (len, level) in [
            (1, 1),
            (4, 9),
            (5, 1),
            (260, 1),
            (99_981, 1),
            (350_000, 1),
            (1 << 20, 9),
        ] {
            let plain = text(len, len as u64);
            let mut back = vec![0xAA; len];
            decode(&encode_at(&plain, level), &mut back).unwrap();
            assert!(back == plain, "{len}");
        }
    }

    /// The checksums leave no other bytes than those that were encoded.
    #[test]
    fn damaged_streams_give_the_same_bytes_or_an_error() {
        let mut random = Random::new(19);
        let plain = text(30_000, 7);
        let packed = encode_at(&plain, 1);
        let mut whole = 0;
        for _ in 0..400 {
            let mut broken = packed.clone();
            match random.within(0..4) {
                0 => broken.truncate(random.within(0..packed.len() as u64) as usize),
                1 => broken.extend([1, 2, 3]),
                _ => {
                    let at = random.within(0..packed.len() as u64) as usize;
                    broken[at] ^= 1 << random.within(0..8);
                }
            }
            let mut back = vec![0; plain.len()];
            if decode(&broken, &mut back).is_ok() {
                assert!(back == plain);
                whole += 1;
            }
        }
        assert!((20..300).contains(&whole), "{whole}");
        for (len, reason) in [(29_999, TOO_LONG), (30_001, TOO_SHORT)] {
            let fault = decode(&packed, &mut vec![0; len]).unwrap_err();
            assert_eq!(fault.what, reason);
        }
    }
}
