//! bzip2 streams.
//!
//! * [`decode`](mod@decode): decoder. [`bits`], [`huffman`], [`recency`] (move to front) and
//!   [`sorted`] (block sorting): its steps.

mod bits;
mod decode;
mod huffman;
mod recency;
mod sorted;

use bzip2::{Action, Compress, Compression, Decompress, Status};

use self::decode::Decoded;
use super::{BROKEN, Fault, TOO_LONG, TOO_SHORT};

pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), Fault> {
    match decode::decode(packed, plain)? {
        Decoded::Whole => Ok(()),
        Decoded::Randomised => decode_old(packed, plain),
    }
}

/// Decodes with the library, which supports blocks of versions before 0.9.5.
fn decode_old(packed: &[u8], plain: &mut [u8]) -> Result<(), Fault> {
    let mut stream = Decompress::new(false);
    loop {
        let (taken, given) = (stream.total_in() as usize, stream.total_out() as usize);
        let status = stream
            .decompress(&packed[taken..], &mut plain[given..])
            .map_err(|error| Fault::caused(BROKEN, error))?;
        let full = stream.total_out() as usize == plain.len();
        match status {
            Status::StreamEnd if full => return Ok(()),
            Status::StreamEnd => return Err(Fault::new(TOO_SHORT)),
            // No progress: the library needs more input than there is, or more output than is
            // allowed.
            _ if (stream.total_in() as usize, stream.total_out() as usize) == (taken, given) => {
                return Err(Fault::new(if full { TOO_LONG } else { TOO_SHORT }));
            }
            _ => {}
        }
    }
}

/// Memory of an encoder in bytes: bzip2's own figure for blocks of 900,000 bytes, rounded up.
pub(super) const MEMORY: usize = 8 << 20;

/// Appends a stream of `plain`. Returns false if it would not be shorter.
pub(super) fn encode(plain: &[u8], packed: &mut Vec<u8>) -> Result<bool, Fault> {
    if plain.is_empty() {
        return Ok(false);
    }
    let before = packed.len();
    packed.resize(before + plain.len(), 0);
    // The maximum block size: streams start with `BZh9`, as in all images of macOS.
    let mut stream = Compress::new(Compression::best(), 0);
    let status = stream.compress(plain, &mut packed[before..], Action::Finish);
    packed.truncate(before + stream.total_out() as usize);
    // Any status other than the end means that there was no room.
    Ok(status.map_err(|error| Fault::caused("does not compress", error))? == Status::StreamEnd)
}
