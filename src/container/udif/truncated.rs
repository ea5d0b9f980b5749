//! Recognition of compressed images whose end, with the trailer, is missing.

use std::io::Read;

use crate::Result;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::size::to_usize;

/// Bytes of a chunk, packed or plain; hdiutil's chunks are 512 KiB or 1 MiB.
const CHUNK: u64 = 2 << 20;

/// Returns true if `file` begins with a compressed chunk, as a UDZO or UDBZ image does: a stream of
/// whole sectors. A file without a trailer that does was truncated.
pub(crate) fn begins_with_chunk(file: &dyn BlockDevice) -> Result<bool> {
    let len = file.info().len;
    let is_zlib = match file.read_vec(0, 3.min(to_usize(len)))?.as_slice() {
        [0x78, ..] => true,
        b"BZh" => false,
        _ => return Ok(false),
    };
    let start = file.read_vec(0, to_usize(CHUNK.min(len)))?;
    if is_zlib {
        return Ok(holds_sectors(flate2::read::ZlibDecoder::new(&*start)));
    }
    let mut stream = bzip2::read::BzDecoder::new(&*start);
    let whole = holds_sectors(&mut stream);
    // A file that is compressed as a whole has nothing after its one stream.
    Ok(whole && stream.total_in() < len)
}

fn holds_sectors(stream: impl Read) -> bool {
    let mut plain = Vec::new();
    let decoded = stream.take(CHUNK).read_to_end(&mut plain);
    decoded.is_ok() && !plain.is_empty() && plain.len().is_multiple_of(512)
}
